/**
 * Tuning: the gentlest replay under a limit on risk, and the frontier of risk and return.
 */
import { get } from "./api.js";
import { byId, el } from "./dom.js";
import { join, learnerText, worldQuery } from "./link.js";
import { Chart } from "./plot.js";
import { answerText, choices, frontierPicture, frontierWords, pointButton } from "./tune-view.js";

const HINT = "Press a point, here or in the picture, to set the right pane to it." +
  " Tuning works with matched mixing, and sets it.";

/** Set up the tuning panel. */
export function start(parts) {
  new Tuning(parts);
}

class Tuning {
  #store;
  #notice;
  #asking = null; // the request in flight
  #found = null; // its answer

  constructor({ store, notice }) {
    this.#store = store;
    this.#notice = notice;
    this.#fill(byId("tune"));
    this.chart = new Chart(this.frontier, (point) => point && this.use(point));
    store.subscribe((state, before) => this.#follow(state, before));
    this.#showLimit();
    this.#show();
  }

  /** Request the gentlest replay, or stop the request. */
  go() {
    if (this.#asking) return this.stop();
    this.#found = null;
    this.#ask(new AbortController());
  }

  /** Stop: the server cancels the work when the request is closed. */
  stop(words = "Stopped.") {
    this.#asking?.abort();
    this.#asking = null;
    this.#show(words);
  }

  /** Set the right pane to a point of the frontier. */
  use(point) {
    this.#store.set({ right: this.#at(point.v, point.beta ?? 0) }, { source: "tune" });
    this.#mark();
  }

  async #ask(asking) {
    this.#asking = asking;
    this.#show("Searching; this may take up to a minute…");
    const { world, limit, epsilon } = this.#store.get();
    const learner = learnerText({ ...this.#learner(), mixing: "matched" });
    const params = join(worldQuery(world, this.#store.presets), { learner, epsilon, limit });
    try {
      const found = await get("/api/tune", params, { signal: asking.signal });
      if (this.#asking !== asking) return;
      this.#asking = null;
      this.#found = { ...found, limit };
      this.#show(answerText(this.#found));
    } catch (error) {
      if (this.#asking !== asking) return; // stopped, or replaced by another request
      this.stop("");
      this.#notice(error.detail ?? String(error), "problem");
    }
  }

  get #usual() {
    return this.#store.learners.replay.defaults;
  }

  /** The replay to tune: the right pane's, if it is one. */
  #learner() {
    const { right } = this.#store.get();
    return right.kind === "replay" ? right : { kind: "replay", ...this.#usual };
  }

  /** The learner of a point of the frontier: tuning uses matched mixing only. */
  #at(v, beta) {
    return { kind: "replay", scheme: this.#learner().scheme, v, beta, mixing: "matched" };
  }

  #show(words = "") {
    this.button.textContent = this.#asking ? "■ Stop" : "Find the gentlest replay";
    this.bar.hidden = !this.#asking;
    this.status.textContent = words;
    const found = this.#found;
    this.results.hidden = !found;
    if (!found) return;
    this.table.replaceChildren(...choices(found).map((point) => pointButton(point, () => this.use(point))));
    this.details.replaceChildren(...found.summary.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
    this.chart.draw((colours) => frontierPicture(found, colours), frontierWords(found));
    this.#mark();
  }

  /** Mark the point that the right pane has now. */
  #mark() {
    const { right } = this.#store.get();
    for (const button of this.table.querySelectorAll("button")) {
      const point = this.#at(Number(button.dataset.v), Number(button.dataset.beta));
      const chosen = Object.entries(point).every(([name, value]) => right[name] === value);
      button.setAttribute("aria-pressed", String(chosen));
    }
  }

  /** What an answer depends on: world, scheme and exploration, but not the limit. */
  #follow(state, before) {
    if (state.limit !== before.limit) this.#showLimit();
    const other = state.world !== before.world || state.epsilon !== before.epsilon;
    const scheme = (one) => (one.right.kind === "replay" ? one.right.scheme : this.#usual.scheme);
    if (other || scheme(state) !== scheme(before)) {
      if (!this.#asking && !this.#found) return;
      this.#found = null;
      this.stop("");
    } else if (this.#found) this.#mark();
  }

  #showLimit() {
    this.limit.value = Number((100 * this.#store.get().limit).toPrecision(6));
  }

  #setLimit() {
    const share = Number(this.limit.value) / 100;
    if (this.limit.value !== "" && share >= 0 && share <= 1) this.#store.set({ limit: share }, { source: "limit" });
    else this.#showLimit();
  }

  #fill(panel) {
    const changed = () => this.#setLimit();
    this.limit = el("input", { id: "limit", type: "number", min: 0, max: 100, step: "any", onchange: changed });
    this.button = el("button", { id: "tune-go", type: "button", class: "primary", onclick: () => this.go() });
    this.bar = el("progress", { id: "tune-progress", "aria-label": "Searching for a replay" });
    this.status = el("p", { id: "tune-status", class: "status", "aria-live": "polite" });
    this.frontier = el("div", { id: "frontier", class: "chart tall" });
    this.table = el("ul", { id: "tune-table", class: "points", "aria-label": "Replays to choose from" });
    this.details = el("dl", { class: "facts" });
    const hint = el("p", { class: "hint" }, HINT);
    const all = el("details", { class: "group" }, el("summary", {}, "How sure is this?"), this.details);
    this.results = el("div", { class: "results" }, this.frontier, el("div", {}, hint, this.table, all));
    const field = el("label", { class: "field" }, el("span", {}, "Unsafe episodes, at most (%)"), this.limit);
    panel.append(el("div", { class: "panel-bar" }, field, this.button), this.bar, this.status, this.results);
  }
}
