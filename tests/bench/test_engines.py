import pytest

from benchmarks.speed import QUICK, engines
from safereplay.engines.work import ThreadsEngine


def test_what_is_beyond_learning_is_the_engines():
    row = engines.Overhead("threads", 2, 100, 4, bare=1.0, start=0.25, seconds=1.5)
    assert row.beyond == 0.5
    assert engines.sheet([row]).rows[0][-3:] == ("1.50", "5.00", "125.00")


def test_on_a_gpu_nothing_is_bare():
    row = engines.Overhead("cuda", 1, 100, 4, bare=None, start=0.25, seconds=1.5)
    assert row.beyond is None
    assert engines.sheet([row]).rows[0][-2:] == ("–", "–")


def test_the_small_sweep_is_done_by_the_engine_and_its_chunks_are_counted():
    row = engines.measure_engine("threads", seeds=3, episodes=5, rounds=1)[0]
    assert (row.engine, row.runs) == ("threads", 6)
    assert 1 <= row.chunks <= 6
    assert row.bare > 0.0
    assert row.seconds > 0.0


def test_every_engine_that_can_run_is_a_task(monkeypatch):
    monkeypatch.setattr(engines, "engines", lambda: {"threads": None, "ray": None})
    assert [task.label for task in engines.tasks(QUICK)] == ["engine: threads", "engine: ray"]


def test_an_engine_lasts_until_all_sweeps_are_done(monkeypatch):
    heard = []

    class Loud(ThreadsEngine):
        def finish(self, chunks, terms):
            heard.append("sweep")
            yield from super().finish(chunks, terms)

        def close(self):
            heard.append("closed")

    monkeypatch.setattr(engines, "engines", lambda: {"loud": Loud})
    engines.measure_engine("loud", seeds=1, episodes=2, rounds=2)
    assert heard == ["sweep"] * 4 + ["closed"]


@pytest.mark.slow
def test_engines_that_are_installed_can_be_made():
    for name, make in engines.engines().items():
        engine = make()
        try:
            assert engine.name == name
        finally:
            engine.close()
