/**
 * The distribution of the return under both policies, in one picture.
 */
import { SIDES } from "./answers.js";
import { byId, el, percent, say } from "./dom.js";
import { Chart } from "./plot.js";

const NAMES = { left: "Left", right: "Right" };
const FINEST = 1 / 150; // of the range: the thinnest pair of bars
const COARSEST = 1 / 24; // the widest pair
const FAINT = 5e-4; // shares of episodes below this are not visible
const STALE = "No answer for this map yet; these are the returns of the last one.";

/** Draw the chart with every answer. */
export function start({ answers }) {
  const node = el("div", { id: "returns", class: "chart" });
  const caption = el("p", { class: "hint", id: "returns-words" });
  const table = el("table", { class: "figures-table" });
  byId("charts").append(node, caption, table, ...SIDES.map((side) => el("p", { class: "note", id: `${side}-note` })));
  const chart = new Chart(node);
  const draw = () => {
    const known = SIDES.filter((side) => answers.get(side)).map((side) => ({ side, ...answers.get(side) }));
    if (!known.length) return;
    const stale = SIDES.some((side) => answers.problem(side));
    const words = stale ? STALE : known.map(sentence).join(" ");
    byId("charts").classList.toggle("stale", stale);
    caption.textContent = words;
    table.replaceChildren(...rows(Object.fromEntries(known.map((one) => [one.side, stale ? null : one]))));
    for (const one of known) byId(`${one.side}-note`).textContent = stale ? "" : noteOf(one);
    chart.draw((colours) => picture(known, colours), `Distribution of the return. ${words}`);
  };
  answers.subscribe(draw);
  draw();
}

const NUMBERS = [
  ["unsafe episodes", "p_unsafe", percent], ["mean return", "mean", say], ["mean of the worst tenth (CVaR)", "cvar10", say],
  ["spread (standard deviation)", "std", say], ["steps of an episode", "length", say], ["never end", "p_never", percent],
];

/** The numbers of both limits, as rows of a table. */
function rows(known) {
  const head = el("tr", {}, el("td"), ...SIDES.map((side) => el("th", { scope: "col" }, NAMES[side])));
  const cell = (side, key, text) => {
    const value = known[side]?.risk[key] ?? null;
    return el("td", { id: `${side}-exact-${key}`, "data-value": value ?? "" }, text(value));
  };
  return [el("caption", {}, "The exact limits of both learners"), head, ...NUMBERS.map(([title, key, text]) =>
    el("tr", {}, el("th", { scope: "row" }, title), ...SIDES.map((side) => cell(side, key, text))))];
}

function noteOf({ side, note }) {
  return note ? `${NAMES[side]}: ${note}` : "";
}

/** The chart's text for one side. */
function sentence({ side, label, risk, distribution, note }) {
  if (!distribution) return `${NAMES[side]}, ${label}: no distribution. ${note}`.trim();
  const tail = risk.cvar10 === null ? "" : `, ${say(risk.cvar10)} in the worst tenth of episodes`;
  const how = distribution.exact ? "" : " (from samples)";
  return `${NAMES[side]}, ${label}: ${say(risk.mean)} on average${tail}${how}.`;
}

/** Pairs of bars, left and right of each return, and the means as lines. */
function picture(known, colours) {
  const drawn = known.filter(({ distribution }) => distribution?.returns.length).map(shown);
  const seen = drawn.flatMap(({ x }) => x);
  const width = spacing(seen);
  const means = drawn.filter(({ mean }) => mean !== null);
  const [low, high] = [Math.min, Math.max].map((f) => f(...seen, ...means.map(({ mean }) => mean)));
  const layout = {
    barmode: "overlay",
    margin: { l: 58, r: 12, t: 46, b: 44 },
    xaxis: {
      title: "return of an episode",
      range: [low - 2 * width, high + 2 * width],
    },
    yaxis: { title: "share of episodes", tickformat: ".0%", rangemode: "tozero", nticks: 5 },
    shapes: means.map(({ side, mean }) => meanLine(side, mean, colours)),
    annotations: means.map(({ side, mean }) => meanText(side, mean, colours)),
    showlegend: false,
  };
  return { traces: drawn.map((one) => bars(one, 0.46 * width, colours)), layout };
}

/** The visible part of an answer. */
function shown({ side, risk, distribution: { returns, probabilities } }) {
  const kept = [...returns.keys()].filter((i) => probabilities[i] >= FAINT);
  return { side, mean: risk.mean, x: kept.map((i) => returns[i]), y: kept.map((i) => probabilities[i]) };
}

function bars({ side, x, y }, width, colours) {
  return {
    type: "bar",
    x,
    y,
    width,
    offset: side === "left" ? -width : 0,
    hovertemplate: `${NAMES[side]}: %{y:.3~p} of episodes return %{x:.4~g}<extra></extra>`,
    marker: { color: colours[side], line: { width: 0 } },
  };
}

const meanLine = (side, x, colours) => ({
  type: "line",
  x0: x,
  x1: x,
  yref: "paper",
  y0: 0,
  y1: 1,
  line: { color: colours[side], width: 2, dash: side === "left" ? "solid" : "dash" },
});

/** The label of a mean, above its line; each side has its own line of text. */
function meanText(side, x, colours) {
  return {
    x,
    yref: "paper",
    y: side === "left" ? 1.09 : 1,
    yanchor: "bottom",
    xanchor: "auto",
    showarrow: false,
    text: `${NAMES[side]} ${side === "left" ? "—" : "- -"} mean ${say(x)}`,
    font: { color: colours[side], size: 12 },
  };
}

/** The width for one return: the smallest distance between two, within bounds. */
function spacing(returns) {
  const sorted = [...new Set(returns)].sort((a, b) => a - b);
  const range = sorted.at(-1) - sorted[0] || 1;
  const gaps = sorted.slice(1).map((x, i) => x - sorted[i]);
  return Math.min(Math.max(Math.min(...gaps), range * FINEST), range * COARSEST);
}
