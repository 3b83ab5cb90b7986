/**
 * The two panes: a learner, its board, and its numbers. All of them are about the policy that the board shows.
 */
import { SIDES } from "./answers.js";
import { byId, difference, el, percent, put, say } from "./dom.js";

/** What the path of a policy does, for the chip. */
const WAYS = {
  edge: ["▲", "along the edge", "The path has more steps beside a hazard than needed."],
  gambles: ["▲", "takes the gambles", "The path has more volatile moves than needed."],
  detour: ["↷", "takes a detour", "The path has as few exposed steps as possible, and is longer than the shortest one."],
  jumps: ["✕", "jumps", "The path ends in an unsafe outcome on purpose."],
  loop: ["↻", "never arrives", "Episodes do not end under this policy."],
  stays: ["↻", "stays away", "The likeliest path never comes to the goal. Only slips end an episode."],
};
const ENDS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]; // of the risk bars
const LOOK_MS = 250;
const WAITING = [[800, "Solving…"], [4_000, "Solving… The first time a learner is used, it is compiled."]]; // after so many ms

/** Make the two panes around the boards. */
export function makePanes(boards) {
  for (const side of SIDES) {
    byId(side).append(
      el("header", { class: "pane-head" },
        el("span", { class: "learner", id: `${side}-learner` }),
        el("span", { class: "way", id: `${side}-way` })),
      el("div", { class: "board-slot" }, boards[side].svg,
        el("p", { class: "waiting", id: `${side}-waiting`, "aria-live": "polite" })),
      figures(side),
      el("p", { class: "detail", id: `${side}-detail` }),
    );
  }
}

/** The numbers of a side: the risk with its bar and the tally of walks, and the mean return. */
function figures(side) {
  return el("div", { class: "figures" },
    el("div", { class: "number risk", title: "P(unsafe): the share of episodes with an unsafe outcome" },
      el("p", {}, el("span", {}, "unsafe "), el("strong", { id: `${side}-unsafe` }, "–")),
      el("div", { class: "bar", id: `${side}-bar` }, el("i", { class: "fill" }), el("i", { class: "limit-tick" }),
        el("i", { class: "tally-tick" })),
      el("small", { id: `${side}-tally` })),
    el("div", { class: "number mean", title: "The average sum of the rewards of an episode" },
      el("p", {}, el("span", {}, "mean return "), el("strong", { id: `${side}-mean` }, "–")),
      el("small", { id: `${side}-mean-change` })));
}

/** Show the numbers of what each board shows; nothing if the current state has no answer. */
export function startNumbers(answers, boards) {
  const write = () => {
    const known = Object.fromEntries(SIDES.map((side) => [side, answers.problem(side) ? null : boards[side].shown]));
    const most = Math.max(0, ...SIDES.map((side) => known[side]?.risk.p_unsafe ?? 0));
    const end = ENDS.find((x) => x >= 1.05 * most) ?? 1;
    for (const side of SIDES) {
      byId(side).classList.toggle("stale", Boolean(answers.problem(side)));
      writeSide(side, known[side], side === "right" ? known.left : null);
      const limit = boards[side].learning ? answers.get(side)?.risk.p_unsafe : null;
      drawBar(byId(`${side}-bar`), known[side]?.risk.p_unsafe ?? null, limit, end);
    }
  };
  answers.subscribe((answered) => {
    byId(`${answered}-waiting`).textContent = "";
    write();
  });
  for (const side of SIDES) boards[side].svg.addEventListener("overlaid", write);
  const since = {}; // by side: when its request was first seen open
  setInterval(() => {
    for (const side of SIDES) {
      since[side] = answers.settled(side) ? null : (since[side] ?? performance.now());
      const waited = since[side] === null ? 0 : performance.now() - since[side];
      const text = WAITING.findLast(([ms]) => waited >= ms)?.[1] ?? "";
      const node = byId(`${side}-waiting`);
      if (node.textContent !== text) node.textContent = text;
    }
  }, LOOK_MS);
}

function writeSide(side, shown, other) {
  setNumber(`${side}-unsafe`, shown?.risk.p_unsafe, percent);
  setNumber(`${side}-mean`, shown?.risk.mean, say);
  byId(`${side}-mean-change`).textContent = change(shown?.risk.mean, other?.risk.mean);
  const chip = byId(`${side}-way`);
  const text = wayText(shown?.way);
  if (chip.textContent !== text) chip.textContent = text;
  chip.title = WAYS[shown?.way]?.[2] ?? "";
  chip.dataset.way = shown?.way ?? "";
}

/** What a policy's path does, with its sign; "" if nothing special. */
export const wayText = (way) => WAYS[way]?.slice(0, 2).join(" ") ?? "";

function setNumber(id, value, text) {
  const node = byId(id);
  put(node, "data-value", value ?? "");
  if (node.textContent !== text(value)) node.textContent = text(value);
}

function drawBar(bar, value, limit, end) {
  bar.style.setProperty("--share", (value ?? 0) / end);
  bar.style.setProperty("--limit", limit === null || limit === undefined ? -1 : Math.min(1, limit / end));
  bar.dataset.end = end;
  put(bar, "data-scale", percent(end));
}

/** The tally of walks on a side: how many were unsafe, and what share that is. */
export function writeTally(side, { n, unsafe, endless }) {
  const node = byId(`${side}-tally`);
  put(node, "data-n", n);
  put(node, "data-unsafe", unsafe);
  put(node, "data-endless", endless);
  const cut = endless ? `, ${endless} cut off` : "";
  node.textContent = n ? `${unsafe} of ${n.toLocaleString("en-GB")} walks: ${percent(unsafe / n)}${cut}` : "";
  const bar = byId(`${side}-bar`);
  bar.style.setProperty("--tally", n ? Math.min(1, unsafe / n / Number(bar.dataset.end || 1)) : -1);
}

function change(value, other) {
  if (value === null || value === undefined || other === null || other === undefined) return "";
  const scale = Math.max(Math.abs(value), Math.abs(other));
  const apart = Math.abs(value - other);
  if (apart >= 1e-6 * scale && apart < 5e-3 * scale) return "about as left"; // less than the numbers show
  return `${difference(apart < 1e-6 * scale ? 0 : value - other)} vs left`;
}
