/**
 * Drawing on the boards: strokes with the mouse or a finger, or single cells with keys.
 */
import { SIDES } from "./answers.js";
import { startCell } from "./cell.js";
import { byId, el, place, svg } from "./dom.js";
import { patterns, tool } from "./glyphs.js";
import { painted, TOOLS } from "./maps.js";

const LABELS = {
  select: "Look", free: "Free", wall: "Wall", start: "Start", goal: "Goal", hazard: "Hazard",
  up: "up", right: "right", down: "down", left: "left",
};
const gamble = (way) => `Free; moving ${way} from here has a volatile reward`;
const HINTS = {
  select: "Choose a cell, change nothing", free: "A free cell", wall: "A wall", start: "The start of judged episodes",
  goal: "A goal: it ends the episode with a reward", hazard: "A hazard: falling into it is unsafe",
  up: gamble("up"), right: gamble("right"), down: gamble("down"), left: gamble("left"),
};
const KEYS = {
  ".": ".", Delete: ".", Backspace: ".", "#": "#", w: "#", s: "S", g: "G", x: "X", "^": "^", ">": ">", v: "v", "<": "<",
};
const WAYS = { ArrowUp: [-1, 0, "^"], ArrowRight: [0, 1, ">"], ArrowDown: [1, 0, "v"], ArrowLeft: [0, -1, "<"] };

/** Make both boards editable. */
export function startEditor(store, boards) {
  makeTools();
  const cell = startCell(store);
  let strokes = 0;
  const paint = (at, mark, source = `stroke ${++strokes}`) => {
    const change = mark && painted(store.get().world, place(at), mark);
    if (change) store.setWorld(change, { source, join: true });
  };
  const choose = (at) => {
    for (const side of SIDES) rove(boards[side], at);
    cell.choose(at);
  };
  for (const side of SIDES) {
    listenToPointer(boards[side], { choose, paint, source: () => `stroke ${++strokes}` });
    listenToKeys(boards[side], store, { choose, paint });
  }
}

/** The character that the chosen tool draws; undefined for the selection tool. */
const chosenMark = () => TOOLS[document.querySelector("#tools input:checked").value];

function makeTools() {
  const picture = (name) => svg("svg", { viewBox: "0 0 100 100", "aria-hidden": "true" },
    patterns(`tool-${name}`), ...(name === "select" ? [pointer()] : tool(TOOLS[name], `tool-${name}`)));
  byId("tools").addEventListener("change", () => byId("boards").classList.toggle("drawing", Boolean(chosenMark())));
  const choices = Object.entries(LABELS).map(([name, label]) => el("label", { class: "tool", title: HINTS[name] },
    el("input", { type: "radio", name: "tool", value: name, checked: name === "select", "aria-label": HINTS[name] }),
    picture(name),
    el("span", {}, label)));
  byId("tools").append(...choices);
}

const pointer = () => svg("path", { class: "pointer", d: "M30 18v58l15-14 10 23 11-5-10-22h21Z" });

/** Tab reaches one cell of a board; arrow keys move from there. */
function rove(board, at) {
  const group = board.group(at);
  if (!group) return;
  board.svg.querySelectorAll('[role="gridcell"][tabindex="0"]').forEach((other) => other.setAttribute("tabindex", -1));
  group.setAttribute("tabindex", 0);
}

function listenToPointer(board, { choose, paint, source }) {
  let stroke = null;
  let last = null;
  board.svg.addEventListener("pointerdown", (event) => {
    const at = board.cellAt(event.clientX, event.clientY);
    if (!at || event.button !== 0) return;
    event.preventDefault(); // no selection of text, no dragging of pictures
    const mark = chosenMark();
    stroke = mark ? source() : null;
    last = at;
    if (stroke) board.svg.setPointerCapture(event.pointerId);
    paint(at, mark, stroke);
    choose(at);
    board.group(at).focus({ preventScroll: true });
  });
  board.svg.addEventListener("pointermove", (event) => {
    const at = stroke && board.cellAt(event.clientX, event.clientY);
    if (!at || at === last) return;
    for (const between of line(last, at)) paint(between, chosenMark(), stroke);
    last = at;
  });
  for (const name of ["pointerup", "pointercancel"]) board.svg.addEventListener(name, () => (stroke = null));
}

/** The cells from one to another, without the first: quick strokes leave no gaps. */
function line(from, to) {
  const [i0, j0] = place(from);
  const [i1, j1] = place(to);
  const steps = Math.max(Math.abs(i1 - i0), Math.abs(j1 - j0));
  const at = (k) => [i0 + Math.round(((i1 - i0) * k) / steps), j0 + Math.round(((j1 - j0) * k) / steps)];
  return Array.from({ length: steps }, (_, k) => at(k + 1).join(","));
}

function listenToKeys(board, store, { choose, paint }) {
  board.svg.addEventListener("keydown", (event) => {
    const at = event.target.closest?.("[data-cell]")?.dataset.cell;
    if (!at || event.ctrlKey || event.metaKey || event.altKey) return;
    const way = WAYS[event.key];
    const mark = way ? event.shiftKey && way[2] : event.key in KEYS ? KEYS[event.key] : KEYS[event.key.toLowerCase()];
    const chosen = event.key === "Enter" || event.key === " ";
    if (!way && !mark && !chosen) return;
    event.preventDefault();
    if (way && !mark) return focusOn(board, moved(at, way, store.get().world.rows), choose);
    paint(at, mark || chosenMark());
    choose(at);
  });
  board.svg.addEventListener("focusin", (event) => {
    const at = event.target.closest("[data-cell]")?.dataset.cell;
    if (at) rove(board, at);
  });
}

function moved(at, [down, right], rows) {
  const [i, j] = place(at);
  const within = (x, most) => Math.min(Math.max(x, 0), most - 1);
  return `${within(i + down, rows.length)},${within(j + right, rows[0].length)}`;
}

function focusOn(board, at, choose) {
  choose(at);
  board.group(at).focus({ preventScroll: false });
}
