/**
 * What a learner has learned so far: a text, a curve towards its exact limit, and one small board per seed.
 */
import { el, percent, svg } from "./dom.js";
import { whole } from "./learn-controls.js";
import { Chart } from "./plot.js";

/** The signs of the verdicts, so that no information is in colour alone. */
export const SIGNS = { safe: "✓", risky: "⚠", jumps: "✗", stuck: "↻", "no path": "–" };

const FEW = 10; // finished episodes before a distance from the limit is shown
const MOST = 400; // points of a curve; beyond that, every other one is dropped
const HEADINGS = ["0,-1", "1,0", "0,1", "-1,0"].map((text) => text.split(",").map(Number)); // of actions, in (x, y)
const KINDS = { ".": "free", "#": "wall", G: "goal", X: "hazard", S: "start" }; // of cells; all others are volatile

const TENS = [0.01, 0.1, 1, 10, 100].flatMap((ten) => [ten, 2 * ten, 5 * ten]).map((x) => Number(x.toPrecision(1)));
const TICKS = { tickvals: TENS, ticktext: TENS.map((x) => `${x} %`) }; // a logarithmic axis with its unit

/** The status line. @param {"idle"|"running"|"paused"|"done"} phase @param {?object} frame */
export function statusText(phase, side, frame) {
  if (!frame) return phase === "idle" ? `Press Run to watch the ${side} learner.` : "Starting…";
  const { verdict, gap } = frame.seeds[0];
  const parts = [
    `iteration ${whole(frame.t)}`,
    `${whole(frame.episodes)} episode${frame.episodes === 1 ? "" : "s"}`,
    `${SIGNS[verdict]} ${verdict}`,
    frame.risk.p_unsafe === null ? null : `unsafe ${percent(frame.risk.p_unsafe)}`,
    frame.risk.p_never > 1e-9 ? `never ends ${percent(frame.risk.p_never)}` : null,
    gap === null || frame.episodes < FEW ? null : `${percent(gap)} from its exact limit at visited cells`,
  ];
  const text = parts.filter(Boolean).join(" · ");
  return phase === "done" ? `Done: ${text}` : phase === "paused" ? `Paused: ${text}` : text;
}

/** The distance of each seed's Q from the exact limit, over iterations. */
export class Curve {
  #chart;
  #node;
  #t = [];
  #gaps = [];

  constructor(node) {
    this.#node = node;
    this.#chart = new Chart(node);
    this.clear();
  }

  clear() {
    this.#t = [];
    this.#gaps = [];
    this.#node.hidden = true;
  }

  add({ t, seeds }) {
    this.#t.push(t);
    seeds.forEach(({ gap }, i) => (this.#gaps[i] ??= []).push(gap > 0 ? 100 * gap : null));
    if (this.#t.length <= MOST) return;
    const thin = (list) => list.filter((_, i) => i % 2 === 1);
    this.#t = thin(this.#t);
    this.#gaps = this.#gaps.map(thin);
  }

  /** @param {"left"|"right"} side for the colour */
  draw(side) {
    if (!this.#gaps.some((gaps) => gaps.some((gap) => gap !== null))) return;
    this.#node.hidden = false;
    const last = this.#gaps.map((gaps) => percent((gaps.at(-1) ?? 0) / 100));
    const words = `Distance of Q from its exact limit after ${whole(this.#t.at(-1))} iterations: ${last.join(", ")}.`;
    this.#chart.draw(({ [side]: own, muted }) => this.#picture(own, muted), words);
  }

  #picture(own, muted) {
    const traces = this.#gaps.map((y, seed) => ({
      type: "scatter",
      mode: this.#t.length < 3 ? "lines+markers" : "lines",
      name: `seed ${seed}`,
      x: this.#t.slice(),
      y: y.slice(),
      line: { color: seed ? muted : own, width: seed ? 1 : 2.5 },
      opacity: seed ? 0.7 : 1,
      hovertemplate: `seed ${seed}, iteration %{x:,}: %{y:.3~r} % of Q's range from the limit<extra></extra>`,
    }));
    const layout = {
      xaxis: { title: "iterations", rangemode: "tozero", nticks: 6 },
      yaxis: { title: "distance from the limit", type: "log", ...TICKS },
      margin: { l: 60, r: 12, t: 10, b: 40 },
      showlegend: false,
    };
    return { traces: traces.reverse(), layout }; // the first seed on top
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

function redraw({ figure, picture, path, arrows, caption }, seed, { policy, verdict, path: states }, cells) {
  const centre = (s) => `${cells[s][1] + 0.5},${cells[s][0] + 0.5}`;
  path.setAttribute("points", states.map(centre).join(" "));
  arrows.setAttribute("d", policy.map((a, s) => (a < 0 ? "" : arrow(cells[s], HEADINGS[a]))).join(""));
  caption.textContent = `seed ${seed} ${SIGNS[verdict]} ${verdict}`;
  picture.setAttribute("aria-label", `Seed ${seed}: ${verdict}`);
  figure.dataset.verdict = verdict;
}

/** A small triangle in the middle of a cell, pointing along (x, y). */
function arrow([row, column], [x, y]) {
  const at = (along, across) => `${column + 0.5 + along * x - across * y} ${row + 0.5 + along * y + across * x}`;
  return `M${at(0.3, 0)}L${at(-0.16, 0.22)}L${at(-0.16, -0.22)}Z`;
}
