/**
 * Helpers for elements and numbers.
 */

/** An HTML element: `el("p", {class: "hint"}, "text", child)`; a property that begins with "on" is a listener. */
export function el(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** The same for an element of an SVG picture. */
export function svg(tag, attributes = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** Set an attribute only if it changes: browsers repeat their work even for the same value. */
export function put(node, name, value) {
  const text = String(value);
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

const LARGE = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** A number as text: three figures, a real minus sign, "–" if there is none, 8.1M for 8100000. */
export function say(x, digits = 3) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (Math.abs(x) >= 1e5) return LARGE.format(x).replace("-", "−");
  const text = Math.abs(x) >= 10 ** digits ? x.toFixed(0) : String(Number(x.toPrecision(digits)));
  return text.replaceAll("-", "−");
}

/** A share as a percentage: 0.0123 is "1.23 %"; a tiny share is not rounded to 0. */
export function percent(x) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (x > 0 && x < 0.00005) return "<0.01\u00a0%";
  return `${say(100 * Number(x.toFixed(6)))}\u00a0%`; // a non-breaking space
}

/** A difference with its sign: "+1.2", "−3", "±0". */
export function difference(x, text = say) {
  if (x === null || !Number.isFinite(x)) return "";
  if (Math.abs(x) < 1e-6) return "±0"; // smaller differences are rounding errors
  return x > 0 ? `+${text(x)}` : `−${text(-x)}`;
}

/** A cell "r,c" as [r, c]. */
export const place = (cell) => cell.split(",").map(Number);
