"""x = b + P·x, the linear equation behind every value of a fixed policy; and what counts as equal in such values.

Small ones are solved densely, larger ones by sparse elimination. That fills in little where steps are local, as on a map:
100,000 cells take seconds. Where steps lead anywhere it fills in nearly everything, and 10,000 states take minutes; but
such chains mix fast, and a Krylov method needs a few dozen products with P. So beyond ELIMINATED states that is tried
first. Its answer counts only if it meets the equation as well as elimination would, to rounding.

**Tolerances.** The unit of the rewards must not matter: with every reward c times as large, values are c times as large
and policies stay. So no tolerance on values is a fixed number. Each is a share of the values themselves (:func:`slack`).
"""

from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, bicgstab, spsolve

from .._types import Floats

DENSE = 300  # states up to which a dense solve is the faster one
ELIMINATED = 5_000  # states up to which elimination is quick for any P
PASSES, STEPS = 4, 60  # of the Krylov method: each pass solves for what the one before has left
ROUNDING = 32.0 * float(np.finfo(np.float64).eps)  # of the largest x: what elimination leaves of an equation


def largest(*values: Any) -> float:
    """The largest |x| of all finite entries; 0 where there are none.

    >>> largest([-3.0, 2.0], float("inf"))
    3.0
    """
    sizes = [np.abs(np.asarray(x, np.float64)) for x in values]
    return max((float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes), default=0.0)


def slack(share: float, values: Any, rewards: Any) -> float:
    """How far values may be apart and still count as equal.

    That is a share of the largest value. Where rewards cancel, values may be far smaller than the rewards that they are
    made of; so it is at least what rounding leaves of these.

    >>> slack(0.5, [10.0, 4.0], [1.0])
    5.0
    """
    return max(share * largest(values), ROUNDING * largest(rewards))


def solve(P: Any, b: Floats) -> Floats:
    """The x with x = b + P·x, for a sparse P [S, S] whose powers vanish.

    >>> from scipy import sparse
    >>> solve(sparse.csr_array([[0.5, 0.25], [0.0, 0.0]]), np.array([1.0, 4.0]))
    array([4., 4.])
    """
    if b.size <= DENSE:
        return np.linalg.solve(np.eye(b.size) - P.toarray(), b)
    x = by_products(P, b) if b.size > ELIMINATED else None
    return np.asarray(spsolve(sparse.csc_array(sparse.eye_array(b.size) - P), b)) if x is None else x


def by_products(P: Any, b: Floats) -> Floats | None:
    """The same x by products with P alone; None where these do not get to rounding in a few dozen."""
    P = sparse.csr_array(P)
    away = LinearOperator(P.shape, matvec=lambda x: x - P @ x, dtype=np.float64)
    x, left = np.zeros(b.size), np.asarray(b, np.float64)
    for _ in range(PASSES):
        step, _ = bicgstab(away, left, rtol=1e-10, maxiter=STEPS)
        before, x = float(np.abs(left).max()), x + step
        left = b + P @ x - x
        worst = float(np.abs(left).max())
        if worst <= ROUNDING * float(np.abs(x).max()):
            return x
        if not worst < 1e-6 * before:
            return None
    return None
