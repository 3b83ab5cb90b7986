/**
 * A board: the world of one pane with the values and the policy of its learner.
 *
 * The elements are made once per shape; later only attributes change, so that 20 × 20 cells can follow a slider.
 * A cell is 100 × 100. Layers from below: cells (values and glyphs), path, arrows, learning.
 */
import { place, put, say, svg } from "./dom.js";
import { ARROW, badges, glyphs, NAMES, patterns, SEAMS, TRIANGLES } from "./glyphs.js";
import { Route, Trace } from "./route.js";
import { Walks } from "./walks.js";

const ACTIONS = ["up", "right", "down", "left"];
export const ARROWS = ["↑", "→", "↓", "←"];
const EDGE = 4; // room for the outline

/** @typedef {{world: object, answer: object|null, colour: function(number): string}} View
 *  answer: from /api/solve, or null */

/** A board; `rival` is the other one, to mark differences. */
export class Board {
  rival = null;
  /** What is drawn: an answer of /api/solve, overlaid by a frame of learning; or null. */
  shown = null;
  #cells = new Map(); // "r,c" -> its elements and their contents
  #shape = "";
  #view = null;
  #frame = null;

  /** @param {"left"|"right"} side */
  constructor(side) {
    this.side = side;
    this.svg = svg("svg", { class: "board", id: `${side}-board`, role: "grid", "data-ready": 0, "data-seq": 0 });
    this.svg.setAttribute("aria-label", `${side} board`);
    this.route = new Route();
    this.trace = new Trace();
    this.walks = new Walks(side);
  }

  /** Whether the board shows a run instead of a limit. */
  get learning() {
    return this.#frame !== null;
  }

  /** Draw a view; an overlaid frame of learning stays. @param {View} view */
  show(view) {
    this.#view = view;
    this.#fit(view.world.rows);
    this.#drawWorld(view.world);
    this.#draw();
  }

  /** Draw a frame of /api/learn instead of the exact limit; null restores the limit. Dispatches "overlaid". */
  overlay(frame) {
    this.#frame = frame;
    this.svg.classList.toggle("learning", frame !== null);
    this.#draw();
    this.svg.dispatchEvent(new CustomEvent("overlaid"));
  }

  /** The group of a cell "r,c". */
  group(cell) {
    return this.#cells.get(cell)?.group;
  }

  /** The cell under a point of the screen, "r,c", or null. */
  cellAt(x, y) {
    const [rows, columns] = place(this.#shape);
    const at = new DOMPoint(x, y).matrixTransform(this.svg.getScreenCTM().inverse());
    const [row, column] = [Math.floor(at.y / 100), Math.floor(at.x / 100)];
    return row >= 0 && row < rows && column >= 0 && column < columns ? `${row},${column}` : null;
  }

  #fit(rows) {
    const shape = `${rows.length},${rows[0].length}`;
    if (shape === this.#shape) return;
    this.#shape = shape;
    this.#cells.clear();
    const [height, width] = [rows.length * 100, rows[0].length * 100];
    put(this.svg, "viewBox", `${-EDGE} ${-EDGE} ${width + 2 * EDGE} ${height + 2 * EDGE}`);
    this.svg.style.aspectRatio = (width + 2 * EDGE) / (height + 2 * EDGE);
    put(this.svg, "aria-rowcount", rows.length);
    put(this.svg, "aria-colcount", rows[0].length);
    const arrows = svg("g", { class: "arrows", "aria-hidden": "true" });
    const lines = rows.map((row, i) => this.#makeRow(i, row.length, arrows));
    const over = svg("g", { class: "over", "aria-hidden": "true" }, this.route.node, arrows, this.trace.node, this.walks.node);
    const frame = svg("rect", { class: "frame", x: -1, y: -1, width: width + 2, height: height + 2, rx: 8 });
    this.svg.replaceChildren(patterns(this.side), ...lines, frame, over);
  }

  #makeRow(i, columns, arrows) {
    const row = svg("g", { role: "row", "aria-rowindex": i + 1 });
    for (let j = 0; j < columns; j++) {
      const parts = makeCell(i, j);
      this.#cells.set(`${i},${j}`, parts);
      row.append(parts.group);
      arrows.append(parts.place);
    }
    return row;
  }

  #drawWorld(world) {
    for (const [cell, parts] of this.#cells) {
      const [i, j] = place(cell);
      const mark = world.rows[i][j];
      const reward = mark === "G" ? (world.goals[cell] ?? world.goal) : 0;
      const shown = `${mark}${reward}`;
      if (parts.shown === shown) continue;
      parts.shown = shown;
      parts.mark = mark;
      parts.reward = reward;
      parts.holds.replaceChildren(...glyphs(mark, this.side, reward));
      parts.badges.replaceChildren(...badges(mark));
      put(parts.group, "data-mark", mark);
    }
  }

  #draw() {
    if (!this.#view) return;
    const { answer, colour } = this.#view;
    const frame = answer && this.#frame?.Q.length === answer.Q.length ? this.#frame : null; // of this world
    const shown = (this.shown = frame ? { ...answer, ...learned(frame) } : answer);
    const states = stateOf(answer);
    const path = new Set((shown?.path ?? []).map((s) => String(answer.cells[s])));
    for (const [cell, parts] of this.#cells) {
      const s = states.get(cell) ?? -1;
      const live = s >= 0 && !answer.terminal[s] && !"#GX".includes(parts.mark);
      drawReplays(parts, live ? replaysOf(answer, s) : []);
      drawCell(parts, cell, live ? shown.Q[s] : null, live ? shown.policy[s] : -1, colour);
      put(parts.group, "data-state", s);
      toggle(parts, "on-path", path.has(cell));
    }
    this.route.draw((shown?.path ?? []).map((s) => answer.cells[s]), shown?.end ?? "");
    this.trace.draw(frame, answer?.cells ?? []);
    this.compare();
    this.rival?.compare();
  }

  /** Point at some cells "r,c"; none removes the marks. */
  point(cells) {
    for (const [cell, parts] of this.#cells) toggle(parts, "pointed", cells.includes(cell));
  }

  /** Mark the cells where the other board has another action. */
  compare() {
    for (const [cell, parts] of this.#cells) {
      const elsewhere = this.rival?.action(cell) ?? -1;
      toggle(parts, "differs", parts.action >= 0 && elsewhere >= 0 && elsewhere !== parts.action);
    }
  }

  /** The action that is shown in a cell "r,c"; −1 if there is none. */
  action(cell) {
    return this.#cells.get(cell)?.action ?? -1;
  }
}

/** The moves of a state that a designed replay replays. */
export const replaysOf = (answer, s) => (answer.design?.replays ?? []).filter(({ state }) => state === s);

/** A replayed move as text: its ρ, and the reward of the outcome that is replayed. */
export const replayText = ({ action, rho, r }) => `${ARROWS[action]} ρ = ${say(rho, 2)}, r = ${say(r)}`;

/** The states of an answer by cell "r,c". */
function stateOf(answer) {
  return new Map((answer?.cells ?? []).map((cell, s) => [String(cell), s]));
}

/** What a frame of learning shows instead of the limit. */
function learned(frame) {
  const { path = [], end = "", way = "" } = frame.seeds?.[0] ?? {};
  return { Q: frame.Q, policy: frame.policy, risk: frame.risk, path, end, way };
}

/** The elements of a cell: `group` with its values and glyphs, and `place` with what is drawn over the path. */
function makeCell(i, j) {
  const triangles = TRIANGLES.map((points) => svg("polygon", { points, class: "q" }));
  const [holds, bars, badges] = ["holds", "bars", "badges"].map((name) => svg("g", { class: name }));
  const arrow = svg("path", { class: "arrow", d: ARROW });
  const group = svg("g", {
    role: "gridcell", transform: `translate(${100 * j} ${100 * i})`, tabindex: i || j ? -1 : 0,
    "data-cell": `${i},${j}`, "data-state": -1, "data-action": -1, "aria-colindex": j + 1,
  },
  svg("rect", { class: "ground", width: 100, height: 100 }),
  svg("g", { class: "values" }, ...triangles, svg("path", { class: "seams", d: SEAMS })),
  holds,
  bars,
  svg("rect", { class: "ring", x: 4, y: 4, width: 92, height: 92, rx: 8 }));
  const over = svg("g", { class: "at", transform: `translate(${100 * j + 50} ${100 * i + 50})` },
    svg("path", { class: "differs-mark", d: "M50-50V-14L14-50Z" }),
    svg("rect", { class: "pointer-ring", x: -46, y: -46, width: 92, height: 92, rx: 12 }),
    svg("circle", { class: "disc", r: 27 }),
    arrow,
    badges);
  const shown = { turn: 0, action: -2, shown: "", mark: ".", reward: 0, fills: [], replays: "" };
  return { group, place: over, triangles, holds, bars, badges, arrow, ...shown };
}

function drawCell(parts, cell, q, action, colour) {
  if (q !== null) {
    parts.triangles.forEach((triangle, a) => {
      const fill = colour(q[a]);
      if (parts.fills[a] === fill) return;
      parts.fills[a] = fill;
      triangle.style.fill = fill; // faster than the attribute: no new rule for every shade
    });
  }
  parts.q = q;
  toggle(parts, "blank", q === null);
  if (action !== parts.action) turnTo(parts, action);
  const label = describe(cell, parts, q, action);
  if (parts.label !== label) parts.group.setAttribute("aria-label", (parts.label = label));
}

/** Mark the moves that a designed replay replays, each with a bar on its side of the cell. */
function drawReplays(parts, replays) {
  const texts = replays.map(replayText);
  if (parts.replays === texts.join(", ")) return;
  parts.replays = texts.join(", ");
  parts.bars.replaceChildren(...replays.map(({ action }, k) => {
    const place = { x: 15, y: 5, width: 70, height: 10, rx: 4, transform: `rotate(${90 * action} 50 50)` };
    return svg("rect", { class: "replayed", ...place }, svg("title", {}, `Replayed: ${texts[k]}`));
  }));
}

/** Turn the arrow the short way round. */
function turnTo(parts, action) {
  if (action >= 0) {
    const by = (((action * 90 - parts.turn) % 360) + 540) % 360 - 180;
    parts.turn += by;
    parts.arrow.style.transform = `rotate(${parts.turn}deg)`;
  }
  parts.action = action;
  put(parts.group, "data-action", action);
}

function toggle(parts, name, on) {
  if (parts[name] === on) return;
  parts[name] = on;
  parts.group.classList.toggle(name, on);
  parts.place.classList.toggle(name, on);
}

function describe(cell, parts, q, action) {
  const [i, j] = place(cell);
  const kind = NAMES[parts.mark] + (parts.mark === "G" ? ` ${say(parts.reward)}` : "");
  const values = q ? ` Policy: ${ACTIONS[action]}. Q ${q.map((x, a) => `${ACTIONS[a]} ${say(x)}`).join(", ")}` : "";
  const replays = parts.replays ? `. Replayed: ${parts.replays}` : "";
  return `row ${i + 1}, column ${j + 1}, ${kind}.${values}${replays}`;
}
