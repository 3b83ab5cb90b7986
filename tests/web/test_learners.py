"""Designed replay in the playground: its answers, its dial, its refusals, its script and its runs."""

import asyncio
import json
import subprocess
import sys
from contextlib import aclosing
from dataclasses import replace

import numpy as np
import pytest
from waiting import END

import safereplay as sr
from safereplay.web import answers, learners
from safereplay.web.app import Solved
from safereplay.web.kinds import Side
from safereplay.web.state import LearnerLink, LearnLink, StateLink, WorldLink


def asked(**parameters):
    found = json.loads(json.dumps(answers.solve(parameters), allow_nan=False))
    Solved.model_validate(found)
    return found


@pytest.fixture
def forgotten():
    """No designs from other tests."""
    for cache in (learners.design_of, learners._plans):
        cache.cache_clear()


def test_the_answer_is_the_design_of_the_public_api(forgotten):
    mdp = sr.grids.cliff()
    plan = sr.design(mdp, max_p_unsafe=0.035, start=mdp.origin, quiet=True)
    found = asked(world="cliff", learner="design,limit:0.035")
    np.testing.assert_allclose(found["Q"], plan.Q, rtol=1e-5, atol=1e-8)
    assert found["risk"]["p_unsafe"] == pytest.approx(plan.price.profile.p_unsafe)
    assert found["label"] == plan.learner.describe()
    replays = [(one["state"], one["action"], one["rho"]) for one in found["design"]["replays"]]
    assert replays == [(one.state, one.action, pytest.approx(one.rho)) for one in plan.replays]
    assert found["note"] == answers.REPLAYED.format(7, "moves are", plan.v)


def test_the_range_of_the_dial_is_from_the_least_risk_to_that_of_q_learning():
    mdp = sr.grids.cliff()
    plan = sr.design(mdp, max_p_unsafe=0.05, start=mdp.origin, quiet=True)
    dial = asked(world="cliff", learner="design")["design"]
    assert 0 <= dial["min"] - plan.price.ceiling.best < dial["step"]
    assert 0 <= dial["max"] - plan.price.plain.p_unsafe < dial["step"]
    assert dial["min"] < dial["limit"] < dial["max"]


def test_the_default_limit_follows_the_world():
    limits = [asked(world="cliff", slip=slip, learner="design")["design"]["limit"] for slip in (0.1, 0.2)]
    assert limits[0] < limits[1]


@pytest.mark.parametrize(
    ("least", "most"), [(0.0, 0.0), (0.3, 0.3), (1.0, 1.0), (0.0, 1.0), (0.99995, 1.0), (1e-6, 0.2)]
)
def test_a_dial_has_a_valid_range_in_every_world(least, most):
    dial = learners.LimitRange.between(least, most)
    assert 0.0 <= dial.min <= dial.default <= dial.max <= 1.0
    assert least <= dial.min + 1e-9
    assert most <= dial.max + 1e-9
    assert dial.step > 0.0


@pytest.mark.parametrize("world", ["cliff", "volatile", "ledge"])
def test_a_design_that_serves_several_limits_is_the_one_of_each(world, forgotten):
    model = WorldLink(world=world).to_world()
    dial = learners.limit_range(model)
    for share in (0.9, 0.2, 0.7, 0.45):
        limit = round(dial.min + share * (dial.max - dial.min), 4)
        truth = sr.design(model.mdp(), max_p_unsafe=limit, start=model.start_distribution(), quiet=True)
        found = learners.design_of(model, limit)
        assert found.price.profile.p_unsafe <= limit
        assert found.price.profile.mean == pytest.approx(truth.price.profile.mean)
        assert found.v == pytest.approx(truth.v)


def test_a_design_is_used_again_for_limits_that_its_policy_keeps(monkeypatch, forgotten):
    world, designed = WorldLink(world="cliff").to_world(), []
    design = sr.design
    monkeypatch.setattr(sr, "design", lambda *args, **terms: designed.append(1) or design(*args, **terms))
    for limit in (0.06, 0.059, 0.055, 0.051):
        learners.design_of(world, limit)
    assert len(designed) == 1


def test_a_policy_is_not_used_for_a_limit_that_a_tie_breaks(forgotten):
    world = WorldLink(world="cliff").to_world()
    plan = learners.design_of(world, 0.06)
    at = learners._plans(world)[0]
    assert learners._serving([at], 0.05) == [at]
    assert learners._serving([at._replace(risk=0.055)], 0.05) == []
    assert learners._serving([at], at.bound + 0.01) == []
    tied = np.zeros_like(plan.tied)
    s = sr.grids.cliff().origin
    tied[s] = np.arange(4) == 1  # into the cliff
    assert learners._risk_with_ties(world, plan) == pytest.approx(plan.price.profile.p_unsafe)
    assert learners._risk_with_ties(world, replace(plan, tied=tied)) > 0.5


@pytest.mark.parametrize(
    ("link", "said"),
    [
        (
            {"learner": "design,limit:0.01"},
            r"limit must be one that designed replay can keep, got 0\.01; at best a policy has P\(unsafe\) 2\.781%",
        ),
        ({"learner": "design,limit:2"}, r"limit must be in \[0, 1\], got 2"),
        ({"learner": "design,limit:-0.1"}, r"limit must be in \[0, 1\], got -0\.1"),
        ({"learner": "design,limit:low"}, "limit must be a number, got 'low'"),
        ({"learner": "design,v:0.5"}, "dial of design must be one of limit, got 'v'"),
        ({"world": "blank", "learner": "design"}, "world must have a hazard or a volatile move, for designed replay"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused_in_one_line(link, said):
    with pytest.raises(sr.BadInput, match=said) as caught:
        answers.solve(link)
    assert "\n" not in str(caught.value)


def test_policies_that_replay_cannot_give_are_refused_without_their_details(monkeypatch, forgotten):
    why = "max_p_unsafe must be a limit that designed replay can keep, got 0.05; replay cannot give the policies that keep it"

    def refuse(*_, **__):
        raise sr.Unreachable(f"{why}: action 2 in state 33 is in the way; bold=True may help")

    monkeypatch.setattr(sr, "design", refuse)
    with pytest.raises(sr.BadInput) as caught:
        answers.solve({"learner": "design,limit:0.05"})
    assert str(caught.value) == why.replace("max_p_unsafe must be a limit", "limit must be one")


def test_no_replay_is_said_where_none_is_needed():
    found = asked(world="lottery", learner="design,limit:0.9")
    assert found["design"]["replays"] == []
    assert found["note"] == answers.NO_REPLAY


def test_a_search_that_was_stopped_says_what_is_not_proved(monkeypatch):
    world, side = WorldLink(world="cliff").to_world(), Side.parse("design,limit:0.05")
    plan = learners.design_of(world, 0.05)
    best = plan.price.found
    found = replace(plan, price=replace(plan.price, found=best._replace(bound=best.value + 0.25)))
    monkeypatch.setattr(answers, "design_of", lambda *_: found)
    assert answers._designed(world, side)[-1] == answers.GAP.format(0.25)
    assert learners._risk_with_ties(world, found) == np.inf


def test_only_the_schemes_with_dials_can_be_tuned():
    with pytest.raises(sr.BadInput, match=r"learner must be a replay, got 'design,limit:0\.05'"):
        answers.tune({"learner": "design,limit:0.05"})


@pytest.mark.parametrize("text", ["design", "design,limit:0.035"])
def test_a_link_carries_the_limit(text):
    side = LearnerLink(learner=text).to_side()
    assert side.text == text
    assert StateLink(right=text).to_state()["right"] == side.to_dict() == {"kind": "design", **side.dials()}


@pytest.mark.parametrize("text", ["design,limit:0.035", "design"])
def test_an_exported_script_designs_the_replay_and_says_what_the_page_says(text, tmp_path):
    code = answers.study(StateLink(right=text).model_dump())["text"]
    found = asked(world="cliff", learner=text)
    assert f"sr.design(world, max_p_unsafe={found['design']['limit']}, start=start, quiet=True).learner," in code
    assert "DesignedReplay(" not in code
    file = tmp_path / "study.py"
    file.write_text(code)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=END, check=True)
    risk = found["risk"]
    numbers = f"P(unsafe) {risk['p_unsafe']:.6f}, mean {risk['mean']:.6f}"
    assert done.stdout.splitlines()[1] == f"{found['label']}: exact limit safe, {numbers}"


def test_a_run_has_the_learner_of_the_answer_and_is_not_designed_again(monkeypatch):
    link = LearnLink(learner="design,limit:0.035", by=1_000, until=2_000, pace=40)
    answer = json.loads(json.dumps(answers.solve({"learner": link.learner})))
    mdp = sr.grids.cliff()
    plan = sr.design(mdp, max_p_unsafe=0.035, start=mdp.origin, quiet=True)
    monkeypatch.setattr(sr, "design", lambda *_, **__: pytest.fail("designed again"))
    monkeypatch.setattr(answers, "learner_of", lambda *_: pytest.fail("designed again"))

    async def target(link):
        return answers.Target.of(link, answer)

    async def listen():
        async with aclosing(answers.Streams(target).frames(link)) as events:
            return [event.content async for event in events if event.name == "frame"]

    last = asyncio.run(listen())[-1]
    run = sr.Stepper(mdp, plan.learner, 0, sr.EpsilonGreedy(0.1)).run(2_000)
    np.testing.assert_allclose(last["Q"], run.Q, rtol=1e-5)
    assert last["seeds"][0]["gap"] == pytest.approx(run.gap(plan.Q), rel=1e-3)
