import json
from pathlib import Path

import pytest
from planted import chapter, comparison
from strikes import interrupted

from safereplay.cli import run
from safereplay.cli.learning import _show_comparison

TINY = ["--world", "cliff", "--learner", "q", "--learner", "gaskett", "--steps", "400"]


def compare(*arguments):
    return run(["compare", *map(str, arguments)])


def test_a_comparison_prints_every_contestant_and_where_its_page_is(tmp_path, capsys):
    more = ["--world", "volatile", "--scheme", "variance", "--learner", "hindsight"]
    assert compare(*TINY, *more, "--out", tmp_path / "out") == 0
    shown = capsys.readouterr()
    table = shown.out.split("\n\n")[0].splitlines()
    assert table[0].split("  ")[0] == "contestant"
    asked = ["Gaskett", "Q-learning", "hindsight ‡", "variance replay", "variance replay (matched)"]
    assert sorted(line.split("  ")[0] for line in table[1:]) == sorted([*asked, "", "designed replay"])
    assert "hindsight does not apply to cliff, volatile" in shown.out.replace("\n", " ")
    assert str(tmp_path / "out" / "report.html") in shown.out.replace("\n", "")
    assert shown.err == ""
    assert (tmp_path / "out" / "report.md").exists()


@pytest.mark.parametrize("worlds", ["a", "abc", "abcdefghij"])
def test_the_printed_table_has_a_row_for_each_contestant_however_many_worlds(worlds, capsys):
    everyone = {"q": 0.9, "mihatsch": 0.5, "gaskett": 0.2, "variance": 0.7, "matched": 0.6, "score": 0.1}
    found = comparison(*(chapter(name, **everyone) for name in worlds))
    _show_comparison(found, Path("page"))
    table = capsys.readouterr().out.split("\n\n")[0].splitlines()
    assert [line.split("  ")[0] for line in table[1:]] == list(found.labels)
    if len(worlds) <= 3:
        assert table[1].split()[-2:] == ["%", "*"]
        assert table[2].split()[-2:] == ["70.0", "%"]


@pytest.mark.parametrize("worlds", ["a", "abcdefghij"])
def test_the_printed_table_has_both_means_the_rule_and_designed_replay_apart(worlds, capsys):
    found = comparison(
        chapter("even", q=1.0, matched=1.0),
        *(chapter(name, frontier=[(0.0, 0.95)], q=0.1, matched=0.9) for name in worlds),
    )
    _show_comparison(found, Path("page"))
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0].split("  ")[0] == "contestant"
    assert "mean, separating" in " ".join(lines[0].split())
    (best,) = (line for line in lines if line.startswith("variance replay (matched)"))
    assert "90.0 %" in best
    apart = next(k for k, line in enumerate(lines) if line.startswith("designed replay"))
    assert lines[apart - 1].strip() == ""
    assert "95.0 %" in lines[apart]
    said = " ".join(shown.split())
    assert "A world separates the contestants if" in said
    assert "even does not." in said


def test_what_was_found_can_be_had_as_json(tmp_path, capsys):
    assert compare(*TINY, "--out", tmp_path / "out", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seeds"] == 20
    assert [world["steps"] for world in found["worlds"]] == [400]
    assert {one["name"] for one in found["worlds"][0]["contestants"]} == {"q", "gaskett"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--learner", "gasket"], "unknown learner 'gasket'; did you mean 'gaskett'?"),
        (["--scheme", "varience"], "unknown scheme 'varience'; did you mean 'variance'?"),
        (["--world", "clif"], "did you mean 'cliff'?"),
        (["--preset", "quik"], "unknown preset 'quik'; did you mean 'quick'?"),
        (["--seeds", "5"], "seeds must be at least 20, got 5"),
        (["--steps", "3"], "steps must be at least 8, got 3"),
        (["--threads", "0"], "threads must be at least 1, got 0"),
        (["--world", "no-such.txt"], "model must be an existing file, got 'no-such.txt'"),
    ],
)
def test_bad_input_gets_one_line_and_writes_nothing(arguments, said, tmp_path, capsys):
    assert compare(*arguments, "--out", tmp_path / "out") == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path, capsys):
    (tmp_path / "out").write_text("a file")
    assert compare(*TINY, "--out", tmp_path / "out") == 2
    assert "must be a folder that can be written to" in capsys.readouterr().err


@pytest.mark.whole
def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(tmp_path, capsys):
    many = ["--world", "cliff", "--learner", "q", "--learner", "mihatsch", "--learner", "gaskett", "--steps", "2000"]
    _, said, code = interrupted("safereplay.arena.plan:_learned", 6, "compare", *many, "--out", tmp_path)
    assert code == 1
    assert said == "safereplay: stopped: 5 of 21 settings are done; run the same command to continue\n"
    kept = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "runs").glob("*.npz")}
    assert len(kept) == 5
    assert compare(*many, "--out", tmp_path) == 0
    after = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "runs").glob("*.npz")}
    assert kept.items() <= after.items()
    assert len(after) == 21
