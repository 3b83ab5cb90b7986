"""Ctrl-C at named points of every command: exit code 1, and one line that says what is finished."""

import signal
from concurrent.futures import wait

import pytest
from sweep_folder import given, write_part

import safereplay as sr
from benchmarks.speed import report as bench_report
from benchmarks.speed.sheets import Part, Task
from safereplay import runs
from safereplay.arena import report
from safereplay.cli import project as showing
from safereplay.cli import run
from safereplay.engines.sweeps import Store
from safereplay.paper import report as reproduce
from safereplay.paper.report import Stage
from studies.deep import __main__ as deep

FEW = ["--episodes", "200", "--seeds", "8"]


@pytest.fixture(autouse=True)
def signal_heard():
    """A shell that starts the tests in the background may have switched SIGINT off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c(*_, **__):
    signal.raise_signal(signal.SIGINT)


@pytest.fixture
def after_two_seeds(monkeypatch):
    """Ctrl-C when seeds 0 and 1 are finished; no other finishes."""
    finish = runs.OneRun.finish

    def held(self, stop, report):
        if self.seed < 2:
            return finish(self, stop, report)
        stop.wait()
        return None

    def struck(futures, tick):
        wait(futures[:2])
        ctrl_c()

    monkeypatch.setattr(runs.OneRun, "finish", held)
    monkeypatch.setattr(runs, "_watch", struck)


def outcome(capsys, *arguments, program=run):
    """The exit code, what was printed, and the last line on standard error, less its beginning."""
    code = program([str(x) for x in arguments])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out, said.err.strip().splitlines()[-1].removeprefix("safereplay: stopped: ")


def test_learn_shows_the_seeds_that_are_finished(after_two_seeds, capsys):
    code, shown, line = outcome(capsys, "learn", "cliff", *FEW)
    assert (code, line) == (1, "2 of 8 seeds are finished and shown")
    assert "2 of 2" in shown


@pytest.mark.parametrize("command", [["check", "cliff"], ["solve", "volatile"]])
def test_check_and_solve_report_nothing_from_some_of_the_seeds(after_two_seeds, command, tmp_path, capsys):
    code, shown, line = outcome(capsys, *command, *FEW, "--json", "--out", tmp_path)
    assert (code, shown) == (1, "")
    assert line == "2 of 8 seeds of replay(v=0.5, beta=5) are finished, but not the answer"
    assert list(tmp_path.iterdir()) == []


def test_tune_makes_no_plan_from_some_of_the_seeds(after_two_seeds, capsys):
    code, shown, line = outcome(capsys, "tune", "cliff", "--max-p-unsafe", "0.05", *FEW)
    assert (code, shown) == (1, "")
    assert line.startswith("2 of 2 seeds of Q-learning are finished")  # trained in groups: 2, 4, 8, ...


def test_from_python_the_interrupt_is_raised(after_two_seeds):
    mdp, scheme = sr.grids.volatile(), sr.VarianceReplay(5.0)
    with pytest.raises(KeyboardInterrupt, match="2 of 8 seeds of "):
        sr.check(mdp, scheme, episodes=200, seeds=8, quiet=True)
    with pytest.raises(KeyboardInterrupt, match="2 of 8 seeds of "):
        sr.fixed_point(mdp, scheme, 0.5, "self", episodes=200, seeds=8)
    with pytest.raises(KeyboardInterrupt, match="2 of 2 seeds of "):
        sr.tune(mdp, scheme, max_p_unsafe=0.0, episodes=200, seeds=8, quiet=True)


def test_an_interrupt_counts_even_when_every_seed_is_finished(monkeypatch, capsys):
    def struck(futures, tick):
        wait(futures)
        ctrl_c()

    monkeypatch.setattr(runs, "_watch", struck)
    found = sr.learn(sr.grids.cliff(), sr.QLearning(), 200, 8, quiet=True)
    assert (found.interrupted, found.missing, len(found.seeds)) == (True, 0, 8)
    assert outcome(capsys, "learn", "cliff", *FEW)[::2] == (1, "8 of 8 seeds are finished and shown")
    assert outcome(capsys, "check", "cliff", *FEW)[0] == 1


def test_learn_says_so_when_no_seed_is_finished(monkeypatch, capsys):
    monkeypatch.setattr(runs.OneRun, "finish", lambda self, stop, report: stop.wait() and None)
    monkeypatch.setattr(runs, "_watch", ctrl_c)
    expected = "none of 8 seeds of replay(v=0.5, beta=5) is finished"
    assert outcome(capsys, "learn", "cliff", *FEW) == (1, "", expected)


def test_learn_says_how_many_seeds_are_finished_when_they_were_not_yet_shown(monkeypatch, capsys):
    monkeypatch.setattr("safereplay.theory.risk.evaluate", ctrl_c)
    assert outcome(capsys, "learn", "cliff", *FEW)[::2] == (1, "8 of 8 seeds are finished, but not shown")


NOTHING = "nothing is finished"


@pytest.mark.parametrize(
    ("command", "point"),
    [
        (["learn", "cliff"], "safereplay.sources.model_from"),
        (["solve", "cliff"], "safereplay.theory.limits.exact"),
        (["check", "cliff", *FEW], "safereplay.theory.conditions.theorem_2"),
        (["check", "cliff", "--learner", "q"], "safereplay.theory.conditions.prospects"),
        (["tune", "cliff", "--max-p-unsafe", "0.1"], "safereplay.theory.tuning.traced"),
        (["design", "cliff", "--max-p-unsafe", "0.1"], "safereplay.theory.design.best_policy"),
        (["solve", "cliff", "--mixing", "matched", "--out", "page"], "safereplay.views.pages.write_page"),
        (["compare"], "safereplay.arena.report.planned"),
        (["sweep", "none.toml"], "safereplay.engines.sweeps.load_spec"),
        (["show", "none"], "safereplay.views.sweeps.Reader.__init__"),
        (["bench"], "benchmarks.speed.report.machine"),
        (["play"], "safereplay.web.serving.listen"),
    ],
)
def test_before_anything_is_finished_a_command_says_that(command, point, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(point, ctrl_c)
    code, shown, line = outcome(capsys, *command)
    assert (code, shown, line.splitlines()[-1]) == (1, "", NOTHING)


def test_a_sweep_says_how_many_runs_are_left(monkeypatch, tmp_path, capsys):
    add = Store.add

    def struck(self, table):
        add(self, table)
        ctrl_c()

    (tmp_path / "s.toml").write_text(
        "seeds = 2\nepisodes = 50\n[models.volatile]\n[models.cliff]\n[learners.q]\n[learners.gaskett]\nbeta = 0.5\n"
    )
    with monkeypatch.context() as patch:
        patch.setattr(Store, "add", struck)
        code, _, line = outcome(capsys, "sweep", tmp_path / "s.toml", "--out", tmp_path / "out", "--threads", "1")
    left = 8 - sr.read_sweep(tmp_path / "out").num_rows
    assert (code, line) == (1, f"{left} of 8 runs are left; run the same command to continue")
    assert run(["sweep", str(tmp_path / "s.toml"), "--out", str(tmp_path / "out")]) == 0
    assert sr.read_sweep(tmp_path / "out").num_rows == 8


def test_a_sweep_whose_end_is_interrupted_says_what_is_in_its_folder(monkeypatch, tmp_path, capsys):
    (tmp_path / "s.toml").write_text("seeds = 2\nepisodes = 50\n[models.volatile]\n[learners.q]\n")
    monkeypatch.setattr("safereplay.engines.work.ThreadsEngine.close", ctrl_c)
    folder = tmp_path / "out"
    code, _, line = outcome(capsys, "sweep", tmp_path / "s.toml", "--out", folder)
    assert (code, line) == (1, f"2 runs are in {folder}; run the same command to continue")


def test_a_comparison_says_how_much_is_done_while_it_draws(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(report, "page", ctrl_c)
    tiny = ["compare", "--world", "cliff", "--learner", "q", "--steps", "800", "--out", tmp_path]
    assert outcome(capsys, *tiny) == (1, "", "1 of 1 settings are done; run the same command to continue")


def test_a_comparison_that_is_stopped_says_how_much_is_done(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(runs, "_watch", ctrl_c)
    tiny = ["compare", "--world", "cliff", "--learner", "q", "--steps", "800", "--out", tmp_path]
    assert outcome(capsys, *tiny) == (1, "", "0 of 1 settings are done; run the same command to continue")


def test_showing_live_ends_with_what_was_read_last(monkeypatch, tmp_path, capsys):
    write_part(tmp_path, given(seed=[0, 1], verdict=["safe", "risky"], mean=[1.0, 2.0], p_unsafe=[0.0, 0.5]))
    monkeypatch.setattr(showing, "sleep", ctrl_c)
    code, shown, line = outcome(capsys, "show", tmp_path, "--live")
    assert (code, line) == (1, "the runs read so far are shown; the sweep is not stopped")
    assert "P(unsafe)" in shown


def test_showing_live_says_so_when_there_was_nothing_to_show(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(showing, "sleep", ctrl_c)
    assert outcome(capsys, "show", tmp_path, "--live") == (1, "", "there were no runs to show")


def test_the_benchmark_says_how_many_measurements_are_finished(monkeypatch, capsys):
    tasks = [Task("first", list), Task("second", ctrl_c), Task("third", list)]
    monkeypatch.setitem(bench_report.PARTS, "tree", Part("tree", lambda effort: tasks, None))
    expected = "1 of 3 measurements are finished, but not the report"
    assert outcome(capsys, "bench", "--only", "tree") == (1, "", expected)


@pytest.mark.parametrize("part", ["threads", "plain", pytest.param("engines", marks=pytest.mark.slow)])
def test_a_measurement_that_is_interrupted_is_none(part, monkeypatch, capsys):
    """Learning gives back what is finished; its time must not be taken for that of the whole."""

    def struck(futures, tick):
        wait(futures)
        ctrl_c()

    monkeypatch.setattr(runs, "_watch", struck)
    code, shown, line = outcome(capsys, "bench", "--quick", "--only", part)
    assert (code, shown) == (1, "")
    assert line.startswith("0 of ")


def stage(name, job):
    return Stage(name, name, 1.0, lambda effort, work: work.map(lambda item: item, [1]) and job())


def test_reproduce_says_how_many_experiments_are_finished(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(reproduce, "STAGES", [stage("one", list), stage("two", ctrl_c), stage("three", list)])
    code, _, line = outcome(capsys, "reproduce", "--out", tmp_path)
    assert (code, line) == (1, "1 of 3 experiments are finished, but not the report")


def test_reproduce_says_that_the_report_is_not_finished(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(reproduce, "STAGES", [stage("one", list)])
    monkeypatch.setattr(reproduce, "Study", lambda **fields: fields)
    monkeypatch.setattr(reproduce, "judge_all", ctrl_c)
    code, _, line = outcome(capsys, "reproduce", "--out", tmp_path)
    assert (code, line) == (1, "all 1 experiments are finished, but not the report")


def test_the_deep_study_says_how_many_runs_are_finished(monkeypatch, tmp_path, capsys):
    import planted_runs

    left = iter([planted_runs.whole, planted_runs.whole, ctrl_c])
    monkeypatch.setattr("studies.deep.study.perform", lambda setting, selection: next(left)(setting, selection))
    code, shown, line = outcome(capsys, "--smoke", "--jobs", "1", "--out", tmp_path, program=deep.run)
    assert (code, shown) == (1, "")
    assert line == f"2 of {len(deep_plan())} runs are finished; run the same command to continue"


def deep_plan():
    from studies.deep.study import SMOKE, plan

    return plan(SMOKE)


def test_the_deep_study_says_that_its_page_is_not_finished(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("studies.deep.report.write_page", ctrl_c)
    code, _, line = outcome(capsys, "--smoke", "--report-only", "--out", tmp_path, program=deep.run)
    assert (code, line) == (1, "the runs are finished, but not the page")
