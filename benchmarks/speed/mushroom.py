"""Tabular Q-learning compared with MushroomRL's, on the same grid.

MushroomRL pins other versions of numpy and torch, so it runs in its own environment, through ``benchmarks/mushroom.py``:
give its interpreter as ``--mushroom PYTHON``. Both run Q-learning with the same ε and step sizes n^−0.6 on the cliff.
Updates per CPU second, the best of alternating rounds. MushroomRL is slower and runs fewer steps per round; start-up is
not timed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from safereplay import _checks
from safereplay.errors import MissingExtra
from safereplay.grids import cliff
from safereplay.learners import QLearning
from safereplay.mdp import TabularMDP
from safereplay.runs import learn
from safereplay.schedules import EpsilonGreedy, PowerStep

from .learning import our_updates, rate
from .sheets import Effort, Part, Rows, Sheet, Task, span

HORIZON = 1_000
SEEDS = 50  # runs of safereplay per round
SCRIPT = Path(__file__).parents[1] / "mushroom.py"
HOW = "MushroomRL needs its own environment (see benchmarks/mushroom.py): safereplay bench --mushroom PYTHON"


@dataclass(frozen=True)
class Rival:
    """Updates per second of both on one grid."""

    grid: str
    version: str
    steps: int  #: of MushroomRL per round
    theirs: float
    ours: float

    @property
    def ratio(self) -> float:
        """The speed-up of safereplay."""
        return self.ours / self.theirs


def interpreter(given: str | None) -> str | None:
    """The Python with MushroomRL: the given one, else this one if it has it; else None."""
    if given is not None:
        found = Path(given)
        _checks.require(found.is_file(), "mushroom", "be a Python with mushroom_rl", given)
        return str(found)
    return sys.executable if find_spec("mushroom_rl") else None


def finite_mdp(mdp: TabularMDP) -> dict[str, Any]:
    """A model as MushroomRL's FiniteMDP: p and r [S][A][S']. (s, a, s') must determine the reward."""
    shape = (mdp.n_pairs, mdp.n_states)
    p, r = np.zeros(shape), np.zeros(shape)
    np.add.at(p, (mdp.pair, mdp.s_next), mdp.p)
    r[mdp.pair, mdp.s_next] = mdp.r
    known = bool((r[mdp.pair, mdp.s_next] == mdp.r).all())
    _checks.require(known, "model", "have one reward for each (s, a, s')", mdp.name)
    ends = bool((mdp.terminal == mdp.is_terminal[mdp.s_next]).all())
    _checks.require(ends, "model", "end where a state has no outcomes", mdp.name)
    whole = (mdp.n_states, mdp.n_actions, mdp.n_states)
    tables = {"p": p.reshape(whole).tolist(), "r": r.reshape(whole).tolist(), "start": mdp.start.tolist()}
    return {**tables, "gamma": mdp.gamma, "horizon": HORIZON}


def run_theirs(python: str, mdp: TabularMDP, steps: int, seed: int) -> dict[str, Any]:
    """What ``benchmarks/mushroom.py`` measured: its version, updates, seconds and Q."""
    dials = {"epsilon": EpsilonGreedy().epsilon, "power": PowerStep().power, "steps": steps, "seed": seed}
    command = [python, "-W", "ignore", str(SCRIPT)]
    ran = subprocess.run(command, input=json.dumps(finite_mdp(mdp) | dials), capture_output=True, text=True)  # noqa: S603
    if ran.returncode:
        lines = ran.stderr.strip().splitlines() or ["no output"]
        raise MissingExtra(f"{python} must be able to run MushroomRL, got '{lines[-1]}'; {HOW}")
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def measure_mushroom(python: str, effort: Effort) -> list[Rival]:
    """Q-learning on the cliff, alternating."""
    mdp, learner = cliff(), QLearning()
    learn(mdp, learner, 1, 1, threads=1, quiet=True).whole()  # compiles
    theirs, ours, version = [], [], ""
    for k in range(effort.rounds):
        found = run_theirs(python, mdp, effort.steps, k)
        version = found["version"]
        theirs.append(found["updates"] / found["seconds"])
        ours.append(rate(lambda seed: our_updates(mdp, learner, effort.episodes, range(seed, seed + SEEDS)), k))
    return [Rival(mdp.name, version, effort.steps, max(theirs), max(ours))]


def tasks(effort: Effort, python: str | None = None) -> list[Task]:
    """One task, if there is a Python with MushroomRL."""
    found = interpreter(python)
    return [Task("MushroomRL: Q-learning on the cliff", partial(measure_mushroom, found, effort))] if found else []


def sheet(rows: Rows) -> Sheet:
    """Both speeds, as a table."""
    return Sheet(
        "Q-learning and MushroomRL, updates per second",
        "The cliff as its FiniteMDP, ε-greedy and n^−0.6 on both sides, one thread, CPU seconds, the best round; MushroomRL "
        "in its own environment, by `benchmarks/mushroom.py`.",
        ("grid", "MushroomRL", "steps per round", "its updates/s", "safereplay", "ratio"),
        [
            (row.grid, row.version, f"{row.steps:,}", f"{row.theirs:,.0f}", f"{row.ours:,.0f}", f"{row.ratio:,.0f}×")
            for row in rows
        ],
        f"safereplay does {span(row.ratio for row in rows)} times as many updates as MushroomRL.",
        words=2,
    )


PART = Part("mushroom", tasks, sheet)
