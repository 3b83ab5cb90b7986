"""QR-DQN: N quantiles of the return of every pair, and the action with the best CVaR_α; α = 1 is the mean.

Ref: Dabney et al. (2018), Distributional reinforcement learning with quantile regression.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .loop import Array, Dials, Learner, Transition, Tree, outputs

N = 50  #: quantiles


def quantiles(params: Tree, observation: Array) -> Array:
    """θ(s,a), [..., A, N]."""
    flat = outputs(params, observation)
    return flat.reshape(*flat.shape[:-1], -1, N)


def cvar(theta: Array, alpha: Array) -> Array:
    """The mean of the worst share α of quantiles [..., N]."""
    shares = jnp.clip(alpha * N - jnp.arange(N), 0.0, 1.0)
    return (jnp.sort(theta, -1) * shares).sum(-1) / (alpha * N)


def act(params: Tree, observation: Array, dials: Dials) -> Array:
    """argmax_a CVaR_α(θ(s,a))."""
    return cvar(quantiles(params, observation), dials.alpha).argmax(-1)


def _targets_and_current(
    params: Tree, target: Tree, batch: Transition, gamma: float, dials: Dials
) -> tuple[Array, Array]:
    """r + γ·θ⁻(s',a*) and θ(s,a), [batch, N] each; a* has the best CVaR_α, too."""
    after = quantiles(target, batch.after)
    best = cvar(after, dials.alpha).argmax(-1)
    chosen = jnp.take_along_axis(after, best[:, None, None], 1)[:, 0]
    wanted = batch.reward[:, None] + gamma * jnp.where(batch.terminated[:, None], 0.0, chosen)
    current = jnp.take_along_axis(quantiles(params, batch.place), batch.action[:, None, None], 1)[:, 0]
    return jax.lax.stop_gradient(wanted), current


def td_errors(params: Tree, target: Tree, batch: Transition, gamma: float, dials: Dials) -> Array:
    """The difference of the means, [batch]."""
    wanted, current = _targets_and_current(params, target, batch, gamma, dials)
    return wanted.mean(-1) - current.mean(-1)


def loss(params: Tree, target: Tree, batch: Transition, gamma: float, dials: Dials, key: Array) -> Array:
    """Quantile regression with Huber's loss, summed over quantiles as in sb3-contrib."""
    wanted, current = _targets_and_current(params, target, batch, gamma, dials)
    apart = wanted[:, None, :] - current[:, :, None]  # [batch, current, wanted]
    size = jnp.abs(apart)
    bent = jnp.where(size > 1.0, size - 0.5, 0.5 * apart**2)
    middles = (jnp.arange(N) + 0.5) / N
    slopes = jnp.abs(middles[:, None] - (apart < 0.0))
    return (slopes * bent).sum(-2).mean()


QRDQN = Learner(lambda actions: actions * N, act, loss, td_errors, reach=float("inf"))
