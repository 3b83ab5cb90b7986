"""A sum tree: n weights, drawn in proportion and changed in O(log n).

A flat array holds a complete binary tree: node j has children 2j and 2j + 1, the root is node 1, and leaf i
is node n_leaves + i. A parent is recomputed from its two children, never changed by a difference, so
rounding errors do not accumulate. The total is ``tree[1]``.

``put`` and ``find`` handle one entry. ``put_many`` gives the same bits for a batch, and is faster: it processes one level
at a time, so that memory accesses overlap, and sums the top of the tree, which all entries share, once.
"""

from collections.abc import Callable

import numpy as np

from .compile import Array, at, jit, source_digest, specialise


def allocate(n: int) -> Array:
    """A tree of n weights, all zero."""
    return np.zeros(2 << (max(int(n), 1) - 1).bit_length())  # twice the next power of two


@jit
def leaf(tree: Array, i: int) -> float:
    """The weight of entry i."""
    return float(tree[at((tree.size >> 1) + i)])


@jit
def total(tree: Array) -> float:
    """The sum of all weights."""
    return float(tree[1])


@jit
def put(tree: Array, i: int, weight: float) -> None:
    """Set the weight of entry i."""
    j = (tree.size >> 1) + i
    if tree[at(j)] == weight:
        return
    tree[at(j)] = weight
    while j > 1:
        weight += tree[at(j ^ 1)]
        j >>= 1
        tree[at(j)] = weight


@jit
def find(tree: Array, x: float) -> int:
    """The entry at position x of the running sum, 0 ≤ x < total. Its weight is never zero, whatever the rounding.

    The search goes left if x is below the left sum (which is then positive) or the right sum is 0, and right only if
    the right sum is positive. So each node on the way has a positive sum, the leaf as well; also if x is beyond the
    total, or NaN because sums overflowed. (Branches are faster in large trees than a branch-free choice: the processor
    predicts them and loads the next level early.)
    """
    n_leaves = tree.size >> 1
    j = 1
    while j < n_leaves:
        left = tree[at(2 * j)]
        j = 2 * j
        if not x < left and tree[at(j + 1)] > 0.0:
            x -= left
            j += 1
    return int(j - n_leaves)


def putting(fold: Callable[[float, float], float]) -> Callable[[Array, Array, Array], None]:
    """``put_many`` for a tree whose parents are fold(left, right)."""

    def put_many(tree: Array, things: Array, weights: Array) -> None:
        n, nodes = things.size, tree.size >> 1
        for k in range(n):
            tree[at(nodes + things[k])] = weights[k]
        nodes >>= 1
        up = 1
        while nodes > n:  # while a level has more nodes than the batch has entries
            for k in range(n):
                j = nodes + (things[k] >> up)
                tree[at(j)] = fold(tree[at(2 * j)], tree[at(2 * j + 1)])
            nodes >>= 1
            up += 1
        for j in range(2 * nodes - 1, 0, -1):
            tree[at(j)] = fold(tree[at(2 * j)], tree[at(2 * j + 1)])

    put_many.__doc__ = "Set the weights of many entries; if an entry occurs twice, the later weight counts."
    return specialise(put_many, f"{source_digest()} {fold.__name__}")


@jit
def _sum(left: float, right: float) -> float:
    return left + right


put_many = putting(_sum)
