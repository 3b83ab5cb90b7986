"""A model as arrays for the compiled code: its outcome table for sampling, and an empty memory of its outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ._checks import AnyArray, Floats, Ints
from .kernels import memory as mem
from .kernels.rng import Model
from .mdp import TabularMDP

if TYPE_CHECKING:
    from .kernels.step import Recipe

PIECE = 1 << 16  # pairs processed at a time


def sampling_model(mdp: TabularMDP) -> Model:
    """The model's outcome table in the form that the loop samples from."""
    p_cum = np.array(mdp.p)  # running sums within each row; exactly 1 at its end
    for i in range(0, mdp.row.size - 1, PIECE):
        begin, end = mdp.row[:-1][i : i + PIECE], mdp.row[1:][i : i + PIECE]
        size = end - begin
        for k in range(1, int(size.max())):  # within a row, so that earlier rows add no rounding error
            here = begin[size > k] + k
            p_cum[here] += p_cum[here - 1]
        p_cum[end[size > 0] - 1] = 1.0
    start_state = np.flatnonzero(mdp.start > 0)
    start_cum = np.cumsum(mdp.start[start_state])
    start_cum[-1] = 1.0
    first, stop = mdp.row[:-1], mdp.row[1:]
    return Model(first, stop, p_cum, mdp.s_next, mdp.r, mdp.terminal, slots_of(mdp), start_state, start_cum)


def slots_of(mdp: TabularMDP) -> AnyArray:
    """For each outcome, the first one with the same pair, reward, next state and end, [K]: the slot that counts it."""
    slots = np.arange(mdp.r.size, dtype=np.int32 if mdp.r.size < 1 << 31 else np.int64)
    alike = np.zeros(mdp.r.size, bool)
    alike[1:] = mdp.r[1:] == mdp.r[:-1]
    for column in (mdp.s_next, mdp.terminal):
        alike[1:] &= column[1:] == column[:-1]
    alike[mdp.row[: np.searchsorted(mdp.row, mdp.r.size)]] = False  # the first outcome of each pair
    slots[alike] = 0
    return np.asarray(np.maximum.accumulate(slots, out=slots))


def model_memory(
    mdp: TabularMDP,
    remembers: bool = True,
    columns: tuple[AnyArray, ...] | None = None,
    used: Ints | None = None,
    recipe: Recipe | None = None,
) -> mem.Memory:
    """An empty memory whose slots are the model's outcomes; a minimal one for a learner that does not remember.

    ``columns`` are zeros for count, replayed and share; ``used`` the outcomes per pair; ``recipe`` names the statistics kept.
    """
    if not remembers:
        none, flag = np.zeros(1, np.int64), np.zeros(1, bool)
        return mem.allocate(none, none, np.zeros(1), none, flag, 1)
    used = np.diff(mdp.row) if used is None else used
    if columns is None:
        columns = np.zeros(mdp.r.size), np.zeros(mdp.r.size, np.int64), np.zeros(mdp.r.size)
    table = mdp.row[:-1], used, mdp.r, mdp.s_next, mdp.terminal
    marked = unsafe_slots(mdp) if recipe is None or recipe.weighs("harm", "unsafe") else None
    return mem.allocate(*table, mdp.n_pairs, columns, marked, mem.N_STATS if recipe is None else recipe.n_stats)


def unsafe_slots(mdp: TabularMDP) -> AnyArray:
    """Whether any of the outcomes that a slot stands for is unsafe, [K]."""
    unsafe = np.zeros(mdp.r.size, bool)
    unsafe[slots_of(mdp)[mdp.unsafe]] = True
    return unsafe


def weights_of(memory: mem.Memory) -> Floats:
    """w_t of each slot, [K]."""
    w = np.zeros(memory.r.size)
    mem.weights(memory, w)
    return w
