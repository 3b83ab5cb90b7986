/**
 * Walks over a board: dots that follow the policy from the start, and arrive or fall.
 */
import { put, svg } from "./dom.js";
import { middle, rounded } from "./route.js";

const SPREAD = 17; // dots in one cell stand a little apart
const CROSS = "M-15-15 15 15M15-15-15 15";
const TICK = "M-16 2-5 13 16-12";

/** The dots of one board. */
export class Walks {
  #dots = [];

  /** @param {"left"|"right"} side */
  constructor(side) {
    this.trail = svg("path", { class: "walk-trail" });
    this.dots = svg("g", {});
    this.ends = svg("g", {});
    this.node = svg("g", { class: `walks walks-${side}` }, this.trail, this.dots, this.ends);
  }

  /**
   * Draw walkers at their cells.
   * @param {{cell: [number, number], bold: boolean}[]} walkers @param {number} ms that a step takes
   */
  draw(walkers, ms) {
    while (this.#dots.length < walkers.length) {
      const dot = svg("circle", { class: "walker", r: 11 });
      this.#dots.push(dot);
      this.dots.append(dot);
    }
    this.#dots.forEach((dot, i) => {
      const walker = walkers[i];
      dot.toggleAttribute("hidden", !walker?.cell);
      if (!walker?.cell) return;
      const [x, y] = middle(walker.cell);
      const [dx, dy] = walker.bold ? [0, 0] : apart(i);
      dot.style.transitionDuration = walker.fresh ? "0s" : `${ms}ms`; // a new walk begins at the start, without a way there
      dot.style.transform = `translate(${x + dx}px, ${y + dy}px)`;
      put(dot, "r", walker.bold ? 19 : 11);
    });
  }

  /** Show how a walk ended: a tick or a cross at its last cell, for a moment. */
  end(cell, unsafe, i = 0, bold = false) {
    const [x, y] = middle(cell);
    const [dx, dy] = bold ? [0, 0] : apart(i);
    const mark = svg("g", { class: `walk-end ${unsafe ? "unsafe" : "arrived"}`, transform: `translate(${x + dx} ${y + dy})` },
      svg("circle", { r: 24 }), svg("path", { d: unsafe ? CROSS : TICK }));
    mark.addEventListener("animationend", () => mark.remove());
    this.ends.append(mark);
    while (this.ends.childElementCount > 5) this.ends.firstChild.remove();
  }

  /** The way of a single walk. @param {[number, number][]} cells */
  follow(cells) {
    put(this.trail, "d", rounded(cells.map(middle)));
  }

  /** Remove everything. */
  clear() {
    this.draw([], 0);
    this.follow([]);
    this.ends.replaceChildren();
  }
}

/** The place of dot i within its cell. */
function apart(i) {
  const angle = 2.4 * i;
  return i ? [SPREAD * Math.cos(angle), SPREAD * Math.sin(angle)] : [0, 0];
}
