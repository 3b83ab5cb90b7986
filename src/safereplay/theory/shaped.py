"""The limit of shaped replay from a large memory of transitions.

A deep agent draws transitions (:class:`~safereplay.Shaper`), not distinct rewards, and its mixing is anchored: a draw at pair
(s,a) uses the tilt with probability ρ(s,a) = v·min(1, W(s,a)). With many transitions per pair the draws there follow

    p̃(s',r|s,a)  =  (1 − ρ)·q  +  ρ·ŵ,          ŵ ∝ q(s',r|s,a)·e^{log_tilt(x)},

with the statistics of x under q. For a pooled scheme (:class:`~safereplay.EntropicReplay`) ŵ is averaged over slopes, in the unit of all
pairs together. Q-learning on those draws converges to the fixed point Q for p̃; so should a network that can
represent each pair separately. If x is the target r + γ·max Q(s',·), ŵ depends on Q: then Q must be a fixed point for the p̃ of its own targets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .. import _checks
from .._types import Bools, Floats
from ..kernels.layers import PAIR
from ..mdp import TabularMDP
from ..pair_index import linear, pieces_of, shares
from ..schemes import EntropicReplay, Scheme
from .solver import TOLERANCE, optimal, slack, targets

MANY = 1 << 30  # transitions per pair that represent infinity
MAX_BACKUPS = 20_000
TILTS = ("reward", "target")


class Drawn(NamedTuple):
    """The distribution of draws in the limit."""

    p: Floats  #: p̃ of every outcome, [K]
    rho: Floats  #: ρ(s,a), [S, A]


def drawn(mdp: TabularMDP, scheme: Scheme, v: float, x: Floats, unit: float | None = None) -> Drawn:
    """p̃ and ρ if outcome k has the number x[k]; ``unit`` None weights all pairs equally."""
    mean = mdp.expect(x).ravel()
    d = x - mean[mdp.pair]
    pairs = np.zeros(mdp.n_pairs, PAIR)
    pairs["n"], pairs["mean"] = MANY, mean
    pairs["m2"] = MANY * mdp.expect(np.where(_constant(mdp, x)[mdp.pair], 0.0, d) ** 2).ravel()
    W, slope = np.empty(mdp.n_pairs), np.empty(mdp.n_pairs)
    pieces_of(scheme).weigh(pairs, scheme.params(), W, slope)
    if scheme.POOLED:
        slope /= (pooled_unit(mdp, x) if unit is None else unit) or 1.0
    w = shares(mdp.pair, mdp.p, -slope[mdp.pair] * d, scheme.POOLED)
    rho = v * np.minimum(W, 1.0)
    return Drawn((1.0 - rho[mdp.pair]) * mdp.p + rho[mdp.pair] * w, rho.reshape(mdp.n_states, mdp.n_actions))


def pooled_unit(mdp: TabularMDP, x: Floats) -> float:
    """u = Σ d² / Σ |d| with all pairs weighted equally, d = x − mean of the pair; 0 if no pair varies."""
    d = np.where(_constant(mdp, x)[mdp.pair], 0.0, np.abs(x - mdp.expect(x).ravel()[mdp.pair]))
    scale = float(d.max(initial=0.0))
    return scale * float((mdp.p * (d / scale) ** 2).sum() / (mdp.p * (d / scale)).sum()) if scale > 0.0 else 0.0


def _constant(mdp: TabularMDP, x: Floats) -> Bools:
    """Which pairs have only one x: a mean by sums may differ from it by rounding."""
    low, high = np.full(mdp.n_pairs, np.inf), np.full(mdp.n_pairs, -np.inf)
    np.minimum.at(low, mdp.pair, x)
    np.maximum.at(high, mdp.pair, x)
    return np.asarray(low >= high)


def shaped_limit(
    mdp: TabularMDP,
    scheme: Scheme | None = None,
    v: float = 0.5,
    tilt_on: str = "reward",
    unit: float | None = None,
) -> Floats:
    """The limit Q [S, A] of an agent with a shaped replay memory, if its key separates all pairs.

    ``tilt_on`` is "reward" or "target", as in :class:`~safereplay.Shaper`. For targets, Q is iterated with the
    p̃ of the previous Q; an error is raised if that does not converge. ``unit`` is that of the memory, ``shaper.index.unit``;
    None assumes that all pairs are visited equally.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> sr.verdict(mdp, sr.shaped_limit(mdp, v=0.0).argmax(1)), sr.verdict(mdp, sr.shaped_limit(mdp, v=0.5).argmax(1))
    ('risky', 'safe')
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    scheme = linear(EntropicReplay() if scheme is None else scheme)
    v = _checks.between("v", v, "[0, 1]")
    tilt_on = _checks.choice("tilt_on", tilt_on, TILTS)
    if unit is not None:
        unit = _checks.between("unit", unit, "(0, inf)")
    Q = optimal(mdp, drawn(mdp, scheme, v, mdp.r, unit).p)
    return Q if tilt_on == "reward" else _fitting_itself(mdp, scheme, v, Q, unit)


def _fitting_itself(mdp: TabularMDP, scheme: Scheme, v: float, Q: Floats, unit: float | None) -> Floats:
    """A Q that is the fixed point for the p̃ of its own targets, iterated from this one."""
    near, backups = False, 0
    while not near:
        backups += 1
        _checks.require(backups <= MAX_BACKUPS, "scheme", "let targets converge", scheme, "try a smaller beta or v")
        x = targets(mdp, Q.max(1))
        new = mdp.expect(x, drawn(mdp, scheme, v, x, unit).p)
        near = bool(np.abs(new - Q).max() <= slack(TOLERANCE * (1.0 - mdp.gamma), new, mdp.r))
        Q = new
    return Q
