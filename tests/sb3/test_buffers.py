"""SB3's replay buffer with the dial."""

import copy
import pickle
import time
from dataclasses import dataclass

import gymnasium
import numpy as np
import pair_functions
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete
from hypothesis import given, settings
from hypothesis import strategies as st
from sb3_contrib import QRDQN
from scipy.stats import chisquare
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

import safereplay as sr
from safereplay.sb3 import ShapedDictReplayBuffer, ShapedNStepReplayBuffer, ShapedReplayBuffer, ShapingWarning

PLACE = Box(-1e6, 1e6, (2,), np.float32)
POSITION_KEY = sr.TileKey(tiles=(1, 1), low=(-1e6, -1e6), high=(1e6, 1e6), action_tiles=0)
SMALL = {"learning_starts": 40, "batch_size": 16, "buffer_size": 400, "train_freq": 4, "seed": 3}


def net():
    return {"policy_kwargs": {"net_arch": [16]}}  # a new one each time: SAC writes into it


def stored(buffer, steps, n_envs, n_pairs=5, seed=0, ends=0.1):
    """Fill a buffer; transition t of environment e is (obs (t, e), next_obs (t + 1, e)), its pair t % n_pairs. All rewards [t, e]."""
    rng = np.random.default_rng(seed)
    rewards = np.where(rng.random((steps, n_envs)) < 0.15, -8.0, 1.0) + rng.normal(0, 0.3, (steps, n_envs))
    dones = rng.random((steps, n_envs)) < ends
    for t in range(steps):
        obs, after = (np.stack([np.full(n_envs, t + i), np.arange(n_envs)], 1).astype(np.float32) for i in (0, 1))
        if isinstance(buffer, DictReplayBuffer):
            obs, after = {"place": obs}, {"place": after}
        buffer.add(obs, after, np.full(n_envs, t % n_pairs), rewards[t], dones[t], [{}] * n_envs)
    return rewards.astype(np.float32), dones


def made(size=240, n_envs=4, space=PLACE, **options):
    return ShapedReplayBuffer(
        size, space, Discrete(5), "cpu", n_envs, **{"v": 0.6, "key": POSITION_KEY, "seed": 7, **options}
    )


def pickled(buffer):
    return pickle.loads(pickle.dumps(buffer))  # noqa: S301  as SB3 does


def drawn(buffer, batches=400, batch=500):
    """How often each slot was drawn."""
    counts = np.zeros(buffer.shaper.capacity)
    buffer.on_draw = lambda slots: np.add.at(counts, slots, 1)
    for _ in range(batches):
        buffer.sample(batch)
    buffer.on_draw = None
    return counts


# -- what is drawn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saved", [False, True], ids=["", "after pickling"])
@pytest.mark.parametrize("optimized", [False, True], ids=["", "optimize_memory_usage"])
def test_four_environments_in_a_ring_that_wrapped_are_drawn_as_the_distribution_says(saved, optimized):
    """Seed 7, 200,000 draws of 240 slots. Chi-squared: p > 1e-3 for p̃, and < 1e-12 for uniform, which it must tell apart."""
    buffer = made(optimize_memory_usage=optimized, handle_timeout_termination=not optimized)
    stored(buffer, 97, 4)
    assert buffer.full
    assert buffer.pos == 37
    if saved:
        buffer = pickled(buffer)
    p, counts = buffer.shaper.index.distribution(), drawn(buffer)
    held = buffer.held()
    assert held.size == (236 if optimized else 240)
    assert set(np.flatnonzero(p)) == set(held) == set(np.flatnonzero(counts))
    assert chisquare(counts[held], p[held] * counts.sum()).pvalue > 1e-3
    assert chisquare(counts[held]).pvalue < 1e-12


@pytest.mark.parametrize("kind", ["box", "dict", "optimize_memory_usage"])
def test_a_batch_is_what_its_slots_hold_with_the_environment_that_was_drawn(kind):
    space = Dict(place=PLACE) if kind == "dict" else PLACE
    options = {"optimize_memory_usage": True, "handle_timeout_termination": False} if kind.startswith("opt") else {}
    buffer, seen = made(space=space, **options), []
    rewards, dones = stored(buffer, 97, 4, ends=0.0 if options else 0.1)
    buffer.on_draw = seen.append
    batch = buffer.sample(1000)
    obs, after = batch.observations, batch.next_observations
    if kind == "dict":
        obs, after = obs["place"], after["place"]
    t, e = obs.numpy().astype(int).T
    assert set(e) == {0, 1, 2, 3}
    assert t.min() == 97 - 60 + len(options) // 2
    np.testing.assert_array_equal(seen[0], (t % 60) * 4 + e)
    np.testing.assert_array_equal(after.numpy(), np.stack([t + 1, e], 1))
    np.testing.assert_array_equal(batch.actions.numpy().ravel(), t % 5)
    np.testing.assert_array_equal(batch.rewards.numpy().ravel(), rewards[t, e])
    np.testing.assert_array_equal(batch.dones.numpy().ravel(), dones[t, e])


@settings(max_examples=25)
@given(
    n_envs=st.integers(1, 3),
    size=st.integers(2, 9),
    moves=st.lists(st.sampled_from(["add", "add", "add", "draw", "reset", "pickle"]), max_size=40),
    optimized=st.booleans(),
)
def test_whatever_happens_only_what_is_held_is_drawn_and_pairs_stay_together(n_envs, size, moves, optimized):
    buffer = made(size * n_envs, n_envs, optimize_memory_usage=optimized, handle_timeout_termination=not optimized)
    t = 0
    for move in moves:
        if move == "add":
            obs = np.stack([np.full(n_envs, t), np.arange(n_envs)], 1).astype(np.float32)
            buffer.add(
                obs,
                obs + np.float32([1, 0]),
                np.full(n_envs, t % 3),
                np.full(n_envs, t % 2),
                np.zeros(n_envs),
                [{}] * n_envs,
            )
            t += 1
        elif move == "draw" and buffer.held().size:
            batch = buffer.sample(20)
            assert set(batch.observations[:, 0].int().tolist()) <= set(range(t - buffer.size(), t))
            torch.testing.assert_close(batch.next_observations[:, 0], batch.observations[:, 0] + 1)
        elif move == "reset":
            buffer.reset()
            t = 0
        elif move == "pickle":
            buffer = pickled(buffer)
        index, held = buffer.shaper.index, buffer.held()
        assert len(index) == held.size
        words = index.key_of(held)
        actions = buffer.actions.ravel()[held]
        assert len({*zip(words, actions, strict=True)}) == len({*words}) == len({*actions})


def test_a_buffer_that_was_saved_draws_on_as_the_one_that_was_not():
    buffer = made()
    stored(buffer, 50, 4)
    buffer.sample(10)
    for other in (pickled(buffer), copy.deepcopy(buffer)):
        twin = copy.deepcopy(buffer)
        for one in (twin, other):
            stored(one, 30, 4, seed=1)
        assert torch.equal(twin.sample(64).observations, other.sample(64).observations)


def test_the_dial_can_be_turned_up_later():
    """What the shaper was never told of is told when it is first asked for."""
    late, always = made(v=0.0), made()
    for buffer in (late, always):
        stored(buffer, 97, 4)
    assert late._shaper is None
    late.v = 0.6
    np.testing.assert_allclose(late.shaper.index.distribution(), always.shaper.index.distribution(), rtol=1e-12)
    assert late.sample(64).rewards.min() < -7
    with pytest.raises(sr.BadInput, match=r"v must be in \[0, 1\], got 2"):
        late.v = 2.0
    assert late.v == 0.6


def test_a_function_as_key_and_a_given_scheme_are_saved_with_the_buffer():
    buffer = made(key=sr.FunctionKey(pair_functions.parity), scheme=sr.ScoreReplay(2.0, floor=0.5))
    stored(buffer, 50, 4)
    again = pickled(buffer)
    assert again.shaper.index.n_pairs == 2
    assert again.shaper.index.scheme == sr.ScoreReplay(2.0, floor=0.5)
    assert torch.equal(again.sample(64).rewards, buffer.sample(64).rewards)


def test_pictures_are_stored_and_drawn_as_they_are():
    space = Box(0, 255, (1, 8, 8), np.uint8)
    buffer = ShapedReplayBuffer(50, space, Discrete(2), "cpu", key=sr.AutoKey(warm_up=20), seed=0)
    pictures = np.random.default_rng(0).integers(256, size=(3, 1, 1, 8, 8)).astype(np.uint8)
    for t in range(40):
        buffer.add(pictures[t % 3], pictures[(t + 1) % 3], np.zeros(1), np.array([t % 2]), np.zeros(1), [{}])
    batch = buffer.sample(100)
    assert batch.observations.dtype == torch.uint8
    assert buffer.shaper.index.n_pairs == 3
    which = (batch.observations[:, None] == torch.as_tensor(pictures[:, 0])).all(dim=(2, 3, 4))
    assert which.sum() == 100


def test_a_reset_forgets_everything():
    buffer = made()
    stored(buffer, 97, 4)
    buffer.reset()
    assert len(buffer.shaper) == buffer.held().size == 0
    with pytest.raises(sr.BadInput, match="slots held must number at least 1, got 0"):
        buffer.sample(3)


# -- what others wrote ------------------------------------------------------------------------------------------------


def filled_by_hand(buffer, n, seed=0):
    """Write n positions straight into the arrays; the pair is the position modulo 5."""
    rng = np.random.default_rng(seed)
    buffer.actions[:n] = (np.arange(n) % 5)[:, None, None]
    buffer.rewards[:n] = rng.choice([1.0, -8.0], p=[0.9, 0.1], size=(n, buffer.n_envs))
    buffer.pos, buffer.full = n % buffer.buffer_size, n == buffer.buffer_size


@pytest.mark.parametrize("looked", [False, True], ids=["", "after it was looked at"])
@pytest.mark.parametrize("n", [40, 60], ids=["half", "full"])
def test_what_was_written_straight_into_the_arrays_is_drawn(n, looked):
    """Seed 7, 200,000 draws of 160 or 240 slots, chi-squared p > 1e-3 for p̃; and all of it, not the one that was added."""
    buffer, place = made(), np.zeros((4, 2), np.float32)
    if looked:
        stored(buffer, 3, 4)
        buffer.sample(5)
        buffer.pos = 0
    filled_by_hand(buffer, n)
    buffer.add(place, place, np.zeros(4), np.zeros(4), np.zeros(4), [{}] * 4)
    p, counts = buffer.shaper.index.distribution(), drawn(buffer)
    held = buffer.held()
    assert held.size == min(4 * (n + 1), 240)
    np.testing.assert_array_equal(buffer.shaper.index.x_of(held), buffer.rewards.ravel()[held])
    assert set(np.flatnonzero(p)) == set(held) == set(np.flatnonzero(counts))
    assert chisquare(counts[held], p[held] * counts.sum()).pvalue > 1e-3


def test_a_full_flag_that_was_set_by_hand_is_believed():
    buffer = ShapedReplayBuffer(1, PLACE, Discrete(5), "cpu", key=sr.AutoKey())
    buffer.full = True
    assert buffer.sample(64).rewards.shape == (64, 1)


def test_a_position_that_was_set_back_forgets_what_lies_behind_it():
    buffer = made()
    stored(buffer, 50, 4)
    buffer.sample(5)
    buffer.pos = 20
    assert buffer.sample(500).observations[:, 0].max() < 20
    assert len(buffer.shaper) == 80


class AddsItself(ShapedReplayBuffer):
    """Stores without SB3's or our add."""

    def add(self, obs, next_obs, action, reward, done, infos):
        self.observations[self.pos], self.actions[self.pos, :, 0], self.rewards[self.pos] = obs, action, reward
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0


def test_a_subclass_that_stores_by_itself_is_read_step_by_step(monkeypatch):
    """What was read is not read again, but for its first eight steps and where the ring closes."""
    buffer = AddsItself(240, PLACE, Discrete(5), "cpu", 4, v=0.6, key=POSITION_KEY, seed=7)
    assert len(buffer.shaper) == 0
    told, add = [], buffer.shaper.add
    monkeypatch.setattr(buffer.shaper, "add", lambda slots, *rest: (told.append(slots.size), add(slots, *rest)))
    for t in range(97):
        obs = np.full((4, 2), t, np.float32)
        buffer.add(obs, obs, np.full(4, t % 5), np.full(4, t % 2), np.zeros(4), [{}] * 4)
        buffer.sample(5)
        held = buffer.held()
        np.testing.assert_array_equal(buffer.shaper.index.x_of(held), buffer.rewards.ravel()[held])
    assert sum(told) == 4 * (sum(range(1, 9)) + (59 - 8) + 60 + 37)


def test_what_was_changed_in_place_is_seen_after_a_word():
    buffer = made()
    stored(buffer, 50, 4)
    buffer.sample(5)
    buffer.rewards[:] *= 0.5
    buffer.reread()
    held = buffer.held()
    np.testing.assert_array_equal(buffer.shaper.index.x_of(held), buffer.rewards.ravel()[held])


@pytest.mark.parametrize("mixing", ["matched", "literal"])
def test_beta_and_the_scheme_can_be_set_at_any_time(mixing):
    """Afterwards draws are exactly those of a buffer that was made so: seed 7, 200,000 draws, chi-squared p > 1e-3."""
    for before, change, wanted in [
        ({"beta": 1.0}, {"beta": 5.0}, {"beta": 5.0}),
        ({"scheme": sr.ScoreReplay(1.0, floor=0.5)}, {"beta": 3.0}, {"scheme": sr.ScoreReplay(3.0, floor=0.5)}),
        ({"beta": 1.0}, {"scheme": sr.ScoreReplay(-2.0)}, {"scheme": sr.ScoreReplay(-2.0)}),
    ]:
        changed, fresh = made(mixing=mixing, **before), made(mixing=mixing, **wanted)
        for buffer in (changed, fresh):
            stored(buffer, 97, 4)
        changed.sample(5)
        for name, value in change.items():
            setattr(changed, name, value)
        assert changed.beta == fresh.beta == changed.shaper.index.scheme.beta
        p = fresh.shaper.index.distribution()
        np.testing.assert_allclose(changed.shaper.index.distribution(), p, rtol=1e-9, atol=1e-15)
        counts = drawn(changed)
        assert chisquare(counts, p * counts.sum()).pvalue > 1e-3
        assert pickled(changed).beta == fresh.beta


def test_beta_set_at_v_0_waits_for_v():
    buffer = made(v=0.0)
    buffer.beta = 4.0
    stored(buffer, 20, 4)
    assert buffer._shaper is None
    buffer.v = 0.5
    assert buffer.shaper.index.scheme.beta == buffer.beta == 4.0
    with pytest.raises(sr.BadInput, match="beta must be a number, got 'much'"):
        buffer.beta = "much"
    assert buffer.beta == 4.0


@dataclass(frozen=True)
class Steep(sr.Scheme):
    """A scheme whose dial has another name."""

    slope: float = 0.5

    @staticmethod
    def pair_weight(var):
        return 1.0 if var > 0.0 else 0.0

    @staticmethod
    def log_tilt(r, mean, slope):
        return slope * (mean - r)


def test_a_scheme_without_beta_has_none_to_set():
    buffer = made(scheme=Steep())
    assert buffer.beta is None
    with pytest.raises(sr.BadInput, match="beta must be a dial of the scheme, Steep, got 2"):
        buffer.beta = 2.0


FIXED = {
    "key": sr.ExactKey(),
    "mixing": "literal",
    "tilt_on": "return",
    "horizon": 2,
    "n_steps": 2,
    "gamma": 0.5,
    "seed": 1,
}


@pytest.mark.parametrize(("name", "value"), FIXED.items(), ids=FIXED)
def test_a_dial_that_cannot_be_turned_later_says_so_and_from_buffer_does_it(name, value):
    buffer = made(beta=3.0)
    stored(buffer, 20, 4)
    with pytest.raises(
        sr.BadInput, match=rf"{name} must be given when the buffer is made, got .*from_buffer\(buffer, {name}="
    ):
        setattr(buffer, name, value)
    other = ShapedReplayBuffer.from_buffer(buffer, **{name: value})
    assert getattr(other, name) == value
    assert (other.v, other.beta, len(other.shaper)) == (0.6, 3.0, 80)
    assert ShapedReplayBuffer.from_buffer(buffer, beta=2.0).beta == 2.0


@pytest.mark.parametrize("kind", ["box", "dict"])
def test_a_plain_buffer_becomes_a_shaped_one_with_all_it_holds(kind):
    space, base = (Dict(place=PLACE), DictReplayBuffer) if kind == "dict" else (PLACE, ReplayBuffer)
    plain, always = base(240, space, Discrete(5), "cpu", 4), made(space=space)
    for buffer in (plain, always):
        stored(buffer, 97, 4)
    shaped = ShapedReplayBuffer.from_buffer(plain, v=0.6, key=POSITION_KEY, seed=7)
    assert (shaped.pos, shaped.full) == (37, True)
    assert shaped.rewards is plain.rewards
    np.testing.assert_allclose(
        shaped.shaper.index.distribution(), always.shaper.index.distribution(), rtol=1e-9, atol=1e-15
    )
    stored(shaped, 10, 4, seed=1)
    assert len(shaped.shaper) == 240
    with pytest.raises(sr.BadInput, match="buffer must be an SB3 ReplayBuffer, got 'list'"):
        ShapedReplayBuffer.from_buffer([])


# -- subclasses -------------------------------------------------------------------------------------------------------


class Relabels(ShapedReplayBuffer):
    """Changes what SB3 gives, as most subclasses do."""

    def _get_samples(self, batch_inds, env=None):
        batch = super()._get_samples(batch_inds, env)
        self.calls = getattr(self, "calls", 0) + 1
        return batch._replace(rewards=batch.rewards * 10)


class RandomEnvironments(ShapedReplayBuffer):
    """Does all by itself, with an environment drawn at random for each position: a copy of SB3's lines."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.twice = np.zeros((self.buffer_size, self.n_envs))

    def add(self, obs, next_obs, action, reward, done, infos):
        self.twice[self.pos] = 2 * reward
        super().add(obs, next_obs, action, reward, done, infos)

    def _get_samples(self, batch_inds, env=None):
        e = np.random.randint(0, high=self.n_envs, size=(len(batch_inds),))  # noqa: NPY002
        columns = (self.observations, self.actions, self.next_observations)
        data = [self.to_torch(x[batch_inds, e]) for x in columns]
        ends, rewards = self.dones[batch_inds, e], self.twice[batch_inds, e]
        return ReplayBufferSamples(*data, self.to_torch(ends[:, None]), self.to_torch(rewards[:, None]))


@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize(("subclass", "factor"), [(Relabels, 10), (RandomEnvironments, 2)])
def test_a_subclass_makes_the_batches_by_its_own_get_samples(subclass, factor, n_envs):
    """From exactly the transitions that were drawn, with the environment that was drawn."""
    buffer, seen = subclass(60 * n_envs, PLACE, Discrete(5), "cpu", n_envs, v=0.6, key=POSITION_KEY, seed=7), []
    rewards, dones = stored(buffer, 97, n_envs)
    buffer.on_draw = seen.append
    batch = buffer.sample(500)
    t, e = batch.observations.numpy().astype(int).T
    np.testing.assert_array_equal(seen[0], (t % 60) * n_envs + e)
    np.testing.assert_array_equal(batch.next_observations.numpy(), np.stack([t + 1, e], 1))
    np.testing.assert_allclose(batch.rewards.numpy().ravel(), factor * rewards[t, e], rtol=1e-6)
    np.testing.assert_array_equal(batch.dones.numpy().ravel(), dones[t, e])
    assert getattr(buffer, "calls", n_envs) == n_envs
    assert (buffer.n_envs, buffer.rewards.shape) == (n_envs, (60, n_envs))
    again = pickled(buffer)
    assert torch.equal(again.sample(64).rewards, buffer.sample(64).rewards)


@pytest.mark.parametrize("v", [0.0, 0.6])
@pytest.mark.parametrize("n_envs", [1, 4])
def test_a_subclass_may_have_dict_observations(n_envs, v):
    space = Dict(place=PLACE)
    buffer = Relabels(60 * n_envs, space, Discrete(5), "cpu", n_envs, v=v, key=POSITION_KEY, seed=7)
    assert isinstance(buffer, Relabels)
    assert isinstance(buffer, DictReplayBuffer)
    assert type(buffer).__name__ == "Relabels"
    rewards, _ = stored(buffer, 97, n_envs)
    for one in (buffer, pickled(buffer), copy.deepcopy(buffer)):
        assert type(one) is type(buffer)
        batch = one.sample(200)
        t, e = batch.observations["place"].numpy().astype(int).T
        np.testing.assert_allclose(batch.rewards.numpy().ravel(), 10 * rewards[t, e], rtol=1e-6)


@pytest.mark.parametrize("n_envs", [1, 4])
@pytest.mark.parametrize("steps", [40, 97], ids=["half", "wrapped"])
def test_n_steps_gives_sb3s_n_step_targets_for_the_transitions_that_were_drawn(n_envs, steps):
    """Each against SB3's own buffer of that environment alone."""
    buffer, seen = made(60 * n_envs, n_envs, n_steps=3, gamma=0.9), []
    stored(buffer, steps, n_envs)
    buffer.on_draw = seen.append
    batch = buffer.sample(300)
    (slots,) = seen
    for e in range(n_envs):
        plain = NStepReplayBuffer(60, PLACE, Discrete(5), "cpu", n_steps=3, gamma=0.9)
        for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
            setattr(plain, name, getattr(buffer, name)[:, e : e + 1])
        plain.pos, plain.full = buffer.pos, buffer.full
        mine = np.flatnonzero(slots % n_envs == e)
        wanted = plain._get_samples(slots[mine] // n_envs)
        for name, column in wanted._asdict().items():
            assert torch.equal(getattr(batch, name)[mine], column), name
    assert len(set(batch.discounts.ravel().tolist())) == 3


def test_n_steps_in_the_kwargs_that_sb3_recommends_is_the_same_run_at_v_0(slips, parameters):
    kwargs = {"n_steps": 3, "gamma": 0.9}
    plain = DQN("MlpPolicy", slips(2), n_steps=3, gamma=0.9, **SMALL, **net()).learn(300)
    ours = {"replay_buffer_class": ShapedReplayBuffer, "replay_buffer_kwargs": {"v": 0.0, **kwargs}}
    shaped = DQN("MlpPolicy", slips(2), gamma=0.9, **SMALL, **net(), **ours).learn(300)
    np.testing.assert_array_equal(parameters(plain), parameters(shaped))
    ours["replay_buffer_kwargs"]["v"] = 0.5
    other = DQN("MlpPolicy", slips(2), gamma=0.9, **SMALL, **net(), **ours).learn(300)
    assert isinstance(other.replay_buffer, NStepReplayBuffer)
    assert not np.array_equal(parameters(plain), parameters(other))
    assert type(pickled(other.replay_buffer)) is type(other.replay_buffer) is ShapedNStepReplayBuffer


def test_n_steps_and_a_subclass_go_together():
    """A subclass changes the n-step returns; the horizon of the tilt follows n_steps."""
    buffer = Relabels(240, PLACE, Discrete(5), "cpu", 4, v=0.6, key=POSITION_KEY, seed=7, n_steps=2, tilt_on="return")
    twin = made(n_steps=2, tilt_on="return")
    for one in (buffer, twin):
        stored(one, 50, 4)
    assert buffer.horizon == 2
    np.testing.assert_array_equal(pickled(buffer).sample(99).rewards, 10 * twin.sample(99).rewards)
    assert made().horizon == 3


def test_a_plain_n_step_buffer_stays_one():
    plain = NStepReplayBuffer(60, PLACE, Discrete(5), "cpu", n_steps=4, gamma=0.8)
    stored(plain, 50, 1)
    shaped = ShapedReplayBuffer.from_buffer(plain, v=0.6, key=POSITION_KEY)
    assert (type(shaped), shaped.n_steps, shaped.gamma) == (ShapedNStepReplayBuffer, 4, 0.8)


def test_the_horizons_former_name_is_understood():
    with pytest.warns(ShapingWarning, match=r"n_step is called horizon now; n_steps \(SB3's\) is for n-step targets"):
        assert made(n_step=5).horizon == 5


def test_what_sb3_cannot_do_for_n_steps_is_refused():
    with pytest.raises(sr.BadInput, match="n_steps must be 1 with Dict observations, as in SB3, got 2"):
        made(space=Dict(place=PLACE), n_steps=2)
    with pytest.raises(NotImplementedError, match="optimize_memory_usage"):
        made(n_steps=2, optimize_memory_usage=True, handle_timeout_termination=False)


def test_an_unknown_keyword_is_refused_as_by_python():
    with pytest.raises(TypeError, match=r"ShapedReplayBuffer.__init__\(\) got an unexpected keyword argument 'wrong'"):
        made(wrong=1)


def test_a_buffer_for_hindsight_cannot_be_taken_over():
    space = Dict(observation=PLACE, achieved_goal=PLACE, desired_goal=PLACE)
    env = DummyVecEnv([lambda: gymnasium.make("CartPole-v1")])
    her = HerReplayBuffer(50, space, Discrete(2), env, handle_timeout_termination=False)
    with pytest.raises(sr.BadInput, match="buffer must not be one for HER, got 'HerReplayBuffer'; shaped replay and"):
        ShapedReplayBuffer.from_buffer(her)


def test_a_get_samples_that_fails_leaves_the_buffer_as_it_was():
    class Fails(ShapedReplayBuffer):
        def _get_samples(self, batch_inds, env=None):
            raise RuntimeError("no")

    buffer = Fails(240, PLACE, Discrete(5), "cpu", 4, v=0.6, key=POSITION_KEY, seed=7)
    stored(buffer, 10, 4)
    with pytest.raises(RuntimeError, match="no"):
        buffer.sample(5)
    assert (buffer.n_envs, buffer.observations.shape) == (4, (60, 4, 2))


# -- what is tilted ---------------------------------------------------------------------------------------------------


def test_returns_stop_where_an_episode_ends_by_itself_or_by_a_time_limit():
    buffer = ShapedReplayBuffer(
        20, PLACE, Discrete(5), "cpu", 2, tilt_on="return", horizon=2, gamma=0.5, key=sr.ExactKey(), seed=0
    )
    ends = [(False, True), (False, False), (True, False), (False, False)]
    for t, done in enumerate(ends):
        infos = [{"TimeLimit.truncated": t == 2}, {}]
        obs = np.full((2, 2), t, np.float32)
        buffer.add(obs, obs + 1, np.zeros(2), np.array([1.0, 10.0]), np.array(done), infos)
    x = buffer.shaper.index.x_of(np.arange(8)).reshape(4, 2)
    np.testing.assert_allclose(x, [[1.5, 10.0], [1.5, 15.0], [1.0, 15.0], [np.nan, np.nan]])
    batch = buffer.transitions(np.arange(8))
    np.testing.assert_array_equal(batch.dones.numpy().ravel(), [0, 1, 0, 0, 0, 0, 0, 0])  # not the time limit's


def test_vecnormalize_scales_batches_as_for_sb3_and_the_tilt_sees_raw_rewards(slips):
    env = VecNormalize(slips(2, bad=-50.0))
    model = DQN(
        "MlpPolicy",
        env,
        replay_buffer_class=ShapedReplayBuffer,
        replay_buffer_kwargs={"v": 0.5, "key": sr.AutoKey()},
        **SMALL,
        **net(),
    )
    model.learn(200)
    buffer, slots = model.replay_buffer, model.replay_buffer.held()
    assert buffer.rewards.min() == -50.0
    np.testing.assert_array_equal(buffer.shaper.index.x_of(slots), buffer.rewards.ravel()[slots])
    batch = buffer.transitions(slots, env)
    raw_obs = buffer.observations.reshape(-1, 4)[slots]
    np.testing.assert_array_equal(batch.observations.numpy(), env.normalize_obs(raw_obs))
    wanted = env.normalize_reward(buffer.rewards.ravel()[slots]).astype(np.float32)
    np.testing.assert_array_equal(batch.rewards.numpy().ravel(), wanted)
    assert abs(batch.rewards.numpy()).max() <= 10


def test_keys_see_continuous_actions_as_sb3_stores_them_between_minus_one_and_one():
    key = sr.TileKey(tiles=1, low=-1e6, high=1e6, action_tiles=2)
    buffer = ShapedReplayBuffer(10, PLACE, Box(0.0, 100.0, (1,)), "cpu", key=key, seed=0)
    for action in (-0.9, 0.9, 0.8):
        place = np.zeros((1, 2), np.float32)
        buffer.add(place, place, np.array([[action]]), np.zeros(1), np.zeros(1), [{}])
    a, b, c = buffer.shaper.index.key_of([0, 1, 2])
    assert a != b == c


def test_what_the_environment_calls_unsafe_is_kept():
    buffer = made()
    place = np.zeros((4, 2), np.float32)
    infos = [{}, {"unsafe": True}, {"unsafe": np.bool_(False)}, {"unsafe": 1}]
    buffer.add(place, place, np.zeros(4), np.zeros(4), np.zeros(4), infos)
    assert buffer.unsafe[0].tolist() == [False, True, False, True]


def test_infos_may_be_missing_as_for_sb3():
    buffer = made(handle_timeout_termination=False)
    place = np.zeros((4, 2), np.float32)
    buffer.add(place, place, np.zeros(4), np.zeros(4), np.zeros(4), [])
    assert not buffer.unsafe.any()
    assert len(buffer.shaper) == 4


@pytest.mark.parametrize("v", [0.0, 0.6])
@pytest.mark.parametrize("infos", [None, {}, {"episode": {"r": np.zeros(4)}, "_episode": np.ones(4, bool)}])
def test_infos_may_be_none_or_gymnasiums_dict_of_arrays_as_for_sb3(v, infos):
    buffer = made(v=v, handle_timeout_termination=False)
    place = np.zeros((4, 2), np.float32)
    for _ in range(3):
        buffer.add(place, place, np.zeros(4), np.zeros(4), np.zeros(4), infos)
    assert buffer.sample(5).rewards.shape == (5, 1)
    assert not buffer.unsafe.any()


@pytest.mark.parametrize("ended", [False, True], ids=["", "in the last step"])
def test_what_gymnasiums_dict_of_infos_calls_unsafe_is_kept(ended):
    buffer = made(handle_timeout_termination=False)
    place = np.zeros((4, 2), np.float32)
    infos = {"unsafe": np.array([False, True, False, True]), "_unsafe": np.ones(4, bool)}
    buffer.add(place, place, np.zeros(4), np.zeros(4), np.zeros(4), {"final_info": infos} if ended else infos)
    assert buffer.unsafe[0].tolist() == [False, True, False, True]


@pytest.mark.parametrize("reward", [np.nan, np.inf, 1e39], ids=str)
def test_a_reward_that_is_not_finite_is_refused_when_it_is_added_and_nothing_is_lost(reward):
    buffer = made()
    stored(buffer, 10, 4)
    place = np.zeros((4, 2), np.float32)
    with pytest.raises(sr.BadInput, match=r"reward must be finite as float32, got .*; nothing was stored"):
        buffer.add(place, place, np.zeros(4), np.array([0.0, reward, 0.0, 0.0]), np.zeros(4), [{}] * 4)
    assert buffer.pos == 10
    stored(buffer, 5, 4, seed=1)
    assert len(buffer.shaper) == 60
    assert buffer.sample(100).rewards.isfinite().all()


def test_what_was_stored_at_v_0_is_not_lost_to_a_nan_that_is_mended_later():
    """SB3 stores a NaN, and so do we at v = 0; only a tilt needs the number."""
    buffer = made(v=0.0)
    stored(buffer, 10, 4)
    buffer.rewards[6, 1] = np.nan
    for _ in range(2):
        with pytest.raises(sr.BadInput, match="reward must be finite, got nan"):
            buffer.v = 0.6
    buffer.rewards[6, 1] = 0.0
    buffer.v = 0.6
    assert len(buffer.shaper) == 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the key is too coarse")  # random observations: no tile is a pair
def test_storing_costs_at_most_twice_and_drawing_three_times_what_sb3_takes():
    """100,000 transitions of 8 numbers, batches of 256; the best of seven turns each, taken in turn."""
    rng = np.random.default_rng(0)
    n, space = 100_000, Box(0.0, 1.0, (8,), np.float32)
    obs, rewards = rng.random((n, 1, 8)).astype(np.float32), rng.normal(scale=0.3, size=(n, 1))
    actions, dones = rng.integers(4, size=(n, 1)), rng.random((n, 1)) < 0.01
    buffers = [ReplayBuffer(n, space, Discrete(4)), ShapedReplayBuffer(n, space, Discrete(4), key=sr.AutoKey(), seed=0)]

    def fill(buffer, steps):
        for t in range(steps):
            buffer.add(obs[t], obs[t], actions[t], rewards[t], dones[t], [{}])

    def best(work):
        took = np.full((7, 2), np.inf)
        for turn in range(7):
            for i, buffer in enumerate(buffers):
                start = time.process_time()
                work(buffer)
                took[turn, i] = time.process_time() - start
        return took.min(0)

    for buffer in buffers:
        fill(buffer, n)
    plain, ours = best(lambda buffer: fill(buffer, 10_000))
    assert ours < 2 * plain
    plain, ours = best(lambda buffer: [buffer.sample(256) for _ in range(300)])
    assert ours < 3 * plain


# -- SB3's own algorithms ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "n_envs"), [("box", 1), ("box", 4), ("dict", 2), ("discrete", 2)])
def test_at_v_0_dqn_is_the_same_run_to_the_last_bit(slips, parameters, kind, n_envs):
    runs = []
    for shaped in (False, True):
        ours = {"replay_buffer_class": ShapedReplayBuffer, "replay_buffer_kwargs": {"v": 0.0}} if shaped else {}
        model = DQN(
            "MultiInputPolicy" if kind == "dict" else "MlpPolicy", slips(n_envs, kind=kind), **SMALL, **net(), **ours
        )
        model.learn(300)
        runs.append((parameters(model), np.random.get_state()[1], model.replay_buffer.rewards))  # noqa: NPY002
    for plain, shaped in zip(*runs, strict=True):
        np.testing.assert_array_equal(plain, shaped)
    assert model.replay_buffer._shaper is None


ALGORITHMS = [(DQN, "discrete"), (QRDQN, "discrete"), (SAC, "box"), (TD3, "box")]


@pytest.mark.parametrize(("algorithm", "actions"), ALGORITHMS, ids=lambda x: getattr(x, "__name__", ""))
def test_the_same_seed_gives_the_same_parameters_and_another_does_not(slips, parameters, algorithm, actions):
    def run(seed, v=0.5):
        options = {**SMALL, "seed": seed, "replay_buffer_class": ShapedReplayBuffer, "replay_buffer_kwargs": {"v": v}}
        return parameters(algorithm("MlpPolicy", slips(2, actions=actions), **options, **net()).learn(160))

    first = run(3)
    np.testing.assert_array_equal(first, run(3))
    assert not np.array_equal(first, run(4))
    assert not np.array_equal(first, run(3, v=0.0))


@pytest.mark.parametrize("kind", ["dict", "discrete"])
def test_dict_and_discrete_observations_learn_too(slips, kind):
    policy = "MultiInputPolicy" if kind == "dict" else "MlpPolicy"
    model = DQN(policy, slips(2, kind=kind), replay_buffer_class=ShapedReplayBuffer, **SMALL, **net()).learn(200)
    buffer = model.replay_buffer
    assert isinstance(buffer, ShapedReplayBuffer)
    assert isinstance(buffer, ReplayBuffer)
    assert isinstance(buffer, DictReplayBuffer) == isinstance(buffer, ShapedDictReplayBuffer) == (kind == "dict")
    assert type(pickled(buffer)) is type(buffer)


def test_model_and_buffer_are_saved_and_loaded_as_with_sb3(slips, tmp_path):
    options = {
        "replay_buffer_class": ShapedReplayBuffer,
        "replay_buffer_kwargs": {"v": 0.5, "beta": 2.0, "key": sr.AutoKey()},
    }
    model = DQN("MlpPolicy", slips(2), **SMALL, **net(), **options).learn(200)
    model.save(tmp_path / "model")
    model.save_replay_buffer(tmp_path / "buffer")
    again = DQN.load(tmp_path / "model", env=slips(2))
    assert again.replay_buffer.v == 0.5
    assert again.replay_buffer.size() == 0
    again.load_replay_buffer(tmp_path / "buffer")
    assert torch.equal(again.replay_buffer.sample(64).rewards, model.replay_buffer.sample(64).rewards)
    again.learn(100, reset_num_timesteps=False)


def test_a_plain_buffer_that_a_shaped_model_loads_is_spoken_of_with_the_remedy(slips, tmp_path):
    DQN("MlpPolicy", slips(2), **SMALL, **net()).learn(60).save_replay_buffer(tmp_path / "plain")
    options = {
        "replay_buffer_class": ShapedReplayBuffer,
        "replay_buffer_kwargs": {"v": 0.5, "beta": 2.0, "key": sr.AutoKey()},
    }
    model = DQN("MlpPolicy", slips(2), **SMALL, **net(), **options)
    message = "the loaded buffer is a plain ReplayBuffer, so replay is no longer shaped; model.replay_buffer = Shaped"
    with pytest.warns(ShapingWarning, match=message) as caught:
        model.load_replay_buffer(tmp_path / "plain")
    assert caught[0].filename == __file__
    exec(str(caught[0].message).split("; ")[1])  # noqa: S102  what the warning says
    assert (model.replay_buffer.v, model.replay_buffer.beta, len(model.replay_buffer.shaper)) == (0.5, 2.0, 64)
    model.learn(60, reset_num_timesteps=False)


def test_nothing_is_said_of_a_plain_model_or_a_shaped_buffer_that_is_loaded(slips, tmp_path):
    for kind in (None, ReplayBuffer, ShapedReplayBuffer):
        model = DQN("MlpPolicy", slips(2), replay_buffer_class=kind, **SMALL, **net()).learn(60)
        model.save_replay_buffer(tmp_path / "buffer")
        model.load_replay_buffer(tmp_path / "buffer")


def test_another_number_of_environments_than_stored_is_refused_as_sb3_does(slips, tmp_path):
    messages = []
    for kind in (ReplayBuffer, ShapedReplayBuffer):
        model = DQN("MlpPolicy", slips(2), replay_buffer_class=kind, **SMALL, **net()).learn(60)
        model.save_replay_buffer(tmp_path / "buffer")
        model = DQN("MlpPolicy", slips(3), replay_buffer_class=kind, **SMALL, **net())
        model.load_replay_buffer(tmp_path / "buffer")
        with pytest.raises(ValueError, match="cannot reshape") as caught:
            model.learn(60)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_the_buffers_seed_follows_the_models_unless_it_is_given(slips):
    def seed(**kwargs):
        options = {"replay_buffer_class": ShapedReplayBuffer, "replay_buffer_kwargs": kwargs}
        return DQN("MlpPolicy", slips(), **SMALL, **net(), **options).replay_buffer._seed

    assert seed() == seed() != seed(seed=11) == 11


# -- bad arguments ----------------------------------------------------------------------------------------------------

BAD = [
    ({"v": 1.5}, r"v must be in \[0, 1\), got 1.5"),
    ({"v": 1.5, "key": sr.ExactKey()}, r"v must be in \[0, 1\], got 1.5"),
    ({"v": -0.1}, r"v must be in \[0, 1\), got -0.1"),
    ({"v": 0.0, "beta": "much"}, "beta must be a number, got 'much'"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"v": 0.0, "seed": 0.5}, "seed must be a whole number, got 0.5"),
    ({"mixing": "half"}, "unknown mixing 'half'; choose from literal, matched"),
    ({"tilt_on": "rewards"}, "unknown tilt_on 'rewards'; did you mean 'reward'?"),
    ({"tilt_on": "return", "horizon": 0}, "horizon must be at least 1, got 0"),
    ({"n_steps": 0}, "n_steps must be at least 1, got 0"),
    ({"n_sampled_goal": 4}, r"n_sampled_goal must be left out, got 4; shaped replay and hindsight \(HER\) cannot be"),
    ({"goal_selection_strategy": "future"}, "goal_selection_strategy must be left out, got 'future'; shaped replay"),
    ({"copy_info_dict": True}, "copy_info_dict must be left out, got True; shaped replay"),
    ({"gamma": 2.0}, r"gamma must be in \[0, 1\], got 2"),
    ({"key": "exact"}, "key must be a PairKey, got 'exact'"),
    ({"scheme": "score"}, "scheme must be a Scheme, got 'score'"),
    ({"beta": 1.0, "scheme": sr.ScoreReplay()}, "beta must be left out where a scheme is given, got 1"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=lambda x: "" if isinstance(x, str) else ",".join(x))
def test_a_bad_argument_gets_one_line(options, message):
    with pytest.raises(sr.BadInput, match=message):
        ShapedReplayBuffer(100, PLACE, Discrete(2), "cpu", **options)


def test_the_class_for_dicts_is_for_nothing_else():
    with pytest.raises(sr.BadInput, match="observation_space must be a Dict for ShapedDictReplayBuffer"):
        ShapedDictReplayBuffer(100, PLACE, Discrete(2))


def test_a_buffer_of_one_cannot_share_its_memory():
    with pytest.raises(sr.BadInput, match="buffer_size must be at least 2 · n_envs here, got 3"):
        ShapedReplayBuffer(3, PLACE, Discrete(2), "cpu", 2, True, False)


def test_targets_that_nobody_computes_are_spoken_of_once():
    buffer = made(tilt_on="target")
    stored(buffer, 10, 4)
    with pytest.warns(ShapingWarning, match='tilt_on="target" tilts nothing until targets are known; pass callback='):
        buffer.sample(4)
    buffer.sample(4)


def test_a_buffer_that_an_older_version_saved_is_refused_in_one_line():
    buffer = ShapedReplayBuffer(10, Box(0.0, 1.0, (1,)), Discrete(2))
    state = buffer.__getstate__()
    del state["is_keyed"]
    with pytest.raises(sr.BadInput, match="buffer must have been saved by this version, got 'an older one'"):
        buffer.__setstate__(state)
