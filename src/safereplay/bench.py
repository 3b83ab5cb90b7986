"""How fast we are: the compiled loop beside a plain Python one and as pairs grow, and exact solving beside its peers.

An update is one change of Q(s,a): an MDP iteration or a replay. Three measurements:

    speed    updates a second of :func:`safereplay.learn` on one thread and of ``benchmarks/plain.py``, Algorithm 1 as one
             writes it from the paper. Both learn the same thing on the same grid for the same number of episodes, in
             turns, and the best of each counts. The loop is compiled beforehand; its set-up is in the time.
    scaling  nanoseconds an update, replays included, on random models of 10² to 10⁶ pairs. Every pair's reward is
             random, so every pair that was seen often enough has a weight in the sum tree; next states are uniform, so
             that memory is visited at random. Set-up and a warm-up that visits the pairs are not in the time.

    solving  seconds to the optimal values of models of 10⁴ and 10⁵ states, beside quantecon and mdpsolver where they are
             installed: see :mod:`safereplay.peers`.

Times of updates are CPU seconds of this process: what else the machine does counts as little as it can.

>>> from safereplay import bench
>>> row = bench.Speed("cliff", "Q-learning", 20_000, plain=500_000.0, ours=25_000_000.0)
>>> row.ratio
50.0
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _checks, grids
from .errors import BadFile
from .kernels import rng, step
from .learners import Learner, Pessimistic, QLearning, ReplayQLearning, RiskSensitive, WorstCase, WorstTransition
from .mdp import TabularMDP
from .peers import MODELS, Solving, measure_solving
from .runs import learn, make_program, model_memory, sampling_model
from .schedules import EpsilonGreedy, PowerStep
from .schemes import VarianceReplay

if TYPE_CHECKING:
    from rich.table import Table

Progress = Callable[[float, str], None]  #: told the share that is done, and what is next

GRIDS = tuple(grids.NAMED)
BETA = 5.0
PAIRS = (100, 1_000, 10_000, 100_000, 1_000_000)
ACTIONS = 4
TIMED_STEPS = 400_000  # iterations between two looks at the clock in a scaling measurement
FOREVER = 1 << 60  # episodes


class Effort(NamedTuple):
    """How much to measure."""

    episodes: int  #: of every run
    seeds: int  #: runs of ours for each of plain.py's
    rounds: int  #: of which the best counts
    warm_up: float  #: MDP iterations a pair before a scaling measurement
    pairs: tuple[int, ...]
    states: tuple[int, ...]  #: of the models that are solved


FULL = Effort(20_000, 50, 5, 10.0, PAIRS, (10_000, 100_000))
QUICK = Effort(10_000, 50, 2, 2.0, PAIRS[::2], (10_000,))


@dataclass(frozen=True)
class Speed:
    """Updates a second of one learner on one grid, plain and ours."""

    grid: str
    learner: str
    episodes: int
    plain: float
    ours: float

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return self.ours / self.plain


@dataclass(frozen=True)
class Scaling:
    """What an update costs on a random model of so many pairs."""

    pairs: int
    nanoseconds: float  #: an update
    visited: float  #: share of the pairs that were visited
    weighted: float  #: share of the pairs that have a weight in the sum tree


@dataclass(frozen=True)
class BenchReport:
    """All measurements, and the machine they were made on."""

    rows: tuple[Speed, ...]
    scaling: tuple[Scaling, ...]
    machine: dict[str, str]
    solving: tuple[Solving, ...] = ()

    @property
    def growth(self) -> float:
        """The cost of an update with the most pairs over that with the fewest."""
        return self.scaling[-1].nanoseconds / self.scaling[0].nanoseconds

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        rows = [{**asdict(row), "ratio": row.ratio} for row in self.rows]
        scaling = [asdict(row) for row in self.scaling]
        solving = [asdict(row) for row in self.solving]
        return {"machine": self.machine, "rows": rows, "scaling": scaling, "growth": self.growth, "solving": solving}

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)


class Contest(NamedTuple):
    """A learner of ours and what plain.py calls it."""

    learner: Learner
    kind: str
    v: float = 0.0
    beta: float = BETA
    kappa: float = 0.5

    def dials(self) -> dict[str, Any]:
        """What ``plain.run`` needs to know about the learner."""
        return {"kind": self.kind, "v": self.v, "beta": self.beta, "kappa": self.kappa}


def contests() -> list[Contest]:
    """Every learner, as both sides know it."""
    scheme = VarianceReplay(BETA)
    return [
        Contest(QLearning(), "q"),
        Contest(ReplayQLearning(scheme, v=0.0), "replay"),
        Contest(ReplayQLearning(scheme, v=0.5), "replay", v=0.5),
        Contest(ReplayQLearning(scheme, v=0.5, mixing="matched"), "matched", v=0.5),
        Contest(RiskSensitive(0.5), "mihatsch", kappa=0.5),
        Contest(Pessimistic(0.5), "gaskett", beta=0.5),
        Contest(WorstCase(), "worst"),
        Contest(WorstTransition(), "worst-transition"),
    ]


# -- beside plain Python -----------------------------------------------------------------------------------------------


def load_plain() -> Any:
    """The module ``benchmarks/plain.py`` of the checkout, or the copy of it that the wheel holds."""
    here = Path(__file__)
    places = [here.parents[2] / "benchmarks" / "plain.py", here.with_name("_plain.py")]
    for path in places:
        spec = importlib.util.spec_from_file_location("safereplay_plain", path) if path.is_file() else None
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
    raise BadFile(f"{places[0]} must exist, got nothing there; reinstall safereplay")


def plain_model(mdp: TabularMDP) -> dict[str, Any]:
    """A model as the arguments of ``plain.run``; its start must be uniform over some states."""
    starts = np.flatnonzero(mdp.start)
    alike = bool(np.allclose(mdp.start[starts], 1.0 / starts.size))
    _checks.require(alike, "start", "be uniform over the states it can be", mdp.start)
    columns = (mdp.pair, mdp.p, mdp.r, mdp.s_next, mdp.terminal)
    outcomes: dict[tuple[int, int], list[tuple[float, tuple[float, int, bool]]]] = {}
    for i, p, r, s_next, ends in zip(*(column.tolist() for column in columns), strict=True):
        outcomes.setdefault(divmod(i, mdp.n_actions), []).append((p, (r, s_next, ends)))
    return {
        "outcomes": outcomes,
        "n_states": mdp.n_states,
        "n_actions": mdp.n_actions,
        "start_states": starts.tolist(),
        "gamma": mdp.gamma,
    }


def measure_speed(grid: str, contest: Contest, effort: Effort) -> Speed:
    """One learner on one grid: a run of plain.py, then some of ours, and again; the best of each."""
    mdp = grids.NAMED[_checks.choice("grid", grid, GRIDS)]()
    plain, model = load_plain(), plain_model(mdp)
    learner, episodes = contest.learner, effort.episodes
    learn(mdp, learner, episodes=1, seeds=1, threads=1, quiet=True)  # compiles

    def run_plain(seed: int) -> int:
        return int(plain.run(**model, **contest.dials(), episodes=episodes, seed=seed)[1])

    def run_ours(seed: int) -> int:
        runs = learn(mdp, learner, episodes, range(seed, seed + effort.seeds), threads=1, quiet=True)
        return int(runs.visits.sum() + runs.replays.sum())

    speeds = [(_rate(run_plain, i), _rate(run_ours, i)) for i in range(effort.rounds)]
    best_plain, best_ours = (max(side) for side in zip(*speeds, strict=True))
    return Speed(grid, learner.describe(), episodes, best_plain, best_ours)


def _rate(run: Callable[[int], int], seed: int) -> float:
    """Updates per CPU second of a run."""
    began = time.process_time()
    updates = run(seed)
    return updates / max(time.process_time() - began, 1e-9)


# -- as the number of pairs grows --------------------------------------------------------------------------------------


def random_model(n_pairs: int, seed: int = 0) -> TabularMDP:
    """A model of ``n_pairs`` pairs with two outcomes each: uniform next states, different rewards, 1 in 50 ends."""
    generator = np.random.default_rng(seed)
    n_states, n_outcomes = n_pairs // ACTIONS, 2 * n_pairs
    pair = np.repeat(np.arange(n_pairs), 2)
    p = generator.uniform(0.2, 0.8, n_pairs)
    columns = [
        pair // ACTIONS,
        pair % ACTIONS,
        np.column_stack((p, 1.0 - p)).ravel(),
        generator.integers(n_states, size=n_outcomes),
        generator.normal(size=n_outcomes),
        generator.random(n_outcomes) < 0.02,
        np.zeros(n_outcomes),
    ]
    return TabularMDP.from_outcomes(n_states, ACTIONS, np.column_stack(columns), 0.9, name=f"random-{n_pairs}")


def measure_scaling(n_pairs: int, warm_up: float, rounds: int = 7) -> Scaling:
    """What an update of replay (v = ½) costs, after a warm-up of ``warm_up`` MDP iterations a pair; the best round."""
    mdp = random_model(n_pairs)
    learner = ReplayQLearning(VarianceReplay(1.0), v=0.5)
    program = make_program(learner, EpsilonGreedy(0.5), PowerStep(), mdp.gamma, mdp.n_actions)
    model, memory = sampling_model(mdp), model_memory(mdp)
    tables = step.allocate(mdp.n_states, mdp.n_actions, 0.0, rng.seeded(0))

    def nanoseconds(steps: int) -> float:
        before, began = int(tables.counts.sum()), time.process_time_ns()
        program.run(model, memory, tables, program.dials, FOREVER, 1_000, steps)
        spent = time.process_time_ns() - began
        return spent / (int(tables.counts.sum()) - before)

    nanoseconds(max(TIMED_STEPS, int(2 * warm_up * n_pairs)))
    best = min(nanoseconds(TIMED_STEPS) for _ in range(rounds))
    weights = memory.tree[memory.tree.size // 2 :][:n_pairs]
    visited = float((tables.counts[:, step.VISITS] > 0).mean())
    return Scaling(n_pairs, best, visited, float((weights > 0.0).mean()))


# -- all ----------------------------------------------------------------------------------------------------------------


def run_bench(quick: bool = False, progress: Progress | None = None) -> BenchReport:
    """Measure everything. ``quick`` takes about a fifth of the time and is less exact."""
    effort, tell = QUICK if quick else FULL, progress or (lambda share, label: None)
    entries = [(grid, contest) for grid in GRIDS for contest in contests()]
    rows: list[Speed] = []
    scaling: list[Scaling] = []
    models = [(kind, n) for kind in MODELS for n in effort.states]
    solving: list[Solving] = []
    total = len(entries) + len(effort.pairs) + len(models)
    for grid, contest in entries:
        tell(len(rows) / total, f"{grid}: {contest.learner.describe()}")
        rows.append(measure_speed(grid, contest, effort))
    for n_pairs in effort.pairs:
        tell((len(rows) + len(scaling)) / total, f"{n_pairs:,} pairs")
        scaling.append(measure_scaling(n_pairs, effort.warm_up))
    for k, (kind, n_states) in enumerate(models):
        tell((len(rows) + len(scaling) + k) / total, f"solving: {kind}, {n_states:,} states")
        solving += measure_solving(kind, n_states, effort.rounds)
    tell(1.0, "done")
    return BenchReport(tuple(rows), tuple(scaling), machine(), tuple(solving))


def machine() -> dict[str, str]:
    """What the measurements depend on: processor, cores, and the versions of Python, numba and numpy."""
    return {
        "cpu": _cpu_name(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("numba", "numpy", "safereplay")},
    }


def _cpu_name() -> str:
    """The processor's name as the system gives it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def table(rows: Sequence[Speed]) -> Table:
    """The speeds as a table for the terminal."""
    from rich.table import Table

    shown = Table(title="updates per second, one thread")
    for column in ("grid", "learner"):
        shown.add_column(column)
    for column in ("plain Python", "safereplay", "ratio"):
        shown.add_column(column, justify="right")
    for row in rows:
        shown.add_row(row.grid, row.learner, f"{row.plain:,.0f}", f"{row.ours:,.0f}", f"{row.ratio:.0f}×")
    return shown


def scaling_table(rows: Sequence[Scaling]) -> Table:
    """The cost of an update by the number of pairs, as a table for the terminal."""
    from rich.table import Table

    shown = Table(title="cost of an update, v = 0.5")
    for column in ("pairs", "ns", "to the first", "visited", "with weight"):
        shown.add_column(column, justify="right")
    for row in rows:
        growth = row.nanoseconds / rows[0].nanoseconds
        shares = f"{row.visited:.0%}", f"{row.weighted:.0%}"
        shown.add_row(f"{row.pairs:,}", f"{row.nanoseconds:.0f}", f"{growth:.1f}×", *shares)
    return shown


def solving_table(rows: Sequence[Solving]) -> Table:
    """The times to exact values, as a table for the terminal."""
    from rich.table import Table

    shown = Table(title="exact solving to 1e-6, γ = 0.99")
    for column in ("model", "solver"):
        shown.add_column(column)
    for column in ("states", "seconds", "to ours", "error"):
        shown.add_column(column, justify="right")
    for row in rows:
        ratio = f"{row.ratio:.1f}×"
        shown.add_row(row.model, row.solver, f"{row.states:,}", f"{row.seconds:.3f}", ratio, f"{row.error:.0e}")
    return shown
