"""Lagrangian DQN: a second Q-network for the cost, and a multiplier that rises while harm is above a limit.

The task is: maximise the return, subject to P(harm) ≤ d. The cost of a step is 1 if ``info["unsafe"]``, else 0. Two networks
learn the values of reward and of cost, under one policy:

    a*(s)  =  argmax_a Q_r(s, a) − λ·Q_c(s, a)
    Q_r(s, a)  ←  r + γ·Q_r(s', a*(s')),      Q_c(s, a)  ←  cost + γ·Q_c(s', a*(s'))

with a* and the values on the right from the target networks. Each loss is DQN's, and their sum is minimised. At each
gradient step the multiplier follows the share of recent training episodes with harm, by dual ascent:

    λ  ←  max(0, λ + η·(share − d))

λ is in the unit of the learner's rewards, so it is what one harm costs. Training episodes explore. So the share includes harm by
random actions, and d limits harm in training, not of the greedy policy: a d below what exploration causes raises λ to the end.

Ref: Altman (1999), Constrained Markov decision processes; Achiam & Amodei (2019), Benchmarking safe exploration in deep
reinforcement learning.
"""

from collections import deque
from typing import Any, NamedTuple

import numpy as np
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.type_aliases import PyTorchObs, Schedule
from stable_baselines3.common.utils import polyak_update
from stable_baselines3.dqn.policies import DQNPolicy
from torch.nn.functional import smooth_l1_loss

from safereplay import _checks

from .rivals import GradientSteps

RECENT = 100  #: episodes in the share of recent ones with harm


class CostSamples(NamedTuple):
    """SB3's samples, with the cost of each transition."""

    observations: torch.Tensor
    actions: torch.Tensor
    next_observations: torch.Tensor
    dones: torch.Tensor
    rewards: torch.Tensor
    discounts: torch.Tensor | None
    costs: torch.Tensor


class CostReplayBuffer(ReplayBuffer):
    """SB3's replay buffer with the cost of each transition: 1 if ``info["unsafe"]``. For one environment."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _checks.require(self.n_envs == 1, "n_envs", "be 1", self.n_envs, "costs are stored for one environment")
        self.costs = np.zeros((self.buffer_size, 1), np.float32)

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: list[dict[str, Any]]) -> None:
        """Store a transition and its cost."""
        self.costs[self.pos] = harmed(infos[0])
        super().add(obs, next_obs, action, reward, done, infos)

    def _get_samples(self, batch_inds: Any, env: Any = None) -> Any:
        batch = super()._get_samples(batch_inds, env)
        return CostSamples(*batch, costs=self.to_torch(self.costs[batch_inds]))


def harmed(info: dict[str, Any]) -> bool:
    """Whether a step was unsafe."""
    return bool(info.get("unsafe", False))


class LagrangianPolicy(DQNPolicy):
    """DQN's policy with a second network for the cost; greedy on Q_r − λ·Q_c."""

    multiplier: torch.Tensor

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        self.cost_net, self.cost_net_target = self.make_q_net(), self.make_q_net()
        self.cost_net_target.load_state_dict(self.cost_net.state_dict())
        self.cost_net_target.set_training_mode(False)
        self.register_buffer("multiplier", torch.zeros(()))
        both = [*self.q_net.parameters(), *self.cost_net.parameters()]
        self.optimizer = self.optimizer_class(both, lr=lr_schedule(1), **self.optimizer_kwargs)  # type: ignore[call-arg]

    def _predict(self, obs: PyTorchObs, deterministic: bool = True) -> torch.Tensor:
        return self.greedy(self.q_net(obs), self.cost_net(obs)).flatten()

    def greedy(self, reward: torch.Tensor, cost: torch.Tensor) -> torch.Tensor:
        """argmax_a Q_r − λ·Q_c, [batch, 1]."""
        return (reward - self.multiplier * cost).argmax(dim=1, keepdim=True)

    def set_training_mode(self, mode: bool) -> None:
        """Training or evaluation mode, as SB3's."""
        super().set_training_mode(mode)
        self.cost_net.set_training_mode(mode)


class LagrangianDQN(GradientSteps, DQN):
    """DQN under a limit on the share of episodes with harm; use it with :class:`LagrangianPolicy`.

    ``limit`` is d, and ``rate`` is η per gradient step.
    """

    policy: LagrangianPolicy

    def __init__(self, *args: Any, limit: float = 0.0, rate: float = 1e-3, **kwargs: Any) -> None:
        self.limit = _checks.between("limit", limit, "[0, 1]")
        self.rate = _checks.between("rate", rate, "[0, inf)")
        self.recent: deque[bool] = deque(maxlen=RECENT)
        self._harmed = False
        kwargs.setdefault("replay_buffer_class", CostReplayBuffer)
        super().__init__(*args, **kwargs)

    @property
    def multiplier(self) -> float:
        """λ."""
        return float(self.policy.multiplier)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """A step of dual ascent for each gradient step, then the gradient steps."""
        if self.recent:
            share = sum(self.recent) / len(self.recent)
            self.policy.multiplier.add_(gradient_steps * self.rate * (share - self.limit)).clamp_(min=0.0)
        super().train(gradient_steps, batch_size)
        self.logger.record("train/multiplier", self.multiplier)

    def _loss(self, batch: Any) -> torch.Tensor:
        policy, discount = self.policy, self._discount(batch)
        with torch.no_grad():
            reward, cost = policy.q_net_target(batch.next_observations), policy.cost_net_target(batch.next_observations)
            best = policy.greedy(reward, cost)
            ahead = (1.0 - batch.dones) * discount
            targets = batch.rewards + ahead * reward.gather(1, best), batch.costs + ahead * cost.gather(1, best)
        taken = batch.actions.long()
        current = (net(batch.observations).gather(1, taken) for net in (policy.q_net, policy.cost_net))
        losses = [smooth_l1_loss(ours, target) for ours, target in zip(current, targets, strict=True)]
        return losses[0] + losses[1]

    def _on_step(self) -> None:
        super()._on_step()
        if self._n_calls % self.target_update_interval == 0:
            polyak_update(self.policy.cost_net.parameters(), self.policy.cost_net_target.parameters(), self.tau)

    def _store_transition(
        self, replay_buffer: Any, buffer_action: Any, new_obs: Any, reward: Any, dones: Any, infos: Any
    ) -> None:
        super()._store_transition(replay_buffer, buffer_action, new_obs, reward, dones, infos)
        self._harmed |= harmed(infos[0])
        if dones[0]:
            self.recent.append(self._harmed)
            self._harmed = False
