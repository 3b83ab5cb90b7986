"""The generator: xoshiro256++ (Blackman & Vigna 2021), four 64-bit words per run.

Each run owns its state, seeded from its seed alone. So a run gives the same bits on any machine and thread, and a
saved state continues the same stream.

:class:`Model` is an outcome table; :func:`sample` draws from it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numba import config
from numba.core import cgutils, types
from numba.extending import intrinsic

from .compile import Array, at, jit

Word: TypeAlias = np.uint64

_11, _17, _23, _45, _64 = np.uint64(11), np.uint64(17), np.uint64(23), np.uint64(45), np.uint64(64)
TO_UNIT = 1.0 / 9007199254740992.0  # 2**-53
WORDS = 4  # of a state
_LOW = 0xFFFFFFFF  # 32 bits
FEW = 8  # at most so many entries are searched in turn


def seeded(seed: int, stream: int = 0) -> Array:
    """The state of run ``stream`` of ``seed``: four words from numpy's SeedSequence, shape [4]."""
    words = [seed & _LOW, seed >> 32, stream]  # split, so that a large seed does not reach the stream's word
    return np.random.SeedSequence(words).generate_state(4, np.uint64)


def seeded_together(seeds: Array) -> Array:
    """The states of many seeds, shape [n, 4]: those of :func:`seeded`, in a hundredth of the time.

    SeedSequence (O'Neill 2015, 'Developing a seed_seq alternative') on arrays of 32-bit words: each step of its hash is done for all seeds at once.
    """
    seeds = np.asarray(seeds, np.uint64)
    words = [(seeds & np.uint64(_LOW)).astype(np.uint32), (seeds >> np.uint64(32)).astype(np.uint32)]
    zero = np.zeros_like(words[0])
    hashed = _hash(0x43B0D7E5, 0x931E8875)
    pool = [hashed(word) for word in (*words, zero, zero)]
    for k in range(4):
        for j in range(4):
            if j != k:
                mixed = np.uint32(0xCA01F9DD) * pool[j] - np.uint32(0x4973F715) * hashed(pool[k])
                pool[j] = mixed ^ (mixed >> np.uint32(16))
    hashed = _hash(0x8B51F9DD, 0x58F38DED)
    halves = [hashed(pool[k % 4]).astype(np.uint64) for k in range(2 * WORDS)]
    return np.stack([halves[k] | (halves[k + 1] << np.uint64(32)) for k in range(0, 2 * WORDS, 2)], axis=-1)


def _hash(start: int, factor: int) -> Callable[[Array], Array]:
    """A hash of 32-bit words whose multiplier changes with each call."""
    multiplier = start

    def hashed(words: Array) -> Array:
        nonlocal multiplier
        before, multiplier = multiplier, multiplier * factor & _LOW
        words = (words ^ np.uint32(before)) * np.uint32(multiplier)
        return words ^ (words >> np.uint32(16))

    return hashed


def _on_stack(_: Any, s: Any) -> Any:
    """A copy of the state on the stack of the function that calls this: its compiled code then holds the words in registers."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        given, copy = context.make_array(s)(context, builder, args[0]), context.make_array(s)(context, builder)
        n, size, *places = (context.get_constant(types.intp, x) for x in (WORDS, 8, *range(WORDS)))
        words = cgutils.alloca_once(builder, context.get_data_type(s.dtype), n)  # type: ignore[no-untyped-call]
        for k in places:
            builder.store(builder.load(builder.gep(given.data, [k])), builder.gep(words, [k]))
        context.populate_array(copy, data=words, shape=[n], strides=[size], itemsize=size, meminfo=None)
        return copy._getvalue()

    return s(s), build


on_stack: Any = np.copy if config.DISABLE_JIT else intrinsic(_on_stack)


@jit
def in_place(s: Array) -> Array:
    """The state itself, where no copy is needed."""
    return s


@jit
def rotl(x: Word, k: Word) -> Word:
    """Rotate the bits of x left by k."""
    return (x << k) | (x >> (_64 - k))


@jit
def next_word(s: Array) -> Word:
    """Advance the state ``s`` [4] and return 64 random bits."""
    word = rotl(s[0] + s[3], _23) + s[0]
    t = s[1] << _17
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = rotl(s[3], _45)
    return word  # type: ignore[no-any-return]


@jit
def uniform(s: Array) -> float:
    """A uniform number in [0, 1) with 53 random bits."""
    return float(next_word(s) >> _11) * TO_UNIT


@jit
def below(s: Array, n: int) -> int:
    """A uniform whole number in 0, ..., n − 1 (bias below n·2⁻⁵³)."""
    return int(uniform(s) * n)


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
    """The first entry of cumulative[low:high] that exceeds u, else the last: by halves, and the last few in turn."""
    high -= 1
    while high - low > FEW:
        middle = (low + high) >> 1
        if cumulative[at(middle)] > u:
            high = middle
        else:
            low = middle + 1
    while low < high and not cumulative[at(low)] > u:
        low += 1
    return low


@jit
def first_state(model: Model, generator: Array) -> int:
    """The state in which an episode starts. If all have the same probability, the first guess is right."""
    u, n = uniform(generator), model.start_cum.size
    k = int(u * n)
    if not model.start_cum[at(k)] > u or (k > 0 and model.start_cum[at(k - 1)] > u):
        k = pick(model.start_cum, 0, n, u)
    return int(model.start_state[at(k)])


@jit
def sample(model: Model, i: int, generator: Array) -> int:
    """An outcome of pair i; draws no random number if there is only one."""
    low, high = model.first[at(i)], model.stop[at(i)]
    if high - low == 1:
        return int(low)
    return pick(model.p_cum, low, high, uniform(generator))
