/**
 * What both have learned so far: a text, curves towards their exact limits, and one small board per seed.
 */
import { SIDES } from "./answers.js";
import { el, percent, svg } from "./dom.js";
import { wayText } from "./panes.js";
import { whole } from "./play-controls.js";
import { Chart } from "./plot.js";

const IDLE = "Shown is what both learn in the end. Play shows how they learn it.";
const FEW = 10; // finished episodes before a distance from the limit is shown
const MOST = 400; // points of a curve; beyond that, every other one is dropped
const HEADINGS = ["0,-1", "1,0", "0,1", "-1,0"].map((text) => text.split(",").map(Number)); // of actions, in (x, y)
const KINDS = { ".": "free", "#": "wall", G: "goal", X: "hazard", S: "start" }; // of cells; all others are volatile

const TENS = [0.01, 0.1, 1, 10, 100].flatMap((ten) => [ten, 2 * ten, 5 * ten]).map((x) => Number(x.toPrecision(1)));
const TICKS = { tickvals: TENS, ticktext: TENS.map((x) => `${x} %`) }; // a logarithmic axis with its unit

/** The status line. @param {"idle"|"running"|"paused"|"done"} phase @param {{left: ?object, right: ?object}} learned frames */
export function statusText(phase, learned) {
  const frames = SIDES.map((side) => learned[side]).filter(Boolean);
  if (!frames.length) return phase === "idle" ? IDLE : "Starting…";
  const t = Math.min(...frames.map((frame) => frame.t));
  const gaps = SIDES.filter((side) => learned[side]?.seeds[0].gap != null && learned[side].episodes >= FEW)
    .map((side) => `${side} ${percent(learned[side].seeds[0].gap)}`);
  const text = `${whole(t)} update${t === 1 ? "" : "s"} of each learner${gaps.length ? ` · from the limit: ${gaps.join(", ")}` : ""}`;
  return phase === "done" ? `Done: ${text}` : phase === "paused" ? `Paused: ${text}` : text;
}

/** The distance of each learner's Q from its exact limit, over iterations, for every seed. */
export class Curve {
  #chart;
  #node;
  #sides = {};

  constructor(node) {
    this.#node = node;
    this.#chart = new Chart(node);
    this.clear();
  }

  clear() {
    for (const side of SIDES) this.#sides[side] = { t: [], gaps: [] };
    this.#node.hidden = true;
  }

  add(side, { t, seeds }) {
    const now = this.#sides[side];
    now.t.push(t);
    seeds.forEach(({ gap }, i) => (now.gaps[i] ??= []).push(gap > 0 ? 100 * gap : null));
    if (now.t.length <= MOST) return;
    const thin = (list) => list.filter((_, i) => i % 2 === 1);
    now.t = thin(now.t);
    now.gaps = now.gaps.map(thin);
  }

  draw() {
    const known = SIDES.filter((side) => this.#sides[side].gaps.some((gaps) => gaps.some((gap) => gap !== null)));
    if (!known.length) return;
    this.#node.hidden = false;
    const last = (side) => this.#sides[side].gaps.map((gaps) => percent((gaps.at(-1) ?? 0) / 100)).join(", ");
    const words = known.map((side) => `${side}: ${last(side)}.`).join(" ");
    this.#chart.draw((colours) => this.#picture(known, colours), `Distance of Q from its exact limit. ${words}`);
  }

  #picture(known, colours) {
    const traces = known.flatMap((side) => this.#sides[side].gaps.map((y, seed) => ({
      type: "scatter",
      mode: y.length < 3 ? "lines+markers" : "lines",
      name: `${side}, seed ${seed}`,
      x: this.#sides[side].t.slice(),
      y: y.slice(),
      line: { color: colours[side], width: seed ? 1 : 2.5, dash: side === "left" ? "solid" : "dash" },
      opacity: seed ? 0.5 : 1,
      hovertemplate: `${side}, seed ${seed}, iteration %{x:,}: %{y:.3~r} % of Q's range from the limit<extra></extra>`,
    })));
    const layout = {
      xaxis: { title: "iterations", rangemode: "tozero", nticks: 6 },
      yaxis: { title: "distance from the limit", type: "log", ...TICKS },
      margin: { l: 60, r: 12, t: 10, b: 40 },
      showlegend: false,
    };
    return { traces: traces.reverse(), layout }; // the first seeds on top
  }
}

/** One small board per seed: its arrows, its path and its verdict. */
export class Multiples {
  #node;
  #boards = [];
  #made = "";

  constructor(node) {
    this.#node = node;
  }

  clear() {
    this.#node.replaceChildren();
    this.#boards = [];
    this.#made = "";
  }

  /** @param {object} frame @param {?object} answer with the cells of the states @param {string[]} rows the map */
  draw({ seeds }, answer, rows) {
    if (!answer || seeds.length < 2) return;
    const key = `${seeds.length} ${rows.join("/")}`;
    if (key !== this.#made) {
      this.clear();
      this.#boards = seeds.map((_, seed) => miniBoard(seed, rows));
      this.#node.append(...this.#boards.map(({ figure }) => figure));
      this.#made = key;
    }
    seeds.forEach((one, seed) => redraw(this.#boards[seed], seed, one, answer.cells));
  }
}

function miniBoard(seed, rows) {
  const picture = svg("svg", { viewBox: `0 0 ${rows[0].length} ${rows.length}`, role: "img" });
  rows.forEach((row, i) =>
    [...row].forEach((mark, j) =>
      picture.append(svg("rect", { x: j, y: i, width: 1, height: 1, class: `mini-${KINDS[mark] ?? "volatile"}` })),
    ),
  );
  const path = svg("polyline", { class: "mini-path" });
  const arrows = svg("path", { class: "mini-arrows" });
  picture.append(path, arrows);
  const caption = el("figcaption");
  const figure = el("figure", { class: "mini", "data-seed": seed }, picture, caption);
  return { figure, picture, path, arrows, caption };
}

function redraw({ figure, picture, path, arrows, caption }, seed, { policy, verdict, way, path: states }, cells) {
  const centre = (s) => `${cells[s][1] + 0.5},${cells[s][0] + 0.5}`;
  path.setAttribute("points", states.map(centre).join(" "));
  arrows.setAttribute("d", policy.map((a, s) => (a < 0 ? "" : arrow(cells[s], HEADINGS[a]))).join(""));
  caption.textContent = `seed ${seed} ${wayText(way)}`;
  picture.setAttribute("aria-label", `Seed ${seed}: ${wayText(way) || verdict}`);
  figure.dataset.verdict = verdict;
}

/** A small triangle in the middle of a cell, pointing along (x, y). */
function arrow([row, column], [x, y]) {
  const at = (along, across) => `${column + 0.5 + along * x - across * y} ${row + 0.5 + along * y + across * x}`;
  return `M${at(0.3, 0)}L${at(-0.16, 0.22)}L${at(-0.16, -0.22)}Z`;
}
