/** The OpenAPI description as a page: all requests with their parameters, and an example of each. */

const main = document.getElementById("operations");

/** An element with text or children. */
function element(name, ...children) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

/** The bounds and choices of a parameter as text. */
function condition(schema) {
  const kinds = (schema.anyOf ?? [schema]).filter((kind) => kind.type !== "null");
  return kinds
    .map((kind) => {
      if (kind.enum) return kind.enum.join(", ");
      if (kind.const !== undefined) return String(kind.const);
      const ends = [
        [kind.minimum, "at least"],
        [kind.maximum, "at most"],
        [kind.maxLength, "length at most"],
      ];
      return [kind.type, ...ends.filter(([x]) => x !== undefined).map(([x, words]) => `${words} ${x}`)].join(", ");
    })
    .join(" or ");
}

/** A row of the table of parameters. */
function row(parameter) {
  const { name, schema, description } = parameter;
  const value = schema.default ?? null;
  const cells = [element("code", name), condition(schema), value === null ? "" : String(value), description ?? ""];
  return element("tr", ...cells.map((cell) => element("td", cell)));
}

/** A table of parameters that scrolls if it is too wide. */
function table(parameters) {
  const head = element("tr", ...["parameter", "must be", "default", "description"].map((word) => element("th", word)));
  const box = element("div", element("table", element("thead", head), element("tbody", ...parameters.map(row))));
  box.className = "scroll";
  return box;
}

/** One request; the parameters of the world are folded. */
function article(path, operation, world) {
  const link = element("a", "try it");
  link.href = path;
  const parts = [element("h2", element("code", path)), element("p", operation.description, " ", link)];
  const parameters = operation.parameters ?? [];
  const own = parameters.filter(({ name }) => !world.has(name));
  const shared = parameters.filter(({ name }) => world.has(name));
  if (own.length) parts.push(table(own));
  if (shared.length) {
    parts.push(element("details", element("summary", `The ${shared.length} parameters of a world`), table(shared)));
  }
  return element("article", ...parts);
}

const description = await (await fetch("/openapi.json")).json();
const world = new Set(description.paths["/api/map"].get.parameters.map(({ name }) => name));
const operations = Object.entries(description.paths).map(([path, methods]) => article(path, methods.get, world));
main.replaceChildren(element("p", description.info.description), ...operations);
