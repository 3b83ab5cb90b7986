"""The learners of sides, and designed replay: a limit on P(unsafe) as a dial.

The range of this dial depends on the world: from the least P(unsafe) of any policy to that of plain Q-learning. Without a limit, a
designed replay has one at a quarter of this range.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache
from math import ceil, floor, inf, log10
from typing import Any, NamedTuple

import numpy as np

import safereplay as sr

from .. import _checks, catalog
from .._config import plain
from ..errors import Unreachable
from ..theory.constrained import Ceilings
from ..theory.occupancy import Limit
from ..theory.solver import greedy
from .kinds import Side
from .state import World

STEPS = 50  # the least number of steps of the dial
DEFAULT = 0.25  # of the range
COARSE = 10  # steps of the dial between two limits that are tried first
PROVED = 1e-9  # a gap up to this is rounding


class LimitRange(NamedTuple):
    """The range of the limit on P(unsafe), and the limit that is used if none is given."""

    min: float
    max: float
    step: float
    default: float

    @staticmethod
    def between(least: float, most: float) -> LimitRange:
        """The range over risks from ``least`` to ``most``, in steps of a power of ten.

        >>> LimitRange.between(0.0278, 0.119)
        LimitRange(min=0.028, max=0.119, step=0.001, default=0.051)
        """
        step = 10.0 ** floor(log10(max(most - least, 1e-3) / STEPS))
        low = ceil(least / step - 1e-6)
        high = max(ceil(most / step - 1e-6), low + 1)
        steps = low, high, 1, low + round(DEFAULT * (high - low))
        return LimitRange(*(min(1.0, float(f"{n * step:.10g}")) for n in steps))


def learner_of(world: World, side: Side) -> sr.Learner:
    """The learner of a side; a designed replay is one for its world."""
    dials = side.dials()
    if side.kind == "design":
        return design_of(world, dials["limit"]).learner
    if side.kind == "replay":
        scheme = catalog.scheme(dials["scheme"])
        own = {name: dials[name] for name in scheme.dials()}
        return sr.ReplayQLearning(scheme(**own), v=dials["v"], mixing=dials["mixing"])
    return catalog.learner(side.kind)(**dials)


@lru_cache(maxsize=64)
def limit_range(world: World) -> LimitRange:
    """The range of the limit in a world."""
    mdp, start = world.mdp(), world.start_distribution()
    _checks.require(bool(mdp.unsafe.any()), "world", "have a hazard or a volatile move, for designed replay", "none")
    least = Ceilings(mdp, Limit("max_p_unsafe", 1.0), start).best
    policy = greedy(sr.exact(mdp, sr.QLearning()), mdp.r)
    return LimitRange.between(0.0 if least != least else least, sr.evaluate(mdp, policy, start, quiet=True).p_unsafe)


@lru_cache(maxsize=512)
def design_of(world: World, limit: float | None) -> sr.Design:
    """The designed replay for a limit on P(unsafe), or for the default limit.

    The best policy under a larger limit that also keeps this one is the best under this one. So a few designs serve the whole dial.
    """
    dial, plans = limit_range(world), _plans(world)
    limit = dial.default if limit is None else limit
    larger = min(1.0, ceil(limit / (COARSE * dial.step) - 1e-6) * COARSE * dial.step)
    with suppress(Unreachable):
        if larger > limit and not _serving(plans, limit):
            plans.append(_planned(world, larger))
    if not _serving(plans, limit):
        plans.append(_planned(world, limit))
        return plans[-1].plan
    return _serving(plans, limit)[0].plan


class Planned(NamedTuple):
    """A design, for all limits from its risk to the bound."""

    bound: float
    risk: float
    plan: sr.Design


@lru_cache(maxsize=64)
def _plans(world: World) -> list[Planned]:
    """The designs for a world so far."""
    return []


def _serving(plans: list[Planned], limit: float) -> list[Planned]:
    """The designs that can be used for a limit."""
    return [one for one in plans if one.risk <= limit + 1e-12 and limit <= one.bound]


def _risk_with_ties(world: World, plan: sr.Design) -> float:
    """The largest P(unsafe) of a policy that learning may end with: the designed one, or with one action that is as good; inf if not proved best."""
    if plan.price is None or plan.price.found.gap > PROVED:
        return inf
    ties = np.argwhere(plan.tied & (plan.price.found.policy >= 0)[:, None])
    others = [np.where(np.arange(plan.policy.size) == s, a, plan.policy) for s, a in ties]
    mdp, start = world.mdp(), world.start_distribution()
    return max(sr.evaluate(mdp, policy, start, quiet=True).p_unsafe for policy in (plan.policy, *others))


def _planned(world: World, limit: float) -> Planned:
    """The design for exactly this limit."""
    try:
        plan = sr.design(world.mdp(), max_p_unsafe=limit, start=world.start_distribution(), quiet=True)
        return Planned(limit, _risk_with_ties(world, plan), plan)
    except Unreachable as error:
        found = str(error).replace("max_p_unsafe must be a limit", "limit must be one")
        raise Unreachable(re.sub(r"(policies that keep it): .*", r"\1", found)) from None


def design_shown(world: World, limit: float | None) -> dict[str, Any]:
    """A designed replay for the page: the dial, the learner, and the pairs that are replayed."""
    plan, dial = design_of(world, limit), limit_range(world)
    return {
        **{name: getattr(dial, name) for name in ("min", "max", "step")},
        "limit": dial.default if limit is None else limit,
        "learner": plain(plan.learner),
        "replays": [plain(one._asdict()) for one in plan.replays],
    }
