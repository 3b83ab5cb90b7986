import json
import math
import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_model

import safereplay as sr
from safereplay.theory.operator import limit_weights, operator
from safereplay.theory.solver import optimal
from safereplay.theory.xray import Replayed, Shifted, xray

REPLAY = sr.ReplayQLearning(sr.VarianceReplay(5.0), v=0.5)
MATCHED = replace(REPLAY, mixing="matched")
GRIDS = {"volatile": sr.grids.volatile, "cliff": sr.grids.cliff}
MIXINGS = {"literal": REPLAY, "matched": MATCHED}

#: State 0: action 0 gambles (to 1 or the end), action 1 is sure. State 1: action 0 ends, action 1 is never tried.
ROWS = [
    (0, 0, 0.50, 1, 1.0, False, False),
    (0, 0, 0.30, 1, -1.0, False, False),
    (0, 0, 0.20, 2, -9.0, True, True),
    (0, 1, 1.00, 1, 0.0, False, False),
    (1, 0, 1.00, 2, 5.0, True, False),
    (1, 1, 1.00, 0, 2.0, False, False),
]


def by_hand(seen, replayed):
    """Runs of one seed that counted this; outcomes in the model's order: −9, −1, 1 of (0,0), then (0,1), (1,0), (1,1)."""
    mdp = sr.TabularMDP.from_outcomes(3, 2, ROWS, gamma=0.5, start=0)
    learned = sr.learn(mdp, REPLAY, 10, [4])
    sums = [np.bincount(mdp.pair, weights=x, minlength=6).astype(int).reshape(1, 3, 2) for x in (seen, replayed)]
    columns = {"seen": np.array([seen]), "replayed": np.array([replayed])}
    return replace(learned, visits=sums[0], replays=sums[1], **columns)


@pytest.fixture(scope="module")
def hand():
    return xray(by_hand([2, 2, 6, 4, 5, 0], [26, 4, 0, 0, 0, 0]))


# -- by hand ------------------------------------------------------------------------------------------------------------


def test_the_effective_model_is_known_by_hand(hand):
    """(0,0): 10 visits, 30 replays. −9: 28 of 40; −1: 6 of 40; 1: 6 of 40."""
    assert hand.p.tolist() == pytest.approx([0.2, 0.3, 0.5, 1, 1, 1])
    assert hand.p_tilde[:5].tolist() == pytest.approx([0.7, 0.15, 0.15, 1, 1])
    assert np.isnan(hand.p_tilde[5])
    assert hand.rho.ravel() == pytest.approx([0.75, 0, 0, math.nan, math.nan, math.nan], nan_ok=True)
    nowhere = [math.nan] * 3
    assert hand.R.ravel() == pytest.approx([-1.6, 0, 5, 2, *nowhere[:2]], nan_ok=True)
    assert hand.R_tilde.ravel() == pytest.approx([-6.3, 0, 5, *nowhere], nan_ok=True)
    assert hand.R_shift.ravel() == pytest.approx([-4.7, 0, 0, *nowhere], nan_ok=True)
    assert hand.shift.ravel() == pytest.approx([0.5, 0, 0, *nowhere], nan_ok=True)
    assert hand.luck.ravel() == pytest.approx([0.1, 0, 0, *nowhere], nan_ok=True)  # 0.2, 0.2, 0.6 happened
    assert hand.unaccounted == 0


def test_rewards_of_a_next_state_are_those_of_equation_2(hand):
    """P̃(1|0,0) = 0.15 + 0.15, R̃(0,0,1) = (0.15·1 − 0.15·1)/0.3 = 0; the true ones are 0.8 and (0.5 − 0.3)/0.8."""
    x = hand.transitions
    rows = {(s, a, t): k for k, (s, a, t) in enumerate(zip(x.s, x.a, x.s_next, strict=True))}
    k = rows[0, 0, 1]
    assert (x.P[k], x.P_tilde[k], x.R[k], x.R_tilde[k]) == pytest.approx((0.8, 0.3, 0.25, 0.0))
    k = rows[0, 0, 2]
    assert (x.P[k], x.P_tilde[k], x.R[k], x.R_tilde[k]) == pytest.approx((0.2, 0.7, -9.0, -9.0))
    assert x.terminal[k]
    k = rows[1, 1, 0]
    assert (x.P[k], x.R[k]) == (1.0, 2.0)
    assert np.isnan([x.P_tilde[k], x.R_tilde[k]]).all()


def test_the_whole_is_known_by_hand(hand):
    assert hand.unsafe_share == pytest.approx((26 / 30, 2 / 19))
    entropy = -(26 / 30) * math.log(26 / 30) - (4 / 30) * math.log(4 / 30)
    assert hand.entropy == pytest.approx(entropy)
    assert hand.effective_outcomes == pytest.approx(math.exp(entropy))


def test_rows_are_known_by_hand(hand):
    top, second = hand.most_replayed()
    assert top == Replayed(0, 0, -9.0, 2, True, True, 26.0, 26 / 30, pytest.approx(0.2), 0.7, top.p_predicted)
    assert second[:7] == (0, 0, -1.0, 1, False, False, 4.0)
    assert hand.most_replayed(1) == [top]
    (pair,) = hand.most_shifted()
    expected = Shifted(0, 0, 10, 30, 0.75, float(hand.W[0, 0]), 0.5, 0.1, -1.6, -6.3, -4.7)
    assert pair == pytest.approx(expected)


def test_pairs_are_ranked_by_their_shift_and_those_without_replays_left_out():
    """(1,0) was replayed and is sure: no shift. (0,1) was not replayed at all."""
    picture = xray(by_hand([2, 2, 6, 4, 5, 0], [26, 4, 0, 0, 3, 0]))
    assert [(x.s, x.a, x.replays) for x in picture.most_shifted()] == [(0, 0, 30), (1, 0, 3)]
    assert [(x.s, x.a) for x in picture.most_shifted(1)] == [(0, 0)]
    assert [x.replayed for x in picture.most_replayed()] == [26, 4, 3]


def test_outcomes_replayed_alike_are_as_many_as_they_are_and_one_alone_is_one():
    assert xray(by_hand([2, 2, 6, 4, 5, 0], [7, 7, 7, 0, 7, 0])).effective_outcomes == pytest.approx(4)
    alone = xray(by_hand([2, 2, 6, 4, 5, 0], [9, 0, 0, 0, 0, 0]))
    assert (alone.entropy, alone.effective_outcomes) == (0.0, 1.0)


def test_outcomes_alike_in_all_but_their_unsafe_flag_share_their_counts_in_proportion_to_p():
    """−1 happens with 0.1 safely and 0.3 unsafely: a quarter of its counts is safe, three quarters are not."""
    rows = [(0, 0, 0.1, 0, -1.0, True, False), (0, 0, 0.3, 0, -1.0, True, True), (0, 0, 0.6, 0, 5.0, True, False)]
    learned = sr.learn(sr.TabularMDP.from_outcomes(1, 1, rows), REPLAY, 20_000, 1)
    picture = xray(learned)
    assert picture.seen[:2].sum() == pytest.approx(learned.seen[0, 0])
    assert picture.seen[1] / picture.seen[0] == pytest.approx(3.0)
    assert picture.unsafe_share == pytest.approx((0.75, 0.75 * learned.seen[0, 0] / 20_000))
    assert picture.gap[0, 0] < 0.01
    assert picture.p_predicted == pytest.approx([0.1 / 2 + 0.25 / 2, 0.3 / 2 + 0.75 / 2, 0.6 / 2], abs=1e-9)
    assert picture.unaccounted == 0


# -- runs ---------------------------------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.sampled_from(list(MIXINGS)), st.sampled_from([0.3, 0.9]))
def test_on_random_models_everything_adds_up(seed, mixing, v):
    mdp = random_model(seed)
    learned = sr.learn(mdp, replace(MIXINGS[mixing], v=v), 100, [seed, 1], max_steps=50)
    picture = xray(learned)
    sums = picture._sum(picture.seen), picture._sum(picture.replayed)
    assert np.array_equal(sums[0], learned.visits.sum(0))
    assert np.array_equal(sums[1], learned.replays.sum(0))
    updated = learned.visits.sum(0) > 0
    assert picture._sum(picture.p_tilde)[updated] == pytest.approx(1.0)
    total = (1 - picture.rho) * picture.luck + picture.rho * picture._distance(
        np.nan_to_num(picture._shares(picture.replayed)), mdp.p
    )
    assert (picture.shift <= total + 1e-12)[updated].all()
    assert picture.entropy <= math.log((picture.replayed > 0).sum()) + 1e-12
    steps = picture.transitions
    mean = np.zeros((mdp.n_states, mdp.n_actions))
    np.add.at(mean, (steps.s, steps.a), np.nan_to_num(steps.P_tilde * steps.R_tilde))
    assert mean[updated] == pytest.approx(picture.R_tilde[updated])


def test_all_seeds_are_the_sum_of_each_and_one_seed_is_the_run_of_it_alone():
    mdp = sr.grids.cliff()
    learned = sr.learn(mdp, REPLAY, 300, [3, 8])
    both, one, other = xray(learned), xray(learned, seed=3), xray(learned, 8)
    for name in ("seen", "replayed", "visits", "replays"):
        assert np.array_equal(getattr(both, name), getattr(one, name) + getattr(other, name)), name
    assert (both.W - (one.W + other.W) / 2).ravel() == pytest.approx(0.0)
    alone = xray(sr.learn(mdp, REPLAY, 300, [8]))
    assert json.dumps(alone.to_dict()) == json.dumps(other.to_dict())
    assert not np.array_equal(one.replayed, other.replayed)


@pytest.mark.parametrize("grid", GRIDS)
def test_literal_replay_draws_outcomes_by_the_limit_of_w_in_the_long_run(grid):
    """Seeds 0–3, ε = 1: the total variation between the shares of all replays and w^∞ is below 0.015 after 100,000
    episodes, and was more than three times that after 1,000."""
    mdp = GRIDS[grid]()

    def distance(episodes):
        replayed = sr.learn(mdp, REPLAY, episodes, 4, sr.EpsilonGreedy(1.0)).replayed.sum(0)
        return np.abs(replayed / replayed.sum() - limit_weights(mdp, REPLAY.scheme)).sum() / 2

    late = distance(100_000)
    assert late < 0.015
    assert distance(1_000) > 3 * late


@pytest.mark.parametrize("grid", GRIDS)
def test_matched_replay_draws_the_outcomes_of_a_pair_by_the_limit_of_w_given_the_pair(grid):
    """Seeds 0–3, ε = 1, 100,000 episodes, pairs with n ≥ 1,000 replays: each share within 5·√(ŵ(1−ŵ)/n) of ŵ, and 0.01
    for the time before all outcomes were seen; n within 5·√m of m = visits·v·W/(1−v), and 5 % while w_t settles."""
    mdp = GRIDS[grid]()
    picture = xray(sr.learn(mdp, MATCHED, 100_000, 4, sr.EpsilonGreedy(1.0)))
    w = limit_weights(mdp, MATCHED.scheme)
    W = picture._sum(w)
    often = picture.replays >= 1_000
    assert often.sum() >= 3
    m = picture.visits[often] * W[often]  # v/(1−v) = 1
    assert (np.abs(picture.replays[often] - m) < 5 * np.sqrt(m) + 0.05 * m).all()
    k = np.flatnonzero(often.ravel()[mdp.pair])
    n, share = picture.replays.ravel()[mdp.pair][k], picture._shares(picture.replayed)[k]
    w_hat = w[k] / W.ravel()[mdp.pair][k]
    assert (np.abs(share - w_hat) < 5 * np.sqrt(w_hat * (1 - w_hat) / n) + 0.01).all()
    assert np.abs(share - mdp.p[k]).max() > 0.3


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("grid", GRIDS)
def test_the_measured_p_is_the_predicted_one_and_not_that_of_the_other_mixing(grid, mixing):
    """Seeds 0–3, ε = 1, 100,000 episodes: within 0.015 in total variation at every pair; the other mapping is more than
    0.3 off somewhere."""
    mdp, learner = GRIDS[grid](), MIXINGS[mixing]
    learned = sr.learn(mdp, learner, 100_000, 4, sr.EpsilonGreedy(1.0))
    picture, real = xray(learned), np.diff(mdp.row).reshape(mdp.n_states, -1) > 0
    assert picture.gap[real].max() < 0.015
    assert np.abs(picture.rho - picture.rho_predicted)[real].max() < 0.02
    visitation = None if mixing == "literal" else picture.visits / picture.visits.sum()
    other = operator(mdp, learner.scheme, learner.v, visitation)
    assert picture._distance(picture.p_tilde, other.p)[real].max() > 0.3
    assert picture.shift[real].max() > 2 * picture.gap[real].max()


@pytest.mark.parametrize("grid", GRIDS)
def test_what_was_learned_is_the_value_of_the_world_that_the_updates_saw(grid):
    """Seed 0, ε = 0.3, 100,000 episodes: Q is within 1 of the optimal values under the measured p̃, pair by pair; the
    true optimal values are more than 10 away."""
    mdp = GRIDS[grid]()
    learned = sr.learn(mdp, REPLAY, 100_000, [0], sr.EpsilonGreedy(0.3))
    assert np.abs(optimal(mdp, xray(learned).p_tilde) - learned.Q[0]).max() < 1.0
    assert np.abs(optimal(mdp, mdp.p) - learned.Q[0]).max() > 10


def test_on_the_papers_grids_replay_is_all_about_catastrophes():
    """The default learner, seeds 0–3, 20,000 episodes. Volatile: three outcomes are replayed, each certain to the
    updates though it happens with 0.4. Cliff: nine replays in ten are falls, which are under 2 % of what happens."""
    picture = xray(sr.learn(sr.grids.volatile(), REPLAY, 20_000, 4))
    assert {(x.s, x.a, x.r) for x in picture.most_replayed()} == {(5, 1, -100.0), (6, 1, -100.0), (7, 1, -100.0)}
    assert min(x.p_tilde for x in picture.most_replayed()) > 0.99
    assert picture.effective_outcomes == pytest.approx(3, abs=0.1)
    cliff = xray(sr.learn(sr.grids.cliff(), REPLAY, 20_000, 4))
    assert cliff.unsafe_share.replayed > 0.85
    assert cliff.unsafe_share.fresh < 0.02
    assert (cliff.R_shift[cliff.replays > 0] < 0).all()


@dataclass(frozen=True)
class Surprise(sr.Scheme):
    """Pairs by their last TD error: a scheme without a limit."""

    @staticmethod
    def pair_weight(td):
        return abs(td)


def test_where_a_scheme_has_no_limit_nothing_is_predicted():
    learned = sr.learn(sr.grids.cliff(), REPLAY, 200, 2)
    picture = xray(replace(learned, learner=sr.ReplayQLearning(Surprise(), v=0.5)))
    assert picture.p_predicted is picture.rho_predicted is picture.gap is None
    assert picture.most_replayed(1)[0].p_predicted is None
    assert "predicted" not in str(picture)
    assert picture.to_dict()["outcomes"]["p_predicted"] is None


@pytest.mark.parametrize("mixing", MIXINGS)
def test_a_learner_that_could_replay_and_did_not_sees_the_world_as_it_happened(mixing):
    picture = xray(sr.learn(sr.grids.cliff(), replace(MIXINGS[mixing], v=0.0), 500, 2))
    assert picture.most_replayed() == picture.most_shifted() == []
    assert np.array_equal(picture.shift, picture.luck, equal_nan=True)
    assert picture.effective_outcomes == 0
    assert math.isnan(picture.entropy)
    assert math.isnan(picture.unsafe_share.replayed)
    assert str(picture).endswith("\n\nnothing was replayed")


# -- agents -------------------------------------------------------------------------------------------------------------


def test_an_agent_in_a_table_shows_what_a_run_on_the_table_shows():
    """Seed 0, 20,000 steps on the volatile grid, ε = 1: p̃ of each replayed outcome is within 0.01 of what the theory
    predicts for the agent's own visitation, and more than 0.4 from what happened."""
    mdp = sr.grids.volatile()
    explore = sr.EpsilonGreedy(1.0)
    agent = sr.Agent(sr.TabularEnv(mdp), REPLAY, seed=0, gamma=mdp.gamma, exploration=explore).learn(20_000)
    picture = xray(agent)
    assert picture.unaccounted == 0
    assert picture.empirical
    assert picture.unsafe is picture.unsafe_share is picture.p_predicted is None
    assert np.nanmax(picture.luck) == 0.0
    limit = operator(mdp, REPLAY.scheme, 0.5, agent.visits / agent.steps)
    predicted = {(i, r): p for i, r, p in zip(mdp.pair.tolist(), mdp.r.tolist(), limit.p.tolist(), strict=True)}
    rows = picture.most_replayed()
    assert {(x.s, x.a, x.r) for x in rows} == {(5, 1, -100.0), (6, 1, -100.0), (7, 1, -100.0)}
    for x in rows:
        assert x.p_tilde == pytest.approx(predicted[4 * x.s + x.a, x.r], abs=0.01)
        assert x.p_tilde - x.p > 0.4


def test_what_an_agents_memory_forgot_is_unaccounted_for():
    agent = sr.Agent("Blackjack-v1", REPLAY, seed=1, max_outcomes=2).learn(5_000)
    picture, known = xray(agent), agent.remembered
    forgotten = agent.steps + agent.replays.sum() - known.seen.sum() - known.replayed.sum()
    assert picture.unaccounted == forgotten > 100
    assert f"{forgotten:,} updates are from outcomes that the memory no longer tells apart" in str(picture)
    seen = picture._sum(picture.p_tilde)
    assert seen[agent.visits > 0] == pytest.approx(1.0)
    text = str(picture)
    assert text.startswith(f"X-ray of {agent!r}\n")
    assert "furthest from what happened" in text
    assert "luck" not in text
    assert json.loads(json.dumps(picture.to_dict(), allow_nan=False)) == picture.to_dict()


# -- text, JSON and errors ----------------------------------------------------------------------------------------------


def test_the_text_names_cells_and_actions_of_a_grid_in_aligned_columns():
    picture = xray(sr.learn(sr.grids.volatile(), REPLAY, 2_000, [0]))
    lines = str(picture).splitlines()
    assert lines[0] == "X-ray of replay(v=0.5, beta=5) on volatile, 2,000 episodes, seed 0"
    assert re.fullmatch(r"[\d,]+ updates, [\d,]+ of them replays \((49|50|51)\.\d%\)", lines[1])
    assert re.fullmatch(r"unsafe: 100\.00% of the replays, \d\.\d\d% of what happened", lines[2])
    assert re.fullmatch(r"3 of the \d+ outcomes that happened were replayed, as diverse as \d\.\d replayed.*", lines[3])
    start = lines.index("replayed most")
    assert " ".join(lines[start + 1].split()) == "state action leads to reward replayed share p p̃ predicted"
    for line in lines[start + 2 : start + 5]:
        assert re.match(r"\(1, [012]\)   right    \(1, [123]\)    -100  unsafe ", line)
    table = [line.replace("\u0303", "") for line in lines[start + 1 : start + 5]]
    assert len({len(line) for line in table}) == 1
    second = lines.index("furthest from the model")
    assert " ".join(lines[second + 1].split()) == "state action visits replays ρ shift by luck R R̃ R̃ − R"
    assert len(lines) == second + 5
    assert "\t" not in str(picture)
    assert all(line == line.rstrip() for line in lines)


def test_without_a_layout_states_and_actions_are_numbers(hand):
    assert re.search(r"^ +0 +0 +2 +-9 +unsafe, ends +26 +86\.7% +0\.2000 +0\.7000 ", str(hand), re.MULTILINE)
    assert repr(hand) == "Xray(replay(v=0.5, beta=5) on mdp, 10 episodes, seed 4: 30 replays of 2 outcomes)"


def test_it_goes_to_json_and_back(hand):
    data = hand.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["learner"] == REPLAY.to_dict()
    assert data["outcomes"]["replayed"] == [26, 4, 0, 0, 0, 0]
    assert data["outcomes"]["p_tilde"] == pytest.approx([0.7, 0.15, 0.15, 1, 1, None])
    assert data["outcomes"]["unsafe"] == [True, False, False, False, False, False]
    assert (data["outcomes"]["s"], data["outcomes"]["a"]) == ([0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 0, 1])
    assert data["pairs"]["visits"] == [[10, 4], [5, 0], [0, 0]]
    assert data["pairs"]["rho"] == [[0.75, 0.0], [0.0, None], [None, None]]
    assert data["unsafe_share"] == pytest.approx({"replayed": 26 / 30, "fresh": 2 / 19})


RUNS = sr.learn(sr.grids.volatile(), REPLAY, 20, [5, 6])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((sr.grids.volatile(),), "source must be Runs or an Agent, got TabularMDP("),
        ((RUNS, 7), "seed must be one that was run, got 7"),
        ((RUNS, -1), "seed must be at least 0, got -1"),
        ((RUNS, 0.5), "seed must be a whole number, got 0.5"),
        ((sr.Agent("Blackjack-v1", REPLAY), 0), "seed must be left out for an agent, which has one, got 0"),
        (
            (sr.Agent("Blackjack-v1", sr.QLearning()),),
            "learner must replay, to be X-rayed, got QLearning(c0=0.0, T0=1)",
        ),
    ],
)
def test_a_bad_argument_is_named_with_its_condition_and_its_value(arguments, message):
    with pytest.raises(sr.BadInput, match=re.escape(message)):
        xray(*arguments)


@pytest.mark.parametrize("learner", [sr.QLearning(), sr.WorstTransition()], ids=lambda x: x.describe())
def test_a_learner_that_does_not_replay_cannot_be_x_rayed(learner):
    with pytest.raises(sr.BadInput, match=re.escape(f"learner must replay, to be X-rayed, got {learner!r}")):
        xray(sr.learn(sr.grids.volatile(), learner, 20, 1))


@pytest.mark.parametrize("method", ["most_replayed", "most_shifted"])
def test_at_least_one_row_must_be_asked_for(hand, method):
    with pytest.raises(sr.BadInput, match="n must be at least 1, got 0"):
        getattr(hand, method)(0)


def test_an_agent_before_its_first_step_has_an_empty_picture():
    picture = xray(sr.Agent("Blackjack-v1", REPLAY))
    assert picture.most_replayed() == picture.most_shifted() == []
    assert str(picture).splitlines()[1:] == ["0 updates, 0 of them replays (0.0%)", "", "nothing was replayed"]
