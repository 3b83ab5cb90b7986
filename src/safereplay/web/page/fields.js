/**
 * Form fields that are bound to the state: each shows a value of the state, and writes changes to it.
 */
import { el, say } from "./dom.js";

const follow = [];

/** Bind all fields, present and future ones, to the store, and to the answers: some ranges depend on them. */
export function startFields(store, answers) {
  const update = () => follow.forEach((one) => one(store.get()));
  store.subscribe(update);
  answers.subscribe(update);
}

/** Call `update(state)` now and with every new state. */
function bind(store, update) {
  follow.push(update);
  update(store.get());
}

/** @typedef {{id: string, label: string, hint?: string, read: function(object): any,
 *  write: function(any, object): void, shown?: function(object): boolean}} Field */

/**
 * A slider with its value beside it.
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
  for (const end of ["change", "pointerup", "keyup", "blur"]) input.addEventListener(end, () => (dragging = false));
  bind(store, (state) => {
    show(box, field, state);
    const value = read(state);
    if (value === undefined) return;
    const now = range(state);
    symbol.textContent = now.symbol ?? "";
    label.textContent = now.label;
    hint.textContent = now.hint ?? "";
    for (const name of ["min", "max", "step"]) input[name] = now[name];
    if (Number(input.value) !== value) input.value = value;
    output.textContent = (now.text ?? say)(value);
    input.style.setProperty("--share", (Number(input.value) - now.min) / (now.max - now.min));
  });
  return box;
}

/** A number to type. @param {Field & {min?: number, max?: number, step?: number|string}} field */
export function number(store, field) {
  const { id, label, min, max, step = "any", read, write } = field;
  const input = el("input", { id, type: "number", min, max, step, inputmode: "decimal" });
  const box = el("label", { class: "field", title: field.hint }, el("span", {}, label), input);
  input.addEventListener("input", () => {
    if (input.value !== "" && input.checkValidity()) write(Number(input.value), { source: id });
  });
  input.addEventListener("blur", () => (input.value = read(store.get()) ?? ""));
  bind(store, (state) => {
    show(box, field, state);
    const value = read(state);
    if (document.activeElement !== input || Number(input.value) !== value) input.value = value ?? "";
  });
  return box;
}

/** A selection. @param {Field & {options: [string, string][]}} field */
export function choice(store, field) {
  const { id, label, options, read, write } = field;
  const select = el("select", { id }, ...options.map(([value, text]) => el("option", { value }, text)));
  const box = el("label", { class: "field", title: field.hint }, el("span", {}, label), select);
  select.addEventListener("change", () => write(select.value, { source: "" }));
  bind(store, (state) => {
    show(box, field, state);
    select.value = read(state) ?? "";
  });
  return box;
}

/** A checkbox. @param {Field} field */
export function check(store, field) {
  const { id, label, read, write } = field;
  const input = el("input", { id, type: "checkbox" });
  const box = el("label", { class: "check", title: field.hint }, input, el("span", {}, label));
  input.addEventListener("change", () => write(input.checked, { source: "" }));
  bind(store, (state) => {
    show(box, field, state);
    input.checked = read(state);
  });
  return box;
}

function show(box, { shown }, state) {
  if (shown) box.hidden = !shown(state);
}
