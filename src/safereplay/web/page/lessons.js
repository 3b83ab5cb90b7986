/**
 * Seven short lessons under the boards; each sets the whole page.
 */
import { get } from "./api.js";
import { byId, el } from "./dom.js";
import { LESSONS } from "./lessons-text.js";

const WELCOME = "Each lesson sets both boards and says what to look at. Undo restores what you had.";

/** Fill the panel. */
export function start(parts) {
  new Lessons(parts);
}

class Lessons {
  #store;
  #notice;
  #at = -1;
  #asking = null; // the request in flight

  constructor({ store, notice }) {
    this.#store = store;
    this.#notice = notice;
    this.#fill(byId("lessons"));
    this.#write();
  }

  /** Go to a lesson, and set the page for it. @param {number} at 0 to 6 */
  async go(at) {
    this.#at = at;
    this.#write();
    await this.#set(LESSONS[at].link);
  }

  /** Set the boards; only the newest request counts. */
  async #set(link) {
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    try {
      const state = await get("/api/state", link, { signal: asking.signal });
      if (asking === this.#asking) this.#store.set(state, { source: `lesson ${link}` });
    } catch (error) {
      if (error.name !== "AbortError") this.#notice(error.detail ?? String(error), "problem");
    }
  }

  #fill(panel) {
    this.steps = LESSONS.map(({ title }, i) =>
      button({ class: "lesson-step", "aria-label": `Lesson ${i + 1}: ${title}`, title }, () => this.go(i), i + 1),
    );
    this.text = el("div", { id: "lesson-text", "aria-live": "polite" });
    this.previous = button({ id: "lesson-prev" }, () => this.go(this.#at - 1), "← Back");
    this.next = button({ id: "lesson-next", class: "primary" }, () => this.go(this.#at + 1), "");
    const numbers = el("div", { class: "lesson-numbers", role: "group", "aria-label": "Lessons" }, ...this.steps);
    panel.append(numbers, this.text, el("div", { class: "panel-bar" }, this.previous, this.next));
  }

  #write() {
    const lesson = LESSONS[this.#at];
    this.steps.forEach((step, i) => {
      if (i === this.#at) step.setAttribute("aria-current", "step");
      else step.removeAttribute("aria-current");
    });
    this.previous.disabled = this.#at <= 0;
    this.next.disabled = this.#at === LESSONS.length - 1;
    this.next.textContent = lesson ? "Next →" : "Begin →";
    this.text.replaceChildren(...(lesson ? [...this.#lesson(lesson)] : [el("p", {}, WELCOME), contents()]));
  }

  *#lesson({ title, text, task, show, then }) {
    yield el("h3", {}, `${this.#at + 1}. ${title}`);
    for (const part of text) yield paragraph(part);
    const after = el("p", { class: "then", hidden: true, "aria-live": "polite" }, ...stressed(then));
    const reveal = async () => {
      after.hidden = false;
      await this.#set(show);
    };
    const shower = show ? button({ id: "lesson-show" }, reveal, "Show me") : null;
    yield el("div", { class: "task" }, el("p", {}, el("b", {}, "Try: "), ...stressed(task)), shower, after);
  }
}

function contents() {
  return el("ol", { class: "lesson-list" }, ...LESSONS.map(({ title }) => el("li", {}, title)));
}

const button = (attributes, onclick, text) => el("button", { type: "button", ...attributes, onclick }, text);

const paragraph = (text) => el("p", {}, ...stressed(text));

/** Text in which words between * are emphasised. */
function stressed(text) {
  const kept = text.replace(/(\d) %/g, "$1\u00a0%"); // a non-breaking space
  return kept.split("*").map((part, i) => (i % 2 ? el("em", {}, part) : part));
}
