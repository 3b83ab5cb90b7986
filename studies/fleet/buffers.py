"""Transitions, and replay with keys on a table from counts of outcomes.

It has the draws of :func:`~safereplay.jax.make_keyed_buffer`, at a cost that does not grow with the memory: equal transitions are equally likely to be
drawn, so it is enough to know how often each outcome of a pair was stored. Nothing is ever overwritten, so it serves networks
whose buffer holds all of their steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from safereplay.jax import TabularWorld
from safereplay.jax.replay import Sample, ShapedBuffer

Array = Any


class Transition(NamedTuple):
    """A step of an episode."""

    place: Array
    action: Array
    reward: Array  #: as the learner sees it
    after: Array  #: the next place
    terminated: Array


class Counts(NamedTuple):
    """How often each outcome was stored."""

    stored: Array  #: [P, K], by pair and outcome; floats, which are exact up to 2²⁴


def make_count_buffer(world: TabularWorld, batch: int, reward_scale: float = 1.0) -> ShapedBuffer:
    """A buffer for the transitions of a table whose rewards were divided by ``reward_scale``.

    >>> import jax, jax.numpy as jnp, safereplay as sr
    >>> world = TabularWorld(sr.grids.volatile())
    >>> buffer = make_count_buffer(world, batch=4)
    >>> one = Transition(jnp.int32(5), jnp.int32(1), jnp.float32(-100), jnp.int32(6), jnp.bool_(False))
    >>> memory = buffer.add(buffer.init(one), one)
    >>> buffer.sample(memory, jax.random.key(0), v=0.5).experience.reward.tolist()
    [-100.0, -100.0, -100.0, -100.0]
    """
    mdp = world.mdp
    first, counts = mdp.row[:-1], np.diff(mdp.row)
    K = int(counts.max())
    at = np.minimum(first[:, None] + np.arange(K), len(mdp.p) - 1)  # rows of the outcome table, [P, K]
    real = jnp.asarray(np.arange(K) < counts[:, None])
    x = jnp.asarray(mdp.r[at] / reward_scale, jnp.float32)
    after, ends = jnp.asarray(mdp.s_next[at], jnp.int32), jnp.asarray(mdp.terminal[at])
    A = mdp.n_actions

    def init(transition: Transition) -> Counts:
        """Nothing stored."""
        return Counts(jnp.zeros(real.shape))

    def add(memory: Counts, t: Transition) -> Counts:
        """Count an outcome."""
        i = t.place * A + t.action
        same = real[i] & (after[i] == t.after) & (ends[i] == t.terminated)
        k = jnp.where(same, jnp.abs(x[i] - t.reward), jnp.inf).argmin()
        return Counts(memory.stored.at[i, k].add(1.0))

    def sample(memory: Counts, key: Array, v: Array = 0.5, beta: Array = 2.0) -> Sample:
        """A batch: the formula of the buffer with keys, summed over equal transitions."""
        of_slope, of_slot, of_part = jax.random.split(key, 3)
        c = memory.stored
        seen = c > 0.0
        n = c.sum(1, keepdims=True)
        varies = jnp.where(seen, x, -jnp.inf).max(1) > jnp.where(seen, x, jnp.inf).min(1)
        d = jnp.where(seen & varies[:, None], x - (c * x).sum(1, keepdims=True) / jnp.maximum(n, 1.0), 0.0)
        size = (c * jnp.abs(d)).sum()
        unit = jnp.where(size > 0.0, (c * d**2).sum() / size, jnp.inf)
        exponent = jnp.where(seen, -jax.random.uniform(of_slope) * beta * d / unit, -jnp.inf)
        top = exponent.max(1, keepdims=True)
        t = c * jnp.exp(exponent - jnp.where(jnp.isfinite(top), top, 0.0))
        rho = jnp.where(varies, v, 0.0)[:, None]
        moved = rho * n * t / jnp.maximum(t.sum(1, keepdims=True), 1.0)  # the largest t of a pair is its count
        heights = jnp.cumsum(((1.0 - rho) * c + moved).ravel())
        luck = jax.random.uniform(of_slot, (batch,)) * heights[-1]
        found = jnp.minimum(jnp.searchsorted(heights, luck, side="right", method="scan_unrolled"), heights.size - 1)
        tilted = (
            jax.random.uniform(of_part, (batch,)) < (moved / jnp.maximum((1.0 - rho) * c + moved, 1e-30)).ravel()[found]
        )
        i = found // K
        drawn = Transition(i // A, i % A, x.ravel()[found], after.ravel()[found], ends.ravel()[found])
        return Sample(drawn, found, tilted)

    return ShapedBuffer(
        init, add, sample, lambda memory: memory.stored.sum() >= batch, lambda memory, key, errors: memory
    )
