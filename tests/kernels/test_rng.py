import math

import numpy as np
import pytest
from reference import Xoshiro

from safereplay.kernels import rng

STATES = [
    [1, 2, 3, 4],  # the state whose first words the authors publish
    [0, 0, 0, 1],
    [(1 << 64) - 1] * 4,
    [0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x2545F4914F6CDD1D],
    rng.seeded(0).tolist(),
    rng.seeded((1 << 64) - 1).tolist(),
]


@pytest.mark.parametrize("state", STATES)
def test_the_first_thousand_words_equal_those_of_the_published_algorithm(state):
    words, reference = np.array(state, np.uint64), Xoshiro(state)
    for _ in range(1000):
        assert int(rng.next_word(words)) == reference.word()
    assert words.tolist() == reference.s


def test_the_words_equal_the_vector_that_rust_publishes_for_this_generator():
    """rand_xoshiro's reference vector for xoshiro256++ from the state 1, 2, 3, 4."""
    state = np.array([1, 2, 3, 4], np.uint64)
    assert [int(rng.next_word(state)) for _ in range(4)] == [
        41943041,
        58720359,
        3588806011781223,
        3591011842654386,
    ]


def test_a_uniform_number_is_the_top_53_bits_of_a_word():
    state, reference = rng.seeded(3), Xoshiro(rng.seeded(3))
    for _ in range(1000):
        assert rng.uniform(state) == (reference.word() >> 11) * 2.0**-53


def test_uniform_numbers_have_the_moments_of_the_unit_interval_and_never_reach_one():
    """Seed 11, n = 200,000. Mean ½ ± 5·σ with σ = 1/√(12n), second moment ⅓ ± 5·√(4/45/n), lag-1 correlation ± 5/√n."""
    state, n = rng.seeded(11), 200_000
    x = np.array([rng.uniform(state) for _ in range(n)])
    assert x.min() >= 0.0
    assert x.max() < 1.0
    assert abs(x.mean() - 0.5) < 5 / math.sqrt(12 * n)
    assert abs((x**2).mean() - 1 / 3) < 5 * math.sqrt(4 / 45 / n)
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 5 / math.sqrt(n)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 100])
def test_below_covers_each_number_alike(n):
    """Seed 5, 2,000 draws a number; χ² below its mean n − 1 by five of its standard deviations √(2(n − 1))."""
    state, draws = rng.seeded(5), 2000 * n
    counts = np.bincount([rng.below(state, n) for _ in range(draws)], minlength=n)
    assert counts.size == n
    chi2 = ((counts - 2000) ** 2 / 2000).sum()
    assert chi2 <= (n - 1) + 5 * math.sqrt(2 * (n - 1))


def test_below_never_reaches_n_even_for_the_largest_uniform_number():
    """A state whose next word is all ones gives u = 1 − 2⁻⁵³."""
    for n in [1, 3, 4, 10, 1000, 2**31 - 1, 2**53 - 1]:
        state = np.array([0, 0, 0, 0], np.uint64)
        state[0] = state[3] = 0
        # word = rotl(s0 + s3, 23) + s0 with s0 = 0: s3 must be all ones
        state[3] = np.uint64((1 << 64) - 1)
        assert rng.uniform(state.copy()) == 1.0 - 2.0**-53
        assert rng.below(state, n) == n - 1


def test_seeds_and_streams_give_states_of_their_own_and_always_the_same():
    states = {tuple(rng.seeded(seed, stream).tolist()) for seed in range(50) for stream in range(20)}
    assert len(states) == 1000
    assert rng.seeded(7).tolist() == rng.seeded(7, 0).tolist()
    assert rng.seeded(7).dtype == np.uint64
    assert rng.seeded(7).shape == (4,)


def test_a_large_seed_is_not_another_seed_in_another_stream():
    """SeedSequence reads a number above 2³² as two words: seed 5 + 7·2³² must not be stream 7 of seed 5."""
    assert rng.seeded(5 + (7 << 32), 0).tolist() != rng.seeded(5, 7).tolist()


def test_many_seeds_together_get_the_states_of_each_alone():
    large = np.random.default_rng(0).integers(0, 1 << 64, 300, np.uint64)
    seeds = np.concatenate([np.arange(300, dtype=np.uint64), large, np.array([1 << 32, (1 << 64) - 1], np.uint64)])
    assert rng.seeded_together(seeds).tolist() == [rng.seeded(int(seed)).tolist() for seed in seeds]


def test_a_saved_state_continues_as_if_nothing_had_happened():
    state = rng.seeded(1)
    whole = [rng.uniform(state) for _ in range(20)]
    state = rng.seeded(1)
    first = [rng.uniform(state) for _ in range(9)]
    assert first + [rng.uniform(state.copy()) for _ in range(1)] == whole[:10]
    assert [rng.uniform(state) for _ in range(11)] == whole[9:]
