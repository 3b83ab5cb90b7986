/**
 * The page without a server: answers and runs from files that `safereplay play --export` wrote.
 *
 * data/index.json has the presets, the catalog and the states of links; data/WORLD.json the model, the exact limits and
 * the runs of a world, by the learner's text. Dials have only the values that were recorded.
 */

export const MISSING = "This page has recorded answers only, and none for this. The program has all: pip install safereplay.";

const files = new Map();
const load = (name) => {
  if (!files.has(name)) files.set(name, fetch(`data/${name}.json`).then((response) => (response.ok ? response.json() : null)));
  return files.get(name);
};

/** The answer to a request, or undefined. */
export async function get(path, query) {
  const index = await load("index");
  if (path === "/api/presets") return index.presets;
  if (path === "/api/learners") return index.learners;
  if (path === "/api/state") return index.states[known(query, index)];
  const { world, learner } = parsed(query, index);
  const found = world && (await load(world));
  if (path === "/api/model") return found?.model;
  if (path === "/api/solve") return found?.solve[learner];
  return undefined;
}

/** A recorded run as a stream: frames from `since` on, at the wanted pace; see `stream` of api.js. */
export function stream(query, handlers) {
  const asked = Object.fromEntries(new URLSearchParams(query));
  const [since, by, pace, most] = ["since", "by", "pace", "frames"].map((name) => Number(asked[name] ?? (name === "frames" ? 1e9 : 0)));
  let [open, timer] = [true, 0];
  const run = async () => {
    const index = await load("index");
    const { world, learner } = parsed(query, index);
    const frames = world && (await load(world))?.learn[learner];
    if (!open) return;
    if (!frames) return handlers.problem({ detail: MISSING });
    let k = frames.findIndex(({ t }) => t > since);
    let sent = 0;
    const next = () => {
      if (!open) return;
      if (k < 0 || k >= frames.length) return end("done");
      if (sent >= most) return end("paused");
      const goal = (sent ? frames[k - 1].t : since) + by;
      while (k + 1 < frames.length && frames[k + 1].t <= goal) k++;
      handlers.frame(frames[k++]);
      sent++;
      timer = setTimeout(next, Math.max(pace, 60));
    };
    next();
  };
  const close = () => {
    open = false;
    clearTimeout(timer);
  };
  const end = (name) => {
    close();
    handlers[name]({});
  };
  run();
  return { close };
}

/** The link as it was recorded: parameters that the page adds are left out. */
function known(query, index) {
  const given = [...new URLSearchParams(query)].filter(([name]) => !["lesson", "lecture"].includes(name));
  const asked = JSON.stringify(given.sort());
  const same = (link) => JSON.stringify([...new URLSearchParams(link)].sort()) === asked;
  return Object.keys(index.states).find(same);
}

/** The file of a request's world, and the full text of its learner. */
function parsed(query, index) {
  const { learner = "q", world: name = "cliff", ...rest } = Object.fromEntries(new URLSearchParams(query));
  const own = ["epsilon", "quiet", "seeds", "since", "by", "until", "pace", "frames"];
  const changes = Object.entries(rest).filter(([key]) => !own.includes(key)).sort();
  const text = [["world", name], ...changes].map(([key, value]) => `${key}=${value}`).join("&");
  const world = changes.length ? index.others?.[text] : name;
  return { world, learner: full(learner, index.learners) };
}

/** A learner with all its dials, in the order of the files: those of a scheme after v. */
function full(text, learners) {
  const [kind, ...parts] = text.split(",");
  const given = Object.fromEntries(parts.map((part) => part.split(":")));
  const { defaults = {}, choices } = learners[kind] ?? {};
  const scheme = choices?.scheme?.find(({ value }) => value === (given.scheme ?? defaults.scheme));
  const { v, mixing } = defaults;
  const usual = scheme ? { v, ...scheme.dials, mixing, scheme: scheme.value } : defaults;
  const said = Object.entries({ ...usual, ...given }).filter(([, value]) => value !== null);
  return [kind, ...said.map(([name, value]) => `${name}:${value}`)].join(",");
}
