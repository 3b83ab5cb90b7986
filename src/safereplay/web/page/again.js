/**
 * Retries of requests that failed because the server was unreachable or busy.
 */
const FIRST_MS = 1_000;
const LONGEST_MS = 15_000;
const PASSING = new Set([0, 429, 503]);

/** Whether a failure is temporary; a refusal is not. @param {Error} error */
export const passes = (error) => PASSING.has(error.status);

/** Calls `ask` after a failure, with growing delays; at once when the page becomes visible or online again. */
export class Again {
  #timer = 0; // 0 if no retry is planned
  #wait = FIRST_MS;

  /** @param {function(): void} ask */
  constructor(ask) {
    this.ask = ask;
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.#now());
    window.addEventListener("online", () => this.#now());
  }

  /** Report the result of a request. @param {boolean} failed */
  after(failed) {
    clearTimeout(this.#timer);
    this.#timer = failed ? setTimeout(() => this.#now(), this.#wait) : 0;
    this.#wait = failed ? Math.min(2 * this.#wait, LONGEST_MS) : FIRST_MS;
  }

  #now() {
    if (!this.#timer) return;
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.ask();
  }
}
