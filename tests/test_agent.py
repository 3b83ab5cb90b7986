"""The agent: Algorithm 1 in environments that are stepped for real."""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import Env
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.wrappers import TimeLimit
from hypothesis import given, settings
from hypothesis import strategies as st

import safereplay as sr
from safereplay import _files
from safereplay.agent import FIRST_ROOM, _Pool
from safereplay.arrays import weights_of
from safereplay.kernels import memory as mem
from safereplay.spaces import NO_STATE

REPLAY = sr.ReplayQLearning(sr.VarianceReplay(beta=2.0), v=0.5)
BLACKJACK_STATES = 32 * 11 * 2


class Table(Env):
    """States 0, ..., 3 as two bits, two actions; a step draws (reward, next state) from ``draw(rng, s, a)``."""

    observation_space, action_space = MultiDiscrete([2, 2], start=[1, 5]), Discrete(2, start=1)

    def __init__(self, draw: Callable[..., tuple[float, int]], length: int = 10, ends: bool = True) -> None:
        self.draw, self.length, self.ends = draw, length, ends
        self.seen: list[tuple[int, int, float, int]] = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s, self.t = 0, 0
        return self._observation(), {}

    def step(self, action):
        r, s_next = self.draw(self.np_random, self.s, int(action) - 1)
        self.seen.append((self.s, int(action) - 1, float(r), s_next))
        self.s, self.t = s_next, self.t + 1
        over = self.t >= self.length
        return self._observation(), r, over and self.ends, over and not self.ends, {}

    def _observation(self):
        return np.array([self.s // 2 + 1, self.s % 2 + 5])


def gaussian(rng, s, a):
    return rng.normal(), 0


def few(rng, s, a):
    """Rewards of three values that depend on the pair, next states of two."""
    return float(rng.integers(3) * (1 + s) - a), int(rng.integers(2)) + 2 * a


def parts(agent: sr.Agent, folder: Path) -> tuple[Any, dict[str, Any]]:
    """Everything that an agent is, as a file holds it."""
    return _files.load_arrays(agent.save(folder / "parts"), "Agent", 1)


def assert_same(one: sr.Agent, other: sr.Agent, folder: Path) -> None:
    (meta, arrays), (other_meta, other_arrays) = parts(one, folder), parts(other, folder)
    assert meta == other_meta
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(array, other_arrays[name]), name


# -- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ends", "value"), [(False, 1 / (1 - 0.5)), (True, 1.0)])
def test_a_truncated_episode_looks_ahead_and_a_terminated_one_does_not(ends: bool, value: float) -> None:
    env = Table(lambda rng, s, a: (1.0, 0), length=1, ends=ends)
    half = {"exploration": sr.EpsilonGreedy(0.5), "step_size": sr.ConstantStep(0.5)}
    agent = sr.Agent(env, sr.QLearning(), gamma=0.5, **half).learn(500)
    assert agent.Q[0] == pytest.approx([value, value], abs=1e-12)
    assert agent.episodes == 500
    assert (agent.returns == 1.0).all()


def test_a_time_limit_does_not_change_what_is_learned() -> None:
    def value(env: Env) -> np.ndarray:
        return sr.Agent(env, sr.QLearning(), gamma=0.5, step_size=sr.ConstantStep(0.5)).learn(500).Q

    endless = Table(lambda rng, s, a: (float(s), 1 - s), length=10**9)
    assert value(TimeLimit(endless, 2)) == pytest.approx(value(endless), abs=1e-12)
    assert value(endless)[:2].max(1) == pytest.approx([2 / 3, 4 / 3], abs=1e-12)  # 0 and 1 by turns at γ = ½


@pytest.mark.parametrize("learner", [sr.ReplayQLearning(sr.VarianceReplay(beta=5.0), v=0.5), sr.QLearning()])
def test_on_the_cliff_an_agent_reaches_the_verdict_of_learn(learner: sr.Learner) -> None:
    mdp = sr.grids.cliff()  # seed 0; 20,000 steps are about 2,000 episodes
    agent = sr.Agent(sr.TabularEnv(mdp), learner, seed=0, gamma=mdp.gamma).learn(20_000)
    runs = sr.learn(mdp, learner, episodes=2_000, seeds=[0])
    assert sr.verdict(mdp, agent.policy) == runs.verdicts[0] == ("safe" if learner.replay else "risky")


def test_an_agent_replays_what_was_designed_as_often_as_designed() -> None:
    """FrozenLake, seed 0, 60,000 random steps: some 100 updates of each pair of state 14, so ±0.15 is three standard deviations."""
    mdp = sr.TabularMDP.from_gymnasium("FrozenLake-v1", gamma=0.95)
    plan = sr.design(mdp, np.where(np.arange(16) == 14, 3, -1))
    explore = sr.EpsilonGreedy(1.0)
    agent = sr.Agent("FrozenLake-v1", plan.learner, seed=0, gamma=0.95, exploration=explore).learn(60_000)
    assert set(np.argwhere(agent.replays > 0)[:, 0]) == {14}
    assert ((agent.replays > 0) == (plan.rho > 0)).all()
    shares = agent.replays[14] / (agent.replays + agent.visits)[14]
    assert shares == pytest.approx(plan.rho[14], abs=0.15)


def test_it_learns_to_cross_a_frozen_lake_that_does_not_slip() -> None:
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    agent = sr.Agent(env, sr.QLearning(), exploration=sr.EpsilonGreedy(0.5), seed=1).learn(30_000)
    s, _ = env.reset()
    for _ in range(6):
        s, reward, terminated, _, _ = env.step(agent.act(s))
    assert (reward, terminated) == (1.0, True)
    assert agent.Q[0].max() == pytest.approx(0.99**5, abs=1e-3)


def test_blackjack_sticks_on_twenty_and_hits_on_eleven() -> None:
    agent = sr.Agent("Blackjack-v1", sr.QLearning(), exploration=sr.EpsilonGreedy(0.3)).learn(30_000)
    assert agent.Q.shape == (BLACKJACK_STATES, 2)
    assert agent.act((20, 10, 0)) == 0
    assert agent.act((11, 6, 0)) == 1
    assert agent.policy[agent.state_of((11, 6, 0))] == 1


def test_everything_adds_up() -> None:
    env = Table(few)
    agent = sr.Agent(env, REPLAY, seed=2).learn(1_234)
    assert agent.steps == agent.visits.sum() == len(env.seen) == 1_234
    assert agent.episodes == len(agent.returns) == 123
    rewards = np.array([r for _, _, r, _ in env.seen])
    assert agent.returns == pytest.approx(rewards[:1_230].reshape(123, 10).sum(1))
    visits = np.zeros((4, 2), int)
    np.add.at(visits, tuple(np.array([(s, a) for s, a, _, _ in env.seen]).T), 1)
    assert (agent.visits == visits).all()
    assert (agent.policy == agent.Q.argmax(1)).all()
    assert repr(agent) == "Agent(Table, replay(v=0.5, beta=2), 4 states × 2 actions, 1234 steps, 123 episodes)"


@pytest.mark.parametrize("v", [0.2, 0.7])
def test_replays_are_a_share_v_of_all_iterations(v: float) -> None:
    agent = sr.Agent(Table(few), sr.ReplayQLearning(sr.VarianceReplay(beta=2.0), v=v), seed=0).learn(20_000)
    share = agent.replays.sum() / (agent.replays.sum() + agent.visits.sum())
    assert share == pytest.approx(v, abs=0.01)  # seed 0, n ≥ 20,000: 0.01 is over three standard deviations


def test_a_learner_that_remembers_nothing_keeps_no_memory() -> None:
    agent = sr.Agent(Table(few), sr.QLearning()).learn(100)
    assert agent._pool.top == 0
    assert agent._pool.slots.room.size == 1


def test_the_worst_transition_is_learned_from_the_memory_alone() -> None:
    env = Table(lambda rng, s, a: (float(s), int(rng.integers(2))), length=10**9)
    agent = sr.Agent(env, sr.WorstTransition(), gamma=0.5, step_size=sr.ConstantStep(0.5)).learn(3_000)
    assert agent.Q[:2] == pytest.approx(np.array([[0, 0], [1, 1]]), abs=1e-9)  # the worst next state is always 0


# -- seeds ------------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(tmp_path: Path) -> None:
    one, two, other = (sr.Agent("FrozenLake-v1", REPLAY, seed=seed).learn(3_000) for seed in (5, 5, 6))
    assert_same(one, two, tmp_path)
    assert not (one.visits == other.visits).all()


def test_learning_in_parts_is_learning_at_once(tmp_path: Path) -> None:
    once = sr.Agent("Blackjack-v1", REPLAY).learn(5_000)
    in_parts = sr.Agent("Blackjack-v1", REPLAY)
    for steps in (1, 2, 4_096, 901):
        assert in_parts.learn(steps) is in_parts
    assert_same(once, in_parts, tmp_path)


@pytest.mark.whole
def test_the_compiled_turn_does_what_its_source_says(in_new_process: Callable[..., str]) -> None:
    script = "import numpy as np; np.seterr(over='ignore')\n"  # the generator's words wrap around
    script += "import safereplay as sr; a = sr.Agent('Blackjack-v1', sr.ReplayQLearning(), seed=3, max_outcomes=2)"
    script += ".learn(400); print([x.hex() for x in a.Q.ravel().tolist()], a.replays.ravel().tolist()"
    script += ", *(x.tolist() for x in a.remembered))"
    assert in_new_process(script, NUMBA_DISABLE_JIT="1") == in_new_process(script)


# -- memory -----------------------------------------------------------------------------------------------------------


def test_what_is_remembered_is_what_happened() -> None:
    env = Table(few, length=7, ends=False)
    agent = sr.Agent(env, REPLAY, seed=1).learn(2_000)
    found = agent.remembered
    keys = zip(found.s.tolist(), found.a.tolist(), found.r.tolist(), found.s_next.tolist(), strict=True)
    assert dict(zip(keys, found.seen.tolist(), strict=True)) == Counter(env.seen)
    assert not found.terminal.any()
    replays = np.zeros((4, 2), int)
    np.add.at(replays, (found.s, found.a), found.replayed)
    assert (replays == agent.replays).all()
    assert replays.sum() > 1_500
    assert found.w.sum() == pytest.approx(1.0)
    assert sr.Agent(Table(few), sr.QLearning()).learn(50).remembered.s.size == 0


def test_replays_of_merged_rewards_are_added_up() -> None:
    agent = sr.Agent(Table(gaussian, length=50), REPLAY, seed=0, max_outcomes=5).learn(3_000)  # one place only
    found = agent.remembered
    assert found.s.size == 10
    for a in range(2):
        assert found.replayed[found.a == a].sum() == agent.replays[0, a] > 1_000
        assert found.seen[found.a == a].sum() == agent.visits[0, a]


def lemma_4(env: Table, beta: float) -> dict[tuple[int, int, float, int], float]:
    """w of every outcome seen, by the paper's formula from the raw transitions."""
    rewards: dict[tuple[int, int], list[float]] = {}
    for s, a, r, _ in env.seen:
        rewards.setdefault((s, a), []).append(r)
    total = sum(np.var(x) for x in rewards.values())
    w = {}
    for s, a, r, s_next in set(env.seen):
        distinct = np.array(sorted(set(rewards[s, a])))
        tilt = np.exp(-beta * r) / np.exp(-beta * distinct).sum()
        places = len({x[3] for x in env.seen if x[:3] == (s, a, r)})
        w[s, a, r, s_next] = np.var(rewards[s, a]) / total * tilt / places
    return w


@pytest.mark.parametrize("max_outcomes", [6, 64])
def test_with_few_distinct_outcomes_w_is_that_of_lemma_4(max_outcomes: int) -> None:
    env = Table(few, length=7, ends=False)
    agent = sr.Agent(env, REPLAY, seed=1, max_outcomes=max_outcomes).learn(2_000)
    memory = agent._pool.slots.memory
    weights, found = weights_of(memory), {}
    for i in range(8):
        for k in range(memory.first[i], memory.first[i] + memory.used[i]):
            found[i // 2, i % 2, memory.r[k], memory.s_next[k]] = weights[k]
    expected = lemma_4(env, beta=2.0)
    assert found.keys() == expected.keys()
    assert sum(found.values()) == pytest.approx(1.0)
    for outcome, w in expected.items():
        assert found[outcome] == pytest.approx(w, rel=1e-9, abs=1e-15)


def test_with_continuous_rewards_the_memory_is_bounded_and_w_that_of_the_binned_rewards() -> None:
    env, beta = Table(gaussian, length=50), 2.0  # seed 4, n = 6,000 rewards from N(0, 1) at two pairs
    agent = sr.Agent(env, sr.ReplayQLearning(sr.VarianceReplay(beta), v=0.5), seed=4, max_outcomes=64).learn(6_000)
    memory, room, _ = agent._pool.slots
    assert memory.used.max() == room.max() == 64
    for a in range(2):
        raw = np.array([r for s, b, r, _ in env.seen if b == a])
        row = slice(memory.first[a], memory.first[a] + 64)
        mean, m2 = memory.stats[a, :2]
        assert (mean, m2 / raw.size) == pytest.approx((raw.mean(), raw.var()), rel=1e-12, abs=1e-12)
        assert (np.diff(memory.r[row]) > 0).all()
        assert memory.count[row].sum() == memory.distinct[row].sum() == raw.size
        assert (memory.count[row] * memory.r[row]).sum() == pytest.approx(raw.sum(), abs=1e-9)
        exact = np.exp(-beta * np.sort(raw))
        exact_cdf = np.cumsum(exact) / exact.sum()
        binned_cdf = memory.share[row] / memory.share[row][-1]
        ranks = np.cumsum(memory.distinct[row]).astype(int)
        assert np.abs(binned_cdf - exact_cdf[ranks - 1]).max() < 0.02
        binned_mean = np.diff(binned_cdf, prepend=0.0) @ memory.r[row]
        exact_mean = (exact * np.sort(raw)).sum() / exact.sum()
        assert binned_mean == pytest.approx(exact_mean, abs=0.02)
        assert exact_mean < -1.5  # and not that of the rewards themselves, 0


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(0, 12), min_size=5, max_size=60), st.integers(2, 5))
def test_the_running_sum_follows_every_merge(rewards: list[int], most: int) -> None:
    """After each step the shares are those of the slots as they are: m·e^{−βr} each, whatever was merged into what."""
    beta, coming = 0.5, iter(rewards)
    env = Table(lambda rng, s, a: (float(next(coming)), 0), length=10**6)
    agent = sr.Agent(env, sr.ReplayQLearning(sr.VarianceReplay(beta), v=0.0), seed=0, max_outcomes=most)
    for _ in rewards:
        agent.learn(1, quiet=True)
        memory = agent._pool.slots.memory
        for i in range(2):
            row = slice(memory.first[i], memory.first[i] + memory.used[i])
            if memory.used[i]:
                tilt = memory.distinct[row] * np.exp(-beta * (memory.r[row] - memory.r[row].min()))
                np.testing.assert_allclose(memory.share[row] / memory.share[row][-1], np.cumsum(tilt) / tilt.sum())


def test_more_rewards_than_slots_still_replay_the_worst_ones() -> None:
    agent = sr.Agent(Table(gaussian, length=50), REPLAY, seed=0, max_outcomes=2).learn(3_000)
    exact = sr.Agent(Table(gaussian, length=50), REPLAY, seed=0, max_outcomes=4_000).learn(3_000)
    plain = sr.Agent(Table(gaussian, length=50), sr.QLearning(), seed=0).learn(3_000)
    assert exact.Q[0].max() < agent.Q[0].max() < plain.Q[0].max()


outcomes = st.tuples(st.integers(-20, 20).map(lambda x: x / 4), st.integers(0, 2), st.booleans())


@settings(deadline=None, max_examples=60)
@given(st.lists(outcomes, min_size=1, max_size=60), st.integers(2, 12))
def test_rows_stay_sorted_and_bounded_and_lose_no_reward_but_what_they_forget(
    seen: list[tuple[float, int, bool]], most: int
) -> None:
    pool, forgot = _Pool(2, most), False
    for r, s_next, ends in seen:
        memory, room, _ = pool.slots
        slot = mem.locate(memory, 1, r, s_next, ends)
        if slot < 0 and memory.used[1] == room[1]:
            if room[1] < most:
                memory = pool.grow(1).memory
            else:
                places = {(memory.s_next[k], memory.ends[k]) for k in range(memory.first[1], memory.first[1] + most)}
                forgot = forgot or len(places) == most
                mem.squeeze(memory, 1)
            slot = mem.locate(memory, 1, r, s_next, ends)
        if slot < 0:
            slot = -1 - slot
            mem.insert(memory, 1, slot, r, s_next, ends)
        assert (memory.r[slot], memory.s_next[slot], memory.ends[slot]) == (r, s_next, ends)
        memory.count[slot] += 1.0
    memory, room, _ = pool.slots
    row = slice(memory.first[1], memory.first[1] + memory.used[1])
    keys = list(zip(memory.r[row], memory.s_next[row], memory.ends[row], strict=True))
    assert keys == sorted(keys)
    assert memory.used[1] <= room[1] <= most
    assert room[0] == 0
    if not forgot:
        assert memory.count[row].sum() == len(seen)
        assert (memory.count[row] * memory.r[row]).sum() == pytest.approx(sum(r for r, _, _ in seen), abs=1e-9)
        assert memory.distinct[row].sum() >= len(set(seen))
    if len(set(seen)) <= most:
        assert set(keys) == set(seen)


def test_of_outcomes_that_cannot_be_merged_the_one_replayed_least_is_forgotten() -> None:
    def catastrophe(rng, s, a):
        s_next = 3 if rng.random() < 0.01 else int(rng.integers(3))
        return (-10.0 if s_next == 3 else float(s_next)), s_next

    env = Table(catastrophe, ends=False)
    agent = sr.Agent(env, REPLAY, seed=0, max_outcomes=3).learn(3_000)
    memory = agent._pool.slots.memory
    hit = {2 * s + a for s, a, r, _ in env.seen if r == -10.0}
    assert len(hit) > 3
    for i in hit:
        assert memory.r[memory.first[i]] == -10.0


def test_the_pool_grows_by_doubling_rows_and_keeps_what_is_in_them() -> None:
    agent = sr.Agent(Table(gaussian), REPLAY, max_outcomes=1_500)
    sizes = set()
    for _ in range(40):
        agent.learn(50)
        sizes.add(int(agent._pool.slots.room[0]))
    doublings = {FIRST_ROOM << k for k in range(9)} | {1_500}
    assert sizes <= doublings
    assert len(sizes) > 3
    memory = agent._pool.slots.memory
    raw = {r for _, a, r, _ in agent.env.seen if a == 0}
    assert set(memory.r[memory.first[0] : memory.first[0] + memory.used[0]].tolist()) == raw


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("FrozenLake-v1", 1_001),
        ("FrozenLake-v1", 2),
        ("Blackjack-v1", 1_000),
        ("Blackjack-v1", 1_003),
        ("CliffWalking-v1", 1_500),
        ("Taxi-v4", 50),
        ("Taxi-v4", 1_777),
        ("safereplay/Cliff-v0", 777),
    ],
)
def test_saved_and_loaded_it_goes_on_as_if_it_had_never_stopped(name: str, steps: int, tmp_path: Path) -> None:
    whole, half = sr.Agent(name, REPLAY, seed=7), sr.Agent(name, REPLAY, seed=7)
    half.learn(steps).save(tmp_path / "agent")
    loaded = sr.Agent.load(tmp_path / "agent")
    assert_same(half, loaded, tmp_path)
    loaded.learn(steps)
    assert_same(whole.learn(2 * steps), loaded, tmp_path)
    assert loaded.steps == 2 * steps
    assert loaded.settings == whole.settings


def test_it_is_saved_in_the_first_episode_in_the_midst_of_a_later_one_and_between_two(tmp_path: Path) -> None:
    where = set()
    for steps in range(1, 31):
        half = sr.Agent("FrozenLake-v1", REPLAY, seed=1).learn(steps)
        where.add((half.episodes == 0, half._world.s == NO_STATE))
        half.save(tmp_path / "agent")
        assert_same(half.learn(20), sr.Agent.load(tmp_path / "agent").learn(20), tmp_path)
    assert where == {(True, False), (False, False), (False, True)}


def test_a_file_from_before_replays_were_told_apart_goes_on_and_counts_from_there(tmp_path: Path) -> None:
    agent = sr.Agent("Blackjack-v1", REPLAY, seed=7).learn(1_000)
    before = agent.remembered.replayed.sum()
    assert before == agent.replays.sum() > 500
    meta, arrays = parts(agent, tmp_path)
    del arrays["replayed"]
    _files.save_arrays(tmp_path / "old", "Agent", 1, meta, arrays)
    loaded = sr.Agent.load(tmp_path / "old").learn(1_000)
    agent.learn(1_000)
    assert (loaded.Q == agent.Q).all()
    assert loaded.replays.sum() == agent.replays.sum() == loaded.remembered.replayed.sum() + before


def test_it_can_be_saved_before_its_first_step(tmp_path: Path) -> None:
    sr.Agent("FrozenLake-v1", REPLAY, seed=9).save(tmp_path / "agent")
    assert_same(
        sr.Agent("FrozenLake-v1", REPLAY, seed=9).learn(99), sr.Agent.load(tmp_path / "agent").learn(99), tmp_path
    )


def test_every_setting_comes_back(tmp_path: Path) -> None:
    env = gymnasium.make("FrozenLake-v1", is_slippery=False, max_episode_steps=7)
    agent = sr.Agent(
        env,
        sr.RiskSensitive(0.25, c0=1.0),
        seed=np.int64(3),
        gamma=np.float32(0.5),
        exploration=sr.Softmax(0.5),
        step_size=sr.PowerStep(0.75),
        max_outcomes=17,
    ).learn(20)
    loaded = sr.Agent.load(agent.save(tmp_path / "agent"))
    assert loaded.settings == agent.settings
    assert loaded.env.spec == env.spec
    assert_same(agent.learn(50), loaded.learn(50), tmp_path)


def test_an_own_environment_is_given_to_load(tmp_path: Path) -> None:
    agent = sr.Agent(Table(gaussian), REPLAY, max_outcomes=8).learn(123)
    agent.save(tmp_path / "agent")
    with pytest.raises(sr.BadInput, match="env must be given to load this agent, got None; its own has no id"):
        sr.Agent.load(tmp_path / "agent")
    loaded = sr.Agent.load(tmp_path / "agent", env=Table(gaussian))
    assert_same(agent.learn(200), loaded.learn(200), tmp_path)
    message = r"env.observation_space must be MultiDiscrete\(\[2, 2\], start=\[1, 5\]\) as saved, got Discrete\(16\)"
    with pytest.raises(sr.BadInput, match=message):
        sr.Agent.load(tmp_path / "agent", env="FrozenLake-v1")
    other = Table(gaussian)
    other.action_space = MultiBinary(1)
    with pytest.raises(sr.BadInput, match=r"env.action_space must be Discrete\(2, start=1\) as saved, got MultiBinary"):
        sr.Agent.load(tmp_path / "agent", env=other)


def test_an_environment_that_was_wrapped_is_given_to_load(tmp_path: Path) -> None:
    def wrapped() -> Env:
        return gymnasium.wrappers.TransformReward(gymnasium.make("FrozenLake-v1"), lambda r: 2 * r)

    agent = sr.Agent(wrapped(), REPLAY).learn(123)
    agent.save(tmp_path / "agent")
    with pytest.raises(
        sr.BadInput, match="env must be given to load this agent, got None; it was wrapped as <Transform"
    ):
        sr.Agent.load(tmp_path / "agent")
    assert_same(agent.learn(99), sr.Agent.load(tmp_path / "agent", env=wrapped()).learn(99), tmp_path)


def test_hidden_randomness_is_warned_about_and_a_new_episode_begins(tmp_path: Path) -> None:
    def lost(rng, s, a):
        return 1.0, int(np.random.default_rng().integers(4))

    agent = sr.Agent(Table(lost, length=10**9), REPLAY).learn(100)
    agent.save(tmp_path / "agent")
    with pytest.warns(UserWarning, match="does not go the same way again .*np_random.*; a new episode begins"):
        loaded = sr.Agent.load(tmp_path / "agent", env=Table(lost, length=10**9))
    assert loaded._world.s == NO_STATE
    assert (loaded.Q == agent.Q).all()
    assert loaded.learn(10).steps == 110


def test_rewards_from_hidden_randomness_are_noticed_as_well(tmp_path: Path) -> None:
    def lost(rng, s, a):
        return float(np.random.default_rng().normal()), 0

    sr.Agent(Table(lost), REPLAY).learn(5).save(tmp_path / "agent")
    with pytest.warns(UserWarning, match="does not go the same way again"):
        sr.Agent.load(tmp_path / "agent", env=Table(lost))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return sr.Agent("FrozenLake-v1", REPLAY).learn(300).save(tmp_path / "agent")


def test_a_truncated_file_is_one_line(saved: Path) -> None:
    data = saved.read_bytes()
    for size in (0, 10, len(data) // 2, len(data) - 1):
        saved.write_bytes(data[:size])
        with pytest.raises(sr.BadFile, match="must be a saved Agent, got a file that is truncated"):
            sr.Agent.load(saved)


def test_other_files_are_told_apart(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(sr.BadFile, match="must be a saved Agent, got no such file"):
        sr.Agent.load(tmp_path / "nothing")
    with pytest.raises(sr.BadFile, match="must be a saved Agent, got a saved TabularMDP"):
        sr.Agent.load(sr.grids.cliff().save(tmp_path / "mdp"))
    meta, arrays = _files.load_arrays(saved, "Agent", 1)
    _files.save_arrays(saved, "Agent", 2, meta, arrays)
    with pytest.raises(sr.BadFile, match="must be of format 1 or older, got format 2"):
        sr.Agent.load(saved)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("Q", lambda x: x[:-1]),
        ("Q", lambda x: x.astype(np.float32)),
        ("counts", lambda x: -x),
        ("visited", lambda x: x - 10**6),
        ("generator", lambda x: x * 0),
        ("clock", lambda x: x[:2]),
        ("r", lambda x: x[None]),
        ("s_next", lambda x: x + 16),
        ("share", lambda x: x[:-1]),
        ("replayed", lambda x: x - 10**6),
        ("replayed", lambda x: x.astype(np.float64)),
        ("first", lambda x: x + 10**6),
        ("first", lambda x: x - 10**6),
        ("used", lambda x: x - 10**6),
        ("room", lambda x: x + 10**6),
        ("room", lambda x: x * 0),
        ("stats", lambda x: x.T),
        ("weight", lambda x: x * np.nan),
        ("weight", lambda x: x * 0 + 1.0),
        ("actions", lambda x: np.append(x, 4)),
        ("actions", lambda x: np.append(x, 0)),
        ("states", lambda x: x - 20),
        ("returns", lambda x: None),
        ("settings", lambda x: None),
        ("settings", lambda x: sr.QLearning().to_dict()),
        ("observation_space", lambda x: 3),
        ("total", lambda x: "much"),
    ],
)
def test_a_file_whose_parts_do_not_fit_is_refused(saved: Path, part: str, change: Callable[[Any], Any]) -> None:
    meta, arrays = _files.load_arrays(saved, "Agent", 1)
    pieces: dict[str, Any] = {**meta, **arrays}
    pieces[part] = change(pieces[part])
    meta = {k: pieces[k] for k in meta if pieces[k] is not None}
    arrays = {k: pieces[k] for k in arrays if pieces[k] is not None}
    _files.save_arrays(saved, "Agent", 1, meta, arrays)
    with pytest.raises(sr.BadFile, match=r"must be a saved Agent, got one whose '\w+' is missing or does not fit"):
        sr.Agent.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gamma": 2}, r"that can be built here, got: gamma must be in \(0, 1\), got 2"),
        ({"learner": {"kind": "PowerStep"}}, "got: learner must be a Learner, got PowerStep"),
        ({"learner": {"kind": "Nobodys"}}, "got: unknown kind 'Nobodys'"),
        ({"extra": 1}, "got: unknown field of AgentSettings 'extra'"),
    ],
)
def test_settings_that_cannot_be_built_are_refused(saved: Path, change: dict[str, Any], message: str) -> None:
    meta, arrays = _files.load_arrays(saved, "Agent", 1)
    meta["settings"].update(change)
    _files.save_arrays(saved, "Agent", 1, meta, arrays)
    with pytest.raises(sr.BadFile, match=message):
        sr.Agent.load(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "antigravity:FrozenLake-v1"}, "nothing is registered as 'antigravity:FrozenLake-v1'"),
        ({"id": "Mine-v0"}, "nothing is registered as 'Mine-v0'"),
        ({"id": ["FrozenLake-v1"]}, "must name an environment that can be made, got: "),
        ({"kwargs": {"nonsense": 1}}, "must name an environment that can be made, got: .*nonsense"),
        ({"kwargs": 1}, "must name an environment that can be made, got: "),
        ({"max_episode_steps": "many"}, "must name an environment that can be made, got: "),
        ({"max_episode_steps": -1}, "it was wrapped as <TimeLimit"),
    ],
)
def test_a_file_makes_only_registered_environments(saved: Path, change: dict[str, Any], message: str) -> None:
    meta, arrays = _files.load_arrays(saved, "Agent", 1)
    meta["env"].update(change)
    _files.save_arrays(saved, "Agent", 1, meta, arrays)
    with pytest.raises(sr.BadInput, match=message):
        sr.Agent.load(saved)
    assert "antigravity" not in sys.modules


# -- what can go wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), -float("inf"), None, "much"])
def test_a_reward_that_is_not_finite_is_named_with_its_step(reward: Any) -> None:
    def draw(rng, s, a):
        return (0.0, 0)

    env = Table(draw, length=4)
    agent = sr.Agent(env, REPLAY).learn(6)
    env.step = lambda action: (env._observation(), reward, False, False, {})
    with pytest.raises(
        sr.BadInput, match=r"reward at step 3 of episode 2 must be finite, got (nan|inf|-inf|None|'much')"
    ):
        agent.learn(10)
    del env.step
    assert agent.learn(10).steps == 16  # in a new episode
    assert agent.episodes == 3


def test_ctrl_c_keeps_what_was_learned() -> None:
    def interrupt(rng, s, a):
        if len(env.seen) == 25:
            env.seen.append(env.seen[-1])
            raise KeyboardInterrupt
        return 1.0, 0

    env = Table(interrupt)
    agent = sr.Agent(env, REPLAY)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(100)
    assert agent.episodes == 2
    assert agent.learn(10).episodes == 3


def test_an_observation_outside_its_space_is_named() -> None:
    with pytest.raises(sr.BadInput, match=r"observation must be in MultiDiscrete\(\[2 2\], start=\[1 5\]\), got array"):
        sr.Agent(Table(lambda rng, s, a: (0.0, 4)), REPLAY).learn(10)
    with pytest.raises(sr.BadInput, match="observation must be in"):
        sr.Agent(Table(few), REPLAY).act([0, 0])


class Continuous(Table):
    observation_space = Box(0.0, 1.0, (2,))


class Huge(Table):
    observation_space = MultiBinary(20_000)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"env": Continuous(few)}, r"observation_space must be discrete \(Discrete, .*\), got Box\(0.0, 1.0, \(2,\)"),
        ({"env": Huge(few)}, r"observation_space × action_space must have at most 2\*\*27 pairs, got 1e\+300"),
        (
            {"env": "FrozenLak-v1"},
            "env must be a Gymnasium environment or the id of one, got 'FrozenLak-v1'; .*FrozenLake",
        ),
        (
            {"env": "nosuchmodule:X-v1"},
            "env must be a Gymnasium environment or the id of one, got 'nosuch.*; .*nosuchmodule",
        ),
        ({"env": 3}, "env must be a Gymnasium environment or the id of one, got 3"),
        ({"learner": sr.VarianceReplay()}, "learner must be a Learner, got VarianceReplay"),
        ({"learner": sr.WorstCase()}, "c0 of WorstCase must be given, got None; an environment does not say"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": 1 << 64}, r"seed must be below 2\*\*64"),
        ({"seed": 0.5}, "seed must be a whole number, got 0.5"),
        ({"gamma": 1.0}, r"gamma must be in \(0, 1\), got 1"),
        ({"exploration": 0.1}, "exploration must be an Exploration, got 0.1"),
        ({"step_size": 0.1}, "step_size must be a StepSize, got 0.1"),
        ({"max_outcomes": 1}, "max_outcomes must be at least 2, got 1"),
    ],
)
def test_what_an_agent_cannot_be_built_from_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(sr.BadInput, match=message):
        sr.Agent(**{"env": Table(few), "learner": REPLAY, **change})


def test_steps_must_be_a_number_of_steps() -> None:
    with pytest.raises(sr.BadInput, match="steps must be at least 1, got 0"):
        sr.Agent(Table(few), REPLAY).learn(0)


def test_the_worst_case_learns_from_a_c0_that_is_given() -> None:
    env = Table(lambda rng, s, a: (float(rng.integers(2)), 0), length=10**9)
    assert sr.Agent(env, sr.WorstCase(c0=10.0), gamma=0.5).learn(500).Q[0] == pytest.approx([0.0, 0.0], abs=1e-9)


def test_a_long_run_shows_a_bar_on_a_terminal_and_nothing_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    sr.Agent(Table(few), REPLAY).learn(5_000)
    assert capsys.readouterr() == ("", "")
