/**
 * Both boards with a common colour scale, and the legend below them.
 */
import { SIDES } from "./answers.js";
import { Board } from "./board.js";
import { extent, gradient, scale, themeChanged } from "./colours.js";
import { byId, el, put, say } from "./dom.js";

/** Make the boards. @returns {{left: Board, right: Board}} */
export function makeBoards() {
  const boards = { left: new Board("left"), right: new Board("right") };
  [boards.left.rival, boards.right.rival] = [boards.right, boards.left];
  return boards;
}

/** Update the boards with the state and the answers. */
export function startBoards(store, answers, boards) {
  const marks = makeLegend();
  const draw = () => {
    const most = extent(SIDES.map((side) => answers.get(side)?.Q ?? []));
    const colour = scale(most);
    const { world } = store.get();
    for (const side of SIDES) boards[side].show({ world, answer: fitting(answers.get(side), world), colour });
    marks(most);
  };
  const settle = () => SIDES.forEach((side) => put(boards[side].svg, "data-ready", answers.settled(side) ? 1 : 0));

  store.subscribe((state, before) => {
    settle();
    if (state.world !== before.world) draw(); // the map appears at once; its values come with the answer
  });
  answers.subscribe((side) => {
    draw();
    put(boards[side].svg, "data-seq", Number(boards[side].svg.dataset.seq) + 1);
    settle();
  });
  document.addEventListener("themechange", () => {
    themeChanged();
    draw();
  });
  draw();
}

/** An answer whose cells are all on the map, or null: it may belong to a larger map. */
const fitting = (answer, { rows }) => (answer?.cells.every(([i, j]) => rows[i]?.[j] !== undefined) ? answer : null);

/** The legend; the answer sets the ends of its scale. */
function makeLegend() {
  const bar = el("span", { class: "legend-bar" });
  const [low, high] = [el("span"), el("span")];
  byId("legend").append(
    el("span", { class: "legend-scale" }, el("span", { class: "legend-name" }, "value of a move"), low, bar, high),
    el("span", { class: "legend-item" }, el("i", { class: "legend-path" }), "path"),
    el("span", { class: "legend-item" }, el("i", { class: "legend-differs" }), "both differ"),
    el("span", { class: "legend-item" }, el("i", { class: "legend-bolt" }, "⚡"), "gamble"),
    el("span", { class: "legend-item" }, el("i", { class: "legend-walk" }), "walks"),
    el("span", { class: "legend-item" }, el("i", { class: "legend-flash" }), "replayed"),
  );
  return (most) => {
    bar.style.backgroundImage = gradient();
    low.textContent = say(-most, 2);
    high.textContent = `+${say(most, 2)}`;
  };
}
