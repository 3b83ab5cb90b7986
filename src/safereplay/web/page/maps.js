/**
 * Changes to a map: new worlds from old ones, none of which is touched.
 */

export const MOST = 20; // rows, and columns

/** The character that each tool draws. */
export const TOOLS = {
  free: ".", wall: "#", start: "S", goal: "G", hazard: "X", up: "^", right: ">", down: "v", left: "<",
};

/** What changes in a world when one cell becomes `mark`; null where it is that already. */
export function painted(world, [row, column], mark) {
  if (world.rows[row][column] === mark) return null;
  const rows = world.rows.map((line, i) => (i === row ? line.slice(0, column) + mark + line.slice(column + 1) : line));
  return { rows, ...kept(world, rows) };
}

/** What changes in a world of another size: cells that stay keep what they hold, new ones are free. */
export function resized(world, height, width) {
  const line = (i) => (world.rows[i] ?? "").slice(0, width).padEnd(width, ".");
  const rows = Array.from({ length: height }, (_, i) => line(i));
  return { rows, ...kept(world, rows) };
}

/** Rewards of single cells outlive a change only where the cell is still of their kind. */
function kept(world, rows) {
  const only = (byCell, marks) => Object.fromEntries(Object.entries(byCell).filter(([cell]) => {
    const [i, j] = cell.split(",").map(Number);
    return rows[i]?.[j] !== undefined && marks.includes(rows[i][j]);
  }));
  return { goals: only(world.goals, "G"), volatiles: only(world.volatiles, "^>v<") };
}
