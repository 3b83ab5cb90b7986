/**
 * Charts with plotly, which is loaded with the first chart: the page does not wait for it.
 *
 * A chart is drawn after the boards are painted, and only in its newest version: a slider never waits for it.
 */
import { byId, el } from "./dom.js";

const CONFIG = { displayModeBar: false, responsive: true, showTips: false };
const COLOURS = { text: "--text", muted: "--muted", line: "--line", left: "--left", right: "--right", card: "--card" };
const REST_MS = 100; // between two drawings of a chart, to leave time for the boards

let loading = null;
const charts = new Set();

/** Plotly itself, from this server. @returns {Promise<object>} */
function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const failed = () => reject(new Error("the charts could not be loaded"));
    document.head.append(el("script", { src: "plotly.js", onload: () => resolve(window.Plotly), onerror: failed }));
  });
  return loading;
}

/** The page's current colours as plain CSS colours, computed by the browser. */
export function colours() {
  const probe = document.body.appendChild(el("span", { hidden: true }));
  const found = {};
  for (const [name, variable] of Object.entries(COLOURS)) {
    probe.style.color = `var(${variable})`;
    found[name] = getComputedStyle(probe).color;
  }
  probe.remove();
  return found;
}

/** A chart in a node of the page. */
export class Chart {
  #node;
  #make = null;
  #pressed;
  #visible = false;
  #due = false;
  #waits = false; // for its tab to be shown
  #clicks = false;
  #last = -Infinity;

  /** @param {HTMLElement} node @param {function(any): void} pressed called with the `customdata` of a point */
  constructor(node, pressed = null) {
    this.#node = node;
    this.#pressed = pressed;
    node.setAttribute("role", "img");
    charts.add(this);
    new IntersectionObserver(([entry]) => {
      this.#visible = entry.isIntersecting;
      if (this.#visible && this.#waits) this.again();
    }).observe(node);
  }

  /**
  * Draw as soon as possible.
   * @param {function(object): {traces: object[], layout: object}} make the picture, in the colours it is given
  * @param {string} words a description for screen readers
   */
  draw(make, words) {
    this.#make = make;
    this.#node.setAttribute("aria-label", words);
    this.again();
  }

  /** Draw again after a change of colours or size. */
  again() {
    if (this.#due || !this.#make) return;
    this.#waits = !this.#visible;
    if (this.#waits) return; // it has no size yet
    this.#due = true;
    const rest = Math.max(0, this.#last + REST_MS - performance.now());
    requestAnimationFrame(() => setTimeout(() => this.#now(), rest)); // after the boards are on the screen
  }

  async #now() {
    const library = window.Plotly ?? (await plotly().catch((error) => this.#fail(error)));
    this.#due = false;
    this.#waits = !this.#node.checkVisibility(); // its tab was left meanwhile
    if (!library || this.#waits) return;
    const scheme = colours();
    const { traces, layout } = this.#make(scheme);
    const began = performance.now();
    library.react(this.#node, traces, themed(layout, scheme), CONFIG);
    byId("js-plotly-tester")?.setAttribute("aria-hidden", "true"); // plotly measures text with it
    this.#last = performance.now();
    this.#node.dataset.ms = (this.#last - began).toFixed(1);
    this.#node.dataset.drawn = Number(this.#node.dataset.drawn ?? 0) + 1;
    if (this.#pressed && !this.#clicks) {
      this.#clicks = true;
      this.#node.on("plotly_click", ({ points }) => this.#pressed(points[0].customdata));
    }
  }

  #fail(error) {
    this.#node.textContent = `No chart: ${error.message}.`;
  }
}

/** A layout in the page's colours; an axis is `{title, ...}`. */
function themed({ xaxis, yaxis, ...rest }, { text, muted, line, card }) {
  const axis = ({ title, ...own }) => ({
    title: { text: title, standoff: 8, font: { size: 12, color: muted } },
    color: muted,
    gridcolor: line,
    zerolinecolor: line,
    tickfont: { size: 11, color: muted },
    fixedrange: true,
    ...own,
  });
  return {
    autosize: true,
    margin: { l: 44, r: 12, t: 28, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: text },
    hoverlabel: { bgcolor: card, bordercolor: muted, font: { color: text, size: 12 } },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
    dragmode: false,
    ...rest,
    xaxis: axis(xaxis),
    yaxis: axis(yaxis),
  };
}

function redrawAll() {
  for (const chart of charts) chart.again();
}

new MutationObserver(redrawAll).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
