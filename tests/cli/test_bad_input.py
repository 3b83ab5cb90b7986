"""Bad input that an outsider tries: exit code 2, one line, and nothing half-written."""

import errno
import os
import stat

import pytest

import safereplay as sr
from safereplay.cli import run
from safereplay.views.sweeps import Reader


def complaint(capsys, *arguments):
    """The exit code and the lines on standard error."""
    code = run([str(x) for x in arguments])
    said = capsys.readouterr()
    assert said.out == ""
    return code, said.err.splitlines()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("kept")
    return tmp_path


@pytest.mark.parametrize("command", ["learn", "solve"])
def test_a_cvar_target_that_no_table_can_hold_is_bad_input(command, capsys):
    code, lines = complaint(capsys, command, "cliff", "--learner", "cvar", "-d", "target=1e300")
    said = "safereplay: target must lie within ±2e+07, got 1e+300; rewards here are in steps of 1"
    assert (code, lines) == (2, [said])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep", "fifo"], "fifo must be a regular file, got a FIFO"),
        (["sweep", "/dev/null"], "/dev/null must be a regular file, got a device"),
        (["sweep", "loop"], "spec must be a text file that can be read, got 'Too many levels of symbolic links'"),
        (["sweep", "."], ". must be a regular file, got a folder"),
        (["learn", "fifo"], "fifo must be a regular file, got a FIFO"),
        (["solve", "/dev/null"], "/dev/null must be a regular file, got a device"),
        (["compare", "--world", "fifo"], "fifo must be a regular file, got a FIFO"),
        (["show", "fifo"], "DIR must be the folder of a sweep, got 'fifo'"),
        (["learn", "cliff", "--beta", "2", "-d", "beta=3"], "--beta must be left out with --dial beta=3, got 2"),
        (
            ["learn", "cliff", "--learner", "gaskett", "--beta", "0.2", "-d", "beta=0.3"],
            "left out with --dial beta=0.3",
        ),
        (["learn", "cliff", "--gamma", "0.6", "-o", "gamma=0.5"], "--gamma must be left out with --option gamma=0.5"),
        (["learn", "FrozenLake-v1", "-o", "nonsense=3"], "got 'FrozenLake-v1'; "),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(here, arguments, said, capsys):
    code, lines = complaint(capsys, *arguments)
    assert (code, len(lines)) == (2, 1)
    assert said in lines[0]
    assert "did you mean" not in lines[0]


def same(path):
    """What stays as it is while nobody replaces a file."""
    found = path.lstat()
    return found.st_ino, found.st_mode, found.st_size


@pytest.mark.parametrize("place", ["fifo", "loop", "file"])
@pytest.mark.parametrize(
    "command",
    [
        ["solve", "volatile", "--mixing", "matched"],
        ["check", "volatile"],
        ["tune", "volatile", "--max-p-unsafe", "0.1"],
        ["design", "cliff", "--max-p-unsafe", "0.1"],
        ["compare"],
        ["reproduce"],
        ["bench", "--only", "tree"],
    ],
)
def test_a_page_goes_to_a_folder_and_to_nothing_else(here, place, command, capsys):
    before = same(here / place)
    code, lines = complaint(capsys, *command, "--out", place)
    assert (code, len(lines)) == (2, 1)
    assert f"{place} must be a folder that can be written to" in lines[0]
    assert same(here / place) == before


def test_a_page_is_written_through_links_and_over_no_special_file(here, capsys):
    """report.html is a link to a file elsewhere; figures/ is a link to a folder elsewhere."""
    (here / "out").mkdir()
    (here / "elsewhere").mkdir()
    (here / "out" / "report.html").symlink_to("../file")
    (here / "out" / "figures").symlink_to("../elsewhere")
    command = ["solve", "volatile", "--mixing", "matched", "--out", "out"]
    assert run(command) == 0
    assert (here / "out" / "report.html").is_symlink()
    assert "<html" in (here / "file").read_text()
    assert any((here / "elsewhere").iterdir())
    (here / "out" / "report.md").unlink()
    os.mkfifo(here / "out" / "report.md")
    capsys.readouterr()
    code, lines = complaint(capsys, *command)
    assert (code, len(lines)) == (2, 1)
    assert "report.md must be a regular file or a new one, got a FIFO" in lines[0]
    assert stat.S_ISFIFO((here / "out" / "report.md").lstat().st_mode)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["reproduce"], "claims.json"),
        (["reproduce"], "report.html"),
        (["bench", "--only", "tree"], "performance.md"),
        (["compare"], "report.html"),
        (["tune", "cliff", "--max-p-unsafe", "0.1"], "report.md"),
    ],
)
def test_a_file_that_cannot_be_replaced_is_refused_before_any_work(tmp_path, command, name, monkeypatch, capsys):
    """No work is done: what follows the check would fail at once."""
    for work in (
        "safereplay.paper.report.run_study",
        "benchmarks.speed.report.machine",
        "safereplay.arena.report.run",
    ):
        monkeypatch.setattr(work, None)
    monkeypatch.setattr("safereplay.theory.tuning.tune", None)
    os.mkfifo(tmp_path / name)
    code, lines = complaint(capsys, *command, "--out", tmp_path)
    assert (code, lines) == (
        2,
        [f"safereplay: {tmp_path / name} must be a regular file or a new one, got a FIFO"],
    )


def test_a_place_that_may_not_be_looked_at_is_bad_input(tmp_path, monkeypatch, capsys):
    def refused(self, folder, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    monkeypatch.setattr(Reader, "__init__", refused)
    code, lines = complaint(capsys, "show", tmp_path)
    assert (code, lines) == (2, [f"safereplay: {tmp_path} must be accessible, got 'Permission denied'"])


def test_a_complaint_that_nobody_can_hear_keeps_its_exit_code(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    assert run(["learn", "cliff", "--v", "7"]) == 2


def test_a_map_that_begins_with_a_byte_order_mark_is_read(tmp_path, capsys):
    (tmp_path / "map.txt").write_bytes(b"\xef\xbb\xbfS.G\r\n...\r\n\r\ngoal = 5.0\r\n")
    assert run(["learn", str(tmp_path / "map.txt"), "--episodes", "5", "--seeds", "1"]) == 0


def test_a_saved_model_whose_cells_lie_off_its_map_is_bad_input(tmp_path, monkeypatch, capsys):
    mdp = sr.grids.cliff()
    object.__setattr__(mdp.layout, "cells", (*mdp.layout.cells[:-1], (99, 99)))
    saved = mdp.save(tmp_path / "off.npz")
    code, lines = complaint(capsys, "learn", saved)
    assert (code, lines) == (2, ["safereplay: cells of the layout must lie on the 4×6 map, got (99, 99)"])
