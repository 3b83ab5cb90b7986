/**
 * Sharing and exports: the link, a script that does the same, the map, and the picture.
 */
import { SIDES } from "./answers.js";
import { getFile, RECORDED } from "./api.js";
import { byId, el } from "./dom.js";
import { learned } from "./play.js";
import { query, worldQuery } from "./link.js";
import { asPng, asText, picture } from "./picture.js";
import { colours } from "./plot.js";

/** Fill the share menu. */
export function start({ store, answers, boards, notice }) {
  const link = () => query(store.get(), store.presets);
  const map = () => worldQuery(store.get().world, store.presets);
  const drawing = () => draw(store, answers, boards);
  const name = (ending) => `safereplay-${store.get().world.name}.${ending}`;
  const jobs = [
    ["copy-link", "Copy link", "Copy a link to this state, and to the step of a lesson", () => copyLink(address(store))],
    ...(RECORDED ? [] : [
      ["export-script", "Script", "Download a Python script that does the same", () => fetched("/api/script", link())],
      ["export-map", "Map", "Download the world as a map file", () => fetched("/api/map", map())],
    ]),
    ["export-svg", "SVG", "Download both boards as an SVG picture", () => saveSvg(drawing(), name("svg"))],
    ["export-png", "PNG", "Download both boards as a PNG picture", () => savePng(drawing(), name("png"))],
  ];
  const buttons = jobs.map(([id, text, title, job]) => {
    const work = async () => {
      try {
        notice(await job(), "done");
      } catch (error) {
        notice(error.detail ?? error.message, "problem");
      }
    };
    return el("button", { id, type: "button", title, onclick: work }, el("b", {}, text), el("small", {}, title));
  });
  byId("share").querySelector("div").append(...buttons);
}

const address = (store) => `${location.origin}${location.pathname}?${store.link}`;

/** Copy text to the clipboard; with the old API if the new one is refused. */
async function copyLink(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.body.appendChild(el("textarea", { class: "unseen", "aria-hidden": "true" }));
    area.value = text;
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) throw new Error(`The browser does not allow copying; the address is ${text}`);
  }
  return RECORDED ? "The link is on the clipboard."
    : "The link is on the clipboard; it works while the playground runs at this address.";
}

/** Save a file from the server; return its refusal as a sentence. */
async function fetched(path, params) {
  const response = await getFile(path, params);
  const named = /filename="?([^";]+)"?/.exec(response.headers.get("content-disposition") ?? "");
  return save(await response.blob(), named?.[1] ?? path.split("/").at(-1));
}

function draw(store, answers, boards) {
  const shown = SIDES.map((side) => ({ svg: boards[side].svg, frame: learned[side], answer: answers.get(side) }));
  const problem = SIDES.map((side) => answers.problem(side)).find(Boolean);
  if (problem) throw new Error(problem);
  if (shown.some(({ answer }) => !answer)) throw new Error("There is no picture yet.");
  const { name } = store.get().world;
  const title = store.presets.find((preset) => preset.name === name)?.title ?? name;
  return picture({ title, boards: shown, colours: colours() });
}

const saveSvg = (root, name) => save(new Blob([asText(root)], { type: "image/svg+xml" }), name);

const savePng = async (root, name) => save(await asPng(root), name);

/** Download a file. */
function save(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  return `Saved ${name}.`;
}
