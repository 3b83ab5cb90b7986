/**
 * The bar under the boards, and the fields of the tab Curves.
 */
import { SIDES } from "./answers.js";
import { RECORDED } from "./api.js";
import { el, svg } from "./dom.js";
import { typed } from "./fields.js";

/** From slow to fast: iterations per frame, milliseconds per frame and per step of a walk, and walks per step that are only counted. */
export const SPEEDS = [
  { name: "step by step", by: 1, pace: 300, ms: 420, bulk: 0 },
  { name: "very slow", by: 5, pace: 200, ms: 320, bulk: 0 },
  { name: "slow", by: 20, pace: 140, ms: 240, bulk: 0 },
  { name: "usual", by: 200, pace: 100, ms: 170, bulk: 0 },
  { name: "fast", by: 1_000, pace: 80, ms: 110, bulk: 2 },
  { name: "very fast", by: 5_000, pace: 60, ms: 80, bulk: 12 },
  { name: "fastest", by: 20_000, pace: 50, ms: 60, bulk: 60 },
];
const USUAL = 3;

/** Lengths of a run. */
export const LENGTHS = [50_000, 200_000, 1_000_000];

const RUN = { idle: "Play", running: "Pause", paused: "Continue", done: "Play again" };
const PLAY = "M5 3 21 12 5 21Z";
const PAUSE = "M5 3h5v18H5zM14 3h5v18h-5z";

/** A whole number with separators: 12,400. */
export const whole = (n) => n.toLocaleString("en-GB");

/**
 * Fill the bar.
 * @param {HTMLElement} bar
 * @param {Object<string, function>} does run, step, restart, one, walk, speed
 * @returns the view: `show(phase)`, `say(text, share)`, `walking(on)`, `prepare(words)` ("" when ready), and the inputs
 */
export function controls(bar, does) {
  const button = (id, title, onclick, text) => el("button", { id, type: "button", title, onclick }, text);
  const run = el("button", { id: "run", type: "button", class: "primary", onclick: does.run });
  const step = button("step-one", "One update of each learner", does.step, "Step");
  const restart = button("restart", "Forget what was learned", does.restart, "Restart");
  const one = button("one-episode", "One walk on each board, with the same luck", does.one, "One episode");
  const walk = el("button", { id: "walk", type: "button", title: "Walks under the policies that are shown", onclick: does.walk }, "Walks");
  const speed = speedSlider(does.speed);
  const status = el("p", { id: "learn-status", class: "status", "aria-live": "polite" });
  const progress = el("progress", { id: "learn-progress", max: 1, value: 0, "aria-label": "Iterations done" });
  bar.append(run, el("div", { class: "play-more" }, step, restart, one, walk), speed.field, el("div", { class: "progress" }, progress, status));
  const show = (phase) => {
    run.replaceChildren(icon(phase === "running" ? PAUSE : PLAY), RUN[phase]);
    run.setAttribute("aria-pressed", String(phase === "running"));
    step.disabled = phase === "done";
    restart.disabled = phase === "idle";
  };
  const say = (text, share) => {
    status.textContent = text;
    progress.value = share;
  };
  const walking = (on) => walk.setAttribute("aria-pressed", String(on));
  const prepare = (words) => {
    if (words) progress.removeAttribute("value");
    if (words) status.textContent = words;
  };
  return { show, say, walking, prepare, status, speed: speed.input };
}

function speedSlider(changed) {
  const input = el("input", { id: "speed", type: "range", min: 0, max: SPEEDS.length - 1, step: 1, value: USUAL });
  const write = () => {
    const { name } = SPEEDS[Number(input.value)];
    input.setAttribute("aria-valuetext", name);
    input.style.setProperty("--share", Number(input.value) / (SPEEDS.length - 1));
  };
  input.addEventListener("input", write);
  input.addEventListener("change", changed);
  write();
  return { input, field: el("label", { class: "speed" }, el("span", {}, "Speed"), input) };
}

/** Fill the tab Curves. @returns {{seeds: HTMLInputElement, length: HTMLSelectElement}} */
export function learningFields(panel, { seeds, readSeeds, until }) {
  const count = typed({ id: "seeds", min: 1, max: 9, step: 1 }, readSeeds, seeds);
  const options = LENGTHS.map((t) => el("option", { value: t }, whole(t)));
  const length = el("select", { id: "learn-until", onchange: () => until(Number(length.value)) }, ...options);
  panel.append(
    el("p", { class: "hint" },
      "Play lets both learners learn from nothing. Here you see how far each is from its exact limit. With several seeds, the boards show the first one."),
    el("div", { class: "fields", hidden: RECORDED },
      el("label", { class: "field" }, el("span", {}, "Seeds"), count),
      el("label", { class: "field" }, el("span", {}, "Iterations"), length)),
    el("div", { id: "curve", class: "chart" }),
    ...SIDES.map((side) => el("div", {
      id: `${side}-multiples`, class: "multiples", role: "group",
      "aria-label": `Every seed's policy, ${side} learner`,
    })),
  );
  return { seeds: count, length };
}

function icon(d) {
  return svg("svg", { viewBox: "0 0 24 24", class: "sign", "aria-hidden": "true" }, svg("path", { d }));
}
