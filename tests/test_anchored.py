"""Anchored mixing: each visit is one update, and with probability v·min(1, W) a replay of its pair takes the place of the outcome."""

import gymnasium
import numpy as np
import pytest

import safereplay as sr
from safereplay.theory.operator import operator


def coin(prize, gamma=0.9):
    """One state, one action: ±prize evenly, then it ends; the variance is prize²."""
    rows = [(0, 0, 0.5, 1, r, True, r < 0) for r in (-prize, prize)]
    return sr.TabularMDP.from_outcomes(2, 1, rows, gamma=gamma, start=0)


def anchored(scheme, v, **options):
    return sr.ReplayQLearning(scheme, v=v, mixing="anchored", **options)


@pytest.mark.parametrize(("prize", "v", "rho"), [(0.5, 1.0, 0.25), (0.5, 0.4, 0.1), (30.0, 0.4, 0.4), (30.0, 1.0, 1.0)])
def test_a_share_of_v_times_min_1_w_of_the_visits_is_replayed(prize, v, rho):
    """W is the variance, not its share. 20,000 visits, seed 0; four standard deviations of the share of replays are 0.014."""
    mdp, learner = coin(prize), anchored(sr.VarianceReplay(0.1), v)
    runs = sr.learn(mdp, learner, 20_000, seeds=1, quiet=True)
    assert runs.visits.sum() == 20_000
    assert runs.replays.sum() / 20_000 == pytest.approx(rho, abs=0.014)
    assert operator(mdp, learner.scheme, v, anchored=True).rho[0, 0] == pytest.approx(rho)


def test_each_visit_is_one_update_and_the_step_size_counts_updates():
    """With α = 1/n and targets r, Q is the mean reward of the updates: replays, and visits that none of them follows."""
    run = sr.Stepper(coin(0.7), anchored(sr.VarianceReplay(0.5), 0.9), step_size=sr.PowerStep(1.0))
    events = run.trace(3_000)
    events += run.trace(int(events[-1].replayed is False))  # the replay of a visit that was held
    updates = [
        event.r
        for event, after in zip(events, [*events[1:], None], strict=True)
        if event.replayed or after is None or not after.replayed
    ]
    assert len(updates) == run.visits.sum()
    assert run.replays.sum() > 400
    assert run.Q[0, 0] == pytest.approx(np.mean(updates), rel=1e-12)


def test_nothing_is_replayed_before_t0_and_nothing_at_v_0():
    assert sr.learn(coin(3.0), anchored(sr.VarianceReplay(), 0.9, T0=500), 400, seeds=1, quiet=True).replays.sum() == 0
    assert sr.learn(coin(3.0), anchored(sr.VarianceReplay(), 0.0), 400, seeds=1, quiet=True).replays.sum() == 0


def test_a_run_can_stop_between_a_visit_and_its_replay():
    mdp, learner = sr.grids.cliff(), anchored(sr.CVaRReplay(), 0.8)
    whole = sr.learn(mdp, learner, 300, seeds=[5], quiet=True)
    run = sr.Stepper(mdp, learner, seed=5)
    while run.episodes < 200:
        run.run(1)
    assert np.array_equal(run.run_episodes(300 - run.episodes).Q, whole.Q[0])


def test_an_agent_replays_the_pair_that_it_visited():
    """In an environment too: its replays are v of the visits of pairs seen before (20,000 steps, seed 0; bound 0.014)."""
    agent = sr.Agent(gymnasium.make("safereplay/Cliff-v0"), anchored(sr.CVaRReplay(0.3), 0.4), seed=0)
    agent.learn(steps=20_000, quiet=True)
    assert agent.visits.sum() == 20_000
    assert agent.replays.sum() / 20_000 == pytest.approx(0.4, abs=0.014)


def test_an_xray_shows_the_updates_and_their_limit():
    """p̃ of a coin under the paper's scheme, against (1−ρ)·q + ρ·ŵ; 20,000 visits, bound 0.03."""
    mdp, learner = coin(0.5), anchored(sr.VarianceReplay(2.0), 1.0)
    picture = sr.xray(sr.learn(mdp, learner, 20_000, seeds=1, quiet=True))
    w = np.exp([1.0, -1.0]) / np.exp([1.0, -1.0]).sum()
    assert picture.p_predicted == pytest.approx(0.75 * 0.5 + 0.25 * w)
    assert picture.p_tilde == pytest.approx(picture.p_predicted, abs=0.03)
    assert picture.rho[0, 0] == pytest.approx(0.25, abs=0.014)
    assert (picture.visits + picture.replays).sum() == 20_000


def test_v_may_be_1_only_here():
    assert anchored(sr.CVaRReplay(0.5), 1.0).describe() == "replay(v=1, alpha=0.5, anchored)"
    for mixing in ("literal", "matched"):
        with pytest.raises(sr.BadInput, match=r"v must be in \[0, 1\), got 1"):
            sr.ReplayQLearning(v=1.0, mixing=mixing)
    with pytest.raises(sr.BadInput, match=r"v must be in \[0, 1\], got 1.5"):
        anchored(sr.CVaRReplay(), 1.5)
    with pytest.raises(sr.BadInput, match=r"v must be in \[0, 1\), got 1"):
        sr.fixed_point(coin(1.0), sr.CVaRReplay(), 1.0)


def test_what_does_not_support_it_says_so_in_one_line():
    mdp, scheme = sr.grids.cliff(), sr.CVaRReplay()
    for call in (
        lambda: sr.tune(mdp, scheme, max_p_unsafe=0.01, mixing="anchored"),
        lambda: sr.check(mdp, scheme, mixing="anchored"),
        lambda: sr.switches(mdp, anchored(scheme, 0.5)),
        lambda: sr.PairIndex(4, mixing="anchored"),
    ):
        with pytest.raises(sr.BadInput, match="mixing must be 'literal' or 'matched' here, got 'anchored'"):
            call()
    with pytest.raises(sr.BadInput, match="visitation must be left out with anchored mixing"):
        sr.fixed_point(mdp, scheme, 0.5, np.ones((mdp.n_states, mdp.n_actions)), mixing="anchored")
    with pytest.raises(sr.BadInput, match="unknown mixing 'literal'"):
        sr.fixed_point(mdp, scheme, 0.5, mixing="literal")
