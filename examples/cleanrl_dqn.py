"""Shaped replay in a script of the style of CleanRL: one file, no framework, every detail of DQN in sight.

    python examples/cleanrl_dqn.py                     # the paper's cliff, with shaped replay
    python examples/cleanrl_dqn.py --v 0               # plain DQN: SB3's own buffer
    python examples/cleanrl_dqn.py --env-id CartPole-v1

To change a script of your own, replace SB3's ReplayBuffer by ShapedReplayBuffer and attach a function that computes TD errors of a
batch. These two lines are marked (shaped). It needs torch, gymnasium, numpy and safereplay[sb3].
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import nn

from safereplay.sb3 import ShapedReplayBuffer


@dataclass
class Args:
    """The settings of a run; each field is a flag of the command line."""

    env_id: str = "safereplay/Cliff-v0"
    seed: int = 1
    v: float = 0.8  #: bad surprises are drawn up to 1/(1 − v) times as often; 0 is plain DQN
    total_timesteps: int = 20_000
    num_envs: int = 2
    learning_rate: float = 1e-3
    buffer_size: int = 20_000
    gamma: float = 0.95
    target_network_frequency: int = 500
    batch_size: int = 64
    start_e: float = 1.0
    end_e: float = 0.1
    exploration_fraction: float = 0.5
    learning_starts: int = 500
    eval_episodes: int = 500
    eval_steps: int = 200  #: the longest episode of the evaluation


class QNetwork(nn.Module):
    """Q(s,·)."""

    def __init__(self, envs: SyncVectorEnv) -> None:
        super().__init__()
        n_inputs, n_actions = int(np.prod(envs.single_observation_space.shape)), int(envs.single_action_space.n)
        layers = nn.Linear(n_inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, n_actions)
        self.network = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Q of a batch of observations [n, inputs]."""
        return self.network(x)


def make_env(env_id: str):
    """A function that makes the environment, with a flat observation of float32."""

    def thunk() -> gym.Env:
        env = gym.wrappers.FlattenObservation(gym.make(env_id))
        return gym.wrappers.RecordEpisodeStatistics(gym.wrappers.DtypeObservation(env, np.float32))

    return thunk


def train(args: Args) -> QNetwork:
    """A trained network."""
    rng = np.random.default_rng(args.seed)
    np.random.seed(args.seed)  # noqa: NPY002  (SB3's buffer draws from it)
    torch.manual_seed(args.seed)
    envs = SyncVectorEnv([make_env(args.env_id)] * args.num_envs, autoreset_mode=AutoresetMode.SAME_STEP)
    q_network, target_network = QNetwork(envs), QNetwork(envs)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)

    def td_errors(data) -> torch.Tensor:
        with torch.no_grad():
            target_max = target_network(data.next_observations).max(dim=1).values
            td_target = data.rewards.flatten() + args.gamma * target_max * (1 - data.dones.flatten())
        return td_target - q_network(data.observations).gather(1, data.actions).squeeze(1)

    rb = ShapedReplayBuffer(  # (shaped) instead of SB3's ReplayBuffer
        args.buffer_size,
        envs.single_observation_space,
        envs.single_action_space,
        n_envs=args.num_envs,
        handle_timeout_termination=False,
        v=args.v,
        seed=args.seed,
    )
    rb.attach(td_errors)  # (shaped)

    obs, _ = envs.reset(seed=args.seed)
    for global_step in range(0, args.total_timesteps, args.num_envs):
        share = global_step / (args.exploration_fraction * args.total_timesteps)
        epsilon = max(args.start_e + (args.end_e - args.start_e) * share, args.end_e)
        with torch.no_grad():
            greedy = q_network(torch.as_tensor(obs)).argmax(dim=1).numpy()
        explores = rng.random(args.num_envs) < epsilon
        actions = np.where(explores, rng.integers(envs.single_action_space.n, size=args.num_envs), greedy)
        next_obs, rewards, terminations, truncations, infos = envs.step(actions)

        real_next_obs = next_obs.copy()  # an environment that ended was reset: its last observation is in infos
        for i in np.flatnonzero(terminations | truncations):
            real_next_obs[i] = infos["final_obs"][i]
        rb.add(obs, real_next_obs, actions, rewards, terminations, infos)
        obs = next_obs

        if global_step >= args.learning_starts:
            data = rb.sample(args.batch_size)
            optimizer.zero_grad()
            td_errors(data).square().mean().backward()
            optimizer.step()
        if global_step % args.target_network_frequency < args.num_envs:
            target_network.load_state_dict(q_network.state_dict())
    envs.close()
    return q_network


def evaluate(q_network: QNetwork, args: Args) -> tuple[float, float]:
    """Mean return of the greedy policy, and the share of episodes with ``info["unsafe"]``."""
    env, returns, unsafe = make_env(args.env_id)(), np.zeros(args.eval_episodes), np.zeros(args.eval_episodes, bool)
    for episode in range(args.eval_episodes):
        obs, _ = env.reset(seed=10**6 + args.seed if episode == 0 else None)  # other seeds than in training
        for _ in range(args.eval_steps):
            with torch.no_grad():
                action = int(q_network(torch.as_tensor(obs)).argmax())
            obs, reward, terminated, truncated, info = env.step(action)
            returns[episode] += reward
            unsafe[episode] |= info.get("unsafe", False)
            if terminated or truncated:
                break
    return float(returns.mean()), float(unsafe.mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Args):
        parser.add_argument("--" + field.name.replace("_", "-"), type=type(field.default), default=field.default)
    args = Args(**vars(parser.parse_args()))
    torch.set_num_threads(1)  # fastest for small networks
    mean, share = evaluate(train(args), args)
    print(f"{args.env_id}, v = {args.v:g}, seed {args.seed}: mean return {mean:.2f}, unsafe {share:.1%}")
