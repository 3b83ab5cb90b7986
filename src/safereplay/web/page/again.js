/**
 * Asking again what failed by no fault of the question: the server was away for a moment, or busy.
 */
const FIRST_MS = 1_000;
const LONGEST_MS = 15_000;
const PASSING = new Set([0, 429, 503]);

/** Whether a failure may pass by itself; a refusal does not. @param {Error} error */
export const passes = (error) => PASSING.has(error.status);

/** Calls `ask` some time after a failure: each time later, but at once when the page is seen or connected again. */
export class Again {
  #timer = 0; // 0 where nothing is to be asked again
  #wait = FIRST_MS;

  /** @param {function(): void} ask */
  constructor(ask) {
    this.ask = ask;
    document.addEventListener("visibilitychange", () => document.visibilityState === "visible" && this.#now());
    window.addEventListener("online", () => this.#now());
  }

  /** Say how it went. @param {boolean} failed */
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
