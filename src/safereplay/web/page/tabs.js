/**
 * The tabs of the side panel: one part is shown at a time.
 */
import { byId, el } from "./dom.js";

/** Make the tabs, except those that are `missing`. @returns {{show: function(string): void, reveal: function(Element): void}} */
export function startTabs(missing = []) {
  for (const id of missing) byId(id).dataset.tab = "";
  const panels = [...document.querySelectorAll("#side > .panel:not([data-tab=''])")];
  const tabs = panels.map((panel) => {
    panel.setAttribute("role", "tabpanel");
    panel.tabIndex = 0; // so that keys can scroll it
    panel.setAttribute("aria-labelledby", `tab-${panel.id}`);
    const attributes = { id: `tab-${panel.id}`, type: "button", role: "tab", "aria-controls": panel.id };
    return el("button", { ...attributes, onclick: () => show(panel.id) }, panel.dataset.tab);
  });
  byId("tabs").append(...tabs);

  function show(id) {
    panels.forEach((panel, i) => {
      panel.hidden = panel.id !== id;
      tabs[i].setAttribute("aria-selected", String(panel.id === id));
      tabs[i].tabIndex = panel.id === id ? 0 : -1;
    });
    document.body.dataset.tab = id;
    window.dispatchEvent(new Event("resize")); // charts measure their room when it is there
  }

  byId("tabs").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = tabs.at((tabs.indexOf(document.activeElement) + by) % tabs.length);
    next.focus();
    next.click();
  });
  show("lessons");
  /** Show the tab that an element is in. */
  const reveal = (node) => {
    const panel = node?.closest(".panel");
    if (panel) show(panel.id);
  };
  return { show, reveal };
}
