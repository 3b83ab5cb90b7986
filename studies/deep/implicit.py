"""Implicit quantile network (IQN) that is greedy on CVaR: a distributional rival with quantiles at any share τ.

The network gives the τ-quantile of the return of every action, for any share τ in (0, 1):

    θ_τ(s, ·)  =  f(ψ(s) ⊙ φ(τ)),      φ_j(τ) = relu(Σ_i cos(π·i·τ)·w_ij + b_j),   i = 0..63

ψ has the hidden layers of DQN's network but the last, and f has the last one and the output. The policy takes the action with the
greatest mean over K shares below α, which is CVaR_α; α = 1 is the mean:

    a*(s)  =  argmax_a (1/K)·Σ_k θ_τk(s, a),      τ_k ~ U(0, α)

In evaluation τ_k are the midpoints α·(k − ½)/K, so the policy is a function of the state. The loss is the quantile Huber
loss of N shares τ against N' samples of the target, r + γ·θ_τ'(s', a*(s')), with τ and τ' ~ U(0, 1). Shares are drawn by torch's
generator, which SB3 seeds.

The target follows the policy that is greedy on CVaR in every state, so what is learned is neither the static CVaR of the
episode nor a dynamic one (Lim & Malik 2022); :mod:`.static` learns the static one.

Ref: Dabney et al. (2018), Implicit quantile networks for distributional reinforcement learning.
"""

from typing import Any

import torch
from sb3_contrib import QRDQN
from sb3_contrib.common.utils import quantile_huber_loss
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import create_mlp
from stable_baselines3.common.type_aliases import PyTorchObs
from torch import nn

from safereplay import _checks

from .rivals import CVaRPolicy, GradientSteps

COSINES = 64  #: the size of the embedding of a share


class ImplicitQuantileNetwork(BasePolicy):
    """Quantiles of every action's return at given shares, and the action with the best CVaR."""

    frequencies: torch.Tensor

    def __init__(
        self,
        *args: Any,
        features_dim: int,
        net_arch: list[int],
        n_quantiles: int = 32,
        activation_fn: type[nn.Module] = nn.ReLU,
        alpha: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        _checks.require(len(net_arch) > 0, "net_arch", "have a hidden layer", net_arch)
        self.features_dim, self.net_arch, self.activation_fn = features_dim, net_arch, activation_fn
        self.n_quantiles, self.alpha = n_quantiles, alpha
        below = max(len(net_arch) - 1, 1)
        width, actions = net_arch[below - 1], int(self.action_space.n)  # type: ignore[attr-defined]  # it is Discrete
        self.state_net = nn.Sequential(*create_mlp(features_dim, -1, net_arch[:below], activation_fn))
        self.share_net = nn.Sequential(nn.Linear(COSINES, width), nn.ReLU())
        self.head = nn.Sequential(*create_mlp(width, actions, net_arch[below:], activation_fn))
        self.register_buffer("frequencies", torch.pi * torch.arange(COSINES), persistent=False)

    def forward(self, obs: PyTorchObs, shares: torch.Tensor) -> torch.Tensor:
        """Quantiles [batch, n, A] at the shares [batch, n], or [1, n] for the same in every row."""
        state = self.state_net(self.extract_features(obs, self.features_extractor))
        share = self.share_net(torch.cos(shares.unsqueeze(-1) * self.frequencies))
        found: torch.Tensor = self.head(state.unsqueeze(1) * share)
        return found

    def middle_shares(self) -> torch.Tensor:
        """The midpoints of K equal parts of (0, α), [1, K]."""
        return self.alpha * (torch.arange(self.n_quantiles, device=self.device)[None] + 0.5) / self.n_quantiles

    def random_shares(self, rows: int) -> torch.Tensor:
        """K shares per row from U(0, α)."""
        return self.alpha * torch.rand(rows, self.n_quantiles, device=self.device)

    def _predict(self, observation: PyTorchObs, deterministic: bool = True) -> torch.Tensor:
        shares = self.middle_shares() if deterministic else self.random_shares(len(observation))
        return self(observation, shares).mean(dim=1).argmax(dim=1)  # type: ignore[no-any-return]

    def _get_constructor_parameters(self) -> dict[str, Any]:
        own = ("features_dim", "net_arch", "n_quantiles", "activation_fn", "alpha", "features_extractor")
        return {**super()._get_constructor_parameters(), **{name: getattr(self, name) for name in own}}


class IQNPolicy(CVaRPolicy):
    """The policy of IQN; ``n_quantiles`` is K, the number of shares for acting."""

    def __init__(self, *args: Any, n_quantiles: int = 32, **kwargs: Any) -> None:
        super().__init__(*args, n_quantiles=_checks.whole("n_quantiles", n_quantiles, 1), **kwargs)

    def make_quantile_net(self) -> Any:
        """Make a network; called for the online and for the target network."""
        arguments = self._update_features_extractor(self.net_args, features_extractor=None)
        return ImplicitQuantileNetwork(**arguments, alpha=self.alpha).to(self.device)


class IQN(GradientSteps, QRDQN):
    """IQN; use it with :class:`IQNPolicy`. ``n`` and ``n_next`` are N and N', the shares in the loss and in its target."""

    def __init__(self, *args: Any, n: int = 16, n_next: int = 16, **kwargs: Any) -> None:
        self.n, self.n_next = _checks.whole("n", n, 1), _checks.whole("n_next", n_next, 1)
        super().__init__(*args, **kwargs)

    def _loss(self, batch: Any) -> torch.Tensor:
        size = len(batch.rewards)
        rows = torch.arange(size, device=self.device)
        net: Any = self.quantile_net_target
        with torch.no_grad():
            acting = net.random_shares(size)
            shares = torch.cat((acting, torch.rand(size, self.n_next, device=self.device)), dim=1)
            after = net(batch.next_observations, shares)  # [batch, K + N', A]
            best = after[:, : acting.shape[1]].mean(dim=1).argmax(dim=1)
            ahead = after[rows, acting.shape[1] :, best]
            target = batch.rewards + (1.0 - batch.dones) * self._discount(batch) * ahead
        shares = torch.rand(size, self.n, device=self.device)
        current = self.quantile_net(batch.observations, shares)[rows, :, batch.actions.long().flatten()]
        return quantile_huber_loss(current, target, cum_prob=shares.unsqueeze(-1), sum_over_quantiles=True)
