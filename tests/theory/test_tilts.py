"""What a tilt must satisfy: order, direction, units, rarity; of every scheme, and of what the sampling core really draws."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safereplay as sr
from safereplay import catalog
from safereplay.pair_index import unfit
from safereplay.theory.operator import operator
from safereplay.theory.shaped import PROBABILITIES, judge, measure

SCHEMES = [catalog.scheme(name)() for name in catalog.SCHEMES]
N = 2000  # transitions of a pair


def memories(scheme):
    return ["table"] if unfit(scheme) else ["table", "transitions"]


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
def test_a_scheme_says_in_its_docstring_which_promises_it_breaks(scheme):
    found = {name for memory in memories(scheme) for name in judge(scheme, memory).broken}
    assert set(re.findall(r"\*\*Breaks\*\* (\w+)", type(scheme).__doc__)) == found


def test_the_default_of_deep_agents_keeps_every_promise_at_every_setting():
    for beta in (0.25, 0.5, 1.0, 2.0, 4.0, 16.0):
        assert judge(sr.EntropicReplay(beta), "transitions").broken == ()
    assert sr.Shaper(1).index.scheme == sr.EntropicReplay()


def test_a_counterexample_is_one():
    """The coin of VarianceReplay's docstring, by the operator itself: 0 or 0.25 against 0 or 0.5, v = 0.9, β = 5."""
    rows = [(0, a, 0.5, 1, r, True, False) for a, prize in enumerate((0.25, 0.5)) for r in (0.0, prize)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)
    Q = sr.fixed_point(mdp, sr.VarianceReplay(5.0), v=0.9)[0]
    assert pytest.approx([0.0804, 0.0638], abs=1e-4) == Q
    assert judge(sr.VarianceReplay(5.0)).order.reason.startswith("0 or 0.25 with probability 0.5 is valued 0.08043")


def test_bad_arguments_get_one_line():
    for match, arguments in {
        "scheme must be a Scheme, got 1": (1,),
        "unknown memory 'disk'": (sr.VarianceReplay(), "disk"),
        "scheme must suit a memory of transitions, got ErrorReplay": (sr.ErrorReplay(), "transitions"),
    }.items():
        with pytest.raises(sr.BadInput, match=match):
            judge(*arguments)


def perceived(risks, loss=-9.0, pays=1.0, v=0.5, beta=2.0, c=1.0, plus=0.0):
    """What the core draws of the loss at each pair, one pair per risk: exactly, from its own distribution."""
    bad = np.array([k < round(risk * N) for risk in risks for k in range(N)])
    pair = np.repeat(np.arange(len(risks)), N)
    index = sr.PairIndex(bad.size, sr.EntropicReplay(beta), v)
    index.put(np.random.default_rng(0).permutation(bad.size), pair, c * np.where(bad, loss, pays) + plus)
    p = index.distribution()
    x, keys = index.x_of(np.arange(bad.size)), index.key_of(np.arange(bad.size))
    low = x < c * (loss + pays) / 2 + plus
    return np.array([p[low & (keys == k)].sum() / p[keys == k].sum() for k in range(len(risks))])


@given(v=st.floats(0.05, 1.0), beta=st.floats(0.05, 16.0))
def test_perceived_probability_grows_with_true_probability(v, beta):
    found = perceived((0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 0.9), v=v, beta=beta)
    assert (np.diff(found) > 0).all()
    assert (found > (0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 0.9)).all()


@given(st.lists(st.floats(0.05, 16.0), min_size=2, max_size=2, unique=True).map(sorted), st.booleans())
def test_more_v_or_beta_never_lowers_what_is_drawn_of_the_loss(two, turn_v):
    low, high = ({"v": x / 16} if turn_v else {"beta": x} for x in two)
    assert (perceived((0.01, 0.1), **high) >= perceived((0.01, 0.1), **low) - 1e-12).all()


@pytest.mark.parametrize("c", [1e-12, 1e-3, 0.5, 1024.0, 1e12])
def test_the_unit_of_rewards_and_a_constant_change_no_share(c):
    plain = perceived((0.001, 0.05, 0.5))
    np.testing.assert_allclose(perceived((0.001, 0.05, 0.5), c=c, plus=3.0 * c), plain, rtol=1e-9)


def test_the_same_seed_draws_the_same_slots_whatever_the_unit_of_rewards():
    rng = np.random.default_rng(0)
    x, keys = rng.normal(size=3000), rng.integers(0, 40, 3000)
    drawn = []
    for c in (1.0, 2.0**-40, 2.0**40):
        index = sr.PairIndex(3000, sr.EntropicReplay(), 0.7, seed=5)
        index.put(np.arange(3000), keys, c * x)
        drawn.append(index.draw(20_000))
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] == drawn[2]).all()


@given(st.floats(0.0, 5.0), st.floats(0.0, 50.0), st.floats(0.1, 1.0), st.floats(0.25, 8.0))
def test_a_better_prize_never_makes_a_pair_look_worse(prize, more, v, beta):
    """Two coins for 0 or a prize, side by side; the second prize is at least as good."""
    rows = [(0, a, 0.5, 1, r, True, False) for a, x in enumerate((prize, prize + more)) for r in (0.0, x)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)
    first, second = sr.shaped_limit(mdp, sr.EntropicReplay(beta), v)[0]
    assert second >= first - 1e-9 * (1.0 + prize + more)


@pytest.mark.parametrize("beta", [0.25, 0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("v", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_roads_are_ranked_by_their_risk_at_every_setting(v, beta):
    """Roads that pay 0.95 + 0.005·k and crash with the k-th probability of the family: the limit ranks them as their risks are."""
    rows = [
        (0, a, p, 1, r, True, r < 0)
        for a, risk in enumerate(PROBABILITIES)
        for p, r in ((risk, -9.0), (1.0 - risk, 0.95 + 0.005 * a))
    ]
    Q = sr.shaped_limit(sr.TabularMDP.from_outcomes(2, len(PROBABILITIES), rows, start=0), sr.EntropicReplay(beta), v)[
        0
    ]
    assert (np.diff(Q) < 0).all()


#: What :func:`measure` finds to be broken, by theory: e^{−βr} and tilts in units of the pair's own spread are not monotone; where such
#: a tilt is on targets, H need not contract. Tilts by frequency, flags, ranks and expectiles, and the entropic one, keep everything.
NOT_MEASURES = {
    "variance": ("monotone",),
    "score": ("monotone",),
    "bold": ("monotone",),
    "downside": ("monotone",),
    "return": ("monotone", "contracts"),
}


@pytest.mark.parametrize("name", catalog.SCHEMES)
def test_which_schemes_value_a_pair_by_a_risk_measure(name):
    assert measure(catalog.scheme(name)()).broken == NOT_MEASURES.get(name, ())


def test_the_four_risk_measures_are_ones_at_every_dial():
    for scheme in (sr.CVaRReplay(0.05), sr.SpectralReplay(-3.0), sr.ExpectileReplay(0.95), sr.EntropicReplay(8.0)):
        assert measure(scheme).broken == ()


def test_with_one_slope_a_coin_for_2_is_valued_less_than_a_coin_for_1():
    """β = 1: 2/(1+e²) = 0.2384 < 1/(1+e) = 0.2689. With a slope drawn for each replay, −log((1+e^−x)/2): 0.5663 > 0.3799."""
    rows = [(0, a, 0.5, 1, r, True, False) for a, prize in enumerate((1.0, 2.0)) for r in (0.0, prize)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)
    one = [x / (1 + np.exp(x)) for x in (1.0, 2.0)]
    H = operator(mdp, sr.ReturnReplay(1.0), 1.0, Q=np.zeros((2, 2)), anchored=True)
    within = [np.average(mdp.r[k], weights=H.w[k]) for k in (slice(0, 2), slice(2, 4))]
    assert within == pytest.approx(one)
    drawn = sr.fixed_point(mdp, sr.EntropicReplay(1.0), v=1.0, mixing="anchored")[0]
    assert drawn == pytest.approx(-np.log((1 + np.exp([-1.0, -2.0])) / 2))
