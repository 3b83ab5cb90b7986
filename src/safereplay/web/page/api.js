/**
 * Requests to the server. Every answer is JSON; a refusal is one sentence for the user.
 */
import { join } from "./link.js";
import * as recorded from "./recorded.js";

/** Whether the page has no server, but recorded answers. */
export const RECORDED = document.querySelector("meta[name=safereplay]").content === "recorded";

const AWAY = "The server does not answer; is `safereplay play` still running?";

/** A refusal of the server: `detail` is the sentence to show; `status` is 0 if it could not be reached. */
export class ApiError extends Error {
  constructor(status, sentence) {
    const detail = readable(sentence);
    super(detail);
    this.status = status;
    this.detail = detail;
  }
}

/**
 * Request `path` and parse the JSON.
 *
 * `params` is a query string or an object. The request has quiet=1, so that the server wraps a refusal into an ordinary
 * answer: browsers log a failed request to their console, and an unfinished map is no failure.
 * @throws {ApiError} when the server refuses or cannot be reached
 */
export async function get(path, params = "", { signal } = {}) {
  if (RECORDED && path.startsWith("/api")) {
    const found = await recorded.get(path, typeof params === "string" ? params : join("", params));
    if (found === undefined) throw new ApiError(422, recorded.MISSING);
    return found;
  }
  const response = await reach(path, params, signal);
  return unlessRefused(await response.json().catch(lost));
}

/** Request a file. @returns {Promise<Response>} @throws {ApiError} as `get` does */
export async function getFile(path, params) {
  const response = await reach(path, params);
  if (response.headers.get("content-type")?.includes("json")) unlessRefused(await response.json().catch(lost));
  return response;
}

/**
 * A stream of events over a web socket: `handlers` has a function for each event's name, which gets the event's JSON,
 * and `lost` for a broken connection. A finished stream closes itself.
 * @returns {{close: function(): void}}
 */
export function stream(path, params, handlers) {
  if (RECORDED) return recorded.stream(params, handlers);
  const socket = new WebSocket(new URL(address(path.slice(1), params), location.href.replace(/^http/, "ws")));
  let over = false;
  const close = () => {
    over = true;
    if (socket.readyState !== WebSocket.CONNECTING) socket.close();
  };
  socket.addEventListener("open", () => over && socket.close()); // before that, the browser would warn
  socket.addEventListener("message", ({ data }) => {
    if (over) return;
    const [name, content] = JSON.parse(data);
    if (name === "done" || name === "paused" || name === "problem") close();
    handlers[name]?.(content);
  });
  socket.addEventListener("close", () => {
    if (!over) handlers.lost?.();
    over = true;
  });
  return { close };
}

/**
 * A sentence of the server with rows and columns counted from 1, as on the page.
 *
 * "start at (0, 3) must have a way to a goal, got 'none'" is "Start at row 1, column 4 must have a way to a goal."
 */
export function readable(sentence) {
  const words = sentence
    .replace(/(?<=\b(?:at|cell) )\((\d+), (\d+)\)/g, (_, row, column) => `row ${Number(row) + 1}, column ${Number(column) + 1}`)
    .replace(/^text must/, "the map must")
    .replace(/, got '(none|no way to it)'/, "");
  return words.replace(/^./, (first) => first.toUpperCase()).replace(/[^.!?…]$/, "$&.");
}

/** The address of a request: a path and its parameters. */
function address(path, params, more = {}) {
  const text = typeof params === "string" ? params.replace(/^\?/, "") : join("", params);
  const query = join(text, more);
  return query ? `${path}?${query}` : path;
}

async function reach(path, params, signal) {
  const asked = path.startsWith("/api") ? address(path.slice(1), params, { quiet: 1 }) : path;
  const response = await fetch(asked, { signal }).catch(lost);
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const known = typeof body?.detail === "string";
  throw new ApiError(response.status, known ? body.detail : `The server answered ${response.status}.`);
}

function lost(error) {
  throw error.name === "AbortError" ? error : new ApiError(0, AWAY);
}

/** The answer; throws if it is a quiet refusal. */
function unlessRefused(body) {
  if (typeof body?.problem === "string") throw new ApiError(body.status ?? 422, body.problem);
  return body;
}
