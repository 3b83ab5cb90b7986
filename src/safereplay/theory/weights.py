"""The factors of w^∞ on a model, as logarithms, so that none underflows."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from .._types import Floats, Ints
from ..arrays import slots_of, unsafe_slots
from ..kernels.compile import Array, Bound, digest_of, specialise
from ..kernels.memory import OF_OUTCOME, STATISTICS
from ..mdp import TabularMDP
from ..schemes import Scheme
from .operator import MANY
from .solver import targets


class Entries(NamedTuple):
    """Parallel arrays of weights: of pairs, of their rewards, or of their outcomes. All sorted by pair, then reward.

    Weights are logarithms: e^{−1000} is small but not 0, so underflow makes no false ties.
    """

    pair: Ints
    r: Floats  #: nan if summed over rewards
    place: Ints  #: 2·s' + (whether the episode ends there); −1 if summed over next states
    within: Floats  #: log of the share of its pair's weight
    log_w: Floats  #: log w

    def argument(self, k: int) -> str:
        """The entry as the argument of w."""
        to = "·" if self.place[k] < 0 else f"s_next={self.place[k] // 2}"
        return "·, ·" if np.isnan(self.r[k]) else f"{to}, r={self.r[k]:g}"


class Weights(NamedTuple):
    """A scheme's w on a model: per pair, summed over next states, and per outcome."""

    raw: Floats  #: [P] pair_weight, not normalised
    pairs: Entries
    rewards: Entries
    outcomes: Entries


class Table(NamedTuple):
    """The J distinct outcomes of a model, and the statistics of its pairs after infinitely many visits."""

    pair: Ints  #: [J]
    r: Floats  #: [J]
    place: Ints  #: [J]
    seen: Floats  #: [J] counts
    stats: Floats  #: [P, 9] in the order of STATISTICS
    y: Floats  #: [J] r + γ·max_b Q(s',b)
    unsafe: Floats  #: [J] 1 where the outcome is unsafe


def limit_table(mdp: TabularMDP, Q: Floats | None = None) -> Table:
    """The outcomes and statistics that w^∞ depends on; those that depend on Q use this one (default 0)."""
    slot = slots_of(mdp)
    k = np.unique(slot)
    y = targets(mdp, np.zeros(mdp.n_states) if Q is None else Q.max(1))
    mean, unsafe = mdp.expect(mdp.r).ravel(), unsafe_slots(mdp).astype(np.float64)
    seen = np.asarray(np.bincount(slot, weights=mdp.p, minlength=mdp.p.size)[k] * MANY, np.float64)
    r_min, r_max = extremes(mdp)
    columns = {
        "n": np.full(mdp.n_pairs, MANY),
        "mean": mean,
        "var": mdp.reward_variance.ravel(),
        "r_min": r_min,
        "r_max": r_max,
        "td": np.zeros(mdp.n_pairs),
        "down": mdp.expect(np.minimum(mdp.r - mean[mdp.pair], 0.0) ** 2).ravel(),
        "harm": mdp.expect(unsafe[slot]).ravel(),
        "spread": mdp.expect((y - mdp.expect(y).ravel()[mdp.pair]) ** 2).ravel(),
    }
    stats = np.column_stack([columns[name] for name in STATISTICS])
    return Table(mdp.pair[k], mdp.r[k], 2 * mdp.s_next[k] + mdp.terminal[k], seen, stats, y[k], unsafe[k])


def extremes(mdp: TabularMDP) -> tuple[Floats, Floats]:
    """r_min and r_max of each pair, [P]; 0 if it has no outcomes."""
    used = np.diff(mdp.row) > 0
    low, high = np.zeros(mdp.n_pairs), np.zeros(mdp.n_pairs)
    low[used], high[used] = mdp.r[mdp.row[:-1][used]], mdp.r[mdp.row[1:][used] - 1]  # rows are sorted by reward
    return low, high


def evaluated(scheme: Scheme, table: Table) -> tuple[Floats, Floats, Floats]:
    """(pair_weight [P], log_tilt [J], next_weight [J])."""
    weight, tilt, share = np.empty(len(table.stats)), np.empty(table.r.size), np.empty(table.r.size)
    evaluate = _evaluator(*(scheme.bound(factor) for factor in scheme.OFFERS))
    evaluate(table, scheme.params(), weight, tilt, share)
    return weight, tilt, share


@lru_cache(maxsize=64)
def _evaluator(pair_weight: Bound, log_tilt: Bound, next_weight: Bound) -> Callable[..., None]:
    weight_of, tilt_of, next_of = pair_weight.call, log_tilt.call, next_weight.call

    def evaluate(table: Table, params: Any, weight: Array, tilt: Array, share: Array) -> None:
        for i in range(weight.size):
            x = table.stats[i]
            weight[i] = weight_of((x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], *params))
        for k in range(tilt.size):
            x = table.stats[table.pair[k]]
            stats = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8]
            tilt[k] = tilt_of((table.r[k], *stats, table.seen[k], table.y[k], table.unsafe[k], *params))
            share[k] = next_of((table.seen[k], *params))

    return specialise(evaluate, digest_of([pair_weight, log_tilt, next_weight]))


def taken_apart(scheme: Scheme, table: Table) -> Weights:
    """w for these statistics, by factor."""
    raw, tilt, share = evaluated(scheme, table)
    if scheme.bound("log_tilt").uses(*OF_OUTCOME):
        tilt, share = _by_reward(table, tilt, share)
    new = np.ones(table.r.size, bool)
    new[1:] = (np.diff(table.pair) != 0) | (np.diff(table.r) != 0)
    reward = np.cumsum(new) - 1
    pair, mass = table.pair[new], np.bincount(reward, weights=share)
    with np.errstate(divide="ignore", invalid="ignore"):  # log 0 is −inf, as intended
        tilt = np.where(mass > 0, tilt[new], -inf)
        total = log_sums(tilt, pair, raw.size)
        raw = np.where(np.isfinite(total), raw, 0.0)
        W = np.where(raw > 0, np.log(raw) - np.log(raw.sum()), -inf)
        tilt = np.where(W[pair] > -inf, tilt - total[pair], -inf)
        within = tilt[reward] + np.where(share > 0, np.log(share / mass[reward]), -inf)
    used = np.unique(pair)
    none = np.full(pair.size, -1)
    pairs = Entries(used, np.full(used.size, np.nan), none[: used.size], np.zeros(used.size), W[used])
    rewards = Entries(pair, table.r[new], none, tilt, W[pair] + tilt)
    return Weights(raw, pairs, rewards, Entries(table.pair, table.r, table.place, within, W[table.pair] + within))


def _by_reward(table: Table, tilt: Floats, share: Floats) -> tuple[Floats, Floats]:
    """A tilt over outcomes as one over rewards and shares within them: e^tilt·share, summed over the outcomes of a reward."""
    new = np.ones(table.r.size, bool)
    new[1:] = (np.diff(table.pair) != 0) | (np.diff(table.r) != 0)
    reward = np.cumsum(new) - 1
    with np.errstate(divide="ignore"):
        log_w = tilt + np.log(share)
        of_reward = log_sums(log_w, reward, int(reward[-1]) + 1)[reward]
    whole = np.isfinite(of_reward)
    within = np.exp(log_w - np.where(whole, of_reward, 0.0), where=whole, out=np.zeros_like(log_w))
    return of_reward, within


def log_sums(x: Floats, group: Ints, n_groups: int) -> Floats:
    """log Σ e^x within each group; −inf if it is empty."""
    top = np.full(n_groups, -inf)
    np.maximum.at(top, group, x)
    top = np.where(np.isfinite(top), top, 0.0)
    return np.asarray(top + np.log(np.bincount(group, weights=np.exp(x - top[group]), minlength=n_groups)))
