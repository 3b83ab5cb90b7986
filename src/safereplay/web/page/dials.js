/**
 * The dials of both learners, and a sentence about each kind of learner.
 */
import { SIDES } from "./answers.js";
import { byId, el, percent } from "./dom.js";
import { choice, slider } from "./fields.js";

const KINDS = [
  ["q", "Plain Q-learning"],
  ["replay", "Shaped replay"],
  ["design", "Designed replay"],
  ["mihatsch", "Risk-sensitive (Mihatsch)"],
  ["gaskett", "Pessimistic (Gaskett)"],
  ["worst-case", "Worst case"],
  ["worst-transition", "Worst transition"],
];
const ABOUT = {
  q: "Learns once from every step and maximises the average, in which a rare disaster counts little.",
  replay: "Between its steps it replays old ones, bad outcomes most often. That alone makes it careful.",
  design: "Set a limit on the risk. The least replay is computed that gives the best policy under it.",
  mihatsch: "Another method: in every update, bad surprises count more than good ones.",
  gaskett: "Another method: it assumes that its next action may be the worst one.",
  "worst-case": "Another method: it assumes the worst outcome that ever followed an action.",
  "worst-transition": "Another method: it assumes the worst next state, with that state's mean reward.",
};
const FORMULA = {
  q: "Q(s,a) ← Q(s,a) + α · [ r + γ max Q(s′,b) − Q(s,a) ]",
  design: "ρ(s,a) = ( E − V + margin ) / ( E − worst )",
  mihatsch: "Q(s,a) ← Q(s,a) + α · (1 − κ sign δ) · δ",
  gaskett: "target = r + γ [ (1−β) max Q(s′,b) + β min Q(s′,b) ]",
  "worst-case": "Q(s,a) ← min over all seen of  r + γ max Q(s′,b)",
  "worst-transition": "target = min over s′ of  mean r(s,a,s′) + γ max Q(s′,b)",
};
const MIXINGS = [["literal", "literal (Alg. 1)"], ["matched", "matched (Thm. 1)"]];
const SCHEMES = [["variance", "variance (paper)"], ["score", "standard score"]];

const V_HINTS = { literal: "share of updates that are replays", matched: "how strongly volatile moves are replayed" };

/** Put the learner's choice and its dials into both panes. */
export function startDials(store, answers) {
  for (const side of SIDES) {
    const range = (name) => (state) => {
      const { sliders } = store.learners[state[side].kind];
      return name === "v" ? { ...sliders.v, hint: V_HINTS[state[side].mixing] } : sliders[name];
    };
    const dial = (name) => slider(store, { ...setting(store, side, name), range: range(name) });
    const word = (name, label, options, hint) => choice(store, { ...setting(store, side, name), label, options, hint });
    byId(`${side}-learner`).append(word("kind", `${side === "left" ? "Left" : "Right"} learner`, KINDS));
    byId(`${side}-dials`).append(
      words(store, side, "hint about", ABOUT),
      dial("v"),
      dial("beta"),
      dial("kappa"),
      limitSlider(store, answers, side),
      el("div", { class: "row" },
        word("mixing", "Mixing", MIXINGS, "literal: any pair in memory; matched: the pair that was just visited"),
        word("scheme", "Scheme", SCHEMES, "which transitions are preferred, and the unit of rewards")),
      words(store, side, "formula", FORMULA),
    );
  }
}

/** The limit of a designed replay; without one, the answer has a limit for this world. */
function limitSlider(store, answers, side) {
  const found = () => answers.get(side)?.design;
  const limit = setting(store, side, "limit");
  const read = (state) => (limit.read(state) === null ? (found()?.limit ?? null) : limit.read(state));
  const range = (state) => {
    const { min, max, step, ...about } = { ...store.learners.design.sliders.limit, ...ends(found()) };
    const value = read(state) ?? min;
    return { ...about, min: Math.min(min, value), max: Math.max(max, value), step, text: percent };
  };
  return slider(store, { ...limit, read, range });
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

/** A text about the side's kind of learner. */
function words(store, side, name, texts) {
  const node = el("p", { class: name });
  const write = (state) => {
    node.textContent = texts[state[side].kind] ?? "";
    node.hidden = !node.textContent;
  };
  store.subscribe(write);
  write(store.get());
  return node;
}
