/**
 * The colours of Q: orange below zero, blue above, pale at zero; safe for colour blindness, on light and on dark.
 *
 * Both boards share one scale, so that equal colours mean equal values.
 */

import { el } from "./dom.js";

const STEPS = 48; // shades on each side of zero

let ramp = null;

/** Clear the cached shades after a change of the theme. */
export function themeChanged() {
  ramp = null;
}

/** The largest |Q| of some tables, which gets the strongest colour; 1 if there is none. */
export function extent(tables) {
  let most = 0;
  for (const Q of tables) for (const row of Q) for (const q of row) if (Math.abs(q) > most) most = Math.abs(q);
  return most || 1;
}

/** A function from Q to a colour, for values up to ±`most`. */
export function scale(most) {
  ramp ??= shades();
  return (q) => {
    const share = Math.min(1, Math.abs(q) / most);
    return ramp[STEPS + Math.sign(q) * Math.round(share * STEPS)];
  };
}

/** The whole scale as a CSS gradient from −`most` to `most`. */
export function gradient() {
  const colour = scale(1);
  const stops = Array.from({ length: 21 }, (_, k) => colour(k / 10 - 1));
  return `linear-gradient(to right, ${stops.join(", ")})`;
}

function shades() {
  const [low, mid, high] = ["--q-low", "--q-mid", "--q-high"].map(channels);
  return Array.from({ length: 2 * STEPS + 1 }, (_, k) => {
    const t = k / STEPS - 1;
    return mix(mid, t < 0 ? low : high, Math.abs(t));
  });
}

/** The channels of a colour of the theme, computed by the browser. */
function channels(name) {
  const probe = document.body.appendChild(el("span", { hidden: true }));
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  probe.remove();
  return found;
}

/** Interpolate two colours in linear light, so that the middle is not too dark. */
function mix(a, b, t) {
  const between = a.map((x, k) => Math.sqrt((1 - t) * x * x + t * b[k] * b[k]));
  return `rgb(${between.map(Math.round).join(" ")})`;
}
