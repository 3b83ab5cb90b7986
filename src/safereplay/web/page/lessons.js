/**
 * The lessons: steps of a few words beside the boards. A step sets both boards, marks what it speaks of, shows the dials
 * that it names, and does the thing with one press. In lecture mode the type is large, and arrow keys go through the steps.
 *
 * A step has its own link, `?lesson=2.3`. Words between * are emphasised.
 */
import { Again, passes } from "./again.js";
import { get, RECORDED } from "./api.js";
import { dial } from "./dials.js";
import { byId, el } from "./dom.js";
import { refill } from "./fields.js";
import { worldDial } from "./world.js";

/** @typedef {{text: string, link: ?string, cells: ?Object<string, string[]>, at: ?string[], dials: ?string[],
 *  do: ?object, then: ?string}} Step
 *  link: sets the page; cells and at: what is marked; bars: a side whose replayed moves are marked; dials: shown in the step;
 *  do: {text, and one of link, one, play, walk, tab; speed, until}; then: the result of `do`; live: needs the server */

/** Fill the panel. */
export async function start(parts) {
  const all = await get("page/lessons.json");
  const here = ({ steps, ...lesson }) => ({ ...lesson, steps: steps.filter(({ live }) => !(live && RECORDED)) });
  const lessons = new Lessons(parts, all.map(here));
  lessons.begin();
  return lessons;
}

class Lessons {
  #parts;
  #lessons;
  #at = null; // [lesson, step]
  #asking = null; // the request in flight
  #again = new Again(() => this.#wanted && this.#set(...this.#wanted));
  #wanted = null; // a link that could not be read yet
  #reached = ""; // the link that was set last
  #speed = null; // the speed before a step changed it

  constructor(parts, lessons) {
    this.#parts = parts;
    this.#lessons = lessons;
    this.#fill(byId("lessons"));
    parts.store.onTravel((more) => this.#show(more));
    parts.store.subscribe((state, before, source) => source !== "lesson" && this.#mark());
    parts.answers.subscribe(() => this.#mark());
    byId("lecture").addEventListener("click", () => {
      this.lecture(!this.lecturing);
      byId("lecture").blur(); // keys go to the steps
    });
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Show the step that the address names. A link with a world of its own keeps it. */
  begin() {
    const asked = new URLSearchParams(location.search);
    const at = this.#parsed(asked.get("lesson"));
    if (asked.get("lecture") === "1") this.lecture(true);
    if (at) this.#enter(at, !asked.has("world"));
    else this.#write();
  }

  get lecturing() {
    return document.body.classList.contains("lecture");
  }

  /** Enter or leave lecture mode. */
  lecture(on) {
    document.body.classList.toggle("lecture", on);
    byId("lecture").setAttribute("aria-pressed", String(on));
    this.#parts.store.setMore({ lecture: on ? "1" : null });
    if (on) this.#parts.tabs.show("lessons");
    if (on && !this.#at) this.#enter([0, 0]);
    window.dispatchEvent(new Event("resize"));
  }

  /** Go some steps on or back, over the ends of lessons. */
  go(by) {
    const all = this.#lessons.flatMap(({ steps }, i) => steps.map((_, k) => [i, k]));
    const now = this.#at ? all.findIndex(([i, k]) => i === this.#at[0] && k === this.#at[1]) : -1;
    const next = all[now + by];
    if (next) this.#enter(next);
  }

  #enter(at, set = true) {
    if (this.#speed !== null) this.#parts.playing.setSpeed(this.#speed);
    this.#speed = null;
    this.#at = at;
    this.#parts.store.setMore({ lesson: `${at[0] + 1}.${at[1] + 1}` });
    this.#write();
    const steps = this.#lessons[at[0]].steps;
    const { link } = steps.slice(0, at[1] + 1).findLast((step) => step.link); // a step without a link keeps the last one
    if (set) this.#set(link, Boolean(steps[at[1]].link));
  }

  /** The step of `2.3`, or null. */
  #parsed(text) {
    const [lesson, step] = (text ?? "").split(".").map(Number);
    return this.#lessons[lesson - 1]?.steps[step - 1] ? [lesson - 1, step - 1] : null;
  }

  #show({ lesson, lecture }) {
    this.#at = this.#parsed(lesson);
    document.body.classList.toggle("lecture", Boolean(lecture));
    byId("lecture").setAttribute("aria-pressed", String(Boolean(lecture)));
    this.#write();
  }

  /** Set the boards; only the newest request counts. A link that cannot be read now is read later. */
  async #set(link, anew = true) {
    if (!anew && this.#reached === link) return;
    this.#asking?.abort();
    const asking = (this.#asking = new AbortController());
    this.#wanted = null;
    try {
      const state = await get("/api/state", link, { signal: asking.signal });
      if (asking !== this.#asking) return;
      this.#reached = link;
      this.#parts.store.set(state, { source: "lesson" });
      this.#again.after(false);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.#wanted = [link, anew];
      this.#again.after(passes(error));
      this.#parts.notice(error.detail ?? String(error), "problem");
    }
  }

  #fill(panel) {
    this.numbers = this.#lessons.map(({ title }, i) =>
      button({ class: "lesson-number", "aria-label": `Lesson ${i + 1}: ${title}`, title }, () => this.#enter([i, 0]), i + 1));
    this.text = el("div", { id: "lesson-text", "aria-live": "polite" });
    this.dials = el("div", { id: "lesson-dials", class: "dials" });
    this.previous = button({ id: "lesson-prev" }, () => this.go(-1), "← Back");
    this.next = button({ id: "lesson-next", class: "primary" }, () => this.go(1), "");
    const numbers = el("div", { class: "lesson-numbers", role: "group", "aria-label": "Lessons" }, ...this.numbers);
    this.dots = el("div", { class: "dots", role: "group", "aria-label": "Steps of this lesson" });
    panel.append(numbers, this.text, this.dials, el("div", { class: "lesson-bar" }, this.previous, this.dots, this.next));
  }

  #write() {
    const [i, k] = this.#at ?? [-1, -1];
    this.numbers.forEach((number, n) => {
      if (n === i) number.setAttribute("aria-current", "step");
      else number.removeAttribute("aria-current");
    });
    const last = this.#lessons.length - 1;
    this.previous.disabled = i < 0 || (i === 0 && k === 0);
    this.next.disabled = i === last && k === this.#lessons[last].steps.length - 1;
    const ends = i >= 0 && k === this.#lessons[i].steps.length - 1;
    this.next.textContent = i < 0 ? "Begin →" : !ends ? "Next →" : i < last ? `Lesson ${i + 2} →` : "The end";
    this.text.replaceChildren(...(i < 0 ? this.#welcome() : this.#step(i, k)));
    this.dots.replaceChildren(...(i < 0 ? [] : this.#steps(i, k)));
    const { store, answers } = this.#parts;
    const named = (i < 0 ? null : this.#lessons[i].steps[k].dials) ?? [];
    refill(this.dials, ...named.map((name) => this.#dial(store, answers, name)));
    this.#mark();
  }

  #dial(store, answers, name) {
    const [, side, own] = /^(left|right)-(.*)$/.exec(name) ?? [];
    return side ? dial(store, answers, side, own, `lesson-${name}`) : worldDial(store, name, `lesson-${name}`);
  }

  #welcome() {
    const items = this.#lessons.map(({ title }, i) => el("li", {}, button({ class: "link" }, () => this.#enter([i, 0]), title)));
    return [
      el("p", { class: "lead" },
        "Two agents learn the same world. The right one also ", el("em", {}, "replays"), " what it remembers, bad surprises most. Press ",
        el("b", {}, "Play"), ", and see which way each one comes to go."),
      el("h2", {}, "Lessons"),
      el("ol", { class: "lesson-list" }, ...items),
    ];
  }

  #step(i, k) {
    const { title, steps } = this.#lessons[i];
    const step = steps[k];
    const after = el("p", { class: "then", hidden: true, "aria-live": "polite" }, ...stressed(step.then ?? ""));
    const act = () => {
      if (step.then) after.hidden = false;
      this.#act(step.do);
    };
    return [
      el("h2", {}, `${i + 1}. ${title}`),
      el("p", { class: "lesson-words" }, ...stressed(step.text)),
      step.do ? button({ id: "lesson-do", class: "accent" }, act, step.do.text) : null,
      after,
    ].filter(Boolean);
  }

  /** One button per step of a lesson. */
  #steps(i, k) {
    return this.#lessons[i].steps.map((_, n, { length }) => button({
      class: "dot", "aria-label": `Step ${n + 1} of ${length}`, "aria-current": n === k && "step",
    }, () => this.#enter([i, n]), ""));
  }

  /** Do what a step offers. */
  async #act({ link, one, play, walk, tab, speed, until }) {
    const { playing, tabs } = this.#parts;
    if (link) await this.#set(link);
    if (speed !== undefined) {
      this.#speed ??= playing.speed;
      playing.setSpeed(speed);
    }
    if (until !== undefined) playing.setUntil(until);
    if (walk) playing.walk(true);
    if (one) playing.one();
    if (play) {
      playing.reset();
      playing.run();
    }
    if (tab) tabs.show(tab);
  }

  /** Mark what the step speaks of. */
  #mark() {
    const [i, k] = this.#at ?? [];
    const step = this.#at ? this.#lessons[i].steps[k] : {};
    const { boards, answers } = this.#parts;
    for (const [side, board] of Object.entries(boards)) {
      const design = step.bars === side ? (answers.get(side)?.design?.replays ?? []) : [];
      const replayed = design.map(({ state }) => String(answers.get(side).cells[state]));
      board.point([...(step.cells?.[side] ?? []), ...replayed]);
    }
    document.querySelectorAll(".spoken-of").forEach((node) => node.classList.remove("spoken-of"));
    for (const id of step.at ?? []) (byId(id).closest(".number") ?? byId(id)).classList.add("spoken-of");
  }

  /** In lecture mode, arrow keys and those of a presenter go through the steps. */
  #key(event) {
    if (!this.lecturing || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.key === "Escape") return this.lecture(false);
    if (event.target.closest?.("input, select, [role=gridcell], [role=tab]")) return;
    const by = { ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1 }[event.key];
    if (!by || (event.key === " " && event.target.closest?.("button, summary, a"))) return;
    event.preventDefault();
    this.go(by);
  }
}

const button = (attributes, onclick, text) => el("button", { type: "button", ...attributes, onclick }, text);

/** Text in which words between * are emphasised. */
function stressed(text) {
  const kept = text.replace(/(\d) %/g, "$1\u00a0%"); // a non-breaking space
  return kept.split("*").map((part, i) => (i % 2 ? el("em", {}, part) : part));
}
