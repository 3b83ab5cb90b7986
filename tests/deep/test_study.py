"""The study: its plan, one file per run, resuming, merging, and what happens when a run fails."""

import json
import shutil
from collections import Counter
from dataclasses import replace

import planted_runs
import pytest

from safereplay.errors import BadFile, BadInput, MissingExtra
from safereplay.surprise import SurpriseSampler
from studies.deep import __main__ as command
from studies.deep import study, worlds
from studies.deep.records import collect, read_record
from studies.deep.study import FULL, SMOKE, Preset, families, further, plan, run_jobs
from studies.deep.summary import DEFAULT, FAMILIES, IQN, KEYED, LIMITED, OURS, PENALTY, PLAIN, RANDOM, RIVALS
from studies.deep.training import Setting

TINY = Preset(("cliff",), seeds=3, steps=100, episodes=5, selection=4, small=True)


def counted(world):
    return Counter(family for family, _, _ in families(world))


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_every_dial_has_three_settings_and_continuous_actions_only_replay_and_penalties():
    replay = {RANDOM: 1, PLAIN: 1, OURS: 3, KEYED: 1, PENALTY: 3}
    assert counted("cliff") == {**replay, **dict.fromkeys(RIVALS, 3), LIMITED: 1}
    assert counted("cheetah") == {**replay, LIMITED: 1}
    assert {job.setting["algorithm"] for job in plan(Preset(("cheetah",)))} == {"random", "sac"}


def test_the_default_of_shaped_replay_is_the_buffers():
    """The first dial of the family, with no key and β = 1."""
    dial, changes = next((dial, x) for family, dial, x in families("cliff") if family == OURS)
    assert dial == DEFAULT
    sampler = SurpriseSampler()
    assert (Setting("cliff", **changes).v, Setting("cliff").beta, Setting("cliff").key) == (sampler.v, sampler.beta, "")


def test_where_danger_comes_late_keys_tilt_on_the_target():
    tilts = {world: {x["tilt_on"] for _, _, x in families(world) if "tilt_on" in x} for world in ("delayed", "cliff")}
    assert tilts == {"delayed": {"target"}, "cliff": set()}


def test_the_main_comparison_and_named_limits_have_twenty_seeds_and_all_else_five():
    jobs = plan(FULL)
    assert {job.setting["world"] for job in jobs} == set(worlds.WORLDS) - {"lander"}
    assert {job.family for job in jobs} == set(FAMILIES)
    seeds = Counter((job.setting["world"], job.family, job.dial) for job in jobs)
    for (_, family, dial), count in seeds.items():
        assert count == (20 if family in (PLAIN, RANDOM, LIMITED) or (family, dial) == (OURS, DEFAULT) else 5)
    for job in jobs:
        if job.family != RANDOM:
            assert Setting.from_dict(job.setting).to_dict() == job.setting
        assert job.setting["steps"] == worlds.WORLDS[job.setting["world"]].steps
    assert min(job.setting["episodes"] for job in jobs) >= 300


def test_the_main_comparison_comes_first_then_limits_then_the_dial_then_rivals_each_by_seed():
    jobs = plan(FULL._replace(worlds=("cliff", "point")))
    main = [job for job in jobs if job.family in (PLAIN, RANDOM) or (job.family, job.dial) == (OURS, DEFAULT)]
    assert jobs[: len(main)] == main
    assert [job.setting["seed"] for job in main] == sorted(job.setting["seed"] for job in main)
    families = [job.family for job in jobs[len(main) :]]
    assert families[:40] == [LIMITED] * 40
    families = families[40:]
    assert set(families[: families.index(IQN)]) == {OURS, KEYED, PENALTY}
    assert set(families[families.index(IQN) :]) == set(RIVALS) - {PENALTY}
    assert jobs[0].setting["world"] == "point"  # the longer one


def test_two_runs_share_a_file_only_if_they_do_the_same():
    jobs = plan(FULL)
    assert len({job.file for job in jobs}) == len(jobs)
    assert jobs[0]._replace(family="something else").file == jobs[0].file
    assert jobs[0]._replace(selection=7).file != jobs[0].file


def test_a_world_with_other_terms_gives_other_runs(monkeypatch):
    job = plan(TINY)[0]
    before = job.file
    other = replace(worlds.WORLDS["cliff"], gamma=0.5)
    monkeypatch.setitem(worlds.WORLDS, "cliff", other)
    assert job.file != before


def test_a_preset_says_what_is_wrong_with_it():
    with pytest.raises(BadInput, match=r"unknown world 'clif'; did you mean 'cliff'\?"):
        Preset(("clif",)).checked()
    with pytest.raises(BadInput, match="seeds must be at least 1, got 0"):
        Preset(("cliff",), seeds=0).checked()
    with pytest.raises(BadInput, match="worlds must name some of cliff, "):
        Preset(()).checked()
    assert Preset(("cliff", "cliff")).checked().worlds == ("cliff",)


def test_only_chosen_settings_get_further_seeds_once_a_world_is_complete(tmp_path):
    preset = Preset(("cliff",), seeds=4, fewer=2, steps=100, episodes=5, selection=4)
    jobs = plan(preset)
    run_jobs(jobs[:-1], tmp_path, work=planted_runs.whole)
    assert further(preset, jobs, collect(jobs, tmp_path).chapters) == []
    run_jobs(jobs, tmp_path, work=planted_runs.whole)
    chapter = collect(jobs, tmp_path).chapters[0]
    more = further(preset, jobs, [chapter])
    shown = [*chapter.contestants.values(), *(choice.group for choice in chapter.choices.values())]
    settings = {(group.family, group.dial) for group in shown if group.seeds == 2}
    assert settings
    expected = {(*setting, seed) for setting in settings for seed in (2, 3)}
    assert {(job.family, job.dial, job.setting["seed"]) for job in more} == expected
    assert len(more) == len(expected)
    run_jobs(more, tmp_path, work=planted_runs.whole)
    after = collect([*jobs, *more], tmp_path)
    assert after.missing == after.strangers == 0
    assert further(preset, [*jobs, *more], after.chapters) == []


# -- running it --------------------------------------------------------------------------------------------------------


def remembering(calls, stop_at=None):
    def work(setting, selection):
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        calls.append(setting)
        return planted_runs.whole(setting, selection)

    return work


def test_a_run_that_is_there_is_not_run_again(tmp_path):
    jobs, calls = plan(TINY), []
    first = run_jobs(jobs[:4], tmp_path, work=remembering(calls))
    second = run_jobs(jobs, tmp_path, work=remembering(calls))
    assert first == (4, 0, (), 0)
    assert second == (len(jobs) - 4, 4, (), 0)
    assert calls == [job.setting for job in jobs]


def test_a_study_that_was_stopped_goes_on_where_it_was(tmp_path):
    jobs, calls = plan(TINY), []
    with pytest.raises(KeyboardInterrupt):
        run_jobs(jobs, tmp_path, work=remembering(calls, stop_at=3))
    assert len(list((tmp_path / "runs").iterdir())) == 3
    run_jobs(jobs, tmp_path, work=remembering(calls))
    assert calls == [job.setting for job in jobs]


def test_runs_of_another_machine_are_merged_by_copying_their_files(tmp_path):
    jobs = plan(TINY)
    run_jobs(jobs[::2], tmp_path / "here", work=planted_runs.whole)
    run_jobs(jobs[1::2], tmp_path / "there", work=planted_runs.whole)
    for file in (tmp_path / "there" / "runs").iterdir():
        shutil.copy(file, tmp_path / "here" / "runs")
    assert run_jobs(jobs, tmp_path / "here", work=planted_runs.made_up) == (0, len(jobs), (), 0)
    found = collect(jobs, tmp_path / "here")
    assert found.missing == 0
    assert all(group.seeds == 3 for group in found.chapters[0].groups)


def test_a_run_that_fails_is_told_of_in_a_line_and_stops_no_other(tmp_path):
    jobs = plan(TINY)
    done, kept, failed, left = run_jobs(jobs, tmp_path, work=planted_runs.made_up)
    assert (done, kept, left) == (len(jobs) - 1, 0, 0)
    assert failed == ("cliff, QR-DQN CVaR, α = 0.25, seed 1: ValueError: this one is planted",)
    assert collect(jobs, tmp_path).missing == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_not_installed_is_told_once(workers, tmp_path):
    with pytest.raises(MissingExtra, match=r"training needs torch; install it with: pip install 'safereplay\[deep\]'"):
        run_jobs(plan(TINY), tmp_path, workers, work=planted_runs.bare)


def test_when_the_time_is_over_no_new_run_is_begun(tmp_path):
    jobs = plan(TINY)
    assert run_jobs(jobs, tmp_path, budget=0.0, work=planted_runs.whole) == (0, 0, (), len(jobs))
    hours = iter(range(100))  # an hour passes before each job
    found = run_jobs(jobs, tmp_path, budget=2.5, work=planted_runs.whole, clock=lambda: float(next(hours)))
    assert found == (2, 0, (), len(jobs) - 2)
    with pytest.raises(BadInput, match=r"budget must be in \[0, inf\), got -1"):
        run_jobs(jobs, tmp_path, budget=-1.0)
    with pytest.raises(BadInput, match="jobs must be at least 1, got 0"):
        run_jobs(jobs, tmp_path, workers=0)


def test_processes_find_what_one_process_finds_with_one_thread_each(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    jobs, told = plan(TINY), []
    alone = run_jobs(jobs, tmp_path / "one", work=planted_runs.made_up)
    both = run_jobs(jobs, tmp_path / "two", 2, tell=lambda n, line: told.append((n, line)), work=planted_runs.made_up)
    assert (both.done, sorted(both.failed)) == (alone.done, sorted(alone.failed))
    names = [sorted(file.name for file in (tmp_path / x / "runs").iterdir()) for x in ("one", "two")]
    assert names[0] == names[1]
    made = [read_record(file).versions for file in (tmp_path / "two" / "runs").iterdir()]
    assert {x["cores"] for x in made} == {"1"}  # where the helper puts the number of threads
    assert len({x["system"] for x in made}) <= 2  # and its process
    assert [n for n, _ in told] == list(range(1, len(jobs) + 1))


def test_a_process_that_is_ended_costs_only_what_ran_then(tmp_path):
    jobs = plan(TINY)
    outcome = run_jobs(jobs, tmp_path, 2, work=planted_runs.deadly)
    assert 1 <= len(outcome.failed) <= 2
    assert any(
        "random, seed 1: RuntimeError: its process, or another one of the pool, was killed" in x for x in outcome.failed
    )
    assert outcome.done == len(jobs) - len(outcome.failed)


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_file_that_is_no_run_is_named(tmp_path):
    (tmp_path / "runs").mkdir()
    for text in ("", "{}", "[1]", '{"format": 1, "setting": {"seed": 0}, "result": {}, "selection": 1, "terms": {}}'):
        (tmp_path / "runs" / "broken.json").write_text(text)
        with pytest.raises(BadFile, match=r"broken.json must be a run of this study, got another file; delete"):
            collect(plan(TINY), tmp_path)


def test_seeds_beyond_the_plan_count_and_other_settings_do_not(tmp_path):
    run_jobs(plan(TINY._replace(seeds=4)), tmp_path, work=planted_runs.whole)
    run_jobs(plan(TINY._replace(steps=200, seeds=1)), tmp_path, work=planted_runs.whole)
    found = collect(plan(TINY), tmp_path)
    assert [group.seeds for group in found.chapters[0].groups] == [4] * 9
    assert (found.missing, found.strangers) == (0, 9)
    assert [run.seed for run in found.chapters[0].plain.runs] == [0, 1, 2, 3]


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--worlds", "clif"], "unknown world 'clif'; did you mean 'cliff'?"),
        (["--worlds", ","], "worlds must name some of cliff, "),
        (["--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--jobs", "0"], "jobs must be at least 1, got 0"),
        (["--budget", "-3"], "budget must be in [0, inf), got -3"),
        (["--sedes", "3"], "No such option: --sedes"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, line, tmp_path, capsys):
    assert command.run([*arguments, "--out", str(tmp_path / "x")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"safereplay: {line}")
    assert told.count("\n") == 1


def test_the_command_tells_of_failures_and_leaves_with_1_then_does_what_is_left(tmp_path, capsys, monkeypatch):
    arguments = ["--smoke", "--worlds", "cliff", "--out", str(tmp_path), "--jobs", "1"]
    monkeypatch.setattr(study, "perform", planted_runs.made_up)
    assert command.run(arguments) == 1
    told = capsys.readouterr()
    assert "17 runs done, 0 done before, 1 failed\n" in told.out
    assert "safereplay: failed: cliff, QR-DQN CVaR, α = 0.25, seed 1: ValueError: this one is planted\n" in told.err
    monkeypatch.setattr(study, "perform", planted_runs.whole)
    assert command.run(arguments) == 0
    assert "1 runs done, 17 done before, 0 failed\n" in capsys.readouterr().out
    assert (tmp_path / "deep.md").is_file()


def test_a_report_of_nothing_says_so(tmp_path, capsys):
    assert command.run(["--report-only", "--out", str(tmp_path)]) == 0
    assert "no page" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_smoke_study_runs_for_real_and_the_same_run_gives_the_same(tmp_path, capsys):
    """With one seed on the point task: nine runs, eight of them of 300 steps, in this process."""
    out, docs = tmp_path / "study", tmp_path / "docs"
    arguments = ["--smoke", "--worlds", "point", "--seeds", "1", "--out", str(out), "--docs", str(docs), "--jobs", "1"]
    assert command.run(arguments) == 0
    assert "9 runs done, 0 done before, 0 failed\n" in capsys.readouterr().out
    assert "|  | shaped | v = 0.8 (default) |" in (docs / "deep.md").read_text()
    assert {f.name for f in (docs / "img").iterdir()} >= {
        f"deep-{name}.{kind}" for name in ("frontier", "curves", "paths") for kind in ("svg", "png")
    }
    job = next(job for job in plan(SMOKE) if job.family == OURS and job.setting["world"] == "point")
    again = json.loads(json.dumps(study.perform(job.setting, job.selection)["evaluation"]))
    assert json.loads((out / "runs" / job.file).read_text())["result"]["evaluation"] == again


@pytest.mark.slow
def test_the_whole_smoke_study_runs_in_two_processes(tmp_path, capsys):
    assert command.run(["--smoke", "--out", str(tmp_path), "--jobs", "2"]) == 0
    assert "36 runs done, 0 done before, 0 failed\n" in capsys.readouterr().out
