/**
 * The glyphs of cells: walls, hazards, goals, the start, and volatile moves. A cell is 100 × 100.
 */
import { say, svg } from "./dom.js";

/** The name of each character of a map. */
export const NAMES = {
  ".": "free", "#": "wall", S: "start", G: "goal", X: "hazard",
  "^": "volatile up", ">": "volatile right", v: "volatile down", "<": "volatile left",
};

/** The action of a volatile move. */
export const VOLATILE = { "^": 0, ">": 1, v: 2, "<": 3 };

/** The four triangles of a cell, one per action, each with its base on the side that the action leads to. */
export const TRIANGLES = ["0,0 100,0 50,50", "100,0 100,100 50,50", "0,100 100,100 50,50", "0,0 0,100 50,50"];

/** The lines between them. */
export const SEAMS = "M0 0 100 100M100 0 0 100";

/** An arrow that points up, around 0,0. */
export const ARROW = "M0-22 14-4H5V19H-5V-4H-14Z";

/** A flash of lightning around 0,0. */
const BOLT = "M3-11-7 3h6l-2 8L7-4H1Z";

/** The fill patterns of glyphs; ids are unique to the board. */
export function patterns(id) {
  return svg("defs", {}, stripes(`${id}-hatch`, "wall", 20, 6, 45), stripes(`${id}-danger`, "hazard", 28, 14, -45));
}

function stripes(id, name, size, width, turn) {
  const placed = { patternUnits: "userSpaceOnUse", patternTransform: `rotate(${turn})` };
  return svg("pattern", { id, width: size, height: size, ...placed },
    svg("rect", { class: `${name}-ground`, width: size, height: size }),
    svg("rect", { class: `${name}-line`, width, height: size }));
}

/** A character of the map as the picture of a tool: larger than on the board, without a reward. */
export function tool(mark, id) {
  if (mark === "S") return [svg("g", { transform: "translate(5 5) scale(2.5)" }, start())];
  if (!(mark in VOLATILE)) return glyphs(mark, id, 0).slice(0, 3);
  const turn = VOLATILE[mark] * 90;
  const turned = `translate(50 50) rotate(${turn})`;
  return [
    svg("path", { class: "arrow", d: ARROW, transform: `${turned} translate(0 -16) scale(1.3)` }),
    svg("g", { class: "volatile", transform: `${turned} translate(0 20) rotate(${-turn}) scale(1.4)` }, ...bolt()),
  ];
}

/** The glyphs of a character of the map. @param {string} mark @param {string} id of the board @param {number} reward */
export function glyphs(mark, id, reward) {
  if (mark === "#") return [svg("rect", { class: "wall", width: 100, height: 100, fill: `url(#${id}-hatch)` })];
  if (mark === "X") return hazard(id);
  if (mark === "G") return goal(reward);
  if (mark === "S") return [start()];
  return [];
}

function hazard(id) {
  return [
    svg("rect", { class: "hazard", width: 100, height: 100, fill: `url(#${id}-danger)` }),
    svg("path", { class: "hazard-sign", d: "M50 24 80 76H20Z" }),
    svg("path", { class: "hazard-mark", d: "M50 41v17M50 66.5v.5" }),
  ];
}

function goal(reward) {
  return [
    svg("rect", { class: "goal", width: 100, height: 100 }),
    svg("path", { class: "goal-pole", d: "M35 68V16" }),
    svg("path", { class: "goal-flag", d: "M35 17h37l-10 13 10 13H35Z" }),
    svg("text", { class: "goal-reward", x: 50, y: 91 }, reward > 0 ? `+${say(reward)}` : say(reward)),
  ];
}

function start() {
  return svg("g", { class: "start" },
    svg("rect", { x: 5, y: 5, width: 26, height: 26, rx: 7 }),
    svg("text", { x: 18, y: 25 }, "S"));
}

/** The flash of lightning on the side of a volatile move, above paths and arrows. */
export function badges(mark) {
  if (!(mark in VOLATILE)) return [];
  const turn = VOLATILE[mark] * 90;
  return [svg("g", { class: "volatile", transform: `rotate(${turn}) translate(0 -38) rotate(${-turn})` }, ...bolt())];
}

const bolt = () => [svg("circle", { r: 14 }), svg("path", { d: BOLT })];
