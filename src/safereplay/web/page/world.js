/**
 * The world's panel: its preset, size, rewards and dynamics.
 */
import { byId, el, percent } from "./dom.js";
import { check, choice, grouped, number, slider } from "./fields.js";
import { MOST, resized } from "./maps.js";
import { same } from "./state.js";

const LARGEST = 1e6;
const SLIPS = [
  ["any", "in any direction"], ["others", "in another direction"], ["sides", "to either side"],
  ["up", "up (a wind)"], ["right", "right (a wind)"], ["down", "down (a wind)"], ["left", "left (a wind)"],
];
const STARTS = [["uniform", "anywhere"], ["S", "at the start cells S"]];

/** Fill the panel. */
export function startWorld(store) {
  startPresets(store);
  byId("rewards").append(sizes(store), rewards(store), gambles(store));
  byId("dynamics").append(...moving(store));
}

function startPresets(store) {
  const select = byId("preset");
  const groups = Object.entries(grouped(store.presets));
  const option = ([value, title]) => el("option", { value }, title);
  select.append(...groups.map(([label, those]) => el("optgroup", { label }, ...those.map(option))));
  const begin = () => store.set({ world: store.presets.find(({ name }) => name === select.value).world });
  select.addEventListener("change", begin);
  byId("reset").addEventListener("click", begin);
  const follow = ({ world }) => {
    const preset = store.presets.find(({ name }) => name === world.name);
    select.value = world.name;
    const asGiven = !preset || same(world, preset.world);
    byId("about").textContent = asGiven ? (preset?.about ?? "") : `Your version of this world: ${preset.title}.`;
    byId("reset").disabled = asGiven;
  };
  store.subscribe(follow);
  follow(store.get());
}

/** Rows and columns. */
function sizes(store) {
  const size = (name, label) => number(store, {
    id: `${name}-count`, label, min: 1, max: MOST, step: 1, read: ({ world }) => sizeOf(world)[name],
    write: (n, how) => {
      const { world } = store.get();
      const { rows, columns } = { ...sizeOf(world), [name]: n };
      store.setWorld(resized(world, rows, columns), how);
    },
  });
  return el("div", { class: "fields" }, size("rows", "Rows"), size("columns", "Columns"));
}

const sizeOf = ({ rows }) => ({ rows: rows.length, columns: rows[0].length });

/** A field of the world by its name. */
function of(store, name) {
  return { read: ({ world }) => world[name], write: (value, how) => store.setWorld({ [name]: value }, how) };
}

function rewards(store) {
  const reward = (id, label, hint) => number(store, { id, label, hint, min: -LARGEST, max: LARGEST, ...of(store, id) });
  return el("div", { class: "fields three" },
    reward("goal", "Goal", "reward of reaching a goal"),
    reward("step", "Step", "reward of any other step"),
    reward("hazard", "Fall", "reward of falling into a hazard"));
}

/** The two rewards of a volatile move: `p` of the good one. */
export function gamble(outcomes) {
  const [[p, good], [, bad] = [0, good]] = outcomes;
  return { p, good, bad };
}

/** Two outcomes from `p` and the two rewards; the written probabilities add up to exactly 1. */
export const outcomesOf = ({ p, good, bad }) => [[p, good], [Number((1 - p).toPrecision(10)), bad]];

function gambles(store) {
  const part = (id, label, name, range) => number(store, {
    id, label, ...range, read: ({ world }) => gamble(world.volatile)[name],
    write: (value, how) => {
      store.setWorld({ volatile: outcomesOf({ ...gamble(store.get().world.volatile), [name]: value }) }, how);
    },
  });
  const any = { min: -LARGEST, max: LARGEST };
  return el("fieldset", { class: "fields three plain" }, el("legend", {}, "A volatile move (⚡)"),
    part("volatile-good", "pays", "good", any),
    part("volatile-p", "chance", "p", { min: 0, max: 1, step: "any" }),
    part("volatile-bad", "else", "bad", any));
}

/** The sliders of the world and of the exploration. */
const SLIDERS = {
  gamma: { symbol: "γ", label: "discount", hint: "weight of later rewards", min: 0.5, max: 0.99, step: 0.01 },
  epsilon: { symbol: "ε", label: "exploration", hint: "share of random actions", min: 0.01, max: 1, step: 0.01 },
  slip: { label: "Slip", hint: "share of steps that slip", min: 0, max: 1, step: 0.01, text: percent },
};

/** The slider γ, ε or slip; `id` may differ where a lesson shows it again. */
export function worldDial(store, name, id = name) {
  const epsilon = { read: (state) => state.epsilon, write: (value, how) => store.set({ epsilon: value }, how) };
  return slider(store, { id, range: () => SLIDERS[name], ...(name === "epsilon" ? epsilon : of(store, name)) });
}

function moving(store) {
  return [
    ...Object.keys(SLIDERS).map((name) => worldDial(store, name)),
    choice(store, { id: "slip-to", label: "A slip goes", options: SLIPS, ...of(store, "slip_to") }),
    choice(store, { id: "start", label: "Episodes start", options: STARTS, ...of(store, "start") }),
    check(store, { id: "fall-ends", label: "A fall ends the episode", ...of(store, "fall_ends") }),
    check(store, { id: "goal-slips", label: "The step into a goal can slip", ...of(store, "goal_slips") }),
  ];
}
