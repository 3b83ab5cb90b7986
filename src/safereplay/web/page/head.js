/**
 * The head of the page: undo and redo, light and dark, the keys, and the notice.
 */
import { byId, el, svg } from "./dom.js";

const ICONS = {
  undo: "M9 7 4 12l5 5M4.5 12H14a6 6 0 0 1 6 6v1",
  redo: "m15 7 5 5-5 5M19.5 12H10a6 6 0 0 0-6 6v1",
  theme: "M12 3a9 9 0 1 0 9 9 7 7 0 0 1-9-9Z",
  keys: "M3 7h18v11H3zM7 11h.01M12 11h.01M17 11h.01M8 15h8",
  lecture: "M3 4h18v12H3zM12 16v4M8 20h8",
};
const KEYS = [
  ["Arrow keys", "move from cell to cell"],
  [".  or  Delete", "make the cell free"],
  ["#  or  w", "wall"],
  ["s", "start"],
  ["g", "goal"],
  ["x", "hazard"],
  ["^  >  v  <", "a volatile move that way; Shift and an arrow key does the same"],
  ["Enter  or  Space", "draw with the chosen tool"],
  ["Ctrl + Z,  Ctrl + Y", "undo, redo"],
  ["←  →  Space", "the previous or next step of a lesson, in lecture mode; Escape leaves it"],
  ["?", "these keys"],
];

const THEME = "safereplay-theme";
const READ_MS = 6000; // a notice that needs no action disappears

let kindShown = "";
let timer = 0;

/**
 * Show a notice; "" removes the notice of that kind. Screen readers announce a "problem" at once.
 * @param {string} text @param {string} kind
 */
export function notice(text, kind = "info") {
  const line = byId("notice");
  if (!text && kind !== kindShown) return;
  kindShown = text ? kind : "";
  line.hidden = !text;
  line.dataset.kind = kind;
  const urgent = kind === "problem" || kind === "link";
  line.setAttribute("role", urgent ? "alert" : "status");
  const place = line.querySelector("span");
  if (place.textContent !== text) place.textContent = text;
  clearTimeout(timer);
  if (text && !urgent) timer = setTimeout(() => notice("", kind), READ_MS);
}

/** Set up the head. */
export function startHead(store) {
  for (const [id, d] of Object.entries(ICONS)) {
    byId(id).append(svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, svg("path", { d })));
  }
  byId("notice").querySelector("button").addEventListener("click", () => notice("", kindShown));
  startHistory(store);
  startTheme();
  startHelp();
  startMenu();
}

function startHistory(store) {
  const follow = () => {
    byId("undo").disabled = !store.canUndo();
    byId("redo").disabled = !store.canRedo();
  };
  byId("undo").addEventListener("click", () => store.undo());
  byId("redo").addEventListener("click", () => store.redo());
  store.subscribe(follow);
  follow();
  document.addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.target.closest?.("input[type=number], input[type=text]")) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) store.redo();
    else store.undo();
  });
}

/** Light or dark: the system's choice until the user changes it, which is remembered. Canvas code listens to "themechange". */
function startTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const changed = () => {
    byId("theme").setAttribute("aria-pressed", isDark());
    document.dispatchEvent(new CustomEvent("themechange", { detail: isDark() ? "dark" : "light" }));
  };
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    localStorage.setItem(THEME, root.dataset.theme);
    changed();
  });
  system.addEventListener("change", changed);
  const kept = localStorage.getItem(THEME);
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  changed();
}

/** The menu closes with Escape, or when something else is pressed. */
function startMenu() {
  const menu = byId("share");
  document.addEventListener("click", ({ target }) => !menu.contains(target) && (menu.open = false));
  menu.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
}

function startHelp() {
  const dialog = byId("help");
  dialog.append(
    el("h2", { id: "help-title" }, "Keys"),
    el("dl", { class: "keys" }, ...KEYS.flatMap(([keys, what]) => [el("dt", {}, keys), el("dd", {}, what)])),
    el("form", { method: "dialog" }, el("button", { class: "primary" }, "Close")));
  byId("keys").addEventListener("click", () => dialog.showModal());
  document.addEventListener("keydown", (event) => {
    if (event.key !== "?" || event.target.closest?.("input[type=number], input[type=text]")) return;
    event.preventDefault();
    if (!dialog.open) dialog.showModal();
  });
}
