import pytest

from benchmarks.speed import buffers

pytest.importorskip("stable_baselines3")


def test_both_buffers_are_full_of_the_same():
    theirs, mine = buffers.filled(__import__("stable_baselines3").common.buffers.ReplayBuffer, 500), buffers.ours(500)
    assert (theirs.observations == mine.observations).all()
    assert theirs.size() == mine.size() == len(mine.shaper) == 500
    assert 2 < mine.shaper.index.n_pairs < 500


def test_costs_are_told_side_by_side():
    sample, add, memory = buffers.measure_buffer(2_000, rounds=2)
    assert sample.ratio == sample.ours / sample.sb3
    assert add.ours > 0
    assert (memory.sb3, memory.ratio, memory.unit) == (None, None, "bytes")
    runs = buffers.measure_run(steps=1_200, rounds=1)
    assert [run.work for run in runs] == [
        "DQN on CartPole",
        "DQN on CartPole, with a key",
        "SAC on Pendulum",
        "DQN on images",
    ]
    rows = buffers.sheet([sample, add, memory, *runs]).rows
    assert rows[0][0] == "sample 256"
    assert rows[2][2:] == ("–", f"{memory.ours:.1f}", "–")
    assert rows[3][2].endswith(" s")


def test_without_sb3_there_is_nothing_to_compare(monkeypatch):
    monkeypatch.setattr(buffers, "find_spec", lambda name: None)
    assert buffers.measure_buffer(10, 1) == buffers.measure_run(10, 1) == []


@pytest.mark.slow
def test_shaped_replay_costs_little():
    """10^6 transitions and a key: a batch at most 3 times SB3's, an addition at most 2 times, at most 64 bytes. Runs: at most 1.35 times, images 1.2."""
    sample, add, memory = buffers.measure_buffer(1_000_000, rounds=300)
    assert sample.ratio <= 3.0
    assert add.ratio <= 2.0
    assert memory.ours <= 64.0
    dqn, keyed, sac, images = buffers.measure_run(steps=20_000, rounds=3)
    assert dqn.ratio <= 1.35
    assert keyed.ratio <= 1.15
    assert sac.ratio <= 1.35
    assert images.ratio <= 1.2
