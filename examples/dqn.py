"""DQN in one file, plain and with shaped replay: the sampler of safereplay in a custom loop.

    python examples/dqn.py                                          # the paper's cliff, plain (v = 0) and shaped (0.8)
    python examples/dqn.py --v 0                                    # plain only
    python examples/dqn.py --env CartPole-v1 --steps 50000          # any environment with discrete actions
    python examples/dqn.py --env LunarLander-v3 --catastrophe -100  # a reward of -100 or less is a catastrophe

It needs torch, gymnasium, numpy and safereplay. The lines that shape replay are marked (shaped); everything else is
standard DQN: an online and a target network, ε-greedy exploration, a ring buffer of transitions, mini-batches. The loss is
the squared error; for a Huber loss, which is linear beyond 1, give the sampler reach=1.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import safereplay as sr


@dataclass(frozen=True)
class Settings:
    """The settings of a run; each field is a flag of the command line."""

    env: str = "safereplay/Cliff-v0"
    v: float = 0.8  #: bad surprises are drawn up to 1/(1 − v) times as often; 0 is plain DQN
    beta: float = 1.0  #: > 0 cautious, 0 neutral, < 0 bold; it has no unit
    steps: int = 20_000
    seed: int = 0
    gamma: float = 0.95
    lr: float = 1e-3
    hidden: int = 64
    capacity: int = 20_000
    batch: int = 64
    learn_after: int = 500
    train_every: int = 2
    target_every: int = 500  #: steps between two copies of the network into the target network
    epsilon_last: float = 0.1  #: from 1 down to this over the first half of the steps
    episodes: int = 1_000  #: of the evaluation
    longest: int = 200  #: steps of an evaluation episode
    catastrophe: float = -float("inf")  #: rewards up to this are catastrophes; so is info["unsafe"]


class Ring:
    """The last ``capacity`` transitions, as arrays."""

    def __init__(self, capacity: int, n_inputs: int) -> None:
        self.obs = np.zeros((capacity, n_inputs), np.float32)
        self.next_obs = np.zeros((capacity, n_inputs), np.float32)
        self.action = np.zeros(capacity, np.int64)
        self.reward = np.zeros(capacity, np.float32)
        self.terminated = np.zeros(capacity, np.float32)
        self.capacity, self.written = capacity, 0

    def add(self, obs, action, reward, next_obs, terminated) -> None:
        """Overwrite the oldest transition."""
        slot = self.written % self.capacity
        self.obs[slot], self.next_obs[slot] = obs, next_obs
        self.action[slot], self.reward[slot], self.terminated[slot] = action, reward, terminated
        self.written += 1

    def tensors(self, slots) -> list[torch.Tensor]:
        """Obs, action, reward, next_obs, terminated of some slots."""
        columns = (self.obs, self.action, self.reward, self.next_obs, self.terminated)
        return [torch.from_numpy(column[slots]) for column in columns]


class DQN:
    """Two networks and an optimiser."""

    def __init__(self, n_inputs: int, n_actions: int, settings: Settings) -> None:
        def network() -> nn.Sequential:
            h = settings.hidden
            return nn.Sequential(nn.Linear(n_inputs, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, n_actions))

        self.gamma = settings.gamma
        self.online, self.target = network(), network()
        self.optimizer = torch.optim.Adam(self.online.parameters(), settings.lr)
        self.copy()

    def copy(self) -> None:
        """Copy the online network into the target network."""
        self.target.load_state_dict(self.online.state_dict())

    @torch.no_grad()
    def act(self, obs) -> int:
        """The greedy action."""
        return int(self.online(torch.from_numpy(obs)).argmax())

    def td_errors(self, obs, action, reward, next_obs, terminated) -> torch.Tensor:
        """r + γ·max Q(s',·) − Q(s,a)."""
        with torch.no_grad():
            targets = reward + self.gamma * (1 - terminated) * self.target(next_obs).max(1).values
        return targets - self.online(obs).gather(1, action[:, None])[:, 0]

    def learn(self, *batch) -> None:
        """One step on a batch."""
        self.optimizer.zero_grad()
        self.td_errors(*batch).square().mean().backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()


def make(settings: Settings) -> gym.Env:
    """The environment, with a flat vector as observation (a Discrete one: one-hot)."""
    env = gym.make(settings.env)
    if not isinstance(env.action_space, gym.spaces.Discrete):
        raise SystemExit(f"env must have discrete actions, got {env.action_space}")
    return gym.wrappers.FlattenObservation(env)


def is_catastrophe(reward: float, info: dict, settings: Settings) -> bool:
    """Whether a step was a catastrophe."""
    return bool(info.get("unsafe", False)) or reward <= settings.catastrophe


def train(settings: Settings) -> tuple[DQN, float, float]:
    """A trained network, the share of draws by surprise, and the share of training episodes with a catastrophe."""
    torch.manual_seed(settings.seed)
    rng = np.random.default_rng(settings.seed)
    env = make(settings)
    n_inputs, n_actions = int(np.prod(env.observation_space.shape)), int(env.action_space.n)
    dqn, ring = DQN(n_inputs, n_actions, settings), Ring(settings.capacity, n_inputs)
    sampler = sr.SurpriseSampler(settings.v, settings.beta, seed=settings.seed)  # (shaped)

    def td_errors(slots):  # (shaped)
        return dqn.td_errors(*ring.tensors(slots)).detach()

    ended, bad, harmed, tilted = 0, 0, False, []
    obs, _ = env.reset(seed=settings.seed)
    obs = obs.astype(np.float32)
    for step in range(settings.steps):
        epsilon = max(settings.epsilon_last, 1 - 2 * (1 - settings.epsilon_last) * step / settings.steps)
        action = int(rng.integers(n_actions)) if rng.random() < epsilon else dqn.act(obs)
        next_obs, reward, terminated, truncated, info = env.step(action)
        next_obs = next_obs.astype(np.float32)
        ring.add(obs, action, reward, next_obs, terminated)
        harmed |= is_catastrophe(reward, info, settings)
        obs = next_obs
        if terminated or truncated:
            ended, bad, harmed = ended + 1, bad + harmed, False
            obs, _ = env.reset()
            obs = obs.astype(np.float32)

        if step >= settings.learn_after and step % settings.train_every == 0:
            size = min(step + 1, settings.capacity)
            slots = sampler.draw(size, settings.batch, td_errors)  # (shaped) plain: rng.integers(size, size=batch)
            tilted.append(sampler.tilted.mean())
            dqn.learn(*ring.tensors(slots))
        if step % settings.target_every == 0:
            dqn.copy()
    env.close()
    return dqn, float(np.mean(tilted)), bad / max(ended, 1)


def evaluate(dqn: DQN, settings: Settings) -> tuple[float, float]:
    """Mean return of the greedy policy, and the share of episodes with a catastrophe."""
    env = make(settings)
    returns, bad = np.zeros(settings.episodes), np.zeros(settings.episodes, bool)
    for episode in range(settings.episodes):
        obs, _ = env.reset(seed=10**6 + settings.seed if episode == 0 else None)  # other seeds than in training
        for _ in range(settings.longest):
            obs, reward, terminated, truncated, info = env.step(dqn.act(obs.astype(np.float32)))
            returns[episode] += reward
            bad[episode] |= is_catastrophe(reward, info, settings)
            if terminated or truncated:
                break
    env.close()
    return float(returns.mean()), float(bad.mean())


def parsed(arguments: list[str] | None = None) -> list[Settings]:
    """The runs of the command line: every v with every seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Settings):
        several = {"v": [0.0, 0.8], "seed": [0]}.get(field.name)
        flag, kind = "--" + field.name.replace("_", "-"), type(field.default)
        if several is not None:
            parser.add_argument(flag, type=kind, nargs="+", default=several, help=f"one or more (default: {several})")
        else:
            parser.add_argument(flag, type=kind, default=field.default, help=f"(default: {field.default})")
    chosen = vars(parser.parse_args(arguments))
    vs, seeds = chosen.pop("v"), chosen.pop("seed")
    return [Settings(v=v, seed=seed, **chosen) for v in vs for seed in seeds]


def main(arguments: list[str] | None = None) -> None:
    """Train and evaluate every run, and print a line for each."""
    torch.set_num_threads(1)  # fastest for small networks
    runs = parsed(arguments)
    print(f"{runs[0].env}: {runs[0].steps} steps, {runs[0].episodes} episodes of evaluation")
    print("    v  seed   return  catastrophes  in training  tilted  seconds")
    for run in runs:
        start = time.perf_counter()
        dqn, tilted, in_training = train(run)
        seconds = time.perf_counter() - start
        mean, bad = evaluate(dqn, run)
        print(f"{run.v:5.2f} {run.seed:5d} {mean:8.2f} {bad:13.3f} {in_training:12.3f} {tilted:7.2f} {seconds:8.1f}")


if __name__ == "__main__":
    main()
