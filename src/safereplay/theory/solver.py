"""Exact solvers: linear equations of a policy, and dynamic programming.

Every value of a fixed policy solves a linear equation x = b + P·x.

Small ones are solved densely, larger ones by sparse elimination. Elimination has little fill-in if steps are local, as on a
map: 100,000 cells take seconds. If steps lead anywhere it fills in nearly everything, and 10,000 states take minutes; but
such chains mix fast, and a Krylov method needs a few dozen products with P. So above ELIMINATED states that is tried
first, unless steps lead to states with near numbers. Its answer is used only if its residual is as small as
elimination's, up to rounding.

Above LARGE states elimination is incomplete: small entries are dropped, and its factors may have a limited multiple of
P's entries, so memory grows with the number of outcomes. The Krylov method then solves the equation with these
factors as its preconditioner. A few steps are enough for a policy that mostly goes one way, as a greedy one does. For other
chains the factors are computed again with nothing dropped but what exceeds the limit. They are complete on maps of some
millions of cells.

**Tolerances.** The unit of the rewards must not matter: if every reward is multiplied by c, values are too, and policies
do not change. So tolerances on values are not fixed numbers, but shares of the values themselves (:func:`slack`).

Dynamic programming on an outcome table gives Q of the best policy, for any probabilities of its outcomes.

Small models use policy iteration: evaluate a policy by solving its linear equations, take the best actions, repeat until
nothing improves. This is exact up to rounding. Large ones use modified policy iteration: the linear equations are swept
instead of solved, until the values are accurate enough for the next policy. The error bound is known at every step; see
:mod:`safereplay.kernels.sweep`.

Ref: Puterman (1994), Sections 6.4 and 6.5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import cycle, takewhile
from math import ceil, inf, isfinite, log
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import spilu, splu

from .. import _checks
from .._checks import AnyArray, Bools, Floats, Ints
from .._progress import attended, tell
from ..errors import BadInput
from ..kernels import sweep
from ..mdp import TabularMDP

DENSE = 150  # states up to which a dense solve is faster; above 200, BLAS would start threads for it
ELIMINATED = 5_000  # states up to which elimination is fast for any P
LOCAL = 0.01  # mean distance between the numbers of a state and the next, as a share of all states, with little fill-in
PASSES, STEPS = 4, 60  # of the Krylov method: each pass solves for the residual of the last
LARGE = 200_000  # states above which elimination is incomplete
#: Ways to solve then: entries dropped (of the largest in their column), the most entries of the factors (of P's), and steps
#: of the Krylov method; the first is without factors.
WAYS = ((None, 0.0, STEPS), (1e-3, 10.0, STEPS), (0.0, 20.0, 600))
ROUNDING = 32.0 * float(np.finfo(np.float64).eps)  # relative to the largest x: the residual of elimination


def largest(*values: Any) -> float:
    """The largest |x| of all finite entries; 0 if there are none."""
    sizes = [np.abs(np.asarray(x, np.float64)) for x in values]
    return max((float(size[np.isfinite(size)].max(initial=0.0)) for size in sizes), default=0.0)


def slack(share: float, values: Any, rewards: Any) -> float:
    """The largest difference at which values count as equal.

    It is a share of the largest value. If rewards cancel, values may be far smaller than the rewards; so it is at least
    the rounding error of the rewards.
    """
    return max(share * largest(values), ROUNDING * largest(rewards))


def greedy(Q: Floats, rewards: Any) -> Ints:
    """The first of the best actions of Q [S, A], where differences of rounding do not count: the same on all machines.

    >>> greedy(np.array([[0.1 + 0.2, 0.3], [0.3, 0.1 + 0.2]]), 1.0).tolist()
    [0, 0]
    """
    best = Q.max(1, keepdims=True) - slack(1e-9, Q, rewards)
    return np.asarray((best <= Q).argmax(1), np.int64)


def log_sums(index: Ints, n: int, x: Floats) -> Floats:
    """log Σ e^x over the entries of each index 0..n−1, [n]; −inf if there are none."""
    top = np.full(n, -inf)
    np.maximum.at(top, index, x)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(np.bincount(index, weights=np.exp(x - top[index]), minlength=n)) + top)


def matrix(p: Floats, s: Ints, s_next: Ints, size: int) -> Any:
    """The sums of p over equal (s, s'), [S, S]: dense if it is small, else sparse."""
    if size <= DENSE:
        return np.bincount(s * size + s_next, weights=p, minlength=size * size).reshape(size, size)
    return sparse.coo_array((p, (s, s_next)), shape=(size, size))


def solve(P: Any, b: Floats) -> Floats:
    """The x with x = b + P·x, for a P [S, S] whose powers vanish and b [S] or [S, n]; nan if it is singular."""
    return Equation(P).solve(b)


class Equation:
    """x = b + P·x for several b: P is eliminated once."""

    def __init__(self, P: Any) -> None:
        self.P = P
        self._failed = 0  # of WAYS
        self._incomplete: Any = None  # factors of the present way

    @cached_property
    def _factors(self) -> Any:
        """The factors of 1 − P; None if it is singular."""
        try:
            return splu(self._matrix, permc_spec="MMD_AT_PLUS_A" if self.P.shape[0] > ELIMINATED else "COLAMD")
        except RuntimeError:
            return None

    @property
    def _matrix(self) -> Any:
        """1 − P."""
        return sparse.csc_array(sparse.eye_array(self.P.shape[0]) - self.P)

    @cached_property
    def _is_local(self) -> bool:
        """Whether steps lead to states with near numbers, as on a map."""
        P = self.P.tocoo()
        return float(np.abs(P.row - P.col).mean()) <= LOCAL * P.shape[0] if P.nnz else True

    def solve(self, b: Floats) -> Floats:
        """x, as in :func:`solve`."""
        size = b.shape[0]
        if size <= DENSE:
            try:
                P = self.P if isinstance(self.P, np.ndarray) else self.P.toarray()
                return np.linalg.solve(np.eye(size) - P, b)
            except np.linalg.LinAlgError:
                return np.full(b.shape, np.nan)
        if size > LARGE:
            return self._solve_large(b)
        x = None if size <= ELIMINATED or "_factors" in vars(self) or self._is_local else by_products(self.P, b)
        if x is not None:
            return x
        return np.full(b.shape, np.nan) if self._factors is None else np.asarray(self._factors.solve(b))

    def _solve_large(self, b: Floats) -> Floats:
        """x by the first of WAYS that reaches rounding; a way that failed once is not tried again."""
        self.P = sparse.csr_array(self.P)
        for dropped, fill, steps in WAYS[self._failed :]:
            if dropped is not None and self._incomplete is None:
                A, how = self._matrix, {"drop_tol": dropped, "fill_factor": fill, "permc_spec": "MMD_AT_PLUS_A"}
                try:
                    self._incomplete = attended(partial(spilu, A, **how))
                except RuntimeError:
                    return np.full(b.shape, np.nan)
                del A
            known = None if dropped is None else self._incomplete.solve
            x = None if dropped is None and self._is_local else by_products(self.P, b, known, steps)
            if x is not None:
                return x
            self._failed, self._incomplete = self._failed + 1, None
        why = "got no convergence; discounted values are easier to compute"
        raise BadInput(f"equations of {b.shape[0]:,} states must be solved within bounded memory, {why}")


def by_products(
    P: Any, b: Floats, factors: Callable[[Floats], Floats] | None = None, steps: int = STEPS
) -> Floats | None:
    """The same x by products with P, and with (1 − P)⁻¹ approximately; None if that does not reach rounding."""
    if b.ndim > 1:
        columns = [*takewhile(lambda x: x is not None, (by_products(P, c, factors, steps) for c in b.T))]
        return np.stack(columns, 1) if len(columns) == b.shape[1] else None  # type: ignore[arg-type]
    P = sparse.csr_array(P)
    x, left = np.zeros(b.size), np.asarray(b, np.float64)
    for _ in range(PASSES):
        with np.errstate(all="ignore"):  # a breakdown shows in the residual
            step = _bicgstab(P, left, factors, steps)
        before, x = float(np.abs(left).max()), x + step
        left = b + P @ x - x
        worst = float(np.abs(left).max())
        if worst <= ROUNDING * float(np.abs(x).max()):
            return x
        if not worst < 1e-6 * before:
            return None
    return None


def _bicgstab(P: Any, b: Floats, factors: Callable[[Floats], Floats] | None = None, steps: int = STEPS) -> Floats:
    """x with x − P·x = b, approximately: van der Vorst's Bi-CGSTAB (1992), to a residual of 1e-10 of b.

    ``factors`` is a product with an approximation of (1 − P)⁻¹, its preconditioner.
    """
    near = factors or (lambda x: x)
    x, r = np.zeros(b.size), b
    p = v = np.zeros(b.size)
    rho = alpha = omega = 1.0
    enough = 1e-20 * _dot(b, b)
    for _ in range(steps):
        tell()
        before, rho = rho, _dot(b, r)
        if _dot(r, r) <= enough or before == 0.0 or omega == 0.0:
            break
        p = r + (rho / before) * (alpha / omega) * (p - omega * v)
        p_near = near(p)
        v = p_near - P @ p_near
        along = _dot(b, v)
        if along == 0.0:
            break
        alpha = rho / along
        s = r - alpha * v
        s_near = near(s)
        t = s_near - P @ s_near
        omega = _dot(t, s) / (_dot(t, t) or 1.0)
        x, r = x + alpha * p_near + omega * s_near, s - omega * t
    return x


def _dot(x: Floats, y: Floats) -> float:
    """x·y by einsum: products of BLAS start threads, and wait long for them if the cores are busy."""
    return float(np.einsum("i,i", x, y))


TIE = 1e-9  # values, or variances, that differ by less (relative) are equal
TOLERANCE = 1e-10  # of a fixed point, as a share of the largest value
SMALL = 300  # states up to which policy iteration is faster
MAX_ROUNDS = 1_000  # of policy iteration; a few are enough
EPSILON = float(np.finfo(np.float64).eps)
SETTLED = 0.03  # a policy is evaluated until sweeps change V by this share of what maximising did
SWEEPS = 100  # maximum, for a policy that will change
NEAR_ROUNDS = 40  # maximum number of maximising sweeps from approximate values
LAST_SWEEPS = 1_000  # maximum, for a policy that seems to be the best


def targets(mdp: TabularMDP, V: Floats) -> Floats:
    """r + γ·V(s') of every outcome, [K]; r if the episode ends."""
    return mdp.r + mdp.gamma * np.where(mdp.terminal, 0.0, V[mdp.s_next])


def extremes(mdp: TabularMDP) -> tuple[Floats, Floats]:
    """r_min and r_max of each pair, [P]; 0 if it has no outcomes."""
    used = np.diff(mdp.row) > 0
    low, high = np.zeros(mdp.n_pairs), np.zeros(mdp.n_pairs)
    low[used], high[used] = mdp.r[mdp.row[:-1][used]], mdp.r[mdp.row[1:][used] - 1]  # rows are sorted by reward
    return low, high


def optimal(mdp: TabularMDP, p: Floats, near: Floats | None = None) -> Floats:
    """Q of the best policy if outcomes have probabilities p [K], as [S, A]; ``near`` [S]: values that speed up the search.

    The error is at most 1e-10 of the largest value. Models of up to 300 states are solved exactly, up to rounding.

    >>> import safereplay as sr
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> optimal(mdp, mdp.p).max(1)
    array([2., 4., 8., 0.])
    """
    return by_policies(mdp, p, near) if mdp.n_states <= SMALL else by_sweeps(mdp, p, near=near)


def by_policies(mdp: TabularMDP, p: Floats, near: Floats | None = None, fixed: Ints | None = None) -> Floats:
    """Q of the best policy by policy iteration, [S, A], from the greedy policy for the values ``near``.

    ``fixed`` [S] are the actions of states that do not choose; −1 for those that do.
    """
    reward = mdp.expect(mdp.r, p)
    onward = np.where(mdp.terminal, 0.0, p)
    policy = (reward if near is None else mdp.expect(targets(mdp, near), p)).argmax(1)
    states, free = np.arange(mdp.n_states), np.ones(mdp.n_states, bool) if fixed is None else fixed < 0
    if fixed is not None:
        policy = np.where(free, policy, fixed)
    for _ in range(MAX_ROUNDS):
        chosen = np.flatnonzero(policy[mdp.pair // mdp.n_actions] == mdp.pair % mdp.n_actions)
        s, s_next = mdp.pair[chosen] // mdp.n_actions, mdp.s_next[chosen]
        P = matrix(mdp.gamma * onward[chosen], s, s_next, mdp.n_states)
        V = solve(P, reward[states, policy])
        Q = mdp.expect(targets(mdp, V), p)
        better = free & (Q.max(1) > Q[states, policy] + slack(1e-12, V, mdp.r))
        if not better.any():
            break
        policy = np.where(better, Q.argmax(1), policy)
    return Q


def value_bounds(mdp: TabularMDP) -> tuple[Floats, Floats]:
    """The values [S] if actions and outcomes are always the worst, and if they are always the best."""
    here, bounds = mdp.pair // mdp.n_actions, []
    for extreme, none in ((np.minimum, inf), (np.maximum, -inf)):

        def H(V: Floats, extreme: Any = extreme, none: float = none) -> Floats:  # noqa: N802
            out = np.full(mdp.n_states, none)
            extreme.at(out, here, targets(mdp, V[:, 0]))
            return np.where(mdp.is_terminal, 0.0, out)[:, None]

        bounds.append(iterate(H, mdp)[:, 0])
    return bounds[0], bounds[1]


def by_sweeps(mdp: TabularMDP, p: Floats, tolerance: float | None = None, near: Floats | None = None) -> Floats:
    """Q of the best policy by sweeps, [S, A], to ``tolerance``, by default 1e-10 of the largest value; ``near`` as in :func:`optimal`.

    A tolerance below the rounding error, about 10⁻¹⁵/(1−γ) of the largest value, is replaced by it. A maximising sweep,
    then sweeps under its policy, repeated until the error bound is small enough. From a V below every return this always
    terminates. From values ``near`` it may not; if it takes long, the search is restarted from below. The error bound
    holds in both cases.
    """
    model, chain, order = made_ready(mdp, p)
    width, most = int(np.diff(mdp.row).max()), ceil(log(1e-32) / log(mdp.gamma))
    V = np.zeros(0) if near is None else near[order]
    if near is None or not _swept(model, chain, V, width, mdp.gamma, tolerance, min(NEAR_ROUNDS, most)):
        # From below every return, to 1e-32 of the first change: then only rounding is left.
        V = np.full(mdp.n_states, min(0.0, float(model.reward.min())) / (1.0 - mdp.gamma))
        _swept(model, chain, V, width, mdp.gamma, tolerance, most)
    Q = np.empty(mdp.n_pairs)
    sweep.values(model, V, order, Q)
    return Q.reshape(mdp.n_states, mdp.n_actions)


def _swept(
    model: sweep.Model, chain: sweep.Chain, V: Floats, width: int, gamma: float, tolerance: float | None, most: int
) -> bool:
    """Sweep V until it is within the tolerance, or ``most`` maximising sweeps are done; returns whether it is within."""
    first = 0.0
    for _ in range(most):
        change, size, switched = sweep.improve(model, chain, V)
        rounding = 4.0 * (width + 1) * EPSILON * size
        within = TOLERANCE * size if tolerance is None else tolerance
        goal = max(within * (1.0 - gamma) / gamma, rounding)
        if change <= goal:
            return True
        first = first or change
        tell(log(first / change) / log(first / goal) if change < first else 0.0)
        enough = max(goal / 2.0, rounding, SETTLED * change if switched else 0.0)
        sweep.fade(chain, 1e-3 * (1.0 - gamma))
        for _ in range(SWEEPS if switched else LAST_SWEEPS):  # under the chain's policy
            change, alpha = sweep.evaluate(chain, V, rounding / 8.0)
            tell()
            if change <= enough:
                break
            if 0.1 * change < alpha < inf:
                sweep.shift(chain, V, alpha)
    return False


def made_ready(mdp: TabularMDP, p: Floats) -> tuple[sweep.Model, sweep.Chain, AnyArray]:
    """A model and a chain for sweeps, and the states in their order."""
    S, P, K = mdp.n_states, mdp.n_pairs, mdp.p.size
    p = np.ascontiguousarray(p, np.float64).view()
    p.setflags(write=False)  # as for the model's own arrays: one compiled version for all
    table = sweep.Table(mdp.row, p, mdp.s_next, mdp.r, mdp.terminal)
    order = np.arange(S, dtype=np.int32)
    place = order.copy()
    if mdp.terminal.any():
        pairs = np.empty((2, P), np.int32)
        sweep.arrange(table, order, place, sweep.Space(pairs[0], np.empty(S + 2, np.int64), pairs[1]))
        del pairs
    model = sweep.Model(np.empty(P + 1, np.int64), np.empty(K, np.int32), np.empty(K), np.empty(P))
    sweep.prepare(table, mdp.gamma, order, place, model)
    first = np.zeros(S + 1, np.int64)
    np.cumsum(np.diff(model.row).reshape(S, -1).max(1), out=first[1:])
    steps, floats = int(first[-1]), [np.empty(S) for _ in range(3)]
    action, last = np.full(S, -1, np.int32), np.empty(S, np.int64)
    return model, sweep.Chain(action, first, last, np.empty(steps, np.int32), np.empty(steps), *floats), order


def finite(values: Floats) -> Floats:
    """The values, checked to be finite."""
    size = float(np.abs(values).max(initial=0.0))
    _checks.require(isfinite(size), "values", "stay finite", size, "rewards or dials are too large")
    return values


def iterate(H: Callable[[Floats], Floats], mdp: TabularMDP) -> Floats:
    """The fixed point of a γ-contraction H on arrays [S, A], by iteration from 0; an error if H is not one, or overflows."""
    Q, gamma, change, within = np.zeros((mdp.n_states, mdp.n_actions)), mdp.gamma, inf, 0.0
    for _ in range(ceil(log(1e-32) / log(gamma))):  # then the change is 1e-32 of the first: only rounding is left
        after = H(Q)
        change, within = float(np.abs(finite(after) - Q).max()), slack(TOLERANCE, after, mdp.r)
        Q = after
        if change * gamma / (1.0 - gamma) <= within:
            return Q
    _checks.require(change <= within, "values", "converge", change, "they still change by that much per round")
    return Q


def lead(Q: Floats, a: Ints) -> Floats:
    """The lead of action a of each state over the others, [S]: below 0 if one of them is better."""
    return np.asarray(Q[np.arange(a.size), a] - without(Q, a).max(1))


def without(Q: Floats, a: Ints) -> Floats:
    """Q with −inf for action a of each state."""
    rest = Q.copy()
    rest[np.arange(a.size), a] = -inf
    return rest


def first_below(look: Callable[[float], Floats], grid: Sequence[float], tight: float) -> Floats:
    """The smallest x at which each entry of look(x) [S] is below 0, from above, to ``tight``; nan if none is.

    The grid begins where no entry is below 0; an entry that falls below and returns within one step is missed. Each
    evaluation serves all entries: it narrows the bracket of each entry that contains it. Evaluations are at the crossing of
    a straight line, slightly to either side; each third one bisects the bracket.
    """
    at_low = look(grid[0])
    low, high, at_high = np.full(at_low.size, grid[0]), np.full(at_low.size, np.nan), at_low.copy()

    def narrow(x: float, entries: Bools) -> None:
        found = look(x)
        left, stays = entries & (found < 0), entries & (found >= 0)
        high[left], at_high[left] = x, found[left]
        low[stays], at_low[stays] = x, found[stays]

    for x in grid[1:]:
        narrow(x, np.isnan(high))
    sides = cycle((0.45, -0.45, None))
    while (wide := np.flatnonzero(high - low > tight)).size:
        s, side = wide[0], next(sides)
        line = low[s] + (high[s] - low[s]) * at_low[s] / (at_low[s] - at_high[s])
        x = float((low[s] + high[s]) / 2 if side is None else line + side * tight)
        x = float(np.clip(x, low[s] + 0.1 * tight, high[s] - 0.1 * tight))
        narrow(x, (low < x) & (x < high))
    return high
