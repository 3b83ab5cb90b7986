/**
 * The learners of both sides: their choice, their dials, and a sentence and a formula about each, all from the server's catalog.
 */
import { SIDES } from "./answers.js";
import { byId, el, percent, say } from "./dom.js";
import { choice, grouped, refill, slider } from "./fields.js";

const NAMES = { left: "Left learner", right: "Right learner" };

/** Put the choice of a learner into both panes, and its dials into the panel. */
export function startDials(store, answers) {
  const kinds = grouped(Object.entries(store.learners).map(([name, { group, title }]) => ({ name, group, title })));
  for (const side of SIDES) {
    byId(`${side}-learner`).append(
      choice(store, { ...setting(store, side, "kind"), label: NAMES[side], options: kinds }));
    let made = "";
    const fill = (state) => {
      const { kind, scheme } = state[side];
      if (made === `${kind} ${scheme}`) return;
      made = `${kind} ${scheme}`;
      refill(byId(`${side}-dials`), ...fields(store, answers, side));
    };
    store.subscribe(fill);
    fill(store.get());
  }
}

function fields(store, answers, side) {
  const learner = store.get()[side];
  const { title, about, formula, choices } = store.learners[learner.kind];
  const scheme = choices?.scheme?.find(({ value }) => value === learner.scheme);
  const dials = Object.keys(learner).filter((name) => slidersOf(store, learner)[name]);
  return [
    el("h2", { class: "side-title" }, `${side === "left" ? "Left" : "Right"}: ${title}`),
    el("p", { class: "hint about" }, about),
    ...dials.map((name) => dial(store, answers, side, name)),
    ...Object.entries(choices ?? {}).map(([name, options]) => worded(store, side, name, options)),
    el("p", { class: "formula" }, scheme?.formula ?? formula),
  ].filter(Boolean);
}

/** The dials of a side in a line, and whether its board is only one run. */
export function dialsText(store, answers, side) {
  const learner = store.get()[side];
  const sliders = slidersOf(store, learner);
  const limit = learner.limit ?? answers.get(side)?.design?.limit;
  const value = (name) => (name === "limit" && learner.kind === "design" ? percent(limit) : say(learner[name]));
  const numbers = Object.keys(learner).filter((name) => sliders[name]).map((name) => `${sliders[name].symbol || name} = ${value(name)}`);
  const { choices = {} } = store.learners[learner.kind];
  const words = Object.entries(choices).map(([name, options]) => options.find((one) => one.value === learner[name])?.title);
  const how = answers.get(side)?.exact === false ? "no exact limit: one run of 20,000 episodes" : "";
  return [numbers.join(", "), ...words, how].filter(Boolean).join("; ");
}

/** The sliders of a learner: its own, and those of its scheme. */
function slidersOf(store, { kind, scheme }) {
  const { sliders, choices } = store.learners[kind];
  return { ...sliders, ...choices?.scheme?.find(({ value }) => value === scheme)?.sliders };
}

/** The slider of one dial; `id` may differ where a lesson shows it again. */
export function dial(store, answers, side, name, id = `${side}-${name}`) {
  if (name === "limit") return limitSlider(store, answers, side, id);
  const range = (state) => slidersOf(store, state[side])[name];
  return slider(store, { ...setting(store, side, name), id, range });
}

/** A choice between words, with a sentence about the chosen one. */
function worded(store, side, name, options) {
  const label = { mixing: "Replays happen", scheme: "What is replayed" }[name] ?? name;
  const about = options.find(({ value }) => value === store.get()[side][name])?.about ?? "";
  const hint = el("small", { class: "hint" }, about);
  const field = choice(store, {
    ...setting(store, side, name), label, options: options.map(({ value, title }) => [value, title]),
  });
  const follow = store.subscribe((state) => {
    hint.textContent = options.find(({ value }) => value === state[side][name])?.about ?? "";
  });
  const box = el("div", { class: "worded" }, field, hint);
  box.unbind = follow;
  return box;
}

/** The limit of a designed replay; without one, the answer has a limit for this world. */
function limitSlider(store, answers, side, id) {
  const found = () => answers.get(side)?.design;
  const limit = setting(store, side, "limit");
  const read = (state) => limit.read(state) ?? found()?.limit ?? null;
  const range = () => ({ ...store.learners.design.sliders.limit, ...ends(found()), text: percent });
  return slider(store, { ...limit, id, read, range });
}

/** The range of an answer's limit. */
const ends = (design) => (design ? { min: design.min, max: design.max, step: design.step } : {});

/** A field that reads and writes one setting of a side, and is hidden if the learner does not have it. */
function setting(store, side, name) {
  return {
    id: `${side}-${name}`,
    read: (state) => state[side][name],
    write: (value, how) => store.setSide(side, { [name]: value }, how),
    shown: (state) => name in state[side],
  };
}
