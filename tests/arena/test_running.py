"""Running, stopping and going on. Runs are tiny: 800 steps, 20 seeds."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

import safereplay as sr
from safereplay.arena import plan as running
from safereplay.arena.plan import Job, Store, judged, run
from safereplay.arena.report import compare, planned
from safereplay.arena.results import collect
from safereplay.errors import BadInput

STEPS = 800


def plan(places=("cliff", "volatile"), learners=("q", "gaskett"), schemes=("variance",)):
    return planned(list(learners), list(schemes), list(places), steps=STEPS)


def files(folder):
    """The digest of everything in a folder but the lock."""
    found = [file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.startswith(".lock")]
    return {str(file.relative_to(folder)): hashlib.blake2b(file.read_bytes()).hexdigest() for file in found}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A comparison of two worlds and four contestants, done in one go."""
    folder = tmp_path_factory.mktemp("whole")
    found, page = compare(plan(), folder, quiet=True)
    return folder, found, page


def test_every_run_takes_exactly_the_same_number_of_steps(whole, monkeypatch):
    taken = []

    def spied(job, runs):
        taken.append(runs.visits.sum((1, 2)))
        return judged(job, runs)

    monkeypatch.setattr(running, "judged", spied)
    tiny = planned(["q", "gaskett", "worst-case"], ["variance"], ["cliff"], steps=160)
    with Store(whole[0].parent / "steps") as store:
        run(tiny, store, quiet=True)
    assert len(taken) == len(list(tiny.jobs()))
    assert {int(steps) for some in taken for steps in some} == {160}


def learns_something_else_where_other_outcomes_are_unsafe(learner):
    mdp = sr.grids.cliff()
    other = replace(mdp, unsafe=~mdp.unsafe)
    first, second = (sr.learn(m, learner, steps=5_000, seeds=1, quiet=True) for m in (mdp, other))
    return not np.array_equal(first.Q, second.Q)


@pytest.mark.parametrize(
    ("learner", "uses"),
    [
        (sr.QLearning(), False),
        (sr.ErrorStates(), True),
        (sr.ReplayQLearning(), False),
        (sr.ReplayQLearning(sr.ErrorReplay()), True),
        (sr.MeanVariance(), False),
    ],
    ids=repr,
)
def test_a_learner_says_whether_it_looks_at_what_is_unsafe(learner, uses):
    assert learner.uses_unsafe == uses == learns_something_else_where_other_outcomes_are_unsafe(learner)


def test_a_run_of_other_steps_is_refused():
    job = Job(plan().worlds[0], sr.QLearning(), 20)
    runs = sr.learn(job.world.mdp, sr.QLearning(), steps=STEPS + 1, snapshots=4, seeds=2, quiet=True)
    with pytest.raises(BadInput, match=f"steps of a run must be {STEPS}, got"):
        judged(job, runs)


def test_each_policy_is_judged_exactly_at_each_look(whole):
    world, learner = whole[1].plan.worlds[0], sr.Pessimistic(0.2)
    with Store(whole[0]) as store:
        record = store.get(Job(world, learner, 20))
    looks = [100, 200, 400, 800]
    assert world.looks.tolist() == looks
    runs = sr.learn(
        world.mdp, learner, steps=STEPS, seeds=20, exploration=sr.EpsilonGreedy(0.3), max_steps=200, quiet=True
    )
    for k in (0, 7):
        risk = sr.evaluate(world.mdp, runs.policy[k], start=world.mdp.origin)
        found = record.value[k, -1], record.p_unsafe[k, -1], record.p_never[k, -1]
        assert found == pytest.approx((risk.mean, risk.p_unsafe, risk.p_never))
    short = sr.learn(
        world.mdp, learner, steps=100, seeds=[3], exploration=sr.EpsilonGreedy(0.3), max_steps=200, quiet=True
    )
    risk = sr.evaluate(world.mdp, short.policy[0], start=world.mdp.origin)
    assert record.p_unsafe[3, 0] == pytest.approx(risk.p_unsafe)
    limit = sr.evaluate(world.mdp, sr.exact(world.mdp, learner).argmax(1), start=world.mdp.origin)
    assert record.limit.tolist() == pytest.approx([limit.mean, limit.p_unsafe, 0.0])


def test_literal_replay_has_no_exact_limit_and_matched_has(whole):
    by_label = {f.label: f for f in whole[1].chapters[0].families}
    assert len(by_label["variance replay"].limits) == 1  # v = 0
    assert len(by_label["variance replay (matched)"].limits) == len(by_label["variance replay (matched)"].settings)


def test_what_two_contestants_share_is_run_once(whole):
    literal, matched = (
        {f.label: f for f in whole[1].chapters[0].families}[x] for x in ("variance replay", "variance replay (matched)")
    )
    assert np.array_equal(literal.p[0], matched.p[0])
    count = len(list((whole[0] / "runs").iterdir()))
    assert count == len(list(plan().jobs())) == 2 * (1 + 10 + 6 + 6)


def test_a_second_comparison_in_the_folder_runs_only_what_is_new(whole, monkeypatch):
    before = files(whole[0])
    ran = []
    monkeypatch.setattr(running, "_learned", lambda *a: ran.append(a))
    compare(plan(), whole[0], quiet=True)
    assert ran == []
    assert files(whole[0]) == before


def test_stopped_and_gone_on_it_ends_with_the_same_bytes(whole, tmp_path, monkeypatch):
    calls = []

    def interrupted(*arguments, **options):
        calls.append(1)
        if len(calls) == 9:
            raise KeyboardInterrupt
        return sr.learn(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(running, "learn", interrupted)
        with pytest.raises(KeyboardInterrupt, match=r"^8 of 46 settings are done; run the same command to continue$"):
            compare(plan(), tmp_path, quiet=True)
    assert not (tmp_path / "report.html").exists()
    assert len(list((tmp_path / "runs").iterdir())) == 8
    compare(plan(), tmp_path, quiet=True)
    assert files(tmp_path) == files(whole[0])


def test_a_damaged_record_is_made_again(whole, tmp_path):
    small = plan(["cliff"], ["q"], [])
    compare(small, tmp_path, quiet=True)
    before = files(tmp_path)
    (record,) = (tmp_path / "runs").iterdir()
    record.write_bytes(record.read_bytes()[:100])
    compare(small, tmp_path, quiet=True)
    assert files(tmp_path) == before


def test_a_learner_that_refuses_a_world_is_listed_with_its_reason(tmp_path, monkeypatch):
    def picky(mdp, learner, **options):
        if isinstance(learner, sr.ReplayQLearning) and learner.mixing == "literal":
            raise BadInput("mdp must have goals, got none")
        if isinstance(learner, sr.Pessimistic) and learner.beta == 1.0:
            raise BadInput("beta must be gentler, got 1")
        return sr.learn(mdp, learner, **options)

    monkeypatch.setattr(running, "learn", picky)
    found, page = compare(plan(["cliff"]), tmp_path, quiet=True)
    (chapter,) = found.chapters
    assert chapter.refused == (
        ("Gaskett, β = 1", "beta must be gentler, got 1"),
        ("variance replay", "mdp must have goals, got none"),
    )
    assert [f.label for f in chapter.families] == ["Q-learning", "Gaskett", "variance replay (matched)"]
    assert "mdp must have goals, got none" in page.read_text()


def test_another_comparison_in_the_same_folder_is_told_to_wait(tmp_path):
    with Store(tmp_path), pytest.raises(BadInput, match="must be free"):
        Store(tmp_path)


def test_the_page_has_every_world_and_every_contestant(whole):
    text = whole[2].read_text()
    for word in ("cliff", "volatile", "Gaskett", "variance replay (matched)", "Contestants", "Method"):
        assert word in text
    assert {"overview.svg", "cliff.svg", "cliff-all.svg"} <= {file.name for file in (whole[0] / "figures").iterdir()}


def test_an_incomplete_folder_is_not_collected(tmp_path):
    with Store(tmp_path) as store, pytest.raises(BadInput, match="comparison must be complete"):
        collect(plan(), store)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"seeds": 19}, "seeds must be at least 20, got 19"),
        ({"steps": 7}, "steps must be at least 8, got 7"),
        ({"base": "papr"}, "unknown preset 'papr'; did you mean 'paper'?"),
        ({"learners": [], "schemes": []}, "contestants must be at least one"),
    ],
)
def test_what_cannot_be_compared_is_refused(options, said):
    with pytest.raises(BadInput) as error:
        planned(**options)
    assert said in str(error.value)


def test_the_presets_are_the_papers_own_comparison_and_everything():
    quick, paper = planned(), planned(base="paper")
    assert [world.title for world in quick.worlds] == ["volatile", "cliff"]
    assert len(paper.worlds) == len(sr.catalog.WORLDS)
    assert len(paper.contestants) == len(sr.catalog.LEARNERS) - 1 + 2 * len(sr.catalog.SCHEMES)
