"""A report holds what was asked for, and says what was left out."""

import io
import json

import pytest
from rich.console import Console

import safereplay as sr
from benchmarks import speed as bench
from benchmarks.speed import mushroom, native, report, sheets, solving

TINY = bench.QUICK._replace(
    episodes=20,
    seeds=2,
    rounds=1,
    warm_up=1.0,
    pairs=(40, 400),
    states=(400,),
    entries=(100,),
    draws=2,
    runs=2,
    run_episodes=5,
)._replace(sweep_seeds=2, sweep_episodes=5, steps=10, slots=500, dqn_steps=1_100)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(sheets, "QUICK", TINY)
    monkeypatch.setattr(solving, "missing", lambda: ["mdpsolver"])
    monkeypatch.setattr(mushroom, "find_spec", lambda name: None)
    monkeypatch.setattr(native, "which", lambda name: None)
    monkeypatch.setattr("benchmarks.speed.engines.engines", lambda: {"threads": bench.engines.ThreadsEngine})


def test_a_report_holds_every_part_and_goes_to_json(tiny):
    told = []
    found = bench.run_bench(quick=True, progress=lambda share, label: told.append((share, label)))
    assert list(found.parts) == list(bench.PARTS)
    assert [name for name, rows in found.parts.items() if not rows] == ["c", "mushroom"]
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert told[-1] == (1.0, "done")
    assert len(told) == 16 + 1 + 1 + 1 + 2 + 2 + 2 + 3 + 1  # the last: done
    data = json.loads(found.to_json())
    assert data == found.to_dict()
    assert data["plain"][0]["ratio"] == found.parts["plain"][0].ratio
    assert data["engines"][0]["beyond"] == found.parts["engines"][0].beyond
    assert {"cpu", "cores", "load", "python", "numba", "numpy"} <= set(data["machine"])


def test_only_the_parts_that_are_named_are_measured(tiny):
    found = bench.run_bench(quick=True, only=["pairs", "tree", "pairs"])
    assert list(found.parts) == ["pairs", "tree"]
    assert [row.pairs for row in found.parts["pairs"]] == [40, 400]


def test_an_unknown_part_is_named():
    with pytest.raises(sr.BadInput, match="unknown part 'thread'; did you mean 'threads'"):
        report.choose(["thread"])


def test_no_part_at_all_is_refused():
    with pytest.raises(sr.BadInput, match="only must name some of plain, c, mushroom, tree"):
        report.choose([])


def test_what_is_left_out_is_said(monkeypatch):
    monkeypatch.setattr(solving, "missing", lambda: ["mdpsolver"])
    monkeypatch.setattr(report, "find_spec", lambda name: None)
    lines = bench.left_out(bench.BenchReport({}, {"solving": (), "tree": (), "mushroom": (), "c": ()}))
    assert lines[0] == "mdpsolver and cpprb not installed, so left out: pip install 'safereplay[peers]'"
    assert "--mushroom PYTHON" in lines[1]
    assert lines[2:] == ["gcc not found, so the comparison with C is left out"]
    assert bench.left_out(bench.BenchReport({}, {"pairs": ()})) == []


def test_tables_show_every_row():
    console = Console(width=120, record=True, file=io.StringIO())
    rows = {
        "plain": (bench.Speed("cliff", "Q-learning", 10, 5e5, 2.5e7),),
        "solving": (solving.Solving("random", 10_000, "quantecon, VI", 0.5, 1e-7, 4.0),),
        "threads": (),
    }
    for sheet in bench.BenchReport({}, rows).sheets():
        console.print(sheet.shown())
    text = console.export_text()
    assert all(piece in text for piece in ("25,000,000", "50×", "quantecon, VI", "4.0×"))
    assert "thread scaling" not in text


def test_contestants_take_turns():
    heard = []

    def contestant(name):
        return lambda: heard.append(name) or float(len(heard))

    assert sheets.in_turns([contestant("a"), contestant("b")], 2) == [[1.0, 3.0], [2.0, 4.0]]
    assert heard == ["a", "b", "a", "b"]
