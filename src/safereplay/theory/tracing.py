"""Exact limits over v: what each replay converges to, the risk of that, and where it changes.

A policy is piecewise constant in v. Each β is traced over v on a grid that is even in ρ, the share of replays at the
pair that is replayed most, up to ρ = 0.99, since v acts through ρ alone; where the risk differs between two points,
their boundaries are found by bisection. A stretch narrower than a step of the grid may be missed.

Ref: Szlak & Shamir (2021), Theorem 1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf, isnan
from typing import Any, NamedTuple

import numpy as np

from .. import _checks
from .._progress import Bar
from .._types import Ints
from ..mdp import TabularMDP
from ..schedules import Exploration
from ..schemes import Scheme
from .linear import largest
from .occupancy import SLACK, Limit
from .risk import RiskProfile, evaluate
from .valued import Along
from .visits import self_consistent

MOST_RHO = 0.99  # share of replays at the most replayed pair up to which v is looked at
STEPS = 33  # of ρ, before boundaries are looked for
TIGHT, TIGHTEST = 1e-7, 1e-13  # width of a boundary in ρ, and of the one that matters
TILTS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # β times the widest range of rewards at a pair
LITERAL_STEPS, LITERAL_MOST, LITERAL_TIGHT = 19, 0.95, 1e-3  # in v, for literal mixing: its limits are far dearer


class View(NamedTuple):
    """The limits of a replay at one v."""

    scheme: Scheme
    u: float  #: ρ at the most replayed pair
    v: float
    policies: tuple[int, ...]
    worst: int  #: the policy with the worst risk
    badness: float  #: its risk, signed so that less is better; inf where it may never end
    key: tuple[str, ...]  #: what their risks are: views of one key are alike


class Tracer:
    """Exact limits and exact risks, each worked out once."""

    def __init__(self, mdp: TabularMDP, limit: Limit, start: Any, mixing: str, exploration: Exploration) -> None:
        self.mdp, self.limit, self.start, self.size = mdp, limit, start, largest(mdp.r)
        self.mixing, self.exploration, self.matched = mixing, exploration, mixing == "matched"
        self.steps, self.most = (STEPS, MOST_RHO) if self.matched else (LITERAL_STEPS, LITERAL_MOST)
        self.policies: list[Ints] = []
        self._number: dict[bytes, int] = {}
        self._profiles: dict[int, RiskProfile] = {}
        self._along: dict[Scheme, Along] = {}

    def number(self, policy: Ints) -> int:
        """The number of a policy, counted from 0 as they come."""
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

    def badness(self, number: int) -> float:
        """The risk of a policy, less is better; inf where it may never end."""
        profile = self.profile(number)
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
        v = self.v_at(scheme, u) if v is None else v
        numbers = sorted({self.number(policy) for policy in self._limits(scheme, v)})
        worst = max(numbers, key=lambda n: (self.badness(n), n))
        key = tuple(sorted({_fingerprint(self.profile(n)) for n in numbers}))
        return View(scheme, u, v, tuple(numbers), worst, self.badness(worst), key)

    def _limits(self, scheme: Scheme, v: float) -> list[Ints]:
        if self.matched or v == 0.0:
            return [self.along(scheme)(v).argmax(1)]
        return [np.asarray(x.policy) for x in self_consistent(self.mdp, scheme, v, self.exploration, quiet=True)]

    def stretches(self, scheme: Scheme) -> list[View]:
        """The first view of every stretch of v with the same risks, from v = 0 on."""
        views = [self.view(scheme, float(u)) for u in np.linspace(0.0, self.most, self.steps + 1)]
        found = views[:1]
        for low, high in pairwise(views):
            found += self._between(low, high)
        return found

    def _between(self, low: View, high: View) -> list[View]:
        if low.key == high.key:
            return []
        if not self.matched or high.u - low.u <= TIGHT:  # of many limits, something changes at every step
            return [high]
        middle = self.view(low.scheme, 0.5 * (low.u + high.u))
        return self._between(low, middle) + self._between(middle, high)

    def sharpened(self, view: View, goal: Limit) -> View:
        """The first view that keeps the limit, to rounding (literal: to 0.001), from one that does and is nearly it."""
        if view.v == 0.0:
            return view
        width, tight = (TIGHT, TIGHTEST) if self.matched else (self.most / self.steps, LITERAL_TIGHT)
        low, high = self.view(view.scheme, max(0.0, view.u - width)), view
        while high.u - low.u > tight:
            middle = self.view(view.scheme, 0.5 * (low.u + high.u))
            if self.keeps(goal, middle.badness):
                high = middle
            else:
                low = middle
        return high


def dial_at(u: float, W: float) -> float:
    """The v at which ρ = vW/((1−v) + vW) is u. With 1/W in place of W it is the other way round: the ρ of a v.

    >>> v = dial_at(0.9, W=0.2)
    >>> round(v, 3), round(dial_at(v, W=1 / 0.2), 3)
    (0.978, 0.9)
    """
    return u / (u + (1.0 - u) * W)


def _fingerprint(profile: RiskProfile) -> str:
    return " ".join(f"{x:.9g}" for x in (profile.mean, profile.std, profile.p_unsafe, profile.p_never))


def candidates(mdp: TabularMDP, scheme: Scheme, betas: Iterable[float] | None, mixing: str) -> list[Scheme]:
    """The scheme at each β that is tried; only itself where it has no such dial."""
    if "beta" not in scheme.params_names():
        _checks.require(betas is None, "betas", f"be None: {type(scheme).__name__} has no dial named beta", betas)
        return [scheme]
    own = float(scheme.beta)  # type: ignore[attr-defined]
    if betas is None and mixing == "literal":
        return [scheme]
    if betas is None:
        lowest, highest = np.full(mdp.n_pairs, inf), np.full(mdp.n_pairs, -inf)
        np.minimum.at(lowest, mdp.pair, mdp.r)
        np.maximum.at(highest, mdp.pair, mdp.r)
        spread = float((highest - lowest).max()) or 1.0
        betas = [own, 0.0, *(float(f"{tilt / spread * (-1 if own < 0 else 1):.3g}") for tilt in TILTS)]
    try:
        listed = sorted({_checks.real("beta", beta) for beta in betas}, key=lambda beta: (abs(beta), beta))
    except TypeError:
        _checks.fail("betas", "list numbers", betas)
    _checks.require(bool(listed), "betas", "name at least one number", listed)
    return [replace(scheme, beta=beta) for beta in listed]  # type: ignore[call-arg]


def traced(tracer: Tracer, scheme: Scheme, schemes: Sequence[Scheme], quiet: bool) -> list[View]:
    """The views of all candidates; v = 0, which is the same for all, once and first, with the scheme as it came."""
    views = [tracer.view(scheme, 0.0)]
    with Bar("tracing the frontier", len(schemes), quiet) as bar:
        for i, candidate in enumerate(schemes):
            bar.update(i)
            views += tracer.stretches(candidate)[1:]
    return views
