"""Time and memory of learning, of the exact limit and of the exact risk, on models of 10² to 10⁷ pairs.

Every pair's reward is random, so every pair that was visited often enough has a weight in the sum tree. Next states are
uniform, so memory access is random: the worst case. Set-up and a warm-up that visits the pairs are not timed. Times are
CPU seconds of this process. The peak of memory is what the system reports for this process, over what it had before: it is
given for models that are large compared with what an allocator keeps, on systems that can reset it (Linux).
"""

from __future__ import annotations

import ctypes
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from safereplay._checks import Floats
from safereplay.arrays import model_memory, sampling_model
from safereplay.kernels import rng, step
from safereplay.learners import ReplayQLearning
from safereplay.mdp import TabularMDP
from safereplay.runs import make_program
from safereplay.schedules import EpsilonGreedy, PowerStep
from safereplay.schemes import VarianceReplay
from safereplay.theory.limits import fixed_point
from safereplay.theory.risk import evaluate

from .sheets import Effort, Part, Rows, Sheet, Task

ACTIONS = 4
TIMED_STEPS = 400_000  # iterations per timed round
FOREVER = 1 << 60  # episodes
PIECE = 1 << 18  # pairs of a model laid out at a time
LARGE = 100_000  # pairs from which on the peak of memory is given
ENOUGH = 1.0  # total seconds of rounds after which there is no further one
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Cost:
    """CPU seconds of the best round, and the peak of memory over what was there, in bytes."""

    seconds: float
    peak: float | None


@dataclass(frozen=True)
class Scaling:
    """The costs on a random model with a number of pairs: of an update, of the fixed point, of the risk of its policy."""

    pairs: int
    nanoseconds: float  #: per update
    visited: float  #: share of the pairs that were visited
    weighted: float  #: share of the pairs that have a weight in the sum tree
    learn: float | None  #: bytes per pair of one run besides the model
    solve: Cost  #: :func:`safereplay.fixed_point`
    judge: Cost  #: :func:`safereplay.evaluate` of its greedy policy


def random_model(n_pairs: int, seed: int = 0) -> TabularMDP:
    """A model of ``n_pairs`` pairs with two outcomes each: uniform next states, different rewards, 1 in 50 ends."""
    generator = np.random.default_rng(seed)
    n_states, n_outcomes = n_pairs // ACTIONS, 2 * n_pairs
    pair = np.repeat(np.arange(n_pairs), 2)
    p = generator.uniform(0.2, 0.8, n_pairs)
    drawn = (
        np.column_stack((p, 1.0 - p)).ravel(),
        generator.integers(n_states, size=n_outcomes),
        generator.normal(size=n_outcomes),
        generator.random(n_outcomes) < 0.02,
    )

    def pieces() -> Iterator[Floats]:
        for k in range(0, n_outcomes, 2 * PIECE):
            part = slice(k, k + 2 * PIECE)
            s, a = np.divmod(pair[part], ACTIONS)
            yield np.column_stack((s, a, *(x[part] for x in drawn), np.zeros(s.size)))

    return TabularMDP.from_pieces(n_states, ACTIONS, pieces(), 0.9, name=f"random-{n_pairs}")


def measured(work: Callable[[], object], rounds: int = 1) -> Cost:
    """The best round of some, and the peak of all."""
    before, times = _forgotten(), list[float]()
    while len(times) < rounds and sum(times) < ENOUGH:
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return Cost(min(times), None if before is None else max(0.0, _held("VmHWM") - before))


def _forgotten() -> float | None:
    """The memory held, in bytes, after what is free was given back and the peak was reset; None where that cannot be done."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        CLEAR.write_text("5", encoding="ascii")
        return _held("VmRSS")
    except (OSError, AttributeError, TypeError):
        return None


def _held(field: str) -> float:
    lines = STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith(field))


def measure_scaling(n_pairs: int, warm_up: float, rounds: int = 7) -> Scaling:
    """The costs on one model; an update of replay (v = ½) after a warm-up of ``warm_up`` MDP iterations per pair."""
    mdp, scheme = random_model(n_pairs), VarianceReplay(1.0)
    solve = partial(fixed_point, mdp, scheme, 0.5, quiet=True)
    policy = solve().argmax(1)  # also compiles, as the next line does
    judge = partial(evaluate, mdp, policy, quiet=True)
    if n_pairs < LARGE:
        judge()
    costs = measured(solve, rounds), measured(judge, rounds)
    before = _forgotten()
    learner = ReplayQLearning(scheme, v=0.5)
    program = make_program(learner, EpsilonGreedy(0.5), PowerStep(), mdp.gamma, mdp.n_actions)
    assert isinstance(program.recipe, step.Recipe)
    model, memory = sampling_model(mdp), model_memory(mdp, recipe=program.recipe)
    tables = step.allocate(mdp.n_states, mdp.n_actions, 0.0, rng.seeded(0))

    def nanoseconds(steps: int) -> float:
        before, began = int(tables.counts.sum()), time.process_time_ns()
        program.advance(model, memory, tables, FOREVER, 1_000, steps)
        spent = time.process_time_ns() - began
        return spent / (int(tables.counts.sum()) - before)

    nanoseconds(max(TIMED_STEPS, int(2 * warm_up * n_pairs)))
    best = min(nanoseconds(TIMED_STEPS) for _ in range(rounds))
    weights = memory.tree[memory.tree.size // 2 :][:n_pairs]
    visited = float((tables.counts[:, step.VISITS] > 0).mean())
    held = None if before is None else (_held("VmHWM") - before) / n_pairs
    return Scaling(n_pairs, best, visited, float((weights > 0.0).mean()), held, *costs)


def tasks(effort: Effort) -> list[Task]:
    """Every size."""

    def measure(n_pairs: int) -> list[Scaling]:
        return [measure_scaling(n_pairs, effort.warm_up)]

    return [Task(f"{n_pairs:,} pairs", partial(measure, n_pairs)) for n_pairs in effort.pairs]


def sheet(rows: Rows) -> Sheet:
    """The costs by the number of pairs, as a table."""
    return Sheet(
        "cost against pairs",
        "Random models with two outcomes per pair and uniform next states, so that memory access is random; CPU seconds, the best "
        "round. `learn`: an update of replay (v = ½), after a warm-up over all reachable pairs. `fixed_point`: the exact limit. "
        "`evaluate`: mean, spread, P(unsafe) and length of its greedy policy. Bytes are peaks per pair besides the model.",
        (
            *("pairs", "learn: ns per update", "bytes", "visited", "with weight"),
            *("fixed_point: s", "ns per pair", "bytes", "evaluate: s", "ns per pair", "bytes"),
        ),
        [
            (
                f"{row.pairs:,}",
                f"{row.nanoseconds:.0f}",
                _bytes(row.pairs, row.learn),
                f"{row.visited:.0%}",
                f"{row.weighted:.0%}",
                *_shown(row.pairs, row.solve),
                *_shown(row.pairs, row.judge),
            )
            for row in rows
        ],
        f"From {rows[0].pairs:,} to {rows[-1].pairs:,} pairs an update becomes {rows[-1].nanoseconds / rows[0].nanoseconds:.0f} times as long, and "
        f"`fixed_point` takes {rows[-1].solve.seconds:.2g} s, `evaluate` {rows[-1].judge.seconds:.2g} s.",
        words=0,
    )


def _shown(pairs: int, cost: Cost) -> tuple[str, str, str]:
    seconds = f"{cost.seconds:.4f}" if cost.seconds < 1.0 else f"{cost.seconds:.1f}"
    return (
        seconds,
        f"{1e9 * cost.seconds / pairs:,.0f}",
        _bytes(pairs, None if cost.peak is None else cost.peak / pairs),
    )


def _bytes(pairs: int, each: float | None) -> str:
    return "–" if each is None or pairs < LARGE else f"{each:.0f}"


PART = Part("pairs", tasks, sheet)
