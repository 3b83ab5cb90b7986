import os
import signal
import threading

import pytest
from small_sweeps import SMALL
from strikes import interrupt_runs

import safereplay as sr
from safereplay import footprints
from safereplay.engines.spec import load_spec
from safereplay.engines.work import AHEAD, ThreadsEngine, perform


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
def ctrl_c(monkeypatch):
    """``ctrl_c(n)``: Ctrl-C at the start of the n-th run. It is heard, also where a shell has us ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda count: interrupt_runs(count, monkeypatch.setattr)
    signal.signal(signal.SIGINT, before)


def test_leaving_early_stops_the_threads(ctrl_c):
    """Runs that would take hours are under way when Ctrl-C comes."""
    spec = load_spec({**SMALL, "episodes": 10**12})
    before = threading.active_count()
    ctrl_c(3)
    with pytest.raises(KeyboardInterrupt):
        list(ThreadsEngine(3).finish(iter(chunks_of(spec, 3)), spec.terms))
    assert threading.active_count() == before


def test_ctrl_c_gives_back_the_runs_of_a_chunk_that_are_finished(ctrl_c):
    spec = load_spec({**SMALL, "seeds": 2_000, "models": {"cliff": {}}, "learners": {"q": {}}})
    found = []

    def listen():
        for done in ThreadsEngine(2).finish(iter([tuple(spec.runs())]), spec.terms):
            found.append(done)

    ctrl_c(8)
    with pytest.raises(KeyboardInterrupt):
        listen()
    (done,) = found
    assert len(done.chunk) == 7
    assert done.table["id"].to_pylist() == [run.id for run in done.chunk]


def test_an_error_in_a_chunk_is_the_error_of_the_sweep(monkeypatch):
    spec = load_spec(SMALL)

    def broken(*_):
        raise sr.BadInput("v must be something else, got this")

    monkeypatch.setattr("safereplay.engines.work.perform_until", broken)
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
