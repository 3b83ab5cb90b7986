"""The tasks of the study: a world to train on, the world that judges, and the terms of training.

Those of the study with Stable-Baselines3 have its hyper-parameters. Any other world of the catalog has the same, with rewards divided by
the largest |Q*| or TD error of Q*, whichever is more: beyond 1 the Huber loss is linear, and fits medians.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

import safereplay as sr
from safereplay import _checks, catalog
from safereplay.jax import PointWorld, TabularWorld
from safereplay.jax.worlds import World
from safereplay.mdp import TabularMDP
from studies.deep.worlds import SMALL, WORLDS

from .loop import Terms

SHARED = ("cliff", "volatile", "delayed", "betting", "maze", "point")  #: with the study that uses Stable-Baselines3
#: Other worlds of the catalog that plain DQN learns: a median return within a twentieth of the gap between random and best.
#: (``late_cliff`` is the delayed cliff.)
MORE = ("bridge", "lottery", "ledge", "market", "two_gambles", "river", "insurance", "flood", "windfall")
STEPS = 30_000
FINER = 10.0  #: QR-DQN's rewards are larger by this factor, so that its loss fits quantiles


class Task(NamedTuple):
    """A task."""

    name: str
    world: World
    judged: World
    mdp: TabularMDP | None
    terms: Terms
    scales: dict[str, float]  #: what rewards are divided by, of "dqn" and "qrdqn"


@cache
def task_named(name: str) -> Task:
    """A task by name."""
    _checks.choice("world", name, (*SHARED, *catalog.WORLDS))
    if name not in SHARED:
        mdp = catalog.world(name)()
        scale = _largest(mdp)
        terms = Terms(STEPS, mdp.gamma, scale, **_terms(SMALL))
        return _table(name, mdp, 100, terms, {"dqn": scale, "qrdqn": scale / FINER})
    deep = WORLDS[name]
    scales = {kind: float(getattr(deep, kind).get("reward_scale", deep.reward_scale)) for kind in ("dqn", "qrdqn")}
    terms = Terms(deep.steps, deep.gamma, scales["dqn"], layers=deep.net_arch, **_terms(deep.dqn))
    if deep.mdp is not None:
        return _table(name, deep.mdp(), deep.time_limit, terms, scales)
    limit = deep.time_limit
    return Task(name, PointWorld(True, limit), PointWorld(False, limit), None, terms, scales)


def _table(name: str, mdp: TabularMDP, limit: int, terms: Terms, scales: dict[str, float]) -> Task:
    judged = TabularWorld(mdp.with_start(mdp.origin), limit)
    return Task(name, TabularWorld(mdp, limit), judged, mdp, terms, scales)


def _terms(arguments: Any) -> dict[str, Any]:
    """SB3's arguments under the names of :class:`Terms`."""
    return {
        "rates": (arguments["learning_rate"], arguments["final_learning_rate"]),
        "batch": arguments["batch_size"],
        "buffer": arguments["buffer_size"],
        "first": arguments["learning_starts"],
        "every": arguments["train_freq"],
        "target_every": arguments["target_update_interval"],
        "explored": arguments["exploration_fraction"],
        "least": arguments["exploration_final_eps"],
    }


def _largest(mdp: TabularMDP) -> float:
    """The largest |Q*(s,a)|, or |r + γ·max Q*(s',·) − Q*(s,a)|."""
    Q = np.asarray(sr.exact(mdp, sr.QLearning()))
    errors = mdp.r + mdp.gamma * np.where(mdp.terminal, 0.0, Q.max(1)[mdp.s_next]) - Q.ravel()[mdp.pair]
    return float(max(np.abs(Q).max(), np.abs(errors).max()))


@cache
def random_return(name: str) -> float:
    """The mean return of uniformly random actions in judged episodes; those of a table have no time limit."""
    task = task_named(name)
    if name in SHARED:
        return WORLDS[name].random_return
    assert task.mdp is not None
    any_action = np.full((task.mdp.n_states, task.mdp.n_actions), 1.0 / task.mdp.n_actions)
    return float(sr.evaluate(task.mdp, any_action, start=task.mdp.origin, quiet=True).mean)
