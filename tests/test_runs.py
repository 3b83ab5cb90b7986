import math
import re
import signal
import time
from concurrent.futures import wait
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import small_runs
from hypothesis import given, settings
from hypothesis import strategies as st
from strikes import interrupt_runs

import safereplay as sr
from safereplay import arrays, runs
from safereplay.kernels import rng, step

REPLAY = sr.ReplayQLearning(sr.VarianceReplay(5.0), v=0.5)
MATCHED = replace(REPLAY, mixing="matched")
LEARNERS = [sr.QLearning(), REPLAY, MATCHED, sr.WorstTransition()]


def bits(learned):
    """Everything a run gives, as bytes, by seed."""
    arrays = [learned.Q, learned.visits, learned.replays, learned.w, learned.seen, learned.replayed]
    arrays = [x for x in arrays if x is not None]
    return {seed: b"".join(x[k].tobytes() for x in arrays) for k, seed in enumerate(learned.seeds)}


# -- the same bits, whatever runs beside --------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda x: x.describe())
def test_a_run_has_the_same_bits_on_any_number_of_threads(learner):
    mdp = sr.grids.cliff()
    one, two, five = (bits(sr.learn(mdp, learner, 300, 6, threads=n)) for n in (1, 2, 5))
    assert one == two == five
    assert len(set(one.values())) == 6


@settings(max_examples=10)
@given(st.permutations([0, 1, 2, 7, 10**6, 2**64 - 1]), st.integers(1, 5))
def test_a_run_has_the_same_bits_in_any_grouping_and_order_of_seeds(seeds, cut):
    mdp = sr.grids.volatile()
    together = sr.learn(mdp, REPLAY, 100, seeds)
    assert together.seeds == tuple(seeds)
    apart = bits(sr.learn(mdp, REPLAY, 100, seeds[:cut])) | bits(sr.learn(mdp, REPLAY, 100, seeds[cut:]))
    assert bits(together) == apart


def test_a_run_has_the_same_bits_with_and_without_snapshots():
    mdp = sr.grids.cliff()
    plain = bits(sr.learn(mdp, REPLAY, 300, 3))
    for snapshots in (1, 7, 300, [0, 1, 150, 299], range(0, 300, 10)):
        assert bits(sr.learn(mdp, REPLAY, 300, 3, snapshots=snapshots)) == plain


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_a_run_has_the_same_bits_for_any_chunk(monkeypatch, chunk):
    mdp = sr.grids.volatile()
    whole = bits(sr.learn(mdp, MATCHED, 200, 2, snapshots=5))
    monkeypatch.setattr(runs, "CHUNK", chunk)
    assert bits(sr.learn(mdp, MATCHED, 200, 2, snapshots=5)) == whole


def assert_same_runs(file, expected):
    with np.load(file) as found:
        assert set(found.files) == set(expected)
        different = [name for name in found.files if found[name].tobytes() != expected[name].tobytes()]
    assert different == []


def test_a_run_has_the_same_bits_in_a_fresh_process(tmp_path, in_new_process):
    in_new_process(Path(small_runs.__file__), tmp_path / "fresh.npz", "literal/constant")
    assert_same_runs(tmp_path / "fresh.npz", small_runs.run_all("literal/constant"))


@pytest.mark.parametrize(
    ("only", "least"), [("/constant", 3_000), pytest.param("", 10_000, marks=pytest.mark.slow)], ids=["constant", "all"]
)
def test_the_compiled_kernels_equal_their_plain_python_form_to_the_last_bit(tmp_path, in_new_process, only, least):
    """Each learner × exploration × grid, 240 episodes, at four moments on the way and at the end."""
    in_new_process(Path(small_runs.__file__), tmp_path / "plain.npz", only, NUMBA_DISABLE_JIT="1")
    compiled = small_runs.run_all(only)
    assert_same_runs(tmp_path / "plain.npz", compiled)
    assert sum(x.sum() for name, x in compiled.items() if name.endswith("replays")) > least


# -- what a run gives ---------------------------------------------------------------------------------------------------


def test_results_have_the_shapes_of_the_contract():
    mdp = sr.grids.volatile()
    learned = sr.learn(mdp, REPLAY, episodes=100, seeds=range(3), snapshots=4)
    assert learned.Q.shape == learned.visits.shape == learned.replays.shape == (3, 20, 4)
    assert learned.policy.shape == (3, 20)
    assert learned.w.shape == learned.seen.shape == learned.replayed.shape == (3, mdp.r.size)
    assert learned.seen.dtype == learned.replayed.dtype == np.int64
    assert learned.seeds == (0, 1, 2)
    assert learned.episodes == 100
    assert not learned.interrupted
    shots = learned.snapshots
    assert shots.episodes.tolist() == [25, 50, 75, 100]
    assert shots.Q.shape == shots.visits.shape == (3, 4, 20, 4)
    assert shots.w.shape == (3, 4, mdp.r.size)
    assert shots.policy.shape == (3, 4, 20)
    assert np.array_equal(shots.Q[:, -1], learned.Q)
    assert np.array_equal(shots.w[:, -1], learned.w)
    assert np.array_equal(shots.visits[:, -1], learned.visits)
    assert [x[-1] for x in shots.verdicts] == learned.verdicts
    assert np.allclose(learned.visitation.sum((1, 2)), 1.0)


def test_a_learner_that_does_not_replay_has_no_w_and_no_replays():
    learned = sr.learn(sr.grids.cliff(), sr.WorstTransition(), 50, 2, snapshots=2)
    assert learned.w is None
    assert learned.replayed is None
    assert learned.seen.sum() == learned.visits.sum()  # it remembers, though
    assert learned.snapshots.w is None
    assert not learned.replays.any()
    plain = sr.learn(sr.grids.cliff(), sr.QLearning(), 50, 1)
    assert plain.snapshots is plain.w is plain.seen is plain.replayed is None


@pytest.mark.parametrize("learner", [REPLAY, MATCHED], ids=["literal", "matched"])
def test_what_happened_and_what_was_replayed_add_up_pair_by_pair(learner):
    for mdp in (sr.grids.volatile(), sr.grids.cliff()):
        learned = sr.learn(mdp, replace(learner, v=0.8), 300, 3)
        for k in range(3):
            for counts, total in ((learned.seen, learned.visits), (learned.replayed, learned.replays)):
                of_pairs = np.bincount(mdp.pair, weights=counts[k], minlength=mdp.n_pairs)
                assert of_pairs.tolist() == total[k].ravel().tolist()
        assert not learned.replayed[learned.seen == 0].any()
        assert learned.replayed.sum() > 20


def test_outcomes_alike_in_all_but_their_unsafe_flag_are_counted_at_the_first():
    rows = [(0, 0, 0.25, 0, -1.0, True, False), (0, 0, 0.25, 0, -1.0, True, True), (0, 0, 0.5, 0, 5.0, True, False)]
    learned = sr.learn(sr.TabularMDP.from_outcomes(1, 1, rows), REPLAY, 1000, 2)
    assert (learned.seen[:, 1] == 0).all()
    assert (learned.seen[:, 0] + learned.seen[:, 2]).tolist() == [1000, 1000]
    assert learned.seen[:, 0] == pytest.approx([500, 500], abs=80)  # seeds 0 and 1: five standard deviations
    assert (learned.replayed[:, 0] > 100).all()
    assert not learned.replayed[:, 1].any()


def test_a_snapshot_is_the_run_stopped_there():
    mdp = sr.grids.cliff()
    long = sr.learn(mdp, REPLAY, 200, 2, snapshots=[0, 30, 120])
    assert not long.snapshots.Q[:, 0].any()
    for k, episodes in enumerate([30, 120], 1):
        short = sr.learn(mdp, REPLAY, episodes, 2)
        assert np.array_equal(long.snapshots.Q[:, k], short.Q)
        assert np.array_equal(long.snapshots.w[:, k], short.w)
        assert np.array_equal(long.snapshots.visits[:, k], short.visits)


def test_final_weights_are_a_distribution_over_outcomes():
    w = sr.learn(sr.grids.cliff(), REPLAY, 2000, 4).w
    assert (w >= 0).all()
    assert np.allclose(w.sum(1), 1.0, atol=1e-12)


def test_two_results_can_be_compared_without_a_numpy_error():
    one, two = (sr.learn(sr.grids.cliff(), sr.QLearning(), 20, 2) for _ in range(2))
    assert isinstance(one == two, bool)


def test_a_result_says_in_one_line_what_it_is():
    text = repr(sr.learn(sr.grids.cliff(), REPLAY, 20, 2))
    assert "VarianceReplay(beta=5.0)" in text
    assert "seeds=(0, 1)" in text
    assert "array" not in text


# -- how much is replayed, and when -------------------------------------------------------------------------------------


@pytest.mark.parametrize("v", [0.2, 0.5, 0.9])
def test_literal_mixing_replays_a_share_v_of_all_iterations(v):
    """Seeds 0–9, 3,000 episodes: over 10⁵ iterations, five standard deviations; less the start, when nothing can be."""
    learned = sr.learn(sr.grids.volatile(), replace(REPLAY, v=v), 3000, 10)
    n = learned.replays.sum() + learned.visits.sum()
    assert n > 10**5
    assert abs(learned.replays.sum() / n - v) < 5 * math.sqrt(v * (1 - v) / n) + 0.002


def test_literal_mixing_replays_pairs_in_proportion_to_their_weight():
    """Three volatile pairs with two equally likely rewards: W = 1/3 each. Seeds 0–9, 5,000 episodes, within 3 %."""
    mdp = sr.grids.volatile(rewards=[(0.5, 100.0), (0.5, -100.0)])
    replays = sr.learn(mdp, REPLAY, 5000, 10, sr.EpsilonGreedy(0.5)).replays.sum(0).ravel()
    pairs = np.flatnonzero(mdp.reward_variance.ravel() > 0)
    assert pairs.tolist() == [21, 25, 29]  # 'right' in row 1, columns 0, 1, 2
    assert np.flatnonzero(replays).tolist() == pairs.tolist()
    assert replays[pairs] / replays.sum() == pytest.approx([1 / 3] * 3, rel=0.03)


@pytest.mark.parametrize("v", [0.3, 0.5, 0.9])
def test_matched_mixing_replays_a_pair_v_w_over_one_minus_v_times_a_visit(v):
    """Seeds 0–9, 20,000 episodes, ε = 1: thousands of visits a pair; W = 1/3 to 2 % at the end, ratio within 3 %."""
    mdp = sr.grids.volatile(rewards=[(0.5, 100.0), (0.5, -100.0)])
    learned = sr.learn(mdp, replace(MATCHED, v=v), 20_000, 10, sr.EpsilonGreedy(1.0))
    visits, replays = learned.visits.sum(0).ravel(), learned.replays.sum(0).ravel()
    pairs = [21, 25, 29]
    assert np.flatnonzero(replays).tolist() == pairs
    assert replays[pairs] / visits[pairs] == pytest.approx([v / (1 - v) / 3] * 3, rel=0.03)


@pytest.mark.parametrize("mixing", ["literal", "matched"])
def test_v_of_zero_never_replays(mixing):
    learned = sr.learn(sr.grids.cliff(), replace(REPLAY, v=0.0, mixing=mixing), 500, 2)
    assert not learned.replays.any()
    assert not learned.replayed.any()
    assert learned.w.sum() > 0


@pytest.mark.parametrize("mixing", ["literal", "matched"])
def test_nothing_is_replayed_while_no_reward_has_varied(mixing):
    """Deterministic rewards, slippery moves: Σ var_t = 0 for good, and the run is that of no replay at all."""
    rows = [(0, 0, 0.5, 0, -1.0), (0, 0, 0.5, 1, -1.0), (1, 0, 1.0, 0, 2.0, True)]
    rows += [(0, 1, 1.0, 0, 1.0, True), (1, 1, 1.0, 1, 0.0, True)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, rows)
    learned = sr.learn(mdp, replace(REPLAY, v=0.9, mixing=mixing), 2000, 3)
    assert not learned.replays.any()
    assert not learned.w.any()


def stepped(mdp, learner, seed=0):
    """(iteration, tables) after each iteration of the MDP."""
    program = runs.make_program(learner, sr.EpsilonGreedy(1.0), sr.PowerStep(), mdp.gamma, mdp.n_actions)
    tables = step.allocate(mdp.n_states, mdp.n_actions, learner.c0, rng.seeded(seed))
    memory, model = arrays.model_memory(mdp), arrays.sampling_model(mdp)
    while True:
        program.advance(model, memory, tables, 1 << 60, 1000, 1)
        yield int(tables.clock[step.ITERATION]), tables


@pytest.mark.parametrize("mixing", ["literal", "matched"])
@pytest.mark.parametrize("T0", [1, 50, 400])
def test_no_iteration_up_to_t0_is_a_replay_and_the_next_one_may_be(mixing, T0):
    """Every MDP iteration costs one up to T0; after it, at v = 0.95, replays come at once."""
    mdp, learner = sr.grids.volatile(), replace(REPLAY, v=0.95, mixing=mixing, T0=T0)
    for k, (iteration, tables) in enumerate(stepped(mdp, learner), 1):
        if k < T0:
            assert iteration == k
            assert not tables.counts[:, step.REPLAYS].any()
        if k == T0 + 400:
            assert tables.counts[:, step.REPLAYS].sum() > 50
            break


def test_actions_are_uniformly_random_until_t0_and_greedy_after():
    """ε = 0. Seeds 0–4, 4,000 iterations each: each action's share within 5·√(p(1−p)/n) of ¼; after T0 = 1, far from it."""
    mdp, n = sr.grids.cliff(), 0
    explored = sr.learn(mdp, sr.QLearning(T0=10**9), 500, 5, sr.EpsilonGreedy(0.0)).visits.sum((0, 1))
    greedy = sr.learn(mdp, sr.QLearning(T0=1), 500, 5, sr.EpsilonGreedy(0.0)).visits.sum((0, 1))
    n = explored.sum()
    assert n > 20_000
    bound = 5 * math.sqrt(0.25 * 0.75 / n)
    assert np.abs(explored / n - 0.25).max() < bound
    assert np.abs(greedy / greedy.sum() - 0.25).max() > 5 * bound


@pytest.mark.parametrize("learner", [sr.QLearning(c0=-7.5), replace(REPLAY, c0=-7.5), sr.WorstTransition(c0=-7.5)])
def test_pairs_never_visited_keep_c0(learner):
    learned = sr.learn(sr.grids.cliff(), learner, 3, 2)
    unvisited = learned.visits == 0
    assert unvisited.any()
    assert (learned.Q[unvisited] == -7.5).all()
    assert (learned.Q[~unvisited] != -7.5).all()


def test_the_worst_case_starts_from_above_every_return():
    learned = sr.learn(sr.grids.volatile(), sr.WorstCase(), 3, 1)
    assert learned.Q.max() == pytest.approx(1500.0)
    assert sr.learn(sr.grids.volatile(), sr.WorstCase(c0=3.0), 3, 1).Q.max() == 3.0


def test_every_update_counts_towards_the_step_size_replayed_ones_too():
    """One pair, ±1 with α = 1/n: Q is the plain mean of every target, fresh or replayed. Σα = 1 keeps it in [−1, 1]."""
    rows = [(0, 0, 0.5, 0, 1.0, True), (0, 0, 0.5, 0, -1.0, True)]
    mdp = sr.TabularMDP.from_outcomes(1, 1, rows)
    learned = sr.learn(mdp, replace(REPLAY, v=0.9), 5000, 4, step_size=sr.PowerStep(1.0))
    share = learned.replays.sum((1, 2)) / (learned.visits + learned.replays).sum((1, 2))
    assert share == pytest.approx([0.9] * 4, rel=0.01)
    # at β = 5 nearly every replay is −1 (share 1/(1 + e^{−10})): the mean is 0.1·0 + 0.9·(−1)
    assert learned.Q.ravel() == pytest.approx([-0.9] * 4, abs=0.03)


# -- what is learned ----------------------------------------------------------------------------------------------------

GRIDS = {"volatile": sr.grids.volatile(), "cliff": sr.grids.cliff()}


@pytest.mark.parametrize(
    ("grid", "learner", "expected"),
    [
        ("volatile", sr.QLearning(), "risky"),
        ("cliff", sr.QLearning(), "risky"),
        ("volatile", REPLAY, "safe"),
        ("cliff", REPLAY, "safe"),
        ("volatile", sr.RiskSensitive(0.6), "safe"),
        ("cliff", sr.RiskSensitive(0.6), "safe"),
        ("volatile", sr.Pessimistic(0.3), "risky"),
        ("cliff", sr.Pessimistic(0.2), "safe"),
    ],
)
def test_the_papers_claims_hold_in_at_least_19_of_20_seeds(grid, learner, expected):
    """Seeds 0–19, 50,000 episodes, defaults. (Mihatsch–Neuneier on the cliff is where the paper says otherwise.)"""
    assert sr.learn(GRIDS[grid], learner).verdicts.count(expected) >= 19


def value_iteration(mdp, sweeps=2000):
    """Q* from the outcome lists, pair by pair."""
    Q = [[0.0] * mdp.n_actions for _ in range(mdp.n_states)]
    for _ in range(sweeps):
        V = [max(row) for row in Q]
        for s in range(mdp.n_states):
            for a in range(mdp.n_actions):
                Q[s][a] = sum(
                    p * (r + (0.0 if ends else mdp.gamma * V[t]))
                    for p, t, r, ends, _ in zip(*mdp.outcomes(s, a), strict=True)
                )
    return np.array(Q)


def test_q_learning_converges_to_the_value_iteration_of_an_independent_solver():
    """Seeds 0–4, 100,000 steps at ε = 1, α = n^−0.8: within 0.15 of a Q* that spans 10; and it was not there at the start."""
    rows = [(0, 0, 0.7, 1, 1.0), (0, 0, 0.3, 2, -2.0), (0, 1, 1.0, 2, 0.5), (1, 0, 0.5, 0, 3.0), (1, 0, 0.5, 2, 0.0)]
    rows += [(1, 1, 1.0, 0, 1.0), (2, 0, 0.9, 2, 1.0), (2, 0, 0.1, 0, -5.0, True), (2, 1, 1.0, 1, -1.0)]
    mdp = sr.TabularMDP.from_outcomes(3, 2, rows, gamma=0.8)
    exact = value_iteration(mdp)
    learned = sr.learn(mdp, sr.QLearning(), 30_000, 5, sr.EpsilonGreedy(1.0), sr.PowerStep(0.8), snapshots=[100])
    assert np.abs(learned.Q - exact).max() < 0.15
    assert np.abs(learned.snapshots.Q - exact).max() > 0.5


def test_a_certain_world_is_learned_exactly():
    """Deterministic moves, α = 1: Q equals Q* to rounding after enough visits."""
    mdp = sr.grids.from_map("S..\n.#.\n..G", goal=10.0, gamma=0.5)
    learned = sr.learn(mdp, sr.QLearning(), 3000, 2, sr.EpsilonGreedy(1.0), sr.ConstantStep(1.0))
    V = lambda d: sum(-(0.5**k) for k in range(d - 1)) + 10 * 0.5 ** (d - 1)  # noqa: E731
    start = mdp.layout.state_at(0, 0)
    assert learned.Q[:, start].max(1) == pytest.approx([V(4)] * 2, abs=1e-12)


@dataclass(frozen=True)
class MyReplay(sr.Scheme):
    """The variance scheme again, as a user would write it."""

    beta: float = 5.0

    @staticmethod
    def pair_weight(var):
        return var

    @staticmethod
    def log_tilt(r, beta):
        return -beta * r


def test_a_scheme_of_ones_own_gives_the_bits_of_the_packages_when_it_says_the_same():
    mdp = sr.grids.cliff()
    mine = sr.learn(mdp, sr.ReplayQLearning(MyReplay(5.0), v=0.5), 500, 2)
    assert bits(mine) == bits(sr.learn(mdp, REPLAY, 500, 2))


@pytest.mark.slow
def test_a_scheme_of_ones_own_runs_at_least_half_as_fast_as_the_packages():
    """The best of five each, in turns, on one thread."""
    mdp, mine = sr.grids.cliff(), sr.ReplayQLearning(MyReplay(5.0), v=0.5)
    speeds = {mine: [], REPLAY: []}
    for learner in speeds:
        sr.learn(mdp, learner, 10, 1)
    for _ in range(5):
        for learner, seen in speeds.items():
            began = time.perf_counter()
            learned = sr.learn(mdp, learner, 30_000, 1, threads=1)
            seen.append((learned.visits.sum() + learned.replays.sum()) / (time.perf_counter() - began))
    assert max(speeds[mine]) > 0.5 * max(speeds[REPLAY])
    assert max(speeds[mine]) > 1e6


def test_rare_outcomes_of_a_large_model_are_sampled_as_rarely_as_they_should():
    """Running sums are taken within each pair: 200,000 pairs before it do not round a chance of 10⁻⁹ away."""
    n = 200_000
    rows = np.zeros((n, 7))
    rows[:, 0] = rows[:, 3] = np.arange(n)
    rows[:, 2] = rows[:, 5] = 1.0
    rare = [(n, 0, 1e-9, 0, -1.0, 1, 1), (n, 0, 1 - 1e-9, 0, 0.0, 1, 0)]
    mdp = sr.TabularMDP.from_outcomes(n + 1, 1, np.vstack([rows, rare]))
    assert arrays.sampling_model(mdp).p_cum[-2:].tolist() == pytest.approx([1e-9, 1.0], rel=1e-6)


# -- Ctrl-C -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ctrl_c(monkeypatch):
    """``ctrl_c(n)``: Ctrl-C at the start of the n-th run. It is heard, also where a shell has us ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda count: interrupt_runs(count, monkeypatch.setattr)
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_keeps_the_seeds_that_have_finished(ctrl_c):
    mdp = sr.grids.volatile()
    whole = bits(sr.learn(mdp, sr.QLearning(), 200, 10))
    ctrl_c(9)
    learned = sr.learn(mdp, sr.QLearning(), 200, 3000, threads=2)
    assert learned.interrupted
    assert 7 <= len(learned.seeds) <= 8  # two at a time: when the ninth begins, seven or eight are done
    assert [*learned.seeds] == sorted({*learned.seeds} & {*range(10)})
    assert bits(learned).items() <= whole.items()


def test_ctrl_c_with_no_seed_finished_stops(ctrl_c):
    ctrl_c(1)
    with pytest.raises(KeyboardInterrupt):
        sr.learn(sr.grids.volatile(), sr.QLearning(), 10**9, 2, threads=2)


def test_an_interrupt_waits_for_nothing_but_the_chunk_at_hand(monkeypatch):
    """Seeds 0–2 finish, then Ctrl-C: they are returned as they are, in order, however many others were waiting."""

    def after_three(futures, tick):
        wait(futures[:3])
        raise KeyboardInterrupt

    mdp = sr.grids.volatile()
    monkeypatch.setattr(runs, "CHUNK", 1000)
    whole = bits(sr.learn(mdp, REPLAY, 2000, 3))
    monkeypatch.setattr(runs, "_watch", after_three)
    learned = sr.learn(mdp, REPLAY, 2000, 5000, threads=1, snapshots=2)
    assert learned.interrupted
    assert 3 <= len(learned.seeds) < 5000
    assert learned.seeds == tuple(range(len(learned.seeds)))
    assert {seed: bits(learned)[seed] for seed in (0, 1, 2)} == whole
    assert learned.snapshots.Q.shape[:2] == (len(learned.seeds), 2)


def test_an_interrupt_before_anything_finished_is_raised(monkeypatch):
    def at_once(futures, tick):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "_watch", at_once)
    monkeypatch.setattr(runs, "CHUNK", 1000)
    with pytest.raises(KeyboardInterrupt):
        sr.learn(sr.grids.volatile(), REPLAY, 10**9, 4)


def test_an_error_in_one_run_stops_the_others_and_is_raised(monkeypatch):
    """Seed 1 fails at once; seed 0 would take seconds and must be told to stop."""
    finish, left = runs.OneRun.finish, []

    def failing(self, stop, report):
        if self.seed == 1:
            raise RuntimeError("seed 1 failed")
        left.append(finish(self, stop, report))
        return left[-1]

    monkeypatch.setattr(runs.OneRun, "finish", failing)
    with pytest.raises(RuntimeError, match="seed 1 failed"):
        sr.learn(sr.grids.volatile(), sr.QLearning(), 10**7, 2, threads=2)
    assert left == [None]


# -- arguments ----------------------------------------------------------------------------------------------------------

MDP = sr.grids.volatile()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mdp": "volatile"}, "mdp must be a TabularMDP, got 'volatile'"),
        ({"learner": sr.VarianceReplay()}, "learner must be a Learner, got VarianceReplay(beta=5.0)"),
        ({"learner": sr.QLearning}, "learner must be a Learner, got <class"),
        ({"episodes": 0}, "episodes must be at least 1, got 0"),
        ({"episodes": 2.5}, "episodes must be a whole number, got 2.5"),
        ({"episodes": True}, "episodes must be a whole number, got True"),
        ({"episodes": 1 << 63}, "episodes must be below 2**63, got 9223372036854775808"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seeds": 1.5}, "seeds must be a number of seeds or a list of them, got 1.5"),
        ({"seeds": True}, "seeds must be a number of seeds or a list of them, got True"),
        ({"seeds": []}, "seeds must name at least one seed, got []"),
        ({"seeds": [0, -1]}, "seed must be at least 0, got -1"),
        ({"seeds": [0.5]}, "seed must be a whole number, got 0.5"),
        ({"seeds": [2**64]}, "seed must be below 2**64, got 18446744073709551616"),
        ({"exploration": 0.1}, "exploration must be an Exploration, got 0.1"),
        ({"exploration": sr.PowerStep()}, "exploration must be an Exploration, got PowerStep(power=0.6, scale=1.0)"),
        ({"step_size": sr.Softmax()}, "step_size must be a StepSize, got Softmax(temperature=1.0, power=0.0)"),
        ({"snapshots": -1}, "snapshots must be at least 0, got -1"),
        ({"snapshots": 11}, "snapshots must be at most 10 (episodes), got 11"),
        ({"snapshots": [3, 3]}, "snapshots must rise, and stay within 10 episodes, got [3, 3]"),
        ({"snapshots": [3, 11]}, "snapshots must rise, and stay within 10 episodes, got [3, 11]"),
        ({"snapshots": [-1]}, "snapshot must be at least 0, got -1"),
        ({"snapshots": [1.5]}, "snapshot must be a whole number, got 1.5"),
        ({"snapshots": 2.5}, "snapshots must be a number of snapshots or a list of episodes, got 2.5"),
        ({"snapshots": None}, "snapshots must be a number of snapshots or a list of episodes, got None"),
    ],
)
def test_a_bad_argument_is_named_with_its_condition_and_its_value(arguments, message):
    with pytest.raises(sr.BadInput, match=re.escape(message)):
        sr.learn(**{"mdp": MDP, "learner": sr.QLearning(), "episodes": 10, "seeds": 1, **arguments})


def test_numpy_whole_numbers_serve_as_whole_numbers():
    plain = bits(sr.learn(MDP, sr.QLearning(), 10, [3]))
    assert bits(sr.learn(MDP, sr.QLearning(), np.int64(10), np.array([3]), snapshots=np.int32(2))) == plain
    assert bits(sr.learn(MDP, sr.QLearning(), 10, np.int64(1))) == bits(sr.learn(MDP, sr.QLearning(), 10, 1))


def test_the_running_sums_of_a_row_end_in_exactly_one():
    for mdp in (sr.grids.cliff(), sr.grids.volatile(rewards=[(0.1, float(k)) for k in range(10)])):
        model = arrays.sampling_model(mdp)
        rows = np.flatnonzero(np.diff(mdp.row) > 0)
        assert (model.p_cum[mdp.row[rows + 1] - 1] == 1.0).all()
        assert model.start_cum[-1] == 1.0
        for i in rows:
            part = slice(mdp.row[i], mdp.row[i + 1])
            assert np.diff(model.p_cum[part], prepend=0.0) == pytest.approx(mdp.p[part], abs=1e-14)


@pytest.mark.parametrize(
    "learner",
    [sr.QLearning(), sr.ReplayQLearning(v=0.9), sr.ReplayQLearning(v=0.7, mixing="matched"), sr.WorstTransition()],
)
def test_a_number_of_steps_is_kept_to_the_step(learner):
    runs = sr.learn(sr.grids.cliff(), learner, steps=1_234, seeds=3, snapshots=[100, 617])
    assert runs.visits.sum((1, 2)).tolist() == [1_234] * 3
    assert runs.snapshots.visits.sum((2, 3)).tolist() == [[100, 617]] * 3
    assert runs.steps == 1_234
    assert runs.episodes == 0


def test_steps_and_episodes_are_the_same_run_as_far_as_both_go():
    mdp, learner = sr.grids.cliff(), sr.ReplayQLearning(v=0.5)
    by_episodes = sr.learn(mdp, learner, episodes=50, seeds=[3])
    by_steps = sr.learn(mdp, learner, steps=int(by_episodes.visits.sum()), seeds=[3])
    assert (by_steps.visits == by_episodes.visits).all()


def test_steps_must_be_a_whole_number():
    with pytest.raises(sr.BadInput, match="steps must be at least 1, got 0"):
        sr.learn(sr.grids.cliff(), sr.QLearning(), steps=0)


def test_a_learner_on_states_of_its_own_is_judged_on_the_world_s_rewards():
    mdp, learner = sr.grids.cliff(), sr.CVaRQLearning(0.02)
    runs = sr.learn(mdp, learner, episodes=2_000, seeds=1)
    assert runs.world is mdp
    assert runs.mdp.n_states > mdp.n_states
    risk, other = (sr.evaluate(x, runs.policy[0], start=x.origin) for x in (runs.judged_on, runs.mdp))
    assert risk.mean != pytest.approx(other.mean, abs=0.1)
    assert runs.judged_on.gamma == mdp.gamma
    plain = sr.learn(mdp, sr.QLearning(), episodes=10, seeds=1)
    assert plain.world is None
    assert plain.judged_on is mdp


@pytest.mark.parametrize("learner", [sr.CVaRQLearning(), sr.WindowReplay(), sr.MeanVariance(0.1)])
def test_who_has_only_algorithm_1_refuses_learners_of_another_kind(learner):
    with pytest.raises(sr.BadInput, match="learner must be one of Algorithm 1's family in a Stepper, got"):
        sr.Stepper(sr.grids.cliff(), learner)
    with pytest.raises(sr.BadInput, match="learner must be one of Algorithm 1's family in an Agent, got"):
        sr.Agent("safereplay/Cliff-v0", learner)
