"""A sum tree: weights of n things, drawn in proportion and changed in O(log n).

A flat array holds a complete binary tree: node j has children 2j and 2j + 1, the root is node 1, and leaf i
is node n_leaves + i. A parent is recomputed from its two children, never moved by a difference, so that
nothing drifts however long the run. The total is ``tree[1]``.

``put`` and ``find`` are for one thing at a time. ``put_many`` and ``find_many`` give the same bits for a batch, faster: a
level at a time for many things, so that the processor waits for many places in memory at once, and the top of the
tree, which all of a batch share, is summed once. A tree of minima has the same form and holds +∞ where there is nothing.
"""

from collections.abc import Callable

import numpy as np

from .compile import Array, at, jit, kernel, source_digest, specialise

TOGETHER = 16  # searches that go down side by side: enough to hide how long memory takes


def allocate(n: int) -> Array:
    """A tree of n weights, all zero."""
    leaves = 1
    while leaves < n:
        leaves *= 2
    return np.zeros(2 * leaves)


@jit
def leaf(tree: Array, i: int) -> float:
    """The weight of thing i."""
    return float(tree[at((tree.size >> 1) + i)])


@jit
def total(tree: Array) -> float:
    """The sum of all weights."""
    return float(tree[1])


@jit
def put(tree: Array, i: int, weight: float) -> None:
    """Set the weight of thing i."""
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
    """The thing at position x of the running sum, 0 ≤ x < total. Never one of weight zero, whatever the rounding.

    Going left needs x below the left sum (so that is positive) or nothing on the right; going right needs
    something there. So each node on the way has a positive sum, the leaf as well; also where x is beyond the total, or not a
    number because sums overflowed. (With branches, which a processor guesses and so asks memory for the next level early:
    in large trees that is faster than to choose without one.)
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


# -- a batch at a time -------------------------------------------------------------------------------------------------


@kernel
def find_many(tree: Array, x: Array, things: Array) -> None:
    """The things at positions x, as :func:`find` finds each; x is used up."""
    n_leaves = tree.size >> 1
    for first in range(0, x.size, TOGETHER):
        after = min(first + TOGETHER, x.size)
        for k in range(first, after):
            things[k] = 1
        level = 1
        while level < n_leaves:
            for k in range(first, after):
                j = 2 * things[k]
                left = tree[at(j)]
                right = (not x[k] < left) & (tree[at(j + 1)] > 0.0)  # no branch: nobody could guess it
                x[k] -= left if right else 0.0
                things[k] = j + right
            level *= 2
        for k in range(first, after):
            things[k] -= n_leaves


def _putting(fold: Callable[[float, float], float]) -> Callable[[Array, Array, Array], None]:
    """``put_many`` of a tree whose parents are fold(left, right)."""

    def put_many(tree: Array, things: Array, weights: Array) -> None:
        n, nodes = things.size, tree.size >> 1
        for k in range(n):
            tree[at(nodes + things[k])] = weights[k]
        nodes >>= 1
        up = 1
        while nodes > n:  # more nodes at this level than things in the batch
            for k in range(n):
                j = nodes + (things[k] >> up)
                tree[at(j)] = fold(tree[at(2 * j)], tree[at(2 * j + 1)])
            nodes >>= 1
            up += 1
        for j in range(2 * nodes - 1, 0, -1):
            tree[at(j)] = fold(tree[at(2 * j)], tree[at(2 * j + 1)])

    put_many.__doc__ = "Set the weights of many things; of a thing that is there twice, the later one counts."
    return specialise(put_many, f"{source_digest()} {fold.__name__}")


@jit
def _sum(left: float, right: float) -> float:
    return left + right


@jit
def _least(left: float, right: float) -> float:
    return min(left, right)


put_many = _putting(_sum)
put_many_least = _putting(_least)  #: the same for a tree of minima
