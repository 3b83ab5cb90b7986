/**
 * The exact limits that both panes show: /api/solve, requested whenever the inputs of a side change.
 *
 * At most one request per side is in flight, and the newest state is requested next: a dragged slider never builds a
 * queue, and the drawing is at most one answer behind.
 */
import { Again, passes } from "./again.js";
import { get } from "./api.js";
import { sideQuery } from "./link.js";

export const SIDES = ["left", "right"];

export class Answers {
  #store;
  #listeners = new Set();
  #sides = {};

  constructor(store) {
    this.#store = store;
    for (const side of SIDES) {
      const again = new Again(() => this.#ask(side, true));
      this.#sides[side] = { answer: null, query: null, asking: null, problem: "", again };
    }
  }

  /** The last answer of /api/solve for a side, or null. @param {"left"|"right"} side */
  get(side) {
    return this.#sides[side].answer;
  }

  /** Why the current state of a side has no answer: a sentence, or "". */
  problem(side) {
    return this.#sides[side].problem;
  }

  /** Whether the answer of a side belongs to the current state. */
  settled(side) {
    const { asking, query } = this.#sides[side];
    return asking === null && query === this.#wanted(side);
  }

  /** Call `fn(side, answer)` with every new answer; `answer` is null if the server refused. */
  subscribe(fn) {
    this.#listeners.add(fn);
    return () => this.#listeners.delete(fn);
  }

  /** Request what is not yet known of the current state. */
  refresh() {
    for (const side of SIDES) this.#ask(side);
  }

  #wanted(side) {
    return sideQuery(this.#store.get(), side, this.#store.presets);
  }

  async #ask(side, retry = false) {
    const now = this.#sides[side];
    const query = this.#wanted(side);
    if (now.asking !== null || (now.query === query && !retry)) return;
    now.asking = query;
    const { failed = false, ...outcome } = await this.#outcome(query);
    const asBefore = failed && query === now.query && outcome.problem === now.problem;
    Object.assign(now, { asking: null, query }, outcome);
    now.again.after(failed);
    this.#ask(side); // before drawing, so that the server works in parallel
    if (asBefore) return; // still unreachable: do not show a dismissed line again
    for (const fn of [...this.#listeners]) fn(side, outcome.answer ?? null);
  }

  /** An answer, or the reason why there is none; `failed` if that is temporary. */
  async #outcome(query) {
    const problem = cannotAsk(this.#store.get().world);
    if (problem) return { problem };
    try {
      return { answer: await get("/api/solve", query), problem: "" };
    } catch (error) {
      return { problem: error.detail ?? String(error), failed: passes(error) };
    }
  }
}

/** What is missing from a world, as a sentence, or "", found without the server. */
function cannotAsk(world) {
  const text = world.rows.join("");
  if (!text.includes("G")) return "A world needs a goal: choose Goal and click a cell.";
  if (!world.fall_ends && text.includes("X") && !text.includes("S")) {
    return "A fall that leads back to the start needs a start: choose Start and click a cell.";
  }
  return "";
}
