import numpy as np
import pytest
from fork import FORK, SETTINGS, learned
from scipy.optimize import brentq

import safereplay as sr
from safereplay import arrays, runs
from safereplay.errors import BadInput
from safereplay.kernels import history as ring
from safereplay.kernels import rng, step
from safereplay.rivals.prioritised import PrioritisedReplay, centre, prioritised_limit, replays_of

COIN = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 0.9, 0, 1.0, True), (0, 0, 0.1, 0, -9.0, True)])
EVEN = [[1.0]]


def coin_limit(alpha, v, floor, top=None):
    """The coin's limit from the equations, one inside the other, by bisection."""
    c, p, y = v / (1 - v), np.array([0.9, 0.1]), np.array([1.0, -9.0])

    def pull(Q):
        P = (np.abs(y - Q) + floor) ** alpha
        M = max(P.max(), top or 0.0)
        x = brentq(lambda x: 1 - np.exp(-x) + (x - 1 + np.exp(-x)) * (p @ P) / M - c, 0, 1e6, xtol=1e-13)
        n = 1 - np.exp(-x) + (x - 1 + np.exp(-x)) * P / M
        return p @ ((1 + n) * (y - Q))

    return brentq(pull, -9, 1, xtol=1e-13)


# -- the limit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "v", "top"), [(0.0, 0.5, None), (0.6, 0.5, None), (1.0, 0.8, 40.0), (2.0, 0.9, 1e3)])
def test_the_limit_of_a_coin_is_what_its_equations_say(alpha, v, top):
    learner = PrioritisedReplay(alpha, v, floor=0.3)
    found = prioritised_limit(COIN, learner, EVEN, top)[0, 0]
    assert found == pytest.approx(coin_limit(alpha, v, 0.3, top), abs=1e-9)


def test_without_priorities_without_replay_or_behind_one_huge_error_the_limit_is_q_star():
    for learner, top in (
        (PrioritisedReplay(0.0, 0.8), None),
        (PrioritisedReplay(1.0, 0.0), None),
        (PrioritisedReplay(1.0, 0.4), 1e9),
    ):
        assert prioritised_limit(COIN, learner, EVEN, top) == pytest.approx(0.0, abs=1e-6)
    assert (
        prioritised_limit(COIN, PrioritisedReplay(1.0, 0.8), EVEN, 1e9)[0, 0] < -0.5
    )  # then old ones are replayed too


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_the_centre_minimises_a_power_of_the_distance(alpha):
    """With A = 0 and ε → 0 it is the minimum of Σ q·|y − Q|^(2+α), here on a grid of 10⁻⁴; α = 3 is half way to mid-range."""
    Q = np.arange(-9.0, 1.0, 1e-4)
    cost = 0.9 * np.abs(1.0 - Q) ** (2 + alpha) + 0.1 * np.abs(-9.0 - Q) ** (2 + alpha)
    learner = PrioritisedReplay(alpha, floor=1e-12)
    assert centre(COIN, COIN.r, learner, 0.0, 1.0)[0, 0] == pytest.approx(Q[cost.argmin()], abs=2e-4)


@pytest.mark.parametrize(("v", "top"), [(0.3, 8.0), (0.6, 8.0), (0.8, 50.0)])
def test_replays_of_a_transition_are_what_a_window_of_them_gives(v, top):
    """A window of 300 with priorities 1 and 4, as likely, after a first replay at ``top``: 20,000 steps, seed 0. Replays of each
    kind within 6 % of A − 1 + B·P."""
    random, N, steps = np.random.default_rng(0), 300, 20_000
    own, weight = np.zeros(N), np.zeros(N)
    replays, born = {1.0: 0, 4.0: 0}, {1.0: 0, 4.0: 0}
    for t in range(steps):
        own[t % N], weight[t % N] = random.choice([1.0, 4.0]), top
        born[own[t % N]] += 1
        for _ in range(random.geometric(1 - v) - 1):
            i = np.searchsorted(weight.cumsum(), random.random() * weight.sum(), side="right")
            replays[own[i]] += 1
            weight[i] = own[i]
    A, B = replays_of(v, 2.5, top)
    for P in (1.0, 4.0):
        assert replays[P] / born[P] == pytest.approx(A - 1 + B * P, rel=0.06)


@pytest.mark.parametrize(("alpha", "v"), [(0.6, 0.6), (1.0, 0.8)])
def test_it_learns_its_limit_which_is_not_q_star(alpha, v):
    """The fork, seeds 0–7, 100,000 steps explored at random: within 0.05 of the limit, from which Q* is 0.25 and more away."""
    learner = PrioritisedReplay(alpha, v)
    runs = sr.learn(FORK, learner, **SETTINGS)
    limit = prioritised_limit(FORK, learner, runs.visitation.mean(0), top=6.0**alpha)  # errors reach about 6 at first
    assert runs.Q.mean(0) == pytest.approx(limit, abs=0.05)
    assert np.abs(limit - sr.exact(FORK, sr.QLearning())).max() > 0.25


def test_the_largest_priority_that_a_run_saw_is_the_top_of_its_limit():
    """The coin, seed 0, 300,000 iterations, α = 1, v = 0.8: within 0.06 of the limit with that top; Q* is 0."""
    learner = PrioritisedReplay(1.0, 0.8)
    program = runs.make_program(learner, sr.EpsilonGreedy(), sr.PowerStep(0.9), COIN.gamma, 1)
    tables, memory = step.allocate(1, 1, 0.0, rng.seeded(0)), program.recipe.room(COIN)
    program.advance(arrays.sampling_model(COIN), memory, tables, 1 << 40, 100, 300_000)
    top = float(memory.numbers[ring.TOP])
    assert 8.0 < top < 11.0
    assert tables.Q[0] == pytest.approx(coin_limit(1.0, 0.8, 0.01, top), abs=0.06)
    assert coin_limit(1.0, 0.8, 0.01, top) < -1.0


@pytest.mark.parametrize("by", ["error", pytest.param("rank", marks=pytest.mark.slow)])
def test_with_full_importance_weights_it_learns_q_star(by):
    """The fork, seeds 0–7, 100,000 steps explored at random, α = 1, v = 0.8, step sizes n^−0.6: within 0.08 of Q*."""
    learner = PrioritisedReplay(1.0, 0.8, 1.0, by)
    Q = sr.learn(FORK, learner, **{**SETTINGS, "step_size": sr.PowerStep(0.6)}).Q.mean(0)
    assert np.array_equal(sr.exact(FORK, learner), sr.exact(FORK, sr.QLearning()))
    assert pytest.approx(sr.exact(FORK, learner), abs=0.08) == Q


def test_ranks_without_importance_weights_are_biased_the_same_way():
    """The fork, seeds 0–7: at the pair with the rare loss, more than 0.5 below Q*."""
    assert learned(PrioritisedReplay(1.0, 0.8, by="rank"))[1, 0] < sr.exact(FORK, sr.QLearning())[1, 0] - 0.5


# -- risk ---------------------------------------------------------------------------------------------------------------


def test_on_the_cliff_it_is_cautious_for_a_fall_is_a_large_error():
    """Seeds 0–4, 300,000 steps, α = 1, v = 0.8: every greedy policy falls with less than 0.05, and so does that of the limit; the
    optimal one with 0.119. Values are within 0.3 of the limit's on average, and 1.5 and more from the optimal ones."""
    mdp, learner = sr.grids.cliff(), PrioritisedReplay(1.0, 0.8)
    found = sr.learn(mdp, learner, seeds=5, steps=300_000)
    limit = prioritised_limit(mdp, learner, found.visitation.mean(0))
    for policy in (*found.policy, limit.argmax(1)):
        assert sr.evaluate(mdp, policy, start=mdp.origin).p_unsafe < 0.05
    V = found.Q.mean(0).max(1)
    assert np.abs(V - limit.max(1))[mdp.is_reachable].mean() < 0.3
    assert np.abs(V - sr.exact(mdp, sr.QLearning()).max(1))[mdp.is_reachable].mean() > 1.5


def test_a_rare_win_makes_it_bold():
    """The coin turned over: 9 with 0.1, else −1. Its mean is 0, its limit above."""
    lucky = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 0.9, 0, -1.0, True), (0, 0, 0.1, 0, 9.0, True)])
    found = prioritised_limit(lucky, PrioritisedReplay(1.0, 0.8), EVEN)
    assert found == pytest.approx(-prioritised_limit(COIN, PrioritisedReplay(1.0, 0.8), EVEN))
    assert found[0, 0] > 1.0


# -- what is said -------------------------------------------------------------------------------------------------------


def test_its_limit_is_refused_where_it_depends_on_visits():
    with pytest.raises(BadInput, match="importance must be 1, got 0; otherwise the limit depends on the visitation"):
        sr.exact(FORK, PrioritisedReplay())
    with pytest.raises(BadInput, match="learner must have proportional priorities and no importance weights"):
        prioritised_limit(FORK, PrioritisedReplay(by="rank"), np.ones((2, 2)))
    with pytest.raises(BadInput, match="visitation must be shares of visits"):
        prioritised_limit(FORK, PrioritisedReplay(), np.zeros((2, 2)))


@pytest.mark.parametrize(
    "values", [{"floor": 1e-30}, {"floor": 1e29}, pytest.param({"floor": 1e-40, "by": "rank"}, marks=pytest.mark.slow)]
)
def test_the_least_and_the_largest_floors_give_numbers(values):
    """Below them every priority underflows to 0 where errors vanish, and importance weights are 0/0."""
    sure = sr.grids.from_map("S..G", gamma=0.5, step=0.0, goal=8.0)
    learner = PrioritisedReplay(10.0, importance=1.0, **values)
    runs = sr.learn(sure, learner, episodes=200, seeds=1, step_size=sr.ConstantStep(1.0))
    assert np.isfinite(runs.Q).all()


def test_it_goes_to_json_and_back_and_every_setting_can_be_had():
    learner = PrioritisedReplay(0.3, importance=0.2, by="rank")
    assert sr.Learner.from_dict(learner.to_dict()) == learner
    for setting in PrioritisedReplay.SETTINGS:
        assert PrioritisedReplay(priority=setting).priority == setting


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"priority": -1.0}, r"priority must be in \[0, 10\], got -1"),
        ({"importance": 1.5}, r"importance must be in \[0, 1\], got 1.5"),
        ({"by": "ranks"}, "unknown by 'ranks'; did you mean 'rank'"),
        ({"floor": 0.0}, r"floor must be in \(0, inf\), got 0"),
        (
            {"priority": 10.0, "floor": 1e-40},
            r"floor must have floor\*\*priority from 1e-300 to 1e290, got 1e-40; .*1e-400",
        ),
        (
            {"priority": 10.0, "floor": 1e40},
            r"floor must have floor\*\*priority from 1e-300 to 1e290, got 1e\+40; .*1e\+400",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused(values, said):
    with pytest.raises(BadInput, match=said):
        PrioritisedReplay(**values)
