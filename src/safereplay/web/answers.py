"""Answers to the page's questions: the public API's results as JSON. No mathematics of its own.

A job takes the parameters of a link and gives plain JSON types; the server has it done by a process that can be
stopped (:mod:`safereplay.web.workers`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

import safereplay as sr

from .. import _checks
from .._types import Floats, Ints
from .links import LearnerLink, TuneLink
from .sides import Side
from .worlds import World

SEARCH: dict[str, Any] = {"starts": 5, "solves": 60, "seeds": 0}  # for limits of literal mixing
LONG = 500.0  # expected steps of an episode beyond which the distribution of its return is not worked out
TIGHT = 5e-3  # how well the dial is known at which an action changes
BARS = 120  # of a distribution, at most
NEAR = 1e-3  # of Q's range: what comes as near to a limit is taken for one
TRACE = 1e-9  # a probability that nobody needs to hear of
TUNING: dict[str, Any] = {"episodes": 20_000, "seeds": 20}
SEVERAL = "Literal mixing has several limits here ({} were found): which one a run ends at depends on its luck."
CUT = "The search for a limit was cut short: this is within {:.1%} of Q's range of one."
IN_TURN = "No policy lasts at this setting: learning goes back and forth between some, and this is their mean."
ENDLESS = "Under this policy an episode may never end."
UNKNOWN = "Under this policy an episode is so unlikely to end that its risk cannot be computed."
ALL_STARTS = "The line begins at the first S; the numbers are over all of them."
ROUND = "The line follows the likeliest outcome of each step, and those lead round here; episodes do end."
TOO_LONG = "Episodes are so long under this policy that the distribution of the return is not drawn."


class Limits(NamedTuple):
    """The limit that is shown, and what else there is to know of it."""

    Q: Floats  #: [S, A]
    found: int = 1  #: how many limits were found
    settled: bool = True  #: whether it is one policy's
    residual: float = 0.0  #: how far it is from being a limit, as a share of Q's range


@lru_cache(maxsize=512)
def limits_of(world: World, side: Side, epsilon: float) -> Limits:
    """What a learner converges to."""
    mdp, learner = world.mdp(), side.learner()
    if isinstance(learner, sr.ReplayQLearning) and learner.mixing == "literal" and learner.v > 0.0:
        exploration = sr.EpsilonGreedy(epsilon)
        found = sr.fixed_point(mdp, learner.scheme, learner.v, "self", exploration, **SEARCH)
        _checks.require(bool(found), "learner", "have a limit that can be found; try matched mixing", side.text)
        return Limits(found[0].Q, len(found), found[0].settled, found[0].residual)
    return Limits(sr.exact(mdp, learner))


@lru_cache(maxsize=512)
def risk_of(world: World, policy: tuple[int, ...]) -> sr.RiskProfile | None:
    """The risk of a policy from where episodes are judged; None where its end is lost to rounding."""
    try:
        return sr.evaluate(world.mdp(), np.array(policy), start=world.start_distribution(), quiet=True)
    except sr.BadInput:  # the policy is ours, so this is all that it can be
        return None


def solve(parameters: dict[str, Any]) -> dict[str, Any]:
    """The exact limit of one learner, the way it goes, and its risk."""
    link = LearnerLink.model_validate(parameters)
    world, side = link.to_world(), link.to_side()
    mdp = world.mdp()
    limits = limits_of(world, side, link.epsilon)
    policy = np.asarray(limits.Q.argmax(1), np.int64)
    risk = risk_of(world, tuple(policy.tolist()))
    short = risk is not None and isfinite(risk.length) and risk.length <= LONG
    drawn = route(mdp, policy)
    return {
        "cells": mdp.layout.cells if mdp.layout is not None else (),
        "terminal": mdp.is_terminal.tolist(),
        "start": world.judged(),
        "origin": mdp.origin,
        "Q": rounded(limits.Q),
        "policy": shown(mdp, policy),
        **drawn,
        "risk": {**numbers(risk, "mean", "std", "p_unsafe", "p_never", "length"), "cvar10": _tail(risk, short)},
        "distribution": _bars(risk) if risk is not None and short else None,
        "label": side.learner().describe(),
        "limits": limits.found,
        "note": _note(limits, risk, short, drawn["end"], len(world.judged())),
    }


def _note(limits: Limits, risk: sr.RiskProfile | None, short: bool, end: str, starts: int) -> str:
    """What a reader should know beside the numbers."""
    endless = risk is not None and risk.p_never > TRACE
    notes = {
        SEVERAL.format(limits.found): limits.found > 1,
        IN_TURN: not limits.settled and limits.residual <= NEAR,
        CUT.format(limits.residual): not limits.settled and limits.residual > NEAR,
        UNKNOWN: risk is None,
        ENDLESS: endless,
        TOO_LONG: risk is not None and not short and not endless,
        ROUND: short and end == "loop",
        ALL_STARTS: starts > 1,
    }
    return " ".join(note for note, said in notes.items() if said)


def switches(parameters: dict[str, Any]) -> dict[str, Any]:
    """The smallest dial at which each state's action changes."""
    link = LearnerLink.model_validate(parameters)
    search = {name: SEARCH[name] for name in ("starts", "solves")} | {"exploration": sr.EpsilonGreedy(link.epsilon)}
    found = sr.switches(link.to_world().mdp(), link.to_side().learner(), tight=TIGHT, **search)
    return {"dial": found.dial, "first": [_finite(x) for x in found.at], "to": found.to.tolist()}


def tune(parameters: dict[str, Any]) -> dict[str, Any]:
    """The gentlest replay that keeps a limit, and the frontier it lies on."""
    link = TuneLink.model_validate(parameters)
    world, side = link.to_world(), link.to_side()
    learner = side.learner()
    if not isinstance(learner, sr.ReplayQLearning):
        _checks.fail("learner", "be a replay", side.text)
    plan = sr.tune(
        world.mdp(),
        learner.scheme,
        max_p_unsafe=link.limit,
        start=world.start_distribution(),
        mixing=learner.mixing,
        exploration=sr.EpsilonGreedy(link.epsilon),
        quiet=True,
        **TUNING,
    )
    title, *lines = str(plan).splitlines()
    own = {"v": plan.v, "beta": plan.beta, "pareto": True, **numbers(plan.profile, "mean", "p_unsafe")}
    return {
        "meets": plan.meets,
        "confirmed": plan.confirmed,
        "learner": {**side.to_dict(), "v": plan.v, "beta": plan.beta},
        "v_smallest": plan.v_smallest,
        "summary": [["answer", title], *([line[:22].strip(), line[22:].strip()] for line in lines)],
        "plain": _point(plan.plain),
        "plan": own,
        "frontier": [_point(point) for point in plan.frontier],
        "ceiling": [{"risk": point.limit, "mean": _finite(point.value)} for point in plan.ceiling_frontier],
    }


#: What the workers can be asked to do.
JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"solve": solve, "switches": switches, "tune": tune}


# -- what drawings need -----------------------------------------------------------------------------------------------


def route(mdp: sr.TabularMDP, policy: Ints) -> dict[str, Any]:
    """The path that a policy is drawn as, and the verdict on it."""
    drawn = sr.path(mdp, policy)
    return {"path": drawn.states, "end": drawn.end, "verdict": sr.verdict(mdp, policy)}


def shown(mdp: sr.TabularMDP, policy: Ints) -> list[int]:
    """A policy as arrows: −1 where there is nothing to do."""
    return np.where(mdp.is_terminal, -1, policy).tolist()  # type: ignore[no-any-return]


def rounded(Q: Floats) -> list[list[float]]:
    """Action values with the digits that a reader can see."""
    return [[float(f"{x:.6g}") for x in row] for row in Q]


def numbers(risk: Any, *names: str) -> dict[str, float | None]:
    """Numbers of a profile or a point; None for what is not finite, and for all of what is not there."""
    return {name: _finite(getattr(risk, name, None)) for name in names}


def _finite(x: float | None) -> float | None:
    return float(x) if x is not None and isfinite(x) else None


def _tail(risk: sr.RiskProfile | None, short: bool) -> float | None:
    return _finite(risk.cvar(0.1)) if risk is not None and short else None


def _point(point: Any) -> dict[str, Any]:
    return {**numbers(point, "v", "beta", "mean", "p_unsafe"), "pareto": point.pareto}


def _bars(risk: sr.RiskProfile) -> dict[str, Any]:
    """The distribution of the return, gathered into few enough bars to draw."""
    found = risk.distribution
    k = np.isfinite(found.returns)
    returns, chances = found.returns[k], found.probabilities[k]
    if returns.size > BARS:
        chances, edges = np.histogram(returns, BARS, weights=chances)
        returns = 0.5 * (edges[1:] + edges[:-1])
    keep = chances > TRACE
    return {
        "returns": [float(f"{x:.6g}") for x in returns[keep]],
        "probabilities": [float(f"{x:.6g}") for x in chances[keep]],
        "exact": found.exact,
    }
