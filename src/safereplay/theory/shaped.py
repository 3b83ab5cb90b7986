"""The limit of shaped replay from a large memory of transitions, and the properties of a sound tilt.

**The limit.** A deep agent draws transitions (:class:`~safereplay.Shaper`), not distinct rewards, and its mixing is anchored: a draw at pair
(s,a) uses the tilt with probability ρ(s,a) = v·min(1, W(s,a)). With many transitions per pair the draws there follow

    p̃(s',r|s,a)  =  (1 − ρ)·q  +  ρ·ŵ,          ŵ ∝ q(s',r|s,a)·e^{log_tilt(x)},

with the statistics of x under q. For a pooled scheme (:class:`~safereplay.EntropicReplay`) ŵ is averaged over slopes, in the unit of all
pairs together. Q-learning on those draws converges to the fixed point Q for p̃; so should a network that can
represent each pair separately. If x is the target r + γ·max Q(s',·), ŵ depends on Q: then Q must be a fixed point for the p̃ of its own targets.

Without keys (:class:`~safereplay.SurpriseSampler`) a draw at (s,a) follows p̃ ∝ q·((1 − v) + v·h(δ)), whatever the other pairs are, except that they share the
unit u = E[δ²]/E[|δ|]. That is the limit of :class:`~safereplay.SurpriseReplay` with κ = v and β/u, under anchored mixing at v = 1.

**A sound tilt.** Let q be the outcomes of a pair and p̃ = (1 − ρ)·q + ρ·ŵ those of its updates. A sound tilt has four properties:

    order      of two pairs with the same two outcomes, the one with more probability on the bad one has more of it in p̃; and a pair
               whose outcomes are at least as good in every case (first-order dominance) is not valued less
    direction  a cautious tilt never values a pair above its mean, and more v or β never lowers p̃ of the bad outcome
    units      adding a constant to all rewards changes no p̃; multiplying them by c > 0 changes none, unless β has a unit
    rarity     ŵ of an outcome grows with its probability

:func:`judge` searches for the first counterexample of each in a fixed family of gambles: one step, two or three outcomes, probabilities from
0.001 to 0.9, prizes from 0.25 to 16 times the stake. A counterexample is a disproof; finding none is not a proof. Proofs, if there are any,
are in the docstrings of the schemes. The gambles have one step, so that only the tilt is judged: if the danger of an outcome lies in the
next state, no tilt on rewards can detect it.

**A risk measure.** Let f(y) = Σ ŵ·y be the value of a pair with targets y and fixed probabilities. If f is monotone and shifts with
constants, the operator of anchored mixing is a γ-contraction, so there is one limit, and iteration finds it. :func:`measure` searches for
counterexamples in the same way:

    monotone   raising a target does not lower f
    shifts     f(y + c) = f(y) + c
    contracts  |f(y) − f(y')| ≤ max |y − y'| where ŵ depends on Q; without such dependence H always contracts

If f shifts, the first and the third are the same property of f. They differ for a tilt on rewards: it may not be monotone in the rewards, but
contracts in Q.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product
from typing import Any, NamedTuple, cast

import numpy as np

from .. import _checks
from .._checks import Bools, Floats
from ..errors import BadInput
from ..kernels.layers import PAIR
from ..mdp import TabularMDP
from ..pair_index import linear, pieces_of, shares, unfit
from ..schemes import EntropicReplay, Scheme, SurpriseReplay
from .operator import limit_weights, valued, weighted
from .solver import TOLERANCE, extremes, optimal, slack, targets
from .theorem2 import Part

MANY = 1 << 30  # transitions per pair that represent infinity
MAX_BACKUPS = 20_000
MAX_UNITS = 200
TILTS = ("reward", "target")


def drawn(mdp: TabularMDP, scheme: Scheme, v: float, x: Floats, unit: float | None = None) -> tuple[Floats, Floats]:
    """p̃ [K] and ρ [S, A] if outcome k has the number x[k]; ``unit`` None weights all pairs equally."""
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
    return (1.0 - rho[mdp.pair]) * mdp.p + rho[mdp.pair] * w, rho.reshape(mdp.n_states, mdp.n_actions)


def pooled_unit(mdp: TabularMDP, x: Floats) -> float:
    """u = Σ d² / Σ |d| with all pairs weighted equally, d = x − mean of the pair; 0 if no pair varies."""
    return _unit(mdp, x, x - mdp.expect(x).ravel()[mdp.pair])


def _unit(mdp: TabularMDP, x: Floats, d: Floats) -> float:
    """Σ d² / Σ |d| over the outcomes of pairs at which x varies."""
    d = np.where(_constant(mdp, x)[mdp.pair], 0.0, np.abs(d))
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
    v: float | None = None,
    tilt_on: str = "reward",
    unit: float | None = None,
) -> Floats:
    """The limit Q of an agent with a shaped replay memory, if its networks, and its key if it has one, separate all pairs.

    Parameters
    ----------
    mdp : TabularMDP
    scheme : Scheme, optional; default: :class:`~safereplay.EntropicReplay`, with keys; :class:`~safereplay.SurpriseReplay` is replay without keys
    v : float, optional; with keys the share of tilted draws, in [0, 1], default 0.5; without, the sampler's v, default the scheme's κ
    tilt_on : {"reward", "target"}; with keys, as in :class:`~safereplay.Shaper`; for targets, Q is iterated with p̃ of the previous Q
    unit : float, optional; that of the memory, ``shaper.index.unit`` or ``sampler.unit``; default: that of equal visits of all pairs

    Returns
    -------
    array [S, A] : Q of every pair

    Raises
    ------
    BadInput : an argument is invalid, or the iteration does not converge

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> sr.verdict(mdp, sr.shaped_limit(mdp, v=0.0).argmax(1)), sr.verdict(mdp, sr.shaped_limit(mdp, v=0.5).argmax(1))
    ('risky', 'safe')
    >>> sr.verdict(mdp, sr.shaped_limit(mdp, sr.SurpriseReplay()).argmax(1))  # without keys
    'safe'
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    if unit is not None:
        unit = _checks.between("unit", unit, "(0, inf)")
    if isinstance(scheme, SurpriseReplay):
        return _without_keys(mdp, scheme if v is None else replace(scheme, kappa=v), unit)
    scheme = linear(EntropicReplay() if scheme is None else scheme)
    v = _checks.between("v", 0.5 if v is None else v, "[0, 1]")
    tilt_on = _checks.choice("tilt_on", tilt_on, TILTS)
    Q = optimal(mdp, drawn(mdp, scheme, v, mdp.r, unit)[0])
    near, backups = tilt_on == "reward", 0
    while not near:
        backups += 1
        _checks.require(backups <= MAX_BACKUPS, "scheme", "let targets converge", scheme, "try a smaller beta or v")
        x = targets(mdp, Q.max(1))
        new = mdp.expect(x, drawn(mdp, scheme, v, x, unit)[0])
        near = bool(np.abs(new - Q).max() <= slack(TOLERANCE * (1.0 - mdp.gamma), new, mdp.r))
        Q = new
    return Q


def _without_keys(mdp: TabularMDP, scheme: SurpriseReplay, unit: float | None) -> Floats:
    """The limit in a unit, or in that of its own TD errors: then both are iterated until neither changes."""
    Q, known = optimal(mdp, mdp.p), unit is not None
    for _ in range(MAX_UNITS):
        before, unit = unit, unit if known else error_unit(mdp, Q)
        if not unit:
            return Q  # nothing varies
        if not known and before is not None:
            unit = (before * unit) ** 0.5  # damped: a larger unit makes a weaker tilt, and larger errors
        Q = valued(mdp, replace(scheme, beta=scheme.beta / unit), 1.0, anchored=True)[0]
        if known or (before is not None and abs(unit - before) <= TOLERANCE * unit):
            return Q
    return _checks.fail("unit", "converge on this model", unit, "give the unit of a memory: unit=")


def error_unit(mdp: TabularMDP, Q: Floats) -> float:
    """u = E[δ²] / E[|δ|] of the TD errors of Q, with all pairs weighted equally; 0 if nothing varies."""
    y = targets(mdp, Q.max(1))
    return _unit(mdp, y, y - Q.ravel()[mdp.pair])


PROBABILITIES = (0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9)  #: of the bad outcome
LOSSES = (1.0, 4.0, 16.0)  #: difference between the good and the bad outcome
PRIZES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
VS = (0.5, 0.1, 0.9, 0.99)
TURNS = (0.25, 0.5, 1.0, 2.0, 4.0)  #: of β
MEMORIES = ("table", "transitions")
ROUNDING = 1e-9

Gamble = tuple[tuple[float, float], ...]  #: outcomes (probability, reward)


@dataclass(frozen=True)
class Soundness:
    """Which of the four properties a scheme has on the family of gambles; each part has the first counterexample found.

    >>> import safereplay as sr
    >>> judge(sr.EntropicReplay(), "transitions").broken
    ()
    >>> judge(sr.ScoreReplay(), "transitions").broken
    ('order', 'rarity')
    >>> print(judge(sr.VarianceReplay(), "table").rarity.reason)
    the bad outcome of 0 or -1 has ŵ = 0.9933 at probability 0.001, and 0.9933 at 0.01
    """

    memory: str  #: "table" for replay of distinct rewards, "transitions" for replay of stored transitions
    order: Part
    direction: Part
    units: Part
    rarity: Part

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the properties that fail."""
        return tuple(name for name, part in self.parts() if part.holds is False)

    def parts(self) -> list[tuple[str, Part]]:
        """The four properties by name."""
        return [(name, getattr(self, name)) for name in SEARCHES]


def judge(scheme: Scheme, memory: str = "table") -> Soundness:
    """Whether a scheme's tilt is sound in a ``memory``: a "table" of distinct outcomes, or "transitions" in a ring."""
    _checks.require(isinstance(scheme, Scheme), "scheme", "be a Scheme", scheme)
    _checks.choice("memory", memory, MEMORIES)
    if memory == "transitions" and (reason := unfit(scheme)) is not None:
        _checks.fail("scheme", "suit a memory of transitions", scheme, reason)
    parts = {}
    for name, search in SEARCHES.items():
        try:
            text = next(search(scheme, memory), None)
            parts[name] = Part(text is None, text or "no counterexample among the gambles tried")
        except BadInput as error:  # the scheme has no weights of its own on gambles
            parts[name] = Part(None, f"cannot be said: {error}")
    return Soundness(memory, **parts)


class _Shaped(NamedTuple):
    """The effective outcomes of gambles: [pairs] of each; the bad outcome is the lowest."""

    bad: Floats  #: p̃ of the worst reward
    replayed: Floats  #: ŵ of the worst reward; nan if it is not replayed
    value: Floats  #: the mean under p̃
    mean: Floats  #: the mean under q


def _shaped(scheme: Scheme, memory: str, v: float, gambles: list[Gamble], flagged: Any = min) -> _Shaped:
    """p̃ of some gambles, side by side in one model; the lowest reward is unsafe, or the highest if ``flagged`` is max."""
    unsafe = flagged(r for gamble in gambles for _, r in gamble)
    rows = [(0, a, p, 1, r, True, r == unsafe) for a, gamble in enumerate(gambles) for p, r in gamble]
    mdp = TabularMDP.from_outcomes(2, len(gambles), rows, gamma=0.9, start=0)
    if memory == "table":
        ones = np.ones((mdp.n_states, mdp.n_actions))
        if scheme.names("value"):
            H = valued(mdp, scheme, v)[1]
        else:
            H = weighted(mdp, limit_weights(mdp, scheme, np.zeros_like(ones), ones), v, ones)
        p, rho = H.p, H.rho
    else:
        p, rho = drawn(mdp, scheme, v, mdp.r)
    with np.errstate(divide="ignore", invalid="ignore"):
        w = (p - (1.0 - rho.ravel()[mdp.pair]) * mdp.p) / rho.ravel()[mdp.pair]
    bad = mdp.r == extremes(mdp)[0][mdp.pair]
    replayed = mdp.expect(np.where(bad, w, 0.0), np.ones_like(p))
    return _Shaped(mdp.expect(bad, p)[0], replayed[0], mdp.expect(mdp.r, p)[0], mdp.expect(mdp.r)[0])


def _risks(loss: float, *probabilities: float) -> list[Gamble]:
    """Gambles for 0 or a loss, with each of these probabilities (default: all)."""
    return [((p, -loss), (1.0 - p, 0.0)) for p in probabilities or PROBABILITIES]


def _disorder(scheme: Scheme, memory: str) -> Iterator[str]:
    for loss, v in product(LOSSES, VS):
        for less, more in combinations(PROBABILITIES, 2):
            bad = _shaped(scheme, memory, v, _risks(loss, less, more)).bad
            if bad[1] < bad[0] - ROUNDING:
                yield (
                    f"of two pairs that give 0 or {-loss:g}, the one with probability {less:g} of {-loss:g} has p̃ = {bad[0]:.4g} of it, "
                    f"the one with {more:g} has {bad[1]:.4g} (v = {v:g})"
                )
    for chance, v in product((0.5, 0.1, 0.9), VS):
        for low, high in pairwise(PRIZES):
            value = _shaped(scheme, memory, v, [((1.0 - chance, 0.0), (chance, x)) for x in (low, high)]).value
            if value[1] < value[0] - ROUNDING:
                yield (
                    f"0 or {low:g} with probability {chance:g} is valued {value[0]:.4g}, 0 or {high:g} with the same probability "
                    f"{value[1]:.4g} (v = {v:g}): a better prize looks worse"
                )


def _misdirection(scheme: Scheme, memory: str) -> Iterator[str]:
    for loss, flagged in product(LOSSES, (min, max) if scheme.names("unsafe", "harm") else (min,)):
        turned = [_shaped(scheme, memory, v, _risks(loss), flagged) for v in sorted(VS)]
        for v, one in zip(sorted(VS), turned, strict=True):
            for i in np.flatnonzero(one.value > one.mean + ROUNDING)[:1]:
                yield (
                    f"{-loss:g} with probability {PROBABILITIES[i]:g}, else 0{' (unsafe)' if flagged is max else ''}, is valued "
                    f"{one.value[i]:.4g}, above its mean {one.mean[i]:.4g} (v = {v:g})"
                )
        dials = [("v", tuple(sorted(VS)), turned)]
        if "beta" in scheme.params_names():
            betas = tuple(turn * float(getattr(scheme, "beta")) for turn in TURNS)  # noqa: B009 (not every scheme has one)
            schemes = (replace(cast(Any, scheme), beta=beta) for beta in betas)
            dials.append(("β", betas, [_shaped(one, memory, 0.5, _risks(loss), flagged) for one in schemes]))
        for dial, settings, found in dials:
            for k, i in np.argwhere(np.diff([one.bad for one in found], axis=0) < -ROUNDING)[:1]:
                yield (
                    f"{-loss:g} with probability {PROBABILITIES[i]:g} has p̃ = {found[k].bad[i]:.4g} at {dial} = {settings[k]:g}, "
                    f"and less, {found[k + 1].bad[i]:.4g}, at {settings[k + 1]:g}"
                )


def _units(scheme: Scheme, memory: str) -> Iterator[str]:
    for loss in LOSSES:
        plain = _shaped(scheme, memory, 0.5, _risks(loss)).bad
        changes = [("1 is added", 1.0, 1.0)]
        if not (scheme.UNIT or (scheme.POOLED and memory == "table")):
            changes += [("rewards are doubled", 2.0, 0.0), ("rewards are a thousandth", 1e-3, 0.0)]
        for change, c, plus in changes:
            changed: list[Gamble] = [tuple((p, c * r + plus) for p, r in risk) for risk in _risks(loss)]
            other = _shaped(scheme, memory, 0.5, changed).bad
            for i in np.flatnonzero(np.abs(other - plain) > 1e-6)[:1]:
                yield f"{-loss:g} with probability {PROBABILITIES[i]:g} has p̃ = {plain[i]:.4g}, and {other[i]:.4g} when {change}"


def _rare(scheme: Scheme, memory: str) -> Iterator[str]:
    for loss in LOSSES:
        w = _shaped(scheme, memory, 0.5, _risks(loss)).replayed
        for i in np.flatnonzero(np.diff(w) <= 0.0)[:1]:
            less = f"{w[i]:.4g} at probability {PROBABILITIES[i]:g}"
            yield f"the bad outcome of 0 or {-loss:g} has ŵ = {less}, and {w[i + 1]:.4g} at {PROBABILITIES[i + 1]:g}"


SEARCHES = {"order": _disorder, "direction": _misdirection, "units": _units, "rarity": _rare}


@dataclass(frozen=True)
class Measure:
    """Which properties of a risk measure the value of a pair has; each part has the first counterexample found."""

    monotone: Part
    shifts: Part
    contracts: Part

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of the properties that fail."""
        return tuple(name for name, part in vars(self).items() if part.holds is False)


def measure(scheme: Scheme) -> Measure:
    """Whether a scheme values a pair by a monotone measure that shifts with constants, and whether H contracts in Q.

    >>> import safereplay as sr
    >>> measure(sr.CVaRReplay()).broken, measure(sr.ReturnReplay()).broken
    ((), ('monotone', 'contracts'))
    >>> print(measure(sr.ReturnReplay()).monotone.reason)
    0, 0.25 with probabilities 0.5, 0.5 is valued 0.05568; 0, 0.5 with probabilities 0.5, 0.5 is valued 0.03793
    """
    _checks.require(isinstance(scheme, Scheme), "scheme", "be a Scheme", scheme)
    parts = {}
    for name, search in MEASURED.items():
        text = next(search(scheme), None)
        parts[name] = Part(text is None, text or "no counterexample among the gambles tried")
    return Measure(**parts)


def _worth(scheme: Scheme, gambles: list[Gamble]) -> Floats:
    """Σ ŵ·r of gambles, [pairs]; the mean of one that is not replayed. Its first outcome is unsafe."""
    rows = [(0, a, p, 1, r, True, k == 0) for a, gamble in enumerate(gambles) for k, (p, r) in enumerate(gamble)]
    mdp = TabularMDP.from_outcomes(2, len(gambles), rows, gamma=0.9, start=0)
    Q = valued(mdp, scheme, 1.0, anchored=True)[0] if scheme.names("value") else np.zeros((2, len(gambles)))
    w = limit_weights(mdp, scheme, Q)
    W = np.bincount(mdp.pair, weights=w)[mdp.pair]
    return np.asarray(mdp.expect(mdp.r, np.divide(w, W, out=mdp.p.copy(), where=W > 0))[0])


def _moves(steps: tuple[float, ...], signs: Sequence[float]) -> Iterator[tuple[Gamble, Gamble, float]]:
    """Gambles of two and three outcomes, each also with its outcomes moved by steps of these signs, and the largest step."""
    sizes: list[tuple[tuple[float, ...], Any]] = [((0.0, x), ((1.0 - p, p) for p in (0.5, 0.1, 0.9))) for x in PRIZES]
    sizes += [((0.0, x, y), ((0.4, 0.3, 0.3), (0.1, 0.8, 0.1), (0.05, 0.9, 0.05))) for x, y in combinations(PRIZES, 2)]
    for outcomes, chances in sizes:
        for q, step, way in product(chances, steps, product(signs, repeat=len(outcomes))):
            moved = tuple(x + step * sign for x, sign in zip(outcomes, way, strict=True))
            if len(set(moved)) == len(moved):  # equal rewards would be one outcome
                yield tuple(zip(q, outcomes, strict=True)), tuple(zip(q, moved, strict=True)), step


def _compared(
    scheme: Scheme, steps: tuple[float, ...], signs: Sequence[float]
) -> tuple[list[tuple[Gamble, Gamble, float]], Floats, Floats]:
    """These gambles, with their values before and after."""
    moves = list(_moves(steps, signs))
    return moves, _worth(scheme, [one for one, _, _ in moves]), _worth(scheme, [other for _, other, _ in moves])


def _told(gamble: Gamble, value: float) -> str:
    chances, outcomes = zip(*gamble, strict=True)
    return f"{', '.join(f'{x:g}' for x in outcomes)} with probabilities {', '.join(f'{p:g}' for p in chances)} is valued {value:.4g}"


def _falling(scheme: Scheme) -> Iterator[str]:
    moves, before, after = _compared(scheme, (0.25, 1.0, 4.0), (0.0, 1.0))
    for i in np.flatnonzero(after < before - ROUNDING):
        yield f"{_told(moves[i][0], before[i])}; {_told(moves[i][1], after[i])}"


def _unshifted(scheme: Scheme) -> Iterator[str]:
    moves, before, after = _compared(scheme, (1.0, 10.0), (1.0,))
    for i in np.flatnonzero(np.abs(after - before - [step for _, _, step in moves]) > 1e-6):
        yield f"{_told(moves[i][0], before[i])}; {_told(moves[i][1], after[i])}"


def _expanding(scheme: Scheme) -> Iterator[str]:
    if not scheme.follows_values:
        return
    moves, before, after = _compared(scheme, (0.01,), (-1.0, 1.0))
    for i in np.flatnonzero(np.abs(after - before) > 0.01 * (1.0 + 1e-6)):
        yield f"{_told(moves[i][0], before[i])}; {_told(moves[i][1], after[i])}"


MEASURED = {"monotone": _falling, "shifts": _unshifted, "contracts": _expanding}
