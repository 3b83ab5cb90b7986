/**
 * The form of the chosen cell: the reward of a goal, or the rewards of a volatile move.
 */
import { byId, el, place } from "./dom.js";
import { NAMES, VOLATILE } from "./glyphs.js";
import { gamble, outcomesOf } from "./world.js";

const LARGEST = 1e6;

/** Show the chosen cell "r,c", and change its rewards. @returns {{choose: function(string): void}} */
export function startCell(store) {
  const form = byId("cell");
  let cell = null;
  let shown = "";
  form.addEventListener("submit", (event) => event.preventDefault());

  const draw = () => {
    const { world } = store.get();
    const mark = cell && (world.rows[place(cell)[0]]?.[place(cell)[1]] ?? null);
    const now = `${cell} ${mark}`;
    if (now !== shown) form.replaceChildren(...(mark ? fieldsOf(store, cell, mark) : empty()));
    shown = now;
    fill(form, world, cell, mark);
  };
  store.subscribe((state, before) => state.world !== before.world && draw());
  draw();
  return {
    choose(next) {
      cell = next;
      draw();
    },
  };
}

function empty() {
  return [el("p", { class: "hint" }, "Choose a cell of a board to edit it.")];
}

function fieldsOf(store, cell, mark) {
  const [row, column] = place(cell);
  const title = el("p", { class: "cell-title" }, el("b", {}, NAMES[mark]), ` in row ${row + 1}, column ${column + 1}`);
  if (mark === "G") {
    return [title, el("div", { class: "fields" }, input("cell-goal", "Reward of this goal", "reward", (value) => {
      store.setWorld({ goals: { ...store.get().world.goals, [cell]: value } }, { source: `goal ${cell}` });
    })), reset(store, "goals", cell)];
  }
  if (mark in VOLATILE) return [title, lottery(store, cell), reset(store, "volatiles", cell)];
  return [title];
}

function lottery(store, cell) {
  const set = (name) => (value) => {
    const { world } = store.get();
    const now = { ...gamble(world.volatiles[cell] ?? world.volatile), [name]: value };
    store.setWorld({ volatiles: { ...world.volatiles, [cell]: outcomesOf(now) } }, { source: `volatile ${cell}` });
  };
  return el("div", { class: "fields three" },
    input("cell-good", "pays", "good", set("good")),
    input("cell-p", "chance", "p", set("p"), 0, 1),
    input("cell-bad", "else", "bad", set("bad")));
}

function input(id, label, name, write, min = -LARGEST, max = LARGEST) {
  const field = el("input", { id, name, type: "number", step: "any", min, max, inputmode: "decimal" });
  field.addEventListener("input", () => field.value !== "" && field.checkValidity() && write(Number(field.value)));
  return el("label", { class: "field" }, el("span", {}, label), field);
}

function reset(store, name, cell) {
  return el("button", { type: "button", class: "quiet", id: "cell-reset", onclick: () => {
    const { [cell]: _, ...rest } = store.get().world[name];
    store.setWorld({ [name]: rest });
  } }, "Use the default");
}

function fill(form, world, cell, mark) {
  const values = mark === "G" ? { reward: world.goals[cell] ?? world.goal }
    : mark && mark in VOLATILE ? gamble(world.volatiles[cell] ?? world.volatile) : {};
  for (const [name, value] of Object.entries(values)) {
    const field = form.elements[name];
    if (document.activeElement !== field || Number(field.value) !== value) field.value = value;
  }
  const own = cell !== null && (cell in world.goals || cell in world.volatiles);
  const back = form.querySelector("#cell-reset");
  if (back) back.hidden = !own;
}
