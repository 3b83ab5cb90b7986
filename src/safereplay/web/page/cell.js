/**
 * The form of the chosen cell: the reward of a goal, or the rewards of a volatile move.
 */
import { byId, el, place } from "./dom.js";
import { typed } from "./fields.js";
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
    fill(form, world, cell);
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
    const read = () => valuesOf(store.get().world, cell, mark).reward;
    const write = (value) => {
      store.setWorld({ goals: { ...store.get().world.goals, [cell]: value } }, { source: `goal ${cell}` });
    };
    const field = input("cell-goal", "Reward of this goal", "reward", read, write);
    return [title, el("div", { class: "fields" }, field), reset(store, "goals", cell)];
  }
  if (mark in VOLATILE) return [title, lottery(store, cell, mark), reset(store, "volatiles", cell)];
  return [title];
}

function lottery(store, cell, mark) {
  const part = (id, label, name, min, max) => {
    const read = () => valuesOf(store.get().world, cell, mark)[name];
    const write = (value) => {
      const { world } = store.get();
      const now = { ...gamble(world.volatiles[cell] ?? world.volatile), [name]: value };
      store.setWorld({ volatiles: { ...world.volatiles, [cell]: outcomesOf(now) } }, { source: `volatile ${cell}` });
    };
    return input(id, label, name, read, write, min, max);
  };
  return el("div", { class: "fields three" },
    part("cell-good", "pays", "good"), part("cell-p", "chance", "p", 0, 1), part("cell-bad", "else", "bad"));
}

function input(id, label, name, read, write, min = -LARGEST, max = LARGEST) {
  return el("label", { class: "field" }, el("span", {}, label), typed({ id, name, min, max }, read, write));
}

/** The numbers of a cell of the map. */
function valuesOf(world, cell, mark) {
  if (mark === "G") return { reward: world.goals[cell] ?? world.goal };
  return mark in VOLATILE ? gamble(world.volatiles[cell] ?? world.volatile) : {};
}

function reset(store, name, cell) {
  return el("button", { type: "button", class: "quiet", id: "cell-reset", onclick: () => {
    const { [cell]: _, ...rest } = store.get().world[name];
    store.setWorld({ [name]: rest });
  } }, "Use the default");
}

function fill(form, world, cell) {
  for (const field of form.querySelectorAll("input")) field.restore();
  const own = cell !== null && (cell in world.goals || cell in world.volatiles);
  const back = form.querySelector("#cell-reset");
  if (back) back.hidden = !own;
}
