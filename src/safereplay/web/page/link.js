/**
 * The state as the query of an address, short enough to paste: only what differs from the preset or the defaults.
 *
 * The page only writes links; the server reads them (GET /api/state).
 */

const LETTERS = { "#": "W", "^": "u", ">": "r", v: "d", "<": "l" }; // other characters of a map stay the same
const NUMBERS = ["goal", "step", "hazard", "slip"];
const WORDS = ["slip_to", "fall_ends", "goal_slips", "start"];
const DEFAULTS = { left: "q", right: "replay,v:0.5,beta:5,mixing:matched", epsilon: "0.1", seeds: "1", limit: "0.04" };
const UNSAID = { mixing: "literal", scheme: "variance" };

/** The whole state as `world=cliff&right=...`. */
export function query(state, presets) {
  const rest = { left: learnerText(state.left), right: learnerText(state.right) };
  for (const name of ["epsilon", "seeds", "limit"]) rest[name] = number(state[name]);
  const said = Object.entries(rest).filter(([name, text]) => text !== DEFAULTS[name]);
  return join(worldQuery(state.world, presets), Object.fromEntries(said));
}

/** The world only: the name of its preset, and the changes. */
export function worldQuery(world, presets) {
  const preset = presets.find((one) => one.name === world.name)?.world ?? {};
  const texts = worldTexts(world);
  const before = worldTexts({ ...EMPTY, ...preset });
  if (texts.map !== before.map) before.goals = before.volatiles = ""; // a new map has no rewards of single cells
  const said = Object.entries(texts).filter(([name, text]) => text !== before[name]);
  return join("", { world: world.name, ...Object.fromEntries(said) });
}

/** A learner as `q` or `replay,v:0.5,beta:5`; a dial that is null depends on the world. */
export function learnerText({ kind, ...dials }) {
  const said = Object.entries(dials).filter(([name, value]) => value !== null && UNSAID[name] !== value);
  const texts = said.map(([name, value]) => `${name}:${typeof value === "number" ? number(value) : value}`);
  return [kind, ...texts].join(",");
}

/** The parameters of /api/solve, /api/switches and the start of /api/learn for one side. */
export function sideQuery(state, side, presets) {
  return join(worldQuery(state.world, presets), { learner: learnerText(state[side]), epsilon: number(state.epsilon) });
}

/** `text` and then `params`, as one query; `/ : , ; ~` stay readable. */
export function join(text, params) {
  const parts = Object.entries(params).map(([name, value]) => `${name}=${encode(String(value))}`);
  return [text, ...parts].filter(Boolean).join("&");
}

const EMPTY = { rows: [], goals: {}, volatile: [], volatiles: {} };

function worldTexts(world) {
  const texts = { map: mapText(world.rows) };
  for (const name of NUMBERS) texts[name] = number(world[name]);
  for (const name of WORDS) texts[name] = String(world[name]);
  texts.gamma = number(world.gamma);
  texts.goals = cellsText(world.goals, number);
  texts.volatile = outcomesText(world.volatile);
  texts.volatiles = cellsText(world.volatiles, outcomesText);
  return texts;
}

/** Rows like those of a chess position: `6/6/6/SXXXXG`; a number is a run of free cells. */
function mapText(rows) {
  const line = (row) => row.replace(/\.+/g, (free) => free.length).replace(/[#^>v<]/g, (mark) => LETTERS[mark]);
  return rows.map(line).join("/");
}

function cellsText(byCell, text) {
  const cells = Object.keys(byCell ?? {}).sort();
  return cells.map((cell) => `${cell.replace(",", ".")}~${text(byCell[cell])}`).join(";");
}

function outcomesText(outcomes) {
  return outcomes.map(([p, r]) => `${number(p)}:${number(r)}`).join(",");
}

/** A number without binary rounding errors: 0.1 + 0.2 is 0.3. */
function number(x) {
  return String(Number(Number(x).toPrecision(10)));
}

function encode(text) {
  return encodeURIComponent(text).replace(/%(2F|3A|2C|3B|7E)/g, decodeURIComponent);
}
