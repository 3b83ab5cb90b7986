/**
 * The line under a board: the values of the cell under the pointer, and where its action changes; else the learner's dials.
 */
import { SIDES } from "./answers.js";
import { Again, passes } from "./again.js";
import { get, RECORDED } from "./api.js";
import { ARROWS, replaysOf, replayText } from "./board.js";
import { dialsText } from "./dials.js";
import { byId, el, place, say } from "./dom.js";
import { join, learnerText, worldQuery } from "./link.js";

const DIAL = { replay: "v", mihatsch: "kappa", gaskett: "beta" }; // the dial of /api/switches; other learners have none
const SIGNS = { v: "v", kappa: "κ", beta: "β" };
const WAIT_MS = 120; // no request while the pointer or a slider moves
const ASIDE = "Point at a cell to see its values.";
const UNKNOWN = "No answer for this map yet.";

/** Write the line of both boards. */
export function startDetail(store, answers, boards) {
  for (const side of SIDES) new Detail(side, store, answers, boards[side]);
}

class Detail {
  #cell = null;
  #asked = { query: null, answer: null, abort: null };
  #timer = 0;
  #again = new Again(() => {
    this.#asked.query = null;
    this.#ask();
  });

  constructor(side, store, answers, board) {
    Object.assign(this, { side, store, answers, board, line: byId(`${side}-detail`) });
    const point = (event) => this.#point(event.target.closest?.("[data-cell]")?.dataset.cell ?? null);
    board.svg.addEventListener("pointerover", point);
    board.svg.addEventListener("focusin", point);
    board.svg.addEventListener("pointerleave", () => this.#point(this.#focused()));
    board.svg.addEventListener("overlaid", () => this.#cell && this.#write());
    answers.subscribe((of) => {
      if (of !== side) return;
      this.#write();
      this.#askSoon();
    });
    this.#write();
  }

  #focused() {
    const active = document.activeElement;
    return this.board.svg.contains(active) ? (active.dataset.cell ?? null) : null;
  }

  #point(cell) {
    if (cell === this.#cell) return;
    this.#cell = cell;
    this.#write();
    this.#askSoon();
  }

  #askSoon() {
    clearTimeout(this.#timer);
    if (this.#cell) this.#timer = setTimeout(() => this.#ask(), WAIT_MS);
  }

  /** What the board shows, and the state under the pointer; null if there is none. */
  #state() {
    const { shown } = this.board;
    const at = shown && this.#cell && String(place(this.#cell));
    const s = at ? shown.cells.findIndex((cell) => String(cell) === at) : -1;
    return s >= 0 && !shown.terminal[s] ? { shown, s } : null;
  }

  /** The parameters of /api/switches, or null; they do not depend on the dial. */
  #query() {
    const { world, epsilon, [this.side]: learner } = this.store.get();
    const dial = DIAL[learner.kind];
    if (!dial || RECORDED) return null;
    const still = { ...learner, [dial]: this.store.learners[learner.kind].defaults[dial] };
    return join(worldQuery(world, this.store.presets), { learner: learnerText(still), epsilon });
  }

  async #ask() {
    const query = this.#query();
    if (!query || query === this.#asked.query || !this.#state() || this.answers.problem(this.side)) return;
    this.#asked.abort?.abort();
    const asked = (this.#asked = { query, answer: null, abort: new AbortController() });
    try {
      asked.answer = await get("/api/switches", query, { signal: asked.abort.signal });
      this.#again.after(false);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.#again.after(passes(error));
      asked.answer = { problem: error.detail };
    }
    if (asked === this.#asked) this.#write();
  }

  #write() {
    const stale = this.answers.problem(this.side);
    const found = stale ? null : this.#state();
    this.line.classList.toggle("empty", !found);
    if (!found) {
      this.line.textContent = stale ? UNKNOWN : dialsText(this.store, this.answers, this.side) || ASIDE;
      return;
    }
    const { shown, s } = found;
    const values = shown.Q[s].map((q, a) => `${ARROWS[a]} ${say(q)}`).join("   ");
    const [row, column] = place(this.#cell);
    const where = `Row ${row + 1}, column ${column + 1}: ${ARROWS[shown.policy[s]]}`;
    const replays = replaysOf(shown, s).map(replayText).join("; ");
    const parts = [where, this.#switch(s), `Q  ${values}`, replays && `replayed  ${replays}`];
    this.line.replaceChildren(...parts.filter(Boolean).map((part) => el("span", {}, part)));
  }

  #switch(s) {
    const query = this.#query();
    if (!query) return "";
    const { answer } = this.#asked;
    if (query !== this.#asked.query || !answer) return "switches at …";
    if (answer.problem) return "";
    const sign = SIGNS[answer.dial] ?? answer.dial;
    const [first, kept] = [answer.first[s], this.answers.get(this.side).policy[s]];
    if (first === null || first === undefined) return `keeps ${ARROWS[kept]} for every ${sign} tried`;
    return `switches to ${ARROWS[answer.to[s]]} at ${sign} = ${say(first, 2)}`;
  }
}
