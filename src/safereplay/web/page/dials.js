/**
 * The dials of both learners, and what each kind of learner is, in a sentence.
 */
import { SIDES } from "./answers.js";
import { byId, el } from "./dom.js";
import { choice, slider } from "./fields.js";

const KINDS = [
  ["q", "Plain Q-learning"],
  ["replay", "Shaped replay"],
  ["mihatsch", "Risk-sensitive (Mihatsch)"],
  ["gaskett", "Pessimistic (Gaskett)"],
  ["worst-case", "Worst case"],
  ["worst-transition", "Worst transition"],
];
const ABOUT = {
  q: "Learns from every step once and cares for the average only: a rare disaster is a small part of a mean.",
  replay: "Between its steps it remembers old ones, bad surprises most often. That alone makes it careful.",
  mihatsch: "A rival: with every update, bad surprises count more than good ones.",
  gaskett: "A rival: it fears that its own next action may be the worst one.",
  "worst-case": "A rival: it counts on the worst that has ever followed an action.",
  "worst-transition": "A rival: it counts on the worst next state, at that state's mean reward.",
};
const FORMULA = {
  q: "Q(s,a) ← Q(s,a) + α · [ r + γ max Q(s′,b) − Q(s,a) ]",
  mihatsch: "Q(s,a) ← Q(s,a) + α · (1 − κ sign δ) · δ",
  gaskett: "target = r + γ [ (1−β) max Q(s′,b) + β min Q(s′,b) ]",
  "worst-case": "Q(s,a) ← min over all seen of  r + γ max Q(s′,b)",
  "worst-transition": "target = min over s′ of  mean r(s,a,s′) + γ max Q(s′,b)",
};
const MIXINGS = [["literal", "literal (Alg. 1)"], ["matched", "matched (Thm. 1)"]];
const SCHEMES = [["variance", "variance (paper)"], ["score", "standard score"]];

const V_HINTS = { literal: "share of updates that are replays", matched: "how strongly volatile moves are replayed" };

/** Put the learner's choice and its dials into both panes. */
export function startDials(store) {
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
      el("div", { class: "row" },
        word("mixing", "Mixing", MIXINGS, "literal: any remembered pair; matched: the pair that was just visited"),
        word("scheme", "Scheme", SCHEMES, "which memories are preferred, and in what unit rewards are compared")),
      words(store, side, "formula", FORMULA),
    );
  }
}

/** A field that reads and writes one setting of a side, and is hidden where the learner has none. */
function setting(store, side, name) {
  return {
    id: `${side}-${name}`,
    read: (state) => state[side][name],
    write: (value, how) => store.setSide(side, { [name]: value }, how),
    shown: (state) => name in state[side],
  };
}

/** What there is to say of the side's kind of learner. */
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
