import pytest

from benchmarks.speed import threads
from safereplay.kernels import rng


@pytest.mark.parametrize(
    ("most", "numbers"), [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])]
)
def test_threads_double_up_to_the_cores(most, numbers):
    assert threads.counts(most) == numbers


def test_speeds_are_to_one_thread(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)
    one, two = threads.measure_threads(runs=2, episodes=20, rounds=1)
    assert (one.threads, two.threads) == (1, 2)
    assert one.speedup == 1.0
    assert two.speedup == one.seconds / two.seconds
    assert one.ceiling == 1.0
    assert two.ceiling > 0.0
    assert threads.sheet([one, two]).rows[0] == ("1", f"{one.seconds:.2f}", "1.00×", "1.00×")


def test_the_bare_loop_draws_as_many_words_as_it_is_told():
    spun, drawn = rng.seeded(1), rng.seeded(1)
    threads.spin(spun, 100)
    for _ in range(100):
        rng.next_word(drawn)
    assert spun.tolist() == drawn.tolist()


@pytest.mark.slow
def test_two_threads_are_nearly_twice_as_fast(monkeypatch):
    """64 runs of the cliff, the best of 7 rounds in turns: 1.8 times, where a bare compiled loop gains 1.9 or more."""
    if threads.cores() < 2:
        pytest.skip("one core")
    monkeypatch.setattr(threads, "cores", lambda: 2)
    two = threads.measure_threads(runs=64, episodes=20_000, rounds=7)[1]
    if two.ceiling < 1.9:
        pytest.skip(f"the machine is busy: a bare loop gains {two.ceiling:.2f} on two threads")
    assert two.speedup >= 1.8
