"""What shaped replay does while SB3 learns: logged, checked, refreshed."""

import gymnasium
import numpy as np
import pytest
import torch
from sb3_contrib import QRDQN, TQC
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.vec_env import VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import safereplay as sr
from safereplay.sb3 import ShapedReplayBuffer, ShapingCallback, ShapingWarning
from safereplay.sb3.callbacks import targets

KEY = sr.ExactKey()


def made(env, algorithm=DQN, *, buffer=ShapedReplayBuffer, v=0.5, key=KEY, beta=1.0, tilt_on="reward", **options):
    settings = {"learning_starts": 40, "batch_size": 32, "buffer_size": 600, "train_freq": 4, "seed": 3, **options}
    kwargs = {"v": v, "beta": beta, "key": key, "tilt_on": tilt_on} if buffer is ShapedReplayBuffer else {}
    net = {"net_arch": [16]}
    if issubclass(algorithm, DQN | QRDQN):
        settings |= {"exploration_final_eps": 1.0}  # both actions, all the time
    if algorithm is QRDQN:
        net["n_quantiles"] = 10
    settings |= {"replay_buffer_class": buffer, "replay_buffer_kwargs": kwargs, "policy_kwargs": net}
    return algorithm("MlpPolicy", env, **settings)


# -- logs -------------------------------------------------------------------------------------------------------------


def test_what_is_replayed_goes_to_tensorboard(slips, tmp_path):
    model = made(slips(2), tensorboard_log=str(tmp_path))
    model.learn(1200, callback=ShapingCallback(log_every=100), log_interval=5)
    (folder,) = tmp_path.iterdir()
    log = EventAccumulator(str(folder)).Reload()
    tags = log.Tags()
    names = {"v", "rho_mean", "share_replayed", "share_unsafe", "share_unsafe_stored", "pairs"}
    assert {f"shaping/{name}" for name in names} <= set(tags["scalars"])
    assert "shaping/most_replayed/text_summary" in tags["tensors"]
    last = {name: log.Scalars(f"shaping/{name}")[-1].value for name in names}
    assert last["pairs"] == 8
    assert 0.2 < last["rho_mean"] <= 0.5
    assert abs(last["share_replayed"] - last["rho_mean"]) < 0.05
    assert last["share_unsafe"] > 2 * last["share_unsafe_stored"] > 0
    (text,) = log.Tensors("shaping/most_replayed/text_summary")[-1].tensor_proto.string_val
    assert text.decode().startswith("| pair | n | mean | std | ρ | share of draws |\n|---")
    assert len(text.decode().splitlines()) == 2 + 4  # the four states' risky pairs


@pytest.mark.parametrize("unsafe", [None, -0.5, lambda reward, done: reward < 0], ids=["info", "reward", "function"])
def test_what_is_unsafe_the_environment_says_or_the_user(slips, unsafe):
    """Seed 3: of 600 stored transitions some 30 are slips, and at v = 0.5 they are drawn far more often."""
    callback = ShapingCallback(unsafe=unsafe)
    made(slips(2)).learn(1200, callback=callback)
    found = callback.measures()
    assert 0.02 < found["share_unsafe_stored"] < 0.1
    assert found["share_unsafe"] > 2 * found["share_unsafe_stored"]


@pytest.mark.parametrize("tilt_on", ["reward", "return", "target"])
def test_at_v_0_shares_are_of_what_is_stored_and_nothing_is_replayed(slips, tilt_on):
    callback = ShapingCallback(log_every=100)
    model = made(slips(2), v=0.0, tilt_on=tilt_on, gamma=0.9)
    model.learn(400, callback=callback)
    found = callback.measures()
    assert found["share_unsafe"] == found["share_unsafe_stored"] > 0
    assert found["rho_mean"] == found["share_replayed"] == 0
    assert callback.most_replayed() == []
    assert model.replay_buffer._shaper is None


def test_the_most_replayed_pairs_come_with_their_worst_transition(slips):
    callback = ShapingCallback()
    model = made(slips(2)).learn(1200, callback=callback)
    rows = callback.most_replayed(3)
    assert len(rows) == 3
    shares = [row["share"] for row in rows]
    assert shares == sorted(shares, reverse=True)
    for row in rows:
        assert sum(row["obs"]) == 1.0
        assert (row["action"], row["reward"]) == ([1], -1.0)
        slots = model.replay_buffer.held()
        mine = slots[model.replay_buffer.shaper.index.key_of(slots) == np.uint64(row["key"])]
        rewards = model.replay_buffer.rewards.ravel()[mine]
        assert row["n"] == mine.size
        assert row["mean"] == pytest.approx(rewards.mean(), abs=1e-6)
        assert row["std"] == pytest.approx(rewards.std(), abs=1e-6)
        assert row["rho"] == 0.5
    assert len(callback.most_replayed(100)) == 4


def test_a_callback_without_our_buffer_says_so(slips):
    with pytest.raises(sr.BadInput, match="replay_buffer_class must be ShapedReplayBuffer, got 'ReplayBuffer'"):
        made(slips(), buffer=None).learn(50, callback=ShapingCallback())


BAD = [
    ({"log_every": 0}, "log_every must be at least 1, got 0"),
    ({"top": 2.5}, "top must be a whole number, got 2.5"),
    ({"unsafe": "reward"}, "unsafe must be a number, got 'reward'"),
    ({"refresh_every": 0}, "refresh_every must be at least 1, got 0"),
    ({"refresh_size": -1}, "refresh_size must be at least 1, got -1"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=lambda x: "" if isinstance(x, str) else next(iter(x)))
def test_a_bad_argument_gets_one_line(options, message):
    with pytest.raises(sr.BadInput, match=message):
        ShapingCallback(**options)


# -- advice -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [DQN, QRDQN])
def test_rewards_that_the_huber_loss_hides_are_spoken_of_once_with_the_remedy(slips, algorithm):
    """Slips of −49 among rewards of 1: a pair's mean is about −4, and the furthest reward 45 from it."""
    message = r"up to 4\d.* from their mean, but the Huber loss of DQN and QR-DQN .* multiply rewards by 0.02"
    for callback in (None, ShapingCallback()):
        with pytest.warns(ShapingWarning, match=message) as caught:
            made(slips(2, bad=-49.0), algorithm).learn(2500, callback=callback)
        assert len(caught) == 1


def test_nobody_is_warned_of_small_rewards_or_normalised_ones_or_another_loss(slips):
    class Squared(DQN):
        def train(self, gradient_steps, batch_size=100):
            super().train(gradient_steps, batch_size)

    made(slips(2, bad=-0.9)).learn(1100)
    made(slips(2, bad=-49.0), Squared).learn(1100, callback=ShapingCallback())
    made(slips(2, bad=-49.0, actions="box"), SAC, key=None, train_freq=100).learn(1100)
    small = VecNormalize(slips(2, bad=-3.0), clip_reward=100.0)
    small.ret_rms.mean, small.ret_rms.var, small.ret_rms.count = 0.0, 100.0, 1e9
    made(small).learn(1100)


class Slope(gymnasium.Env):
    """A place in [0, 1], drawn anew each step, and a reward that is the place: no chance in it at all."""

    observation_space, action_space = gymnasium.spaces.Box(0.0, 1.0, (1,)), gymnasium.spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.random(1, np.float32)
        return self.place, {}

    def step(self, action):
        reward, self.place = float(self.place[0]), self.np_random.random(1, np.float32)
        return self.place, reward, False, bool(self.np_random.random() < 0.1), {}


@pytest.mark.parametrize(
    ("key", "message"),
    [(sr.TileKey(tiles=2), "the key is too coarse"), (sr.ExactKey(), "the key is too fine")],
    ids=["coarse", "fine"],
)
def test_a_key_that_does_not_fit_is_spoken_of_once(key, message):
    with pytest.warns(ShapingWarning, match=message) as caught:
        made(Slope(), key=key).learn(4300)
    assert len(caught) == 1


def test_steps_that_sb3_ignores_are_spoken_of(slips):
    with pytest.warns(UserWarning, match="`n_steps=3` is ignored"):
        model = made(slips(), n_steps=3)
    with pytest.warns(ShapingWarning, match="n_steps=3 is ignored by SB3 .* set it in replay_buffer_kwargs"):
        model.learn(50, callback=ShapingCallback())


def test_targets_by_another_gamma_than_the_models_are_spoken_of(slips):
    model = made(slips(), gamma=0.9)
    model.replay_buffer = ShapedReplayBuffer.from_buffer(model.replay_buffer, n_steps=3)
    with pytest.warns(ShapingWarning, match=r"the model has gamma=0.9 but targets use gamma=0.99; set it in"):
        model.learn(50, callback=ShapingCallback())


def test_the_worst_transition_of_a_pair_has_its_own_reward_with_n_step_targets_too(slips):
    model, callback = made(slips(2)), ShapingCallback()
    model.replay_buffer = ShapedReplayBuffer.from_buffer(model.replay_buffer, n_steps=3)
    model.learn(600, callback=callback)
    assert {row["reward"] for row in callback.most_replayed(4)} == {-1.0}


def test_returns_by_another_gamma_than_the_models_are_spoken_of(slips):
    message = "the model has gamma=0.9 but tilted returns use gamma=0.99; set it in replay_buffer_kwargs"
    with pytest.warns(ShapingWarning, match=message):
        made(slips(), tilt_on="return", gamma=0.9).learn(50, callback=ShapingCallback())


# -- targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [DQN, QRDQN, SAC, TD3, TQC])
def test_targets_are_what_the_algorithm_would_learn_from(slips, algorithm):
    actions = "discrete" if algorithm in (DQN, QRDQN) else "box"
    model = made(slips(2, actions=actions), algorithm, key=None, tilt_on="target", gamma=0.9)
    model.learn(200, callback=ShapingCallback(refresh_every=50))
    buffer, slots = model.replay_buffer, model.replay_buffer.held()
    obs = torch.as_tensor(buffer.next_observations.reshape(-1, 4)[slots])
    with torch.no_grad():
        if algorithm is DQN:
            value = model.q_net_target(obs).max(1).values
        elif algorithm is QRDQN:
            value = model.quantile_net_target(obs).mean(1).max(1).values
        else:
            act = model.actor_target(obs) if algorithm is TD3 else model.actor(obs, deterministic=True)
        if algorithm is TQC:  # 2 critics of 25 quantiles, of which the highest 2 each are dropped
            value = model.critic_target(obs, act).reshape(-1, 50).sort(1).values[:, :46].mean(1)
        elif algorithm in (SAC, TD3):
            value = torch.minimum(*model.critic_target(obs, act)).ravel()
    over = buffer.dones.ravel()[slots] * (1 - buffer.timeouts.ravel()[slots])
    wanted = buffer.rewards.ravel()[slots] + 0.9 * (1 - over) * value.numpy()
    np.testing.assert_allclose(targets(model, buffer, slots), wanted, rtol=1e-5, atol=1e-6)
    assert buffer.timeouts.sum() > 0
    known = buffer.shaper.index.x_of(slots)
    assert np.isfinite(known).mean() > 0.7


@pytest.mark.parametrize("n_envs", [1, 2])
def test_targets_of_several_steps_are_what_the_algorithm_would_learn_from(slips, n_envs):
    """r + γr' + γ²r'' + γ³·max Q, less where an episode ends, by a loop over the steps."""
    model = made(slips(n_envs), tilt_on="target", gamma=0.9)
    model.replay_buffer = ShapedReplayBuffer.from_buffer(model.replay_buffer, n_steps=3, gamma=0.9)
    model.learn(200, callback=ShapingCallback(refresh_every=50))
    buffer, slots = model.replay_buffer, model.replay_buffer.held()
    wanted = np.zeros(slots.size)
    with torch.no_grad():
        after = torch.as_tensor(buffer.next_observations.reshape(-1, 4))
        values = model.q_net_target(after).max(1).values.numpy().reshape(-1, n_envs)
    for i, slot in enumerate(slots):
        t, e = divmod(slot, n_envs)
        for step in range(3):
            wanted[i] += 0.9**step * buffer.rewards[t + step, e]
            if buffer.dones[t + step, e] or step == 2 or t + step == buffer.pos - 1:
                goes_on = 1 - buffer.dones[t + step, e] * (1 - buffer.timeouts[t + step, e])
                wanted[i] += goes_on * 0.9 ** (step + 1) * values[t + step, e]
                break
    np.testing.assert_allclose(targets(model, buffer, slots), wanted, rtol=1e-5, atol=1e-5)


def test_all_targets_are_known_when_learning_starts_and_new_ones_soon(slips):
    model, known = made(slips(), tilt_on="target", learning_starts=100), []
    callback = ShapingCallback(refresh_every=20)

    def look(*_):
        index = model.replay_buffer.shaper.index
        known.append((len(index), np.isfinite(index.x_of(model.replay_buffer.held())).sum()))

    sample = model.replay_buffer.sample
    model.replay_buffer.sample = lambda *args, **kwargs: (look(), sample(*args, **kwargs))[1]
    model.learn(300, callback=callback)
    assert known[0] == (104, 104)
    assert all(held - with_target < 20 for held, with_target in known)


def test_targets_need_an_algorithm_that_has_them(slips):
    model = made(slips(), tilt_on="target")
    model._setup_learn(10)
    callback = ShapingCallback()
    callback.init_callback(model)
    del model.q_net_target
    with pytest.raises(sr.BadInput, match="model must have target networks, got 'DQN'; DQN, QRDQN"):
        callback.on_training_start({}, {})
