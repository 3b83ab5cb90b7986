"""The sampler for TorchRL: what it draws from which storage, what it keeps, and what it refuses."""

import copy
import pickle
import threading

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from tensordict import TensorDict
from torch._dynamo.testing import CompileCounter
from torchrl.data import (
    LazyMemmapStorage,
    LazyStackStorage,
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
)
from torchrl.data.replay_buffers import SampleUnit, Sequence
from torchrl.envs import GymWrapper

import safereplay as sr
from safereplay.torchrl import EmptyStorage, ShapedSampler

torch.set_num_threads(1)

STATES, ACTIONS = 4, 2
STORAGES = [LazyTensorStorage, LazyMemmapStorage, ListStorage, LazyStackStorage]


def transitions(n, seed=0, one_hot=True, shape=None):
    """Random steps in a world of 8 pairs: half of them always give 1, the others give -5 one time in four."""
    rng = np.random.default_rng(seed)
    s, a = rng.integers(STATES, size=n), rng.integers(ACTIONS, size=n)
    r = np.where((s % 2 == 0) & (rng.random(n) < 0.25), -5.0, 1.0)
    done = rng.random(n) < 0.1
    action = np.eye(ACTIONS, dtype=bool)[a] if one_hot else a
    step = {
        "observation": torch.from_numpy(np.eye(STATES, dtype=np.float32)[s]),
        "action": torch.from_numpy(action),
        "next": {
            "observation": torch.zeros(n, STATES),
            "reward": torch.from_numpy(r.astype(np.float32))[:, None],
            "done": torch.from_numpy(done)[:, None],
        },
    }
    data = TensorDict(step, [n])
    return data if shape is None else data.reshape(shape)


def shaped(
    capacity=200, storage=LazyTensorStorage, buffer=TensorDictReplayBuffer, batch=64, storage_kwargs=None, **kwargs
):
    if "beta" not in kwargs:
        kwargs = {"scheme": sr.ScoreReplay(), **kwargs}  # what ``expected`` computes
    sampler = ShapedSampler(**{"key": sr.ExactKey(), "seed": 3, "report": True, **kwargs})
    return buffer(storage=storage(capacity, **(storage_kwargs or {})), sampler=sampler, batch_size=batch)


def index_of(buffer):
    return buffer.sampler.shaper.index


def drawn(buffer, draws, batch=2_000, capacity=None):
    """How often each slot came, as shares."""
    storage, capacity = buffer.storage, capacity or index_of(buffer).capacity
    counts = np.zeros(capacity)
    for _ in range(draws // batch):
        index, _ = buffer.sampler.sample(storage, batch)
        slots = (
            np.ravel_multi_index([i.numpy() for i in index], (capacity, *storage.shape[1:]))
            if storage.ndim > 1
            else index.numpy()
        )
        counts += np.bincount(slots, minlength=capacity)
    return counts / counts.sum()


def assert_draws_follow(buffer, p, draws=200_000):
    """Total variation at the Monte-Carlo floor: E[TV] ≤ ½·Σ√(p(1−p)/M), and it leaves that by more than
    √(ln 10⁶ / 2M) with probability 10⁻⁶ (McDiarmid).
    """
    floor = 0.5 * np.sqrt(p * (1 - p) / draws).sum()
    distance = 0.5 * np.abs(drawn(buffer, draws) - p).sum()
    assert distance < floor + np.sqrt(np.log(1e6) / (2 * draws))


def expected(buffer, v=0.5, beta=1.0):
    """p̃ of the slots, from what the storage holds and nothing else."""
    storage = buffer.storage
    held = storage[: len(storage)]
    data = torch.stack(list(held)) if isinstance(held, list) else held.reshape(-1)
    pair = np.unique(np.concatenate([data["observation"], data["action"]], 1), axis=0, return_inverse=True)[1].reshape(
        -1
    )
    r = data["next", "reward"].numpy().astype(float)[:, 0]
    p = np.full(r.size, 1 / r.size)
    for k in np.unique(pair):
        here = pair == k
        if r[here].std() > 1e-6:
            tilt = np.exp(-beta * (r[here] - r[here].mean()) / r[here].std())
            p[here] = here.mean() * ((1 - v) / here.sum() + v * tilt / tilt.sum())
    return p


def padded(p, capacity):
    return np.concatenate([p, np.zeros(capacity - p.size)])


# -- what is drawn ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("written", [150, 520])
def test_draws_follow_the_exact_mixture_also_after_the_ring_wrapped(storage, written):
    """Seed 3, 200 slots, 200,000 draws; uniform draws would be 0.13 away."""
    buffer = shaped(storage=storage)
    data = transitions(written)
    for k in range(0, written, 65):
        buffer.extend(data[k : k + 65])
    p = index_of(buffer).distribution()
    np.testing.assert_allclose(p, padded(expected(buffer), 200), atol=1e-12)
    assert 0.5 * np.abs(p - padded(np.full(len(buffer), 1 / len(buffer)), 200)).sum() > 0.1
    assert_draws_follow(buffer, p)


def test_a_batch_longer_than_the_ring_leaves_its_last_part():
    buffer = shaped(capacity=50)
    buffer.extend(transitions(30, seed=1))
    buffer.extend(transitions(128, seed=2))
    assert len(index_of(buffer)) == 50
    np.testing.assert_allclose(index_of(buffer).distribution(), expected(buffer), atol=1e-12)


def test_one_transition_at_a_time_is_the_same_as_many():
    one, many = shaped(), shaped()
    data = transitions(260)
    for step in data:
        one.add(step)
    many.extend(data)
    np.testing.assert_array_equal(index_of(one).distribution(), index_of(many).distribution())


@pytest.mark.parametrize("buffer", [ReplayBuffer, TensorDictReplayBuffer])
def test_a_storage_of_two_dimensions_is_numbered_through(buffer):
    """[3 environments, 20 steps] at a time into 100 slots of 3: 102, for TorchRL rounds up. Seed 3, 200,000 draws."""
    shared = shaped(capacity=100, buffer=buffer, storage_kwargs={"ndim": 2})
    for seed in range(3):
        shared.extend(transitions(60, seed, shape=(3, 20)))
    assert index_of(shared).capacity == len(index_of(shared)) == 102
    assert sorted(shared.storage.shape) == [3, 34]
    np.testing.assert_allclose(index_of(shared).distribution(), expected(shared), atol=1e-12)
    assert_draws_follow(shared, index_of(shared).distribution())
    assert shared.sample().shape == (64,)


def test_nothing_is_shaped_at_v_zero():
    buffer = shaped(v=0.0)
    buffer.extend(transitions(200))
    np.testing.assert_allclose(index_of(buffer).distribution(), 1 / 200)
    assert not buffer.sample()["tilted"].any()


def test_the_same_seed_gives_the_same_draws_and_another_gives_others():
    def indices(seed):
        buffer = shaped(seed=seed)
        buffer.extend(transitions(200))
        return torch.stack([buffer.sample()["index"] for _ in range(5)])

    assert torch.equal(indices(1), indices(1))
    assert not torch.equal(indices(1), indices(2))


def test_torchs_seed_repeats_the_draws_unless_the_sampler_has_its_own():
    def indices(torchs, **kwargs):
        buffer = shaped(**kwargs)
        buffer.extend(transitions(200))
        with torch.random.fork_rng():
            torch.manual_seed(torchs)
            return torch.stack([buffer.sample()["index"] for _ in range(5)])

    first = indices(0, seed=None)
    assert len({tuple(row) for row in first.tolist()}) == 5
    assert torch.equal(first, indices(0, seed=None))
    assert not torch.equal(first, indices(1, seed=None))
    assert torch.equal(indices(0, seed=1), indices(1, seed=1))


def test_without_a_seed_the_buffers_generator_is_followed_and_the_mixture_stays_exact():
    def buffer(seed):
        made = TensorDictReplayBuffer(
            storage=LazyTensorStorage(200),
            sampler=ShapedSampler(key=sr.ExactKey()),
            generator=torch.Generator().manual_seed(seed),
            batch_size=64,
        )
        made.extend(transitions(200))
        return made

    assert torch.equal(buffer(0).sample()["index"], buffer(0).sample()["index"])
    assert not torch.equal(buffer(0).sample()["index"], buffer(1).sample()["index"])
    assert_draws_follow(buffer(0), index_of(buffer(0)).distribution())


class Twice(SampleUnit):
    """Each draw and the one after it: more records than draws."""

    def expand(self, index, info, storage):
        return torch.stack([index, (index + 1) % len(storage)], 1).reshape(-1), info


@pytest.mark.parametrize("unit", [Twice(), Sequence(length=3)], ids=["own", "TorchRL's"])
def test_a_sample_unit_may_make_more_records_than_were_drawn(unit):
    sampler = ShapedSampler(key=sr.ExactKey())
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(200), sampler=sampler, batch_size=8, sample_unit=unit)
    buffer.extend(transitions(200))
    batch = buffer.sample()
    assert len(batch) in (16, 24)
    assert "rho" not in batch.keys()  # noqa: SIM118  (a tensordict iterates over its rows)


def test_it_works_inside_torch_compile():
    """The graph breaks at the sampler, and nothing is compiled again once it ran a few times."""
    torch._dynamo.reset()
    storage, sampler, counter = LazyTensorStorage(400), ShapedSampler(key=sr.ExactKey(), seed=3), CompileCounter()
    storage.set(torch.arange(160), transitions(160))

    @torch.compile(backend=counter)
    def turn(index):
        sampler.mark_update(index + 0, storage=storage)
        drawn, _ = sampler.sample(storage, 64)
        return drawn * 2

    seen = []
    for n in range(8):
        assert turn(torch.arange(20 * n, 20 * n + 20)).max() < 40 * (n + 1)
        seen.append(counter.frame_count)
    assert len(sampler.shaper) == 160
    assert 0 < seen[3] == seen[-1]
    torch._dynamo.reset()


def test_a_sample_says_what_was_tilted_and_how_much_its_pairs_are():
    """Seed 3, 64,000 draws: half of the draws at pairs that vary, to 4 standard errors; none at pairs that do not."""
    buffer = shaped(buffer=ReplayBuffer, batch=64_000)
    buffer.extend(transitions(200))
    data, info = buffer.sample(return_info=True)
    varies = data["observation"][:, ::2].any(1)
    assert info["tilted"].dtype == torch.bool
    assert torch.equal(info["rho"], torch.where(varies, 0.5, 0.0).double())
    assert not info["tilted"][~varies].any()
    assert abs(info["tilted"][varies].double().mean() - 0.5) < 4 * 0.5 / varies.sum() ** 0.5
    both = TensorDictReplayBuffer(storage=buffer.storage, sampler=buffer.sampler, batch_size=8).sample()
    assert both["tilted"].shape == both["rho"].shape == (8,)


def test_pairs_come_as_often_as_they_lie_in_the_storage():
    """A draw is of its anchor's pair, so pairs are as frequent as uniform draws make them: chi-squared at seed 3,
    200,000 draws, 7 degrees of freedom, bound 40.5 (p = 10⁻⁶)."""
    buffer = shaped(v=0.9, beta=3.0)
    buffer.extend(transitions(200))
    _, pair = np.unique(index_of(buffer).key_of(np.arange(200)), return_inverse=True)
    observed = np.bincount(pair, drawn(buffer, 200_000) * 200_000)
    wanted = np.bincount(pair) * 1_000.0
    assert ((observed - wanted) ** 2 / wanted).sum() < 40.5


@settings(max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(["extend", "add", "sample", "empty"]), st.integers(1, 40)), max_size=12))
def test_whatever_happens_every_slot_has_the_pair_and_the_reward_of_what_it_holds(steps):
    buffer = shaped(capacity=16, batch=None)
    for k, (step, n) in enumerate(steps):
        if step == "extend":
            buffer.extend(transitions(n, seed=k))
        elif step == "add":
            buffer.add(transitions(1, seed=k)[0])
        elif step == "empty":
            buffer.empty()
        elif len(buffer):
            assert int(buffer.sample(n)["index"].max()) < len(buffer)
        if len(buffer):
            slots, held = np.arange(len(buffer)), buffer[:]
            keys = sr.ExactKey()(held["observation"].numpy(), held["action"].numpy())
            np.testing.assert_array_equal(index_of(buffer).key_of(slots), keys)
            np.testing.assert_array_equal(index_of(buffer).x_of(slots), held["next", "reward"][:, 0].numpy())
            assert len(index_of(buffer)) == len(buffer)


# -- without keys -----------------------------------------------------------------------------------------------------


def rewards_of(data):
    """TD errors if every value is 0."""
    return data["next", "reward"]


def key_free(capacity=200, storage=LazyTensorStorage, buffer=TensorDictReplayBuffer, storage_kwargs=None, **kwargs):
    sampler = ShapedSampler(**{"td_errors": rewards_of, "seed": 3, "report": True, **kwargs})
    return buffer(storage=storage(capacity, **(storage_kwargs or {})), sampler=sampler, batch_size=64)


def ramp(n, shape=None):
    """Transitions whose rewards go up from -4 to 1."""
    data = transitions(n)
    data["next", "reward"] = torch.linspace(-4.0, 1.0, n)[:, None]
    return data if shape is None else data.reshape(shape)


def chi_squared(buffer, v=0.8, beta=1.0, draws=200_000):
    """The distance of draws from ∝ (1 − v) + v·h(δ), and the bound on it that a true sampler breaks with p = 10⁻⁶.

    Eight batches share a pool, which multiplies the variance of a slot's count by at most 1 + e²/((1 + e)·w̄), if 1 + e is the
    largest weight and w̄ the mean of the weights.
    """
    held = buffer.storage[: len(buffer.storage)]
    delta = (torch.stack(held) if isinstance(held, list) else held.reshape(-1))["next", "reward"].double().numpy()[:, 0]
    unit = (delta**2).sum() / np.abs(delta).sum()
    weights = 1 + v / (1 - v) * np.minimum(beta * np.maximum(-delta, 0) / unit, 1)
    e, p = weights.max() - 1, weights / weights.sum()
    found = drawn(buffer, draws, capacity=delta.size)
    bound = chi2.isf(1e-6, delta.size - 1) * (1 + e**2 / ((1 + e) * weights.mean()))
    return draws * ((found - p) ** 2 / p).sum(), bound


@pytest.mark.parametrize("storage", STORAGES)
def test_without_keys_a_transition_is_drawn_by_its_surprise(storage):
    """Seed 3, 40 transitions in 60 slots, 200,000 draws; uniform draws would be far outside of the bound."""
    buffer = key_free(60, storage)
    buffer.extend(ramp(40))
    distance, bound = chi_squared(buffer)
    assert distance < bound
    buffer.sampler.surprise.v = 0.0
    assert chi_squared(buffer)[0] > 50 * bound


@pytest.mark.parametrize("buffer", [ReplayBuffer, TensorDictReplayBuffer])
@pytest.mark.parametrize("capacity", [60, 90], ids=["full", "partly filled"])
def test_without_keys_a_storage_of_two_dimensions_will_do(buffer, capacity):
    """Seed 3, [3 environments, 20 steps], 200,000 draws."""
    shared = key_free(capacity, buffer=buffer, storage_kwargs={"ndim": 2})
    shared.extend(ramp(60, (3, 20)))
    distance, bound = chi_squared(shared)
    assert distance < bound
    assert shared.sample().shape == (64,)


def test_the_function_gets_transitions_as_the_storage_gives_them_without_gradients():
    seen = []

    def td_errors(data):
        seen.append((data.shape, data["observation"].shape, torch.is_grad_enabled()))
        return data["next", "reward"][:, 0].numpy()

    buffer = key_free(storage=ListStorage, td_errors=td_errors)
    buffer.extend(transitions(100))
    for _ in range(9):
        buffer.sample()
    assert seen == [((512,), (512, STATES), False)] * 2


def test_a_function_of_plain_dicts_gets_plain_dicts():
    buffer = key_free(buffer=ReplayBuffer, td_errors=lambda data: data["next"]["reward"])
    buffer.extend(transitions(100).to_dict())
    _, info = buffer.sample(return_info=True)
    assert sorted(set(info) - {"index"}) == ["tilted"]
    assert info["tilted"].any()


def test_the_reach_of_a_loss_makes_large_errors_more_frequent():
    """At v = 0 and reach 1, a TD error of 4 is drawn 4 times as often as one of up to 1. Seed 3, 64,000 draws, 5 standard errors."""
    buffer = key_free(v=0.0, reach=1.0)
    data = transitions(100)
    data["next", "reward"] = torch.where(torch.arange(100) < 20, 4.0, 0.5)[:, None]
    buffer.extend(data)
    share = drawn(buffer, 64_000, capacity=100)[:20].sum()
    assert abs(share - 0.5) < 5 * np.sqrt(0.25 * 3 / 64_000)


def test_without_keys_seeds_and_generators_repeat_the_draws():
    def indices(torchs=0, **kwargs):
        buffer = key_free(**kwargs)
        buffer.extend(transitions(200))
        with torch.random.fork_rng():
            torch.manual_seed(torchs)
            return torch.stack([buffer.sample()["index"] for _ in range(10)])

    assert torch.equal(indices(0, seed=1), indices(1, seed=1))
    assert not torch.equal(indices(seed=1), indices(seed=2))
    first = indices(0, seed=None)
    assert len({tuple(row) for row in first.tolist()}) == 10
    assert torch.equal(first, indices(0, seed=None))
    assert not torch.equal(first, indices(1, seed=None))


def test_without_keys_and_seed_the_buffers_generator_is_followed_and_the_weights_stay_exact():
    def buffer(seed):
        sampler, generator = ShapedSampler(td_errors=rewards_of), torch.Generator().manual_seed(seed)
        made = TensorDictReplayBuffer(
            storage=LazyTensorStorage(40), sampler=sampler, generator=generator, batch_size=64
        )
        made.extend(ramp(40))
        return made

    assert torch.equal(buffer(0).sample()["index"], buffer(0).sample()["index"])
    assert not torch.equal(buffer(0).sample()["index"], buffer(1).sample()["index"])
    distance, bound = chi_squared(buffer(0))
    assert distance < bound


def test_what_was_emptied_is_not_drawn_again():
    buffer = key_free()
    buffer.extend(transitions(200))
    buffer.sample()
    buffer.empty()
    assert buffer.sampler.surprise.unit == 0.0
    buffer.extend(transitions(5))
    assert buffer.sample()["index"].max() < 5


def test_a_smaller_storage_gets_another_pool():
    buffer = key_free()
    buffer.extend(transitions(200))
    buffer.sample()
    small = TensorDictReplayBuffer(storage=LazyTensorStorage(9), sampler=buffer.sampler, batch_size=64)
    small.extend(transitions(9))
    assert small.sample()["index"].max() < 9


def test_without_keys_it_says_its_dials_and_what_it_has_not():
    sampler = key_free(beta=2.0).sampler
    assert repr(sampler) == "ShapedSampler(v=0.8, beta=2, tilt_on='td_error')"
    with pytest.raises(sr.BadInput, match="sampler must have keys, for a shaper, got 'td_errors'; it has a surprise"):
        sampler.due(3)
    with pytest.raises(sr.BadInput, match="sampler must have td_errors, for a surprise, got 'keys'"):
        ShapedSampler().surprise  # noqa: B018
    with pytest.warns(UserWarning, match="not prioritized"):
        sampler.update_priority(torch.arange(3), torch.ones(3))


# -- what a transition is ---------------------------------------------------------------------------------------------


def test_one_hot_actions_make_the_same_pairs_as_numbered_ones():
    hot, numbered = shaped(), shaped()
    hot.extend(transitions(200))
    numbered.extend(transitions(200, one_hot=False))
    assert index_of(hot).n_pairs == index_of(numbered).n_pairs == STATES * ACTIONS
    np.testing.assert_array_equal(index_of(hot).distribution(), index_of(numbered).distribution())


def test_without_a_key_one_hot_data_finds_its_pairs_by_itself():
    buffer = shaped(capacity=3_000, key=None)
    buffer.extend(transitions(2_500))
    assert index_of(buffer).n_pairs == STATES * ACTIONS


def test_entries_can_have_any_name_and_observations_several():
    data = transitions(100)
    renamed = TensorDict(
        {
            "where": {"row": data["observation"][:, :2], "column": data["observation"][:, 2:]},
            "move": data["action"],
            "r": data["next", "reward"][:, 0],
            "over": data["next", "done"],
        },
        [100],
    )
    names = {"action": "move", "reward": "r", "done": "over"}
    whole, parts = (
        shaped(observation="where", **names),
        shaped(observation=[("where", "row"), ("where", "column")], **names),
    )
    plain = shaped()
    plain.extend(data)
    for buffer in (whole, parts):
        buffer.extend(renamed)
        np.testing.assert_array_equal(index_of(buffer).distribution(), index_of(plain).distribution())


def test_a_storage_of_plain_dicts_will_do():
    data = transitions(100)
    buffer, plain = shaped(buffer=ReplayBuffer), shaped()
    buffer.extend(data.to_dict())
    plain.extend(data)
    np.testing.assert_array_equal(index_of(buffer).distribution(), index_of(plain).distribution())


def test_what_torchrls_own_environments_give_fits_as_it_is():
    """Rollouts of the cliff, one environment and two side by side: 76 pairs, one-hot states, one-hot actions."""
    one, two = shaped(capacity=1_000), shaped(capacity=1_000, storage_kwargs={"ndim": 2})
    env = GymWrapper(gymnasium.make("safereplay/Cliff-v0"))
    env.set_seed(0)
    with torch.random.fork_rng():  # TorchRL's random actions come from torch's one generator
        torch.manual_seed(0)
        data = env.rollout(800, break_when_any_done=False)
    env.close()
    assert data["action"].shape == (800, 4)
    one.extend(data)
    two.extend(data.reshape(2, 400))
    assert index_of(one).n_pairs == index_of(two).n_pairs == 19 * 4
    np.testing.assert_allclose(index_of(one).distribution()[:800], expected(one), atol=1e-12)
    assert one.sample()["tilted"].any()
    assert two.sample()["tilted"].any()


def test_a_sampler_that_comes_later_reads_what_is_there():
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(200), batch_size=32)
    buffer.extend(transitions(150))
    buffer.set_sampler(ShapedSampler(key=sr.ExactKey(), scheme=sr.ScoreReplay()))
    buffer.sample()
    np.testing.assert_allclose(index_of(buffer).distribution(), padded(expected(buffer), 200), atol=1e-12)


def test_what_was_changed_in_place_is_read_again_when_it_is_marked():
    buffer = shaped()
    buffer.extend(transitions(100))
    buffer.set_at_(("next", "reward"), torch.full((5, 1), -9.0), torch.arange(5))
    buffer.mark_update(torch.arange(5))
    np.testing.assert_array_equal(index_of(buffer).x_of(np.arange(5)), np.full(5, -9.0))


def test_a_writer_that_keeps_the_best_is_followed():
    writer = TensorDictMaxValueWriter(rank_key=("next", "reward"))
    sampler = ShapedSampler(key=sr.ExactKey())
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(20), sampler=sampler, writer=writer, batch_size=8)
    for seed in range(4):
        buffer.extend(transitions(30, seed))
    np.testing.assert_allclose(index_of(buffer).distribution(), expected(buffer), atol=1e-12)


def test_emptied_it_begins_again():
    buffer = shaped()
    buffer.extend(transitions(100))
    buffer.empty()
    assert len(index_of(buffer)) == 0
    buffer.extend(transitions(30, seed=5))
    np.testing.assert_allclose(index_of(buffer).distribution(), padded(expected(buffer), 200), atol=1e-12)


# -- targets ----------------------------------------------------------------------------------------------------------


def test_targets_are_set_as_priorities_are_and_tilt_once_they_are_known():
    buffer = shaped(tilt_on="target")
    buffer.extend(transitions(100))
    np.testing.assert_allclose(index_of(buffer).distribution()[:100], 0.01)
    due = buffer.sampler.due(1_000)
    assert sorted(due.tolist()) == list(range(100))
    buffer.update_priority(due, buffer[due]["next", "reward"])
    np.testing.assert_allclose(index_of(buffer).distribution(), padded(expected(buffer), 200), atol=1e-12)


def test_targets_reach_a_storage_of_two_dimensions():
    buffer = shaped(capacity=60, tilt_on="target", storage_kwargs={"ndim": 2})
    buffer.extend(transitions(60, shape=(3, 20)))
    due = buffer.sampler.due(60, buffer.storage)
    buffer.update_priority(due, buffer.storage[due]["next", "reward"])
    np.testing.assert_allclose(index_of(buffer).distribution(), expected(buffer), atol=1e-12)


def test_priorities_mean_nothing_elsewhere_and_torchrl_says_so():
    buffer = shaped()
    buffer.extend(transitions(10))
    with pytest.warns(UserWarning, match="not prioritized"):
        buffer.update_priority(torch.arange(3), torch.ones(3))


def test_returns_are_those_of_each_environment():
    """Two environments side by side, [2, 6] at a time; three-step returns with γ = 0.5, by hand."""
    reward = torch.tensor([[1.0, 2, 4, 8, 16, 32], [3.0, 5, 7, 9, 11, 13]])
    done = torch.zeros(2, 6, dtype=torch.bool)
    done[0, 3] = True
    data = TensorDict({"observation": torch.zeros(2, 6, 1), "action": torch.zeros(2, 6, dtype=torch.long)}, [2, 6])
    data["next"] = TensorDict({"reward": reward[..., None], "done": done[..., None]}, [2, 6])
    buffer = shaped(capacity=12, tilt_on="return", n_step=3, gamma=0.5, storage_kwargs={"ndim": 2})
    buffer.extend(data[:, :4])
    buffer.extend(data[:, 4:])
    x = index_of(buffer).x_of(np.arange(12)).reshape(6, 2).T
    np.testing.assert_array_equal(x[0, :4], [3.0, 6.0, 8.0, 8.0])
    np.testing.assert_array_equal(x[1, :4], [7.25, 10.75, 14.25, 17.75])


def test_returns_of_a_batch_longer_than_the_ring_are_those_of_its_last_part():
    """Ten steps into six slots that held others; two-step returns with γ = 0.5, by hand: r_t + r_{t+1} / 2."""
    reward = torch.arange(10.0)[:, None]
    data = TensorDict({"observation": torch.zeros(10, 1), "action": torch.zeros(10)}, [10])
    data["next"] = TensorDict({"reward": reward, "done": torch.zeros(10, 1, dtype=torch.bool)}, [10])
    buffer = shaped(capacity=6, tilt_on="return", n_step=2, gamma=0.5)
    buffer.extend(data[:4])
    buffer.extend(data)
    held = buffer[:]["next", "reward"][:, 0].numpy()
    assert sorted(held) == [4, 5, 6, 7, 8, 9]
    x = index_of(buffer).x_of(np.arange(6))
    np.testing.assert_array_equal(x[held < 9], (held + (held + 1) / 2)[held < 9])
    assert np.isnan(x[held == 9]).all()


# -- saving -----------------------------------------------------------------------------------------------------------


def where_and_what(observation, action):
    return observation.argmax(1) * ACTIONS + action.argmax(1)


def by_state_dict(buffer, fresh, _):
    fresh.load_state_dict(buffer.state_dict())


def by_torch_save(buffer, fresh, folder):
    torch.save(buffer.sampler.state_dict(), folder / "sampler.pt")
    buffer.dumps(folder)
    fresh.loads(folder)
    fresh.sampler.load_state_dict(torch.load(folder / "sampler.pt", weights_only=True))


def by_files(buffer, fresh, folder):
    buffer.dumps(folder)
    assert sorted(file.name for file in (folder / "sampler").iterdir()) == ["sampler.npz"]
    fresh.loads(folder)


@pytest.mark.parametrize("way", [by_state_dict, by_files, by_torch_save])
@pytest.mark.parametrize(
    "key", [sr.ExactKey(), None, sr.FunctionKey(where_and_what)], ids=["exact", "auto", "function"]
)
def test_what_is_loaded_goes_on_draw_by_draw_as_if_never_stopped(way, key, tmp_path):
    buffer, fresh = (shaped(capacity=400, key=key, seed=seed) for seed in (3, 99))
    buffer.extend(transitions(1_300))
    buffer.sample()
    way(buffer, fresh, tmp_path)
    np.testing.assert_array_equal(index_of(fresh).distribution(), index_of(buffer).distribution())
    for k in range(5):
        for one in (buffer, fresh):
            one.extend(transitions(70, seed=k))
        a, b = buffer.sample(), fresh.sample()
        assert torch.equal(a["index"], b["index"])
        assert torch.equal(a["tilted"], b["tilted"])
        assert torch.equal(a["observation"], b["observation"])
    assert_draws_follow(fresh, index_of(fresh).distribution())


@pytest.mark.parametrize("way", [by_state_dict, by_files, by_torch_save])
@pytest.mark.parametrize("reach", [None, 1.0])
def test_without_keys_too_what_is_loaded_goes_on_draw_by_draw(way, reach, tmp_path):
    """Three batches into a pool of eight, and across the next pools."""
    buffer, fresh = (key_free(v=v, reach=reach, seed=seed) for v, seed in ((0.6, 3), (0.9, 99)))
    buffer.extend(transitions(500))
    for _ in range(3):
        buffer.sample()
    way(buffer, fresh, tmp_path)
    assert repr(fresh.sampler) == repr(buffer.sampler)
    for k in range(12):
        for one in (buffer, fresh):
            one.extend(transitions(7, seed=k))
        a, b = buffer.sample(), fresh.sample()
        assert torch.equal(a["index"], b["index"])
        assert torch.equal(a["tilted"], b["tilted"])


@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])  # TorchRL saves no others to files
def test_a_buffer_on_disk_that_was_filled_without_us_is_loaded_and_shaped(storage, tmp_path):
    """Seed 3, 200,000 draws."""
    plain = TensorDictReplayBuffer(storage=storage(40), batch_size=8)
    plain.extend(ramp(40))
    plain.dumps(tmp_path)
    buffer = key_free(40, storage)
    buffer.loads(tmp_path)
    distance, bound = chi_squared(buffer)
    assert distance < bound
    buffer.sampler.load_state_dict(plain.sampler.state_dict())
    assert buffer.sampler.surprise.unit == 0.0


@pytest.mark.parametrize("other", [key_free, shaped])
def test_a_state_with_keys_and_one_without_are_not_mixed_up(other):
    mine = {key_free: shaped, shaped: key_free}[other]()
    for buffer in (filled := other(), mine):
        buffer.extend(transitions(20))
    with pytest.raises(sr.BadInput, match="state must be as state_dict gives it"):
        mine.sampler.load_state_dict(filled.sampler.state_dict())


def test_a_storage_of_two_dimensions_is_saved_and_loaded(tmp_path):
    buffer, fresh = (shaped(capacity=60, storage_kwargs={"ndim": 2}) for _ in range(2))
    buffer.extend(transitions(60, shape=(3, 20)))
    buffer.dumps(tmp_path)
    fresh.loads(tmp_path)
    for one in (buffer, fresh):
        one.extend(transitions(30, seed=1, shape=(3, 10)))
    assert torch.equal(buffer.sample()["index"], fresh.sample()["index"])


def test_one_that_was_never_written_to_is_saved_and_loaded(tmp_path):
    for state in ({}, ShapedSampler().state_dict()):
        used = shaped()
        used.extend(transitions(10))
        used.sampler.load_state_dict(state)
        assert repr(used.sampler) == "ShapedSampler(v=0.5, tilt_on='reward', held=0, pairs=0)"
    ShapedSampler().dumps(tmp_path)
    used = shaped()
    used.extend(transitions(10))
    used.sampler.loads(tmp_path)
    assert "held=0" in repr(used.sampler)


def test_a_state_does_not_change_with_the_sampler_it_came_from():
    buffer, fresh = shaped(), shaped()
    buffer.extend(transitions(100))
    state = buffer.sampler.state_dict()
    kept = copy.deepcopy(state)
    buffer.extend(transitions(100, seed=1))
    buffer.sample()
    fresh.sampler.load_state_dict(state)
    fresh.sampler.load_state_dict(kept)
    assert len(index_of(fresh)) == 100


def test_it_travels_to_another_process():
    buffer = shaped()
    buffer.extend(transitions(100))
    assert repr(pickle.loads(pickle.dumps(buffer.sampler))) == repr(buffer.sampler)  # noqa: S301
    twin = copy.deepcopy(buffer.sampler)
    assert twin.shaper.draw(5).tolist() == buffer.sampler.shaper.draw(5).tolist()


@pytest.mark.parametrize("seed", [3, None])
def test_without_keys_it_travels_too_and_draws_the_same(seed):
    buffer = key_free(seed=seed)
    buffer.extend(transitions(100))
    buffer.sample()
    found = []
    for sampler in (pickle.loads(pickle.dumps(buffer.sampler)), copy.deepcopy(buffer.sampler), buffer.sampler):  # noqa: S301
        with torch.random.fork_rng():
            torch.manual_seed(0)
            found.append([sampler.sample(buffer.storage, 64)[0].tolist() for _ in range(10)])
    assert found[0] == found[1] == found[2]


# -- threads ----------------------------------------------------------------------------------------------------------


def test_prefetching_threads_and_a_writer_do_not_disturb_each_other():
    sampler = ShapedSampler(key=sr.ExactKey(), scheme=sr.ScoreReplay(), report=True)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(300), sampler=sampler, batch_size=32, prefetch=3)
    buffer.extend(transitions(300))
    stop, problems = threading.Event(), []

    def write():
        seed = 0
        while not stop.is_set():
            try:
                buffer.extend(transitions(17, seed := seed + 1))
            except Exception as error:
                problems.append(error)
                return

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(100):
            sample = buffer.sample()
            varies = sample["observation"][:, ::2].any(1)
            assert not sample["tilted"][~varies].any()
    finally:
        stop.set()
        writer.join()
    assert not problems
    buffer.synchronize()
    np.testing.assert_allclose(index_of(buffer).distribution(), expected(buffer), atol=1e-12)
    buffer.shutdown()


def test_without_keys_prefetching_threads_and_a_writer_do_not_disturb_each_other():
    """Rewards of 1 are no bad surprise if every value is 0."""
    sampler = ShapedSampler(td_errors=rewards_of, report=True)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(300), sampler=sampler, batch_size=32, prefetch=3)
    buffer.extend(transitions(300))
    tilted = 0
    for seed in range(60):
        tilted += int(buffer.sample()["tilted"].sum())
        buffer.extend(transitions(17, seed))
    assert 0 < tilted < 60 * 32
    buffer.synchronize()
    buffer.shutdown()


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [sr.BadInput, RuntimeError], ids=["ours", "as TorchRL's"])
def test_an_empty_storage_has_nothing_to_draw(error):
    with pytest.raises(error, match="storage must hold a transition, got an empty one; extend the buffer first"):
        shaped().sample()


def test_without_keys_an_empty_storage_is_refused_in_the_same_way():
    with pytest.raises(EmptyStorage, match="storage must hold a transition, got an empty one"):
        key_free().sample()


@pytest.mark.parametrize(
    ("td_errors", "message"),
    [
        (lambda data: data["next", "reward"] + torch.inf, "TD errors must be finite, got inf"),
        (lambda data: data["next", "reward"][1:], "TD errors must have one number per slot, 512, got 511"),
        (lambda data: "large", "TD errors must be an array of numbers, got 'large'"),
    ],
)
def test_td_errors_that_are_none_are_refused(td_errors, message):
    buffer = key_free(td_errors=td_errors)
    buffer.extend(transitions(20))
    with pytest.raises(sr.BadInput, match=message):
        buffer.sample()


def test_there_is_no_shaper_before_there_is_a_storage():
    with pytest.raises(sr.BadInput, match="storage must have been written to"):
        ShapedSampler().shaper  # noqa: B018


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"v": 1.5}, "v must be in .*, got 1.5"),
        ({"tilt_on": "rewrad"}, "unknown tilt_on 'rewrad'; did you mean 'reward'"),
        ({"mixing": "both"}, "unknown mixing 'both'"),
        ({"action": 3}, "action must be the name of an entry, or a tuple of names that leads to it, got 3"),
        ({"reward": ("next", 1)}, "reward must be the name of an entry"),
        ({"done": ()}, "done must be the name of an entry"),
        ({"observation": []}, "observation must name at least one entry"),
        ({"reach": 1.0}, "reach must be left out without td_errors, got 1"),
        ({"td_errors": 3}, "td_errors must be a function of stored transitions, got 3"),
        ({"td_errors": rewards_of, "v": 1.0}, r"v must be in \[0, 1\), got 1"),
        ({"td_errors": rewards_of, "reach": 0.0}, r"reach must be in \(0, inf\), got 0"),
        ({"td_errors": rewards_of, "seed": -1}, "seed must be at least 0, got -1"),
        (
            {"td_errors": rewards_of, "key": sr.ExactKey()},
            r"key must be left out with td_errors, got ExactKey\(\); it is a dial of keys",
        ),
        ({"td_errors": rewards_of, "scheme": sr.ScoreReplay()}, "scheme must be left out with td_errors"),
        ({"td_errors": rewards_of, "mixing": "matched"}, "mixing must be left out with td_errors, got 'matched'"),
        ({"td_errors": rewards_of, "tilt_on": "target"}, "tilt_on must be left out with td_errors, got 'target'"),
        ({"td_errors": rewards_of, "n_step": 3}, "n_step must be left out with td_errors, got 3"),
        ({"td_errors": rewards_of, "gamma": 0.9}, "gamma must be left out with td_errors, got 0.9"),
    ],
)
def test_a_bad_setting_is_refused_at_once(kwargs, message):
    with pytest.raises(sr.BadInput, match=message):
        ShapedSampler(**kwargs)


def test_an_entry_that_is_not_there_is_named():
    buffer = shaped(reward=("next", "score"))
    with pytest.raises(
        sr.BadInput, match=r"storage must have the entry \('next', 'score'\), got .*'reward'.*; say which"
    ):
        buffer.extend(transitions(5))


def test_a_reward_must_be_one_number():
    with pytest.raises(sr.BadInput, match=r"'observation' must be one number per transition, got \(5, 4\)"):
        shaped(reward="observation").extend(transitions(5))


def test_a_storage_of_bare_tensors_has_no_entries():
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), sampler=ShapedSampler(), batch_size=2)
    with pytest.raises(sr.BadInput, match="storage must hold tensordicts or dicts, for 'observation', got 'Tensor'"):
        buffer.extend(torch.zeros(3))


def test_a_storage_without_end_is_refused():
    buffer = ReplayBuffer(storage=ListStorage(), sampler=ShapedSampler(), batch_size=2)
    with pytest.raises(sr.BadInput, match="max_size of storage must be below 1073741824, got 9223372036854775807"):
        buffer.extend(list(transitions(3)))


def test_a_state_of_another_size_is_refused(tmp_path):
    small, large = shaped(capacity=20), shaped(capacity=30)
    for buffer in (small, large):
        buffer.extend(transitions(10))
    small.sampler.dumps(tmp_path)
    with pytest.raises(sr.BadInput, match="capacity"):
        large.sampler.load_state_dict(small.sampler.state_dict())
    with pytest.raises(sr.BadInput, match="capacity"):
        large.sampler.loads(tmp_path)


def test_priorities_of_the_wrong_number_are_refused():
    buffer = shaped(tilt_on="target")
    buffer.extend(transitions(10))
    with pytest.raises(sr.BadInput, match="priority must have 1 or 3 entries, got 2"):
        buffer.update_priority(torch.arange(3), torch.ones(2))


def test_a_storage_of_another_size_than_the_state_is_refused():
    buffer = shaped(capacity=20)
    buffer.extend(transitions(10))
    other = shaped(capacity=30)
    other.sampler.load_state_dict(buffer.sampler.state_dict())
    with pytest.raises(sr.BadInput, match="storage must have 20 slots, as the sampler has, got 30"):
        other.extend(transitions(5))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda state: "state", "state_dict must be a dict, got 'state'"),
        (lambda state: {"shaper": 3}, r"state must be as state_dict gives it, got \['shaper'\]"),
        (lambda state: {"shaper": {}, "capacity": 200}, "state must be as state_dict gives it"),
        (lambda state: {**state, "capacity": None}, "capacity must be a whole number, got None"),
        (
            lambda state: {"shaper": {"bytes": 1, "shape": [], "dtype": "<f8"}},
            "state_dict must be as state_dict gives it",
        ),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(damage, message):
    buffer, fresh = shaped(), ShapedSampler(key=sr.ExactKey())
    buffer.extend(transitions(50))
    with pytest.raises(sr.BadInput, match=message):
        fresh.load_state_dict(damage(buffer.sampler.state_dict()))
    assert "held=0" in repr(fresh)


def test_a_folder_without_a_sampler_is_refused(tmp_path):
    with pytest.raises(sr.BadFile, match=r"sampler.npz must be a saved sampler, got no such file"):
        ShapedSampler().loads(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("absent", ["torch", "tensordict", "torchrl"])
def test_without_torchrl_one_line_says_what_to_install_and_the_rest_works(absent, in_new_process):
    code = f"""
import sys
sys.modules[{absent!r}] = None
import safereplay as sr
try:
    import safereplay.torchrl
except sr.MissingExtra as error:
    print(error)
shaper = sr.Shaper(4, key=sr.ExactKey())
shaper.add([0, 1], [[0.0], [0.0]], [1, 1], [1.0, -1.0], [False, True])
print(shaper.draw(3).size)
"""
    line = "safereplay.torchrl needs TorchRL; install it with: pip install 'safereplay[torchrl]'"
    assert in_new_process(code) == f"{line}\n3\n"
