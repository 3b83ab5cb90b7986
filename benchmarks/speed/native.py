"""Updates per second of the compiled loop, compared with ``benchmarks/plain.c``.

plain.c is Algorithm 1 by hand in C: Q-learning, and replay with w ∝ var·e^{−βr} and literal mixing, with our generator. Before
anything is timed, every seed must give the same Q and the same number of updates of each pair on both sides, bit for bit.
gcc must not merge a·b + c into one rounding for that; it is not faster if it may. Both sides alternate on one thread, CPU
seconds, and the best round counts; set-up is not timed.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import numpy as np

from safereplay import _checks, grids
from safereplay._checks import Floats, Ints
from safereplay.arrays import sampling_model
from safereplay.kernels import rng
from safereplay.learners import Learner, QLearning, ReplayQLearning
from safereplay.mdp import TabularMDP
from safereplay.runs import ENDLESS, OneRun, Plan, learn, make_program
from safereplay.schedules import EpsilonGreedy, PowerStep
from safereplay.schemes import VarianceReplay

from .learning import BETA, GRIDS, rate
from .sheets import Effort, Part, Rows, Sheet, Task, span

SOURCE = Path(__file__).parents[1] / "plain.c"
FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-shared", "-fPIC", "-lm")
HOW = "gcc not found, so the comparison with C is left out"
MAX_STEPS = 1_000
TRIED = (
    "Fewer instructions alone changed nothing: branches that cannot be predicted, and loads that wait for each other, seem to take "
    "most of the time (the machine had no hardware counters). These changes helped: the generator's words in registers, r and s' by outcome and not by its slot, argmax and max of four "
    "actions without a loop, short running sums searched in turn, a guess for the start state, and no division where a reward is "
    "certain. These did not help: arguments that must not overlap (noalias), the clock in registers, no log, max and argmax "
    "without any branch or in one chain, and a sum tree without branches (10 % faster on the cliff, 8 % slower on the "
    "volatile grid). Separate code for replays and steps is 2 % faster, but compiles for a third longer. "
    "On models of a million pairs these did not help either: prefetching what an update reads and writes as soon as its pair is known "
    "(no difference: an update loads its outcome, and only that gives the address of the next state's Q), and a sum tree with eight children per node (1.4 times as long; 0.9 times at 10,000 pairs, 1.1 to 1.4 times on the grids)."
)


@dataclass(frozen=True)
class Beside:
    """Updates per second of one learner on one grid, in C and in safereplay.

    >>> Beside("cliff", "Q-learning", c=50e6, ours=45e6).ratio
    0.9
    """

    grid: str
    learner: str
    c: float
    ours: float

    @property
    def ratio(self) -> float:
        """The speed of safereplay relative to C."""
        return self.ours / self.c


class Model(ctypes.Structure):
    """plain.c's Model."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("n_states", "n_starts")),
        *((name, ctypes.c_void_p) for name in ("first", "s_next", "starts", "p_cum", "r", "ends")),
        ("gamma", ctypes.c_double),
    )


def compiler() -> str | None:
    """The path of gcc, or None."""
    return which("gcc")


def built(gcc: str, n_actions: int) -> ctypes.CDLL:
    """plain.c, compiled for this number of actions and loaded."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "plain.so"
        command = [gcc, str(SOURCE), f"-DACTIONS={n_actions}", "-o", str(file), *FLAGS]
        subprocess.run(command, check=True, capture_output=True)  # noqa: S603
        return ctypes.CDLL(str(file))


class InC:
    """A learner in C on one model, with the default schedules."""

    def __init__(self, gcc: str, mdp: TabularMDP, learner: Learner) -> None:
        table, library = sampling_model(mdp), built(gcc, mdp.n_actions)
        columns = (mdp.row, np.int32), (table.s_next, np.int32), (table.start_state, np.int32)
        numbers = (table.p_cum, np.float64), (table.r, np.float64), (table.ends, np.uint8)
        self._kept = [np.ascontiguousarray(column, kind) for column, kind in (*columns, *numbers)]
        pointers = (column.ctypes.data for column in self._kept)
        self._model = Model(mdp.n_states, table.start_state.size, *pointers, mdp.gamma)
        dials = [EpsilonGreedy().epsilon, PowerStep().power]
        library.tabulate(ctypes.c_double(dials[1]))
        dials += [] if learner.replay is None else [learner.replay[1], BETA]
        self._run, self._n_pairs = library.q_learning if learner.replay is None else library.replay, mdp.n_pairs
        self._dials = [ctypes.c_double(x) for x in dials]

    def __call__(self, episodes: int, seed: int) -> tuple[Floats, Ints]:
        """Q [P] and the number of updates of each pair [P]."""
        Q, n, words = np.zeros(self._n_pairs), np.zeros(self._n_pairs, np.int64), rng.seeded(seed)
        arrays = (ctypes.c_void_p(x.ctypes.data) for x in (words, Q, n))
        self._run(ctypes.byref(self._model), *self._dials, ctypes.c_long(episodes), ctypes.c_int(MAX_STEPS), *arrays)
        return Q, n


def differing(in_c: InC, mdp: TabularMDP, learner: Learner, episodes: int, seeds: int) -> list[int]:
    """The seeds whose Q, or whose number of updates of some pair, differs from C's in any bit."""
    runs = learn(mdp, learner, episodes, seeds, max_steps=MAX_STEPS, threads=1, quiet=True).whole()
    updates = runs.visits + runs.replays

    def same(k: int) -> bool:
        Q, n = in_c(episodes, runs.seeds[k])
        return np.array_equal(Q, runs.Q[k].ravel()) and np.array_equal(n, updates[k].ravel())

    return [seed for k, seed in enumerate(runs.seeds) if not same(k)]


def prepared(mdp: TabularMDP, learner: Learner, episodes: int, seeds: int) -> Callable[[int], int]:
    """Runs of safereplay that are set up; the function runs their loops once and returns the number of updates."""
    program = make_program(learner, EpsilonGreedy(), PowerStep(), mdp.gamma, mdp.n_actions)
    plan, table = Plan(mdp, learner, episodes, MAX_STEPS, np.zeros(0, np.int64), program), sampling_model(mdp)
    runs = [OneRun(plan, table, seed) for seed in range(seeds)]

    def finish(_: int) -> int:
        for run in runs:
            run.advance(episodes, ENDLESS >> 1)
        return sum(int(run.tables.counts.sum()) for run in runs)

    return finish


def measure_c(gcc: str, grid: str, learner: Learner, effort: Effort) -> list[Beside]:
    """One learner on one grid: the same results, then alternating rounds; the best of each."""
    mdp, episodes, seeds = grids.PAPER[grid](), effort.episodes, effort.seeds
    in_c = InC(gcc, mdp, learner)
    wrong = differing(in_c, mdp, learner, episodes, seeds)
    _checks.require(not wrong, "plain.c", "learn the same Q for every seed", wrong)

    def run_c(_: int) -> int:
        return sum(int(in_c(episodes, seed)[1].sum()) for seed in range(seeds))

    speeds = [(rate(run_c, 0), rate(prepared(mdp, learner, episodes, seeds), 0)) for _ in range(effort.rounds)]
    c, ours = (max(side) for side in zip(*speeds, strict=True))
    return [Beside(grid, learner.describe(), c, ours)]


def learners() -> list[Learner]:
    """The learners that plain.c has."""
    return [QLearning(), ReplayQLearning(VarianceReplay(BETA), v=0.5)]


def tasks(effort: Effort) -> list[Task]:
    """Both learners on both grids, if there is a C compiler."""
    gcc, entries = compiler(), [(grid, learner) for grid in GRIDS for learner in learners()]
    if gcc is None:
        return []
    return [Task(f"C, {grid}: {x.describe()}", partial(measure_c, gcc, grid, x, effort)) for grid, x in entries]


def sheet(rows: Rows) -> Sheet:
    """The speeds as a table."""
    return Sheet(
        "the compiled loop and C, updates per second, one thread",
        "`benchmarks/plain.c` is Algorithm 1 by hand in C for a small table, compiled by gcc -O3 -march=native for four actions. It "
        "has the same generator, and gives the same Q for each seed, bit for bit, which is checked first; it counts only what the "
        "algorithm needs. CPU seconds, the best round of each; without set-up and compiling.",
        ("grid", "learner", "C", "safereplay", "ratio"),
        [(row.grid, row.learner, f"{row.c:,.0f}", f"{row.ours:,.0f}", f"{row.ratio:.2f}×") for row in rows],
        f"The compiled loop has {span((row.ratio for row in rows), 2)} of the speed of C.",
        words=2,
    )


PART = Part("c", tasks, sheet)
