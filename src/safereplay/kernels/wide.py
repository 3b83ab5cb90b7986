"""A sum tree with eight children per node: the interface of :mod:`safereplay.kernels.tree`, for a GPU.

A node holds eight sums side by side: two sectors of memory, loaded together. A GPU thread's time depends on the number
of dependent loads. With eight children per node, up to 64 entries are found in 2 loads, 512 in 3.
Levels of 8, 64, 512, ... entries follow each other in one array, the last one, the weights themselves, cut to the size
needed; entry k of a level is the sum of the entries 8k, ..., 8k + 7 of the next. There is no root: the total is the sum
of the first eight. A sum is recomputed from its parts, never changed by a difference, so rounding does not accumulate.
"""

import numpy as np

from .compile import Array, at, jit

WIDTH = 8


def allocate(n: int) -> Array:
    """A tree of n weights, all zero."""
    above, level = 0, WIDTH
    while level < n:
        above, level = above + level, level * WIDTH
    return np.zeros(above + -(-max(n, 1) // WIDTH) * WIDTH)


@jit
def leaf(tree: Array, i: int) -> float:
    """The weight of entry i."""
    start, level = 0, WIDTH
    while start + level < tree.size:
        start += level
        level *= WIDTH
    return float(tree[at(start + i)])


@jit
def total(tree: Array) -> float:
    """The sum of all weights."""
    return added(tree, 0)


@jit
def added(tree: Array, node: int) -> float:
    """The sum of the eight entries from ``node`` on."""
    a, b, c, d = tree[at(node)], tree[at(node + 1)], tree[at(node + 2)], tree[at(node + 3)]
    e, f, g, h = tree[at(node + 4)], tree[at(node + 5)], tree[at(node + 6)], tree[at(node + 7)]
    return float(((a + b) + (c + d)) + ((e + f) + (g + h)))


@jit
def put(tree: Array, i: int, weight: float) -> None:
    """Set the weight of entry i."""
    start, level = 0, WIDTH
    while start + level < tree.size:
        start += level
        level *= WIDTH
    if tree[at(start + i)] == weight:
        return
    tree[at(start + i)] = weight
    while start > 0:
        node = start + (i & ~7)
        level >>= 3
        start -= level
        i >>= 3
        tree[at(start + i)] = added(tree, node)


@jit
def find(tree: Array, x: float) -> int:
    """The entry at position x of the running sum, 0 ≤ x < total. Its weight is never zero, whatever the rounding.

    At each node the search takes the first entry that contains x, or the last positive one if rounding has left x beyond
    all. A positive sum has a positive part, so each entry on the way is positive, the leaf as well.
    """
    start, level, i = 0, WIDTH, 0
    while True:
        node = start + i
        taken, left, searching = 0, x, True
        for k in range(WIDTH):
            entry = tree[at(node + k)]
            here = searching & (entry > 0.0)
            taken = k if here else taken
            left = x if here else left
            searching = searching & ((entry <= 0.0) | (x >= entry))
            x -= entry
        x = left
        i += taken
        if start + level >= tree.size:
            return i
        start += level
        level *= WIDTH
        i *= WIDTH
