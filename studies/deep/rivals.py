"""QR-DQN that is greedy on CVaR: distributional risk-averse RL, the reference for shaped replay.

QR-DQN learns N quantiles θ₁..θ_N of the return of every pair. Each stands for a mass of 1/N, so the mean of the worst
share α is

    CVaR_α(θ)  =  Σ_i  w_i θ_(i),     w_i = clip(αN − i + 1, 0, 1) / αN,      θ_(1) ≤ ... ≤ θ_(N)

and α = 1 is the mean. The policy takes argmax_a CVaR_α(θ(s,a)), in training and in evaluation. In the
target, r + γ θ(s', a*), the action a* is chosen the same way (as in IQN) or by the mean. The latter learns the return
distribution of the neutral policy, and acts on the CVaR of that.

Ref: Dabney et al. (2018), Distributional RL with quantile regression; Implicit quantile networks.
"""

from typing import Any

import torch
from sb3_contrib import QRDQN
from sb3_contrib.common.utils import quantile_huber_loss
from sb3_contrib.qrdqn.policies import QRDQNPolicy, QuantileNetwork
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.type_aliases import PyTorchObs

from safereplay import _checks


def cvar(quantiles: torch.Tensor, alpha: float, dim: int = 1) -> torch.Tensor:
    """The mean of the worst share ``alpha`` of equally likely values along ``dim``; they need not be sorted.

    >>> cvar(torch.tensor([[4.0, 1.0, 2.0, 3.0]]), 0.5)
    tensor([1.5000])
    >>> cvar(torch.tensor([[4.0, 1.0, 2.0, 3.0]]), 0.375)            # all of the worst, half of the next
    tensor([1.3333])
    """
    if alpha == 1.0:
        return quantiles.mean(dim)
    ordered = quantiles.movedim(dim, -1).sort(dim=-1).values
    mass = alpha * ordered.shape[-1]
    weights = (mass - torch.arange(ordered.shape[-1], dtype=ordered.dtype, device=ordered.device)).clamp(0.0, 1.0)
    return (ordered * weights).sum(-1) / mass


class CVaRQuantileNetwork(QuantileNetwork):
    """Quantiles of every action's return, and the action with the best CVaR."""

    def __init__(self, *args: Any, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.alpha = alpha

    def _predict(self, observation: PyTorchObs, deterministic: bool = True) -> torch.Tensor:
        return cvar(self(observation), self.alpha).argmax(dim=1)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "alpha": self.alpha}


class CVaRPolicy(QRDQNPolicy):
    """QR-DQN's policy with its greedy action taken on CVaR_α."""

    def __init__(self, *args: Any, alpha: float = 1.0, **kwargs: Any) -> None:
        self.alpha = _checks.between("alpha", alpha, "(0, 1]")
        super().__init__(*args, **kwargs)

    def make_quantile_net(self) -> QuantileNetwork:
        """Make a network; called for the online and for the target network."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return CVaRQuantileNetwork(**arguments, alpha=self.alpha).to(self.device)

    def _get_constructor_parameters(self) -> dict[str, Any]:
        return {**super()._get_constructor_parameters(), "alpha": self.alpha}


class GradientSteps(OffPolicyAlgorithm):
    """SB3's gradient steps on the loss of a subclass: one loop for all rivals."""

    max_grad_norm: Any

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Sample batches, and descend on their loss."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        total = 0.0
        for _ in range(gradient_steps):
            assert self.replay_buffer is not None
            loss = self._loss(self.replay_buffer.sample(batch_size, env=self._vec_normalize_env))
            self.policy.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if self.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            total += float(loss.detach())
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", total / gradient_steps)

    def _loss(self, batch: Any) -> torch.Tensor:
        raise NotImplementedError

    def _discount(self, batch: Any) -> Any:
        """γ, or γⁿ of every row for n-step targets."""
        return self.gamma if batch.discounts is None else batch.discounts


class CVaRQRDQN(GradientSteps, QRDQN):
    """QR-DQN whose target follows the cautious policy: a* = argmax_a CVaR_α(θ(s',a)).

    Use it with :class:`CVaRPolicy`; ``QRDQN`` with that policy is the same with a* chosen by the mean.
    """

    def _loss(self, batch: Any) -> torch.Tensor:
        rows = torch.arange(len(batch.rewards), device=self.device)
        with torch.no_grad():
            after = self.quantile_net_target(batch.next_observations)  # [batch, N, A]
            best = cvar(after, self.policy.alpha).argmax(dim=1)  # type: ignore[arg-type]  # a float of CVaRPolicy
            target = batch.rewards + (1.0 - batch.dones) * self._discount(batch) * after[rows, :, best]
        taken = batch.actions.long().flatten()
        current = self.quantile_net(batch.observations)[rows, :, taken]
        return quantile_huber_loss(current, target, sum_over_quantiles=True)
