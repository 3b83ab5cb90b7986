"""The GPU engine: thousands of parallel runs, one per thread, built from the same functions as on the CPU.

The kernel is in :mod:`safereplay.kernels.device`. This module prepares the layout of the model and the dials of each run,
starts launches of about half a second, and makes rows on the CPU while the GPU does the next chunk.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from .. import _checks
from .. import runs as single
from .._checks import AnyArray, Bools, Floats
from ..arrays import sampling_model, unsafe_slots
from ..errors import BadInput, MissingExtra, SafeReplayError
from ..kernels import memory as mem
from ..kernels import rng, step, wide
from ..mdp import TabularMDP
from ..schemes import Scheme
from .work import Chunk, Done, Learned, Run, Terms, groups, rows

if TYPE_CHECKING:
    from ..kernels import device

PER_SM = 384  # threads per multiprocessor
REGISTERS = 1 << 16  # of a multiprocessor, shared by its threads
BLOCK = 128  # threads per block
SLICE = 0.5  # seconds per launch
FIRST = 2_000  # iterations of the first launch
TABLES = 512  # schedules per launch: each is a table of half a megabyte
SMALL = 1 << 31  # runs with fewer updates use 32-bit counts
ROOM = 0.5  # the share of the free memory that a batch may take


def available() -> str | None:
    """The reason why no GPU can be used; None if one can."""
    if importlib.util.find_spec("numba_cuda") is None:
        return "numba-cuda is not installed: pip install 'safereplay[cuda]'"
    try:
        from numba import cuda

        if not cuda.is_available():
            return "no CUDA GPU was found"
        import numba.cuda.np.arrayobj  # noqa: F401
    except (ImportError, AttributeError, OSError) as error:  # such as a numpy that this numba-cuda does not support yet
        return f"numba-cuda does not load here ({error})"
    return None


class CudaEngine:
    """Runs on this machine's GPU.

    >>> CudaEngine.name
    'cuda'
    """

    name = "cuda"
    seconds = 20.0
    least = 4_096
    most = 400_000
    workers = 1

    def __init__(self) -> None:
        reason = available()
        if reason is not None:
            raise MissingExtra(f"engine 'cuda' must find a GPU, got none: {reason}")

    def finish(self, chunks: Iterator[Chunk], terms: Terms) -> Iterator[Done]:
        """Do the chunks on the GPU; the rows of a chunk are made while the next one runs."""
        waiting: list[Future[Done]] = []
        with ThreadPoolExecutor(1) as writer:
            try:
                for chunk in chunks:
                    began = time.perf_counter()
                    learned = [(group, learn_there(group, terms)) for group in groups(chunk)]
                    waiting.append(writer.submit(_written, terms, learned, time.perf_counter() - began))
                    while len(waiting) > 1:
                        yield waiting.pop(0).result()
            except (KeyboardInterrupt, SafeReplayError):
                yield from (written.result() for written in waiting)  # keep the finished chunks
                raise
            yield from (written.result() for written in waiting)

    def close(self) -> None:
        """Do nothing: the engine holds no resources."""


def _written(terms: Terms, learned: list[tuple[list[Run], Learned]], seconds: float) -> Done:
    """The rows of a chunk, and the seconds that the GPU and the rows took."""
    began = time.perf_counter()
    tables = [rows(group, terms, found) for group, found in learned]
    done = tuple(run for group, _ in learned for run in group)
    whole = pa.concat_tables(tables, promote_options="default")
    return Done(done, whole, seconds + time.perf_counter() - began)


def learn_there(runs: Sequence[Run], terms: Terms) -> Learned:
    """Do runs of one group on the GPU, in batches that fit its memory."""
    from numba import cuda

    mdp = runs[0].point.mdp
    shape = (len(runs), mdp.n_states, mdp.n_actions)
    m, P = len(terms.points), mdp.n_pairs
    Q, snapshots = np.empty((shape[0], P)), np.empty((shape[0], m, P))
    visits, replays = np.empty((2, shape[0], P), np.int64)
    plan, processors = Layout.of(runs), getattr(cuda.get_current_device(), "MULTIPROCESSOR_COUNT", 1)
    for batch in _batches(runs, plan.bytes_a_run(m)):
        there = sent(plan, [runs[k] for k in batch], terms, min(len(batch), PER_SM * processors))
        found = drive(plan, terms, there)
        if found.wrong.any():
            run = runs[batch[int(np.flatnonzero(found.wrong)[0])]]
            kind = type((run.point.learner.replay or (run.point.learner,))[0]).__name__
            where = f"{run.point.learner.describe()} on {run.point.model} with seed {run.seed}"
            raise BadInput(f"factors of {kind} must give finite numbers, weights at least 0, got others; in {where}")
        Q[batch], snapshots[batch] = found.Q, found.snapshots[:, :m]
        visits[batch], replays[batch] = found.counts[:, :, step.VISITS], found.counts[:, :, step.REPLAYS]
    shots = snapshots.reshape(shape[0], m, *shape[1:]) if m else None
    return Learned(Q.reshape(shape), visits.reshape(shape), replays.reshape(shape), shots)


def _batches(runs: Sequence[Run], bytes_a_run: int) -> Iterator[list[int]]:
    """Indices of the runs of each launch. The longest runs come first, so that no thread starts a long run at the end."""
    v = np.array([run.point.learner.replay[1] if run.point.learner.replay else 0.0 for run in runs])
    most = max(1, int(ROOM * _free_memory() / bytes_a_run))
    batch: list[int] = []
    schedules: set[Any] = set()
    for k in np.argsort(-v, kind="stable").tolist():
        point = runs[k].point
        schedules |= {point.step_size, point.exploration}
        if batch and (len(batch) >= most or len(schedules) > TABLES):
            yield batch
            batch, schedules = [], {point.step_size, point.exploration}
        batch.append(k)
    yield batch


def _free_memory() -> float:
    from numba import cuda

    return float(min(cuda.current_context().get_memory_info()[0], 1 << 40))


class Layout(NamedTuple):
    """A group's model in the GPU's layout: remembered outcomes come first."""

    mdp: TabularMDP
    recipe: step.Recipe
    sizes: tuple[int, ...]  #: number of dials of step size, exploration, update and scheme
    model: rng.Model
    slots: device.Slots
    dense: bool
    n_slots: int  #: number of remembered outcomes

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Layout:
        """The layout that runs of one group share."""
        from ..kernels import device

        point = runs[0].point
        mdp = point.mdp
        program = single.make_program(point.learner, point.exploration, point.step_size, mdp.gamma, mdp.n_actions)
        recipe = point.learner.algorithm_1(point.exploration, point.step_size, "the CUDA engine")
        dials = program.dials
        parts = dials.step_params, dials.rate_params, dials.update_params, dials.scheme_params
        numbers = all(np.ndim(x) == 0 for part in parts for x in part)
        what = "have numbers as dials on a GPU, no tables"
        _checks.require(numbers, "learner", what, point.learner.describe(), "use engine='threads'")
        sizes = tuple(map(len, parts))
        most = len(device.TUPLES) - 1
        _checks.require(max(sizes) <= most, "dials of one part", f"number at most {most} on a GPU", max(sizes))
        kept = ~forgettable(mdp, {run.point.learner.replay[0] for run in runs if run.point.learner.replay is not None})
        if recipe.update.uses("worst_state", "worst_outcome") or not recipe.remembers:
            kept[:] = recipe.remembers
        dense = bool(kept.all()) or not recipe.remembers
        order = np.argsort(~kept[mdp.pair], kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        used = np.diff(mdp.row)
        first = np.zeros(mdp.n_pairs, np.int64)
        first[used > 0] = place[mdp.row[:-1][used > 0]]
        there = sampling_model(mdp)
        slot, start = _small(place[there.slot[order]]), _small(there.start_state)
        outcomes = there.p_cum[order], _small(there.s_next[order]), there.r[order], there.ends[order], slot
        model = rng.Model(_small(first), _small(first + used), *outcomes, start, there.start_cum)
        pairs = np.flatnonzero(kept) if kept.any() else np.zeros(1, np.int64)
        row = np.full(mdp.n_pairs, mem.NO_ROW)
        if kept.any():
            row[pairs] = np.arange(pairs.size)
        n_slots = max(1, int(kept[mdp.pair].sum()))
        places, unsafe = (_small(first[pairs]), _small(used[pairs])), unsafe_slots(mdp)[order]
        slots = device.Slots(*places, np.ones(n_slots), unsafe, _small(row), _small(pairs))
        return cls(mdp, recipe, sizes, model, slots, dense, n_slots)

    def bytes_a_run(self, m: int) -> int:
        """Bytes of a run's state and results."""
        P, M = self.mdp.n_pairs, int(self.slots.pair.size)
        state = 16 * P + 4 * self.mdp.n_states + 12 * self.n_slots + 8 * (self.recipe.n_stats + 4) * M + 80
        return state + 16 * P + 8 * P * max(m, 1) + 128


def _small(values: AnyArray) -> AnyArray:
    return np.ascontiguousarray(values, np.int32)


def forgettable(mdp: TabularMDP, schemes: set[Scheme]) -> Bools:
    """The pairs that none of these schemes can ever replay, [P].

    If all outcomes of a pair have the same reward r, then from the first visit on its mean, smallest and largest reward
    are r and its variance is 0. A weight that depends on nothing else is then known, and if it is 0, it stays 0. The other
    two factors must be known and usable as well: the CPU engine checks them, and refuses values that are not finite.
    """
    low, high = np.full(mdp.n_pairs, np.inf), np.full(mdp.n_pairs, -np.inf)
    np.minimum.at(low, mdp.pair, mdp.r)
    np.maximum.at(high, mdp.pair, mdp.r)
    single_reward = low >= high
    known = np.zeros(mdp.n_pairs, bool)
    rewards = np.unique(low[low == high])
    for r in rewards if schemes else ():
        known |= single_reward & ((low == r) | (low > high)) & all(_never(scheme, float(r)) for scheme in schemes)
    return known


def _never(scheme: Scheme, r: float) -> bool:
    weight, tilt, share = (scheme.bound(factor) for factor in ("pair_weight", "log_tilt", "next_weight"))
    if any(factor.uses("n", *mem.FOLLOW_Q, *mem.SURVEYED, *mem.OF_OUTCOME) for factor in (weight, tilt, share)):
        return False
    stats, params = (1.0, r, 0.0, r, r, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), scheme.params()
    usable = tilt.call((r, *stats, *mem.NOTHING, *params)) < np.inf and 0.0 <= share.call((1.0, *params)) < np.inf
    return bool(usable and weight.call((*stats, *params)) == 0.0)


def drive(plan: Layout, terms: Terms, there: list[Any]) -> device.Found:
    """Launch until every run is done."""
    from ..kernels import device

    kernel = kernel_of(plan.recipe, plan.sizes, plan.dense)
    slabs, orders, found = there[2:]
    threads, n = slabs.run.size, orders.c0.size
    shape = -(-threads // BLOCK), min(BLOCK, threads)
    budget = FIRST
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Grid size")  # numba's advice against few threads: there may be few runs
        launch = kernel[shape]
    while True:
        began = time.perf_counter()
        with device.rounded_one_by_one():
            launch(*there, plan.mdp.n_actions, terms.max_steps, budget)
        busy = bool((slabs.run.copy_to_host() != device.NO_RUN).any())  # waits for the launch to end
        if not busy and found.taken.copy_to_host()[0] >= n:
            return device.Found(*(array.copy_to_host() for array in found))
        spent = time.perf_counter() - began
        budget = int(min(max(FIRST, budget * min(SLICE / max(spent, 1e-3), 8.0)), 1 << 40))


def sent(plan: Layout, runs: Sequence[Run], terms: Terms, threads: int) -> list[Any]:
    """The kernel's arrays, on the GPU: model, slots, slabs, orders, found."""
    from numba import cuda

    from ..kernels import device

    P, S, M, K, T = plan.mdp.n_pairs, plan.mdp.n_states, plan.slots.pair.size, plan.n_slots, threads
    replays = [run.point.learner.replay for run in runs if run.point.learner.replay]
    most = max((1.0 if mixing == "anchored" else 1.0 / (1.0 - v) for _, v, mixing in replays), default=1.0)  # per step
    count_type = np.int32 if terms.episodes * terms.max_steps * most < SMALL else np.int64  # holds every count
    room = cuda.device_array  # not initialised: a thread does that when it takes a run
    slabs = device.Slabs(
        Q=room((T, P)),
        counts=room((T, P, 2), count_type),
        visited=room((T, S), count_type),
        clock=room((T, device.CLOCK), np.int64),
        generator=room((T, device.WORDS), np.uint64),
        count=room((T, K), count_type),
        share=room((T, K)),
        stats=room((T, M, plan.recipe.n_stats)),
        tree=room((T, wide.allocate(M).size)),
        run=cuda.to_device(np.full(T, device.NO_RUN, np.int64)),
    )
    n, m = len(runs), len(terms.points)
    taken = cuda.to_device(np.zeros(1, np.int64))
    shots = room((n, m, P) if m else (1, 1, P))
    found = device.Found(room((n, P)), room((n, P, 2), np.int64), shots, room(n, np.int64), taken)
    given = (plan.model, plan.slots, _orders(runs, terms))
    model, slots, orders = (type(x)(*(cuda.to_device(np.ascontiguousarray(a)) for a in x)) for x in given)
    return [model, slots, slabs, orders, found]


@lru_cache(maxsize=64)
def kernel_of(recipe: step.Recipe, sizes: tuple[int, ...], dense: bool) -> Any:
    """The compiled kernel of a recipe, built once per process."""
    from numba import config

    from ..kernels import device

    # No link-time optimisation: it would fuse operations that must be rounded one by one. The simulator has neither option.
    options = {} if config.ENABLE_CUDASIM else {"lto": False, "max_registers": REGISTERS // PER_SM // 8 * 8}
    return device.make(recipe, sizes, dense, **options)


def _orders(runs: Sequence[Run], terms: Terms) -> device.Orders:
    """The inputs of each run: its seed, its dials, and its schedules."""
    from ..kernels import device

    place: dict[int, int] = {}
    which = np.array([place.setdefault(id(run.point), len(place)) for run in runs])
    by_place = {place[id(run.point)]: run.point for run in runs}
    points = [by_place[k] for k in range(len(place))]
    replays = [point.learner.replay for point in points]
    r_max = float(points[0].mdp.r.max())
    alphas, of_alpha = _tables([point.step_size for point in points])
    rates, of_rate = _tables([point.exploration for point in points])
    params = []
    for p, replay in zip(points, replays, strict=True):
        scheme = replay[0].params() if replay else ()
        params.append((*p.step_size.params(), *p.exploration.params(), *p.learner.params(), *scheme))
    return device.Orders(
        generator=rng.seeded_together(np.array([run.seed for run in runs], np.uint64)),
        c0=np.array([p.learner.initial_value(r_max, p.mdp.gamma) for p in points], np.float64)[which],
        gamma=np.array([p.mdp.gamma for p in points])[which],
        v=np.array([replay[1] if replay else 0.0 for replay in replays], np.float64)[which],
        T0=np.array([p.learner.T0 for p in points], np.int64)[which],
        alphas=alphas,
        rates=rates,
        alpha_table=of_alpha[which],
        rate_table=of_rate[which],
        params=np.array(params, np.float64).reshape(len(points), -1)[which],
        points=np.array([*terms.points, terms.episodes], np.int64),
    )


def _tables(schedules: Sequence[Any]) -> tuple[Floats, AnyArray]:
    """The tables of the distinct schedules, and the index of each run's table."""
    distinct = list(dict.fromkeys(schedules))
    number = {schedule: k for k, schedule in enumerate(distinct)}
    return np.stack([s.table() for s in distinct]), np.array([number[s] for s in schedules], np.int32)
