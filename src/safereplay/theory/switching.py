"""Limits along a dial: traced over v, and the values at which the policy changes.

A policy is piecewise constant in v, which acts through the share of replays ρ = vW/((1−v) + vW) alone. So limits are
computed on a grid that is even in ρ at the most replayed pair, up to ρ = 0.99. The tracer does so for each β, with the
risks of the limits: if the risk differs between two points, the boundaries between them are found. Q is smooth in ρ
between changes, so a straight line through the lead of an action at both points crosses 0 near the change.

:func:`switches` finds, for each state, the smallest value of a learner's dial at which its greedy action changes. The dial
goes from 0, where the learner is Q-learning, to more caution: v of a replay, κ of Mihatsch & Neuneier, β of Gaskett, whose
grids are even in the dial. A state *switches* at the smallest value at which some action is better than the best one at 0
by more than rounding; a change among tied actions is not a switch.

An interval narrower than a step of the grid may be missed.

Ref: Szlak & Shamir (2021), Theorem 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, isnan
from typing import Any, NamedTuple

import numpy as np

from .. import _checks
from .._checks import Floats, Ints
from .._config import plain
from .._progress import Bar
from ..errors import BadInput
from ..learners import Pessimistic, ReplayQLearning, RiskSensitive, paper_mixing
from ..mdp import TabularMDP
from ..schedules import Exploration
from ..schemes import Scheme
from .limits import exact
from .occupancy import SLACK, Limit
from .operator import Along
from .risk import RiskProfile, evaluate
from .solver import SMALL, TIE, TOLERANCE, extremes, first_below, largest, lead, optimal, slack
from .visits import self_consistent

MOST_RHO = 0.99  # largest share of replays at the most replayed pair
RHO_STEPS = 33  # of ρ, before the search for boundaries
TIGHT, TIGHTEST = 1e-7, 1e-13  # width of a boundary in ρ, and of the final one
LINE = 7.0  # error of a straight line through leads, relative to the square of its width in ρ
TILTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # β times the widest range of rewards at a pair
LITERAL_STEPS, LITERAL_MOST, LITERAL_TIGHT = 19, 0.95, 1e-3  # in v, for literal mixing: its limits are costly


class View(NamedTuple):
    """The limits of a replay at one v."""

    scheme: Scheme
    u: float  #: ρ at the most replayed pair
    v: float
    policies: tuple[int, ...]
    worst: int  #: the policy with the worst risk
    badness: float  #: its risk, signed so that less is better; inf if it may never end
    key: tuple[str, ...]  #: their risks as text; views with equal keys are the same


class Tracer:
    """Exact limits and exact risks, each computed once."""

    def __init__(self, mdp: TabularMDP, limit: Limit, start: Any, mixing: str, exploration: Exploration) -> None:
        self.mdp, self.limit, self.start, self.size = mdp, limit, start, largest(mdp.r)
        self.mixing, self.exploration, self.matched = mixing, exploration, mixing == "matched"
        self.steps, self.most = (RHO_STEPS, MOST_RHO) if self.matched else (LITERAL_STEPS, LITERAL_MOST)
        self.policies: list[Ints] = []
        self._number: dict[bytes, int] = {}
        self._profiles: dict[int, RiskProfile] = {}
        self._discounted: dict[int, float] = {}
        self._along: dict[Scheme, Along] = {}

    def number(self, policy: Ints) -> int:
        """The number of a policy, in order of appearance from 0."""
        policy = np.where(self.mdp.is_terminal, 0, policy)
        name = policy.tobytes()
        if name not in self._number:
            self._number[name] = len(self.policies)
            self.policies.append(policy)
        return self._number[name]

    def profile(self, number: int) -> RiskProfile:
        """The risk of a policy."""
        if number not in self._profiles:
            self._profiles[number] = evaluate(self.mdp, self.policies[number], self.start, quiet=True)
        return self._profiles[number]

    def discounted(self, number: int) -> float:
        """The mean discounted return of a policy."""
        if number not in self._discounted:
            source = self.profile(number).source
            onward, k = np.where(source.chain.terminal, 0.0, self.mdp.gamma), source.start > 0
            mean = source.chain.solve(source.chain.r, onward, source.chain.active)
            self._discounted[number] = float((source.start * mean)[k].sum())
            source.chain.forget()
        return self._discounted[number]

    def badness(self, number: int) -> float:
        """The risk of a policy, signed so that less is better; inf if it may never end, or rounding hides whether it does."""
        try:
            profile = self.profile(number)
        except BadInput:
            return inf
        risk = self.limit.sign * self.limit.risk(profile) if profile.p_never <= SLACK else inf
        return inf if isnan(risk) else risk

    def keeps(self, goal: Limit, badness: float) -> bool:
        """Whether a badness is within a limit."""
        return goal.allows(goal.sign * badness, self.size)

    def v_at(self, scheme: Scheme, u: float) -> float:
        """The v at which ρ = vW/((1−v) + vW) is u at the most replayed pair; literal mixing is traced by v itself."""
        return dial_at(u, self.along(scheme).most_weight if self.matched else 1.0)

    def along(self, scheme: Scheme) -> Along:
        """The limits of a scheme along v."""
        return self._along.setdefault(scheme, Along(self.mdp, scheme))

    def view(self, scheme: Scheme, u: float, v: float | None = None) -> View:
        """The limits at one v."""
        return self._look(scheme, u, v)[0]

    def _look(self, scheme: Scheme, u: float, v: float | None = None) -> tuple[View, Floats]:
        """The limits at one v, and Q of the only one [S, A] (literal: empty)."""
        v, Q = self.v_at(scheme, u) if v is None else v, np.empty((0, 0))
        if self.matched or v == 0.0:
            Q = self.along(scheme)(v)
            if (
                self.mdp.n_states > SMALL
            ):  # Q has an error, which must not decide between tied actions: the first is taken
                Q = Q - slack(TOLERANCE, Q, self.mdp.r) * np.arange(self.mdp.n_actions)
            policies = [Q.argmax(1)]
        else:
            found = self_consistent(self.mdp, scheme, v, self.exploration, quiet=True)
            policies = [np.asarray(x.policy) for x in found]
        numbers = sorted({self.number(policy) for policy in policies})
        worst = max(numbers, key=lambda n: (self.badness(n), n))
        risks = ((x.mean, x.std, x.p_unsafe, x.p_never) for x in map(self.profile, numbers))
        key = tuple(sorted({" ".join(f"{x:.9g}" for x in risk) for risk in risks}))
        return View(scheme, u, v, tuple(numbers), worst, self.badness(worst), key), Q

    def stretches(self, scheme: Scheme) -> list[View]:
        """The first view of every interval of v with the same risks, from v = 0 on."""
        looks = [self._look(scheme, float(u)) for u in np.linspace(0.0, self.most, self.steps + 1)]
        found = [looks[0][0]]
        for low, high in pairwise(looks):
            found += self._between(low, high, inf)
        return found

    def _between(self, low: tuple[View, Floats], high: tuple[View, Floats], before: float) -> list[View]:
        """The first view of every interval after ``low``, up to ``high``; ``before`` is the width of the interval split last."""
        (first, _), (last, _) = low, high
        width = last.u - first.u
        if first.key == last.key:
            return []
        if not self.matched or width <= TIGHT:  # with many limits, something changes at every step
            return [last]
        u = self._crossing(low, high) if width <= 0.5 * before else 0.5 * (first.u + last.u)
        middle = self._look(first.scheme, u)
        return self._between(low, middle, width) + self._between(middle, high, width)

    def _crossing(self, low: tuple[View, Floats], high: tuple[View, Floats]) -> float:
        """About where the policy changes: where the leads of the actions before over those after cross 0 on straight lines.

        The median over the states that change. It is moved towards the middle by the error of a line, which falls with the
        square of the width: then the change lies in the shorter part.
        """
        (first, at_first), (last, at_last) = low, high
        a, b = self.policies[first.worst], self.policies[last.worst]
        s = np.flatnonzero(a != b)
        gap, after = (Q[s, a[s]] - Q[s, b[s]] for Q in (at_first, at_last))
        moved = gap - after > 0.0
        width, middle = last.u - first.u, 0.5 * (first.u + last.u)
        if not moved.any():
            return middle
        u = first.u + width * float(np.median(np.clip(gap[moved] / (gap - after)[moved], 0.0, 1.0)))
        error = max(0.45 * TIGHT, LINE * width**2)
        return u + float(np.clip(middle - u, -error, error))

    def sharpened(self, view: View, goal: Limit) -> View:
        """The first view that keeps the limit, to rounding (literal: to 0.001), from a nearby one that does."""
        if view.v == 0.0:
            return view
        width, tight = (TIGHT, TIGHTEST) if self.matched else (self.most / self.steps, LITERAL_TIGHT)
        low, high = self.view(view.scheme, max(0.0, view.u - width)), view
        while high.u - low.u > tight:
            middle = self.view(view.scheme, 0.5 * (low.u + high.u))
            low, high = (low, middle) if self.keeps(goal, middle.badness) else (middle, high)
        return high


def dial_at(u: float, W: float) -> float:
    """The v at which ρ = vW/((1−v) + vW) is u. With 1/W in place of W it is the inverse: the ρ of a v.

    >>> v = dial_at(0.9, W=0.2)
    >>> round(v, 3), round(dial_at(v, W=1 / 0.2), 3)
    (0.978, 0.9)
    """
    return u / (u + (1.0 - u) * W)


def candidates(mdp: TabularMDP, scheme: Scheme, betas: Iterable[float] | None, mixing: str) -> list[Scheme]:
    """The scheme at each β to try; only itself if it has no such dial."""
    if "beta" not in scheme.params_names():
        _checks.require(betas is None, "betas", f"be None: {type(scheme).__name__} has no dial named beta", betas)
        return [scheme]
    if betas is None and mixing == "literal":
        return [scheme]
    if betas is None:
        own = float(scheme.beta)  # type: ignore[attr-defined]
        lowest, highest = extremes(mdp)
        spread = float((highest - lowest).max()) or 1.0
        betas = [own, 0.0, *(float(f"{tilt / spread * (-1 if own < 0 else 1):.3g}") for tilt in TILTS)]
    try:
        listed = sorted({_checks.real("beta", beta) for beta in betas}, key=lambda beta: (abs(beta), beta))
    except TypeError:
        _checks.fail("betas", "list numbers", betas)
    _checks.require(bool(listed), "betas", "name at least one number", listed)
    return [replace(scheme, beta=beta) for beta in listed]  # type: ignore[call-arg]


def traced(tracer: Tracer, scheme: Scheme, schemes: Sequence[Scheme], quiet: bool) -> list[View]:
    """The views of all candidates; v = 0, which is the same for all, once and first, with the given scheme."""
    views = [tracer.view(scheme, 0.0)]
    with Bar("tracing the frontier", len(schemes), quiet) as bar:
        for i, candidate in enumerate(schemes):
            bar.update(i)
            views += tracer.stretches(candidate)[1:]
    return views


STEPS = 32
MOST_KAPPA, MOST_BETA = 0.99, 1.0


@dataclass(frozen=True, eq=False, repr=False)
class Switches:
    """Where the greedy action of each state first differs from that at dial 0; see :func:`switches`.

    Parameters
    ----------
    dial : {"v", "kappa", "beta"}
    at : array [S]; the smallest value at which it differs, from above; nan if it never does
    to, before : array [S]; the action there, −1 if it never differs; the action at 0

    >>> import safereplay as sr
    >>> rows = [(0, 0, 0.5, 1, 20, True), (0, 0, 0.5, 1, 0, True), (0, 1, 1, 1, 6, True)]     # gamble, or take 6
    >>> found = sr.switches(sr.TabularMDP.from_outcomes(2, 2, rows, start=0), sr.RiskSensitive())
    >>> found.dial, found.before, found.to, found.at.round(3)     # an expectile is worth 10·(1−κ); state 1 is the end
    ('kappa', array([0, 0]), array([ 1, -1]), array([0.4, nan]))
    """

    dial: str
    at: Floats
    to: Ints
    before: Ints

    def __repr__(self) -> str:
        switched = np.flatnonzero(self.to >= 0)
        head = f"Switches({self.dial}: {switched.size} of {self.at.size} states"
        if not switched.size:
            return f"{head})"
        s = int(switched[np.argmin(self.at[switched])])
        return f"{head}, first {s} at {self.at[s]:.3g} from action {self.before[s]} to {self.to[s]})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON; None if a state never switches."""
        return dict(plain(self))


def switches(
    mdp: TabularMDP,
    learner: Any,
    *,
    exploration: Exploration | None = None,
    steps: int | None = None,
    tight: float = 1e-3,
    most: float | None = None,
    starts: int = 5,
    solves: int | None = 60,
) -> Switches:
    """For each state, the smallest value of the learner's dial at which its greedy action differs from that at 0.

    For literal mixing the limit is the first that ``fixed_point(..., visitation="self", seeds=0)`` lists. If none is
    found, no state counts as switched; for a mixture of policies, only states that have switched in all of them.

    Parameters
    ----------
    mdp : TabularMDP
    learner : ReplayQLearning, RiskSensitive or Pessimistic; its own setting of the dial v, kappa or beta is not used
    steps : int, optional; of the grid: 32, or 19 for literal mixing. An interval narrower than a step may be missed.
    tight : float; width to which each switch is found, from above
    most : float, optional; end of the grid: ρ = 0.99 at the most replayed pair (literal: v = 0.95), kappa = 0.99, beta = 1
    exploration, starts, solves : optional; of the search for limits of literal mixing

    Returns
    -------
    Switches

    Raises
    ------
    BadInput : an argument is invalid, or the learner has no such dial

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> found = sr.switches(mdp, sr.ReplayQLearning(sr.VarianceReplay(beta=5.0), mixing="matched"))
    >>> found
    Switches(v: 4 of 24 states, first 12 at 0.397 from action 1 to 0)
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    valid = exploration is None or isinstance(exploration, Exploration)
    _checks.require(valid, "exploration", "be an Exploration", exploration)
    tight = _checks.between("tight", tight, "(0, 1)")
    dial = _dial(learner, mdp, {"exploration": exploration, "starts": starts, "solves": solves})
    count = dial.steps if steps is None else _checks.whole("steps", steps, 1, bits=16)
    end = dial.back(dial.most if most is None else _checks.between("most", most, dial.range))
    grid = [dial.even(x) for x in np.linspace(0.0, end, count + 1).tolist()]
    before = np.asarray(optimal(mdp, mdp.p).argmax(1), np.int64)
    policies: dict[float, Ints] = {}

    def look(x: float) -> Floats:
        """The lead of the action that is best at 0 over the others of its state, [S]."""
        if (found := dial.limit(x)) is None:
            return np.full(before.size, np.finfo(np.float64).tiny)
        Q, error = found
        policies[x] = np.asarray(Q.argmax(1), np.int64)
        return lead(Q, before) + (slack(TIE, Q, mdp.r) + error)

    at = first_below(look, grid, tight)
    to = np.array([-1 if np.isnan(x) else policies[x][s] for s, x in enumerate(at.tolist())], np.int64)
    return Switches(dial.name, at, to, before)


class _Dial(NamedTuple):
    """A dial of a learner on a model."""

    name: str
    range: str  #: interval of its largest value
    most: float  #: that value by default
    steps: int
    limit: Callable[[float], tuple[Floats, float] | None]  #: Q at a value, and its error beyond rounding
    even: Callable[[float], float] = float  #: from the variable in which the grid is even, to the dial
    back: Callable[[float], float] = float  #: the inverse


def _dial(learner: Any, mdp: TabularMDP, search: dict[str, Any]) -> _Dial:
    if isinstance(learner, RiskSensitive):
        return _Dial("kappa", "(0, 1)", MOST_KAPPA, STEPS, lambda x: (exact(mdp, replace(learner, kappa=x)), 0.0))
    if isinstance(learner, Pessimistic):
        return _Dial("beta", "(0, 1]", MOST_BETA, STEPS, lambda x: (exact(mdp, replace(learner, beta=x)), 0.0))
    if not isinstance(learner, ReplayQLearning):
        _checks.fail("learner", "have a dial, as ReplayQLearning, RiskSensitive and Pessimistic do", learner)
    paper_mixing(learner.mixing)

    def literal(v: float) -> tuple[Floats, float] | None:
        found = self_consistent(mdp, learner.scheme, v, seeds=0, **search)
        if not found:
            return None
        Q, residual = found[0].Q, found[0].residual  # alternating policies tie, up to the residual
        return Q, 2.0 * residual * float(np.ptp(Q[~mdp.is_terminal]))

    if learner.mixing == "literal":
        return _Dial("v", "(0, 1)", LITERAL_MOST, LITERAL_STEPS, literal)
    along = Along(mdp, learner.scheme)
    W = along.most_weight
    bounds = ("v", "(0, 1)", dial_at(MOST_RHO, W), STEPS)
    return _Dial(*bounds, lambda v: (along(v), 0.0), lambda u: dial_at(u, W), lambda v: dial_at(v, 1.0 / W))
