"""QR-DQN: N quantiles of the return of every pair, and the action with the best CVaR_α; α = 1 is the mean.

Ref: Dabney et al. (2018), Distributional reinforcement learning with quantile regression.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .buffers import Array, Transition
from .loop import Dials, Learner, Tree, chosen, outputs

N = 50  #: quantiles


def quantiles(params: Tree, observation: Array) -> Array:
    """θ(s,a), [..., A, N]."""
    flat = outputs(params, observation)
    return flat.reshape(*flat.shape[:-1], -1, N)


def cvar(theta: Array, alpha: Array) -> Array:
    """The mean of the worst share α of quantiles [..., N]. They are ranked by comparison, which is faster here than a sort."""
    number = jnp.arange(N)
    below = sum((one < theta) | ((one == theta) & (k < number)) for k, one in enumerate(jnp.split(theta, N, -1)))
    shares = jnp.clip(alpha * N - below, 0.0, 1.0)
    return (theta * shares).sum(-1) / (alpha * N)


def act(params: Tree, observation: Array, dials: Dials) -> Array:
    """argmax_a CVaR_α(θ(s,a))."""
    return cvar(quantiles(params, observation), dials.alpha).argmax(-1)


def _targets_and_current(
    params: Tree, target: Tree, batch: Transition, gamma: float, dials: Dials
) -> tuple[Array, Array]:
    """r + γ·θ⁻(s',a*) and θ(s,a), [batch, N] each; a* has the best CVaR_α, too."""
    after = quantiles(target, batch.after)
    best = cvar(after, dials.alpha).argmax(-1)
    ahead = jnp.where(batch.terminated[:, None], 0.0, chosen(after, best))
    current = chosen(quantiles(params, batch.place), batch.action)
    return jax.lax.stop_gradient(batch.reward[:, None] + gamma * ahead), current


def td_errors(params: Tree, target: Tree, batch: Transition, gamma: float, dials: Dials) -> Array:
    """The difference of the means, [batch]."""
    wanted, current = _targets_and_current(params, target, batch, gamma, dials)
    return wanted.mean(-1) - current.mean(-1)


def loss(params: Tree, target: Tree, batch: Transition, gamma: float, dials: Dials, key: Array) -> Array:
    """Quantile regression with Huber's loss, summed over quantiles as in sb3-contrib.

    Its gradient is written out: −Σ_j |τ_i − 1(T_j < θ_i)|·min(1, max(−1, T_j − θ_i)) of θ_i, so no [batch, N, N] array is stored.
    """
    wanted, current = _targets_and_current(params, target, batch, gamma, dials)
    known = jax.lax.stop_gradient(current)
    apart = wanted[:, None, :] - known[:, :, None]  # [batch, current, wanted]
    bounded = jnp.clip(apart, -1.0, 1.0)
    middles = (jnp.arange(N) + 0.5) / N
    slopes = jnp.abs(middles[:, None] - (apart < 0.0))
    value = (slopes * bounded * (apart - 0.5 * bounded)).sum(-2).mean()  # Huber's: x²/2, beyond 1 |x| − 1/2
    return value - ((slopes * bounded).sum(-1) * (current - known)).sum() / current.size


QRDQN = Learner(lambda actions: actions * N, act, loss, td_errors, reach=float("inf"))
