import json

import pytest

from benchmarks import speed as bench
from benchmarks.speed import sheets
from safereplay.cli.common import run


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(sheets, "QUICK", bench.QUICK._replace(entries=(100,), draws=2, pairs=(40,), warm_up=1.0))


def test_the_command_shows_the_parts_that_are_asked_for(capsys):
    assert run(["bench", "--quick", "--only", "tree, pairs"]) == 0
    shown = capsys.readouterr().out
    assert "prioritised sampling" in shown
    assert "cost against pairs" in shown
    assert "thread scaling" not in shown


def test_the_command_writes_json_and_the_page(capsys, tmp_path):
    assert run(["bench", "--quick", "--only", "pairs", "--json", "--out", str(tmp_path / "new")]) == 0
    heard = capsys.readouterr()
    assert json.loads(heard.out)["pairs"][0]["pairs"] == 40
    assert "performance.md" in heard.err
    assert (tmp_path / "new" / "performance.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--only", "tre"], "unknown part 'tre'; did you mean 'tree'?"),
        (["--only", ","], "only must name some of plain"),
        (
            ["--only", "mushroom", "--mushroom", "nowhere"],
            "mushroom must be a Python with mushroom_rl, got 'nowhere'",
        ),
    ],
)
def test_what_cannot_be_measured_is_one_line_and_code_2(capsys, arguments, line):
    assert run(["bench", "--quick", *arguments]) == 2
    heard = capsys.readouterr().err
    assert line in heard
    assert heard.count("\n") == 1


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert run(["bench", "--quick", "--only", "tree", "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().out == ""


def test_the_help_names_every_part(capsys):
    assert run(["bench", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in bench.PARTS)
