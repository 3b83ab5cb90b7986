/**
 * The buttons of the learning panel, and their appearance in each phase.
 */
import { SIDES } from "./answers.js";
import { el, svg } from "./dom.js";

/** Iterations per frame, from slow to fast. */
export const BYS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000];

/** Lengths of a run. */
export const LENGTHS = [50_000, 200_000, 1_000_000];

const RUN = { idle: "Run", running: "Pause", paused: "Continue", done: "Run again" };
const PLAY = "M5 3 21 12 5 21Z";
const PAUSE = "M5 3h5v18H5zM14 3h5v18h-5z";
const USUAL_SPEED = 9;

/** A whole number with separators: 12,400. */
export const whole = (n) => n.toLocaleString("en-GB");

/**
 * Fill the panel.
 * @param {HTMLElement} panel
 * @param {Object<string, function>} does run, step, restart, speed, seeds(n), side(name), until(t)
 * @returns the view: `show(phase)`, `say(text, t, until)`, `prepare(words)` ("" when ready),
 *  and the inputs
 */
export function controls(panel, does) {
  const run = el("button", { id: "run", type: "button", class: "primary", onclick: does.run });
  const step = el("button", { id: "step-one", type: "button", title: "One iteration", onclick: does.step }, "Step");
  const restart = el("button", { id: "restart", type: "button", onclick: does.restart }, "Restart");
  const speed = speedSlider(does.speed);
  const seeds = seedsInput(does.seeds);
  const status = el("p", { id: "learn-status", class: "status", "aria-live": "polite" });
  const bar = el("progress", { id: "learn-progress", max: 1, value: 0, "aria-label": "Iterations done" });
  panel.append(
    el("div", { class: "panel-bar" }, run, step, restart),
    el("div", { class: "panel-fields" }, sidePicker(does.side), seeds.field, lengthPicker(does.until), speed.field),
    bar,
    status,
    legend(),
    el("div", { id: "curve", class: "chart" }),
    el("div", { id: "multiples", class: "multiples", role: "group", "aria-label": "Every seed's policy" }),
  );
  const show = (phase) => {
    run.replaceChildren(icon(phase === "running" ? PAUSE : PLAY), RUN[phase]);
    run.setAttribute("aria-pressed", String(phase === "running"));
    step.disabled = phase === "done";
    restart.disabled = phase === "idle";
  };
  const say = (text, t, until) => {
    status.textContent = text;
    bar.value = t / until;
  };
  const prepare = (words) => {
    if (words) bar.removeAttribute("value");
    if (words) status.textContent = words;
    else if (!bar.hasAttribute("value")) bar.value = 0;
  };
  return { show, say, prepare, status, speed: speed.input, seeds: seeds.input };
}

function speedSlider(changed) {
  const output = el("output", { for: "speed" });
  const input = el("input", { id: "speed", type: "range", min: 0, max: BYS.length - 1, step: 1, value: USUAL_SPEED });
  const write = () => {
    const by = BYS[Number(input.value)];
    output.textContent = `${whole(by)} per frame`;
    input.setAttribute("aria-valuetext", `${whole(by)} iteration${by === 1 ? "" : "s"} per frame`);
  };
  input.addEventListener("input", write);
  input.addEventListener("change", changed);
  write();
  return { input, field: el("label", { class: "field speed" }, el("span", {}, "Speed"), input, output) };
}

function seedsInput(changed) {
  const input = el("input", { id: "seeds", type: "number", min: 1, max: 9, step: 1, value: 1 });
  input.addEventListener("change", () => {
    const seeds = Math.min(9, Math.max(1, Math.round(Number(input.value)) || 1));
    input.value = seeds;
    changed(seeds);
  });
  return { input, field: el("label", { class: "field" }, el("span", {}, "Seeds"), input) };
}

function sidePicker(changed) {
  const options = SIDES.map((side) => el("option", { value: side, selected: side === "right" }, side));
  const select = el("select", { id: "learn-side", onchange: () => changed(select.value) }, ...options);
  return el("label", { class: "field" }, el("span", {}, "Learner"), select);
}

function lengthPicker(changed) {
  const options = LENGTHS.map((until, i) => el("option", { value: until, selected: i === 1 }, whole(until)));
  const select = el("select", { id: "learn-until", onchange: () => changed(Number(select.value)) }, ...options);
  return el("label", { class: "field" }, el("span", {}, "Iterations"), select);
}

function icon(d) {
  return svg("svg", { viewBox: "0 0 24 24", class: "sign", "aria-hidden": "true" }, svg("path", { d }));
}

function legend() {
  const item = (mark, text) => el("li", {}, el("i", { class: `mark mark-${mark}`, "aria-hidden": "true" }), text);
  return el(
    "ul",
    { class: "learn-legend hint" },
    item("agent", "the agent"),
    item("trail", "its last steps"),
    item("replayed", "a replayed transition"),
  );
}
