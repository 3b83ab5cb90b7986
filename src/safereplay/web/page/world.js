/**
 * The world's panel: its preset, size, rewards and dynamics.
 */
import { byId, el, percent } from "./dom.js";
import { check, choice, number, slider } from "./fields.js";
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
  const narrow = matchMedia("(max-width: 760px)");
  const fold = () => document.querySelectorAll("#world details").forEach((part) => (part.open = !narrow.matches));
  narrow.addEventListener("change", fold);
  fold();
}

function startPresets(store) {
  const select = byId("preset");
  select.append(...store.presets.map(({ name, title }) => el("option", { value: name }, title)));
  const begin = () => store.set({ world: store.presets.find(({ name }) => name === select.value).world });
  select.addEventListener("change", begin);
  byId("reset").addEventListener("click", begin);
  const follow = ({ world }) => {
    const preset = store.presets.find(({ name }) => name === world.name);
    select.value = world.name;
    byId("about").textContent = preset?.about ?? "";
    byId("reset").disabled = !preset || same(world, preset.world);
  };
  store.subscribe(follow);
  follow(store.get());
}

/** Rows and columns. Until something is drawn, sizes are cut from the first world, as typing 12 passes 1. */
function sizes(store) {
  let whole = null;
  let cut = null;
  const resize = (how, change) => {
    const { world } = store.get();
    if (world !== cut) whole = world;
    const { rows, columns } = { ...sizeOf(world), ...change };
    store.setWorld(resized(whole, rows, columns), how);
    cut = store.get().world;
  };
  const size = (name, label) => number(store, {
    id: `${name}-count`, label, min: 1, max: MOST, step: 1, read: ({ world }) => sizeOf(world)[name],
    write: (n, how) => resize(how, { [name]: n }),
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

const GAMMA = { symbol: "γ", label: "discount", hint: "weight of later rewards", min: 0.5, max: 0.99, step: 0.01 };
const EPSILON = {
  symbol: "ε", label: "exploration", hint: "share of random actions", min: 0.01, max: 1, step: 0.01,
};
const SLIP = { label: "Slip", hint: "share of steps that slip", min: 0, max: 1, step: 0.01, text: percent };

function moving(store) {
  const epsilon = { read: (state) => state.epsilon, write: (value, how) => store.set({ epsilon: value }, how) };
  return [
    slider(store, { id: "gamma", range: () => GAMMA, ...of(store, "gamma") }),
    slider(store, { id: "epsilon", range: () => EPSILON, ...epsilon }),
    slider(store, { id: "slip", range: () => SLIP, ...of(store, "slip") }),
    choice(store, { id: "slip-to", label: "A slip goes", options: SLIPS, ...of(store, "slip_to") }),
    choice(store, { id: "start", label: "Episodes start", options: STARTS, ...of(store, "start") }),
    check(store, { id: "fall-ends", label: "A fall ends the episode", ...of(store, "fall_ends") }),
    check(store, { id: "goal-slips", label: "The step into a goal can slip", ...of(store, "goal_slips") }),
  ];
}
