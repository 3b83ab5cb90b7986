"""Replay by design: which policies replay can give, and a gentle replay that gives one.

Replay changes the outcomes of a pair from q to p̃ = (1−ρ)·q + ρ·ŵ (:mod:`safereplay.theory.operator`). Each ρ < 1 and each ŵ over
outcomes seen is possible, so p̃ may be any distribution with the support of q. Let V be values of the states (0 at terminal ones),
x = r + γ·V(s') the target of an outcome, E its mean under q at a pair, and low and high its least and largest value there.

**Theorem.** The limit of some replay has the greedy policy π, by a margin m ≥ 0, if and only if some V satisfies in every state s
that is not terminal

    own     low < V(s) < high at (s,π(s)), or V(s) = E there;                                                         (1)
    others  low < V(s) − m at (s,b), or E ≤ V(s) − m there, for every other action b.                                  (2)

*Proof.* (1) says that some p̃ at (s,π(s)) has the mean V(s), (2) that some p̃ at (s,b) has a mean of at most V(s) − m. With these p̃,
V solves the optimality equation, whose solution is unique as γ < 1, and π is greedy. Conversely, p̃ has the support of q, so its mean is
strictly between low and high or all targets are equal: the values of a limit satisfy both.

**The least replay of other pairs.** Without replay at π's own pairs V is the true value V^π, and (2) is a condition on each pair alone.
The mean under p̃ is at least (1−ρ)·E + ρ·low, so the least share of replays at a pair with E > V^π(s) − m is

    ρ(s,b)  =  (E − V^π(s) + m) / (E − low),         all of them replays of the worst outcome.                          (3)

With matched mixing, pair weights ∝ ρ/(1−ρ) and v/(1−v) = Σ ρ/(1−ρ) give these ρ. Each ρ is the least possible, so their sum, their
maximum and v are, among replays that leave π's own pairs alone. Replay at own pairs may need less: if many actions lead to one state,
lowering its value replaces replay at each of them. But then the limit does not have the policy's true values.

**Where (2) fails at V^π**, because no outcome of (s,b) is worse than V^π(s), replay at π's own pairs may help. It changes V: lower
values of later states make b less attractive, higher values of s (bold replay) as well. Whether some V satisfies (1) and (2) is a
mixed-integer linear program: each condition says that one of a pair's outcomes is low, or high, enough. Of all such V the one with the
least sum of changes of value is taken.

**Limits.** The probability of a single outcome is 1 in every p̃, and a policy that is randomised is the greedy policy of no limit.
If b has a single outcome, worth V(s), both actions are best: a tie, which replay of b does not break. Replay at own pairs may.

**Relations.** The closure of the set of p̃ is that of a bounded-parameter MDP with the interval [0, 1] for each outcome of the support
(Givan, Leach & Dean 2000). If ρ ≤ c at every pair, p̃ lies in the c-contamination of q, the set of a robust MDP (Iyengar 2005; Wang & Zou
2021). There nature chooses p̃ against the agent; here the designer chooses it for a given policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from .. import _checks
from .._checks import Bools, Floats, Ints
from .._config import plain
from ..errors import BadInput, Unreachable
from ..learners import ReplayQLearning
from ..mdp import TabularMDP
from ..schemes import DesignedReplay
from .constrained import Ceilings
from .deterministic import Found, best_policy
from .occupancy import INFEASIBLE, Ceiling, Limit
from .operator import operator
from .risk import RiskProfile, evaluate
from .solver import by_policies, iterate, slack, targets, value_bounds

MARGIN = 0.01  # least default margin, as a share of the range of the rewards
NOISE = 0.1  # default margin, in standard deviations of the difference of two targets
MOST_RHO = 0.999  # of a program's replays
LEAST_MARGIN = 1e-5  # of a program, as a share of the range of values
MAX_BINARIES = 20_000  # of a program
MAX_NODES = 2_000  # of one program
FEW_NODES = 20  # of one of many programs
NEGLIGIBLE = 1e-7  # changes of value below this share of their range are rounding of a program
LEASTS = ("total", "largest")
REFUSED = "policy must be one that replay can give, got one that it cannot: "
PRICES = (0.25, 1.0, 4.0, 16.0)  # of an unsafe outcome, in ranges of the rewards


class Replayed(NamedTuple):
    """A pair that is replayed, and what is replayed there."""

    state: int
    action: int
    rho: float  #: the share of its updates that are replays
    s_next: int  #: the outcome that is replayed
    r: float
    p: float  #: its true probability
    p_shaped: float  #: its probability in p̃
    value: float  #: r + γ·V(s') on average under q
    value_shaped: float  #: under p̃


@dataclass(frozen=True, eq=False)
class Reach:
    """Whether replay can give a policy, with a certificate.

    If it can, ``values`` satisfy the conditions (1) and (2) of :mod:`safereplay.theory.design`. If it cannot, ``state`` and ``action`` are in
    the way, for this ``reason``. ``possible`` is None if the program found no answer. Where own pairs must change it looks for
    ρ up to 0.999 and leads from 1e-5 of the range of values on: False means that there is none of these.
    """

    possible: bool | None
    how: str  #: "pessimistic" replay of other pairs, "lowered" values of own pairs too, or "bold" replay of own pairs too
    values: Floats | None = field(default=None, repr=False)  #: V [S]
    state: int | None = None
    action: int | None = None
    reason: str = ""


@dataclass(frozen=True, eq=False)
class Price:
    """What keeping a limit costs: the designed policy beside plain Q-learning and the best of others."""

    limit: Limit
    found: Found  #: the policy, its risk, and what is proved of it
    deterministic: Found  #: the best deterministic policy, if replay gives it or not
    ceiling: Ceiling  #: the best of any policy
    plain: RiskProfile  #: of Q-learning's limit

    @property
    def profile(self) -> RiskProfile:
        """The risk of the designed policy."""
        return self.found.profile


@dataclass(frozen=True, eq=False)
class Design:
    """A designed replay: the policy of its limit, and how to give it.

    Parameters
    ----------
    policy : int [S]; the greedy policy of the limit, with actions for states that were left free
    rho : float [S, A]; ρ of each pair
    scheme, v : the replay, for matched mixing
    Q : float [S, A]; the limit
    how : str; as in :class:`Reach`

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> safe = sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5).argmax(1)
    >>> plan = design(mdp, safe)
    >>> (sr.fixed_point(mdp, plan.scheme, plan.v).argmax(1) == safe)[mdp.is_reachable & ~mdp.is_terminal].all()
    np.True_
    """

    mdp: TabularMDP = field(repr=False)
    policy: Ints
    rho: Floats
    scheme: DesignedReplay
    v: float
    Q: Floats
    how: str
    tied: Bools = field(repr=False)  #: [S, A] other actions that are as good in the limit
    price: Price | None = None  #: for a limit on risk

    @property
    def learner(self) -> ReplayQLearning:
        """The learner that comes to this limit."""
        return ReplayQLearning(self.scheme, v=self.v, mixing="matched")

    @property
    def margin(self) -> float:
        """The least lead of the policy over another action in the limit, where they differ; inf if no state has two."""
        lead = self.Q.max(1, keepdims=True) - self.Q
        rounding = slack(1e-9, self.Q, self.mdp.r)
        other = matters(self.mdp)[:, None] & (np.diff(self.mdp.row).reshape(self.Q.shape) > 0) & (lead > rounding)
        return float(lead[other].min(initial=inf))

    @cached_property
    def replays(self) -> tuple[Replayed, ...]:
        """The pairs that are replayed, most replayed first."""
        mdp, H = self.mdp, operator(self.mdp, self.scheme, self.v)
        x = targets(mdp, self.Q.max(1))
        true, shaped = mdp.expect(x), mdp.expect(x, H.p)
        listed = []
        for k in np.flatnonzero(H.w > 0):
            s, a = divmod(int(mdp.pair[k]), mdp.n_actions)
            same = mdp.row[mdp.pair[k]] + np.flatnonzero(_same(mdp, int(k)))
            chances = float(mdp.p[same].sum()), float(H.p[same].sum())
            row = s, a, float(H.rho[s, a]), int(mdp.s_next[k]), float(mdp.r[k]), *chances
            listed.append(Replayed(*row, float(true[s, a]), float(shaped[s, a])))
        return tuple(sorted(listed, key=lambda one: -one.rho))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        whole = {"policy": self.policy, "v": self.v, "learner": self.learner, "how": self.how, "margin": self.margin}
        shown = {**plain(whole), "replays": [plain(one._asdict()) for one in self.replays]}
        if self.price is not None:
            found, best = self.price.found, self.price.deterministic
            shown |= {"limit": plain(self.price.limit), "profile": found.profile.to_dict(), "gap": plain(found.gap)}
            shown |= {"deterministic": plain(best.value), "ceiling": self.price.ceiling.to_dict()}
            shown["plain"] = self.price.plain.to_dict()
        return shown


def _same(mdp: TabularMDP, k: int) -> Bools:
    """Which outcomes of the pair of outcome k have its reward, next state and end."""
    i = mdp.pair[k]
    here = slice(mdp.row[i], mdp.row[i + 1])
    alike = (mdp.r[here] == mdp.r[k]) & (mdp.s_next[here] == mdp.s_next[k]) & (mdp.terminal[here] == mdp.terminal[k])
    return np.asarray(alike)


def matters(mdp: TabularMDP) -> Bools:
    """The states in which an action can matter: reachable and not terminal, [S]."""
    return np.asarray(mdp.is_reachable & ~mdp.is_terminal)


def checked_policy(mdp: TabularMDP, policy: Any) -> Ints:
    """A policy [S] with −1 for any action; raises an error for an invalid one."""
    given = _checks.finite_array("policy", policy)
    _checks.require(
        given.shape == (mdp.n_states,), "policy", f"have shape ({mdp.n_states},), an action per state", given.shape
    )
    chosen = given.astype(np.int64)
    exists = np.diff(mdp.row).reshape(mdp.n_states, mdp.n_actions) > 0
    for s in np.flatnonzero(matters(mdp)):
        a, where = given[s], f"in state {s}"
        _checks.require(
            a == chosen[s] and -1 <= a < mdp.n_actions,
            "policy",
            f"be an action in 0..{mdp.n_actions - 1}, or -1",
            float(a),
            where,
        )
        _checks.require(a == -1 or exists[s, chosen[s]], "policy", "be an action that the model has", int(a), where)
    return np.where(matters(mdp), chosen, -1)


class Conditions(NamedTuple):
    """The targets of all pairs for some values V, and ρ by formula (3)."""

    mean: Floats  #: E [S, A]
    low: Floats  #: [S, A]
    high: Floats  #: [S, A]
    spread: Floats  #: [S, A] standard deviation under q
    worst: Ints  #: [P] the outcome with the lowest target; that of the first if there are several
    best: Ints  #: [P]

    @classmethod
    def at(cls, mdp: TabularMDP, V: Floats) -> Conditions:
        """The targets for V."""
        x, shape = targets(mdp, V), (mdp.n_states, mdp.n_actions)
        order = np.lexsort((x, mdp.pair))
        used = np.diff(mdp.row) > 0
        worst, best = np.full(mdp.n_pairs, -1), np.full(mdp.n_pairs, -1)
        worst[used], best[used] = order[mdp.row[:-1][used]], order[mdp.row[1:][used] - 1]
        low, high = (np.where(used, x[k], 0.0).reshape(shape) for k in (worst, best))
        mean = mdp.expect(x)
        spread = np.sqrt(mdp.expect((x - mean.ravel()[mdp.pair]) ** 2))
        return cls(mean, low, high, spread, worst, best)

    def margin(self, policy: Ints, least: float) -> Floats:
        """A lead that learning can find, [S, A]: a tenth of the standard deviation of the difference of targets, or ``least``."""
        own = self.spread[np.arange(policy.size), policy]
        return np.maximum(least, NOISE * np.hypot(self.spread, own[:, None]))


def _others(mdp: TabularMDP, policy: Ints) -> Bools:
    """The pairs that the policy must be better than, [S, A]."""
    other = matters(mdp)[:, None] & (np.diff(mdp.row).reshape(mdp.n_states, mdp.n_actions) > 0)
    other[np.arange(mdp.n_states), np.maximum(policy, 0)] = False
    return np.asarray(other & (policy >= 0)[:, None])


class _Shares(NamedTuple):
    """ρ of the pairs that must look worse, and those that cannot."""

    rho: Floats  #: [S, A]
    blocked: Bools  #: [S, A]


class Asked(NamedTuple):
    """What is asked of a replay."""

    policy: Ints  #: [S] as given; −1 in free states
    chosen: Ints  #: [S] with actions in free states
    margin: Floats  #: [S, A]
    exact: bool  #: whether that margin was given; if not, less will do
    apart: Bools  #: [S, A] pairs with a single outcome that must not tie with the policy
    near: Bools  #: [S, A] pairs with a single outcome that tie with it without replay


def lowered(mdp: TabularMDP, asked: Asked, V: Floats, at: Conditions) -> _Shares:
    """Formula (3) for values V; if no margin was given, half of what is possible is enough.

    In free states other actions may be as good as the chosen one.
    """
    rounding = slack(1e-10, V, mdp.r)
    room, over = V[:, None] - at.low, at.mean - V[:, None]
    least = asked.margin if asked.exact else np.minimum(asked.margin, 0.5 * room)
    least = np.where((asked.policy >= 0)[:, None], least, -rounding)
    fixed = (at.mean - at.low <= rounding) | (room <= rounding)  # replay cannot make it worse than V
    needs = _others(mdp, asked.chosen) & (over > np.where(fixed, np.where(asked.apart, -rounding, rounding), -least))
    blocked = needs & (fixed | (room <= least))
    share = np.divide(over + least, at.mean - at.low, where=needs & ~blocked, out=np.zeros_like(over))
    return _Shares(share, blocked)


def reachable(mdp: TabularMDP, policy: Any, bold: bool = True) -> Reach:
    """Whether some replay's limit has this greedy policy, with a certificate either way.

    Parameters
    ----------
    mdp : TabularMDP
    policy : int [S]; an action per state; those of terminal and unreachable states are ignored
    bold : bool; whether the best outcomes of the policy's own pairs may be replayed, too

    Returns
    -------
    Reach

    Raises
    ------
    BadInput : an argument is invalid

    >>> import safereplay as sr
    >>> rows = [(0, 0, 1.0, 1, 1.0, True, False), (0, 1, 1.0, 1, 2.0, True, False)]      # a sure 1 and a sure 2
    >>> answer = reachable(sr.TabularMDP.from_outcomes(2, 2, rows, start=0), [0, 0])
    >>> answer.possible, answer.state, answer.action
    (False, 0, 1)
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    asked, V = _asked(mdp, checked_policy(mdp, policy), None)
    bold, at = _checks.flag("bold", bold), Conditions.at(mdp, V)
    blocked = lowered(mdp, asked, V, at).blocked
    if not blocked.any():
        return Reach(True, "pessimistic", V)
    s, b = _first(blocked, at.low - V[:, None])
    found = _searched(mdp, asked, WAYS[: 1 + bold])
    if isinstance(found, str):
        return Reach(None, "", None, s, b, found)
    if found is not None:
        return Reach(True, found.how, found.V)
    return Reach(False, "", None, s, b, _why(mdp, asked, V, at, s, b, bold))


def _first(blocked: Bools, by: Floats) -> tuple[int, int]:
    """The blocked pair that is furthest from what is needed."""
    s, b = divmod(int(np.where(blocked, by, -inf).argmax()), blocked.shape[1])
    return s, b


def _why(mdp: TabularMDP, asked: Asked, V: Floats, at: Conditions, s: int, b: int, bold: bool) -> str:
    """Why a pair is in the way."""
    rounding = slack(1e-10, V, mdp.r)
    low, own = (0.0 if abs(x) <= rounding else float(x) for x in (at.low[s, b], V[s]))
    what = "its only outcome is" if at.high[s, b] - at.low[s, b] <= rounding else "even its worst outcome is"
    near = f", less than the margin {asked.margin[s, b]:g} above it" * (asked.exact and low < own)
    return f"{what} worth {low:.4g}, and action {asked.chosen[s]} {own:.4g}{near}" + "; bold=True may help" * (not bold)


def _asked(mdp: TabularMDP, policy: Ints, margin: float | None, how: _Way | None = None) -> tuple[Asked, Floats]:
    """What is asked, with actions in free states: the best ones, or those of ``how``; and the policy's values V [S]."""
    how = how or _Way()
    fixed = policy if how.elsewhere is None else np.where(policy >= 0, policy, how.elsewhere)
    Q = by_policies(mdp, mdp.p, fixed=fixed)
    chosen = np.where(fixed >= 0, fixed, Q.argmax(1))
    apart, V = np.zeros(Q.shape, bool) if how.apart is None else how.apart, Q[np.arange(mdp.n_states), chosen]
    near = (np.diff(mdp.row) == 1).reshape(Q.shape) & (np.abs(Q - V[:, None]) <= slack(1e-8, V, mdp.r))
    usual = MARGIN * float(np.ptp(mdp.r))
    lead = Conditions.at(mdp, V).margin(chosen, usual) if margin is None else np.full(Q.shape, margin)
    return Asked(policy, chosen, lead, margin is not None, apart, near), V


class _Way(NamedTuple):
    """A way to look for a replay."""

    elsewhere: Ints | None = None  #: [S] actions for free states; −1 for the best ones
    apart: Bools | None = None  #: as in :class:`Asked`
    nodes: int = MAX_NODES  #: of a program, if the closed form fails; 0 for none


class _Found(NamedTuple):
    V: Floats
    chosen: Ints
    how: str


def _searched(
    mdp: TabularMDP, asked: Asked, ways: Sequence[str], most: float = MOST_RHO, nodes: int = MAX_NODES
) -> _Found | str | None:
    """Values that satisfy (1) and (2), with own pairs "lowered" or "bold", and the least sum of changes; None if there are none, or why unknown.

    First without new ties; then with ever smaller margins, if none was given; then with ties where they are allowed.
    """
    strict = asked._replace(apart=asked.apart | ~asked.near)
    smaller = [] if asked.exact else [strict._replace(margin=share * asked.margin) for share in (0.1, 0.0)]
    last = asked if asked.exact else asked._replace(margin=0.0 * asked.margin)
    for how in ways:
        for one in (strict, *smaller, last):
            found = _Program(mdp, one, how == "bold", most, nodes).solve()
            if found is not None:
                return found if isinstance(found, str) else _Found(*found, how)
    return None


WAYS = ("lowered", "bold")  # of changing own pairs


class _Program:
    """(1) and (2) as a mixed-integer linear program in V, for ρ up to ``most``."""

    def __init__(self, mdp: TabularMDP, asked: Asked, bold: bool, most: float, nodes: int) -> None:
        self.mdp, self.asked, self.bold, self.most, self.nodes = mdp, asked, bold, most, nodes
        low, high = value_bounds(mdp)
        self.scale = float((high - low).max()) or 1.0
        self.bounds = low / self.scale, high / self.scale
        self.margin = np.maximum(LEAST_MARGIN, asked.margin / self.scale)
        self.rows: list[tuple[list[tuple[int, float]], float]] = []  # Σ coefficient·variable ≥ bound
        self.integer: list[int] = [0] * mdp.n_states
        self.price: list[float] = [0.0] * mdp.n_states
        self.lowest, self.highest = list(self.bounds[0]), list(self.bounds[1])
        self.switches: dict[int, list[int]] = {}  # of free states: which action is chosen

    def variable(self, integer: bool, price: float) -> int:
        """The number of a new variable that is at least 0, and binary if ``integer``."""
        self.integer.append(int(integer))
        self.price.append(price)
        self.lowest.append(0.0)
        self.highest.append(1.0 if integer else inf)
        return len(self.price) - 1

    def target(self, i: int, k: int | None) -> tuple[dict[int, float], float]:
        """The target of outcome k of pair i, or its mean under q, as (coefficients of V, constant)."""
        mdp, linear, constant = self.mdp, dict[int, float](), 0.0
        for j in range(mdp.row[i], mdp.row[i + 1]) if k is None else (k,):
            p = float(mdp.p[j]) if k is None else 1.0
            constant += p * float(mdp.r[j]) / self.scale
            if not mdp.terminal[j]:
                linear[int(mdp.s_next[j])] = linear.get(int(mdp.s_next[j]), 0.0) + p * mdp.gamma
        return linear, constant

    def bound(self, s: int, i: int, k: int | None, sign: float, margin: float, *more: tuple[int, float]) -> None:
        """sign·(V(s) − (1−c)·E − c·x_k) ≥ margin + Σ more, or with E alone if k is None; a binary (j, 1) in ``more`` turns it on."""
        mean, c = self.target(i, None), self.most if k is not None else 0.0
        linear = {s: 1.0}
        constant = 0.0
        for (part, number), share in ((mean, 1.0 - c), (self.target(i, k), c)) if k is not None else ((mean, 1.0),):
            for state, x in part.items():
                linear[state] = linear.get(state, 0.0) - share * x
            constant += share * number
        low, high = self.bounds
        least = sum(x * (low if sign * x > 0 else high)[state] for state, x in linear.items()) - constant
        entries = [(state, sign * x) for state, x in linear.items()]
        needed = margin + sign * constant
        for j, kind in more:
            if kind > 0.0:  # a continuous variable that helps
                entries.append((j, 1.0))
            else:  # a binary: without it the condition need not hold
                slackness = max(0.0, margin - sign * least)
                entries.append((j, -slackness))
                needed -= slackness
        self.rows.append((entries, needed))

    def one_of(self, s: int, i: int, sign: float, margin: float) -> None:
        """Some outcome of pair i is low enough (sign 1), or high enough (−1)."""
        outcomes = range(self.mdp.row[i], self.mdp.row[i + 1])
        switches = [self.variable(True, 0.0) for _ in outcomes]
        for k, switch in zip(outcomes, switches, strict=True):
            self.bound(s, i, k, sign, margin, (switch, -1.0))
        self.rows.append(([(switch, 1.0) for switch in switches], 1.0))

    def own(self, s: int) -> None:
        """V(s) is a mean that replay can give the policy's pair."""
        mdp, i = self.mdp, s * self.mdp.n_actions + int(self.asked.policy[s])
        several = mdp.row[i + 1] - mdp.row[i] > 1
        down = [(self.variable(False, 1.0), 1.0)] if several else []
        up = [(self.variable(False, 1.0), 1.0)] if several and self.bold else []
        self.bound(s, i, None, 1.0, 0.0, *down)  # V ≥ E − down
        self.bound(s, i, None, -1.0, 0.0, *up)  # V ≤ E + up
        if several:
            self.one_of(s, i, 1.0, 0.0)
        if several and self.bold:
            self.one_of(s, i, -1.0, 0.0)

    def free(self, s: int) -> None:
        """V(s) is at most the mean of some action; which one is found by the program."""
        switches = [self.variable(True, 0.0) for _ in range(self.mdp.n_actions)]
        used = np.diff(self.mdp.row)[s * len(switches) :][: len(switches)] > 0
        for b in np.flatnonzero(used):
            self.bound(s, s * len(switches) + int(b), None, -1.0, 0.0, (switches[b], -1.0))
        self.rows.append(([(switches[b], 1.0) for b in np.flatnonzero(used)], 1.0))
        self.switches[s] = switches

    def worse(self, s: int, b: int, margin: float) -> None:
        """Action b can be made worse than V(s)."""
        i = s * self.mdp.n_actions + b
        if self.mdp.row[i + 1] - self.mdp.row[i] == 1:
            self.bound(s, i, None, 1.0, margin if self.asked.apart[s, b] else 0.0)
        else:
            self.one_of(s, i, 1.0, margin)
            self.bound(s, i, None, 1.0, margin, (self.variable(False, 1.0), 1.0))

    def solve(self) -> tuple[Floats, Ints] | str | None:
        """V [S] and a policy with actions in free states; None if there is none, and the reason if it is not known."""
        mdp, policy = self.mdp, self.asked.policy
        used = (np.diff(mdp.row) > 0).reshape(mdp.n_states, mdp.n_actions)
        if int(np.diff(mdp.row).sum()) > MAX_BINARIES:
            return f"the program would have more than {MAX_BINARIES:,} binary variables"
        for s in map(int, np.flatnonzero(matters(mdp))):
            if policy[s] >= 0:
                self.own(s)
            else:
                self.free(s)
            for b in map(int, np.flatnonzero(used[s])):
                if b != policy[s]:
                    self.worse(s, b, float(self.margin[s, b]) if policy[s] >= 0 else 0.0)
        index = [(row, j, x) for row, (entries, _) in enumerate(self.rows) for j, x in entries]
        rows, columns, values = zip(*index, strict=True)
        A = sparse.csr_array((values, (rows, columns)), shape=(len(self.rows), len(self.price)))
        answer = milp(
            np.array(self.price),
            integrality=np.array(self.integer),
            bounds=Bounds(np.array(self.lowest), np.array(self.highest)),
            constraints=LinearConstraint(A, np.array([bound for _, bound in self.rows]), inf),
            options={"node_limit": self.nodes},
        )
        if answer.x is None:
            return None if answer.status == 2 else "the program found no answer within its limit of nodes"
        chosen = self.asked.chosen.copy()
        for s, switches in self.switches.items():
            chosen[s] = int(np.argmax(answer.x[switches]))
        return np.asarray(answer.x[: mdp.n_states] * self.scale, np.float64), chosen


def design(
    mdp: TabularMDP,
    policy: Any = None,
    *,
    max_p_unsafe: float | None = None,
    min_cvar: float | None = None,
    max_std: float | None = None,
    alpha: float = 0.1,
    start: Any = None,
    margin: float | None = None,
    bold: bool = False,
    least: str = "total",
    quiet: bool = False,
) -> Design:
    """The replay whose limit has a given greedy policy, or the best one under a limit on risk.

    Parameters
    ----------
    mdp : TabularMDP
    policy : int [S]; an action per state; −1 leaves a state free: the best action there, given the others
    max_p_unsafe, min_cvar, max_std : float
        Instead of a policy, a limit: the best deterministic policy that ends with probability 1, keeps it and can be given by
        replay. States that it never meets are free.
    alpha : float; share of the worst episodes in CVaR
    start : state or distribution [S], optional; of the episodes whose risk is limited; default: the model's start
    margin : float, optional
        Least lead of the policy over other actions with several outcomes, above 0. Default: a tenth of the standard deviation of the
        difference of the two targets and at least 1 % of the range of the rewards, or half of what is possible if that is less. A
        smaller margin needs less replay, and more episodes to learn.
    bold : bool; whether the best outcomes of the policy's own pairs may be replayed, where that is needed
    least : {"total", "largest"}
        What is least: the total replay of other pairs, with own pairs left alone if possible; or the largest ρ, to 1 %, where own
        pairs may be replayed, too.

    Returns
    -------
    Design

    Raises
    ------
    BadInput : an argument is invalid; as Unreachable, if no such replay exists: the state and the action in the way

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> plan = design(mdp, max_p_unsafe=0.035, start=mdp.origin)
    >>> round(plan.price.profile.p_unsafe, 4), round(plan.price.profile.mean, 3), len(plan.replays), round(plan.v, 2)
    (0.0319, 0.653, 7, 0.28)
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    if margin is not None:
        margin = _checks.between("margin", margin, "(0, inf)")
    terms = _Terms(margin, _checks.flag("bold", bold), _checks.choice("least", least, LEASTS))
    limits = {"max_p_unsafe": max_p_unsafe, "min_cvar": min_cvar, "max_std": max_std}
    if policy is not None:
        given = next((name for name, x in limits.items() if x is not None), None)
        _checks.require(given is None, "policy", "come without a limit", given)
        return _for_policy(mdp, checked_policy(mdp, policy), terms)
    _checks.require(any(x is not None for x in limits.values()), "policy", "be given, or a limit", None)
    return _for_limit(mdp, Limit.one_of(alpha=alpha, **limits), start, terms, _checks.flag("quiet", quiet))


class _Terms(NamedTuple):
    margin: float | None
    bold: bool
    least: str


def _for_policy(mdp: TabularMDP, policy: Ints, terms: _Terms, way: _Way | None = None) -> Design:
    way = way or _Way()
    asked, V = _asked(mdp, policy, terms.margin, way)
    at, how = Conditions.at(mdp, V), "pessimistic"
    shares = lowered(mdp, asked, V, at)
    if shares.blocked.any():
        s, b = _first(shares.blocked, at.low - V[:, None])
        found = _searched(mdp, asked, WAYS[: 1 + terms.bold], nodes=way.nodes) if way.nodes else None
        if found is None or isinstance(found, str):
            where = f"action {b} in state {s} is in the way: {found or _why(mdp, asked, V, at, s, b, terms.bold)}"
            raise Unreachable(f"{REFUSED}{where}")
        V, chosen, how = found
        asked = asked._replace(chosen=chosen)
    elif terms.least == "largest" and shares.rho.any():
        V, chosen, how = _evened(mdp, asked, V, terms.bold, float(shares.rho.max()))
        asked = asked._replace(chosen=chosen)
    return _designed(mdp, asked, V, how)


def _for_limit(mdp: TabularMDP, limit: Limit, start: Any, terms: _Terms, quiet: bool) -> Design:
    """The design for the best deterministic policy under a limit that replay can give."""
    here = mdp if start is None else mdp.with_start(start)
    if limit.measure == "p_unsafe":
        _checks.require(bool(mdp.unsafe.any()), "mdp", "have unsafe outcomes, for a limit on them", mdp)
    given = _Given(mdp, here, limit, terms)
    found, ceiling = best_policy(here, limit, given, quiet), Ceilings(here, limit).at(limit.value)
    if found is None:
        why = "no deterministic policy that keeps it was found"
        if given.refused:
            why = f"replay cannot give the policies that keep it: {given.refused[-1]}"
        elif ceiling.status == INFEASIBLE:
            why = f"at best a policy has {limit.label} {limit.shown(ceiling.best)}"
        raise Unreachable(f"{limit.name} must be a limit that designed replay can keep, got {limit.value:g}; {why}")
    anyone = best_policy(here, limit, quiet=quiet) if given.refused else found
    price = Price(limit, found, anyone or found, ceiling, evaluate(here, _plain(mdp), quiet=True))
    return replace(given.plans[found.policy.tobytes()], price=price)


def _plain(mdp: TabularMDP) -> Ints:
    """The policy of Q-learning's limit."""
    return np.asarray(by_policies(mdp, mdp.p).argmax(1))


class _Given:
    """Whether replay can give a policy, so that learning ends with one that keeps the limit; ``plans`` and ``refused`` tell how and why not."""

    def __init__(self, mdp: TabularMDP, here: TabularMDP, limit: Limit, terms: _Terms) -> None:
        self.mdp, self.here, self.limit, self.terms = mdp, here, limit, terms
        self.plans: dict[bytes, Design] = {}
        self.refused: list[str] = []

    def __call__(self, policy: Ints) -> bool:
        for elsewhere in (None, *self.careful):
            if self.try_out(policy, _Way(elsewhere, nodes=0)) is None:
                return True
        harmful = self.try_out(policy, _Way(nodes=FEW_NODES))
        if harmful is not None and harmful.any():
            harmful = self.try_out(policy, _Way(apart=harmful, nodes=FEW_NODES))
        return harmful is None

    def try_out(self, policy: Ints, way: _Way) -> Bools | None:
        """Keep the plan that is found this way if it has no harmful tie. Otherwise the result is those ties, [S, A]."""
        try:
            plan = _for_policy(self.mdp, policy, self.terms, way)
        except BadInput as error:
            self.refused.append(str(error).removeprefix(REFUSED))
            return np.zeros((self.mdp.n_states, self.mdp.n_actions), bool)
        harmful = self.harmful(plan, policy)
        if not harmful.any():
            self.plans[policy.tobytes()] = plan
            return None
        s, b = np.argwhere(harmful)[0]
        self.refused.append(f"action {b} in state {s} is as good in the limit, and does not keep {self.limit}")
        return harmful

    @cached_property
    def careful(self) -> list[Ints]:
        """The best policies if an unsafe outcome costs more and more, [S] each, for states that are free."""
        mdp, size = self.mdp, float(np.ptp(self.mdp.r))
        costs = [replace(mdp, r=mdp.r - price * size * mdp.unsafe) for price in PRICES]
        return [np.asarray(by_policies(one, one.p).argmax(1)) for one in costs]

    def harmful(self, plan: Design, policy: Ints) -> Bools:
        """The pairs that tie with the policy, so that learning may end with either, and do not keep the limit, [S, A]."""
        harmful = plan.tied & (policy >= 0)[:, None]
        for s, b in np.argwhere(harmful):
            other = np.where(np.arange(policy.size) == s, b, plan.policy)
            harmful[s, b] = not self.limit.met_by(evaluate(self.here, other, quiet=True))
        return np.asarray(harmful)


class Reached(NamedTuple):
    """A point of the frontier of designed replay."""

    p_unsafe: float
    mean: float
    mean_discounted: float
    policy: Ints  #: [S]; −1 in states that it never meets


def reachable_frontier(
    mdp: TabularMDP, start: Any = None, *, replayed: bool = True, bold: bool = False, steps: int = 16
) -> tuple[Reached, ...]:
    """The best deterministic policies under falling limits on P(unsafe) that replay can give, from that of Q-learning on.

    ``steps`` is the number of limits; ``replayed=False`` takes policies that replay cannot give, too.
    """
    here = mdp if start is None else mdp.with_start(start)
    best, points = Ceilings(here, Limit("max_p_unsafe", 1.0)).best, list[Reached]()
    most = bound = min(1.0, evaluate(here, _plain(mdp), quiet=True).p_unsafe)
    while len(points) <= steps and bound >= best:
        limit = Limit("max_p_unsafe", bound)
        given = _Given(mdp, here, limit, _Terms(None, bold, "total"))
        found = best_policy(here, limit, given) if replayed else best_policy(here, limit)
        if found is None:
            break
        discounted = evaluate(here, np.maximum(found.policy, 0), discounted=True, quiet=True).mean
        points.append(Reached(found.profile.p_unsafe, found.profile.mean, discounted, found.policy))
        if found.profile.p_unsafe <= best * (1.0 + 1e-9):
            break
        bound = max(best, found.profile.p_unsafe - (most - best) / steps)
    return tuple(points)


def _evened(mdp: TabularMDP, asked: Asked, V: Floats, bold: bool, most: float) -> _Found:
    """Values for which the largest ρ is least, to 1 %, by bisection; if a program finds no answer, that ρ counts as too small."""
    low, best = 0.0, _Found(V, asked.chosen, "pessimistic")
    while most - low > 0.01 * most:
        middle = (low + most) / 2.0
        found: Any = _Found(_raised(mdp, asked.chosen, middle), asked.chosen, "bold") if bold else None
        if found is None or not _fits(mdp, asked, found.V, middle):
            found = _searched(mdp, asked, ("bold" if bold else "lowered",), middle, FEW_NODES)
        if isinstance(found, _Found):
            most, best = middle, found
        else:
            low = middle
    return best


def _raised(mdp: TabularMDP, policy: Ints, rho: float) -> Floats:
    """The values of a policy if the best outcome is replayed at all its own pairs, [S]."""
    states = np.arange(mdp.n_states)

    def H(V: Floats) -> Floats:  # noqa: N802
        at = Conditions.at(mdp, V[:, 0])
        own = ((1.0 - rho) * at.mean + rho * at.high)[states, policy]
        return np.where(mdp.is_terminal, 0.0, own)[:, None]

    return iterate(H, mdp)[:, 0]


def _fits(mdp: TabularMDP, asked: Asked, V: Floats, most: float) -> bool:
    """Whether other pairs can be made worse than V with ρ up to ``most``."""
    shares = lowered(mdp, asked, V, Conditions.at(mdp, V))
    return not shares.blocked.any() and float(shares.rho.max()) <= most


def _designed(mdp: TabularMDP, asked: Asked, V: Floats, how: str) -> Design:
    """The replay that gives the values V to the policy's own pairs, and less to others; checked by its limit."""
    at, states, policy = Conditions.at(mdp, V), np.arange(mdp.n_states), asked.chosen
    rho, k = lowered(mdp, asked, V, at).rho, at.worst.copy()
    if how != "pessimistic":
        mean, low, high = (x[states, policy] for x in (at.mean, at.low, at.high))
        change = np.where(matters(mdp), V - mean, 0.0)
        small = np.abs(change) <= NEGLIGIBLE * max(float(np.ptp(V)), float(np.ptp(mdp.r)))
        span = np.where(change > 0, high - mean, mean - low)
        own = np.divide(np.abs(change), span, where=~small & (span > 0), out=np.zeros_like(span))
        rho[states, policy] = np.minimum(own, MOST_RHO)
        raised = states[change > 0] * mdp.n_actions + policy[change > 0]
        k[raised] = at.best[raised]
    weight = (rho / (1.0 - rho)).ravel()
    pairs = np.flatnonzero(weight > 0)
    entries = ((i, mdp.s_next[k[i]], mdp.terminal[k[i]], mdp.r[k[i]], weight[i]) for i in pairs)
    scheme = DesignedReplay(tuple(tuple(float(x) for x in entry) for entry in entries))
    v = float(weight.sum() / (1.0 + weight.sum()))
    H = operator(mdp, scheme, v)
    Q = H.fixed_point()
    lead = Q.max(1) - Q[states, policy]
    rounding = slack(1e-8, Q, mdp.r)
    wrong = np.flatnonzero(matters(mdp) & (lead > rounding))
    if wrong.size:
        s = int(wrong[0])
        raise BadInput(
            f"margin must be above the rounding of values, got too little: state {s} prefers action {Q[s].argmax()}"
        )
    tied = _others(mdp, policy) & (Q.max(1, keepdims=True) - rounding <= Q)
    return Design(mdp, policy, H.rho, scheme, v, Q, how, np.asarray(tied))
