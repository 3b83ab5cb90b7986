/**
 * The whole state of the page, in one place.
 *
 * States are immutable: `set` makes a new one from the old and calls all listeners. The old one is pushed onto a stack
 * for undo. The address of the page always contains the current state.
 */
import { query } from "./link.js";

const TOGETHER_MS = 600; // changes from the same source within this time are one step of undo
const ADDRESS_MS = 150; // browsers refuse an address that changes too often
const DEPTH = 200;

/** @typedef {{remember?: boolean, source?: string, join?: boolean}} How
 *  remember: can be undone; source: what changed it; join: part of the last step of undo, at any time */

class Store {
  #state = null;
  #presets = [];
  #learners = {};
  #past = [];
  #future = [];
  #listeners = new Set();
  #last = { source: "", at: 0 };
  #timer = 0;

  /** Start with a state, the presets, and the dials of each kind of learner. */
  begin(state, presets, learners) {
    this.#state = Object.freeze(state);
    this.#presets = presets;
    this.#learners = learners;
    this.#past = [];
    this.#future = [];
  }

  /** The current state. */
  get() {
    return this.#state;
  }

  /** The worlds to start from, as /api/presets lists them. */
  get presets() {
    return this.#presets;
  }

  /** The defaults and sliders of each kind of learner, as /api/learners lists them. */
  get learners() {
    return this.#learners;
  }

  /** Replace the top-level fields of `patch` in the state. @param {object} patch @param {How} how */
  set(patch, { remember = true, source = "", join = false } = {}) {
    const changed = Object.keys(patch).some((key) => !same(patch[key], this.#state[key]));
    if (!changed) return;
    if (remember) this.#remember(source, join);
    this.#become({ ...this.#state, ...patch }, source);
  }

  /** Change some fields of the world. @param {object} patch @param {How} how */
  setWorld(patch, how) {
    this.set({ world: { ...this.#state.world, ...patch } }, how);
  }

  /** Change one learner; another kind starts from its defaults. @param {"left"|"right"} side */
  setSide(side, patch, how) {
    const now = this.#state[side];
    const kind = patch.kind ?? now.kind;
    const base = kind === now.kind ? now : { kind, ...this.#learners[kind].defaults };
    this.set({ [side]: { ...base, ...patch } }, how);
  }

  undo() {
    this.#travel(this.#past, this.#future, "undo");
  }

  redo() {
    this.#travel(this.#future, this.#past, "redo");
  }

  canUndo() {
    return this.#past.length > 0;
  }

  canRedo() {
    return this.#future.length > 0;
  }

  /** Call `fn(state, before, source)` after every change; returns a function that stops this. */
  subscribe(fn) {
    this.#listeners.add(fn);
    return () => this.#listeners.delete(fn);
  }

  /** Write the current state into the address now. */
  writeAddress() {
    clearTimeout(this.#timer);
    history.replaceState(null, "", `?${query(this.#state, this.#presets)}`);
  }

  #remember(source, join) {
    const at = performance.now();
    const goesOn = source !== "" && source === this.#last.source && (join || at - this.#last.at < TOGETHER_MS);
    this.#last = { source, at };
    this.#future = [];
    if (goesOn && this.#past.length) return;
    this.#past.push(this.#state);
    if (this.#past.length > DEPTH) this.#past.shift();
  }

  #travel(from, to, source) {
    if (!from.length) return;
    to.push(this.#state);
    this.#last = { source: "", at: 0 };
    this.#become(from.pop(), source);
  }

  #become(state, source) {
    const before = this.#state;
    this.#state = Object.freeze(state);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.writeAddress(), ADDRESS_MS);
    for (const fn of [...this.#listeners]) fn(state, before, source);
  }
}

/** Whether two plain values are deeply equal. */
export function same(a, b) {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

export const store = new Store();
