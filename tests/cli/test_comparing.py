import json

import pytest
from strikes import interrupted

from safereplay.cli import run

TINY = ["--world", "cliff", "--learner", "q", "--learner", "gaskett", "--steps", "400"]


def compare(*arguments):
    return run(["compare", *map(str, arguments)])


def test_a_comparison_says_who_wins_and_where_its_page_is(tmp_path, capsys):
    assert compare(*TINY, "--world", "volatile", "--scheme", "variance", "--out", tmp_path / "out") == 0
    shown = capsys.readouterr()
    assert "The paper's own replay" in shown.out
    assert str(tmp_path / "out" / "report.html") in shown.out.replace("\n", "")
    assert shown.err == ""
    assert (tmp_path / "out" / "report.md").exists()


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


def test_ctrl_c_keeps_what_is_finished_and_the_same_command_goes_on(tmp_path, capsys):
    many = ["--world", "cliff", "--learner", "q", "--learner", "mihatsch", "--learner", "gaskett", "--steps", "2000"]
    _, said, code = interrupted("safereplay.arena.running:_learned", 6, "compare", *many, "--out", tmp_path)
    assert code == 1
    assert said == "safereplay: stopped: 5 of 21 settings are done; the same command goes on\n"
    kept = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "runs").glob("*.npz")}
    assert len(kept) == 5
    assert compare(*many, "--out", tmp_path) == 0
    after = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "runs").glob("*.npz")}
    assert kept.items() <= after.items()
    assert len(after) == 21
