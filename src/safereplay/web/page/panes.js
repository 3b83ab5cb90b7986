/**
 * The two panes: a learner's dials, its board, and its risks.
 */
import { SIDES } from "./answers.js";
import { byId, difference, el, percent, put, say } from "./dom.js";

const NUMBERS = [
  { name: "unsafe", key: "p_unsafe", title: "P(unsafe)", about: "share of unsafe episodes", text: percent },
  { name: "mean", key: "mean", title: "Mean return", about: "average sum of the rewards of an episode", text: say },
  { name: "cvar", key: "cvar10", title: "Worst 10 %", about: "average return of the worst tenth (CVaR)", text: say },
  { name: "std", key: "std", title: "Spread", about: "standard deviation of the return", text: say },
];
const VERDICTS = {
  safe: ["Safe way", "The path has as few exposed steps as possible."],
  risky: ["Risky way", "The path reaches a goal, with more exposed steps than needed."],
  jumps: ["Jumps", "The path ends in an unsafe outcome on purpose."],
  stuck: ["Stuck", "The path never ends."],
  "no path": ["No path", "Some action has several next states that are equally likely: no path can be drawn."],
};
const LONG_MS = 1_000; // a longer wait is explained
const WAITING = "Solving… the first time compiles, which can take a minute";

/** Make the two panes around the boards. */
export function makePanes(boards) {
  for (const side of SIDES) {
    byId(side).append(
      el("header", { class: "pane-head" },
        el("span", { class: "learner", id: `${side}-learner` }),
        el("span", { class: "verdict", id: `${side}-verdict` })),
      el("div", { class: "dials", id: `${side}-dials` }),
      el("div", { class: "board-slot" }, boards[side].svg,
        el("p", { class: "waiting", id: `${side}-waiting`, "aria-live": "polite" })),
      el("p", { class: "detail", id: `${side}-detail` }),
      el("div", { class: "figures" },
        el("p", { class: "limit-caption" }, "Exact limit"), // shown while the board shows a run
        el("dl", { class: "numbers" }, ...NUMBERS.map((one) => numberParts(side, one)))),
      el("p", { class: "note", id: `${side}-note` }),
    );
  }
}

function numberParts(side, { name, title, about }) {
  return el("div", { class: `number ${name}`, title: about },
    el("dt", {}, title),
    el("dd", {}, el("strong", { id: `${side}-${name}` }, "–"), el("small", { id: `${side}-${name}-change` })));
}

/** Show the risk of each answer; nothing if the current state has no answer. */
export function startNumbers(answers) {
  const known = (side) => (answers.problem(side) ? null : answers.get(side));
  answers.subscribe((answered) => {
    byId(`${answered}-waiting`).textContent = "";
    for (const side of SIDES) {
      byId(side).classList.toggle("stale", Boolean(answers.problem(side)));
      writeAnswer(side, known(side), side === "right" ? known("left") : null);
    }
  });
  setTimeout(() => {
    const waiting = SIDES.filter((side) => !answers.get(side) && !answers.problem(side));
    for (const side of waiting) byId(`${side}-waiting`).textContent = WAITING;
  }, LONG_MS);
}

function writeAnswer(side, answer, other) {
  for (const { name, key, text } of NUMBERS) {
    const value = answer?.risk[key] ?? null;
    const node = byId(`${side}-${name}`);
    put(node, "data-value", value ?? "");
    node.textContent = text(value);
    byId(`${side}-${name}-change`).textContent = change(value, other?.risk[key], text);
  }
  const [title, about] = VERDICTS[answer?.verdict] ?? ["", ""];
  const verdict = byId(`${side}-verdict`);
  verdict.textContent = title;
  verdict.title = about;
  verdict.dataset.verdict = answer?.verdict ?? "";
  byId(`${side}-note`).textContent = answer ? noteOf(answer) : "";
}

function change(value, other, text) {
  if (value === null || other === null || other === undefined) return "";
  return `${difference(value - other, text).replace("%", "pts")} vs left`; // percentage points
}

function noteOf(answer) {
  const never = answer.risk.p_never;
  return [
    answer.note,
    never > 1e-6 ? `${percent(never)} of episodes never end.` : "",
  ].filter(Boolean).join(" ");
}
