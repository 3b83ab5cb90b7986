"""CVaR: the augmented model against enumeration of all policies with memory, a dual program, and evaluated policies."""

from itertools import product
from math import comb

import numpy as np
import pytest

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.rivals.criteria import CVaRQLearning
from safereplay.theory import criteria as module
from safereplay.theory.constrained import Ceilings
from safereplay.theory.criteria import augmented, best_cvar, guaranteed, least_shortfall
from safereplay.theory.occupancy import Limit

GRIDS = {name: sr.grids.NAMED[name] for name in ("cliff", "bridge", "ledge", "lottery")}


def cvar_of(outcomes, alpha):
    """The mean of the worst share α of (return, chance) by sorting."""
    left, total = alpha, 0.0
    for x, p in sorted(outcomes):
        total += x * min(p, left)
        left -= min(p, left)
    return total / alpha


def layered(seed, less=0.0):
    """State 0, then 1 (or 2 if the seed is odd), then the end: two actions, two outcomes each, whole rewards."""
    generator = np.random.default_rng(seed)
    rows = []
    for s, a in product(range(3), range(2)):
        p = generator.dirichlet(np.ones(2))
        for k in range(2):
            s_next = 1 + (seed % 2) * int(generator.integers(2)) if s == 0 else 3
            rows.append((s, a, p[k], s_next, float(generator.integers(-6, 7)) - less, s > 0))
    return sr.TabularMDP.from_outcomes(4, 2, rows, start=0)


def all_policies(mdp, remembers=True):
    """The distributions of the return of all policies of a layered model, each a list of (return, chance)."""
    first = {a: list(zip(*mdp.outcomes(0, a), strict=True)) for a in range(2)}
    for a in range(2):
        known = sorted({(s, r if remembers else 0.0) for _, s, r, *_ in first[a]})
        for then in product(range(2), repeat=len(known)):
            policy = dict(zip(known, then, strict=True))
            yield [
                (r + r2, p * p2)
                for p, s, r, *_ in first[a]
                for p2, _, r2, *_ in zip(*mdp.outcomes(int(s), policy[s, r if remembers else 0.0]), strict=True)
            ]


def short_of(outcomes, target):
    return sum(p * max(target - x, 0.0) for x, p in outcomes)


# -- the best of all policies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.8])
def test_four_coins_have_the_cvar_of_a_binomial(alpha):
    rows = [(n, 0, 0.5, n + 1, r, n == 3) for n in range(4) for r in (1.0, -1.0)]
    coins = sr.TabularMDP.from_outcomes(5, 1, rows, start=0)
    binomial = [(4.0 - 2.0 * k, comb(4, k) / 16.0) for k in range(5)]
    found = best_cvar(coins, alpha)
    assert found.value == pytest.approx(cvar_of(binomial, alpha))
    assert found.bound == pytest.approx(found.value)


def test_who_has_won_may_gamble_and_who_has_lost_may_not():
    """±10, then 0 or a coin for +6 and −8: at α = ½ only the loser's 0 is in the tail, whatever the winner does."""
    rows = [(0, a, 0.5, 1, r, False) for a in range(2) for r in (10.0, -10.0)]
    rows += [(1, 0, 1.0, 2, 0.0, True), (1, 1, 0.5, 2, 6.0, True), (1, 1, 0.5, 2, -8.0, True)]
    mdp = sr.TabularMDP.from_outcomes(3, 2, rows, start=0)
    found = best_cvar(mdp, 0.5)
    loser = (found.model.state == 1) & (found.model.owed == found.target + 10.0)
    assert found.value == pytest.approx(-10.0)
    assert found.policy[loser] == [0]


def test_the_best_of_all_policies_with_memory_is_found():
    """22 layered models, three α: every policy that knows the return so far. In some, none without memory is as good."""
    needed = 0
    for seed, alpha in product((*range(20), 33, 48), (0.1, 0.3, 0.5)):
        mdp = layered(seed)
        best = max(cvar_of(x, alpha) for x in all_policies(mdp))
        found = best_cvar(mdp, alpha)
        assert found.value == pytest.approx(best, abs=1e-8)
        assert found.bound == pytest.approx(best, abs=1e-8)
        needed += best > max(cvar_of(x, alpha) for x in all_policies(mdp, remembers=False)) + 1e-6
    assert needed >= 5


@pytest.mark.parametrize("target", [-7.0, -2.5, 0.0, 3.0, 20.0])
@pytest.mark.parametrize("less", [0.0, 7.0])
def test_the_least_shortfall_is_that_of_the_best_policy_with_memory(target, less):
    """Also of targets between the points of the lattice, and where all rewards are costs."""
    for seed in range(30):
        mdp = layered(seed, less)
        model = augmented(mdp, target)
        owed = np.maximum(np.nan_to_num(model.owed), 0.0)
        least = model.training_model.start @ (owed - least_shortfall(model.training_model).max(1))
        assert least == pytest.approx(min(short_of(x, target) for x in all_policies(mdp)), abs=1e-6)


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.5])
def test_on_the_grids_an_evaluated_policy_has_what_the_dual_says_is_the_most(grid, alpha):
    mdp = GRIDS[grid]()
    found = best_cvar(mdp, alpha)
    assert found.value == pytest.approx(found.bound, abs=1e-9)
    assert found.bound == Ceilings(mdp, Limit("min_cvar", 0.0, alpha)).best
    assert found.profile.quantile(alpha) == pytest.approx(found.target)
    assert found.value >= sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1)).cvar(alpha) - 1e-9


def test_a_sure_cost_is_paid_and_not_put_off_for_ever():
    mdp = sr.grids.from_map("S....\n....G", goal=0.0)
    found = best_cvar(mdp, 0.1, start=0)
    assert (found.value, found.target, found.profile.p_never) == (-4.0, -4.0, 0.0)


def test_on_the_cliff_the_action_depends_on_what_is_owed():
    found = best_cvar(sr.grids.cliff(), 0.1)
    actions = [set(found.policy[found.model.state == s].tolist()) for s in range(24)]
    assert max(map(len, actions)) > 1


def test_from_another_start_it_is_another():
    mdp = sr.grids.cliff()
    assert best_cvar(mdp, 0.1, start=mdp.origin).value == best_cvar(mdp.with_start(mdp.origin), 0.1).value
    assert best_cvar(mdp, 0.1, start=mdp.origin).value < best_cvar(mdp, 0.1).value


# -- the augmented model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", ["cliff", "volatile", "lottery"])
def test_a_policy_that_does_not_look_at_what_is_owed_has_its_own_risk(grid):
    mdp = sr.grids.NAMED[grid]()
    policy = sr.exact(mdp, sr.QLearning()).argmax(1)
    model = augmented(mdp, 5.0)
    here, there = sr.evaluate(mdp, policy), sr.evaluate(model.judging_model, policy[model.state])
    for name in ("mean", "std", "p_unsafe", "length"):
        assert getattr(there, name) == pytest.approx(getattr(here, name), rel=1e-9)
    assert there.cvar(0.1) == pytest.approx(here.cvar(0.1))
    assert sr.verdict(model.judging_model, policy[model.state]) == sr.verdict(mdp, policy)


@pytest.mark.parametrize("grid", ["cliff", "volatile", "lottery"])
@pytest.mark.parametrize("span", [1, 2, 3])
def test_whatever_the_window_the_shortfall_is_not_too_small(grid, span, monkeypatch):
    """What the model says against the distribution of the return of its own best policy."""
    monkeypatch.setattr(module, "SPAN", span)
    mdp = sr.grids.NAMED[grid]().with_start(sr.grids.NAMED[grid]().origin)
    model = augmented(mdp, 147.0 if grid == "volatile" else 3.0)
    Q = least_shortfall(model.training_model)
    said = float(model.training_model.start @ (np.maximum(np.nan_to_num(model.owed), 0.0) - Q.max(1)))
    real = short_of(zip(*sr.evaluate(model.judging_model, Q.argmax(1)).distribution[:2], strict=True), model.target)
    assert said >= real - 1e-6
    if grid == "cliff":
        assert said == pytest.approx(real, abs=1e-6)


def test_rewards_are_by_how_much_the_shortfall_falls():
    model = augmented(sr.grids.cliff(), 3.0)
    training, judging = model.training_model, model.judging_model
    assert (training.n_states, training.start.tolist()) == (judging.n_states, judging.start.tolist())
    y = model.owed[judging.pair // judging.n_actions]
    inside = ~judging.terminal
    ahead = model.owed[np.where(inside, judging.s_next, 0)]
    owes = np.where(
        inside, np.maximum(ahead, y - judging.r), y - judging.r
    )  # beyond the upper end it is paid and forgotten
    by_state = np.bincount(judging.pair, weights=judging.p * (np.maximum(y, 0.0) - np.maximum(owes, 0.0)))
    assert np.allclose(by_state, training.expect(training.r).ravel()[: by_state.size])


def test_what_can_be_guaranteed_is_the_worst_case_of_some_policy():
    mdp = sr.grids.volatile()
    assert guaranteed(mdp)[mdp.origin] == 145.0
    assert guaranteed(sr.grids.cliff())[:18].tolist() == [-np.inf] * 17 + [10.0]  # only above the goal nothing can slip


# -- the learner ----------------------------------------------------------------------------------------------------------


def test_what_is_learned_comes_to_the_best_cvar():
    """The cliff at α = 0.1, seeds 0–3, 100,000 episodes: within 0.4 of the best, −0.40; that of Q-learning is −2.39."""
    mdp, learner = sr.grids.cliff(), CVaRQLearning(0.1)
    runs = sr.learn(mdp, learner, 100_000, 4, quiet=True)
    judging, best = learner.judging_model(mdp), best_cvar(mdp, 0.1).value
    learned = [sr.evaluate(judging, policy).cvar(0.1) for policy in runs.policy]
    assert min(learned) > best - 0.4
    assert max(learned) <= best + 1e-9
    assert sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1)).cvar(0.1) < best - 1.9


def test_the_values_that_are_learned_come_to_the_limit():
    """The cliff at α = 0.3, ε = 1, seeds 0–3, 100,000 episodes: the mean of four runs, over pairs visited 1,000 times."""
    mdp, learner = sr.grids.cliff(), CVaRQLearning(0.3)
    runs = sr.learn(mdp, learner, 100_000, 4, sr.EpsilonGreedy(1.0), sr.PowerStep(0.8), quiet=True)
    limit, often = sr.exact(mdp, learner), runs.visits.min(0) >= 1_000
    assert often.sum() > 100
    assert np.abs(runs.Q.mean(0) - limit)[often].max() / np.ptp(limit[often]) < 0.06


def test_where_a_loop_gains_for_ever_the_target_is_a_quantile():
    mdp = sr.grids.volatile()
    learner = CVaRQLearning(0.1)
    plain = sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1))
    assert learner.target_on(mdp) == plain.quantile(0.1) == 49.0
    risk = sr.evaluate(learner.judging_model(mdp), sr.exact(mdp, learner).argmax(1))
    assert (risk.p_unsafe, risk.cvar(0.1)) == (0.0, 145.0)
    assert plain.cvar(0.1) == pytest.approx(-11.99, abs=0.01)


def test_a_high_target_gambles_on_the_volatile_grid():
    """To owe 349 where 145 is sure: 64 % of episodes meet a loss, and the tail is worse than that of not trying."""
    mdp, learner = sr.grids.volatile(), CVaRQLearning(0.9)
    risk = sr.evaluate(learner.judging_model(mdp), sr.exact(mdp, learner).argmax(1))
    assert learner.target_on(mdp) == 349.0
    assert risk.p_unsafe == pytest.approx(0.64, abs=0.01)
    assert risk.mean > 300.0


def test_where_the_target_is_met_anyhow_it_need_not_move():
    """On frozen_lake one in ten drowns whatever is done: the best CVaR is 0, which is what never moving has."""
    mdp = sr.grids.frozen_lake()
    found = best_cvar(mdp, 0.1)
    assert (found.value, found.bound, found.target) == (0.0, 0.0, 0.0)
    assert found.profile.p_never == 1.0


def test_it_says_what_it_is():
    assert CVaRQLearning(0.2).describe() == "CVaR(alpha=0.2)"
    assert CVaRQLearning(target=5.0).describe() == "CVaR(target=5)"
    assert CVaRQLearning(target=5.0).target_on(sr.grids.cliff()) == 5.0


# -- refused --------------------------------------------------------------------------------------------------------------


def test_rewards_without_a_common_unit_are_refused():
    mdp = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 0.5, 1, 2.0**0.5, True), (0, 0, 0.5, 1, 1.0, True)], start=0)
    with pytest.raises(BadInput, match="rewards of mdp must have a common unit, got TabularMDP"):
        augmented(mdp, 0.0)
    with pytest.raises(BadInput, match=r"can be computed, got .*; the rewards have no common unit"):
        best_cvar(mdp, 0.1)


@pytest.mark.parametrize("target", [1e300, -1e300, 1e17])
def test_a_target_that_no_table_could_hold_is_refused(target):
    with pytest.raises(BadInput, match=r"target must lie within ±2e\+07, got .*; rewards here are in steps of 1$"):
        sr.learn(sr.grids.cliff(), CVaRQLearning(target=target), 10, 1)


def test_models_that_would_be_too_large_are_refused(monkeypatch):
    monkeypatch.setattr(module, "MAX_STATES", 50)
    with pytest.raises(BadInput, match=r"states \(s, y\) of the augmented model must number at most 50, got"):
        augmented(sr.grids.cliff(), 3.0)
    monkeypatch.setattr(module, "MAX_EDGES", 100)
    with pytest.raises(BadInput, match="outcomes of the augmented model must number at most 100, got"):
        augmented(sr.grids.cliff(), 3.0)


def test_what_has_no_best_cvar_is_refused():
    with pytest.raises(
        BadInput, match=r"mdp must have a best CVaR that can be computed, got .*; some loop gains for ever"
    ):
        best_cvar(sr.grids.volatile(), 0.1)
    with pytest.raises(BadInput, match=r"alpha must be in \(0, 1\), got 1"):
        best_cvar(sr.grids.cliff(), 1)
    with pytest.raises(BadInput, match=r"alpha must be in \(0, 1\), got 0"):
        CVaRQLearning(0)
