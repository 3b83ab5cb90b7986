/**
 * The running learner: run, pause, step, and show what it has learned so far.
 *
 * A run is a pure function of its seed, so a stream can start at any iteration: a pause closes it, and to continue, it
 * is opened again at the last iteration seen.
 */
import { readable, stream } from "./api.js";
import { byId } from "./dom.js";
import { controls, BYS, LENGTHS } from "./learn-controls.js";
import { Curve, Multiples, statusText } from "./learn-view.js";
import { join, sideQuery } from "./link.js";

const SLOWEST_MS = 250; // between two frames at one iteration per frame
const FASTEST_MS = 50;
const PREPARING_MS = 400; // a longer wait is explained
const COMPILING = "Compiling this learner for the first time…";
const FINDING = "Restoring the run…";
const SPEAK_MS = 1_000; // between two changes of the status: screen readers read each of them
const DRAW_MS = 150; // between two drawings of the curve and the small boards

/** The frame of learning that each board shows now, or null. */
export const learned = { left: null, right: null };

/** Set up the learning panel. */
export function start(parts) {
  new Learning(parts);
}

class Learning {
  #store;
  #answers;
  #boards;
  #notice;
  #source = null; // the open stream
  #waiting = 0; // timer of the message about preparing
  #frame = null; // the last one seen
  #pending = false; // whether a drawing is planned
  #spoken = 0;
  #drawn = 0;

  constructor({ store, answers, boards, notice }) {
    Object.assign(this, { phase: "idle", side: "right", until: LENGTHS[1] });
    this.#store = store;
    this.#answers = answers;
    this.#boards = boards;
    this.#notice = notice;
    this.view = controls(byId("learn"), {
      run: () => (this.phase === "running" ? this.pause() : this.run()),
      step: () => this.step(),
      restart: () => this.restart(),
      speed: () => this.phase === "running" && this.run(),
      seeds: (seeds) => store.set({ seeds }, { source: "seeds" }),
      side: (side) => this.reset(() => (this.side = side)),
      until: (until) => this.#lengthen(until),
    });
    this.curve = new Curve(byId("curve"));
    this.multiples = new Multiples(byId("multiples"));
    store.subscribe((state, before) => this.#follow(state, before));
    this.view.seeds.value = store.get().seeds;
    this.reset();
  }

  /** Iterations seen so far. */
  get t() {
    return this.#frame?.t ?? 0;
  }

  /** Continue from the last frame, at the chosen speed; after the end, restart. */
  run() {
    if (this.t >= this.until) this.reset();
    const speed = Number(this.view.speed.value);
    const pace = Math.max(FASTEST_MS, SLOWEST_MS - 20 * speed);
    this.#open({ by: BYS[speed], pace });
    this.#enter("running");
  }

  /** Pause. */
  pause() {
    this.#close();
    this.#enter("paused");
  }

  /** One iteration. */
  step() {
    if (this.t >= this.until) return;
    this.#open({ by: 1, frames: 1, pace: FASTEST_MS });
    this.#enter("paused");
  }

  /** Restart from the first iteration; keep running if it was running. */
  restart() {
    const running = this.phase === "running";
    this.reset();
    if (running) this.run();
  }

  /** Discard the run. `between` is called before the boards show the limits again. */
  reset(between = () => {}) {
    this.#close();
    this.#frame = null;
    this.#overlay(null);
    between();
    byId("learn").dataset.side = this.side;
    this.curve.clear();
    this.multiples.clear();
    this.#enter("idle");
  }

  #open(more) {
    this.#close();
    const state = this.#store.get();
    const query = sideQuery(state, this.side, this.#store.presets);
    const params = join(query, { seeds: state.seeds, since: this.t, until: this.until, ...more });
    this.#waiting = setTimeout(() => this.view.prepare(this.t ? FINDING : COMPILING), PREPARING_MS);
    this.#source = stream("/api/learn", params, {
      frame: (frame) => this.#see(frame),
      done: () => this.#end("done"),
      paused: () => this.#end("paused"),
      problem: ({ detail }) => this.#fail(readable(detail)),
      lost: () => this.#fail("The connection was lost; press Run to continue."),
    });
  }

  #close() {
    clearTimeout(this.#waiting);
    this.view.prepare("");
    this.#source?.close();
    this.#source = null;
  }

  #end(phase) {
    this.#close();
    this.#enter(phase);
  }

  #fail(sentence) {
    this.#end(this.#frame ? "paused" : "idle");
    this.#notice(sentence, "problem");
  }

  #enter(phase) {
    this.phase = phase;
    document.body.dataset.learning = phase;
    this.view.show(phase);
    this.view.status.dataset.t = this.t;
    this.#spoken = this.#drawn = 0;
    this.#paint();
  }

  #see(frame) {
    if (!this.#source) return;
    clearTimeout(this.#waiting);
    this.view.prepare("");
    if (!this.#frame) this.#spoken = 0;
    this.#frame = frame;
    this.curve.add(frame);
    this.view.status.dataset.t = frame.t;
    if (this.#pending) return;
    this.#pending = true;
    requestAnimationFrame(() => {
      this.#pending = false;
      if (this.#frame) this.#overlay(this.#frame);
      this.#paint();
    });
  }

  #overlay(frame) {
    learned[this.side] = frame;
    this.#boards[this.side].overlay(frame);
  }

  /** Update the text, the curve and the small boards, each at a limited rate. */
  #paint() {
    const now = performance.now();
    const still = this.phase !== "running";
    if (still || now - this.#spoken > SPEAK_MS) {
      this.#spoken = now;
      this.view.say(statusText(this.phase, this.side, this.#frame), this.t, this.until);
    }
    if (this.#frame && (still || now - this.#drawn > DRAW_MS)) {
      this.#drawn = now;
      this.curve.draw(this.side);
      this.multiples.draw(this.#frame, this.#answers.get(this.side), this.#store.get().world.rows);
    }
  }

  /** A run belongs to one world, one learner and its exploration: if one of them changes, discard it. */
  #follow(state, before) {
    if (state.seeds !== before.seeds) this.view.seeds.value = state.seeds;
    const own = ["world", this.side, "epsilon", "seeds"];
    if (this.phase !== "idle" && own.some((name) => state[name] !== before[name])) this.reset();
  }

  #lengthen(until) {
    this.until = until;
    if (this.phase === "running") this.run();
    else if (this.phase === "done" && this.t < until) this.#enter("paused");
    else if (this.phase === "paused" && this.t >= until) this.#enter("done");
    else this.#enter(this.phase);
  }
}
