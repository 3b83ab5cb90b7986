/**
 * The result of tuning: a sentence, a picture of the frontier, and its points as buttons.
 */
import { el, percent, say } from "./dom.js";

const STEP = 0.01; // v is offered on a grid of this step

/** The answer as text. */
export function answerText({ meets, confirmed, limit, plan, plain, ceiling, v_smallest: smallest }) {
  const was = `Plain Q-learning: ${risks(plain)}.`;
  const is = risks(plan);
  const dials = `v = ${say(plan.v)}${plan.beta === null ? "" : ` and β = ${say(plan.beta)}`}`;
  if (!meets) return `No replay setting keeps ${percent(limit)} here. The safest one, ${dials}, has ${is}. ${was}`;
  if (plan.v === 0) return `No replay is needed: ${was}`;
  const sure = confirmed ? "" : " Trained learners did not reach it reliably.";
  const best = ceiling.find(({ risk, mean }) => mean !== null && Math.abs(risk - limit) < 1e-9);
  const most = best ? ` The best mean of all policies under this limit is ${say(best.mean)}.` : "";
  const margin = plan.v - smallest > STEP / 2 ? ` Its exact limit keeps it from v = ${say(smallest)} on, but there learning does not find it reliably.` : "";
  const who = confirmed ? "with which learners keep" : "that keeps";
  return `The gentlest replay ${who} ${percent(limit)} has ${dials}: ${is}.${margin} ${was}${most}${sure}`;
}

/**
 * The points to choose from: the plan, plain Q-learning, and for each other pair of risk and return on the frontier the
 * one with the least replay, since many β reach the same policy.
 */
export function choices({ plan, plain, frontier }) {
  const best = new Map([[trade(plan), null], [trade(plain), null]]);
  for (const point of frontier.filter(({ pareto }) => pareto)) {
    const rival = best.get(trade(point));
    if (rival === undefined || (rival && gentler(point, rival))) best.set(trade(point), point);
  }
  const rest = [...best.values()].filter(Boolean).sort((a, b) => b.p_unsafe - a.p_unsafe);
  return [
    { ...plan, name: "the answer" },
    { ...plain, v: 0, beta: plan.beta, name: "plain Q-learning" },
    ...rest.map((point) => ({ ...point, v: learnable(point, frontier), name: "replay" })),
  ];
}

const risks = ({ mean, p_unsafe }) => `${percent(p_unsafe)} unsafe, mean ${say(mean)}`;

const trade = ({ mean, p_unsafe }) => [mean, p_unsafe].map((x) => x?.toPrecision(8)).join();

function gentler(a, b) {
  const [x, y] = [a, b].map(({ v }) => Math.ceil(v / STEP - 1e-9));
  return x < y || (x === y && Math.abs(a.beta) < Math.abs(b.beta));
}

/** A v to learn with: the point's v rounded up, since two actions tie there, if the policy stays the same. */
function learnable({ v, beta }, frontier) {
  const next = Math.min(1, ...frontier.filter((point) => point.beta === beta && point.v > v).map((point) => point.v));
  const up = Number((Math.ceil(v / STEP - 1e-9) * STEP).toFixed(4));
  return up < next ? up : v;
}

/** A point as a button. */
export function pointButton(point, pressed) {
  const { v, beta, name } = point;
  const title = v === 0 ? name : `${name === "the answer" ? "★ " : ""}v ${say(v)}, β ${say(beta)}`;
  const attributes = { type: "button", "data-v": v, "data-beta": beta ?? 0, "aria-pressed": "false", onclick: pressed };
  return el("li", {}, el("button", attributes, el("b", {}, title), " ", el("span", {}, risks(point))));
}

/** The description of the picture. */
export function frontierWords(found) {
  const texts = choices(found).map((p) => `${p.name}, v ${say(p.v)}: ${risks(p)}`);
  return `Mean return against the share of unsafe episodes. ${texts.join("; ")}. The same points are buttons below.`;
}

/** The frontier: the limits of replay, and the best of all policies. */
export function frontierPicture(found, { text, muted, left, right }) {
  const { frontier, ceiling, limit } = found;
  const [plan, plain, ...reached] = choices(found);
  const others = frontier.filter(({ pareto }) => !pareto).map((point) => ({ ...point, name: "other replays" }));
  const best = ceiling.filter(({ mean }) => mean !== null);
  const groups = [
    dots(others, { color: muted, size: 6, opacity: 0.5 }),
    dots(reached, { color: right, size: 11 }),
    dots([plain], { color: left, size: 12, symbol: "square" }),
    dots([plan], { color: right, size: 17, symbol: "star", line: { color: text, width: 1 } }),
  ];
  const traces = [ceilingLine(best, muted), ...groups].filter(({ x }) => x.length);
  const layout = {
    xaxis: { title: "unsafe episodes", ticksuffix: " %", nticks: 6, rangemode: "tozero" },
    yaxis: { title: "mean return", nticks: 6, range: around([plan, plain, ...reached].map(({ mean }) => mean)) },
    shapes: [limitLine(100 * limit, muted)],
    annotations: [limitText(100 * limit, muted)],
    margin: { l: 58, r: 16, t: 84, b: 44 },
    hovermode: "closest",
  };
  return { traces, layout };
}

function dots(points, marker) {
  return {
    type: "scatter",
    mode: "markers",
    name: points[0]?.name,
    x: points.map(({ p_unsafe }) => 100 * p_unsafe),
    y: points.map(({ mean }) => mean),
    customdata: points,
    text: points.map((p) => `v ${say(p.v)}, β ${say(p.beta)}<br>${risks(p)}`),
    hovertemplate: "%{text}<extra></extra>",
    marker,
  };
}

/** The line is not interactive: a click near it selects the point. */
const ceilingLine = (best, color) => ({
  type: "scatter",
  mode: "lines",
  name: "best of all policies",
  x: best.map(({ risk }) => 100 * risk),
  y: best.map(({ mean }) => mean),
  line: { color, width: 2, dash: "dot" },
  hoverinfo: "skip",
});

const limitLine = (x, color) => ({
  type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color, width: 1, dash: "dash" },
});

const limitText = (x, color) => ({
  x, yref: "paper", y: 0, yanchor: "bottom", xanchor: "left", showarrow: false,
  text: "your limit", font: { size: 11, color },
});

/** A range with a margin around values; values far below are cut off. */
function around(values) {
  const known = values.filter((x) => x !== null);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const room = 0.2 * (high - low || Math.abs(high) || 1);
  return [low - 1.5 * room, high + room];
}
