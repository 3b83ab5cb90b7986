/**
 * The whole state of the page, in one place.
 *
 * States are immutable: `set` makes a new one from the old and calls all listeners. The old one is pushed onto a stack
 * for undo. The address of the page always contains the current state, and the browser's Back and Forward go through
 * the same steps as undo and redo.
 */
import { join, query } from "./link.js";

const TOGETHER_MS = 600; // changes from the same source within this time are one step of undo
const ADDRESS_MS = 150; // browsers refuse an address that changes too often
const DEPTH = 200;
const USUAL = { replay: { mixing: "matched" } }; // what the page chooses instead of a learner's default
const BESIDE = ["lesson", "lecture"]; // parameters of the address that are not part of the state

/** @typedef {{remember?: boolean, source?: string, join?: boolean}} How
 *  remember: can be undone; source: what changed it; join: part of the last step of undo, at any time */

class Store {
  #state = null;
  #presets = [];
  #learners = {};
  #past = [];
  #future = [];
  #listeners = new Set();
  #travellers = new Set();
  #last = { source: "", at: 0 };
  #timer = 0;
  #more = {}; // the values of BESIDE
  #former = { left: {}, right: {} }; // by side: its last learner of each kind
  #entry = false; // whether the next address is a new entry of the browser's history

  /** Start with a state, the presets, and the catalog of learners. */
  begin(state, presets, learners) {
    this.#state = Object.freeze(state);
    this.#presets = presets;
    this.#learners = learners;
    this.#past = [];
    this.#future = [];
    const asked = new URLSearchParams(location.search);
    this.#more = Object.fromEntries(BESIDE.filter((name) => asked.has(name)).map((name) => [name, asked.get(name)]));
    history.replaceState({ state: this.#state, more: this.#more }, "");
    window.addEventListener("popstate", ({ state: entry }) => entry && this.#return(entry));
  }

  /** The current state. */
  get() {
    return this.#state;
  }

  /** The worlds to start from, as /api/presets lists them. */
  get presets() {
    return this.#presets;
  }

  /** The catalog of learners, as /api/learners lists them. */
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

  /** Change one learner. Another kind has the dials that it had before on this side, or its defaults. @param {"left"|"right"} side */
  setSide(side, patch, how) {
    const now = this.#state[side];
    const { kind, scheme } = { ...now, ...patch };
    this.#former[side][now.kind] = now;
    const base = kind === now.kind ? now : (this.#former[side][kind] ?? { kind, ...this.#learners[kind].defaults, ...USUAL[kind] });
    this.set({ [side]: schemed(this.#learners, { ...base, ...patch }, scheme !== now.scheme) }, how);
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

  /** Call `fn(more)` when Back or Forward changes the other parameters of the address. */
  onTravel(fn) {
    this.#travellers.add(fn);
  }

  /** Set parameters of the address beside the state; null removes one. @param {object} more */
  setMore(more) {
    const next = Object.fromEntries(Object.entries({ ...this.#more, ...more }).filter(([, value]) => value != null));
    if (same(next, this.#more)) return;
    this.#more = next;
    this.#entry = true;
    this.#writeSoon();
  }

  /** The query of the address. */
  get link() {
    return join(query(this.#state, this.#presets), this.#more);
  }

  /** Write the current state into the address now. */
  writeAddress() {
    clearTimeout(this.#timer);
    const entry = { state: this.#state, more: this.#more };
    history[this.#entry ? "pushState" : "replaceState"](entry, "", `?${this.link}`);
    this.#entry = false;
  }

  #writeSoon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.writeAddress(), ADDRESS_MS);
  }

  /** Back or Forward: show the state of that entry. */
  #return({ state, more }) {
    clearTimeout(this.#timer);
    this.#entry = false;
    this.#more = more;
    this.#last = { source: "", at: 0 };
    this.#past.push(this.#state);
    this.#become(state, "history", false);
    for (const fn of this.#travellers) fn(more);
  }

  #remember(source, join) {
    const at = performance.now();
    const goesOn = source !== "" && source === this.#last.source && (join || at - this.#last.at < TOGETHER_MS);
    this.#last = { source, at };
    this.#future = [];
    if (goesOn && this.#past.length) return;
    this.#entry = true;
    this.#past.push(this.#state);
    if (this.#past.length > DEPTH) this.#past.shift();
  }

  #travel(from, to, source) {
    if (!from.length) return;
    to.push(this.#state);
    this.#last = { source: "", at: 0 };
    this.#become(from.pop(), source);
  }

  #become(state, source, write = true) {
    const before = this.#state;
    this.#state = Object.freeze(state);
    if (write) this.#writeSoon();
    for (const fn of [...this.#listeners]) fn(state, before, source);
  }
}

/** A side whose scheme has changed: with the dials of the new one, at their defaults where the old value is out of range. */
function schemed(learners, side, changed) {
  const schemes = learners[side.kind].choices?.scheme;
  if (!schemes || !changed) return side;
  const { dials, sliders } = schemes.find(({ value }) => value === side.scheme);
  const fits = (name) => side[name] >= sliders[name].min && side[name] <= sliders[name].max;
  const own = Object.entries(dials).map(([name, usual]) => [name, fits(name) ? side[name] : usual]);
  const { kind, v, mixing, scheme } = side;
  return { kind, v, ...Object.fromEntries(own), mixing, scheme };
}

/** Whether two plain values are deeply equal. */
export function same(a, b) {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

export const store = new Store();
