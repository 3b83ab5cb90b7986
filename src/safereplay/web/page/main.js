/**
 * Starts the page: reads the state from the address, then sets up all parts.
 */
import { Answers, SIDES } from "./answers.js";
import { get, RECORDED } from "./api.js";
import { makeBoards, startBoards } from "./boards.js";
import * as charts from "./charts.js";
import { startDetail } from "./detail.js";
import { startDials } from "./dials.js";
import { byId } from "./dom.js";
import { startEditor } from "./editor.js";
import * as exports from "./exports.js";
import { startFields } from "./fields.js";
import { notice, startHead } from "./head.js";
import * as lessons from "./lessons.js";
import { makePanes, startNumbers } from "./panes.js";
import * as play from "./play.js";
import { store } from "./state.js";
import { startTabs } from "./tabs.js";
import * as tune from "./tune.js";
import { startWorld } from "./world.js";

/** The state of the address, or the default one and a sentence about the error in the address. */
async function firstState() {
  try {
    return [await get("/api/state", location.search.slice(1)), ""];
  } catch (error) {
    return [await get("/api/state"), `This link cannot be read: ${error.detail}`];
  }
}

async function start() {
  const asked = [get("/api/presets"), get("/api/learners"), firstState()];
  const [presets, learners, [state, problem]] = await Promise.all(asked);
  store.begin(state, presets, learners);
  const answers = new Answers(store);
  const boards = makeBoards();
  const tabs = startTabs(RECORDED ? ["tune"] : []);
  window.safereplay = { store, answers, boards, tabs, get state() { return store.get(); } };
  document.body.classList.toggle("recorded", RECORDED);

  store.subscribe(() => answers.refresh()); // first, so that the server works in parallel
  makePanes(boards);
  startFields(store, answers);
  startDials(store, answers);
  startWorld(store);
  startBoards(store, answers, boards);
  startNumbers(answers, boards);
  startDetail(store, answers, boards);
  if (!RECORDED) startEditor(store, boards);
  startHead(store);
  answers.subscribe(() => notice(SIDES.map((side) => answers.problem(side)).find(Boolean) ?? "", "problem"));
  if (problem) notice(problem, "link");
  answers.refresh();
  const playing = play.start({ store, answers, boards, notice });
  await lessons.start({ store, answers, boards, notice, playing, tabs });
  for (const panel of [charts, tune, exports]) panel.start({ store, answers, boards, notice });
  document.body.dataset.started = "1";
}

start().catch((error) => {
  notice(error.detail ?? String(error), "problem");
  byId("boards").classList.add("stale");
});
