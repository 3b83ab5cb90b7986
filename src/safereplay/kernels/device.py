"""The loop on a GPU: one thread per run, from the same pieces as on the CPU.

numba compiles the pieces again for CUDA; no part of Algorithm 1 is written twice. Only the storage of a run's
state and the scheduling differ:

    state    each thread owns one row of each array of :class:`Slabs`. Runs of a warp are at different pairs at any
             moment, so interleaving them would not help; a thread's own row shares cache lines (the four Q values of
             a state are one 32-byte sector). Clock and generator are local, in registers.
    sparse   pairs that can never be replayed are not stored: a pair with a single reward always has variance 0. On the
             cliff these are 73 of 96 pairs, and a run's state shrinks from 12 to 4 KB. The speed is limited by how
             much of it fits into the caches.
    queue    a thread that has finished a run takes the next from a counter, so a wave does not wait for its longest.
             The result of a run does not depend on its thread.
    slices   a launch ends after a budget of iterations and the next one continues: Ctrl-C and progress bars work.

**Bits.** Products and sums are rounded one by one, as on a CPU: fusing of a·b + c is disabled.
So a run differs from the CPU's only if the device's exp and pow give another last bit (the tilt e^{−βr} of a reward,
softmax, schedules beyond n = 65,536), or if a draw falls into the last bit of the weights' total, summed in another order.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.cuda.cudadrv import nvvm

from . import loop, rng, step
from . import memory as mem
from .compile import Array, jit

CLOCK, WORDS = step.CLOCK, rng.WORDS  # sizes of a run's clock and generator
UNROUNDED = re.compile(rb"\b(add|sub|mul)\.f64")  # in PTX
NO_RUN = -1  # no run: the thread takes the next


class Slabs(NamedTuple):
    """The state of T threads: row t belongs to thread t."""

    Q: Array  #: [T, P]
    counts: Array  #: [T, P, 2]
    visited: Array  #: [T, S]
    clock: Array  #: [T, CLOCK] between launches
    generator: Array  #: [T, 4] between launches
    count: Array  #: [T, K] of the outcomes that are stored, which come first
    share: Array  #: [T, K]
    stats: Array  #: [T, M, recipe.n_stats] of the pairs that are stored
    tree: Array  #: [T, entries of a wide tree]
    run: Array  #: [T] the thread's run, or NO_RUN


class Slots(NamedTuple):
    """Data shared by the memories of all runs: the stored outcomes, as slots."""

    first: Array  #: [M] for each pair that is stored
    used: Array  #: [M]
    distinct: Array  #: [K]
    unsafe: Array  #: [K]
    row: Array  #: [P]
    pair: Array  #: [M]


class Orders(NamedTuple):
    """The settings of n runs."""

    generator: Array  #: [n, 4] seeded words
    c0: Array  #: [n]
    gamma: Array  #: [n]
    v: Array  #: [n]
    T0: Array  #: [n]
    alphas: Array  #: [tables, schedules.TABLE_SIZE]
    rates: Array  #: [tables, schedules.TABLE_SIZE]
    alpha_table: Array  #: [n] row of ``alphas``
    rate_table: Array  #: [n]
    params: Array  #: [n, step + rate + update + scheme dials]
    points: Array  #: [m] episodes of the snapshots, then the last episode


class Found(NamedTuple):
    """The results of n runs."""

    Q: Array  #: [n, P]
    counts: Array  #: [n, P, 2]
    snapshots: Array  #: [n, m, P]
    wrong: Array  #: [n] 1 + a pair whose factors gave an invalid number
    taken: Array  #: [1] runs taken from the queue


#: For each number of dials, the function that reads them from a row as a tuple.
TUPLES: tuple[Callable[[Array, int], tuple[float, ...]], ...] = (
    lambda x, k: (),
    lambda x, k: (x[k],),
    lambda x, k: (x[k], x[k + 1]),
    lambda x, k: (x[k], x[k + 1], x[k + 2]),
    lambda x, k: (x[k], x[k + 1], x[k + 2], x[k + 3]),
    lambda x, k: (x[k], x[k + 1], x[k + 2], x[k + 3], x[k + 4]),
    lambda x, k: (x[k], x[k + 1], x[k + 2], x[k + 3], x[k + 4], x[k + 5]),
)


@contextmanager
def rounded_one_by_one() -> Iterator[None]:
    """Compile a·b + c with two roundings, as on a CPU.

    An option of NVVM prevents fusing; the assembler would still do so unless each operation names its rounding mode.
    """
    usual = nvvm.compile_ir

    def exact(*irs: Any, **options: Any) -> bytes:
        return UNROUNDED.sub(rb"\1.rn.f64", usual(*irs, **options, fma=False))

    nvvm.compile_ir = exact
    try:
        yield
    finally:
        nvvm.compile_ir = usual


@jit
def copy(source: Array, target: Array) -> None:
    """Copy a row."""
    for k in range(source.size):
        target[k] = source[k]


@jit
def fetch(clock: Array, generator: Array, to_clock: Array, to_generator: Array) -> None:
    """Copy a clock and a generator. Their sizes are constants here, so that the local ones stay in registers."""
    for k in range(CLOCK):
        to_clock[k] = clock[k]
    for k in range(WORDS):
        to_generator[k] = generator[k]


def make(recipe: step.Recipe, sizes: tuple[int, ...], dense: bool, **options: Any) -> Any:
    """The CUDA kernel for a recipe whose step size, exploration, update and scheme have ``sizes`` dials."""
    form = step.Form(dense=dense, gpu=True)
    advance = jit(loop.make_advance(loop.make_iterate(recipe, form), rng.in_place))
    of_step, of_rate, of_update, of_scheme = (jit(TUPLES[size]) for size in sizes)
    ranges = recipe.n_stats == mem.N_STATS
    at_rate, at_update, at_scheme = (int(k) for k in np.cumsum(sizes)[:3])

    @jit
    def begin(slabs: Slabs, orders: Orders, t: int, run: int, clock: Array, generator: Array) -> None:
        """Initialise the row of thread t for a run."""
        slabs.Q[t, :] = orders.c0[run]
        slabs.counts[t, :, :] = 0
        slabs.visited[t, :] = 0
        slabs.count[t, :] = 0
        slabs.share[t, :] = 0.0
        slabs.stats[t, :, :] = 0.0
        if ranges:
            slabs.stats[t, :, mem.R_MIN] = np.inf
            slabs.stats[t, :, mem.R_MAX] = -np.inf
        slabs.tree[t, :] = 0.0
        for k in range(CLOCK):
            clock[k] = 0
        clock[step.STATE] = step.NO_STATE
        for k in range(WORDS):
            generator[k] = orders.generator[run, k]

    def work(
        model: rng.Model,
        slots: Slots,
        slabs: Slabs,
        orders: Orders,
        found: Found,
        n_actions: int,
        max_steps: int,
        budget: int,
    ) -> None:
        t = cuda.grid(1)
        if t >= slabs.run.size:
            return
        clock = cuda.local.array(CLOCK, np.int64)
        generator = cuda.local.array(WORDS, np.uint64)
        fetch(slabs.clock[t], slabs.generator[t], clock, generator)
        run = slabs.run[t]
        n_runs, n_points = orders.c0.size, orders.points.size
        tables = step.Tables(slabs.Q[t], slabs.counts[t], slabs.visited[t], clock, generator)
        memory = mem.Memory(
            slots.first,
            slots.used,
            model.r,
            model.s_next,
            model.ends,
            slabs.count[t],
            slabs.count[t],  # replays are not counted here
            slots.distinct,
            slots.unsafe,
            slabs.share[t],
            slabs.stats[t],
            slabs.tree[t],
            slots.row,
            slots.pair,
        )
        no_log, spent = slabs.run[:0], 0
        while spent < budget:
            if run == NO_RUN:
                run = cuda.atomic.add(found.taken, 0, 1)
                if run >= n_runs:
                    run = NO_RUN
                    break
                begin(slabs, orders, t, run, clock, generator)
            row = orders.params[run]
            dials = step.Dials(
                orders.gamma[run],
                orders.v[run],
                orders.T0[run],
                n_actions,
                orders.alphas[orders.alpha_table[run]],
                orders.rates[orders.rate_table[run]],
                of_step(row, 0),
                of_rate(row, at_rate),
                of_update(row, at_update),
                of_scheme(row, at_scheme),
            )
            point = 0
            while point < n_points - 1 and orders.points[point] <= clock[step.EPISODE]:
                point += 1
            episodes = orders.points[point]
            before = clock[step.ITERATION]
            advance(model, memory, tables, dials, episodes, max_steps, budget - spent, no_log)
            spent += clock[step.ITERATION] - before
            if clock[step.EPISODE] >= episodes and clock[step.DUE] == 0:
                if point < n_points - 1:
                    copy(slabs.Q[t], found.snapshots[run, point])
                else:
                    copy(slabs.Q[t], found.Q[run])
                    for i in range(slabs.counts.shape[1]):
                        copy(slabs.counts[t, i], found.counts[run, i])
                    found.wrong[run] = clock[step.WRONG]
                    run = NO_RUN
        slabs.run[t] = run
        fetch(clock, generator, slabs.clock[t], slabs.generator[t])

    return cuda.jit(work, **options)  # called as a function: as a decorator it drops some options
