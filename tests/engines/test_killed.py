import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from killed_sweeps import POINTS
from small_sweeps import everything, ids, stamps
from waiting import END, wait_until

import safereplay as sr

HELPERS = Path(__file__).parent.parent / "helpers"
HELPER, STRIKES = HELPERS / "killed_sweeps.py", HELPERS / "strikes.py"
COMMAND = "import sys; from safereplay.cli import run; sys.exit(run(sys.argv[1:]))"  # without lines of progress
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


def started(*command):
    return subprocess.Popen([sys.executable, *map(str, command)], stdin=-1, stdout=-1, stderr=-1, text=True)


def test_a_sweep_killed_at_eight_points_ends_with_the_dataset_of_one_that_was_not(tmp_path, in_new_process):
    struck, kept, rows = map(int, in_new_process(HELPER, tmp_path / "out", "points").split())
    assert struck == 8
    assert 11 <= kept < rows == 108  # eleven parts were in place


@pytest.mark.slow
def test_the_command_killed_at_twenty_points_ends_with_the_dataset_of_one_that_was_not(tmp_path):
    """The command itself, from its start, killed at one point or another and resumed each time.

    The first four chunks have one run each, so that no more than three are done before each kill.
    """
    (tmp_path / "study.toml").write_text(TOML)
    command = "sweep", tmp_path / "study.toml", "--out", tmp_path / "out", "--threads", 2
    out, choice = tmp_path / "out", random.Random(20)  # noqa: S311
    everywhere = [
        point for point in POINTS if not point[0].endswith(("_write_note", "_part"))
    ]  # reached by every sweep
    whole = sr.sweep(tmp_path / "study.toml", tmp_path / "whole", quiet=True).table()
    assert whole.num_rows == 900
    reported, grown = {}, 0
    for _ in range(20):
        point, most, _ = choice.choice(everywhere)
        count = choice.randint(1, min(most, 4))
        process = started(STRIKES, "SIGKILL", point, count, *command)
        assert process.communicate(timeout=END) == ("", "")
        assert process.returncode == -signal.SIGKILL
        present = stamps(out) if (out / "runs").exists() else {}
        assert reported.items() <= present.items()
        assert len(ids(out)) == len(set(ids(out)))
        grown += len(present) > len(reported)
        reported = present
    assert grown >= 5
    kept = len(ids(out))
    process = started("-c", COMMAND, *command)
    shown, complaint = process.communicate(timeout=END)
    assert (process.returncode, complaint) == (0, "")
    assert shown == f"{900 - kept:,} runs done, {kept:,} were done before: {out}\n"
    assert reported.items() <= stamps(out).items()
    assert sr.read_sweep(out).equals(whole)
    assert [f for f in everything(out) if not f.endswith(".parquet")] == ["spec.toml", "sweep.json"]


def test_killed_at_any_step_of_a_write_nothing_is_half_written(tmp_path, in_new_process):
    assert len(in_new_process(HELPER, tmp_path / "out", "steps").splitlines()) == 9


BOTH = """
import sys
from safereplay.cli import run
from safereplay.engines.work import ThreadsEngine
finish = ThreadsEngine.finish
def later(engine, chunks, terms):
    sys.stdin.readline()  # the other one has ended
    yield from finish(engine, chunks, terms)
ThreadsEngine.finish = later
print("ready", flush=True)
sys.stdin.readline()  # the other one is ready too
sys.exit(run(sys.argv[1:]))
"""


def test_of_two_sweeps_started_at_once_on_one_folder_one_does_it(tmp_path):
    """Both are let go when both are ready; the one that has the folder begins when the other one has ended."""
    (tmp_path / "study.toml").write_text(TOML.replace("seeds = 100", "seeds = 2"))
    both = [started("-c", BOTH, "sweep", tmp_path / "study.toml", "--out", tmp_path / "out") for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    loser = wait_until(lambda: [process for process in both if process.poll() is not None])[0]
    winner = both[1 - both.index(loser)]
    said = {process: process.communicate("\n", timeout=END) for process in (winner, loser)}
    assert (winner.returncode, loser.returncode) == (0, 2)
    assert said[winner][0] == f"18 runs done: {tmp_path / 'out'}\n"
    lines = said[loser][1].splitlines()
    assert len(lines) == 1
    assert f"must be free, got a sweep at work in it (process {winner.pid} on " in lines[0]
    assert len(ids(tmp_path / "out")) == len(set(ids(tmp_path / "out"))) == 18


def test_a_sweep_of_a_designed_replay_is_continued_after_a_kill(tmp_path):
    """Killed when the third chunk is done and not written; the other runs are those of a sweep that was not killed."""
    mdp = sr.grids.cliff()
    plan = sr.design(mdp, [0 if s == 13 else -1 for s in range(mdp.n_states)])  # up, away from the edge
    (tmp_path / "learner.json").write_text(json.dumps(plan.learner.to_dict()))
    text = 'episodes = 200\nseeds = 6\n[models.cliff]\n[learners.designed]\nsource = "learner.json"\n'
    (tmp_path / "study.toml").write_text(text)
    whole = sr.sweep(tmp_path / "study.toml", tmp_path / "whole", quiet=True).table()
    command = "sweep", tmp_path / "study.toml", "--out", tmp_path / "out", "--threads", 1
    killed = started(STRIKES, "SIGKILL", "safereplay.engines.sweeps:Store.add", 3, *command)
    killed.communicate(timeout=END)
    assert killed.returncode == -signal.SIGKILL
    kept = len(ids(tmp_path / "out"))
    assert 0 < kept < 6
    again = sr.sweep(tmp_path / "study.toml", tmp_path / "out", quiet=True)
    assert (again.done, again.already) == (6 - kept, kept)
    assert again.table().equals(whole)
    runs = sr.learn(mdp, plan.learner, episodes=200, seeds=6, quiet=True)
    found = {row["seed"]: row for row in whole.to_pylist()}
    assert [found[seed]["policy"] for seed in range(6)] == runs.policy.tolist()
