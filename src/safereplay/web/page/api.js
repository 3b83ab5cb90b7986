/**
 * Questions to the server. Every answer is JSON; a refusal is one sentence for the reader.
 */
import { join } from "./link.js";

/** A refusal of the server: `detail` is the sentence to show. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
    this.detail = detail;
  }
}

/**
 * Ask for `path` and read the JSON that comes back.
 *
 * `params` is a query string or an object. `quiet` asks the server to wrap a refusal into an ordinary answer: browsers
 * write a failed request into their console, and a map that is not finished yet is no failure.
 * @throws {ApiError} when the server refuses or cannot be reached
 */
export async function get(path, params = "", { signal } = {}) {
  const response = await reach(address(path, params, { quiet: 1 }), signal);
  const body = await response.json().catch(() => null);
  if (!response.ok) throw new ApiError(response.status, sentence(body, response.status));
  if (body && typeof body.problem === "string") throw new ApiError(422, body.problem);
  return body;
}

/**
 * A stream of events over a web socket: `handlers` has a function for each event's name, which gets the event's JSON,
 * and `lost` for a connection that broke. A stream that is over closes itself.
 * @returns {{close: function(): void}}
 */
export function stream(path, params, handlers) {
  const socket = new WebSocket(new URL(address(path, params), location.href.replace(/^http/, "ws")));
  let over = false;
  const close = () => {
    over = true;
    socket.close();
  };
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

/** The address of a question: a path and its parameters. */
export function address(path, params, more = {}) {
  const text = typeof params === "string" ? params.replace(/^\?/, "") : join("", params);
  const query = join(text, more);
  return query ? `${path}?${query}` : path;
}

async function reach(url, signal) {
  try {
    return await fetch(url, { signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer; is `safereplay play` still running?");
  }
}

function sentence(body, status) {
  return typeof body?.detail === "string" ? body.detail : `The server answered ${status}.`;
}
