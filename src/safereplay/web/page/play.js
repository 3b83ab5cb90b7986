/**
 * Play: both learners learn side by side, from the same seed, and walks show what they have learned so far.
 *
 * A run is a pure function of its seed, so a stream can start at any iteration: a pause closes it, and to continue, it
 * is opened again at the last iteration seen.
 */
import { SIDES } from "./answers.js";
import { readable, RECORDED, stream } from "./api.js";
import { byId } from "./dom.js";
import { Curve, Multiples, statusText } from "./learn-view.js";
import { join, sideQuery } from "./link.js";
import { controls, learningFields, LENGTHS, SPEEDS } from "./play-controls.js";
import { Walking } from "./walking.js";

const PREPARING_MS = 600; // a longer wait is explained
const PREPARING = "Preparing…";
const SPEAK_MS = 1_000; // between two changes of the status: screen readers read each of them
const DRAW_MS = 150; // between two drawings of the curves and the small boards
const STEPWISE = 20; // iterations per frame up to which the agent's own steps are shown

/** The frame of learning that each board shows now, or null. */
export const learned = { left: null, right: null };

/** Set up the bar under the boards and the tab Curves. @returns {Playing} */
export function start(parts) {
  return new Playing(parts);
}

class Playing {
  #store;
  #answers;
  #boards;
  #notice;
  #streams = {}; // by side
  #over = {}; // by side: whether its stream has ended
  #steps = 0; // presses of Step that wait for the one under way
  #waiting = 0; // timer of the message about preparing
  #pending = new Set(); // sides whose drawing is planned
  #spoken = 0;
  #drawn = 0;
  #still = matchMedia("(prefers-reduced-motion: reduce)");

  constructor({ store, answers, boards, notice }) {
    this.phase = "idle";
    this.until = LENGTHS[0];
    this.#store = store;
    this.#answers = answers;
    this.#boards = boards;
    this.#notice = notice;
    this.walking = new Walking(store, answers, boards);
    this.view = controls(byId("play"), {
      run: () => (this.phase === "running" ? this.pause() : this.run()),
      step: () => this.step(),
      restart: () => this.restart(),
      one: () => this.one(),
      walk: () => this.walk(!this.walking.on),
      speed: () => this.#hurry(),
    });
    this.fields = learningFields(byId("learn"), {
      seeds: (seeds) => store.set({ seeds }, { source: "seeds" }),
      readSeeds: () => store.get().seeds,
      until: (until) => this.#lengthen(until),
    });
    this.curve = new Curve(byId("curve"));
    this.multiples = Object.fromEntries(SIDES.map((side) => [side, new Multiples(byId(`${side}-multiples`))]));
    store.subscribe((state, before) => this.#follow(state, before));
    this.#hurry();
    this.walk(!this.#still.matches);
    this.reset();
  }

  /** Iterations that both sides have seen. */
  get t() {
    return Math.min(...SIDES.map((side) => learned[side]?.t ?? 0));
  }

  get #speed() {
    return SPEEDS[Number(this.view.speed.value)];
  }

  /** Continue from the last frames, at the chosen speed; after the end, restart. */
  run() {
    if (this.t >= this.until) this.reset();
    this.walk(!this.#still.matches);
    this.#open({ by: this.#speed.by, pace: this.#speed.pace });
    this.#enter("running");
  }

  /** Pause. */
  pause() {
    this.#close();
    this.#enter("paused");
  }

  /** One iteration of each learner; a press while one is under way is done after it. */
  step() {
    if (this.t >= this.until) return;
    if (this.phase === "paused" && this.#streams.left) {
      this.#steps += 1;
      return;
    }
    this.#open({ by: 1, frames: 1, pace: SPEEDS.at(-1).pace });
    this.#enter("paused");
  }

  /** Restart from the first iteration; keep running if it was running. */
  restart() {
    const running = this.phase === "running";
    this.reset();
    if (running) this.run();
  }

  /** One episode under the policies that are shown. */
  one() {
    if (this.phase === "running") this.pause();
    this.walk(false);
    this.walking.one((sentence) => this.view.say(sentence, this.t / this.until), this.#still.matches);
  }

  /** Let walkers walk, or remove them. */
  walk(on) {
    this.walking.on = on;
    this.view.walking(on);
  }

  /** The speed, 0 to 6. */
  get speed() {
    return Number(this.view.speed.value);
  }

  /** Set the speed, 0 to 6. */
  setSpeed(speed) {
    this.view.speed.value = speed;
    this.view.speed.dispatchEvent(new Event("input"));
    this.#hurry();
  }

  /** Set the length of runs, in iterations; recorded ones have theirs. */
  setUntil(until) {
    if (RECORDED) return;
    this.fields.length.value = until;
    this.#lengthen(until);
  }

  /** Discard the run: the boards show the limits again. */
  reset() {
    this.#close();
    for (const side of SIDES) this.#overlay(side, null);
    this.curve.clear();
    for (const side of SIDES) this.multiples[side].clear();
    this.#enter("idle");
  }

  #open(more) {
    this.#close();
    const state = this.#store.get();
    this.#waiting = setTimeout(() => this.view.prepare(PREPARING), PREPARING_MS);
    this.#over = {};
    for (const side of SIDES) {
      const since = learned[side]?.t ?? 0;
      const query = sideQuery(state, side, this.#store.presets);
      const params = join(query, { seeds: state.seeds, since, until: this.until, ...more });
      const mine = () => this.#streams[side] === opened;
      const opened = stream("/api/learn", params, {
        frame: (frame) => mine() && this.#see(side, frame),
        done: () => mine() && this.#end(side, "done"),
        paused: () => mine() && this.#end(side, "paused"),
        problem: ({ detail }) => mine() && this.#fail(readable(detail)),
        lost: () => mine() && this.#fail("The connection was lost; press Play to continue."),
      });
      this.#streams[side] = opened;
    }
  }

  #close() {
    clearTimeout(this.#waiting);
    this.view.prepare("");
    for (const side of SIDES) this.#streams[side]?.close();
    this.#streams = {};
    this.#steps = 0;
  }

  #end(side, phase) {
    this.#over[side] = true;
    if (!SIDES.every((one) => this.#over[one])) return;
    const steps = this.#steps;
    this.#close();
    this.#enter(phase);
    if (!steps) return;
    this.step();
    this.#steps = steps - 1;
  }

  #fail(sentence) {
    this.#close();
    this.#enter(SIDES.some((side) => learned[side]) ? "paused" : "idle");
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

  #see(side, frame) {
    clearTimeout(this.#waiting);
    this.view.prepare("");
    const first = !learned[side];
    learned[side] = frame;
    if (first) this.#spoken = 0;
    this.curve.add(side, frame);
    this.view.status.dataset.t = this.t;
    if (this.#pending.has(side)) return;
    this.#pending.add(side);
    requestAnimationFrame(() => {
      this.#pending.delete(side);
      if (learned[side]) this.#overlay(side, learned[side]);
      this.#paint();
    });
  }

  #overlay(side, frame) {
    learned[side] = frame;
    this.#boards[side].overlay(frame);
  }

  /** Update the text, the curves and the small boards, each at a limited rate. */
  #paint() {
    const now = performance.now();
    const still = this.phase !== "running";
    if (still || now - this.#spoken > SPEAK_MS) {
      this.#spoken = now;
      this.view.say(statusText(this.phase, learned), this.t / this.until);
    }
    if (!SIDES.some((side) => learned[side]) || (!still && now - this.#drawn < DRAW_MS)) return;
    this.#drawn = now;
    this.curve.draw();
    for (const side of SIDES) {
      if (learned[side]) this.multiples[side].draw(learned[side], this.#answers.get(side), this.#store.get().world.rows);
    }
  }

  /** The chosen speed, for learning and for walking. */
  #hurry() {
    this.walking.pace = this.#speed;
    byId("boards").classList.toggle("stepwise", this.#speed.by <= STEPWISE);
    if (this.phase === "running") this.run();
  }

  /** A run belongs to one world, its learners and its exploration: if one of them changes, discard it. */
  #follow(state, before) {
    if (state.seeds !== before.seeds) this.fields.seeds.restore();
    const own = ["world", ...SIDES, "epsilon", "seeds"];
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
