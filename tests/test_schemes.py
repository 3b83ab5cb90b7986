import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

import safereplay as sr
from safereplay import schemes
from safereplay.kernels.memory import STATISTICS
from safereplay.theory.operator import limit_table, limit_weights


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


OF_OUTCOME_VALUES = (8.0, -3.0, 1.0, 2.0, 0.0, 0.4, 0.3, 0.5)  # count, y, unsafe, s_next, ends, freq, below, luck


def test_the_papers_factors_are_the_variance_and_the_exponent_of_minus_beta_r():
    scheme = sr.VarianceReplay(2.0)
    assert scheme.params_names() == ("beta",)
    assert scheme.params() == (2.0,)
    stats = range(1, 1 + len(STATISTICS))
    assert scheme.bound("pair_weight").call((*stats, 2.0)) == 3.0
    assert scheme.bound("log_tilt").call((-12.0, *stats, *OF_OUTCOME_VALUES, 2.0)) == 24.0
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
    assert scheme.bound("pair_weight").call((*range(len(STATISTICS)), 5.0, 7.0)) == 15 + 12
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
            "unknown argument of BadReplay.pair_weight 'r'; choose from beta, down, harm, mean, n, pair, r_max, r_min, spread, td, value, var",
        ),
        ("pair_weight", lambda count: count, "unknown argument of BadReplay.pair_weight 'count'; choose from "),
        ("log_tilt", lambda r, betta: r, "unknown argument of BadReplay.log_tilt 'betta'; did you mean 'beta'?"),
        ("log_tilt", lambda step: step, "unknown argument of BadReplay.log_tilt 'step'; choose from "),
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
    with fails(f"name of HidingReplay's dial must differ from the quantities that the loop offers, got '{name}'"):
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


def random_history(seed, n=400):
    """Visits of one pair with random rewards, next states and flags: (r, s', ends, unsafe)."""
    generator = np.random.default_rng(seed)
    table = [(float(r), s, bool(s == 3), bool(r < -2)) for r in (-5, -1, 0, 4) for s in (1, 2, 3)]
    return [table[k] for k in generator.choice(len(table), n, p=generator.dirichlet(np.ones(len(table))))]


def rows_of(history):
    """A model whose only pair has the history's outcomes with its frequencies."""
    counts = Counter(history)
    rows = [(0, 0, c / len(history), s, r, ends, unsafe) for (r, s, ends, unsafe), c in counts.items()]
    return rows + [(s, 0, 1.0, 3, float(-s), True, False) for s in (1, 2)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("v", [0.0, 0.7])
def test_weights_that_look_at_all_outcomes_are_those_of_a_raw_history(seed, v):
    """down, harm and spread, and tilts by count, y and unsafe, against numpy on the outcomes themselves."""
    history = random_history(seed)
    mdp = sr.TabularMDP.from_outcomes(4, 1, rows_of(history), gamma=0.9, start=0)
    r, s_next, ends, unsafe = (np.array(x) for x in zip(*history, strict=True))
    Q = sr.fixed_point(mdp, sr.ReturnReplay(0.3), v=v)
    y = r + 0.9 * np.where(ends, 0.0, Q.max(1)[s_next])
    below = np.minimum(r - r.mean(), 0.0)
    table = limit_table(mdp, Q)
    stats = dict(zip(STATISTICS, table.stats[0], strict=True))
    assert stats["down"] == pytest.approx((below**2).mean())
    assert stats["harm"] == pytest.approx(unsafe.mean())
    assert stats["spread"] == pytest.approx(y.var())
    for scheme, odds in (
        (sr.DownsideReplay(1.5), np.exp(-1.5 * below / np.sqrt((below**2).mean()))),
        (sr.ErrorReplay(2.0), np.exp(2.0 * unsafe)),
        (sr.UniformReplay(), np.ones(r.size)),
    ):
        w = limit_weights(mdp, scheme)[mdp.pair == 0]
        wanted = Counter()
        for outcome, share in zip(history, odds / odds.sum(), strict=True):
            wanted[outcome[:3]] += share
        found = {(float(a), int(b), bool(c)): x for a, b, c, x in zip(mdp.r, mdp.s_next, mdp.terminal, w, strict=False)}
        assert {k: x / w.sum() for k, x in found.items()} == pytest.approx(dict(wanted))


def recounted(runs, weigh):
    """w_t of one run's outcomes from what it counted: ``weigh`` gives a pair's weight and its outcomes' odds from their counts,
    rewards, flags and targets."""
    mdp, seen = runs.mdp, runs.seen[0].astype(float)
    y = mdp.r + mdp.gamma * np.where(mdp.terminal, 0.0, runs.Q[0].max(1)[mdp.s_next])
    pairs, shares = np.zeros(mdp.n_pairs), np.zeros(mdp.p.size)
    for i in range(mdp.n_pairs):
        here = np.flatnonzero((mdp.pair == i) & (seen > 0))
        if here.size:
            pairs[i], odds = weigh(seen[here], mdp.r[here], mdp.unsafe[here], y[here])
            shares[here] = odds / odds.sum()
    return pairs[mdp.pair] / pairs.sum() * shares


def by_error(n, r, unsafe, y):
    h = n @ unsafe / n.sum()
    return h * (1 - h), n * np.exp(2.0 * unsafe)


def by_downside(n, r, unsafe, y):
    below = np.minimum(r - n @ r / n.sum(), 0.0)
    deep = n @ below**2 / n.sum()
    return deep, n * np.exp(-1.5 * below / np.sqrt(deep)) if deep > 0 else n


def by_return(n, r, unsafe, y):
    return n @ (y - n @ y / n.sum()) ** 2 / n.sum(), np.exp(-0.3 * (y - y.min()))


RECOUNTED = {
    sr.ErrorReplay(2.0): by_error,
    sr.DownsideReplay(1.5): by_downside,
    sr.UniformReplay(): lambda n, r, unsafe, y: (n.sum(), n),
    sr.DynaReplay(): lambda n, r, unsafe, y: (1.0, n),
}


@pytest.mark.parametrize("mixing", ["literal", pytest.param("matched", marks=pytest.mark.slow)])
@pytest.mark.parametrize("scheme", RECOUNTED, ids=lambda scheme: type(scheme).__name__)
def test_the_weights_of_a_run_are_what_its_counts_make_by_the_formula(scheme, mixing):
    """The cliff and a world of many outcomes a pair, after 50 and 3,000 episodes: every w_t to 1e-12."""
    history = random_history(1)
    many = sr.TabularMDP.from_outcomes(4, 1, rows_of(history), gamma=0.9, start=0)
    for mdp in (sr.grids.cliff(), many):
        for episodes in (50, 3_000):
            runs = sr.learn(mdp, sr.ReplayQLearning(scheme, v=0.5, mixing=mixing), episodes, 1)
            wanted = recounted(runs, RECOUNTED[scheme])
            assert wanted.sum() == pytest.approx(1.0)
            assert runs.w[0] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("mixing", ["literal", pytest.param("matched", marks=pytest.mark.slow)])
def test_the_weights_of_return_replay_are_those_of_its_counts_and_its_q(mixing):
    """A pair looks at Q when it is updated. Where each next state has one sure reward its Q stays as it was first learned, so
    that a pair's last look is as good as one at the end: 3,000 episodes, every w_t to 1e-12."""
    rows = [*rows_of(random_history(2)), (0, 1, 0.3, 1, 2.0, False), (0, 1, 0.7, 2, 1.0, False)]
    rows += [(s, 1, 1.0, 3, 5.0 - s, True) for s in (1, 2)]
    mdp = sr.TabularMDP.from_outcomes(4, 2, rows, gamma=0.9, start=0)
    learner = sr.ReplayQLearning(sr.ReturnReplay(0.3), v=0.5, mixing=mixing)
    runs = sr.learn(mdp, learner, 3_000, 1, sr.EpsilonGreedy(0.5), quiet=True)
    wanted = recounted(runs, by_return)
    assert (wanted.reshape(-1)[mdp.pair < 2] > 0).all()
    assert runs.w[0] == pytest.approx(wanted, abs=1e-12)
