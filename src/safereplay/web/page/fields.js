/**
 * Form fields that are bound to the state: each shows a value of the state, and writes changes to it.
 */
import { el, say } from "./dom.js";

const follow = new Set();

/** Bind all fields, present and future ones, to the store, and to the answers: some ranges depend on them. */
export function startFields(store, answers) {
  const update = () => [...follow].forEach((one) => one(store.get()));
  store.subscribe(update);
  answers.subscribe(update);
}

/** Call `update(state)` now and with every new state, until `box` is removed with `drop`. */
function bind(store, box, update) {
  follow.add(update);
  box.unbind = () => follow.delete(update);
  update(store.get());
  return box;
}

/** Replace the fields in a node. */
export function refill(node, ...fields) {
  node.querySelectorAll("*").forEach((field) => field.unbind?.());
  node.replaceChildren(...fields);
}

/** @typedef {{id: string, label: string, hint?: string, read: function(object): any,
 *  write: function(any, object): void, shown?: function(object): boolean}} Field */

/**
 * A slider with its value beside it. A value beyond its range widens the range.
 * @param {Field & {range: function(object): {symbol: string, label: string, hint: string, min: number, max: number,
 *   step: number}}} field its label and range may depend on the state
 */
export function slider(store, field) {
  const { id, range, read, write } = field;
  const input = el("input", { id, type: "range", "aria-describedby": `${id}-hint` });
  const [symbol, label] = [el("i"), el("span")];
  const [hint, output] = [el("small", { id: `${id}-hint` }), el("output", { for: id })];
  const box = el("div", { class: "slider" }, el("label", { for: id }, symbol, label), output, input, hint);
  let dragging = false; // one drag is one step of undo
  input.addEventListener("input", () => {
    write(Number(input.value), { source: id, join: dragging });
    dragging = true;
  });
  input.addEventListener("keydown", (event) => {
    const by = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault(); // one step from the value itself, which need not be on the slider's grid
    const next = read(store.get()) + by * Number(input.step);
    write(Number(clamped(next, input.min, input.max).toPrecision(10)), { source: id, join: event.repeat });
  });
  for (const end of ["change", "pointerup", "keyup", "blur"]) input.addEventListener(end, () => (dragging = false));
  return bind(store, box, (state) => {
    show(box, field, state);
    const value = read(state);
    if (value === undefined || value === null) return;
    const now = range(state);
    symbol.textContent = now.symbol === now.label ? "" : (now.symbol ?? "");
    label.textContent = now.label;
    hint.textContent = now.hint ?? "";
    const [min, max] = [Math.min(now.min, value), Math.max(now.max, value)];
    Object.assign(input, { min, max, step: now.step });
    if (Number(input.value) !== value) input.value = value;
    const text = (now.text ?? say)(value);
    output.textContent = text;
    input.setAttribute("aria-valuetext", text);
    input.style.setProperty("--share", (value - min) / (max - min));
  });
}

const clamped = (x, min = -Infinity, max = Infinity) => Math.min(Math.max(x, Number(min)), Number(max));

/**
 * An input for a number that is written on Enter or when it is left, within its bounds; other text is discarded.
 * @param {{id: string, min?: number, max?: number, step?: number|string}} attributes
 * @param {function(): any} read @param {function(number): void} write
 */
export function typed({ min, max, step = "any", ...rest }, read, write) {
  const input = el("input", { ...rest, type: "number", min, max, step, inputmode: "decimal" });
  const restore = () => (input.value = read() ?? "");
  input.addEventListener("change", () => {
    const given = Number(input.value);
    if (input.value !== "" && Number.isFinite(given)) write(clamped(step === 1 ? Math.round(given) : given, min, max));
    restore();
  });
  input.restore = () => document.activeElement !== input && restore();
  restore();
  return input;
}

/** A number to type. @param {Field & {min?: number, max?: number, step?: number|string}} field */
export function number(store, field) {
  const { id, label, min, max, step, read, write } = field;
  const input = typed({ id, min, max, step }, () => read(store.get()), (value) => write(value, { source: id }));
  const box = el("label", { class: "field", title: field.hint }, el("span", {}, label), input);
  return bind(store, box, (state) => {
    show(box, field, state);
    input.restore();
  });
}

/** A selection. @param {Field & {options: [string, string][]|Object<string, [string, string][]>}} field by group, if an object */
export function choice(store, field) {
  const { id, label, options, read, write } = field;
  const make = ([value, text]) => el("option", { value }, text);
  const made = Array.isArray(options) ? options.map(make)
    : Object.entries(options).map(([group, those]) => el("optgroup", { label: group }, ...those.map(make)));
  const select = el("select", { id }, ...made);
  const box = el("label", { class: "field", title: field.hint }, el("span", {}, label), select);
  select.addEventListener("change", () => write(select.value, { source: "" }));
  return bind(store, box, (state) => {
    show(box, field, state);
    select.value = read(state) ?? "";
  });
}

/** Entries of a list by their group, as options of `choice`. */
export function grouped(entries) {
  const groups = {};
  for (const { group, name, title } of entries) (groups[group] ??= []).push([name, title]);
  return groups;
}

/** A checkbox. @param {Field} field */
export function check(store, field) {
  const { id, label, read, write } = field;
  const input = el("input", { id, type: "checkbox" });
  const box = el("label", { class: "check", title: field.hint }, input, el("span", {}, label));
  input.addEventListener("change", () => write(input.checked, { source: "" }));
  return bind(store, box, (state) => {
    show(box, field, state);
    input.checked = read(state);
  });
}

function show(box, { shown }, state) {
  if (shown) box.hidden = !shown(state);
}
