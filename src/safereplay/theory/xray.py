"""The X-ray of a run: what was replayed, and the effective model of its updates.

With replay, the updates differ from the real outcomes. At a pair (s,a) the outcomes of the updates are

    p̃(s',r|s,a)   =  ( seen(s,a,s',r) + replayed(s,a,s',r) ) / ( visits(s,a) + replays(s,a) )
    R̃(s,a)        =  Σ p̃(s',r|s,a)·r
    P̃(s'|s,a)     =  Σ_r p̃(s',r|s,a),       R̃(s,a,s')  =  Σ_r r·p̃(s',r|s,a) / P̃(s'|s,a)

counted, not predicted. They are compared with the true q(s',r|s,a), and with the p̃ that the theory predicts for the
run's own visitation (:mod:`safereplay.theory.operator`). One number summarises a pair,

    shift(s,a)    =  ½·Σ |p̃ − q|  ≤  (1−ρ)·luck(s,a)  +  ρ·½·Σ |ŵ − q|,       luck(s,a)  =  ½·Σ |seen/visits − q|,

of which only the second part is due to replay: at a pair with few visits, chance alone changes the outcomes.

All updates count equally here. A step size that falls more slowly than 1/n weights late ones more, so a Q that is still
changing may be closer to the p̃ of its last updates.

Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import exp, isfinite, nan
from typing import Any, NamedTuple

import numpy as np

from .. import _checks
from .._checks import AnyArray, Bools, Floats, Ints
from .._config import plain
from ..agent import Agent
from ..arrays import slots_of
from ..grids import ACTIONS
from ..learners import Learner
from ..mdp import Layout, TabularMDP
from ..runs import Runs
from .operator import operator, places


class Shares(NamedTuple):
    """A share among replays, and among real outcomes."""

    replayed: float
    fresh: float


class Replayed(NamedTuple):
    """An outcome, and its number of replays."""

    s: int
    a: int
    r: float
    s_next: int
    terminal: bool
    unsafe: bool | None  #: None if the unsafe flags are unknown
    replayed: float
    share: float  #: of all replays
    p: float
    p_tilde: float
    p_predicted: float | None


class Shifted(NamedTuple):
    """A pair, and the distance of its updates from its outcomes."""

    s: int
    a: int
    visits: int
    replays: int
    rho: float
    W: float
    shift: float
    luck: float
    R: float
    R_tilde: float
    R_shift: float


class Transitions(NamedTuple):
    """The model by next state, true and effective; one entry per (s, a, s', terminal).

    Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2.
    """

    s: Ints
    a: Ints
    s_next: Ints
    terminal: Bools
    P: Floats  #: P(s'|s,a)
    P_tilde: Floats
    R: Floats  #: R(s,a,s')
    R_tilde: Floats


@dataclass(frozen=True, eq=False, repr=False)
class Xray:
    """The replays of a run, and the effective p̃ and R̃ compared with the true ones; see :func:`xray`.

    Arrays of outcomes [K] are in the order of the model (of the memory, for an agent), arrays of pairs are [S, A].
    Undefined values, such as p̃ of a pair never visited, are nan.

    Parameters
    ----------
    title, learner, layout : the run, for display
    pair, r, s_next, terminal, unsafe, p, seen, replayed, w : columns of the outcomes, [K]
    visits, replays : updates of each pair from the MDP and from replay, [S, A]
    p_predicted, rho_predicted : p̃ [K] and ρ [S, A] of the limit

    >>> import safereplay as sr
    >>> sr.xray(sr.learn(sr.grids.volatile(), sr.ReplayQLearning(v=0.5), 2_000, seeds=1))
    Xray(replay(v=0.5, beta=5) on volatile, 2,000 episodes, seed 0: ... replays of 3 outcomes)
    """

    title: str
    learner: Learner
    layout: Layout | None
    pair: Ints  #: [K] s·|A| + a
    r: Floats
    s_next: Ints
    terminal: Bools
    unsafe: Bools | None  #: None for an agent
    p: Floats  #: [K] q(s',r|s,a); for an agent, the observed frequencies in its memory
    seen: Floats  #: [K] times each outcome happened; with anchored mixing, the expected number of its own updates
    replayed: Floats  #: [K] times each was replayed
    w: Floats  #: [K] w_t at the end; the mean over seeds
    visits: Ints  #: [S, A] MDP iterations of each pair
    replays: Ints  #: [S, A] replays of each pair
    p_predicted: Floats | None  #: [K] p̃ by theory.operator; None for an agent, and for a scheme without a limit
    rho_predicted: Floats | None  #: [S, A] ρ likewise
    empirical: bool = field(default=False)  #: whether p are observed frequencies

    @cached_property
    def p_tilde(self) -> Floats:
        """p̃(s',r|s,a): the shares of the outcomes in the updates of their pair, [K].

        Ref: Szlak & Shamir (2021), Eq. 1.
        """
        return self._shares(self.seen + self.replayed)

    @property
    def transitions(self) -> Transitions:
        """P(s'|s,a) and R(s,a,s'), and the effective P̃(s'|s,a) and R̃(s,a,s').

        Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2.
        """
        (pair, s_next, terminal), group = places(self)
        outcomes = (self.p, self.p_tilde, self.p * self.r, self.p_tilde * self.r)
        P, P_tilde, gain, gain_tilde = (np.bincount(group, weights=x).astype(np.float64) for x in outcomes)
        s, a = np.divmod(pair, self._n_actions)
        model = P, P_tilde, _ratio(gain, P), _ratio(gain_tilde, P_tilde)
        return Transitions(s, a, s_next, terminal.astype(bool), *model)

    @property
    def rho(self) -> Floats:
        """ρ(s,a): the share of a pair's updates that were replays, [S, A]."""
        return _ratio(self.replays, self.visits + self.replays)

    @property
    def W(self) -> Floats:  # noqa: N802
        """W(s,a) = Σ w at the end of the run, [S, A]."""
        return self._sum(self.w)

    @property
    def R(self) -> Floats:  # noqa: N802
        """R(s,a): the mean reward, [S, A]."""
        return self._mean(self.p)

    @property
    def R_tilde(self) -> Floats:  # noqa: N802
        """R̃(s,a): the mean reward of the updates, [S, A]."""
        return self._mean(self.p_tilde)

    @property
    def R_shift(self) -> Floats:  # noqa: N802
        """R̃ − R, [S, A]."""
        return self.R_tilde - self.R

    @cached_property
    def shift(self) -> Floats:
        """½·Σ |p̃ − p|: the total variation between a pair's updates and its outcomes, [S, A]."""
        return self._distance(self.p_tilde, self.p)

    @cached_property
    def luck(self) -> Floats:
        """½·Σ |seen/visits − p|: the same without the replays, due to chance alone; 0 for an agent, [S, A]."""
        return self._distance(self._shares(self.seen), self.p)

    @property
    def gap(self) -> Floats | None:
        """½·Σ |p̃ − predicted p̃|, [S, A]: the distance of the run from its own limit; None without a prediction."""
        return None if self.p_predicted is None else self._distance(self.p_tilde, self.p_predicted)

    @property
    def unsafe_share(self) -> Shares | None:
        """The share of unsafe outcomes among replays and among real outcomes; None if the unsafe flags are unknown."""
        if self.unsafe is None:
            return None
        return Shares(*(float(_ratio(x[self.unsafe].sum(), x.sum())) for x in (self.replayed, self.seen)))

    @property
    def entropy(self) -> float:
        """−Σ f·ln f of the shares f of the outcomes among all replays; nan without replays."""
        f = self.replayed[self.replayed > 0] / max(self.replayed.sum(), 1.0)
        return float(-(f * np.log(f)).sum()) + 0.0 if f.size else nan

    @property
    def effective_outcomes(self) -> float:
        """e^entropy: the number of equally replayed outcomes with the same entropy; 0 without replays."""
        return exp(self.entropy) if self.replayed.any() else 0.0

    @property
    def unaccounted(self) -> int:
        """Updates from outcomes that a bounded memory has dropped. 0 for runs."""
        return int(self.visits.sum() + self.replays.sum()) - round(float(self.seen.sum() + self.replayed.sum()))

    def most_replayed(self, n: int = 10) -> list[Replayed]:
        """The n outcomes replayed most, ties in order; fewer if fewer were replayed."""
        order = np.argsort(-self.replayed, kind="stable")[: _checks.whole("n", n, 1)]
        share = _ratio(self.replayed, np.full(self.r.size, self.replayed.sum()))
        outcome = *np.divmod(self.pair, self._n_actions), self.r, self.s_next, self.terminal, self.unsafe
        columns = *outcome, self.replayed, share, self.p, self.p_tilde, self.p_predicted
        return [Replayed(*_row(columns, int(k))) for k in order if self.replayed[k] > 0]

    def most_shifted(self, n: int = 10) -> list[Shifted]:
        """The n pairs whose updates are furthest from their outcomes, of those that were replayed."""
        shift = np.where(self.replays > 0, self.shift, nan).ravel()
        order = np.argsort(-shift, kind="stable")[: _checks.whole("n", n, 1)]  # nan comes last
        pair = np.divmod(np.arange(shift.size), self._n_actions)
        tables = self.visits, self.replays, self.rho, self.W, self.shift, self.luck, self.R, self.R_tilde, self.R_shift
        columns = *pair, *(x.ravel() for x in tables)
        return [Shifted(*_row(columns, int(i))) for i in order if isfinite(shift[i])]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain JSON types: totals, columns of outcomes [K], tables of pairs [S][A]; None for nan."""
        columns = ("r", "s_next", "terminal", "unsafe", "p", "p_tilde", "p_predicted", "seen", "replayed", "w")
        tables = ("visits", "replays", "rho", "rho_predicted", "W", "R", "R_tilde", "shift", "luck", "gap")
        numbers = ("entropy", "effective_outcomes", "unaccounted", "empirical")
        s, a = np.divmod(self.pair, self._n_actions)
        shares = self.unsafe_share
        whole: dict[str, Any] = {
            "title": self.title,
            "learner": self.learner.to_dict(),
            **{name: getattr(self, name) for name in numbers},
            "unsafe_share": None if shares is None else shares._asdict(),
            "outcomes": {"s": s, "a": a, **{name: getattr(self, name) for name in columns}},
            "pairs": {name: getattr(self, name) for name in tables},
        }
        return dict(plain(whole))

    def __repr__(self) -> str:
        replays, outcomes = int(self.replays.sum()), int((self.replayed > 0).sum())
        return f"Xray({self.title}: {replays:,} replays of {outcomes} outcomes)"

    def __str__(self) -> str:
        visits, replays = int(self.visits.sum()), int(self.replays.sum())
        share = replays / max(visits + replays, 1)
        lines = [f"X-ray of {self.title}", f"{visits + replays:,} updates, {replays:,} of them replays ({share:.1%})"]
        if replays and self.unsafe_share is not None:
            lines += ["unsafe: {:.2%} of the replays, {:.2%} of what happened".format(*self.unsafe_share)]
        if replays:
            distinct, happened = int((self.replayed > 0).sum()), int((self.seen > 0).sum())
            lines += [
                f"{distinct} of the {happened} outcomes that happened were replayed, as diverse as "
                f"{self.effective_outcomes:.1f} replayed alike (entropy {self.entropy:.2f})"
            ]
        if self.unaccounted:
            lines += [f"{self.unaccounted:,} updates are from outcomes that the memory no longer tells apart"]
        head = "state\taction\tleads to\treward\t\treplayed\tshare\tp\tp̃"
        rows = [head if self.p_predicted is None else f"{head}\tpredicted"]
        for x in self.most_replayed():
            what = f"{self.place(x.s)}\t{self.action(x.a)}\t{self.place(x.s_next)}\t{x.r:g}"
            marks = ", ".join(["unsafe"] * bool(x.unsafe) + ["ends"] * x.terminal)
            predicted = "" if x.p_predicted is None else f"\t{x.p_predicted:.4f}"
            rows += [f"{what}\t{marks}\t{x.replayed:,.0f}\t{x.share:.1%}\t{x.p:.4f}\t{x.p_tilde:.4f}{predicted}"]
        lines += ["", *(["replayed most", *_aligned(rows)] if len(rows) > 1 else ["nothing was replayed"])]
        by_luck = "" if self.empirical else "\tby luck"
        rows = [f"state\taction\tvisits\treplays\tρ\tshift{by_luck}\tR\tR̃\tR̃ − R"]
        for y in self.most_shifted():
            what = f"{self.place(y.s)}\t{self.action(y.a)}\t{y.visits:,}\t{y.replays:,}\t{y.rho:.3f}"
            shift = f"{y.shift:.4f}" if self.empirical else f"{y.shift:.4f}\t{y.luck:.4f}"
            rows += [f"{what}\t{shift}\t{y.R:.3f}\t{y.R_tilde:.3f}\t{y.R_shift:.3f}"]
        if len(rows) > 1:
            lines += ["", f"furthest from {'what happened' if self.empirical else 'the model'}", *_aligned(rows)]
        return "\n".join(lines)

    @property
    def _n_actions(self) -> int:
        return int(self.visits.shape[1])

    def _sum(self, x: Floats) -> Floats:
        """Σ over the outcomes of each pair: [K] → [S, A]."""
        sums = np.bincount(self.pair, weights=x, minlength=self.visits.size)
        return sums.astype(np.float64).reshape(self.visits.shape)

    def _shares(self, counts: Floats) -> Floats:
        """Counts of outcomes as shares of their pair's total, [K]."""
        return _ratio(counts, self._sum(counts).ravel()[self.pair])

    def _mean(self, p: Floats) -> Floats:
        return np.where(self._sum(p) > 0, self._sum(p * self.r), nan)

    def _distance(self, p: Floats, q: Floats) -> Floats:
        return np.where(self._sum(np.ones(p.size)) > 0, self._sum(np.abs(p - q)) / 2.0, nan)

    def place(self, s: int) -> str:
        """A state for display: its cell on a grid."""
        return str(s) if self.layout is None else "({}, {})".format(*self.layout.cells[s])

    def action(self, a: int) -> str:
        """An action for display: its direction on a grid."""
        return str(a) if self.layout is None else ACTIONS[a]


def xray(source: Runs | Agent, seed: int | None = None) -> Xray:
    """The outcomes that a learner replayed most, the effective model of its updates, and where it differs from the truth.

    Outcomes that differ only in their unsafe flag are the same to the learner; their counts are split in proportion to p.

    Parameters
    ----------
    source : Runs or Agent
        Runs of a learner that replays. The true model of an agent's environment is unknown, so p are observed
        frequencies, and there is no prediction. If its memory has merged rewards, their replays count for the merged one.
    seed : int, optional; one seed of the runs; default: all seeds added up

    Returns
    -------
    Xray

    Raises
    ------
    BadInput : the learner does not replay, or the seed was not run

    >>> import safereplay as sr
    >>> runs = sr.learn(sr.grids.volatile(), sr.ReplayQLearning(sr.VarianceReplay(beta=5.0), v=0.5), 2_000, seeds=5)
    >>> picture = sr.xray(runs)
    >>> top = picture.most_replayed(1)[0]
    >>> (top.s, top.a, top.r), round(top.p, 2), top.p_tilde > 0.9
    ((6, 1, -100.0), 0.4, True)
    >>> picture.unsafe_share.replayed
    1.0

    Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2.
    """
    if isinstance(source, Agent):
        _checks.require(seed is None, "seed", "be left out for an agent, which has one", seed)
        learner, known = source.settings.learner, source.remembered
        _checks.require(learner.replay is not None, "learner", "replay, to be X-rayed", learner)
        pair, happened = known.s * source.Q.shape[1] + known.a, known.seen.astype(np.float64)
        shares = _ratio(happened, np.bincount(pair, weights=happened)[pair])
        columns = (pair, known.r, known.s_next, known.terminal, None, shares)
        happened, visits = _updated(learner, pair, happened, source.visits, source.replays)
        numbers = (happened, known.replayed.astype(np.float64), known.w, visits, source.replays)
        return Xray(repr(source), learner, None, *columns, *numbers, None, None, empirical=True)
    _checks.require(isinstance(source, Runs), "source", "be Runs or an Agent", source)
    runs, mdp = source, source.mdp
    if runs.learner.replay is None or runs.seen is None or runs.replayed is None or runs.w is None:
        _checks.fail("learner", "replay, to be X-rayed", runs.learner)
    chosen = np.arange(len(runs.seeds))
    if seed is not None:
        _checks.require(_checks.whole("seed", seed, 0, 64) in runs.seeds, "seed", "be one that was run", seed)
        chosen = np.array([runs.seeds.index(seed)])
    visits, replays = runs.visits[chosen].sum(0), runs.replays[chosen].sum(0)
    seeds = f"{chosen.size} seeds" if chosen.size > 1 else f"seed {runs.seeds[chosen[0]]}"
    title = f"{runs.learner.describe()} on {mdp.name}, {runs.episodes:,} episodes, {seeds}"
    outcomes = (mdp.pair, mdp.r, mdp.s_next, mdp.terminal, mdp.unsafe, mdp.p)
    counts = (runs.seen[chosen].sum(0), runs.replayed[chosen].sum(0), runs.w[chosen].mean(0))
    seen, replayed, w = (_spread(mdp, x) for x in counts)
    p, rho, (scheme, v, mixing) = None, None, runs.learner.replay
    seen, visits = _updated(runs.learner, mdp.pair, seen, visits, replays)
    if scheme.has_limit:  # with d(s,a) for literal mixing, with d ≡ 1 for matched
        d = visits / visits.sum() if mixing == "literal" else None
        limit = operator(mdp, scheme, v, d, anchored=mixing == "anchored")
        p, rho = _spread(mdp, np.bincount(slots_of(mdp), weights=limit.p, minlength=mdp.p.size)), limit.rho
    return Xray(title, runs.learner, mdp.layout, *outcomes, seen, replayed, w, visits, replays, p, rho)


def _updated(learner: Learner, pair: Ints, seen: Floats, visits: Ints, replays: Ints) -> tuple[Floats, Ints]:
    """Outcomes [K] and visits [S, A] that updated Q. With anchored mixing a replay takes the place of a visit's update."""
    if learner.replay is None or learner.replay[2] != "anchored":
        return seen, visits
    return seen * np.nan_to_num(_ratio(visits - replays, visits)).ravel()[pair], visits - replays


def _spread(mdp: TabularMDP, counts: AnyArray) -> Floats:
    """Counts at the first of the outcomes that differ only in their unsafe flag, divided in proportion to p."""
    slot = slots_of(mdp)
    return np.asarray(counts[slot] * (mdp.p / np.bincount(slot, weights=mdp.p)[slot]), np.float64)


def _ratio(x: Any, total: Any) -> Floats:
    """x / total; nan if the total is 0."""
    out = np.full(np.shape(total), nan)
    np.divide(x, total, out=out, where=np.asarray(total) > 0)
    return out


def _row(columns: Sequence[AnyArray | None], k: int) -> list[Any]:
    return [None if x is None else x[k].item() for x in columns]


def _aligned(lines: list[str]) -> list[str]:
    """Lines of tab-separated columns, aligned to the right; combining accents have no width."""

    def width(text: str) -> int:
        return sum(not unicodedata.combining(c) for c in text)

    table = [line.split("\t") for line in lines]
    widths = [max(map(width, column)) for column in zip(*table, strict=True)]
    return ["  ".join(" " * (w - width(x)) + x for x, w in zip(row, widths, strict=True)).rstrip() for row in table]
