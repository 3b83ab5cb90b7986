"""Callbacks for SB3: logging, checks, and targets to tilt on.

The target of a transition is r + γ(1 − done)·V(s'), by the algorithm's current target networks.

If harm comes later than the step that causes it, that step's reward is always the same, and there is nothing to tilt.
Its target differs, since V(s') includes later rewards. V(s') is

    DQN      max_a Q(s',a)
    QR-DQN   max_a of the quantiles' mean
    SAC, TD3 the smallest target critic at the actor's action, without noise or entropy
    TQC      the mean of the target critics' quantiles there, without the highest ones that TQC drops

Rewards and observations are normalised here as in training: Q is in those units.

Everything is logged to SB3's logger, under ``shaping/``, and so to TensorBoard, CSV or the screen, as the model is set up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from .. import _checks
from .._types import AnyArray, Bools, Floats, Ints
from ..errors import Once
from .buffers import ShapedReplayBuffer
from .stored import has_huber_loss

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

    from .buffers import ShapedReplayBuffer


CHUNK = 4096  #: transitions that go through the networks at once


def refresh(model: OffPolicyAlgorithm, buffer: ShapedReplayBuffer, at_most: int) -> int:
    """Compute targets of up to ``at_most`` slots, first those without one; return their number."""
    slots = buffer.shaper.due(at_most)
    for first in range(0, len(slots), CHUNK):
        part = slots[first : first + CHUNK]
        buffer.shaper.value(part, targets(model, buffer, part))
    return len(slots)


def targets(model: OffPolicyAlgorithm, buffer: ShapedReplayBuffer, slots: Ints) -> Floats:
    """r + γ(1 − done)·V(s') of the transitions in these slots."""
    batch = buffer.transitions(slots, model.get_vec_normalize_env())
    with th.no_grad():
        values = next_values(model, batch.next_observations).reshape(-1, 1)
        discounts = model.gamma if batch.discounts is None else batch.discounts  # given for n-step targets
        found = batch.rewards + discounts * (1.0 - batch.dones) * values
    return np.asarray(found.cpu().numpy(), np.float64).ravel()


def next_values(model: Any, obs: Any) -> th.Tensor:
    """V of a batch of observations."""
    check_model(model)
    if hasattr(model, "q_net_target"):
        Q: th.Tensor = model.q_net_target(obs)
    elif hasattr(model, "quantile_net_target"):
        Q = model.quantile_net_target(obs).mean(dim=1)
    else:
        actions = model.actor_target(obs) if hasattr(model, "actor_target") else model.actor(obs, deterministic=True)
        found = model.critic_target(obs, actions)
        if isinstance(found, th.Tensor):  # quantiles [n, critics, quantiles]
            dropped = model.top_quantiles_to_drop_per_net * found.shape[1]
            quantiles = found.flatten(1).sort(dim=1).values
            return quantiles[:, : quantiles.shape[1] - dropped].mean(dim=1)
        return th.cat(found, dim=1).min(dim=1).values
    return Q.max(dim=1).values


def check_model(model: Any) -> None:
    """Refuse an algorithm whose target networks are not supported."""
    known = any(hasattr(model, name) for name in ("q_net_target", "quantile_net_target", "critic_target"))
    _checks.require(
        known,
        "model",
        'have target networks for tilt_on="target"',
        type(model).__name__,
        "DQN, QRDQN, SAC, TD3 and TQC do",
    )


#: The largest reward of an unsafe transition, or a function of rewards and dones that returns flags.
Unsafe = float | Callable[[AnyArray, AnyArray], Any]


class ShapingCallback(BaseCallback):
    """Logs what is replayed and refreshes targets for ``tilt_on="target"``.

    Every ``log_every`` steps: ``shaping/rho_mean`` over what is stored, ``shaping/share_replayed`` of the transitions drawn
    since, ``shaping/share_unsafe`` of them and ``shaping/share_unsafe_stored``, ``shaping/pairs``, and for TensorBoard a
    table of the ``top`` pairs. Unsafe transitions are marked by ``info["unsafe"]`` of the environment, or by ``unsafe``.
    Every ``refresh_every`` steps up to ``refresh_size`` targets are computed, new transitions first.

    >>> ShapingCallback(log_every=500, unsafe=-10.0).most_replayed()
    []
    """

    model: OffPolicyAlgorithm

    def __init__(
        self,
        log_every: int = 1000,
        top: int = 5,
        unsafe: Unsafe | None = None,
        refresh_every: int = 250,
        refresh_size: int = 2048,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        self.log_every = _checks.whole("log_every", log_every, 1)
        self.top = _checks.whole("top", top, 1)
        self.unsafe = unsafe if unsafe is None or callable(unsafe) else _checks.real("unsafe", unsafe)
        self.refresh_every = _checks.whole("refresh_every", refresh_every, 1)
        self.refresh_size = _checks.whole("refresh_size", refresh_size, 1)
        self._buffer: ShapedReplayBuffer | None = None
        self._once = Once()
        self._before = 0
        self._drawn = self._replayed = self._bad = 0

    # -- what SB3 calls -----------------------------------------------------------------------------------------------

    def _on_training_start(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None)
        _checks.require(
            isinstance(buffer, ShapedReplayBuffer),
            "replay_buffer_class",
            "be ShapedReplayBuffer",
            type(buffer).__name__,
        )
        assert isinstance(buffer, ShapedReplayBuffer)
        self._buffer = buffer
        self._before = self.model.num_timesteps
        buffer.on_draw = self._count
        buffer.has_huber_loss = has_huber_loss(self.model)
        buffer.cut()  # learn() may have started new episodes
        if buffer.tilt_on == "target":
            check_model(self.model)
        if getattr(self.model, "n_steps", 1) not in (1, buffer.n_steps):
            why = f"with a custom replay buffer class; targets use n_steps={buffer.n_steps}"
            self._once.advise(
                "n_steps", f"n_steps={self.model.n_steps} is ignored by SB3 {why}; set it in replay_buffer_kwargs"
            )
        used = ["targets use"] if buffer.n_steps > 1 else []
        used += ["tilted returns use"] if buffer.v > 0.0 and buffer.tilt_on == "return" else []
        if used and buffer.gamma != self.model.gamma:
            gammas = f"gamma={self.model.gamma:g} but {' and '.join(used)} gamma={buffer.gamma:g}"
            self._once.advise("gamma", f"the model has {gammas}; set it in replay_buffer_kwargs")

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        """Called between collecting and training. It depends only on the number of steps, so a resumed run does the same."""
        assert self._buffer is not None
        before, now = self._before, self.model.num_timesteps
        self._before = now
        if self._buffer.v > 0.0 and self._buffer.tilt_on == "target" and now > self.model.learning_starts:
            self._refresh(before, now)
        if before // self.log_every < now // self.log_every:
            self._log()

    def _on_training_end(self) -> None:
        if self._buffer is not None:
            self._buffer.on_draw = None

    # -- targets ------------------------------------------------------------------------------------------------------

    def _refresh(self, before: int, now: int) -> None:
        """Compute all targets when learning starts; later some at a time."""
        assert self._buffer is not None
        if before <= self.model.learning_starts:
            refresh(self.model, self._buffer, len(self._buffer.held()))
        elif before // self.refresh_every < now // self.refresh_every:
            refresh(self.model, self._buffer, self.refresh_size)

    # -- logging ------------------------------------------------------------------------------------------------------

    def _count(self, slots: Ints) -> None:
        assert self._buffer is not None
        self._drawn += slots.size
        self._replayed += int(np.count_nonzero(self._buffer.shaper.index.tilted))
        self._bad += int(np.count_nonzero(self._is_unsafe(slots)))

    def _is_unsafe(self, slots: Ints) -> Bools:
        assert self._buffer is not None
        if self.unsafe is None:
            return self._buffer.unsafe.take(slots)
        rewards = self._buffer.rewards.take(slots)
        if not callable(self.unsafe):
            return np.asarray(rewards <= self.unsafe)
        return np.asarray(self.unsafe(rewards, self._buffer.dones.take(slots) > 0), bool)

    def _log(self) -> None:
        for name, value in self.measures().items():
            self.logger.record(f"shaping/{name}", value)
        if self._buffer is not None and self._buffer.v > 0.0:
            self.logger.record("shaping/most_replayed", self._text(), exclude=("stdout", "log", "json", "csv"))
        self._drawn = self._replayed = self._bad = 0

    def measures(self) -> dict[str, float]:
        """The logged numbers: of the stored transitions, and of those drawn since the last call."""
        buffer = self._buffer
        if buffer is None or not buffer.size():
            return {}
        stored = float(np.mean(self._is_unsafe(buffer.held())))
        drawn = self._bad / self._drawn if self._drawn else stored  # at v = 0 draws are uniform and not counted
        found = {
            "v": buffer.v,
            "share_unsafe": drawn,
            "share_unsafe_stored": stored,
            "share_replayed": 0.0,
            "rho_mean": 0.0,
        }
        if buffer.v > 0.0:
            table = buffer.shaper.index.pair_table()
            found["share_replayed"] = self._replayed / max(self._drawn, 1)
            found["rho_mean"] = float(table["held"] @ table["rho"] / max(table["held"].sum(), 1))
            found["pairs"] = len(table["key"])
        return found

    def most_replayed(self, k: int | None = None) -> list[dict[str, Any]]:
        """The k pairs with most replays, each with its share of all draws, its statistics, and its worst transition."""
        rows = self._top(self.top if k is None else _checks.whole("k", k, 1))
        if not rows:
            return []
        assert self._buffer is not None
        held = self._buffer.held()
        keys = self._buffer.shaper.index.key_of(held)
        for row in rows:
            slots = held[keys == np.uint64(row["key"])]
            worst = slots[[np.argmin(self._buffer.rewards.take(slots))]]
            batch = self._buffer.transitions(worst)
            obs: Any = batch.observations
            row["obs"] = {name: x[0].tolist() for name, x in obs.items()} if isinstance(obs, dict) else obs[0].tolist()
            row["action"] = batch.actions[0].tolist()
            row["reward"] = float(self._buffer.rewards.take(worst)[0])
        return rows

    def _top(self, k: int) -> list[dict[str, Any]]:
        if self._buffer is None or self._buffer.v == 0.0:
            return []
        table = self._buffer.shaper.index.pair_table()
        share = table["held"] * table["rho"] / max(table["held"].sum(), 1)
        best = np.argsort(-share, kind="stable")[:k]
        columns = {name: table[name][best].tolist() for name in ("key", "n", "mean", "std", "rho")}
        columns["share"] = share[best].tolist()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True) if row[-1] > 0.0]

    def _text(self) -> str:
        """The top pairs as a table for TensorBoard."""
        lines = ["| pair | n | mean | std | ρ | share of draws |", "|---|---|---|---|---|---|"]
        for row in self._top(self.top):
            numbers = " | ".join(f"{row[name]:.3g}" for name in ("mean", "std", "rho", "share"))
            lines.append(f"| {row['key']:016x} | {row['n']:.0f} | {numbers} |")
        return "\n".join(lines)
