import re
from dataclasses import dataclass

import numpy as np
import pytest

import safereplay as sr
from safereplay import schemes
from safereplay.kernels.memory import STATISTICS


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


def test_the_papers_factors_are_the_variance_and_the_exponent_of_minus_beta_r():
    scheme = sr.VarianceReplay(2.0)
    assert scheme.params_names() == ("beta",)
    assert scheme.params() == (2.0,)
    n, mean, var, r_min, r_max, td = range(1, 7)
    assert scheme.bound("pair_weight").call((n, mean, var, r_min, r_max, td, 2.0)) == 3.0
    assert scheme.bound("log_tilt").call((-12.0, n, mean, var, r_min, r_max, td, 2.0)) == 24.0
    assert scheme.bound("next_weight").call((9.0, 2.0)) == 1.0
    assert scheme.bound("pair_weight").names == {"var"}
    assert scheme.bound("log_tilt").names == {"r", "beta"}


def test_the_base_scheme_replays_all_that_was_seen_alike():
    scheme = sr.Scheme()
    assert scheme.params() == ()
    assert [schemes.if_seen(n) for n in (0.0, 1.0, 7.0)] == [0.0, 1.0, 1.0]
    assert schemes.no_tilt() == 0.0
    assert schemes.alike() == 1.0
    mdp = sr.grids.volatile()
    w = sr.learn(mdp, sr.ReplayQLearning(scheme, v=0.5), 2000, 1).w[0]
    pair = np.bincount(mdp.pair, weights=w, minlength=80)
    seen = np.diff(mdp.row) > 0
    assert pair[seen] == pytest.approx(1 / seen.sum())
    assert w == pytest.approx(1 / seen.sum() / np.diff(mdp.row)[mdp.pair])


def test_w_settles_unless_it_follows_the_td_error():
    @dataclass(frozen=True)
    class UnsettledReplay(sr.Scheme):
        @staticmethod
        def pair_weight(td):
            return td * td

    assert sr.Scheme().has_limit
    assert sr.VarianceReplay(1.0).has_limit
    assert not UnsettledReplay().has_limit


def test_a_scheme_can_name_every_statistic_its_own_dials_and_nothing_else():
    @dataclass(frozen=True)
    class EverythingReplay(sr.Scheme):
        first: float = 1.0
        second: float = 2.0

        @staticmethod
        def pair_weight(second, td, r_max, r_min, var, mean, n, first):
            return n + mean + var + r_min + r_max + td + first + second

        @staticmethod
        def log_tilt(r, n, mean, var, r_min, r_max, td, first, second):
            return r

        @staticmethod
        def next_weight(first, count):
            return first * count

    scheme = EverythingReplay(5.0, 7.0)
    assert scheme.params() == (5.0, 7.0)
    assert scheme.bound("pair_weight").call((*range(6), 5.0, 7.0)) == 15 + 12
    assert scheme.bound("next_weight").call((3.0, 5.0, 7.0)) == 15.0


def scheme_with(factor, function, name="BadReplay", **dials):
    """A scheme whose factor is the function; defined anew each time."""
    namespace = {"__annotations__": dict.fromkeys(dials, float), factor: staticmethod(function), **dials}
    return dataclass(frozen=True)(type(name, (sr.Scheme,), namespace))


@pytest.mark.parametrize(
    ("factor", "function", "message"),
    [
        ("pair_weight", lambda varr: varr, "unknown argument of BadReplay.pair_weight 'varr'; did you mean 'var'?"),
        ("pair_weight", lambda means: means, "unknown argument of BadReplay.pair_weight 'means'; did you mean 'mean'?"),
        (
            "pair_weight",
            lambda r: r,
            "unknown argument of BadReplay.pair_weight 'r'; choose from beta, mean, n, r_max, r_min, td, var",
        ),
        ("pair_weight", lambda count: count, "unknown argument of BadReplay.pair_weight 'count'; choose from "),
        ("log_tilt", lambda r, betta: r, "unknown argument of BadReplay.log_tilt 'betta'; did you mean 'beta'?"),
        ("log_tilt", lambda count: count, "unknown argument of BadReplay.log_tilt 'count'; choose from "),
        (
            "next_weight",
            lambda counts: counts,
            "unknown argument of BadReplay.next_weight 'counts'; did you mean 'count'?",
        ),
        ("next_weight", lambda var: var, "unknown argument of BadReplay.next_weight 'var'; choose from beta, count"),
        ("pair_weight", lambda *stats: 1.0, "unknown argument of BadReplay.pair_weight 'stats'; choose from "),
    ],
)
def test_a_factor_that_names_what_is_not_on_offer_is_refused_with_a_hint(factor, function, message):
    with fails(message):
        scheme_with(factor, function, beta=1.0)()


def test_a_factor_written_as_a_method_is_refused_with_the_same_message():
    """Without @staticmethod, ``self`` is one more name; a crash inside the compiler would not say so."""

    @dataclass(frozen=True)
    class MethodReplay(sr.Scheme):
        def pair_weight(self, var):
            return var

    with fails("unknown argument of MethodReplay.pair_weight 'self'; choose from "):
        MethodReplay()


@pytest.mark.parametrize("name", [*STATISTICS, "r", "count"])
def test_a_dial_may_not_hide_a_statistic(name):
    """It would be silently ignored where a factor names it: the statistic comes first."""
    with fails(f"name of HidingReplay's dial must differ from what the loop offers, got '{name}'"):
        scheme_with("log_tilt", lambda r: r, name="HidingReplay", **{name: 1.0})()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("5", "beta must be a number, got '5'"),
        (None, "beta must be a number, got None"),
        (float("nan"), "beta must be finite, got nan"),
        (float("inf"), "beta must be finite, got inf"),
        (True, "beta must be a number, got True"),
    ],
)
def test_a_dial_must_be_a_finite_number(value, message):
    with fails(message):
        sr.VarianceReplay(value)


@dataclass(frozen=True)
class WrongReplay(sr.Scheme):
    """A pair weight that is negative (how = 0), infinite (1) or not a number (2)."""

    how: float = 0.0

    @staticmethod
    def pair_weight(n, how):
        return -n if how == 0.0 else n / (1.0 - how) if how == 1.0 else (0.0 * n) / 0.0


@pytest.mark.parametrize(("how", "shown"), [(0.0, "-"), (1.0, "inf"), (2.0, "nan")])
def test_a_pair_weight_that_is_negative_or_not_finite_is_reported_and_not_replayed_from(how, shown):
    """w_t is undefined then, and drawing from such a tree would read outside of a pair's outcomes."""
    mdp = sr.TabularMDP.from_outcomes(1, 2, [(0, a, 0.5, 0, r, True) for a in (0, 1) for r in (-3.0, 1.0)])
    with fails(f"pair_weight of WrongReplay must be finite and at least 0, got {shown}"):
        sr.learn(mdp, sr.ReplayQLearning(WrongReplay(how), v=0.5), 200, 1)


def test_bold_and_cautious_tilts_favour_the_best_and_the_worst():
    mdp = sr.grids.volatile()
    right = mdp.pair == mdp.layout.state_at(1, 0) * 4 + 1
    for beta, low, high in [(1.0, 1.0, 0.0), (0.0, 0.5, 0.5), (-1.0, 0.0, 1.0)]:
        w = sr.learn(mdp, sr.ReplayQLearning(sr.VarianceReplay(beta), v=0.3), 3000, 1).w[0][right]
        assert w / w.sum() == pytest.approx([low, high], abs=1e-12)


@dataclass(frozen=True)
class Uncompiled(sr.Scheme):
    @staticmethod
    def pair_weight(var):
        return nowhere(var)  # noqa: F821


def test_a_factor_that_cannot_be_compiled_gets_one_line():
    said = "pair_weight of Uncompiled must be code that numba can compile, got \"NameError: name 'nowhere' is not defined\""
    with fails(said) as caught:
        sr.learn(sr.grids.cliff(), sr.ReplayQLearning(Uncompiled()), 10, 1)
    assert str(caught.value) == said
