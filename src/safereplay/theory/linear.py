"""x = b + P·x, the linear equation behind every value of a fixed policy; and what counts as equal in such values.

Small ones are solved densely, larger ones by sparse elimination. That fills in little where steps are local, as on a map:
100,000 cells take seconds. Where steps lead anywhere it fills in nearly everything, and 10,000 states take minutes; but
such chains mix fast, and a Krylov method needs a few dozen products with P. So beyond ELIMINATED states that is tried
first. Its answer counts only if it meets the equation as well as elimination would, to rounding.

**Tolerances.** The unit of the rewards must not matter: with every reward c times as large, values are c times as large
and policies stay. So no tolerance on values is a fixed number. Each is a share of the values themselves (:func:`slack`).
"""

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from .._types import Floats

DENSE = 150  # states up to which a dense solve is the faster one; beyond 200, BLAS would start threads for it
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
    """The x with x = b + P·x, for a sparse P [S, S] whose powers vanish and b [S] or [S, n]; nan where it is singular.

    >>> from scipy import sparse
    >>> solve(sparse.csr_array([[0.5, 0.25], [0.0, 0.0]]), np.array([1.0, 4.0]))
    array([4., 4.])
    """
    return Equation(P).solve(b)


class Equation:
    """x = b + P·x for one b after another: P is eliminated once."""

    def __init__(self, P: Any) -> None:
        self.P = P

    @cached_property
    def _factors(self) -> Any:
        """The factors of 1 − P; None where it is singular."""
        try:
            return splu(sparse.csc_array(sparse.eye_array(self.P.shape[0]) - self.P))
        except RuntimeError:
            return None

    def solve(self, b: Floats) -> Floats:
        """x, as in :func:`solve`."""
        size = b.shape[0]
        if size <= DENSE:
            try:
                return np.linalg.solve(np.eye(size) - self.P.toarray(), b)
            except np.linalg.LinAlgError:
                return np.full(b.shape, np.nan)
        x = by_products(self.P, b) if size > ELIMINATED and "_factors" not in vars(self) else None
        if x is not None:
            return x
        return np.full(b.shape, np.nan) if self._factors is None else np.asarray(self._factors.solve(b))


def by_products(P: Any, b: Floats) -> Floats | None:
    """The same x by products with P alone; None where these do not get to rounding in a few dozen."""
    if b.ndim > 1:
        found: list[Floats] = []
        for column in b.T:
            if (one := by_products(P, column)) is None:
                return None
            found.append(one)
        return np.stack(found, 1)
    P = sparse.csr_array(P)
    x, left = np.zeros(b.size), np.asarray(b, np.float64)
    for _ in range(PASSES):
        with np.errstate(all="ignore"):  # what breaks down is seen in what is left
            step = _bicgstab(P, left)
        before, x = float(np.abs(left).max()), x + step
        left = b + P @ x - x
        worst = float(np.abs(left).max())
        if worst <= ROUNDING * float(np.abs(x).max()):
            return x
        if not worst < 1e-6 * before:
            return None
    return None


def _bicgstab(P: Any, b: Floats) -> Floats:
    """x with x − P·x = b, nearly: at most STEPS steps of BiCGSTAB, fewer where 1e-10 of b is left.

    Scalar products are by einsum: those of BLAS start threads, and wait for them for long where cores are busy.

    Ref: van der Vorst (1992), Bi-CGSTAB.
    """
    x, r = np.zeros(b.size), b
    p = v = np.zeros(b.size)
    rho = alpha = omega = 1.0
    enough = 1e-20 * _dot(b, b)
    for _ in range(STEPS):
        before, rho = rho, _dot(b, r)
        if _dot(r, r) <= enough or before == 0.0 or omega == 0.0:
            break
        p = r + (rho / before) * (alpha / omega) * (p - omega * v)
        v = p - P @ p
        along = _dot(b, v)
        if along == 0.0:
            break
        alpha = rho / along
        s = r - alpha * v
        t = s - P @ s
        omega = _dot(t, s) / (_dot(t, t) or 1.0)
        x, r = x + alpha * p + omega * s, s - omega * t
    return x


def _dot(x: Floats, y: Floats) -> float:
    return float(np.einsum("i,i", x, y))
