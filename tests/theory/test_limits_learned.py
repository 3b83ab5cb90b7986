"""Learning beside its limits: what literal replay ends at, what matched mixing ends at, and how fast."""

from collections import Counter

import numpy as np
import pytest

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.paper.experiments import QUICK, REPLAY, Effort, Work
from safereplay.paper.studies import (
    Case,
    Drawn,
    MatchedRate,
    RandomModels,
    draw,
    follow,
    judge,
    run_matched_rate,
    run_random_models,
)
from safereplay.theory.visits import often_visited

GRIDS = {"volatile": sr.grids.volatile, "cliff": sr.grids.cliff}
SCHEME = sr.VarianceReplay(beta=5.0)
SILENT = Work(lambda done: None)


def by_verdict(mdp, limits, seeds=20):
    """How many seeds ended at limits of each verdict."""
    counts = Counter()
    for one in limits:
        counts[sr.verdict(mdp, one.policy)] += round(seeds * one.learned)
    return counts


# -- the limits of literal replay ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", GRIDS)
def test_every_seed_ends_near_a_self_consistent_limit(grid):
    """Seeds 0–19 at the defaults, 100,000 episodes: each within 5 % of Q's range, over pairs visited 500 times."""
    mdp = GRIDS[grid]()
    limits = sr.fixed_point(mdp, SCHEME, 0.5, "self", episodes=100_000)
    runs = sr.learn(mdp, sr.ReplayQLearning(SCHEME, 0.5), 100_000, 20, quiet=True)
    assert sum(one.learned for one in limits) == pytest.approx(1.0)
    for Q, visits in zip(runs.Q, runs.visits, strict=True):
        often = often_visited(visits)
        errors = [np.abs(Q - one.Q)[often].max() / np.ptp(one.Q[often]) for one in limits]
        assert min(errors) < 0.05


@pytest.mark.parametrize("grid", GRIDS)
def test_at_the_defaults_all_seeds_end_at_safe_limits(grid):
    mdp = GRIDS[grid]()
    assert by_verdict(mdp, sr.fixed_point(mdp, SCHEME, 0.5, visitation="self")) == {"safe": 20}


def test_on_the_cliff_the_seed_decides_between_walking_and_never_moving():
    """γ = 0.9, ε = 0.05, seeds 0–19, 50,000 episodes: 14 end at limits that walk the safe path, 6 at ones that are stuck,
    and that is what their own policies do."""
    mdp, exploration = sr.grids.cliff(0.9), sr.EpsilonGreedy(0.05)
    limits = sr.fixed_point(mdp, SCHEME, 0.5, visitation="self", exploration=exploration)
    runs = sr.learn(mdp, sr.ReplayQLearning(SCHEME, 0.5), 50_000, 20, exploration, quiet=True)
    assert all(one.settled for one in limits)
    assert by_verdict(mdp, limits) == Counter(runs.verdicts) == {"safe": 14, "stuck": 6}


def test_softmax_exploration_ends_at_its_limits_too():
    """The cliff at temperature 1, seeds 0–5, 50,000 episodes: every seed within 15 % of a limit, the median within 6 %."""
    mdp = sr.grids.cliff()
    limits = sr.fixed_point(mdp, SCHEME, 0.5, "self", sr.Softmax(1.0), starts=6, seeds=6)
    assert sum(one.learned for one in limits) == pytest.approx(1.0)
    assert max(one.distance for one in limits if one.learned) < 0.06


# -- which limit: the one with d, not the paper's -----------------------------------------------------------------------


@pytest.mark.parametrize("grid", GRIDS)
def test_on_the_grids_every_seed_ends_nearer_to_the_limit_with_its_visits(grid):
    """Seeds 0–19, ε = 0.3, 400,000 steps: the limits differ by more than the noise, and the paper's is five times off."""
    drawn = Drawn(GRIDS[grid](), REPLAY, sr.EpsilonGreedy(0.3))
    for seed in range(20):
        case = judge(drawn, seed, 400_000)
        assert case.differs
        assert case.error_visited < 0.2 * case.error_paper


def check_random_models(cases, least):
    """At least ``least`` models have limits further apart than the noise, and on every one of them d decides."""
    study = RandomModels(0, tuple(cases))
    assert len(study.differing) >= least
    assert study.exceptions == ()


@pytest.mark.slow
def test_on_random_models_learning_ends_nearer_to_the_limit_with_its_visits():
    """Models and runs 0–39, 200,000 steps."""
    check_random_models([judge(draw(seed), seed, 200_000) for seed in range(40)], 30)


@pytest.mark.slow
def test_on_200_random_models_learning_ends_nearer_to_the_limit_with_its_visits():
    """Models and runs 0–199, 500,000 steps, as in the full study."""
    study = run_random_models(Effort(), SILENT)
    assert len(study.cases) == 200
    check_random_models(study.cases, 180)


def test_random_models_differ_in_everything_that_matters():
    drawn = [draw(seed) for seed in range(200)]
    assert {d.mdp.n_states for d in drawn} == set(range(3, 10))
    assert {d.mdp.n_actions for d in drawn} == {2, 3, 4}
    assert {type(d.learner.scheme).__name__ for d in drawn} == {"VarianceReplay", "TiltReplay", "Scheme"}
    assert len({getattr(d.learner.scheme, "beta", None) for d in drawn}) == 8
    assert min(d.learner.v for d in drawn) < 0.15 < 0.85 < max(d.learner.v for d in drawn)
    assert min(d.mdp.gamma for d in drawn) < 0.55 < 0.93 < max(d.mdp.gamma for d in drawn)


def test_an_exception_would_be_seen():
    """Under matched mixing the paper's limit is right, so the same judge says the opposite."""
    drawn = Drawn(sr.grids.cliff(), sr.ReplayQLearning(SCHEME, 0.5, mixing="matched"), sr.EpsilonGreedy(0.3))
    study = RandomModels(160_000, (judge(drawn, 0, 160_000),))
    assert isinstance(study.cases[0], Case)
    assert len(study.exceptions) == 1


@pytest.mark.slow
def test_the_study_does_not_depend_on_how_jobs_are_spread():
    effort = Effort(random_models=10, random_steps=8_000)
    one, two = run_random_models(effort, SILENT), run_random_models(effort, SILENT)
    assert len(one.cases) == 10
    assert repr(one) == repr(two)


# -- how fast -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", GRIDS)
def test_under_matched_mixing_the_error_to_the_papers_limit_falls(grid):
    """Seeds 0–3, 1,000 to 100,000 episodes: the slope of log error on log episodes lies in (−0.8, −0.2); α falls as
    n^−0.6, so noise alone would have it at −0.3, and pairs that are learned late make it steeper."""
    points = np.geomspace(1_000, 100_000, 5).astype(np.int64)
    drawn = Drawn(GRIDS[grid](), sr.ReplayQLearning(SCHEME, 0.5, mixing="matched"), sr.EpsilonGreedy())
    study = MatchedRate({grid: points}, {grid: np.array([follow(drawn, seed, points) for seed in range(4)])})
    assert -0.8 < study.slopes[grid] < -0.2


@pytest.mark.slow
def test_on_every_model_the_error_under_matched_mixing_falls_about_as_its_noise_does():
    """Both grids, 1,000 to 100,000 episodes, and six random models, a tenth of that, 2 seeds each."""
    study = run_matched_rate(QUICK, SILENT)
    assert list(study.errors) == ["volatile", "cliff", *(f"random {k}" for k in range(6))]
    assert study.episodes["cliff"][[0, -1]].tolist() == [1_000, 100_000]
    assert study.episodes["random 0"][[0, -1]].tolist() == [100, 10_000]
    for slope in study.slopes.values():
        assert -0.8 < slope < -0.15


def test_a_slope_is_the_power_of_the_error():
    episodes = np.array([1_000, 10_000, 100_000])
    study = MatchedRate({"x": episodes}, {"x": np.stack([episodes**-0.3, 2.0 * episodes**-0.3, 9.0 * episodes**-0.3])})
    assert study.slopes["x"] == pytest.approx(-0.3)


# -- asking for them ----------------------------------------------------------------------------------------------------


def test_visitation_is_an_array_nothing_or_self():
    mdp = sr.grids.cliff()
    with pytest.raises(BadInput, match=r"visitation must be d\(s,a\), None or 'self', got 'selv'"):
        sr.fixed_point(mdp, SCHEME, 0.5, "selv")
    with pytest.raises(BadInput, match="scheme must be a Scheme, got 'variance'"):
        sr.fixed_point(mdp, "variance", 0.5, "self")


def test_options_of_the_search_come_with_self():
    mdp = sr.grids.cliff()
    with pytest.raises(BadInput, match="exploration must come with visitation='self', got EpsilonGreedy"):
        sr.fixed_point(mdp, SCHEME, 0.5, None, sr.EpsilonGreedy())
    with pytest.raises(BadInput, match="seeds must come with visitation='self', got 3"):
        sr.fixed_point(mdp, SCHEME, 0.5, np.ones((24, 4)), seeds=3)
    with pytest.raises(BadInput, match="unknown argument of fixed_point 'sedes'; did you mean 'seeds'"):
        sr.fixed_point(mdp, SCHEME, 0.5, "self", sedes=3)


def test_the_hint_of_literal_mixing_names_self():
    with pytest.raises(BadInput, match=r"use fixed_point\(\.\.\., visitation='self'\)"):
        sr.exact(sr.grids.cliff(), sr.ReplayQLearning(SCHEME, 0.5))
