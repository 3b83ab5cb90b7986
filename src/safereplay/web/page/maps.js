/**
 * Changes to a map. They return new worlds and do not modify the old ones.
 */

export const MOST = 20; // rows, and columns

/** The character that each tool draws. */
export const TOOLS = {
  free: ".", wall: "#", start: "S", goal: "G", hazard: "X", up: "^", right: ">", down: "v", left: "<",
};

/** The change of a world when one cell becomes `mark`; null if it is that already. */
export function painted(world, [row, column], mark) {
  if (world.rows[row][column] === mark) return null;
  const rows = world.rows.map((line, i) => (i === row ? line.slice(0, column) + mark + line.slice(column + 1) : line));
  return { rows, ...kept(world, rows) };
}

/** The change of a world to another size: cells that remain keep their content, new ones are free. */
export function resized(world, height, width) {
  const line = (i) => (world.rows[i] ?? "").slice(0, width).padEnd(width, ".");
  const rows = Array.from({ length: height }, (_, i) => line(i));
  return { rows, ...kept(world, rows) };
}

/** The rewards of single cells that are still of the same kind. */
function kept(world, rows) {
  const only = (byCell, marks) => Object.fromEntries(Object.entries(byCell).filter(([cell]) => {
    const [i, j] = cell.split(",").map(Number);
    return rows[i]?.[j] !== undefined && marks.includes(rows[i][j]);
  }));
  return { goals: only(world.goals, "G"), volatiles: only(world.volatiles, "^>v<") };
}
