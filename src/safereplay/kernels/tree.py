"""A sum tree: weights of n things, drawn in proportion and changed in O(log n).

A flat array holds a complete binary tree: node j has children 2j and 2j + 1, the root is node 1, and leaf i
is node n_leaves + i. A parent is recomputed from its two children, never moved by a difference, so that
nothing drifts however long the run. The total is ``tree[1]``.
"""

import numpy as np

from .compile import Array, at, jit


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
    something there. So each node on the way has a positive sum, the leaf as well.
    """
    n_leaves = tree.size >> 1
    j = 1
    while j < n_leaves:
        left = tree[at(2 * j)]
        j = 2 * j
        if x >= left and tree[at(j + 1)] > 0.0:
            x -= left
            j += 1
    return int(j - n_leaves)
