import json
from dataclasses import dataclass
from math import isnan, sin

import numpy as np
import pytest
from random_models import random_model

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.theory.conditions import check
from safereplay.theory.operator import limit_weights, operator

VARIANCE = sr.VarianceReplay(beta=5.0)


@dataclass(frozen=True)
class Wave(sr.Scheme):
    """A weight that goes up and down with the visits, for ever."""

    @staticmethod
    def pair_weight(n):
        return 1.0 + sin(n)


@dataclass(frozen=True)
class Surprise(sr.Scheme):
    """Pairs by their last TD error: noise, where outcomes are."""

    @staticmethod
    def pair_weight(td):
        return abs(td)


@dataclass(frozen=True)
class Threshold(sr.Scheme):
    """A weight that jumps where the variance settles, if that is where the threshold is."""

    level: float = 0.0

    @staticmethod
    def pair_weight(var, level):
        return 2.0 if var > level else 1.0


def quick(mdp, scheme=VARIANCE, **more):
    """A check on runs that are long enough for its exact parts, and no longer."""
    return check(mdp, scheme, **{"episodes": 50, "seeds": 1, "quiet": True, **more})


def coins(gamma=0.9):
    """Two states, each a coin to toss or a sure thing; tossing goes on with probability ½."""
    rows = []
    for s in (0, 1):
        rows += [(s, 0, 0.1, 1 - s, -1.0, False), (s, 0, 0.4, 1 - s, 2.0 + s, False)]
        rows += [(s, 0, 0.1, 2, -1.0, True), (s, 0, 0.4, 2, 2.0 + s, True), (s, 1, 1.0, 2, 0.1, True)]
    return sr.TabularMDP.from_outcomes(3, 2, rows, gamma=gamma)


# -- step sizes and exploration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step_size", "holds", "sums"),
    [
        (sr.PowerStep(0.6), True, (True, True)),
        (sr.PowerStep(1.0), True, (True, True)),
        (sr.PowerStep(0.5), False, (True, False)),
        (sr.ConstantStep(0.1), False, (True, False)),
        pytest.param(sr.StepSize(), True, (True, True), marks=pytest.mark.slow),
    ],
)
def test_named_step_sizes_are_judged_by_proof(step_size, holds, sums):
    found = quick(coins(), step_size=step_size)
    assert (found.steps.holds, found.steps.proved) == (holds, True)
    assert (found.steps.sum_diverges, found.steps.squares_converge) == sums
    assert any(line.startswith("step sizes: ") for line in found.warnings) is not holds


def test_a_step_size_of_ones_own_is_measured_and_said_to_be():
    @dataclass(frozen=True)
    class Shifted(sr.StepSize):
        offset: float = 10.0

        @staticmethod
        def alpha(n, offset):
            return (1.0 + offset) / (n + offset)

    steps = quick(coins(), step_size=Shifted()).steps
    assert (steps.holds, steps.proved) == (True, False)
    assert steps.power == pytest.approx(1.0, abs=1e-3)
    assert steps.partial_sums[0] == pytest.approx(sum(11 / (n + 10) for n in range(1, 65536)))
    assert "measured on its values, not proved" in steps.reason


@pytest.mark.parametrize(
    ("exploration", "explores", "greedy"),
    [
        (sr.EpsilonGreedy(0.1), True, False),
        (sr.EpsilonGreedy(0.1, power=1.0), True, True),
        (sr.EpsilonGreedy(0.0), False, True),
        pytest.param(sr.Softmax(2.0), True, False, marks=pytest.mark.slow),
        (sr.Softmax(2.0, power=0.1), False, True),
    ],
)
def test_the_two_halves_of_glie_are_told_apart_and_theorem_1_needs_the_first(exploration, explores, greedy):
    found = quick(coins(), exploration=exploration)
    assert (found.exploring.explores, found.exploring.greedy) == (explores, greedy)
    assert found.exploring.holds is explores
    assert "which Theorem 1 does not need" in found.exploring.reason
    assert any(line.startswith("exploration: ") for line in found.warnings) is not explores
    assert any(line.startswith("greedy in the limit: d → 0") for line in found.warnings) is greedy


def test_pairs_that_no_episode_can_come_to_are_listed():
    rows = [(0, 0, 1, 1, -1, False), (1, 0, 0.5, 3, 1, True), (1, 0, 0.5, 3, -1, True)]
    rows += [(2, 0, 0.5, 0, 7, False), (2, 0, 0.5, 0, -7, False)]
    found = quick(sr.TabularMDP.from_outcomes(4, 1, rows, start=0), episodes=200)
    assert found.exploring.unreachable == ((2, 0),)
    assert "1 pairs cannot be reached from the start, as (s=2, a=0): their Q stays c0" in found.warnings
    assert found.exploring.holds is True  # Theorem 1 asks it only of states that are visited
    # w_t settles on the pairs that can be reached, which w^∞ over all pairs does not know of
    assert found.settling.distance[-1] == pytest.approx(0.0, abs=1e-9)
    assert limit_weights(sr.TabularMDP.from_outcomes(4, 1, rows), VARIANCE)[1:3].sum() == pytest.approx(1 / 50)


def test_one_action_needs_no_exploring():
    mdp = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 0.5, 1, 1, True), (0, 0, 0.5, 1, 3, True)])
    found = quick(mdp, exploration=sr.EpsilonGreedy(0.0))
    assert found.exploring.holds is True
    assert found.theorem.states == ()
    assert "there is only one action" in str(found)


# -- settling ---------------------------------------------------------------------------------------------------------


def test_variance_replay_settles_by_lemma_4_and_the_distance_is_that_of_the_runs():
    mdp = coins()
    explore = sr.EpsilonGreedy(1.0)
    found = check(mdp, VARIANCE, exploration=explore, episodes=4_096, seeds=20, seed=7, quiet=True).settling
    assert (found.holds, found.proved, found.limit) == (True, True, True)
    assert found.reason.startswith("proved (Lemma 4): w_t is ")
    assert found.episodes[-1] == 4_096
    assert found.episodes[0] == 8
    assert found.late_rate == pytest.approx(-0.5, abs=0.1)  # the law of large numbers, from 128 episodes on
    assert found.rate < found.late_rate  # before that, outcomes not yet seen
    runs = sr.learn(mdp, sr.ReplayQLearning(VARIANCE, v=0.5), 4_096, range(7, 27), explore, snapshots=[64, 4_096])
    w = limit_weights(mdp, VARIANCE)
    for point, shot in ((64, 0), (4_096, 1)):
        apart = np.array([0.5 * np.abs(runs.snapshots.w[k, shot] - w).sum() for k in range(20)])
        assert found.distance[found.episodes.index(point)] == pytest.approx((apart**2).mean() ** 0.5)


@pytest.mark.parametrize("scheme", [Wave(), pytest.param(Surprise(), marks=pytest.mark.slow)], ids=str)
def test_a_scheme_that_never_settles_is_found_out_and_warned_of(scheme):
    """8,192 episodes, seeds 0 to 4: the drift from w_t to w_2t has a rate above −0.2, where settling has −½."""
    found = check(coins(), scheme, episodes=8_192, quiet=True)
    assert found.settling.holds is False
    assert found.settling.limit is False
    assert found.settling.rate > -0.2
    assert found.settling.distance[-1] > 0.1
    assert any(line.startswith("w_t: measured: ") and "does not near it" in line for line in found.warnings)
    assert found.conditions_hold is False


def test_without_a_limit_the_safety_of_a_scheme_cannot_be_told():
    found = quick(coins(), Wave())
    assert (found.assumption.holds, found.theorem.holds) == (None, None)
    assert "unknown: w_t depends on TD errors or visits" in found.theorem.reason
    assert (found.contraction.holds, found.contraction.factor) == (True, 0.9)
    assert isnan(found.contraction.measured)
    assert "Theorem 2" in str(found)


@pytest.mark.slow
def test_a_weight_that_jumps_where_its_statistics_settle_is_not_certified():
    mdp = coins()
    level = float(mdp.reward_variance[0, 0])
    for scheme, jumps in ((Threshold(level), True), (Threshold(level / 2), False)):
        found = check(mdp, scheme, episodes=8_192, quiet=True).settling
        assert (found.jump > 0.01) is jumps
        assert found.holds is not True if jumps else found.holds is True
        assert not found.proved


def test_an_outcome_never_seen_explains_a_distance():
    """(s=0, a=0) pays −1000 once in ten million: it has all the variance, and no run sees it."""
    rows = [
        (0, 0, 1e-7, 1, -1_000, True),
        (0, 0, 1 - 1e-7, 1, 1, True),
        (0, 1, 0.5, 1, 0, True),
        (0, 1, 0.5, 1, 0.1, True),
    ]
    found = check(sr.TabularMDP.from_outcomes(2, 2, rows), VARIANCE, episodes=1_000, seeds=2, quiet=True)
    (unseen,) = found.settling.unseen
    assert (unseen.s, unseen.a, unseen.runs, unseen.visited) == (0, 0, 2, True)
    assert unseen.weight > 0.9
    assert "of w^∞ was never seen, most of it at (s=0, a=0)" in found.settling.reason
    assert any(line.startswith("(s=0, a=0): not every outcome was seen in 2 of 2 runs") for line in found.warnings)


def test_a_pair_never_visited_is_said_to_be():
    found = check(coins(), VARIANCE, episodes=1_000, seeds=2, exploration=sr.EpsilonGreedy(0.0), quiet=True)
    assert found.settling.proved is False  # Lemma 4 needs exploration
    if found.settling.unseen:
        assert all(f"(s={x.s}, a={x.a}): " in " ".join(found.warnings) for x in found.settling.unseen[:3])


def test_where_nothing_varies_nothing_is_replayed_and_w_is_settled():
    mdp = sr.TabularMDP.from_outcomes(2, 2, [(0, 0, 1, 1, 1, True), (0, 1, 1, 1, 0, True)])
    found = quick(mdp, episodes=200)
    assert found.settling.distance[-1] == 0.0
    assert [p.holds for p in found.assumption.points] == [True, True, True]
    assert found.theorem.states[0].switched is False


# -- contraction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_contraction_factor_is_gamma_times_the_largest_chance_to_go_on(seed):
    mdp = random_model(seed)
    d = np.random.default_rng(seed).dirichlet(np.ones(mdp.n_pairs)).reshape(mdp.n_states, -1)
    found = quick(mdp, sr.VarianceReplay(0.2), v=0.7, visitation=d).contraction
    p = operator(mdp, sr.VarianceReplay(0.2), 0.7, d).p
    on = [sum(p[k] for k in range(mdp.row[i], mdp.row[i + 1]) if not mdp.terminal[k]) for i in range(mdp.n_pairs)]
    assert found.factor == pytest.approx(mdp.gamma * max(on), rel=1e-12)
    assert found.reached == pytest.approx(found.factor, rel=1e-9)
    assert found.measured <= found.factor * (1 + 1e-12)
    assert found.factor <= found.gamma == mdp.gamma
    assert found.holds is True


def test_where_every_outcome_may_end_the_factor_is_below_gamma():
    """Tossing goes on with probability ½ in the model; replayed alike for each reward, it still does."""
    assert quick(coins(), mixing="matched").contraction.factor == pytest.approx(0.45)


# -- the whole --------------------------------------------------------------------------------------------------------


def test_literal_mixing_uses_what_the_runs_visited_and_matched_the_papers_mapping():
    mdp = coins()
    literal, matched = (
        check(mdp, VARIANCE, mixing=m, episodes=500, seeds=2, quiet=True) for m in ("literal", "matched")
    )
    runs = sr.learn(mdp, sr.ReplayQLearning(VARIANCE, v=0.5), 500, 2)
    rho = operator(mdp, VARIANCE, 0.5, runs.visitation.mean(0)).rho
    assert [x.rho for x in literal.theorem.states] == [rho[x.s, x.a] for x in literal.theorem.states]
    paper = operator(mdp, VARIANCE, 0.5).rho
    assert [x.rho for x in matched.theorem.states] == [paper[x.s, x.a] for x in matched.theorem.states]
    assert literal.visitation == "d(s,a) as measured on 2 runs of 500 episodes"
    assert matched.visitation == "d ≡ 1"
    assert any(line.startswith("literal mixing converges to the limit with d(s,a)") for line in literal.warnings)
    assert not any("literal" in line for line in matched.warnings)


def test_a_given_visitation_is_used_as_it_is():
    mdp = coins()
    d = np.array([[0.1, 0.4], [0.3, 0.2], [0.0, 0.0]])
    found = quick(mdp, visitation=d)
    rho = operator(mdp, VARIANCE, 0.5, d).rho
    assert [x.rho for x in found.theorem.states] == [rho[x.s, x.a] for x in found.theorem.states]
    assert found.visitation == "d(s,a) as given"


def test_runs_whose_limits_have_different_policies_are_warned_of():
    """The cliff, seeds 0 to 4, 2,000 episodes: what they visited differs, and with it where they would end."""
    found = check(sr.grids.cliff(), VARIANCE, episodes=2_000, quiet=True)
    assert any("runs give limits with" in line and "different policies" in line for line in found.warnings)


def test_the_report_reads_as_a_page_and_goes_to_json():
    found = check(sr.grids.cliff(), VARIANCE, episodes=1_000, seeds=2, quiet=True)
    page = str(found)
    assert page.startswith("cliff: VarianceReplay(beta=5.0), v = 0.5, literal mixing; d(s,a) as measured on 2 runs")
    for said in (
        "Theorem 1, its conditions hold: ",
        "  step sizes   yes  Σα = ∞",
        "Assumption 1",
        "point 3      no",
        "first v",
    ):
        assert said in page
    assert len(page.splitlines()) < 70
    assert max(map(len, page.splitlines())) < 180
    table = [line for line in page.splitlines() if line.startswith("   ") and line.split()[-1] in ("never", "v")]
    assert len({len(line) for line in table}) == 1
    data = found.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["scheme"] == {"kind": "VarianceReplay", "beta": 5.0}
    assert data["settling"]["episodes"][-1] == 1_000
    assert data["assumption"]["points"][1]["holds"] is True
    assert data["warnings"] == found.warnings


def test_a_large_model_prints_a_short_table():
    text = "\n".join(["." * 8] * 7 + ["SXXXXXXG"])
    page = str(quick(sr.grids.cliff(layout=text), mixing="matched"))
    assert "  ... and 37 more states" in page


def test_the_same_seed_gives_the_same_report():
    mdp = random_model(1)
    first, again, other = (check(mdp, VARIANCE, episodes=300, seeds=2, seed=s, quiet=True) for s in (3, 3, 4))
    assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    assert first.settling.distance != other.settling.distance


def test_what_is_refuted_on_the_paper_own_claims_is_warned_of():
    rows = [(0, 0, 0.5, 1, 20, True), (0, 0, 0.5, 1, 0, True), (0, 1, 1, 0, 0)]
    wait = sr.TabularMDP.from_outcomes(2, 2, rows, gamma=0.9, start=0)
    found = quick(wait, mixing="matched")
    assert "Theorem 2 is wrong here: state 0: gap 1 < bound 5, yet the action stays" in found.warnings
    assert any(line.startswith("Assumption 1, point 3: (s=0, a=0)") for line in found.warnings)
    assert "in closed form, if nothing else were replayed, state 0 switches at no v" in str(found)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"mixing": "matched", "visitation": np.ones((3, 2))},
            "visitation must be left out with matched mixing, got 'one'",
        ),
        ({"visitation": np.ones(3)}, r"visitation must have shape \(3, 2\), got \(3,\)"),
        ({"visitation": -np.ones((3, 2))}, "visitation must have no negative entry, got -1"),
        ({"mixing": "mached"}, "unknown mixing 'mached'; did you mean 'matched'"),
        ({"v": 1.0}, r"v must be in \[0, 1\), got 1"),
        ({"scheme": "variance"}, "scheme must be a Scheme, got 'variance'"),
        ({"mdp": "cliff"}, "mdp must be a TabularMDP, got 'cliff'"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"episodes": 1}, "episodes must be at least 2, got 1"),
        ({"step_size": 0.1}, "step_size must be a StepSize, got 0.1"),
        ({"exploration": 0.1}, "exploration must be an Exploration, got 0.1"),
    ],
)
def test_bad_arguments_are_named_in_a_line(more, message):
    with pytest.raises(BadInput, match=message):
        check(**{"mdp": coins(), "scheme": VARIANCE, "episodes": 10, "seeds": 1, **more})
