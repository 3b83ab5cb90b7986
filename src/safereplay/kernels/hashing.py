"""Hashes of rows of numbers to 64-bit words, which identify pairs.

A row is absorbed a number at a time into a running word h by the finalizer of splitmix64 (Steele, Lea & Flood 2014), which is
one-to-one:

    h ← mix((h ⊕ number) + golden ratio)

So rows that differ in one place never collide, and others collide with probability 2⁻⁶⁴. A number is hashed by value, not
by type: 1, 1.0 and True are the same, and so are 0.0 and −0.0. All NaNs have the same word.

Three ways to read a row: ``fold`` takes its numbers as they are, ``fold_tiles`` the tiles that they lie in, and ``project``
then ``fold_signs`` the sides of random planes that the row lies on. Each updates the words in ``out``, so the parts of a
pair are absorbed one by one. The order of operations is fixed: a batch gives the same bits as single rows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from .compile import Array, at, jit, kernel, source_digest, specialise
from .rng import Word

START = np.uint64(0x243F6A8885A308D3)  #: the initial word, from π
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
NAN = np.uint64(0x7FF8000000000000)
EXACT = 1 << 53  #: whole numbers up to here are exact as floats


@jit
def absorb(h: Word, word: Word) -> Word:
    """The running word h with one more word absorbed; one-to-one in each of the two."""
    h = (h ^ word) + GOLDEN
    h = (h ^ (h >> _30)) * _M1
    h = (h ^ (h >> _27)) * _M2
    return h ^ (h >> _31)


@jit
def word_of(x: float) -> Word:
    """The bits of a number as a float; −0.0 counts as 0.0, and all NaNs have one word."""
    number = np.float64(x) + 0.0
    return np.float64(number).view(np.uint64) if number == number else NAN


@jit
def word_of_whole(x: int) -> Word:
    """The same for a whole number; its own bits if a float cannot represent it."""
    if -EXACT <= x <= EXACT:
        return word_of(x)
    return np.uint64(x)


def _folding(word: Callable[[Any], Word]) -> Callable[[Array, Array], None]:
    """``fold`` for numbers that are converted by ``word``."""

    def fold(x: Array, out: Array) -> None:
        for i in range(x.shape[0]):
            h = out[i]
            for j in range(x.shape[1]):
                h = absorb(h, word(x[i, j]))
            out[i] = h

    fold.__doc__ = "Absorb the rows of x [n, d] into the words ``out`` [n]."
    return specialise(fold, f"{source_digest()} {word.__name__}")


fold = _folding(word_of)
fold_whole = _folding(word_of_whole)  #: the same for whole numbers of 64 bits


@jit
def tile(x: float, low: float, scale: float, tiles: float) -> int:
    """The tile of x; the outer tiles extend to infinity, and NaN has a tile of its own."""
    place = (x - low) * scale
    if place >= tiles:
        return int(tiles) - 1
    if place > 0.0:
        return int(place)
    return 0 if place <= 0.0 else int(tiles)


@kernel
def fold_tiles(x: Array, axes: Array, first: int, out: Array) -> None:
    """Absorb the tiles of the rows of x [n, d]; column j has (low, tiles per unit, tiles) in row first + j of ``axes``.

    0 tiles: the number itself. A single row of axes applies to all columns.
    """
    step = 1 if axes.shape[0] > 1 else 0
    for i in range(x.shape[0]):
        h = out[i]
        for j in range(x.shape[1]):
            k = at((first + j) * step)
            if axes[k, 2] == 0.0:
                h = absorb(h, word_of(x[i, j]))
            else:
                h = absorb(h, np.uint64(tile(np.float64(x[i, j]), axes[k, 0], axes[k, 1], axes[k, 2])))
        out[i] = h


@kernel
def project(x: Array, first: int, scaling: Array, planes: Array, sums: Array) -> None:
    """Add to sums [n, bits] the distances of rows x [n, d] from the planes [·, bits], along columns first, first + 1, ...

    A number counts as (x − scaling[·, 0])·scaling[·, 1].
    """
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            k = at(first + j)
            z = np.float32((np.float64(x[i, j]) - scaling[k, 0]) * scaling[k, 1])
            for b in range(planes.shape[1]):  # single precision: eight bits per register, half the time
                sums[i, b] += z * np.float32(planes[k, b])


@kernel
def fold_signs(sums: Array, out: Array) -> None:
    """Absorb the signs of the rows of sums [n, bits], one bit each."""
    for i in range(sums.shape[0]):
        word = np.uint64(0)
        for b in range(sums.shape[1]):
            word |= np.uint64(sums[i, b] > 0.0) << np.uint64(b)
        out[i] = absorb(out[i], word)


@kernel
def stream(seed: int, out: Array) -> None:
    """Fill ``out`` [n] with the first n words of splitmix64 from a seed; word i depends only on the seed and i."""
    for i in range(out.size):
        out[i] = absorb(np.uint64(seed) + np.uint64(i) * GOLDEN, np.uint64(0))
