"""The loop of a run over an outcome table: sample, learn, start again, until the episodes are done.

The loop stops after a given number of iterations as well and goes on from exactly there when called again, so a
caller can show progress, take snapshots and be interrupted without changing a single bit of the result.
"""

from collections.abc import Callable
from typing import NamedTuple

from . import memory as mem
from . import rng, step
from .compile import Array, at, jit, specialise


class Model(NamedTuple):
    """An outcome table laid out for sampling: pair i has outcomes row[i], ..., row[i+1] − 1."""

    row: Array  #: [P + 1]
    p_cum: Array  #: [K] running sum of the probabilities within a pair; 1 at its last outcome
    s_next: Array  #: [K]
    r: Array  #: [K]
    ends: Array  #: [K]
    slot: Array  #: [K] where the memory keeps the outcome: the first that is alike in all but its unsafe flag
    start_state: Array  #: the states an episode can start in
    start_cum: Array  #: running sum of their probabilities


@jit
def pick(cumulative: Array, low: int, high: int, u: float) -> int:
    """The first entry of cumulative[low:high] that exceeds u."""
    high -= 1
    while low < high:
        middle = (low + high) >> 1
        if cumulative[at(middle)] > u:
            high = middle
        else:
            low = middle + 1
    return low


@jit
def sample(model: Model, i: int, generator: Array) -> int:
    """An outcome of pair i; a sure one costs no random number."""
    low = model.row[at(i)]
    high = model.row[at(i + 1)]
    if high - low == 1:
        return int(low)
    return pick(model.p_cum, low, high, rng.uniform(generator))


def make(recipe: step.Recipe) -> Callable[..., None]:
    """The compiled loop for a recipe."""
    advance, observe = step.make(recipe)

    def run(
        model: Model,
        memory: mem.Memory,
        tables: step.Tables,
        dials: step.Dials,
        episodes: int,
        max_steps: int,
        budget: int,
    ) -> None:
        clock, generator = tables.clock, tables.generator
        s = clock[step.STATE]
        last = clock[step.ITERATION] + budget
        while clock[step.ITERATION] < last and clock[step.EPISODE] < episodes:
            if s == step.NO_STATE:
                s = model.start_state[pick(model.start_cum, 0, model.start_cum.size, rng.uniform(generator))]
                clock[step.STEP] = 0
            i = s * dials.n_actions + advance(tables, memory, s, dials)
            k = sample(model, i, generator)
            s, ends = model.s_next[at(k)], model.ends[at(k)]
            observe(tables, memory, i, model.slot[at(k)], model.r[at(k)], s, ends, False, dials)
            clock[step.STEP] += 1
            if ends or clock[step.STEP] >= max_steps:
                clock[step.EPISODE] += 1
                s = step.NO_STATE
        clock[step.STATE] = s

    return specialise(run, recipe.digest())
