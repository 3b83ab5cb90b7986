"""Tables: an outcome table for sampling, and the tabulated values of a schedule."""

from collections.abc import Callable
from typing import Any, NamedTuple

from . import rng
from .compile import Array, Bound, at, digest_of, jit, specialise

TABLE_SIZE = 1 << 16  # schedules are tabulated up to this n


class Model(NamedTuple):
    """An outcome table for sampling: pair i has outcomes first[i], ..., stop[i] − 1."""

    first: Array  #: [P]
    stop: Array  #: [P]
    p_cum: Array  #: [K] running sum of the probabilities within a pair; 1 at its last outcome
    s_next: Array  #: [K]
    r: Array  #: [K]
    ends: Array  #: [K]
    slot: Array  #: [K] the outcome's slot in the memory: the first outcome that differs at most in its unsafe flag
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
    """An outcome of pair i; draws no random number if there is only one."""
    low = model.first[at(i)]
    high = model.stop[at(i)]
    if high - low == 1:
        return int(low)
    return pick(model.p_cum, low, high, rng.uniform(generator))


def make_tabulate(bound: Bound) -> Callable[..., None]:
    """Fill a table with a schedule's values at n = 0, 1, 2, ... (the entry for n = 0 is the value at n = 1)."""
    value_of = bound.call

    def tabulate(table: Array, params: Any) -> None:
        for n in range(table.size):
            table[n] = value_of((float(max(n, 1)), *params))

    return specialise(tabulate, digest_of([bound]))
