/**
 * Lines over a board: the path of a policy, and the last steps of a learner.
 */
import { put, svg } from "./dom.js";
import { TRIANGLES } from "./glyphs.js";

const BEND = 34; // distance from the middle of a cell at which a rounded corner starts

/** The middle of a cell [row, column]. */
export const middle = ([row, column]) => [100 * column + 50, 100 * row + 50];

/** A line through points, its corners rounded, as the `d` of a path. */
export function rounded(points) {
  if (points.length < 2) return "";
  const parts = [`M${points[0]}`];
  for (let k = 1; k < points.length - 1; k++) {
    parts.push(`L${towards(points[k], points[k - 1])}Q${points[k]} ${towards(points[k], points[k + 1])}`);
  }
  return `${parts.join("")}L${points.at(-1)}`;
}

function towards([x, y], [x1, y1]) {
  const far = Math.hypot(x1 - x, y1 - y) || 1;
  const share = Math.min(0.5, BEND / far);
  return [x + (x1 - x) * share, y + (y1 - y) * share];
}

/** The path of a policy: a line with a halo, and marks at its start and its end. */
export class Route {
  constructor() {
    this.halo = svg("path", { class: "route-halo" });
    this.line = svg("path", { class: "route-line" });
    this.end = svg("path", { class: "route-end" });
    this.node = svg("g", { class: "route" }, this.halo, this.line, this.end);
  }

  /** @param {[number, number][]} cells of the path @param {"goal"|"unsafe"|"loop"|""} end */
  draw(cells, end) {
    const points = cells.map(middle);
    if (points.length > 1 && end !== "loop") points.push(short(points.pop(), points.at(-1), end === "goal" ? 45 : 36));
    const d = rounded(points);
    put(this.halo, "d", d);
    put(this.line, "d", d);
    put(this.end, "d", points.length > 1 ? mark(points.at(-1), points.at(-2), end) : "");
    put(this.node, "data-end", end);
  }
}

/** The point `by` before `to` on the way from `from`. */
function short([x, y], [x0, y0], by) {
  const far = Math.hypot(x - x0, y - y0) || 1;
  return [x - ((x - x0) * by) / far, y - ((y - y0) * by) / far];
}

/** The end of a path: an arrow head at a goal, a cross at a fall, a ring at a loop. */
function mark([x, y], [x0, y0], end) {
  if (end === "unsafe") return `M${x - 13} ${y - 13}l26 26M${x + 13} ${y - 13}l-26 26`;
  if (end === "loop") return `M${x - 38} ${y}a38 38 0 1 1 76 0a38 38 0 1 1 -76 0`;
  const far = Math.hypot(x - x0, y - y0) || 1;
  const [dx, dy] = [((x - x0) / far) * 15, ((y - y0) / far) * 15];
  return `M${x - dx - dy} ${y - dy + dx}L${x} ${y}L${x - dx + dy} ${y - dy - dx}`;
}

/** The latest of a learner: its last steps as a line, its position, and the replayed moves. */
export class Trace {
  constructor() {
    this.line = svg("path", { class: "trace-line" });
    this.flashes = svg("g", { class: "flashes" });
    this.agent = svg("g", { class: "agent" }, svg("circle", { r: 19 }), svg("circle", { class: "pupil", r: 7 }));
    this.node = svg("g", { class: "trace", hidden: true }, this.flashes, this.line, this.agent);
  }

  /** @param {object|null} frame of /api/learn @param {[number, number][]} cells of the states */
  draw(frame, cells) {
    this.node.toggleAttribute("hidden", frame === null);
    if (frame === null) return;
    const lived = frame.trace.filter((step) => !step[5]);
    put(this.line, "d", episodes(lived).map((states) => rounded(states.map((s) => middle(cells[s])))).join(""));
    const replayed = frame.trace.filter((step) => step[5]);
    this.flashes.replaceChildren(...counted(replayed).map(([s, a, times]) => flash(cells[s], a, times)));
    this.agent.toggleAttribute("hidden", frame.at === null);
    if (frame.at !== null) this.agent.style.transform = `translate(${middle(cells[frame.at]).map((x) => `${x}px`)})`;
  }
}

/** The states of steps, split by episode; steps that do not move are left out. */
function episodes(steps) {
  const parts = [];
  let states = [];
  for (const [s, , , s_next, terminal] of steps) {
    if (states.at(-1) !== s) parts.push((states = [s]));
    if (s_next !== s) states.push(s_next);
    if (terminal) states = [];
  }
  return parts;
}

function counted(steps) {
  const times = new Map();
  for (const [s, a] of steps) times.set(`${s},${a}`, (times.get(`${s},${a}`) ?? 0) + 1);
  return [...times].map(([pair, n]) => [...pair.split(",").map(Number), n]);
}

function flash([row, column], action, times) {
  const strength = Math.min(1, 0.45 + 0.15 * times);
  return svg("polygon", {
    class: "flash", points: TRIANGLES[action], transform: `translate(${100 * column} ${100 * row})`, opacity: strength,
  });
}
