import os
import signal
import threading
import time

import pytest
from studies import SMALL

import safereplay as sr
from safereplay import footprints
from safereplay.engines.spec import load_spec
from safereplay.engines.threads import AHEAD, ThreadsEngine
from safereplay.engines.work import perform


def chunks_of(spec, size=2):
    runs = list(spec.runs())
    return [tuple(runs[k : k + size]) for k in range(0, len(runs), size)]


def test_every_chunk_comes_back_once_with_the_rows_of_doing_it_alone():
    spec = load_spec(SMALL)
    chunks = chunks_of(spec)
    found = {done.chunk[0].id: done for done in ThreadsEngine(2).finish(iter(chunks), spec.terms)}
    assert set(found) == {chunk[0].id for chunk in chunks}
    for chunk in chunks[::5]:
        assert found[chunk[0].id].table.equals(perform(chunk, spec.terms))
        assert found[chunk[0].id].seconds > 0.0


def test_chunks_are_pulled_only_as_there_is_room():
    spec = load_spec(SMALL)
    pulled, finished = [], 0

    def counted():
        for chunk in chunks_of(spec, 1):
            pulled.append(chunk)
            yield chunk

    for _ in ThreadsEngine(2).finish(counted(), spec.terms):
        finished += 1
        assert len(pulled) <= finished + 2 * AHEAD
    assert finished == len(pulled) == 54


def test_no_chunks_is_no_work():
    assert list(ThreadsEngine(2).finish(iter(()), load_spec(SMALL).terms)) == []


@pytest.fixture
def listening():
    """Ctrl-C is heard, also where the tests were started in the background, which makes a shell have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_leaving_early_stops_the_threads():
    spec = load_spec({**SMALL, "episodes": 10_000_000})
    before = threading.active_count()
    results = ThreadsEngine(2).finish(iter(chunks_of(load_spec(SMALL), 1) + chunks_of(spec, 3)), spec.terms)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(results)
    assert time.monotonic() - began < 20.0
    timer.join()
    assert threading.active_count() == before


@pytest.mark.usefixtures("listening")
def test_ctrl_c_gives_back_the_runs_of_a_chunk_that_are_finished():
    spec = load_spec({**SMALL, "episodes": 20_000, "seeds": 2_000, "models": {"cliff": {}}, "learners": {"q": {}}})
    list(ThreadsEngine(1).finish(iter([(next(spec.runs()),)]), spec.terms))  # compiled from here on
    timer = threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT))
    found = []

    def listen():
        for done in ThreadsEngine(2).finish(iter([tuple(spec.runs())]), spec.terms):
            found.append(done)

    timer.start()
    with pytest.raises(KeyboardInterrupt):
        listen()
    timer.join()
    (done,) = found
    assert 0 < len(done.chunk) < 2_000
    assert done.table["id"].to_pylist() == [run.id for run in done.chunk]


def test_an_error_in_a_chunk_is_the_error_of_the_sweep(monkeypatch):
    spec = load_spec(SMALL)

    def broken(*_):
        raise sr.BadInput("v must be something else, got this")

    monkeypatch.setattr("safereplay.engines.threads.perform_until", broken)
    with pytest.raises(sr.BadInput, match="v must be something else"):
        list(ThreadsEngine(2).finish(iter(chunks_of(spec)), spec.terms))


def test_a_number_of_threads_is_a_whole_number():
    assert ThreadsEngine().workers == os.cpu_count()
    with pytest.raises(sr.BadInput, match="threads must be at least 1, got 0"):
        ThreadsEngine(0)


def test_runs_that_would_not_fit_into_memory_side_by_side_are_refused_before_any_is_done(tmp_path, monkeypatch):
    monkeypatch.setattr(footprints, "MATTERS", 0)
    monkeypatch.setattr(footprints, "free_memory", lambda: 1_000)
    with pytest.raises(sr.BadInput, match="memory"):
        sr.sweep(SMALL, tmp_path, quiet=True)
    assert not list((tmp_path / "runs").glob("*.parquet"))
