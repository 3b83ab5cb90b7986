import json
import os
import signal
import subprocess
import sys

import pytest
from effort import in_lines
from sweep_folder import given, learned, write_part, write_total
from waiting import END

import safereplay as sr
from safereplay.cli import project as showing
from safereplay.cli import run

CODE = """
import sys
from strikes import listen_to_ctrl_c
from safereplay.cli import run
listen_to_ctrl_c()
sys.exit(run(sys.argv[1:]))
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # with the helpers


@pytest.fixture(scope="module")
def table():
    return learned(models=("cliff", "volatile"), gammas=(0.9, 0.95), vs=(0.0, 0.3, 0.6), betas=(0.01, 1.0), seeds=4)


@pytest.fixture
def folder(table, tmp_path):
    return write_part(tmp_path / "study", table)


def complaint(capsys, *arguments):
    """The exit code and the lines on standard error."""
    code = run(list(arguments))
    return code, capsys.readouterr().err.strip().splitlines()


def test_show_says_what_the_sweep_is_and_what_its_runs_did(folder, capsys):
    assert run(["show", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "96 runs: cliff, volatile; replay; 24 settings, 4 seeds" in shown
    assert "0, 0.3, 0.6" in shown
    assert "P(unsafe)" in shown
    assert len([line for line in shown.splitlines() if line.startswith(("cliff", "volatile"))]) == 2


def test_what_a_sweep_writes_is_what_show_reads(tmp_path, capsys):
    spec = {"episodes": 200, "seeds": 3, "keep": ["verdict", "risk", "curves"], "curves": 5, "models": {"cliff": {}}}
    spec["learners"] = {"q": {}, "replay": {"v": [0.2, 0.6], "scheme": {"kind": "VarianceReplay", "beta": [0.1, 5.0]}}}
    sr.sweep(spec, tmp_path / "study", quiet=True)
    assert run(["show", str(tmp_path / "study"), "--json", "--by", "beta", "--out", str(tmp_path / "page")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["expected"]) == (15, 15)
    assert set(found["axes"]) == {"v", "beta"}
    assert [(row["learner"], row["beta"], row["runs"]) for row in found["rows"]] == [
        ("q", None, 3),
        ("replay", 0.1, 6),
        ("replay", 5.0, 6),
    ]
    figures = {file.stem for file in (tmp_path / "page" / "figures").iterdir()}
    assert figures == {"phases", "frontier", "curves"}


def test_by_makes_a_row_a_value(folder, capsys):
    assert run(["show", str(folder), "--by", "gamma", "--by", "v", "--where", "model=cliff", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["model"], row["gamma"], row["v"], row["runs"]) for row in rows] == [
        ("cliff", gamma, v, 8) for gamma in (0.9, 0.95) for v in (0.0, 0.3, 0.6)
    ]


def test_a_long_table_is_cut_and_says_so(tmp_path, capsys):
    write_part(tmp_path, given(v=[k / 100 for k in range(90)], seed=[0] * 90))
    assert run(["show", str(tmp_path), "--by", "v"]) == 0
    assert "… 30 more rows: --json has them all" in capsys.readouterr().out


def test_the_page_shows_the_axes_and_the_metric_that_are_asked_for(folder, tmp_path, capsys):
    out = tmp_path / "page"
    asked = ["--x", "v", "--y", "gamma", "--by", "beta", "--metric", "p_unsafe"]
    assert run(["show", str(folder), *asked, "--out", str(out)]) == 0
    assert str(out / "report.html") in capsys.readouterr().out
    page = (out / "report.html").read_text()
    assert "replay over v and γ: P(unsafe)" in page
    assert "http-equiv" not in page
    for name in ("phases", "frontier"):
        assert (out / "figures" / f"{name}.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--metric", "mode"], "unknown metric 'mode'; choose from cvar10, mean, p_unsafe, std, verdict"),
        (["--x", "kappa"], "unknown axis for --x 'kappa'"),
        (["--by", "gama"], "unknown axis for --by 'gama'; did you mean 'gamma'?"),
        (["--where", "gamma"], "--where must be KEY=VALUE, got 'gamma'"),
        (["--where", "gamma=0.5"], "gamma must be one of 0.9, 0.95, got 0.5"),
        (["--live", "--json"], "--json must go without --live"),
        (["--x", "v", "--y", "v"], "--y must differ from --x, got 'v'"),
        (["--x", "episodes"], "axes must vary in some learner (gamma, v, beta do), got 'episodes'"),
    ],
)
def test_what_cannot_be_shown_gets_one_line(arguments, said, folder, capsys):
    code, lines = complaint(capsys, "show", str(folder), *arguments)
    assert code == 2
    assert len(lines) == 1
    assert said in lines[0]


def test_a_folder_without_a_sweep_gets_one_line(tmp_path, capsys):
    for arguments, said in (([], "must hold runs of a sweep"), (["nowhere"], "must be the folder of a sweep")):
        code, lines = complaint(capsys, "show", str(tmp_path.joinpath(*arguments)))
        assert (code, len(lines)) == (2, 1)
        assert said in lines[0]


def between_readings(monkeypatch, *steps):
    """Have a step taken at each rest between two readings, in place of the rest."""
    left = iter(steps)
    monkeypatch.setattr(showing, "sleep", lambda seconds: next(left)())


@pytest.mark.whole
def test_live_follows_a_sweep_to_its_end(table, tmp_path, capsys, monkeypatch):
    """Parts come one by one; the page says that it grows until the last of them."""
    out, folder, pages = tmp_path / "page", tmp_path / "study", []
    write_total(folder := write_part(folder, table.slice(0, 8), "a"), table.num_rows)

    def go_on():
        pages.append((out / "report.html").read_text())
        write_part(folder, table.slice(8, 40), "b")

    between_readings(monkeypatch, go_on, lambda: None, lambda: write_part(folder, table.slice(48), "c"))
    assert run(["show", str(folder), "--live", "--out", str(out)]) == 0
    said = capsys.readouterr()
    assert "96 of 96 runs" in said.out
    assert [line.split(":")[1].split(" runs")[0] for line in said.err.splitlines()] == [
        " 8 of 96",
        " 48 of 96",
        " 96 of 96",
    ]
    assert 'http-equiv="refresh"' in pages[0]
    assert "8 of 96 runs" in pages[0]
    last = (out / "report.html").read_text()
    assert "http-equiv" not in last
    assert "96 of 96 runs" in last


def test_live_waits_for_what_is_asked_for(table, tmp_path, capsys, monkeypatch):
    """The first part has one β only, so that there is nothing to draw over it yet."""
    first = [k for k, row in enumerate(table.to_pylist()) if row["beta"] == 1.0]
    write_total(write_part(tmp_path, table.take(first), "a"), table.num_rows)
    rest = sorted(set(range(table.num_rows)) - set(first))
    between_readings(monkeypatch, lambda: write_part(tmp_path, table.take(rest), "b"))
    assert run(["show", str(tmp_path), "--live", "--x", "v", "--y", "beta"]) == 0
    said = capsys.readouterr()
    assert "not yet: axes must vary in some learner" in said.err
    assert "96 of 96 runs" in said.out


@pytest.mark.whole
def test_live_waits_for_the_first_runs_and_ends_cleanly_at_ctrl_c(table, tmp_path):
    command = [sys.executable, "-W", "error", "-c", CODE, "show", str(tmp_path), "--live"]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    try:
        assert "waiting for the first runs" in watching.stderr.readline()
        write_part(tmp_path, table)
        assert "96 runs" in watching.stderr.readline()
        os.kill(watching.pid, signal.SIGINT)
        shown, said = watching.communicate(timeout=END)
    finally:
        watching.kill()
    assert watching.returncode == 1
    assert "P(unsafe)" in shown
    assert said.strip() == "safereplay: stopped: the runs read so far are shown; the sweep is not stopped"


@pytest.mark.whole
def test_live_on_a_terminal_shows_the_tables_in_place(table, tmp_path):
    import pty

    write_total(write_part(tmp_path, table), table.num_rows)
    main, end = pty.openpty()
    command = [sys.executable, "-W", "error", "-c", CODE, "show", str(tmp_path), "--live"]
    watching = subprocess.Popen(command, stdout=end, stderr=end, env={**ENVIRONMENT, "TERM": "xterm"})
    os.close(end)
    shown = b""
    try:
        while chunk := os.read(main, 4096):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    assert watching.wait(timeout=END) == 0
    assert shown.decode().count("96 of 96 runs") >= 2  # in place, and for good
    assert b"\x1b[2K" in shown  # what was in place is wiped


def test_a_hundred_thousand_runs_are_shown_without_looking_at_them_one_by_one(tmp_path, capsys):
    n = 100_000
    columns = {"v": [k % 20 / 20 for k in range(n)], "seed": [k // 2_000 for k in range(n)]}
    columns |= {"beta": [float(k // 20 % 100) for k in range(n)], "verdict": ["safe", "risky"] * (n // 2)}
    columns |= {"mean": [1.0 * (k % 7) for k in range(n)], "p_unsafe": [0.1 * (k % 3) for k in range(n)]}
    write_part(tmp_path, given(**columns))
    assert in_lines(n, lambda: run(["show", str(tmp_path), "--json", "--by", "v"])) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 20
