import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import factored, lemma4

import safereplay as sr
from safereplay import arrays, runs
from safereplay.kernels import memory as mem
from safereplay.kernels import rng, step, tree

# Large enough that e^{−βr} overflows at β = 5 (e^{2500}), with ties, and small ones beside them.
REWARDS = (-500.0, -100.0, -12.0, -1.0, 0.0, 0.25, 10.0, 500.0)
BETAS = (-5.0, -0.3, 0.0, 0.01, 1.0, 5.0)


def a_model(outcomes, n_states, n_actions):
    """A model whose pair i has the given (s', r, ends), all equally likely; state n_states is terminal."""
    rows = []
    for i, listed in enumerate(outcomes):
        s, a = divmod(i, n_actions)
        rows += [(s, a, 1 / len(listed), s_next, r, ends, False) for s_next, r, ends in listed]
    return sr.TabularMDP.from_outcomes(n_states + 1, n_actions, rows, start=0)


@st.composite
def models_and_histories(draw):
    """A small random model, and a sequence of its outcomes in any order (indices into its table)."""
    n_states, n_actions = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    outcome = st.tuples(st.integers(0, n_states - 1), st.sampled_from(REWARDS), st.booleans())
    listed = st.lists(outcome, min_size=1, max_size=6, unique=True)
    outcomes = [draw(listed) for _ in range(n_states * n_actions)]
    mdp = a_model(outcomes, n_states, n_actions)
    history = draw(st.lists(st.integers(0, mdp.r.size - 1), min_size=1, max_size=25))
    return mdp, history


class Driver:
    """A learner's ``learn``, fed with a history that the test chooses."""

    def __init__(self, learner):
        self.learner = learner
        _, _, self.learn = step.make(learner.recipe(sr.EpsilonGreedy(), sr.PowerStep()))
        self.schedules = sr.EpsilonGreedy(), sr.PowerStep()

    def start(self, mdp, scheme):
        program = runs.make_program(sr.ReplayQLearning(scheme, v=0.5), *self.schedules, mdp.gamma, mdp.n_actions)
        self.dials, self.mdp = program.dials, mdp
        self.tables = step.allocate(mdp.n_states, mdp.n_actions, 0.0, rng.seeded(0))
        self.memory = arrays.model_memory(mdp)
        return self

    def see(self, k):
        mdp = self.mdp
        i = int(mdp.pair[k])
        outcome = mdp.r[k], mdp.s_next[k], mdp.terminal[k]
        self.learn(self.tables, self.memory, (i, i, k), outcome, True, False, self.dials)
        return i, float(mdp.r[k]), int(mdp.s_next[k]), bool(mdp.terminal[k])

    def w(self):
        return by_key(self.mdp, arrays.weights_of(self.memory))


def by_key(mdp, w):
    """{(pair, r, (s', ends)): w} of the outcomes with w > 0."""
    keys = zip(mdp.pair, mdp.r, mdp.s_next, mdp.terminal, strict=True)
    found = Counter()
    for (i, r, s_next, ends), x in zip(keys, w, strict=True):
        if x > 0:
            found[int(i), float(r), (int(s_next), bool(ends))] += float(x)
    return found


def assert_same_w(found, expected):
    """Equal to 1e-12; a share far below the pair's largest is known to one rounding of that only (1e-15)."""
    for key in set(found) | set(expected):
        assert found.get(key, 0.0) == pytest.approx(expected.get(key, 0.0), rel=1e-12, abs=1e-15), key


@pytest.fixture(scope="module")
def paper():
    return Driver(sr.ReplayQLearning(sr.VarianceReplay(1.0), v=0.5))


@settings(max_examples=200)
@given(models_and_histories(), st.sampled_from(BETAS))
def test_w_equals_lemma_4_on_the_raw_history_at_every_step(paper, case, beta):
    mdp, indices = case
    driver, history = paper.start(mdp, sr.VarianceReplay(beta)), []
    for k in indices:
        history.append(driver.see(k))
        assert_same_w(driver.w(), lemma4(history, beta))


def test_nothing_has_weight_while_no_reward_has_varied(paper):
    """Two next states, one reward: Σ var_t = 0, and w_t is zero rather than 0/0."""
    mdp = a_model([[(0, 7.0, False), (1, 7.0, True)], [(0, -3.0, False)]], 2, 1)
    driver = paper.start(mdp, sr.VarianceReplay(5.0))
    for k in [0, 1, 1, 0, 2, 2]:
        driver.see(k)
        assert not arrays.weights_of(driver.memory).any()
        assert driver.memory.tree[1] == 0.0


def test_w_of_the_volatile_move_is_known_by_hand(paper):
    """+100 and −100 once each at two pairs, β = ln(3)/200: within a pair the worse has 3/4; the pairs have 1/2 each."""
    mdp = a_model(
        [[(0, 100.0, False), (0, -100.0, False)], [(1, 100.0, False), (0, -100.0, True), (1, -100.0, True)]], 2, 1
    )
    driver = paper.start(mdp, sr.VarianceReplay(math.log(3) / 200))
    for k in [0, 1, 2, 4]:
        driver.see(k)
    assert arrays.weights_of(driver.memory).tolist() == pytest.approx([3 / 8, 1 / 8, 3 / 8, 0, 1 / 8])
    driver.see(3)  # −100 again, to another place: the variance grows to 8/9 of 100², and −100's share is halved
    a, b = 1 / (1 + 8 / 9), 8 / 9 / (1 + 8 / 9)
    assert arrays.weights_of(driver.memory).tolist() == pytest.approx([a * 3 / 4, a / 4, b * 3 / 8, b * 3 / 8, b / 4])


def test_huge_rewards_neither_overflow_nor_blur_w(paper):
    """e^{−5·(−1e6)} is far beyond a float; in the log domain all of the weight is on the worst reward, exactly."""
    mdp = a_model([[(0, -1e6, False), (0, 1e6, False), (0, 0.0, True)]], 1, 1)
    driver = paper.start(mdp, sr.VarianceReplay(5.0))
    for k in [0, 1, 2]:
        driver.see(k)
    assert arrays.weights_of(driver.memory).tolist() == [1.0, 0.0, 0.0]


def test_an_outcome_that_differs_in_its_unsafe_flag_alone_is_not_a_second_next_state(paper):
    """L_t(s,a,r) is a set of next states: state 0 and state 1 share −1 equally, though state 0 has two entries."""
    rows = [(0, 0, 0.25, 0, -1.0, False, False), (0, 0, 0.25, 0, -1.0, False, True)]
    rows += [(0, 0, 0.25, 1, -1.0, True, False), (0, 0, 0.25, 1, 5.0, True, False)]
    mdp = sr.TabularMDP.from_outcomes(2, 1, rows, start=0)
    learner = sr.ReplayQLearning(sr.VarianceReplay(0.1), v=0.5)
    learned = sr.learn(mdp, learner, episodes=200, seeds=1)
    history = [(0, -1.0, 0, False), (0, -1.0, 1, True), (0, 5.0, 1, True)]
    assert_same_w(by_key(mdp, learned.w[0]), lemma4(history, 0.1))


# -- schemes of one's own ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StandardTilt(sr.Scheme):
    """Tilt by the standardised reward; next states by how often they were seen."""

    beta: float = 1.0

    @staticmethod
    def pair_weight(mean, r_min):
        return mean - r_min

    @staticmethod
    def log_tilt(r, mean, var, beta):
        return -beta * (r - mean) / (var + 1.0) ** 0.5

    @staticmethod
    def next_weight(count):
        return count**0.5


@pytest.fixture(scope="module")
def standard():
    return Driver(sr.ReplayQLearning(StandardTilt(), v=0.5))


@settings(max_examples=100)
@given(models_and_histories(), st.sampled_from(BETAS))
def test_w_of_a_scheme_that_follows_statistics_and_counts_is_exact_at_every_step(standard, case, beta):
    mdp, indices = case
    driver, history = standard.start(mdp, StandardTilt(beta)), []

    def expected():
        return factored(
            history,
            {},
            lambda x: x["mean"] - x["r_min"],
            lambda r, x: -beta * (r - x["mean"]) / (x["var"] + 1) ** 0.5,
            lambda count: count**0.5,
        )

    for k in indices:
        history.append(driver.see(k))
        assert_same_w(driver.w(), expected())


@dataclass(frozen=True)
class SeenTwice(sr.Scheme):
    """Only outcomes that were seen at least twice are replayed."""

    @staticmethod
    def log_tilt(r):
        return -r

    @staticmethod
    def next_weight(count):
        return 1.0 if count >= 2.0 else 0.0


def test_a_pair_whose_next_states_all_weigh_nothing_is_not_replayed():
    """Else an outcome that was never seen could be: every slot of the pair has the same running sum, zero."""
    mdp = a_model([[(0, -900.0, False), (0, 0.0, False), (0, 900.0, False)]], 1, 1)
    driver = Driver(sr.ReplayQLearning(SeenTwice(), v=0.5)).start(mdp, SeenTwice())
    driver.see(1)
    assert not arrays.weights_of(driver.memory).any()
    driver.see(0)
    assert driver.memory.tree[1] == 0.0
    driver.see(1)  # the reward 0 has been seen twice; the tilt of −900, seen once, must not push it below every float
    assert arrays.weights_of(driver.memory).tolist() == [0.0, 1.0, 0.0]


# -- pieces -----------------------------------------------------------------------------------------------------------


def empty(capacity, n_pairs=1):
    """A memory as an agent's: room for ``capacity`` outcomes a pair, none in use."""
    first = np.arange(n_pairs) * capacity
    size = capacity * n_pairs
    used = np.zeros(n_pairs, np.int64)
    return mem.allocate(first, used, np.zeros(size), np.zeros(size, np.int64), np.zeros(size, bool), n_pairs)


def listed(memory, i=0):
    part = slice(memory.first[i], memory.first[i] + memory.used[i])
    columns = memory.r, memory.s_next, memory.ends, memory.count, memory.distinct, memory.replayed
    return list(zip(*(column[part].tolist() for column in columns), strict=True))


def store(memory, i, r, s_next, ends, capacity):
    slot = mem.locate(memory, i, r, s_next, ends)
    if slot < 0:
        if memory.used[i] == capacity:
            mem.squeeze(memory, i)
            slot = mem.locate(memory, i, r, s_next, ends)
        if slot < 0:
            slot = -1 - slot
            mem.insert(memory, i, slot, r, s_next, ends)
    memory.count[slot] += 1
    return slot


OUTCOMES = st.tuples(st.sampled_from(REWARDS), st.integers(0, 2), st.booleans())


@given(st.lists(OUTCOMES, max_size=40))
def test_outcomes_are_kept_sorted_by_reward_then_place_and_counted(seen):
    memory = empty(60, n_pairs=2)
    for r, s_next, ends in seen:
        store(memory, 1, r, s_next, ends, 60)
    assert [x[:3] for x in listed(memory, 1)] == sorted(set(seen))
    assert {x[:3]: x[3] for x in listed(memory, 1)} == Counter(seen)
    assert memory.used.tolist() == [0, len(set(seen))]
    for outcome in set(seen):
        slot = mem.locate(memory, 1, *outcome)
        assert (memory.r[slot], memory.s_next[slot], memory.ends[slot]) == outcome


@given(st.lists(OUTCOMES, min_size=1, max_size=60), st.integers(7, 12))
@example([(-1.0, 0, False), (0.0, 1, True), (0.25, 0, False), (10.0, 0, False), (-12.0, 2, True)] * 3, 7)
def test_a_squeezed_memory_stays_sorted_and_keeps_counts_sums_and_places(seen, capacity):
    """There are six places, so seven slots always hold two of one place: nothing is ever forgotten, only merged."""
    memory, replays = empty(capacity), Counter()
    for times, (r, s_next, ends) in enumerate(seen):
        memory.replayed[store(memory, 0, r, s_next, ends, capacity)] += times
        replays[s_next, ends] += times
    kept = listed(memory)
    assert len(kept) <= capacity
    assert [x[:3] for x in kept] == sorted(x[:3] for x in kept)
    for place in {x[1:] for x in seen}:
        rewards = [x[0] for x in seen if x[1:] == place]
        mine = [x for x in kept if x[1:3] == place]
        assert sum(x[3] for x in mine) == len(rewards)
        assert sum(x[5] for x in mine) == replays[place]
        assert math.fsum(x[0] * x[3] for x in mine) == pytest.approx(math.fsum(rewards), rel=1e-9, abs=1e-9)
        assert min(rewards) <= min(x[0] for x in mine)
        assert max(x[0] for x in mine) <= max(rewards)


def test_squeezing_merges_the_two_nearest_rewards_of_one_place_at_their_mean():
    memory = empty(4)
    for r, s_next, times in [(0.0, 0, 1), (1.0, 1, 3), (3.0, 0, 2), (3.5, 1, 1)]:
        for _ in range(times):
            store(memory, 0, r, s_next, False, 4)
    memory.replayed[:4] = [7, 20, 300, 4000]
    mem.squeeze(memory, 0)  # place 1: 1 and 3.5 are 2.5 apart; place 0: 0 and 3 are 3 apart
    first, merged, last = (
        (0.0, 0, False, 1.0, 1.0, 7),
        (1.625, 1, False, 4.0, 2.0, 4020),
        (3.0, 0, False, 2.0, 1.0, 300),
    )
    assert listed(memory) == [first, merged, last]
    mem.squeeze(memory, 0)  # 0 and 3 become (0 + 2·3)/3 = 2, which lies above 1.625
    assert listed(memory) == [merged, (2.0, 0, False, 3.0, 2.0, 307)]
    mem.insert(memory, 0, 1, 1.75, 2, True)  # in the room of one that was replayed before
    assert listed(memory) == [merged, (1.75, 2, True, 0.0, 1.0, 0), (2.0, 0, False, 3.0, 2.0, 307)]


@pytest.mark.parametrize(("tilts", "forgotten"), [((0.7, 0.2, 0.1), 9.0), ((0.1, 0.1, 0.8), 1.0)])
def test_where_all_places_differ_the_outcome_replayed_least_is_forgotten_and_of_equals_the_rarer(tilts, forgotten):
    memory = empty(3)
    for r, s_next, times in [(-9.0, 0, 2), (1.0, 1, 1), (9.0, 2, 5)]:
        for _ in range(times):
            store(memory, 0, r, s_next, False, 3)
    memory.share[:] = np.cumsum(tilts)
    mem.squeeze(memory, 0)
    assert [x[0] for x in listed(memory)] == [r for r in (-9.0, 1.0, 9.0) if r != forgotten]


def test_statistics_are_those_of_the_raw_rewards():
    memory, record = empty(8), mem.make_record(ranges=True)
    rewards = [5.0, -3.0, 5.0, 1e3, -1e3, 0.125]
    for n, r in enumerate(rewards, 1):
        record(memory, 0, 0, r, n)
        n_, mean, var, r_min, r_max, td, *_ = mem.statistics(memory, np.zeros(1), 0, n)
        seen = np.array(rewards[:n])
        assert (n_, r_min, r_max, td) == (n, seen.min(), seen.max(), 0.0)
        assert mean == pytest.approx(seen.mean(), rel=1e-12)
        assert var == pytest.approx(seen.var(), rel=1e-12)


def test_the_variance_of_one_reward_seen_many_times_is_exactly_zero():
    memory, record = empty(1), mem.make_record(ranges=False)
    for n in range(1, 2000):
        record(memory, 0, 0, 0.1, n)
    assert mem.statistics(memory, np.zeros(1), 0, 1999)[2] == 0.0


@given(st.lists(st.floats(0, 1).map(lambda x: x if x > 0.2 else 0.0), min_size=1, max_size=12), st.data())
def test_draw_finds_the_first_slot_whose_running_sum_exceeds_and_never_one_without_share(shares, data):
    if sum(shares) == 0:
        return
    memory = empty(len(shares))
    memory.used[0] = len(shares)
    memory.share[:] = np.cumsum(shares)
    u = data.draw(st.sampled_from([0.0, 0.5, 1.0 - 2.0**-53]) | st.floats(0, 1, exclude_max=True))
    slot = mem.draw(memory, 0, u)
    assert slot == np.searchsorted(memory.share, u * memory.share[-1], side="right")
    assert shares[slot] > 0


@pytest.mark.parametrize(
    ("scheme", "shares"), [(sr.VarianceReplay(0.0), [2 / 3, 1 / 3]), (sr.DynaReplay(), [3 / 4, 1 / 4])]
)
def test_a_reward_that_stands_for_several_merged_ones_has_the_weight_of_all(scheme, shares):
    """Two merged rewards at 2, seen three times, and one at 5, seen once: shares by distinct rewards, and by visits."""
    memory = empty(2)
    for _ in range(3):
        store(memory, 0, 2.0, 0, False, 2)
    store(memory, 0, 5.0, 0, False, 2)
    memory.distinct[0] = 2.0
    refresh = mem.make_refresh(scheme.bound("log_tilt"), scheme.bound("next_weight"))
    refresh(memory, np.zeros(1), 0, 4, 0.9, 1, mem.MIDDLE, scheme.params())
    tree.put(memory.tree, 0, 1.0)
    assert arrays.weights_of(memory).tolist() == pytest.approx(shares)
