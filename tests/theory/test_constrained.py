import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.theory import constrained
from safereplay.theory.constrained import Ceilings, ceiling
from safereplay.theory.occupancy import Limit


def gamble():
    """A sure 1, or with even odds 4 or harm: mean 2."""
    rows = [(0, 0, 1.0, 1, 1.0, True, False), (0, 1, 0.5, 1, 4.0, True, False), (0, 1, 0.5, 1, 0.0, True, True)]
    return sr.TabularMDP.from_outcomes(2, 2, rows, start=0)


def two_rounds():
    """Twice: nothing, or 1 for sure with even odds of harm, which is not the end."""
    rows = [(0, 0, 1.0, 1, 0.0), (1, 0, 1.0, 2, 0.0, True)]
    rows += [(0, 1, 0.5, 1, 1.0, False, harm) for harm in (False, True)]
    rows += [(1, 1, 0.5, 2, 1.0, True, harm) for harm in (False, True)]
    return sr.TabularMDP.from_outcomes(3, 2, rows, start=0)


def risky_model(seed, n_states=5, n_actions=3):
    """Steps cost, ends pay, and a fifth of the outcomes are unsafe; no loop gains for ever."""
    generator = np.random.default_rng(seed)
    rows = []
    for s, a in itertools.product(range(n_states - 1), range(n_actions)):
        p = generator.dirichlet(np.ones(3))
        for k in range(3):
            s_next = int(generator.integers(n_states))
            end = s_next == n_states - 1
            r = float(generator.integers(-3, 10) if end else generator.integers(-4, 0))
            rows.append((s, a, p[k], s_next, r, end, bool(generator.random() < 0.2)))
    return sr.TabularMDP.from_outcomes(n_states, n_actions, rows, gamma=0.9)


def profiles(mdp):
    """(profile, discounted mean) of every deterministic policy that surely ends."""
    for actions in itertools.product(range(mdp.n_actions), repeat=mdp.n_states - 1):
        profile = sr.evaluate(mdp, [*actions, 0])
        if profile.p_never == 0.0:
            yield profile, sr.evaluate(mdp, [*actions, 0], discounted=True).mean


# -- P(unsafe) --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0.0, 0.1, 0.25, 0.5, 0.9])
def test_a_gamble_is_taken_as_often_as_the_limit_allows(limit):
    best = ceiling(gamble(), max_p_unsafe=limit)
    share = min(1.0, 2.0 * limit)
    assert best.status == "optimal"
    assert best.value == pytest.approx(1.0 + share, abs=1e-12)
    np.testing.assert_allclose(best.policy[0], [1.0 - share, share], atol=1e-12)


@pytest.mark.parametrize(("limit", "value"), [(0.0, 0.0), (0.3, 0.9), (0.5, 1.5), (0.6, 1.7), (0.75, 2.0)])
def test_who_was_harmed_has_nothing_left_to_lose(limit, value):
    """Harm in round one costs once and pays 3 a unit of harm, as round two is then free; round two pays 2."""
    best = ceiling(two_rounds(), max_p_unsafe=limit)
    assert best.value == pytest.approx(value, abs=1e-9)
    assert best.policy.shape == (2, 3, 2)
    assert best.policy[1, 1, 1] == 1.0 or limit == 0.0


@pytest.mark.parametrize(
    ("make", "limits"),
    [
        (sr.grids.cliff, (0.008, 0.01, 0.02)),
        (lambda: sr.grids.cliff(slip=0.3, fall_ends=False), (0.2, 0.3)),
        (lambda: sr.TabularMDP.from_gymnasium("FrozenLake-v1", gamma=0.95, is_slippery=True), (0.2, 0.5)),
        (lambda: sr.TabularMDP.from_gymnasium("FrozenLake-v1", gamma=0.95, map_name="8x8"), (0.0, 0.3)),
        (lambda: sr.grids.from_map("S.........\n.X.X...X..\n...XX.....\n.X......XG", slip=0.2, start="S"), (0.05, 0.2)),
    ],
)
def test_the_policy_of_a_ceiling_has_its_value_and_its_risk(make, limits):
    mdp = make()
    for limit in limits:
        best = ceiling(mdp, max_p_unsafe=limit)
        profile = best.profile
        if best.policy.ndim == 2:
            profile = sr.evaluate(mdp, best.policy)
        assert profile.mean == pytest.approx(best.value, abs=1e-8)
        assert profile.p_unsafe == pytest.approx(best.risk, abs=1e-8)
        assert best.best - 1e-9 <= best.risk <= max(limit, best.best) + 1e-9
        assert profile.p_never == 0.0


def test_a_policy_that_remembers_harm_is_played_as_it_says():
    """Seed 3, 20,000 episodes: mean and harm within 4 standard errors of the program's."""
    mdp = sr.grids.cliff(slip=0.3, fall_ends=False)
    best = ceiling(mdp, max_p_unsafe=0.03)
    assert best.risk == pytest.approx(0.03, abs=1e-9)
    generator, n = np.random.default_rng(3), 20_000
    s, harmed, total = generator.choice(mdp.n_states, n, p=mdp.start), np.zeros(n, int), np.zeros(n)
    alive = np.arange(n)
    while alive.size:
        chance = best.policy[harmed[alive], s[alive]].cumsum(1)
        a = (generator.random((alive.size, 1)) > chance).sum(1).clip(max=mdp.n_actions - 1)
        pair = s[alive] * mdp.n_actions + a
        go_on = np.ones(alive.size, bool)
        for i in np.unique(pair):
            here = np.flatnonzero(pair == i)
            k = mdp.row[i] + generator.choice(
                mdp.row[i + 1] - mdp.row[i], here.size, p=mdp.p[mdp.row[i] : mdp.row[i + 1]]
            )
            total[alive[here]] += mdp.r[k]
            harmed[alive[here]] |= mdp.unsafe[k]
            s[alive[here]] = mdp.s_next[k]
            go_on[here] = ~mdp.terminal[k]
        alive = alive[go_on]
    assert abs(total.mean() - best.value) < 4 * total.std() / math.sqrt(n)
    assert abs(harmed.mean() - 0.03) < 4 * math.sqrt(0.03 * 0.97 / n)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))])
def test_no_deterministic_policy_of_a_random_model_beats_the_ceilings(seed):
    mdp = risky_model(seed)
    everybody = list(profiles(mdp))
    for name, levels in (("max_p_unsafe", (0.2, 0.5, 0.8)), ("min_cvar", (0.2, 0.5, 0.8)), ("max_std", (0.2, 0.5))):
        limits = Limit(name, 0.0, 0.25)
        ceilings = Ceilings(mdp, limits)
        risks = np.array([limits.risk(profile) for profile, _ in everybody])
        assert (limits.sign * (ceilings.best - risks) <= 1e-8).all()
        for level in levels:
            limit = limits.at(float(np.quantile(risks, level)))
            best = ceilings.at(limit.value)
            assert best.status == "optimal"
            kept = [(p.mean, d) for p, d in everybody if limit.met_by(p)]
            assert kept
            assert max(mean for mean, _ in kept) <= best.value + 1e-8
            assert max(discounted for _, discounted in kept) <= best.value_discounted + 1e-8


@pytest.mark.parametrize("seed", range(12))
def test_the_least_harm_is_that_of_some_deterministic_policy(seed):
    mdp = risky_model(seed)
    least = min(profile.p_unsafe for profile, _ in profiles(mdp))
    assert Ceilings(mdp, Limit("max_p_unsafe", 0.0)).best == pytest.approx(least, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_without_a_limit_the_ceiling_is_the_best_deterministic_policy(seed):
    mdp = risky_model(seed)
    everybody = list(profiles(mdp))
    for free in ({"max_p_unsafe": 1.0}, {"min_cvar": -1e6}, {"max_std": 1e6}):
        best = ceiling(mdp, **free)
        assert best.value == pytest.approx(max(profile.mean for profile, _ in everybody), abs=1e-8)
        assert best.value_discounted >= max(discounted for _, discounted in everybody) - 1e-8


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_more_risk_never_buys_less_and_ever_less_of_it(seed):
    """The ceiling is concave in its limit, and rises with it."""
    ceilings = Ceilings(risky_model(seed, n_states=4), Limit("max_p_unsafe", 0.0))
    values = [point.value for point in ceilings.frontier(np.linspace(ceilings.best, 1.0, 6))]
    assert len(values) == 6
    assert (np.diff(values) >= -1e-7).all()
    assert (np.diff(values, 2) <= 1e-7).all()


def test_nobody_can_leave_the_start_of_the_cliff_at_no_risk():
    """Up from the start: it slips off with 0.025 and stays with 0.05, and may come back; by hand at least 1/38."""
    mdp = sr.grids.cliff()
    best = ceiling(mdp, max_p_unsafe=0.01, start=mdp.origin)
    assert best.status == "infeasible"
    assert 0.025 / 0.95 < best.best < 0.03
    assert best.risk == pytest.approx(best.best, rel=1e-6)
    assert best.profile.p_unsafe == pytest.approx(best.best, rel=1e-6)
    assert ceiling(mdp, max_p_unsafe=best.best, start=mdp.origin).status == "optimal"


def test_at_the_least_risk_and_just_above_it_there_is_an_answer():
    """A long edge: many policies have all but the least risk, and the price of risk is steep there."""
    mdp = sr.grids.from_map("\n".join(["." * 12] * 11 + ["S" + "X" * 10 + "G"]), slip=0.1, goal=40.0)
    ceilings = Ceilings(mdp, Limit("max_p_unsafe", 0.0))
    edges = [ceilings.at(ceilings.best * factor) for factor in (0.5, 1.0, 1.0 + 1e-8, 1.001, 1.1)]
    assert [edge.status for edge in edges] == ["infeasible"] + ["optimal"] * 4
    assert edges[0].value == edges[1].value
    assert (np.diff([edge.value for edge in edges]) >= -1e-9).all()
    for edge in edges[:2]:
        assert edge.profile.p_unsafe == pytest.approx(ceilings.best, rel=1e-5)
        assert edge.profile.mean == pytest.approx(edge.value, abs=1e-8)


def test_where_a_loop_gains_for_ever_only_the_discounted_return_has_a_ceiling():
    mdp = sr.grids.volatile()
    best = ceiling(mdp, max_p_unsafe=0.1, start=mdp.origin)
    assert (best.status, best.value, best.policy) == ("unbounded", math.inf, None)
    assert best.reason == "some loop gains for ever"
    # Once right and then straight on would be harmed with 0.4: taken by a quarter, it is a policy within the limit.
    straight, around = (sr.evaluate(mdp, policy, mdp.origin, discounted=True).mean for policy in _two_ways(mdp))
    share = 0.1 / 0.784
    assert best.value_discounted >= share * straight + (1 - share) * around
    assert best.value_discounted <= straight


def _two_ways(mdp):
    """Right along the volatile moves, and the safe way around."""
    return [1] * 20, sr.fixed_point(mdp, sr.VarianceReplay(5.0), v=0.9).argmax(1)


def test_without_any_harm_the_volatile_grid_has_a_ceiling():
    mdp = sr.grids.volatile()
    best = ceiling(mdp, max_p_unsafe=0.0, start=mdp.origin)
    assert (best.status, best.best) == ("optimal", 0.0)
    assert best.value == pytest.approx(145.0, abs=1e-9)  # five steps and the goal
    assert best.value_discounted == pytest.approx(-sum(0.9**k for k in range(5)) + 150 * 0.9**5, abs=1e-9)


def test_a_loop_that_the_start_cannot_reach_does_not_count():
    rows = [(0, 0, 1.0, 1, 1.0, True), (2, 0, 1.0, 2, 5.0), (2, 1, 1.0, 1, 0.0, True), (0, 1, 1.0, 1, 0.0, True)]
    assert ceiling(sr.TabularMDP.from_outcomes(3, 2, rows, start=0), max_p_unsafe=0.5).value == pytest.approx(1.0)


def test_where_nobody_surely_ends_it_says_so():
    rows = [(0, 0, 0.5, 1, 1.0, True), (0, 0, 0.5, 2, 0.0), (2, 0, 1.0, 2, -1.0)]
    mdp = sr.TabularMDP.from_outcomes(3, 1, rows, start=0)
    for limit in ({"max_p_unsafe": 0.5}, {"min_cvar": 0.0}, {"max_std": 1.0}):
        best = ceiling(mdp, **limit)
        assert (best.status, best.reason) == ("infeasible", "no policy surely ends")
        assert math.isnan(best.value)
        assert best.to_dict()["value"] is None


def test_a_step_that_cannot_lead_to_an_end_is_never_taken():
    """Action 1 pays 9 and then never ends."""
    rows = [(0, 0, 1.0, 1, 1.0, True), (0, 1, 1.0, 2, 9.0), (2, 0, 1.0, 2, 0.0), (2, 1, 1.0, 2, 0.0)]
    best = ceiling(sr.TabularMDP.from_outcomes(3, 2, rows, start=0), max_p_unsafe=0.0)
    assert best.value == pytest.approx(1.0)


@pytest.mark.slow
def test_a_grid_of_2500_states_is_solved_exactly():
    text = _random_map(50)
    mdp = sr.grids.from_map(text, slip=0.1, start="S", gamma=0.99, goal=200.0)
    ceilings = Ceilings(mdp, Limit("max_p_unsafe", 0.0))
    best = ceilings.at(ceilings.best + 2e-4)
    assert best.status == "optimal"
    assert best.profile.mean == pytest.approx(best.value, rel=1e-8)
    assert best.profile.p_unsafe == pytest.approx(best.risk, rel=1e-6)


def _random_map(n):
    generator = np.random.default_rng(0)
    cells = np.where(generator.random((n, n)) < 0.1, "X", ".")
    cells[0], cells[:, -1] = ".", "."
    cells[0, 0], cells[-1, -1] = "S", "G"
    return "\n".join("".join(row) for row in cells)


# -- CVaR and spread --------------------------------------------------------------------------------------------------


def coin_or_nothing():
    """A sure 0, or 3 or −1 with even odds. Taken with probability p, the worse half of returns has the mean −p."""
    rows = [(0, 0, 1.0, 1, 0.0, True), (0, 1, 0.5, 1, 3.0, True), (0, 1, 0.5, 1, -1.0, True)]
    return sr.TabularMDP.from_outcomes(2, 2, rows, start=0)


@pytest.mark.parametrize("c", [0.0, -0.2, -0.4, -0.9, -1.0, -5.0])
def test_a_coin_is_tossed_as_often_as_its_tail_allows(c):
    best = ceiling(coin_or_nothing(), min_cvar=c, alpha=0.5)
    assert best.status == "optimal"
    assert best.value == pytest.approx(min(1.0, -c), abs=1e-7)
    assert best.best == pytest.approx(0.0, abs=1e-9)


def test_a_coin_is_tossed_as_often_as_its_spread_allows():
    """Var = 5p − p² for a coin tossed with probability p. The mesh of ¼ allows up to 1/64 more."""
    for p in (0.1, 0.4, 0.8):
        best = ceiling(coin_or_nothing(), max_std=math.sqrt(5 * p - p * p))
        more = (5 - math.sqrt(25 - 4 * (5 * p - p * p + 1 / 64))) / 2
        assert p - 1e-7 <= best.value <= more + 1e-7


def test_the_mean_is_the_tail_of_everything():
    best = ceiling(coin_or_nothing(), min_cvar=0.5, alpha=1.0)
    assert (best.status, best.value) == ("optimal", pytest.approx(1.0))
    nobody = ceiling(coin_or_nothing(), min_cvar=1.5, alpha=1.0)
    assert (nobody.status, nobody.best) == ("infeasible", pytest.approx(1.0))


def two_steps(seed):
    """Two steps of two actions each; rewards −3..5 with random odds."""
    generator = np.random.default_rng(seed)
    rows = []
    for s, a in itertools.product(range(2), range(2)):
        p = generator.dirichlet(np.ones(3))
        rewards = generator.choice(np.arange(-3, 6), 3, replace=False)
        rows += [(s, a, p[k], s + 1, float(rewards[k]), s == 1) for k in range(3)]
    return sr.TabularMDP.from_outcomes(3, 2, rows, start=0, gamma=0.9)


def distributions(mdp):
    """The returns −6..10 under every policy that knows the first reward: rows of probabilities."""
    columns = set()
    for first in range(2):
        step = mdp.outcomes(0, first)
        for second in itertools.product(range(2), repeat=step.r.size):
            mass = np.zeros(17)
            for p, r, a in zip(step.p, step.r, second, strict=True):
                last = mdp.outcomes(1, a)
                np.add.at(mass, (last.r + r + 6).astype(int), p * last.p)
            columns.add(tuple(mass))
    return np.array(sorted(columns)), np.arange(-6.0, 11.0)


def best_lottery(table, returns, cost, bound):
    """The best mean of a lottery between policies at a mean cost within the bound: a program over policies."""
    size = len(table)
    done = linprog(-(table @ returns), [table @ cost], [bound], np.ones((1, size)), [1.0], method="highs")
    return -done.fun if done.status == 0 else -math.inf


@pytest.mark.parametrize("seed", range(10))
def test_the_ceiling_under_a_tail_is_the_best_lottery_between_all_policies(seed):
    mdp, alpha = two_steps(seed), 0.3
    table, returns = distributions(mdp)
    tails = [[eta - mass @ np.maximum(eta - returns, 0.0) / alpha for eta in returns] for mass in table]
    highest = max(map(max, tails))
    ceilings = Ceilings(mdp, Limit("min_cvar", 0.0, alpha))
    assert ceilings.best == pytest.approx(highest, abs=1e-8)
    for c in highest - np.array([0.0, 0.1, 0.5, 1.0, 2.0]):
        costs = [np.maximum(eta - returns, 0.0) for eta in returns]
        bounds = [alpha * (eta - c) + 1e-9 for eta in returns]
        expected = max(best_lottery(table, returns, cost, bound) for cost, bound in zip(costs, bounds, strict=True))
        assert ceilings.at(float(c)).value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_ceiling_under_a_spread_is_hardly_above_the_best_lottery_between_all_policies(seed):
    mdp = two_steps(seed)
    table, returns = distributions(mdp)
    spreads = np.sqrt(table @ returns**2 - (table @ returns) ** 2)
    ceilings = Ceilings(mdp, Limit("max_std", 0.0))
    assert ceilings.best <= spreads.min() + 1e-9
    means = np.arange(-6.0, 10.1, 1 / 8)
    for sigma in np.quantile(spreads, (0.2, 0.6)):
        lower, upper = (
            max(best_lottery(table, returns, (returns - a) ** 2, sigma**2 + slack + 1e-9) for a in means)
            for slack in (0.0, 1 / 64 + 1 / 256)
        )
        assert lower - 1e-6 <= ceilings.at(float(sigma)).value <= upper + 1e-6


def test_on_the_cliff_the_tail_has_a_price():
    """The frontier of CVaR falls from the unconstrained mean at the edge's tail to nothing beyond the best tail."""
    mdp = sr.grids.cliff()
    ceilings = Ceilings(mdp, Limit("min_cvar", 0.0), start=mdp.origin)
    edge = sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=mdp.origin)
    points = ceilings.frontier(np.linspace(edge.cvar(0.1), ceilings.best, 6))
    values = [point.value for point in points]
    assert len(points) == 6
    assert values[0] == pytest.approx(edge.mean, abs=1e-6)
    assert (np.diff(values) < 0).all()
    assert ceilings.at(ceilings.best + 0.1).status == "infeasible"


def test_a_narrower_window_can_only_raise_the_ceiling(monkeypatch):
    """Rewards of both signs along the way: whatever leaves the window is bounded, never cut off."""
    rows = [(0, 0, 0.5, 0, 2.0), (0, 0, 0.2, 0, -3.0), (0, 0, 0.3, 1, 0.0, True), (0, 1, 1.0, 1, 0.0, True)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)
    wide, narrow = {}, {}
    for values, typical in ((wide, None), (narrow, 2)):
        if typical:
            monkeypatch.setattr(constrained._Windowed, "typical", typical)
        values.update({c: ceiling(mdp, min_cvar=c, alpha=0.3) for c in (-1.5, -1.0, -0.5)})
    for c in wide:
        assert narrow[c].value >= wide[c].value - 1e-8
        assert narrow[c].best >= wide[c].best - 1e-8
    assert narrow[-1.0].value > wide[-1.0].value + 1e-6
    assert "an upper bound" in narrow[-1.0].reason
    assert wide[-1.0].reason == ""


def test_where_a_tail_is_out_of_reach_of_the_program_it_says_so(monkeypatch):
    monkeypatch.setattr(constrained, "MAX_VARIABLES", 100)
    best = ceiling(sr.grids.cliff(), min_cvar=-1.0)
    assert best.status == "unknown"
    assert best.reason == "a program that knows the return so far would have more than 100 variables"
    assert math.isnan(best.value)
    assert math.isfinite(best.value_discounted)


def test_rewards_without_a_common_unit_have_no_ceiling_under_a_tail():
    rows = [(0, 0, 0.5, 1, math.sqrt(2.0), True, False), (0, 0, 0.5, 1, 1.0, True, True)]
    mdp = sr.TabularMDP.from_outcomes(2, 1, rows, start=0)
    best = ceiling(mdp, min_cvar=0.0)
    assert (best.status, best.reason) == ("unknown", "the rewards have no common unit")
    assert ceiling(mdp, max_p_unsafe=0.5).value == pytest.approx((1 + math.sqrt(2)) / 2)


def test_where_a_loop_gains_for_ever_limits_on_the_return_are_left_open():
    mdp = sr.grids.volatile()
    tail, spread = ceiling(mdp, min_cvar=100.0), ceiling(mdp, max_std=10.0)
    assert tail.status == spread.status == "unknown"
    assert "leaves open" in tail.reason


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_policy_that_never_ends_keeps_no_limit():
    mdp = sr.grids.volatile()
    still = sr.evaluate(mdp, [3] * 20, start=mdp.origin)
    assert still.p_unsafe == 0.0
    assert not Limit("max_p_unsafe", 0.5).met_by(still)


def test_limits_are_checked():
    mdp = sr.grids.cliff()
    with pytest.raises(BadInput, match="limit must be exactly one of max_p_unsafe, min_cvar, max_std, got None"):
        ceiling(mdp)
    with pytest.raises(BadInput, match=r"limit must be exactly one of .*, got \('max_p_unsafe', 'max_std'\)"):
        ceiling(mdp, max_p_unsafe=0.1, max_std=1.0)
    with pytest.raises(BadInput, match=r"max_p_unsafe must be in \[0, 1\], got 1\.5"):
        ceiling(mdp, max_p_unsafe=1.5)
    with pytest.raises(BadInput, match=r"max_std must be in \[0, inf\), got -1"):
        ceiling(mdp, max_std=-1.0)
    with pytest.raises(BadInput, match="min_cvar must be finite, got nan"):
        ceiling(mdp, min_cvar=math.nan)
    with pytest.raises(BadInput, match=r"alpha must be in \(0, 1\], got 0"):
        ceiling(mdp, min_cvar=0.0, alpha=0.0)
    with pytest.raises(BadInput, match="mdp must be a TabularMDP, got 5"):
        ceiling(5, max_p_unsafe=0.1)


def test_a_loop_that_gains_for_ever_behind_a_bad_chance_does_not_make_every_cvar_feasible():
    """Half of all episodes end with −100 before the loop is reached: no policy has a CVaR 10 % above −100."""
    rows = [(0, 0, 0.5, 2, -100.0, True), (0, 0, 0.5, 1, 0.0), (0, 1, 1.0, 2, -150.0, True)]
    loop = [(1, 0, 1.0, 1, 1.0), (1, 1, 1.0, 2, 0.0, True)]
    found = ceiling(sr.TabularMDP.from_outcomes(3, 2, rows + loop, start=0), min_cvar=0.0)
    assert found.status == "unknown"
    assert np.isnan([found.value, found.best]).all()
