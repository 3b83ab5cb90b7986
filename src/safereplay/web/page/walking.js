/**
 * Walks under the policies that the boards show, both with the same luck, and their tally.
 *
 * Walk n has the same start and the same random numbers on both boards: number k of walk n decides the outcome of its
 * step k, the likeliest outcome first. So both slip at the same steps, as long as they do the same. A tally belongs to
 * one policy: if the policy changes where it matters, the tally starts again.
 */
import { SIDES } from "./answers.js";
import { Again, passes } from "./again.js";
import { get } from "./api.js";
import { worldQuery } from "./link.js";
import { writeTally } from "./panes.js";

const DOTS = 7; // walks at a time on each board
const APART = 2; // steps between the starts of the first walks
const LONGEST = 1_000; // steps; a longer walk is cut off
const SLOW_MS = 330; // per step of a single walk
const QUICK_MS = 45; // per step after the first SLOW_STEPS
const SLOW_STEPS = 15;
const SINGLE = 200; // steps of a single walk; a longer one is cut off, and not counted

export class Walking {
  #store;
  #answers;
  #boards;
  #again = new Again(() => this.#load());
  #world = null; // the query of the world, and its model
  #sides = {};
  #pace = { ms: 160, bulk: 0 };
  #on = false;
  #single = null; // 'one episode': its number, its walks once it has begun, and who is told
  #last = 0;
  #next = 0; // the number of the next single walk

  constructor(store, answers, boards) {
    this.#store = store;
    this.#answers = answers;
    this.#boards = boards;
    for (const side of SIDES) {
      this.#sides[side] = { key: null, walks: [], begun: 0, n: 0, unsafe: 0, endless: 0 };
      boards[side].svg.addEventListener("overlaid", () => this.#check(side));
    }
    answers.subscribe((side) => this.#check(side));
    store.subscribe((state, before) => state.world !== before.world && this.#load());
    this.#load();
    requestAnimationFrame((now) => this.#tick(now));
  }

  /** Walk or stand still. @param {boolean} on */
  set on(on) {
    this.#on = on;
    if (on) this.#stopSingle();
    if (!on) for (const side of SIDES) this.#boards[side].walks.clear();
  }

  get on() {
    return this.#on;
  }

  /** @param {{ms: number, bulk: number}} pace milliseconds per step, and walks per step that are only counted */
  set pace(pace) {
    this.#pace = pace;
  }

  /**
   * One walk on each board, step by step, or drawn at once if `still`; `told(sentence)` is called with its result.
   * It begins when both policies are known, and begins again if one of them changes.
   */
  one(told, still) {
    for (const side of SIDES) this.#boards[side].walks.clear();
    this.#single = { n: 1e6 + this.#next++, walks: null, told, still };
    this.#last = 0;
  }

  #stopSingle() {
    if (!this.#single) return;
    this.#single = null;
    for (const side of SIDES) this.#boards[side].walks.clear();
  }

  get #singleMs() {
    return this.#single.walks && SIDES.some((side) => this.#single.walks[side].k > SLOW_STEPS) ? QUICK_MS : SLOW_MS;
  }

  #ready() {
    return SIDES.every((side) => this.#policy(side)) && this.#world?.model;
  }

  #policy(side) {
    const shown = this.#answers.problem(side) ? null : this.#boards[side].shown;
    return shown && this.#world?.model && shown.policy.length === this.#world.model.ends.length ? shown : null;
  }

  async #load() {
    const query = worldQuery(this.#store.get().world, this.#store.presets);
    if (this.#world?.query === query && this.#world.model) return;
    this.#world = { query, model: null };
    try {
      const model = await get("/api/model", query);
      if (this.#world.query === query) this.#world.model = prepared(model);
      this.#again.after(false);
    } catch (error) {
      this.#again.after(passes(error)); // an unfinished map has no model; the boards say why
    }
  }

  /** Start the tally again if the policy of a side is another one. */
  #check(side) {
    const shown = this.#policy(side);
    const key = shown ? `${this.#world.query} ${reached(shown, this.#world.model)}` : null;
    const now = this.#sides[side];
    if (key === now.key) return;
    Object.assign(now, { key, walks: [], begun: 0, n: 0, unsafe: 0, endless: 0 });
    this.#boards[side].walks.clear();
    if (this.#single) this.#single.walks = null;
    writeTally(side, now);
  }

  #tick(now) {
    requestAnimationFrame((then) => this.#tick(then));
    const ms = this.#single ? this.#singleMs : this.#pace.ms;
    if (document.hidden || now - this.#last < ms) return;
    this.#last = now;
    for (const side of SIDES) this.#check(side); // the model may have come after the answer
    if (!this.#ready()) return;
    if (this.#single) {
      do this.#stepSingle();
      while (this.#single?.still);
    } else if (this.#on) for (const side of SIDES) this.#stepAll(side, Math.min(ms, 400));
  }

  #stepAll(side, ms) {
    const now = this.#sides[side];
    const board = this.#boards[side];
    const { cells } = board.shown;
    for (let i = 0; i < DOTS; i++) {
      const walk = now.walks[i];
      if (!walk || walk.over) now.walks[i] = { ...this.#begin(side, now.begun++), fresh: true, wait: walk ? 0 : APART * i };
      else if (walk.wait > 0) walk.wait -= 1;
      else {
        walk.fresh = false;
        this.#step(side, walk);
        if (walk.over) {
          board.walks.end(cells[walk.s], walk.unsafe, i);
          this.#count(side, walk);
        }
      }
    }
    for (let k = 0; k < this.#pace.bulk; k++) {
      const walk = this.#begin(side, now.begun++);
      while (!walk.over) this.#step(side, walk);
      this.#count(side, walk);
    }
    board.walks.draw(now.walks.map((walk) => ({ cell: walk.over || walk.wait ? null : cells[walk.s], fresh: walk.fresh })), ms);
    writeTally(side, now);
  }

  #stepSingle() {
    const { n, told } = this.#single;
    const begun = () => Object.fromEntries(SIDES.map((side) => [side, { ...this.#begin(side, n), cells: [] }]));
    const walks = (this.#single.walks ??= begun());
    for (const side of SIDES) {
      const walk = walks[side];
      const { walks: dots, shown } = this.#boards[side];
      const walked = walk.cells.length > 0 && !walk.over;
      if (walked) this.#step(side, walk, SINGLE);
      if (walked || walk.k === 0) walk.cells.push(shown.cells[walk.s]);
      dots.follow(walk.cells.filter((cell, k, all) => String(cell) !== String(all[k - 1])));
      dots.draw([{ cell: walk.over ? null : walk.cells.at(-1), bold: true, fresh: walk.k === 0 }], 0.9 * this.#singleMs);
      if (walked && walk.over && !walk.cut) dots.end(walk.cells.at(-1), walk.unsafe, 0, true);
    }
    if (!SIDES.every((side) => walks[side].over)) return;
    this.#single = null;
    for (const side of SIDES) {
      if (!walks[side].cut) this.#count(side, walks[side]);
      writeTally(side, this.#sides[side]);
    }
    told(SIDES.map((side) => sentence(side, walks[side])).join(" "));
  }

  #begin(side, n) {
    const { start } = this.#world.model;
    return { n, k: 0, s: start[Math.floor(luck(n, 0) * start.length)], total: 0, unsafe: false, over: false };
  }

  #step(side, walk, longest = LONGEST) {
    const { first, s_next, r, share, terminal, unsafe, ends } = this.#world.model;
    const pair = 4 * walk.s + this.#boards[side].shown.policy[walk.s];
    const u = luck(walk.n, ++walk.k);
    let j = first[pair];
    while (j < first[pair + 1] - 1 && u >= share[j]) j++;
    walk.total += r[j];
    walk.unsafe ||= unsafe[j] === 1;
    walk.s = s_next[j];
    const ended = terminal[j] === 1 || ends[walk.s] === 1;
    walk.cut = !ended && walk.k >= longest;
    walk.over = ended || walk.cut;
  }

  #count(side, walk) {
    const now = this.#sides[side];
    now.n += 1;
    if (walk.unsafe) now.unsafe += 1;
    if (walk.cut) now.endless += 1;
  }
}

function sentence(side, { k, total, unsafe, cut }) {
  const name = side === "left" ? "Left" : "Right";
  const end = cut ? "is still walking" : unsafe ? "has an unsafe outcome" : "arrives";
  return `${name} ${end} after ${k} steps, return ${Number(total.toPrecision(4))}.`;
}

/** A model with the outcomes of each pair sorted, the likeliest first, and their cumulative shares. */
function prepared(model) {
  const order = model.p.map((_, j) => j);
  for (let k = 0; k + 1 < model.first.length; k++) {
    const own = order.slice(model.first[k], model.first[k + 1]).sort((a, b) => model.p[b] - model.p[a] || a - b);
    order.splice(model.first[k], own.length, ...own);
  }
  const sorted = (values) => order.map((j) => values[j]);
  const share = sorted(model.p);
  for (let k = 0; k + 1 < model.first.length; k++) {
    for (let j = model.first[k] + 1; j < model.first[k + 1]; j++) share[j] += share[j - 1];
  }
  const parts = ["s_next", "r", "terminal", "unsafe"].map((name) => [name, sorted(model[name])]);
  return { ...model, ...Object.fromEntries(parts), share };
}

/** The actions of a policy in the states that it can reach from the start, as text. */
function reached({ policy }, { first, s_next, ends, start }) {
  const seen = new Set(start);
  for (const s of seen) {
    if (ends[s]) continue;
    const pair = 4 * s + policy[s];
    for (let j = first[pair]; j < first[pair + 1]; j++) seen.add(s_next[j]);
  }
  return [...seen].sort((a, b) => a - b).map((s) => `${s}${"↑→↓←"[policy[s]] ?? ""}`).join("");
}

/** Random number k of walk n, in [0, 1): a hash of both, the same for both boards. */
function luck(n, k) {
  let x = (Math.imul(n + 1, 0x9e3779b1) ^ Math.imul(k + 1, 0x85ebca77)) >>> 0;
  for (const by of [0x7feb352d, 0x846ca68b]) {
    x = Math.imul(x ^ (x >>> 16), by) >>> 0;
    x = (x ^ (x >>> 15)) >>> 0;
  }
  return ((x ^ (x >>> 16)) >>> 0) / 2 ** 32;
}
