import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_model

import safereplay as sr
from safereplay.theory import switching
from safereplay.theory.limits import exact
from safereplay.theory.occupancy import Limit
from safereplay.theory.operator import Along
from safereplay.theory.switching import Tracer, dial_at
from safereplay.theory.theorem2 import first_below
from safereplay.theory.visits import self_consistent

TIGHT = 1e-4
VARIANCE = sr.ReplayQLearning(sr.VarianceReplay(beta=1.0), mixing="matched")
SCORE = sr.ReplayQLearning(sr.ScoreReplay(beta=1.0), mixing="matched")
GRIDS = pytest.mark.parametrize("grid", [sr.grids.cliff, sr.grids.volatile], ids=lambda x: x.__name__)
DIALS = pytest.mark.parametrize(
    ("dial", "learner"),
    [("v", VARIANCE), ("v", SCORE), ("kappa", sr.RiskSensitive()), ("beta", sr.Pessimistic())],
    ids=["variance", "score", "kappa", "beta"],
)


def gamble(sure=6.0):
    """Toss a coin for 20 or 0, or take the sure thing."""
    rows = [(0, 0, 0.5, 1, 20.0, True), (0, 0, 0.5, 1, 0.0, True), (0, 1, 1.0, 1, sure, True)]
    return sr.TabularMDP.from_outcomes(2, 2, rows, gamma=0.9, start=0)


def assert_only_switch(found, at, tight=TIGHT):
    """State 0 goes from its first action to its second, and the other state is terminal."""
    assert found.at[0] == pytest.approx(at, abs=tight)
    assert found.at[0] >= at - 1e-8  # from above
    assert found.to.tolist() == [1, -1]
    assert found.before[0] == 0
    assert math.isnan(found.at[1])


# -- by hand ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.0, 0.1, 5.0])
def test_replay_leaves_the_gamble_where_its_mixture_is_worth_the_sure_thing(beta):
    """Only the gamble is replayed, so ρ = v: it is worth (1−v)·10 + v·20/(1 + e^20β), and 8 is reached at a v."""
    worth = 20.0 / (1.0 + math.exp(20.0 * beta))
    found = sr.switches(gamble(8.0), replace(VARIANCE, scheme=sr.VarianceReplay(beta)), tight=TIGHT)
    assert found.dial == "v"
    if beta == 0.0:  # every reward seen alike: still worth 10
        assert np.isnan(found.at).all()
    else:
        assert_only_switch(found, 2.0 / (10.0 - worth))


@pytest.mark.parametrize("epsilon", [0.1, 0.6])
def test_literal_replay_leaves_it_earlier_the_more_seldom_it_is_visited(epsilon):
    """While it is greedy, d = 1 − ε/2 of the steps are gambles: ρ = v/((1−v)·d + v) must be 0.4 for 10·(1−ρ) = 6."""
    d = 1.0 - epsilon / 2.0
    learner = sr.ReplayQLearning(sr.VarianceReplay(5.0))
    found = sr.switches(gamble(), learner, exploration=sr.EpsilonGreedy(epsilon), tight=TIGHT)
    assert_only_switch(found, 0.4 * d / (0.6 + 0.4 * d))


def test_an_expectile_of_the_gamble_is_worth_the_sure_thing():
    """(1−κ)·(20 − q) = (1+κ)·q gives q = 10·(1−κ), which is 6 at κ = 0.4."""
    found = sr.switches(gamble(), sr.RiskSensitive(), tight=TIGHT)
    assert found.dial == "kappa"
    assert_only_switch(found, 0.4)


def test_pessimism_leaves_where_one_could_still_go_wrong():
    """To a state where 10 and 0 can be taken: worth 0.9·10·(1−β), which is 6 at β = 1/3."""
    rows = [(0, 0, 1.0, 1, 0.0), (0, 1, 1.0, 2, 6.0, True), (1, 0, 1.0, 2, 10.0, True), (1, 1, 1.0, 2, 0.0, True)]
    found = sr.switches(sr.TabularMDP.from_outcomes(3, 2, rows, gamma=0.9), sr.Pessimistic(), tight=TIGHT)
    assert found.dial == "beta"
    assert found.at[0] == pytest.approx(1.0 / 3.0, abs=TIGHT)
    assert found.to.tolist() == [1, -1, -1]


def test_equal_actions_do_not_switch_whichever_comes_first():
    """Two gambles alike in all but the order of computing, and a third that is worth less: nothing is ever better."""
    coin = ((0.1, 3.0), (0.2, 7.0), (0.3, -1.1), (0.4, 0.7))
    rows = [(0, a, p, 1, r, True) for a in (0, 1) for p, r in coin] + [(0, 2, 1.0, 1, -9.0, True)]
    mdp = sr.TabularMDP.from_outcomes(2, 3, rows, start=0)
    for learner in (VARIANCE, SCORE, sr.RiskSensitive(), sr.Pessimistic(), replace(VARIANCE, mixing="literal")):
        assert np.isnan(sr.switches(mdp, learner).at).all()


# -- another way --------------------------------------------------------------------------------------------------------


def ahead(mdp, learner, dial, x, s, before):
    """By how much the best action of s is better at a value of the dial than the one before."""
    Q = exact(mdp, replace(learner, **{dial: x}))[s]
    return Q.max() - Q[before]


@GRIDS
@DIALS
def test_the_action_holds_just_below_each_switch_and_has_gone_there(grid, dial, learner):
    mdp = grid()
    found = sr.switches(mdp, learner, tight=TIGHT)
    assert found.dial == dial
    assert np.array_equal(found.before, exact(mdp, replace(learner, **{dial: 0.0})).argmax(1))
    for s in np.flatnonzero(found.to >= 0):
        below = max(0.0, found.at[s] - TIGHT)
        assert ahead(mdp, learner, dial, below, s, found.before[s]) <= 1e-6
        assert ahead(mdp, learner, dial, found.at[s], s, found.before[s]) > 1e-8
        assert found.to[s] == exact(mdp, replace(learner, **{dial: float(found.at[s])}))[s].argmax()
    assert (found.to >= 0).any() or (dial, mdp.name) == ("beta", "volatile")


@GRIDS
@DIALS
def test_a_plain_scan_finds_the_same_switches(grid, dial, learner):
    """150 values in a row, even in ρ for v: what differs there first is what was found, to a step of the scan."""
    mdp = grid()
    found = sr.switches(mdp, learner, tight=TIGHT)
    values = np.linspace(0.0, 0.99, 150)
    if dial == "v":
        values = np.array([dial_at(u, Along(mdp, learner.scheme).most_weight) for u in values])
    first = np.full(mdp.n_states, np.nan)
    for x in values[::-1]:
        Q = exact(mdp, replace(learner, **{dial: float(x)}))
        first[Q.max(1) - Q[np.arange(mdp.n_states), found.before] > 1e-8] = x
    seen = ~np.isnan(first)
    assert np.array_equal(seen, found.at <= values[-1])
    assert (np.abs(first - found.at)[seen] <= np.diff(values).max() + TIGHT).all()


@GRIDS
def test_literal_switches_are_those_of_its_own_limits(grid):
    mdp, scheme, exploration = grid(), sr.VarianceReplay(5.0), sr.EpsilonGreedy(0.2)
    found = sr.switches(mdp, sr.ReplayQLearning(scheme), exploration=exploration, tight=1e-3)
    assert (found.to >= 0).any()

    def limit(v):
        return self_consistent(mdp, scheme, v, exploration, starts=5, seeds=0, solves=60)[0].Q

    for s in np.flatnonzero(found.to >= 0):
        below, there = limit(found.at[s] - 1e-3)[s], limit(found.at[s])[s]
        assert below.max() - below[found.before[s]] <= 1e-6
        assert there.argmax() == found.to[s] != found.before[s]


@settings(max_examples=15)
@given(
    st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=6),
    st.lists(st.floats(0.1, 4.0), min_size=6, max_size=6),
    st.integers(1, 9),
)
def test_the_first_crossing_of_rising_curves_is_found_from_above(starts, slopes, steps):
    """x³ − c is below 0 from c^(1/3) on, by hand, whatever the grid."""
    c, k = np.abs(starts), np.array(slopes[: len(starts)])
    found = first_below(lambda x: k * (c - x**3), np.linspace(0.0, 1.5, steps + 1).tolist(), 1e-5)
    root = np.cbrt(c)
    assert np.array_equal(np.isnan(found), root >= 1.5)
    here = ~np.isnan(found)
    assert (found[here] >= root[here]).all()
    assert (found[here] - root[here] <= 1e-5).all()


# -- what is promised ---------------------------------------------------------------------------------------------------


@GRIDS
@DIALS
def test_terminal_states_never_switch(grid, dial, learner):
    mdp = grid()
    found = sr.switches(mdp, learner)
    assert mdp.is_terminal.any()
    assert np.isnan(found.at[mdp.is_terminal]).all()
    assert (found.to[mdp.is_terminal] == -1).all()
    assert np.array_equal(np.isnan(found.at), found.to == -1)
    assert (found.to != found.before)[found.to >= 0].all()


def test_where_the_dial_is_set_does_not_matter():
    mdp = sr.grids.cliff()
    assert str(sr.switches(mdp, replace(VARIANCE, v=0.0)).to_dict()) == str(sr.switches(mdp, VARIANCE).to_dict())


def test_what_lies_beyond_the_largest_value_is_not_found():
    assert np.isnan(sr.switches(gamble(), VARIANCE, most=0.39).at).all()
    assert sr.switches(gamble(), VARIANCE, most=0.41, steps=1).at[0] == pytest.approx(0.4, abs=1e-3)
    assert np.isnan(sr.switches(gamble(), sr.RiskSensitive(), most=0.39).at).all()


def test_a_stretch_narrower_than_a_step_may_be_missed():
    """A curve that dips below 0 and comes back: seen where a point of the grid falls into it, and only then."""
    dip = lambda x: np.array([abs(x - 0.5) - 0.1])  # noqa: E731
    assert np.isnan(first_below(dip, [0.0, 0.3, 0.7], 1e-3)).all()
    assert first_below(dip, [0.0, 0.3, 0.5, 0.7], 1e-3)[0] == pytest.approx(0.4, abs=1e-3)


def test_the_result_reads_well_and_goes_to_json():
    found = sr.switches(gamble(), sr.RiskSensitive())
    assert repr(found) == f"Switches(kappa: 1 of 2 states, first 0 at {found.at[0]:.3g} from action 0 to 1)"
    assert found.to_dict() == {"dial": "kappa", "at": [found.at[0], None], "to": [1, -1], "before": [0, 0]}
    assert repr(sr.switches(gamble(-1.0), sr.RiskSensitive())) == "Switches(kappa: 0 of 2 states)"


def test_one_action_alone_cannot_switch():
    rows = [(0, 0, 0.5, 1, 1.0, True), (0, 0, 0.5, 1, -1.0, True)]
    assert np.isnan(sr.switches(sr.TabularMDP.from_outcomes(2, 1, rows), VARIANCE).at).all()


def test_a_world_of_400_cells_takes_few_looks(monkeypatch):
    """Not time, which depends on the machine: of 32 steps and 31 switches to 0.001, below five looks a switch."""
    from safereplay.theory import switching

    mdp = sr.grids.from_map("\n".join(["." * 20] * 19 + ["S" + "X" * 18 + "G"]), slip=0.1, gamma=0.95)
    looks = [0]

    def counted(*arguments):
        looks[0] += 1
        return exact(*arguments)

    monkeypatch.setattr(switching, "exact", counted)
    found = sr.switches(mdp, VARIANCE)
    assert 20 < (found.to >= 0).sum() < 60
    assert looks[0] < 33 + 5 * (found.to >= 0).sum()


def test_the_expectile_limit_of_a_large_world_settles_where_targets_tie():
    """κ = 0.99, 400 cells: targets that are their pair's mean but for rounding must not be weighed to and fro for ever."""
    mdp = sr.grids.from_map("\n".join(["." * 20] * 19 + ["S" + "X" * 18 + "G"]), slip=0.1, gamma=0.95)
    Q = exact(mdp, sr.RiskSensitive(0.99))
    delta = mdp.r + mdp.gamma * np.where(mdp.terminal, 0.0, Q.max(1)[mdp.s_next]) - Q.ravel()[mdp.pair]
    assert np.abs(mdp.expect((1.0 - 0.99 * np.sign(delta)) * delta)).max() <= 1e-7


# -- what is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mdp": 3}, "mdp must be a TabularMDP, got 3"),
        ({"learner": sr.QLearning()}, "learner must have a dial, as ReplayQLearning, RiskSensitive and Pessimistic do"),
        ({"learner": sr.WorstCase()}, "learner must have a dial"),
        ({"learner": "replay"}, "learner must have a dial.*, got 'replay'"),
        ({"exploration": 0.1}, "exploration must be an Exploration, got 0.1"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"steps": 2.5}, "steps must be a whole number, got 2.5"),
        ({"tight": 0.0}, r"tight must be in \(0, 1\), got 0"),
        ({"most": 1.0}, r"most must be in \(0, 1\), got 1"),
        ({"most": 0.0}, r"most must be in \(0, 1\), got 0"),
        ({"learner": sr.Pessimistic(), "most": 1.1}, r"most must be in \(0, 1\], got 1.1"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_in_a_line(arguments, message):
    arguments = {"mdp": sr.grids.cliff(), "learner": VARIANCE, **arguments}
    with pytest.raises(sr.BadInput, match=f"^{message}"):
        sr.switches(arguments.pop("mdp"), arguments.pop("learner"), **arguments)


# -- the tracer -------------------------------------------------------------------------------------------------------


def tracer_of(mdp):
    return Tracer(mdp, Limit("max_p_unsafe", 0.1), None, "matched", sr.EpsilonGreedy())


@pytest.mark.parametrize("n_states", [6, 40, 400])
@pytest.mark.parametrize("seed", range(3))
def test_limits_from_a_warm_start_are_those_from_a_cold_one(n_states, seed):
    """In any order of v: below 300 states by policies, above by sweeps, whose error is at most 1e-10 of the largest value."""
    mdp, scheme = random_model(seed, n_states), sr.VarianceReplay(beta=0.3)
    along = Along(mdp, scheme)
    for v in np.random.default_rng(seed).permutation(np.linspace(0.0, 0.99, 12)).tolist():
        cold = Along(mdp, scheme)(v)
        np.testing.assert_allclose(along(v), cold, rtol=0.0, atol=2e-10 * np.abs(cold).max())


@pytest.mark.parametrize("mdp", [random_model(0), random_model(1, 30), random_model(2, 320), sr.grids.cliff()])
def test_boundaries_along_straight_lines_are_those_of_bisection_with_fewer_limits(mdp, monkeypatch):
    """The same risks in the same order, each boundary to the same width, and less than two thirds of the limits."""
    looks = []
    plain = Tracer._look
    monkeypatch.setattr(Tracer, "_look", lambda self, *a: looks.append(a) or plain(self, *a))
    found = tracer_of(mdp).stretches(sr.VarianceReplay(beta=0.3))
    few = len(looks)
    monkeypatch.setattr(Tracer, "_crossing", lambda self, low, high: 0.5 * (low[0].u + high[0].u))
    bisected = tracer_of(mdp).stretches(sr.VarianceReplay(beta=0.3))
    assert len(found) > 2
    assert [view.key for view in found] == [view.key for view in bisected]
    np.testing.assert_allclose([x.u for x in found], [x.u for x in bisected], rtol=0.0, atol=switching.TIGHT)
    assert few - 34 < 2 / 3 * (len(looks) - few - 34)


def test_above_300_states_rounding_does_not_choose_between_tied_actions():
    """A corridor whose two actions are the same: the first one everywhere."""
    n = 301
    rows = [(s, a, 1.0, s + 1, -1.0, s == n - 2) for s in range(n - 1) for a in (0, 1)]
    tracer = tracer_of(sr.TabularMDP.from_outcomes(n, 2, rows, gamma=0.99))
    view = tracer.view(sr.Scheme(), 0.3)
    assert not tracer.policies[view.worst].any()


def test_a_policy_whose_end_rounding_hides_keeps_no_limit():
    """Up, away from the cliff: a fall needs 15 slips in a row."""
    mdp = sr.grids.cliff(layout="\n".join(["......"] * 15 + ["SXXXXG"]))
    tracer = tracer_of(mdp)
    with pytest.raises(sr.BadInput, match="lead to an end with a probability above rounding"):
        sr.evaluate(mdp, np.zeros(mdp.n_states, int))
    assert tracer.badness(tracer.number(np.zeros(mdp.n_states, np.int64))) == math.inf


def test_the_discounted_mean_of_a_policy_is_that_of_an_evaluation():
    mdp = sr.grids.cliff()
    tracer = tracer_of(mdp)
    number = tracer.view(sr.VarianceReplay(beta=1.0), 0.4).worst
    assert tracer.discounted(number) == sr.evaluate(mdp, tracer.policies[number], discounted=True).mean
