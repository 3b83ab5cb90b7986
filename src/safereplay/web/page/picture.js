/**
 * Both boards as one self-contained picture: all styles are inlined.
 */
import { percent, say, svg } from "./dom.js";
import { wayText } from "./panes.js";

const NEEDED = [
  "fill", "fill-opacity", "fill-rule", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray",
  "stroke-linecap", "stroke-linejoin", "opacity", "font-size", "font-weight", "text-anchor", "dominant-baseline",
  "paint-order", "visibility",
];
const PASSED_ON = new Set(NEEDED.filter((name) => name !== "opacity" && name !== "dominant-baseline"));
const MEANT = [
  "d", "points", "x", "y", "cx", "cy", "r", "rx", "ry", "width", "height", "transform", "id",
  "patternUnits", "patternTransform",
];
const FONT = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";
const [WIDTH, GAP, MARGIN, HEAD, FOOT] = [560, 32, 28, 92, 30]; // of a board, in the picture's units

/**
 * The picture of both boards with their titles and numbers.
 * @param {{title: string, boards: {svg: SVGElement, answer: object, frame: ?object}[], colours: object}} what
 *  frame: of learning, if the board shows one; colours: text, muted, card
 * @returns {SVGSVGElement}
 */
export function picture({ title, boards, colours }) {
  const views = boards.map(({ svg: board }) => board.viewBox.baseVal);
  const heights = views.map(({ width, height }) => (WIDTH * height) / width);
  const size = [2 * MARGIN + boards.length * (WIDTH + GAP) - GAP, MARGIN + HEAD + Math.max(...heights) + FOOT];
  const root = svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${size.join(" ")}`, width: size[0] });
  root.setAttribute("height", size[1]);
  root.setAttribute("font-family", FONT);
  root.append(svg("title", {}, title), svg("rect", { width: size[0], height: size[1], fill: colours.card }));
  boards.forEach(({ svg: board, answer, frame }, i) => {
    const left = MARGIN + i * (WIDTH + GAP);
    const { x, y, width } = views[i];
    const place = `translate(${left} ${MARGIN + HEAD}) scale(${WIDTH / width}) translate(${-x} ${-y})`;
    root.append(...words(answer, frame, left, colours), svg("g", { transform: place }, ...copies(board)));
  });
  root.append(text(`${title}, drawn by safereplay`, MARGIN, size[1] - 10, 13, colours.muted));
  return root;
}

/** A picture as the text of a file. */
export function asText(root) {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(root)}\n`;
}

/** A picture as a PNG, `scale` times as large. @returns {Promise<Blob>} */
export async function asPng(root, scale = 2) {
  const url = URL.createObjectURL(new Blob([asText(root)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = ["width", "height"].map((side) => Math.round(scale * root.getAttribute(side)));
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

/** A learner and its numbers: of its exact limit, or of the run if the board shows one. */
function words({ label, way: limit, risk: exact }, frame, left, { text: ink, muted }) {
  const { risk, way } = frame ? { risk: frame.risk, ...frame.seeds[0] } : { risk: exact, way: limit };
  const when = frame ? ` · after ${frame.t.toLocaleString("en-GB")} iterations` : "";
  const numbers = `${way ? `${wayText(way)} · ` : ""}unsafe ${percent(risk.p_unsafe)} · mean ${say(risk.mean)}${when}`;
  return [text(label, left, MARGIN + 30, 26, ink, 600), text(numbers, left, MARGIN + 64, 20, muted)];
}

function text(content, x, y, size, fill, weight = 400) {
  return svg("text", { x, y, "font-size": size, "font-weight": weight, fill }, content);
}

/** The children of a board with inlined styles. */
function copies(board) {
  return [...board.children].map((child) => copy(child, null)).filter(Boolean);
}

/** A copy of an element with its current style; invisible parts are left out. */
function copy(node, outer) {
  const style = getComputedStyle(node);
  if (style.display === "none" && !node.closest("defs")) return null;
  const twin = svg(node.localName);
  for (const name of MEANT) if (node.hasAttribute(name)) twin.setAttribute(name, node.getAttribute(name));
  const turned = node.style.transform;
  if (turned && !twin.hasAttribute("transform")) twin.setAttribute("transform", plain(turned));
  for (const name of NEEDED) {
    const value = style.getPropertyValue(name);
    const known = outer && PASSED_ON.has(name) ? outer.getPropertyValue(name) : initial(name);
    if (value && value !== known) twin.setAttribute(name, value.replace(/^url\("?([^")]*)"?\)$/, "url($1)"));
  }
  for (const child of node.childNodes) {
    const part = child.nodeType === Node.TEXT_NODE ? child.cloneNode() : copy(child, style);
    if (part) twin.append(part);
  }
  return twin;
}

/** Default values of styles. */
function initial(name) {
  return { opacity: "1", "dominant-baseline": "auto" }[name];
}

/** A CSS transform as an attribute writes it: numbers without units. */
function plain(transform) {
  return transform.replace(/(px|deg)/g, "");
}
