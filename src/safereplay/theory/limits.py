"""Limits of learners: the fixed point of shaped replay, and the exact limits of other methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, Literal, overload

import numpy as np

from .. import _checks
from .._checks import AnyArray, Floats, Ints
from .._progress import shown
from ..learners import Learner, Pessimistic, QLearning, ReplayQLearning, RiskSensitive, WorstCase, WorstTransition
from ..mdp import TabularMDP
from ..schedules import Exploration
from ..schemes import Scheme
from ..verdicts import verdict
from .operator import Along, places
from .risk import RiskProfile, evaluate
from .solver import MAX_ROUNDS, ROUNDING, TOLERANCE, finite, greedy, iterate, optimal, slack, targets
from .visits import SelfConsistent, self_consistent


@overload
def fixed_point(
    mdp: TabularMDP,
    scheme: Scheme,
    v: float = 0.5,
    visitation: AnyArray | list[Any] | None = None,
    *,
    mixing: Literal["matched", "anchored"] = "matched",
    quiet: bool = False,
) -> Floats: ...


@overload
def fixed_point(
    mdp: TabularMDP, scheme: Scheme, v: float, visitation: Literal["self"], exploration: Any = None, **search: Any
) -> tuple[SelfConsistent, ...]: ...


@overload
def fixed_point(
    mdp: TabularMDP, scheme: Scheme, v: float = 0.5, *, visitation: Literal["self"], **search: Any
) -> tuple[SelfConsistent, ...]: ...


def fixed_point(
    mdp: TabularMDP,
    scheme: Scheme,
    v: float = 0.5,
    visitation: Any = None,
    exploration: Exploration | None = None,
    *,
    mixing: str = "matched",
    quiet: bool = False,
    **search: Any,
) -> Floats | tuple[SelfConsistent, ...]:
    """The limit of shaped replay: the fixed point of its operator H (:mod:`safereplay.theory.operator`), [S, A].

    Parameters
    ----------
    mdp, scheme, v : the model, the scheme, and the share of replay iterations, in [0, 1); in [0, 1] for anchored mixing
    visitation : array [S, A] or "self", optional
        None is the paper's mapping, the limit of matched mixing. An array d(s,a), as in ``runs.visitation``, gives the
        limit of Algorithm 1 for that visitation. "self" searches for the limits of Algorithm 1 itself.
    mixing : {"matched", "anchored"}; the mixing whose limit is wanted if no visitation is given
    quiet : bool; without a progress bar
    exploration, **search : optional; for "self", see :func:`safereplay.theory.visits.self_consistent` (starts, seeds, ...)

    Returns
    -------
    array [S, A], or tuple of SelfConsistent : Q; for "self" self-consistent Q and d, most frequent in learning first

    Raises
    ------
    BadInput : an argument is invalid, or the scheme has no limit

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> Q = sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5)
    >>> sr.verdict(mdp, Q.argmax(1))
    'safe'
    >>> limits = sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5, visitation="self", seeds=0)
    >>> len(limits) > 1, {sr.verdict(mdp, limit.policy) for limit in limits}
    (True, {'safe'})

    Ref: Szlak & Shamir (2021), Theorem 1.
    """
    _checks.require(isinstance(scheme, Scheme), "scheme", "be a Scheme", scheme)
    for name in search:
        _checks.choice("argument of fixed_point", name, self_consistent.__kwdefaults__ or ())
    if isinstance(visitation, str):
        _checks.require(visitation == "self", "visitation", "be d(s,a), None or 'self'", visitation)
        return self_consistent(mdp, scheme, v, exploration, quiet=quiet, **search)
    for name, value in {"exploration": exploration, **search}.items():
        _checks.require(value is None, name, "come with visitation='self'", value)
    along = Along(mdp, scheme, visitation, _checks.choice("mixing", mixing, ("matched", "anchored")))
    with shown("fixed point", quiet):
        return along(v)


def exact(mdp: TabularMDP, learner: Learner, *, quiet: bool = False) -> Floats:
    """The exact limit of a learner, [S, A].

    The limits of literal replay depend on the visitation: see :func:`fixed_point` with ``visitation="self"``.

    Parameters
    ----------
    mdp, learner : the model, and a learner with an exact limit
    quiet : bool; without a progress bar

    Returns
    -------
    array [S, A] : Q of every pair

    Raises
    ------
    BadInput : an argument is invalid, the learner has no exact limit, or values overflow

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> [sr.verdict(mdp, sr.exact(mdp, sr.RiskSensitive(k)).argmax(1)) for k in (0.0, 0.6, 0.95)]
    ['risky', 'safe', 'jumps']
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    with shown("exact limit", quiet):
        return finite(limit_of(learner, mdp))


@singledispatch
def limit_of(learner: Learner, mdp: TabularMDP) -> Floats:
    """The exact limit of a learner, [S, A]; each class registers its own."""
    _checks.fail("learner", "have an exact limit", learner)


@limit_of.register
def _(learner: QLearning, mdp: TabularMDP) -> Floats:
    return optimal(mdp, mdp.p)


@limit_of.register
def _(learner: ReplayQLearning, mdp: TabularMDP) -> Floats:
    hint = "the limit of literal mixing depends on the visitation: use fixed_point(..., visitation='self'), or =d"
    has_one = learner.mixing != "literal" or learner.v == 0.0
    _checks.require(has_one, "mixing", "be 'matched' or 'anchored'", learner.mixing, hint)
    return Along(mdp, learner.scheme, mixing=learner.mixing)(learner.v)


@limit_of.register
def _(learner: RiskSensitive, mdp: TabularMDP) -> Floats:
    """E[(1 − κ·sign δ)·δ] = 0 makes Q(s,a) an expectile of r + γ·max_b Q(s',b): a mean under reweighted outcomes.

    Solve for the best policy under fixed weights, reweigh, and repeat until the weights or Q no longer change: the
    weight of a target that equals its pair's mean up to rounding may alternate forever.
    """
    p, before = mdp.p, np.full((mdp.n_states, mdp.n_actions), np.inf)
    for _ in range(MAX_ROUNDS):
        Q = optimal(mdp, p)
        after = _expectile_weights(mdp, targets(mdp, Q.max(1)), learner.kappa)
        if np.array_equal(after, p) or np.abs(Q - before).max() <= slack(TOLERANCE, Q, mdp.r):
            break
        p, before = after, Q
    return Q


def _expectile_weights(mdp: TabularMDP, y: Floats, kappa: float) -> Floats:
    """The reweighted p under which the mean of y is its κ-expectile, for each pair."""
    p, rounding = mdp.p, ROUNDING * float(np.abs(y).max())
    for _ in range(MAX_ROUNDS):
        above = y > mdp.expect(y, p).ravel()[mdp.pair] + rounding
        weights = mdp.p * np.where(above, 1.0 - kappa, 1.0 + kappa)
        after = weights / mdp.expect(weights, np.ones_like(p)).ravel()[mdp.pair]
        if np.array_equal(after, p):
            break
        p = after
    return p


@limit_of.register
def _(learner: Pessimistic, mdp: TabularMDP) -> Floats:
    def H(Q: Floats) -> Floats:  # noqa: N802
        return mdp.expect(targets(mdp, (1.0 - learner.beta) * Q.max(1) + learner.beta * Q.min(1)))

    return iterate(H, mdp)


@limit_of.register
def _(learner: WorstCase, mdp: TabularMDP) -> Floats:
    return _worst_of(mdp, mdp.pair, mdp.r, mdp.s_next, mdp.terminal)


@limit_of.register
def _(learner: WorstTransition, mdp: TabularMDP) -> Floats:
    (pair, s_next, terminal), member = places(mdp)
    mean = np.bincount(member, weights=mdp.p * mdp.r) / np.bincount(member, weights=mdp.p)
    return _worst_of(mdp, pair, mean, s_next, terminal.astype(bool))


def _worst_of(mdp: TabularMDP, pair: Any, r: Floats, s_next: Any, terminal: Any) -> Floats:
    """The fixed point of Q(s,a) = min over the entries of the pair of r + γ·max_b Q(s',b)."""

    def H(Q: Floats) -> Floats:  # noqa: N802
        y = r + mdp.gamma * np.where(terminal, 0.0, Q.max(1)[s_next])
        worst = np.full(mdp.n_pairs, np.inf)
        np.minimum.at(worst, pair, y)
        return np.where(np.isfinite(worst), worst, 0.0).reshape(mdp.n_states, mdp.n_actions)

    return iterate(H, mdp)


@dataclass(frozen=True)
class Answer:
    """One exact limit: its name, values, policy and risk."""

    name: str
    Q: Floats  #: [S, A]
    policy: Ints  #: [S]
    risk: RiskProfile
    mdp: TabularMDP  #: the model of these states
    learned: float | None = None  #: the share of seeds whose learning ended there

    def to_dict(self) -> dict[str, object]:
        """Plain JSON types."""
        plain = {"name": self.name, "policy": self.policy.tolist(), "Q": self.Q.tolist()}
        return {**plain, "risk": self.risk.to_dict(), "learned": self.learned}


def answer(mdp: TabularMDP, name: str, Q: Floats, learned: float | None = None) -> Answer:
    """The greedy policy of Q, and its risk from the model's origin."""
    policy = greedy(Q, mdp.r)
    return Answer(name, Q, policy, evaluate(mdp, policy, start=mdp.origin, quiet=True), mdp, learned)


def grouped(mdp: TabularMDP, name: str, limits: Sequence[SelfConsistent]) -> list[Answer]:
    """Self-consistent limits grouped by verdict: the most frequent one of each group, with the group's size."""
    groups: dict[str, list[SelfConsistent]] = {}
    for limit in limits:
        groups.setdefault(verdict(mdp, limit.policy), []).append(limit)
    answers = []
    for way, members in groups.items():
        many = f"{len(limits)} limits found, all" if len(groups) == 1 else f"{len(members)} of {len(limits)} limits,"
        title = f"{name}: {many} {way}" if len(limits) > 1 else name
        learned = [x.learned for x in members if x.learned is not None]
        answers.append(answer(mdp, title, members[0].Q, sum(learned) if learned else None))
    return sorted(answers, key=lambda a: -(a.learned or 0.0))
