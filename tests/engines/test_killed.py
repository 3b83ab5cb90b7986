import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from studies import everything, ids, stamps

import safereplay as sr

HELPER = Path(__file__).parent.parent / "helpers" / "killed_sweeps.py"
TOML = """
episodes = 20_000
seeds = 100
[models.cliff]
gamma = [0.9, 0.95]
[models.volatile]
[learners.q]
[learners.replay]
v = [0.3, 0.6]
"""


def command(*arguments):
    code = "from safereplay.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "sweep", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until_at_work(folder, process):
    deadline = time.monotonic() + 60.0
    while process.poll() is None and time.monotonic() < deadline:
        if (folder / ".lock").exists() and f"process {process.pid} on " in (folder / ".lock").read_text():
            return
        time.sleep(0.01)


def test_a_sweep_killed_at_eight_moments_ends_with_the_dataset_of_one_that_was_not(tmp_path, in_new_process):
    struck, kept, rows = map(int, in_new_process(HELPER, tmp_path / "out", "moments", 8, 1).split())
    assert struck >= 4  # most kills came before the sweep was done ...
    assert 0 < kept <= rows == 108  # ... and some after a part was in place


@pytest.mark.slow
def test_a_sweep_killed_at_twenty_moments_ends_with_the_dataset_of_one_that_was_not(tmp_path):
    """The issue's own test: the command itself, from its start, killed at twenty random moments and resumed each time."""
    (tmp_path / "study.toml").write_text(TOML)
    out, moments = tmp_path / "out", random.Random(20)  # noqa: S311
    whole = sr.sweep(tmp_path / "study.toml", tmp_path / "whole", quiet=True).table()
    assert whole.num_rows == 900
    reported, grown = {}, 0
    for k in range(20):
        process = command(tmp_path / "study.toml", "--out", out, "--threads", 2)
        if k >= 3:  # the first kills come while it starts, the others while it works
            wait_until_at_work(out, process)
        time.sleep(moments.uniform(0.0, 1.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        present = stamps(out) if (out / "runs").exists() else {}
        assert reported.items() <= present.items()
        assert len(ids(out)) == len(set(ids(out)))
        grown += len(present) > len(reported)
        reported = present
    assert grown >= 5
    kept = len(ids(out))
    process = command(tmp_path / "study.toml", "--out", out, "--threads", 2)
    shown, complaint = process.communicate(timeout=120)
    assert (process.returncode, complaint) == (0, "")
    assert shown == f"{900 - kept:,} runs done, {kept:,} were there already: {out}\n"
    assert reported.items() <= stamps(out).items()
    assert sr.read_sweep(out).equals(whole)
    assert [f for f in everything(out) if not f.endswith(".parquet")] == ["spec.toml", "sweep.json"]


def test_killed_at_any_step_of_a_write_nothing_is_half_written(tmp_path, in_new_process):
    assert len(in_new_process(HELPER, tmp_path / "out", "steps").splitlines()) == 9


def test_of_two_sweeps_started_at_once_on_one_folder_one_does_it(tmp_path):
    (tmp_path / "study.toml").write_text(TOML.replace("seeds = 100", "seeds = 20"))
    both = [command(tmp_path / "study.toml", "--out", tmp_path / "out", "--threads", 1) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    codes = [process.returncode for process in both]
    assert sorted(codes) == [0, 2]
    winner, loser = codes.index(0), codes.index(2)
    assert said[winner][0] == f"180 runs done: {tmp_path / 'out'}\n"
    lines = said[loser][1].splitlines()
    assert len(lines) == 1
    assert f"must be free, got a sweep at work in it (process {both[winner].pid} on " in lines[0]
    assert len(ids(tmp_path / "out")) == len(set(ids(tmp_path / "out"))) == 180
