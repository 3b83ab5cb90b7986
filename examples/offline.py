"""Shaped replay from data that already is: a Minari dataset, or a replay buffer that Stable-Baselines3 saved.

    python examples/offline.py                                        # 20,000 random steps on the cliff, as a Minari dataset
    python examples/offline.py --dataset ID                           # a dataset in your Minari folder
    python examples/offline.py --buffer FILE --env ID                 # a file of SB3's save_replay_buffer
    python examples/offline.py --buffer FILE --env ID --unsafe -10    # rewards of -10 or less are unsafe

It trains SB3's DQN on the data alone, plain (v = 0) and shaped, shows what was replayed, and lets both policies act in the
environment. Actions must be discrete. Nothing is downloaded. It needs safereplay[sb3]; for Minari datasets also minari.

Offline, a policy is only as good as the data: actions that were never tried are not learned, whatever is replayed.
"""

from __future__ import annotations

import argparse
import os
import warnings
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.save_util import load_from_pkl

from safereplay.sb3 import ShapedReplayBuffer

TARGET_EVERY = 500  #: gradient steps between two copies of the network into the target network


def collect(dataset_id: str, env_id: str, steps: int, seed: int) -> None:
    """Write a Minari dataset of random steps, with the flags ``info["unsafe"]``, to the Minari folder."""
    import minari
    from minari.data_collector import EpisodeBuffer  # its DataCollector does the same, but needs jax

    rng, env, episodes, taken = np.random.default_rng(seed), gym.make(env_id), [], 0
    while taken < steps:
        obs, _ = env.reset(seed=seed if not episodes else None)
        observations, unsafe, rows, ends = [obs], [False], [], False  # with the first observation, before any step
        while not ends:
            action = rng.integers(env.action_space.n)
            obs, reward, terminated, truncated, info = env.step(action)
            observations.append(obs)
            unsafe.append(bool(info.get("unsafe", False)))
            rows.append((action, reward, terminated, truncated))
            ends = terminated or truncated
        columns = [list(column) for column in zip(*rows, strict=True)]
        episodes.append(EpisodeBuffer(len(episodes), None, None, observations, *columns, {"unsafe": unsafe}))
        taken += len(rows)
    with warnings.catch_warnings(action="ignore"):  # it asks for an author and a description
        minari.create_dataset_from_buffers(dataset_id, episodes, env, algorithm_name="random", data_format="arrow")
    env.close()


def from_minari(dataset: Any, **dials: Any) -> ShapedReplayBuffer:
    """A buffer with all transitions of a Minari dataset, episode by episode."""
    buffer = ShapedReplayBuffer(dataset.total_steps, dataset.observation_space, dataset.action_space, **dials)
    for episode in dataset.iterate_episodes():
        unsafe = np.zeros(len(episode) + 1, bool) if "unsafe" not in episode.infos else episode.infos["unsafe"]
        for t in range(len(episode)):
            over, cut = bool(episode.terminations[t]), bool(episode.truncations[t])
            now, after = np.array([episode.observations[t]]), np.array([episode.observations[t + 1]])
            action, reward = np.array([episode.actions[t]]), np.array([episode.rewards[t]])
            info = {"TimeLimit.truncated": cut and not over, "unsafe": bool(unsafe[t + 1])}
            buffer.add(now, after, action, reward, np.array([over or cut]), [info])
    return buffer


def from_sb3(file: str) -> ShapedReplayBuffer:
    """A buffer with the content of a file of save_replay_buffer. It is a pickle: load only your own."""
    plain = load_from_pkl(file)
    if not isinstance(plain, ReplayBuffer):
        raise SystemExit(f"{file} must hold an SB3 replay buffer, got {type(plain).__name__}")
    return ShapedReplayBuffer.from_buffer(plain)


def train(env: gym.Env, buffer: ShapedReplayBuffer, settings: argparse.Namespace, seed: int) -> DQN:
    """DQN after gradient steps on the buffer alone."""
    small = {"net_arch": [64, 64]}
    model = DQN("MlpPolicy", env, 1e-3, buffer_size=1, gamma=settings.gamma, policy_kwargs=small, seed=seed)
    model.replay_buffer = buffer
    model.set_logger(Logger(None, []))  # train() needs one, which learn() would make
    for done in range(0, settings.steps, TARGET_EVERY):
        model.train(min(TARGET_EVERY, settings.steps - done), batch_size=64)
        model.q_net_target.load_state_dict(model.q_net.state_dict())  # learn() would do it while it collects steps
    return model


@dataclass(frozen=True)
class Xray:
    """Shares of transitions among those stored and those drawn, by the last pool of TD errors."""

    surprising: tuple[float, float]  #: bad surprises that count in full: u/β or more below what is expected
    unsafe: tuple[float, float]


def xray(model: DQN, buffer: ShapedReplayBuffer) -> Xray:
    """What the next batches of a trained model would be."""
    buffer.attach(model)
    for _ in range(64):  # a few pools, for the unit u
        buffer.sample(1024)
    slots, errors, often = buffer.sampler.pool
    flags = errors <= -buffer.sampler.unit / buffer.sampler.beta, buffer.unsafe.take(slots)
    return Xray(*((float(flag.mean()), float(np.average(flag, weights=often))) for flag in flags))


def evaluate(model: DQN, env: gym.Env, settings: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Mean return of the greedy policy in the environment, and the share of episodes with something unsafe."""
    returns, unsafe = np.zeros(settings.episodes), np.zeros(settings.episodes, bool)
    for episode in range(settings.episodes):
        obs, _ = env.reset(seed=10**6 + seed if episode == 0 else None)
        for _ in range(settings.longest):
            action, _ = model.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, info = env.step(action)
            returns[episode] += reward
            unsafe[episode] |= bool(info.get("unsafe", False)) or reward <= settings.unsafe
            if terminated or truncated:
                break
    return float(returns.mean()), float(unsafe.mean())


def loaded(settings: argparse.Namespace) -> tuple[ShapedReplayBuffer, gym.Env]:
    """The data in a buffer, and the environment that it comes from."""
    if settings.buffer is not None:
        return from_sb3(settings.buffer), gym.make(settings.env)
    import minari

    if settings.dataset is not None:
        dataset = minari.load_dataset(settings.dataset)
        return from_minari(dataset), dataset.recover_environment()
    with TemporaryDirectory() as folder:
        os.environ["MINARI_DATASETS_PATH"] = folder
        collect("cliff/random-v0", settings.env, settings.collect, seed=0)
        dataset = minari.load_dataset("cliff/random-v0")  # from the files, as anyone else's
        return from_minari(dataset), dataset.recover_environment()


def main(arguments: list[str] | None = None) -> None:
    """Load the data, train plain and shaped, and print what was replayed and how both policies do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", help="id of a Minari dataset on this machine")
    parser.add_argument("--buffer", help="file of SB3's save_replay_buffer")
    parser.add_argument("--env", default="safereplay/Cliff-v0", help="the environment of --buffer, or to collect from")
    parser.add_argument("--collect", type=int, default=20_000, help="random steps, without --dataset and --buffer")
    parser.add_argument("--steps", type=int, default=8_000, help="gradient steps")
    parser.add_argument("--v", type=float, nargs="+", default=[0.0, 0.8], help="0 is plain")
    parser.add_argument("--seed", type=int, nargs="+", default=[0])
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--unsafe", type=float, default=-float("inf"), help="rewards up to this are unsafe, too")
    parser.add_argument("--episodes", type=int, default=2_000, help="of the evaluation")
    parser.add_argument("--longest", type=int, default=200, help="steps of an episode of the evaluation")
    settings = parser.parse_args(arguments)
    torch.set_num_threads(1)  # fastest for small networks

    data, env = loaded(settings)
    if not isinstance(env.action_space, gym.spaces.Discrete):
        raise SystemExit(f"env must have discrete actions, got {env.action_space}")
    data.unsafe |= data.rewards <= settings.unsafe
    held = data.held()
    print(f"{held.size} transitions, {data.unsafe.take(held).mean():.1%} unsafe; {settings.steps} gradient steps")
    print("    v  seed   return  unsafe episodes  surprising stored, drawn  unsafe stored, drawn")
    for v in settings.v:
        for seed in settings.seed:
            buffer = ShapedReplayBuffer.from_buffer(data, v=v, seed=seed)  # of the same arrays
            model = train(env, buffer, settings, seed)
            mean, bad = evaluate(model, env, settings, seed)
            line = f"{v:5.2f} {seed:5d} {mean:8.2f} {bad:16.3f}"
            if v > 0.0:
                found = xray(model, buffer)
                line += "".join(f" {stored:16.1%} {drawn:8.1%}" for stored, drawn in (found.surprising, found.unsafe))
            print(line)
    if v > 0.0:
        buffer.explain(3)


if __name__ == "__main__":
    main()
