import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safereplay.kernels import hashing

MASK = (1 << 64) - 1
TYPES = [np.uint8, np.int8, np.int32, np.int64, np.uint64, np.float32, np.float64]


def absorbed(h, word):
    """The published finalizer of splitmix64, in Python's whole numbers."""
    h = ((h ^ word) + 0x9E3779B97F4A7C15) & MASK
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & MASK
    return h ^ (h >> 31)


def start(n):
    return np.full(n, hashing.START)


def words(x, fold=hashing.fold):
    out = start(len(x))
    fold(np.ascontiguousarray(x), out)
    return out


def test_the_stream_from_seed_1234567_equals_the_words_published_for_splitmix64():
    """Rosetta Code's vector for this generator."""
    out = np.empty(5, np.uint64)
    hashing.stream(1234567, out)
    assert out.tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(st.integers(0, MASK), st.integers(0, MASK))
def test_absorbing_equals_the_published_finalizer(h, word):
    assert int(hashing.absorb(np.uint64(h), np.uint64(word))) == absorbed(h, word)


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=6))
def test_a_row_is_its_numbers_bits_one_after_the_other(row):
    h = int(hashing.START)
    for x in row:
        h = absorbed(h, int(np.float64(x + 0.0).view(np.uint64)))
    assert words(np.array([row])).tolist() == [h]


@pytest.mark.parametrize("kind", TYPES)
def test_a_number_counts_by_its_value_and_not_by_its_type(kind):
    fold = hashing.fold_whole if kind in (np.int64, np.uint64) else hashing.fold
    rows = np.array([[0, 1, 2], [7, 100, 3]])
    assert words(rows.astype(kind), fold).tolist() == words(rows.astype(np.float64)).tolist()


def test_minus_zero_is_zero_and_all_that_is_not_a_number_is_one_thing():
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert np.isnan(odd).all()
    found = words(np.array([[0.0], [-0.0], [np.nan], [odd[0]], [odd[1]], [np.inf]]))
    assert found[0] == found[1]
    assert found[2] == found[3] == found[4]
    assert len(set(found.tolist())) == 3


def test_whole_numbers_that_floats_merge_are_told_apart():
    near = np.array([[2**53], [2**53 + 1], [2**63 - 1], [2**63 - 2], [-(2**63)]])
    assert len(set(words(near, hashing.fold_whole).tolist())) == 5
    huge = np.array([[2**64 - 1], [2**64 - 2]], np.uint64)
    assert len(set(words(huge, hashing.fold_whole).tolist())) == 2


def test_words_of_small_grids_of_rows_look_random():
    """All 64³ rows of three small numbers. No two meet; each bit is set in half of them: 64 bits, ± 5·√(n)/2."""
    n = 64**3
    rows = np.stack(np.meshgrid(*[np.arange(64.0)] * 3), -1).reshape(-1, 3)
    found = words(rows)
    assert len(np.unique(found)) == n
    bits = (found[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    assert np.abs(bits.sum(0).astype(float) - n / 2).max() < 5 * math.sqrt(n) / 2
    low = np.bincount((found & np.uint64(255)).astype(int), minlength=256)  # what a table of buckets would see
    assert ((low - n / 256) ** 2 / (n / 256)).sum() < 255 + 5 * math.sqrt(2 * 255)


@pytest.mark.parametrize(
    ("x", "place"),
    [(-9.0, 0), (0.0, 0), (0.24, 0), (0.25, 1), (0.99, 3), (1.0, 3), (9.0, 3), (-np.inf, 0), (np.inf, 3), (np.nan, 4)],
)
def test_the_outer_tiles_reach_to_infinity_and_what_is_not_a_number_has_its_own(x, place):
    assert hashing.tile(x, 0.0, 4.0, 4.0) == place


def test_one_row_of_axes_is_for_all_columns_and_no_tiles_are_the_number_itself():
    x = np.random.default_rng(0).random((50, 3))
    one, three, none = start(50), start(50), start(50)
    axes = np.array([[0.0, 4.0, 4.0]])
    hashing.fold_tiles(x, axes, 0, one)
    hashing.fold_tiles(x, np.repeat(axes, 3, 0), 0, three)
    hashing.fold_tiles(x, np.zeros((3, 3)), 0, none)
    assert one.tolist() == three.tolist() == words(np.floor(4 * x).view(np.float64), fold_bits).tolist()
    assert none.tolist() == words(x).tolist()


def fold_bits(x, out):
    """What fold_tiles should do: absorb the tiles' numbers as words."""
    for i, row in enumerate(x):
        h = int(out[i])
        for place in row:
            h = absorbed(h, int(place))
        out[i] = h


def test_signs_are_the_sides_of_the_planes():
    rng = np.random.default_rng(1)
    x, scaling = rng.normal(size=(40, 6)), np.column_stack([rng.normal(size=6), rng.random(6)])
    planes = rng.integers(-99, 99, (6, 20)).astype(np.int8)
    sums, out = np.zeros((40, 20), np.float32), start(40)
    hashing.project(x[:, :2].copy(), 0, scaling, planes, sums)  # a part at a time
    hashing.project(x[:, 2:].copy(), 2, scaling, planes, sums)
    exact = ((x - scaling[:, 0]) * scaling[:, 1]) @ planes
    assert sums == pytest.approx(exact, rel=1e-4, abs=1e-3)
    hashing.fold_signs(sums, out)
    bits = [sum(1 << b for b in range(20) if row[b] > 0) for row in exact]
    assert out.tolist() == [absorbed(int(hashing.START), word) for word in bits]


PLAIN = """
import warnings
import numpy as np
from safereplay.kernels import hashing
warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)
rng = np.random.default_rng(0)
out = np.full(7, hashing.START)
x = rng.normal(size=(7, 3))
x[0, 0], x[1, 1], x[2, 2] = np.nan, np.inf, -0.0
axes = np.array([[0.0, 3.0, 4.0], [0.0, 0.0, 0.0], [-1.0, 2.0, 5.0]])
hashing.fold(x, out)
hashing.fold_whole(rng.integers(-9, 2**63 - 1, (7, 2)), out)
hashing.fold_tiles(x.astype(np.float32), axes, 0, out)
sums = np.zeros((7, 9), np.float32)
hashing.project(x[3:].copy(), 0, axes[:, :2].copy(), rng.integers(-99, 99, (3, 9)).astype(np.int8), sums[3:])
hashing.fold_signs(sums, out)
more = np.empty(4, np.uint64)
hashing.stream(5, more)
print(out.tolist(), more.tolist())
"""


@pytest.mark.whole
def test_compiled_and_plain_give_the_same_words(in_new_process):
    assert in_new_process(PLAIN, NUMBA_DISABLE_JIT="1") == in_new_process(PLAIN)
