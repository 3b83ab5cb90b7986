"""Shaped replay without keys: transitions that turned out worse than expected are drawn more often.

A transition's TD error δ = r + γ·max Q(s',·) − Q(s,a) is below 0 if it turned out worse than the current networks expect: a *bad
surprise*. With

    h(δ)  =  min(1, β·max(−δ, 0) / u),          u  =  E[δ²] / E[|δ|]   over the memory,

a transition is drawn with probability ∝ (1 − v) + v·h(δ): one way to read it is to draw uniformly, keep every bad surprise of size u/β or more,
and keep other transitions with probability 1 − v. So a bad surprise is drawn up to 1/(1 − v) times as often as other transitions.

**The limit.** At a pair (s,a) with outcome probabilities q, the updates follow

    p̃  =  q·((1 − v) + v·h) / E_q[(1 − v) + v·h]  =  (1 − ρ)·q + ρ·ŵ,     ŵ ∝ q·h,     ρ = v·E_q[h] / ((1 − v) + v·E_q[h])  ≤  v,

so v is the largest share of replays in a pair's updates, as with keys. ρ and ŵ depend on the pair alone, not on how often it is visited. On tables the
limit is a zero of E_q[g(δ)] with g(δ) = δ·((1 − v) + v·h(δ)). This g increases with δ, so for a fixed unit the value of a pair is monotone in its targets and
shifts with constants, and the operator is a γ-contraction with one fixed point (:class:`~safereplay.SurpriseReplay`,
:func:`~safereplay.shaped_limit`). β → ∞ is an expectile, the limit of Mihatsch & Neuneier's learner.

**Why this form.** Weights are between 1 − v and 1. So no few transitions dominate a batch, and good news at a state whose value is too low is still drawn. Early in
training δ is mostly error; then u is large, and the tilt ignores what is small compared with it. β and v have no unit: multiplying all rewards by a constant changes no draw.
For a pair of two outcomes u is about half the distance between them. Q decides what is expected, so delayed harm is seen as soon as Q has learned it.

**Cost.** TD errors are computed on a *pool* of eight batches, drawn uniformly, once for ``every`` = 8 batches. Each batch is then uniform, except for a share that is drawn
from the pool ∝ h. So the extra cost per batch is one forward pass of the size of a batch; with ``every`` = 32 it is a quarter of that.

**The loss.** Where a loss is linear, as the Huber loss of DQN beyond a TD error of 1, a squared error's fixed point is a mean and the loss's is not: rare disasters
have no effect. With ``reach`` = 1, a draw is also weighted by max(1, |δ|), which restores the mean (Fujimoto, Meger & Precup 2020).

Ref: Mihatsch & Neuneier (2002); Fujimoto, Meger & Precup (2020); Pan et al. (2022).
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from . import _checks
from ._checks import Bools, Floats, Ints

V, BETA = 0.8, 1.0  #: the defaults of v and β
BATCHES = 8  #: the size of a pool, in batches
KEPT = 0.99  #: of the sums of |δ| and δ², from pool to pool
ARRAYS = ("generator", "sums", "pool", "errors")  #: arrays of a state


def surprise(delta: Any, unit: Any, beta: Any, xp: Any = np) -> Any:
    """h(δ) in [0, 1], for TD errors of any shape; β < 0 is for good surprises. ``xp`` is the module of the arrays: numpy, or jax.numpy.

    >>> surprise(np.array([-2.0, -0.5, 0.0, 3.0]), unit=1.0, beta=1.0)
    array([1. , 0.5, 0. , 0. ])
    """
    worse = xp.maximum(-xp.sign(beta) * delta, 0.0)
    return xp.minimum(worse * (abs(beta) / xp.where(unit > 0.0, unit, inf)), 1.0)


def weight(delta: Any, unit: Any, v: Any, beta: Any, reach: float = inf, xp: Any = np) -> Any:
    """How often a transition is drawn, relative to an ordinary one: 1 + v/(1 − v)·h(δ), times max(1, |δ|/reach).

    >>> weight(np.array([-2.0, 0.0, 3.0]), unit=1.0, v=0.75, beta=1.0)
    array([4., 1., 1.])
    """
    found = 1.0 + v / (1.0 - v) * surprise(delta, unit, beta, xp)
    return found * xp.maximum(abs(delta) / reach, 1.0) if reach < inf else found


class SurpriseSampler:
    """Chooses which transitions are replayed, by their TD errors: no keys, no statistics per pair.

    Parameters
    ----------
    v : float in [0, 1); a bad surprise is drawn up to 1/(1 − v) times as often as other transitions; 0 is uniform
    beta : float; a surprise of u/β counts in full, u being the unit of the memory's TD errors; < 0 prefers good surprises
    reach : float; the TD error beyond which the loss is linear: 1 for the Huber loss of DQN, infinite (default) for the squared error
    every : int; number of batches for which a pool of TD errors is used; more is cheaper, and its errors are older
    seed : int; of the draws

    >>> import numpy as np, safereplay as sr
    >>> rewards = np.where(np.arange(1000) % 10 == 0, -9.0, 1.0)  # one in ten is bad; the value 0 is their mean
    >>> sampler = sr.SurpriseSampler(v=0.8, seed=0)
    >>> batches = [sampler.draw(1000, 256, lambda slots: rewards[slots]) for _ in range(100)]
    >>> float((rewards[np.concatenate(batches)] < 0).mean().round(1))  # 0.1·5 / (0.1·5 + 0.9)
    0.4
    """

    def __init__(
        self, v: float = V, beta: float = BETA, *, reach: float = inf, every: int = BATCHES, seed: int = 0
    ) -> None:
        self.v, self.beta, self.reach = v, beta, reach
        self.every = _checks.whole("every", every, 1)
        self._bits = np.random.SFC64(_checks.whole("seed", seed, 0))
        self._rng = np.random.Generator(self._bits)
        self._sums: Floats = np.zeros(2)  # of |δ| and δ²
        self._pool: Ints = np.zeros(0, np.int64)
        self._errors: Floats = np.zeros(0)
        self._left = 0  # batches that the pool still serves
        self.tilted: Bools = np.zeros(0, bool)  #: of the last batch: which draws came from the pool

    @property
    def v(self) -> float:
        """The largest share of replays in a pair's updates. It can be set at any time."""
        return self._v

    @v.setter
    def v(self, value: float) -> None:
        self._v = _checks.between("v", value, "[0, 1)")

    @property
    def beta(self) -> float:
        """How small a surprise counts in full. It can be set at any time."""
        return self._beta

    @beta.setter
    def beta(self, value: float) -> None:
        self._beta = _checks.real("beta", value)

    @property
    def reach(self) -> float:
        """The TD error beyond which the loss is linear. It can be set at any time."""
        return self._reach

    @reach.setter
    def reach(self, value: float) -> None:
        self._reach = inf if value == inf else _checks.between("reach", value, "(0, inf)")

    @property
    def unit(self) -> float:
        """u, the unit of TD errors, over the last pools; 0 before the first."""
        return float(self._sums[1] / self._sums[0]) if self._sums[0] > 0.0 else 0.0

    @property
    def pool(self) -> tuple[Ints, Floats, Floats]:
        """The slots of the current pool, their TD errors, and how often each is drawn, relative to an ordinary transition."""
        return self._pool, self._errors, 1.0 + self._extra()

    def _extra(self) -> Floats:
        """The weights above those of an ordinary transition, over the pool."""
        return np.asarray(weight(self._errors, self.unit, self.v, self.beta, self.reach) - 1.0)

    def draw(self, size: int, batch: int, td_errors: Callable[[Ints], Any], slots: Any = None) -> Ints:
        """The slots of a batch, int [batch].

        Parameters
        ----------
        size : int; number of transitions that are stored
        batch : int
        td_errors : callable; maps slots int [n] to their TD errors [n], by the current networks
        slots : callable, optional; maps numbers below ``size`` to slots; default: they are the slots

        Raises
        ------
        BadInput : nothing is stored, or a TD error is not finite
        """
        _checks.require(size > 0, "size", "be at least 1", size, "store a transition before the first draw")
        chosen: Ints = self._rng.integers(size, size=batch)
        chosen = chosen if slots is None else slots(chosen)
        self.tilted = np.zeros(batch, bool)
        if self.v == 0.0 and self.reach == inf:
            return chosen
        if self._left == 0 or self._pool.size != BATCHES * batch:
            self._look(size, batch, td_errors, slots)
        self._left -= 1
        extra = self._extra()
        total = float(extra.sum())
        if total > 0.0:
            self.tilted = self._rng.random(batch) < total / (total + extra.size)
            luck = self._rng.random(int(self.tilted.sum())) * total
            found = np.searchsorted(np.cumsum(extra), luck, side="right")
            chosen[self.tilted] = self._pool[np.minimum(found, extra.size - 1)]
        return chosen

    def _look(self, size: int, batch: int, td_errors: Callable[[Ints], Any], slots: Any) -> None:
        """Draw another pool and compute its TD errors."""
        pool: Ints = self._rng.integers(size, size=BATCHES * batch)
        pool = pool if slots is None else slots(pool)
        errors = _checks.finite_array("TD errors", td_errors(pool)).ravel()
        _checks.require(errors.size == pool.size, "TD errors", f"have one number per slot, {pool.size}", errors.size)
        self._pool, self._errors, self._left = pool, errors, self.every
        self._sums = KEPT * self._sums + (np.abs(errors).sum(), (errors**2).sum())

    def forget(self, gone: Callable[[Ints], Bools]) -> None:
        """Give the transitions of the pool whose slots are ``gone`` no more weight: they were overwritten or removed."""
        if (mask := gone(self._pool)).any():
            self._errors = np.where(mask, 0.0, self._errors)

    def clear(self) -> None:
        """Forget the pool and the unit, as for another memory; the dials and the generator are kept."""
        self._sums, self._pool, self._errors, self._left = np.zeros(2), np.zeros(0, np.int64), np.zeros(0), 0

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as arrays and plain values; a sampler loaded from it makes the same draws."""
        state: Any = self._bits.state
        words = [*state["state"]["state"].tolist(), state["has_uint32"], state["uinteger"]]
        arrays = (np.array(words, np.uint64), self._sums, self._pool, self._errors)
        dials = {
            "v": self.v,
            "beta": self.beta,
            "reach": self.reach if self.reach < inf else None,
            "left": self._left,
            "every": self.every,
        }
        return {**dials, **{name: array.copy() for name, array in zip(ARRAYS, arrays, strict=True)}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; an invalid one raises an error and changes nothing."""
        for name in ("v", "beta", "reach", "left", "every", *ARRAYS):
            _checks.require(isinstance(state, dict) and name in state, "state", f"have the entry {name!r}", state)
        reach = inf if state["reach"] is None else state["reach"]
        made = SurpriseSampler(state["v"], state["beta"], reach=reach, every=state["every"])
        words, sums, pool, errors = (np.asarray(state[name]).copy() for name in ARRAYS)
        _checks.require(words.shape == (6,) and sums.shape == (2,), "state", "have 6 words and 2 sums", words.shape)
        same = pool.shape == errors.shape == (pool.size,)
        _checks.require(same, "state", "have one TD error per slot of the pool", errors.shape)
        made._sums, made._errors = (_checks.finite_array("state", x) for x in (sums, errors))
        made._pool, made._left = pool.astype(np.int64), _checks.whole("left", state["left"], 0)
        made.restart(words.astype(np.uint64))
        self.__dict__.update(made.__dict__)

    def restart(self, words: Any) -> None:
        """Restart the generator from at least four 64-bit words; two more restore its half-used word."""
        more = [int(x) for x in words[4:6]] or [0, 0]
        state: Any = {"state": np.array(words[:4], np.uint64)}
        self._bits.state = {"bit_generator": "SFC64", "state": state, "has_uint32": more[0], "uinteger": more[1]}
