"""The operator H of a shaped replay.

Replay changes the effective outcomes of a pair. They depend on two functions: ρ(s,a), the share of a pair's updates
that are replays, and ŵ(s',r|s,a) = w/W, the distribution of its replays:

    p̃(s',r|s,a)  =  (1 − ρ(s,a))·q(s',r|s,a)  +  ρ(s,a)·ŵ(s',r|s,a)
    HQ(s,a)      =  Σ p̃(s',r|s,a)·(r + γ·max_b Q(s',b))

The scheme determines W and ŵ, the mixing ρ. With d(s,a) the share of MDP iterations that visit the pair,

    ρ(s,a)  =  v·W(s,a) / ( (1−v)·d(s,a) + v·W(s,a) ).

The paper's equations 1–4 are the case d ≡ 1: its proof has Pr(s,a | MDP iteration) = Σ q = 1 in place of d(s,a). So
Algorithm 1 converges to the fixed point with d, and matched mixing to the one with d ≡ 1. With anchored mixing
ρ(s,a) = v·min(1, W(s,a)), where W is the scheme's weight itself, not its share of all weights. H is a γ-contraction in
all cases, since p̃ is a distribution for each pair.

**Weights that depend on Q** (``y``, ``spread``, ``below``, ``value``): each Q has its own w(Q), and a limit is a fixed point
of its own operator, Q = H_{w(Q)} Q. Each H_w is a γ-contraction, but w(Q) changes with Q, and the whole need not contract.
:func:`valued` follows the expected updates, Q ← Q + η·(H_{w(Q)} Q − Q), from Q* of the model, with η halved whenever the
residue max |H_{w(Q)} Q − Q| has not fallen for PATIENCE steps. It ends at a residue of 0, up to the tolerance, or raises an
error. If the value of a pair is a monotone function of its targets that shifts with constants (``CVaRReplay`` and other risk
measures under anchored mixing), the whole contracts by γ. Then it is faster to solve Q = H_w Q for fixed w, and to renew w:
for coherent measures this is policy iteration of the adversary who chooses w (Hoffman & Karp 1966). A solution is taken only if
it lowers the residue by more than an update would.

Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2, Eq. 3, Eq. 4, Lemma 2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from math import inf, log
from typing import Any, NamedTuple

import numpy as np

from .. import _checks
from .._checks import Bools, Floats, Ints
from .._progress import tell, unmoved
from ..arrays import model_memory, slots_of, unsafe_slots
from ..kernels import memory as mem
from ..kernels.compile import Array, Bound, digest_of, specialise
from ..kernels.memory import MIDDLE, OF_OUTCOME, STATISTICS, make_limit
from ..mdp import TabularMDP
from ..schemes import Scheme, check_tabular
from .solver import TOLERANCE, extremes, log_sums, optimal, slack, targets

MANY = 1e15  # visits that represent infinity
MAX_STEPS = 20_000  # of :func:`valued`
PATIENCE = 200  # steps without a smaller residue before η is halved
WAIT = 10  # steps after a solution for fixed w that was not taken
PANELS, PANEL_NODES = 22, 32  # of the mean over ``luck``


def limit_weights(mdp: TabularMDP, scheme: Scheme, Q: Floats | None = None, visitation: Floats | None = None) -> Floats:
    """w^∞ of every outcome, [K]: the limit of w_t when each outcome is seen infinitely often.

    For a scheme that depends on Q, Q is needed. One that counts visits but is FAITHFUL needs the visits d(s,a), equal
    if not given. A pair that cannot be reached has no weight.

    Ref: Szlak & Shamir (2021), Lemma 4.
    """
    return _weights(mdp, scheme, Q, visitation)[0]


def _weights(
    mdp: TabularMDP, scheme: Scheme, Q: Floats | None = None, visitation: Floats | None = None
) -> tuple[Floats, float]:
    """w^∞ [K], and the sum of all pairs' weights, which w^∞ is divided by."""
    if scheme.follows_values and Q is None:
        hint = "matched mixing and given visits have limits: fixed_point(mdp, scheme, v), or visitation=d"
        _checks.fail("scheme", "not depend on Q, unless Q is given", scheme, hint)
    known = scheme.has_limit or scheme.FAITHFUL or scheme.follows_values
    _checks.require(known, "scheme", "depend neither on TD errors nor on visits, to have a limit", scheme)
    check_tabular(scheme)
    scheme.check_model(mdp)
    reachable = mdp.is_reachable[mdp.pair // mdp.n_actions]  # first: it takes room of its own
    memory = model_memory(mdp)
    n = MANY * (np.ones(mdp.n_pairs) if visitation is None or not scheme.names("n") else visitation.ravel())
    often = np.where(reachable, mdp.p * n[mdp.pair], 0.0)
    memory.count[:] = np.bincount(slots_of(mdp), weights=often, minlength=mdp.p.size)
    del often, reachable
    memory.stats[:, mem.MEAN] = mdp.expect(mdp.r).ravel()
    memory.stats[:, mem.M2] = mdp.reward_variance.ravel() * n
    np.minimum.at(memory.stats[:, mem.R_MIN], mdp.pair, mdp.r)
    np.maximum.at(memory.stats[:, mem.R_MAX], mdp.pair, mdp.r)
    values = np.zeros(mdp.n_pairs) if Q is None else np.ascontiguousarray(Q, np.float64).ravel()
    fill, mass = _filler(*scheme.factors()), np.zeros(mdp.p.size)
    if wrong := fill(memory, values, mdp.gamma, mdp.n_actions, n, *_lucks(), mass, scheme.params()):
        scheme.refuse(memory, values, wrong - 1, MANY)
    mem.weights(memory, memory.share)  # in place
    return memory.share, float(memory.tree[1])


_filler = lru_cache(maxsize=64)(make_limit)


@lru_cache(maxsize=1)
def _lucks() -> tuple[Floats, Floats]:
    """Nodes and weights of the mean over ``luck``: Gauss–Legendre on panels that halve towards 0.

    A tilt β·luck·y changes most where luck is near 1/(β·range of y), so panels of equal ratio suit every β.
    """
    x, weight = np.polynomial.legendre.leggauss(PANEL_NODES)
    edges = np.append(0.5 ** np.arange(PANELS), 0.0)
    half = (edges[:-1] - edges[1:]) / 2.0
    return np.ravel(edges[1:, None] + half[:, None] * (x + 1.0)), np.ravel(half[:, None] * weight)


class Transitions(NamedTuple):
    """p̃(s'|s,a) and R̃(s,a,s'): the outcomes of a pair with the same next state and end, combined.

    Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2.
    """

    pair: Ints  #: [J]
    s_next: Ints  #: [J]
    terminal: Bools  #: [J] whether the episode ends there
    p: Floats  #: [J] p̃(s'|s,a)
    R: Floats  #: [J] R̃(s,a,s'); 0 if p̃ is 0


class Operator(NamedTuple):
    """H for a scheme and a mixing on a model.

    Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2, Eq. 3, Eq. 4, Lemma 2.
    """

    mdp: TabularMDP
    p: Floats  #: p̃ of every outcome, [K]: (1−v)·φ₁ + v·φ₂ = (1−ρ)·q + ρ·ŵ
    rho: Floats  #: ρ(s,a), [S, A]
    w: Floats  #: w^∞ of every outcome, [K]
    phi1: Floats  #: φ₁ of every outcome, [K]: d·q / ((1−v)·d + v·W)
    phi2: Floats  #: φ₂ of every outcome, [K]: w / ((1−v)·d + v·W)

    def __call__(self, Q: Floats) -> Floats:
        """HQ, [S, A]."""
        return self.mdp.expect(targets(self.mdp, Q.max(1)), self.p)

    def fixed_point(self, near: Floats | None = None) -> Floats:
        """The Q with HQ = Q, [S, A]; ``near`` [S] are approximate values that speed up the search."""
        return optimal(self.mdp, self.p, near=near)

    @property
    def R(self) -> Floats:  # noqa: N802
        """R̃(s,a) = Σ p̃·r, the effective reward of a pair, [S, A]."""
        return self.mdp.expect(self.mdp.r, self.p)

    def transitions(self) -> Transitions:
        """p̃ and R̃ by next state, as the paper writes them."""
        (pair, s_next, terminal), member = places(self.mdp)
        p = np.asarray(np.bincount(member, weights=self.p), np.float64)
        R = np.divide(np.bincount(member, weights=self.p * self.mdp.r), p, out=np.zeros_like(p), where=p > 0)
        return Transitions(pair, s_next, terminal.astype(bool), p, R)


def places(table: Any) -> tuple[Ints, Ints]:
    """The distinct (pair, s_next, terminal) of a table with these columns, [3, J], and that of each outcome, [K]."""
    keys, member = np.unique(np.stack([table.pair, table.s_next, table.terminal]), axis=1, return_inverse=True)
    return keys, member.ravel()


def operator(
    mdp: TabularMDP,
    scheme: Scheme,
    v: float = 0.5,
    visitation: Any = None,
    Q: Floats | None = None,
    anchored: bool = False,
) -> Operator:
    """H; ``visitation`` is d(s,a) [S, A], or None for the paper's d ≡ 1. A pair without updates keeps its own outcomes: p̃ = q.

    Q is needed if the scheme depends on it. ``anchored``: H of anchored mixing, which does not depend on visits.

    Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2, Eq. 3, Eq. 4.
    """
    d = given_visits(mdp, v, visitation, anchored)
    w, total = _weights(mdp, scheme, Q, d)
    if not anchored:
        return weighted(mdp, w, v, d)
    W = np.bincount(mdp.pair, weights=w, minlength=mdp.n_pairs)
    taken = np.minimum(W * total, 1.0)  # ρ at v = 1
    own = np.divide(w, W[mdp.pair], out=np.zeros_like(w), where=W[mdp.pair] > 0)
    phi2 = (1.0 - taken)[mdp.pair] * mdp.p + taken[mdp.pair] * own
    return Operator(mdp, (1.0 - v) * mdp.p + v * phi2, v * taken.reshape(d.shape), w, mdp.p, phi2)


def given_visits(mdp: TabularMDP, v: float, visitation: Any, anchored: bool = False) -> Floats:
    """d(s,a) [S, A] as given, or 1; raises an error for invalid arguments."""
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    _checks.between("v", v, "[0, 1]" if anchored else "[0, 1)")
    _checks.require(not anchored or visitation is None, "visitation", "be left out with anchored mixing", visitation)
    shape = (mdp.n_states, mdp.n_actions)
    d = np.ones(shape) if visitation is None else _checks.finite_array("visitation", visitation, shape)
    _checks.require(bool((d >= 0).all()), "visitation", "have no negative entry", float(d.min()))
    return d


def weighted(mdp: TabularMDP, w: Floats, v: float, d: Floats) -> Operator:
    """H for given weights w [K] and visits d [S, A], for callers with many d and one w."""
    W = np.bincount(mdp.pair, weights=w, minlength=mdp.n_pairs).reshape(d.shape)
    d = np.where((d == 0) & (v * W == 0), 1.0, d)
    updates = (1.0 - v) * d + v * W
    phi1 = (d / updates).ravel()[mdp.pair] * mdp.p
    phi2 = w / updates.ravel()[mdp.pair]
    return Operator(mdp, (1.0 - v) * phi1 + v * phi2, v * W / updates, w, phi1, phi2)


class Entries(NamedTuple):
    """Parallel arrays of weights: of pairs, of their rewards, or of their outcomes. All sorted by pair, then reward."""

    pair: Ints
    r: Floats  #: nan if summed over rewards
    place: Ints  #: 2·s' + (whether the episode ends there); −1 if summed over next states
    within: Floats  #: log of the share of its pair's weight
    log_w: Floats  #: log w: e^{−1000} is small but not 0, so underflow makes no false ties

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
    stats: Floats  #: [P, 11] in the order of STATISTICS
    y: Floats  #: [J] r + γ·max_b Q(s',b)
    unsafe: Floats  #: [J] 1 where the outcome is unsafe
    freq: Floats  #: [J] share of the pair's visits
    below: Floats  #: [J] share of the pair's visits with a lower y; of equal ones, of those before it


def limit_table(mdp: TabularMDP, Q: Floats | None = None) -> Table:
    """The outcomes and statistics that w^∞ depends on; those that depend on Q use this one (default 0)."""
    slot = slots_of(mdp)
    k = np.unique(slot)
    y = targets(mdp, np.zeros(mdp.n_states) if Q is None else Q.max(1))
    mean, unsafe = mdp.expect(mdp.r).ravel(), unsafe_slots(mdp).astype(np.float64)
    seen = np.asarray(np.bincount(slot, weights=mdp.p, minlength=mdp.p.size)[k] * MANY, np.float64)
    r_min, r_max = extremes(mdp)
    order = np.lexsort((np.arange(k.size), y[k], mdp.pair[k]))
    freq, before = seen / MANY, np.zeros(k.size)
    before[order] = np.cumsum(freq[order]) - freq[order]
    begin = np.full(mdp.n_pairs, inf)
    np.minimum.at(begin, mdp.pair[k], before)
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
        "pair": np.arange(mdp.n_pairs, dtype=np.float64),
        "value": np.zeros(mdp.n_pairs) if Q is None else Q.ravel(),
    }
    stats = np.column_stack([columns[name] for name in STATISTICS])
    place, shares = 2 * mdp.s_next[k] + mdp.terminal[k], (freq, before - begin[mdp.pair[k]])
    return Table(mdp.pair[k], mdp.r[k], place, seen, stats, y[k], unsafe[k], *shares)


def evaluated(scheme: Scheme, table: Table) -> tuple[Floats, Floats, Floats]:
    """(pair_weight [P], log_tilt [J], next_weight [J])."""
    factors = np.empty(len(table.stats)), np.empty(table.r.size), np.empty(table.r.size)
    _evaluator(*(scheme.bound(factor) for factor in scheme.OFFERS))(table, scheme.params(), *factors)
    return factors


@lru_cache(maxsize=64)
def _evaluator(pair_weight: Bound, log_tilt: Bound, next_weight: Bound) -> Callable[..., None]:
    weight_of, tilt_of, next_of = pair_weight.call, log_tilt.call, next_weight.call

    def evaluate(table: Table, params: Any, weight: Array, tilt: Array, share: Array) -> None:
        for i in range(weight.size):
            x = table.stats[i]
            weight[i] = weight_of((x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], *params))
        for k in range(tilt.size):
            x = table.stats[table.pair[k]]
            stats = x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10]
            place = float(table.place[k] // 2), float(table.place[k] % 2)
            shares = table.freq[k], table.below[k], MIDDLE
            tilt[k] = tilt_of(
                (table.r[k], *stats, table.seen[k], table.y[k], table.unsafe[k], *place, *shares, *params)
            )
            share[k] = next_of((table.seen[k], *params))

    return specialise(evaluate, digest_of([pair_weight, log_tilt, next_weight]))


def taken_apart(scheme: Scheme, table: Table) -> Weights:
    """w for these statistics, by factor."""
    raw, tilt, share = evaluated(scheme, table)
    new = np.ones(table.r.size, bool)
    new[1:] = (np.diff(table.pair) != 0) | (np.diff(table.r) != 0)
    reward = np.cumsum(new) - 1
    if scheme.bound("log_tilt").uses(*OF_OUTCOME):
        # e^tilt·share of outcomes, as a tilt over rewards and shares in them
        with np.errstate(divide="ignore"):
            log_w = tilt + np.log(share)
        tilt = log_sums(reward, int(reward[-1]) + 1, log_w)[reward]
        whole = np.isfinite(tilt)
        share = np.exp(log_w - np.where(whole, tilt, 0.0), where=whole, out=np.zeros_like(log_w))
    pair, mass = table.pair[new], np.bincount(reward, weights=share)
    with np.errstate(divide="ignore", invalid="ignore"):  # log 0 is −inf, as intended
        tilt = np.where(mass > 0, tilt[new], -inf)
        total = log_sums(pair, raw.size, tilt)
        raw = np.where(np.isfinite(total), raw, 0.0)
        W = np.where(raw > 0, np.log(raw) - np.log(raw.sum()), -inf)
        tilt = np.where(W[pair] > -inf, tilt - total[pair], -inf)
        within = tilt[reward] + np.where(share > 0, np.log(share / mass[reward]), -inf)
    used = np.unique(pair)
    none = np.full(pair.size, -1)
    pairs = Entries(used, np.full(used.size, np.nan), none[: used.size], np.zeros(used.size), W[used])
    rewards = Entries(pair, table.r[new], none, tilt, W[pair] + tilt)
    return Weights(raw, pairs, rewards, Entries(table.pair, table.r, table.place, within, W[table.pair] + within))


def valued(
    mdp: TabularMDP, scheme: Scheme, v: float, visitation: Any = None, anchored: bool = False
) -> tuple[Floats, Operator]:
    """A Q [S, A] with Q = H_{w(Q)} Q, and that operator."""
    with unmoved():
        Q, eta, least, since, wait = optimal(mdp, mdp.p), 1.0, np.inf, 0, 0
    enough = TOLERANCE * (1.0 - mdp.gamma) if anchored else TOLERANCE
    within, first = max(enough / 100.0, 1e-14) if anchored else enough, 0.0
    for _ in range(MAX_STEPS):
        H = operator(mdp, scheme, v, visitation, Q, anchored)
        step = H(Q) - Q
        residue, goal = float(np.abs(step).max()), slack(within, Q, mdp.r)
        if residue <= goal:
            break
        first = first or residue
        tell(log(first / residue) / log(first / goal) if residue < first else 0.0)
        if anchored and (wait := wait - 1) < 0:
            with unmoved():
                there = H.fixed_point(Q.max(1))
            beyond = operator(mdp, scheme, v, visitation, there, anchored)
            if float(np.abs(beyond(there) - there).max()) < mdp.gamma * residue:
                Q = there
                continue
            wait = WAIT
        if residue < 0.999 * least:
            least, since = residue, 0
        elif (since := since + 1) > PATIENCE:
            if residue <= slack(enough, Q, mdp.r):
                break
            eta, since = eta / 2.0, 0
        Q = Q + eta * step
    else:
        _checks.fail("scheme", "converge on this model", scheme, f"Q still changes by {residue:.2g} per round")
    return Q, H


class Along:
    """The limits of one scheme along v: w is computed once, and each limit starts the search for the next.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> along = Along(mdp, sr.VarianceReplay(beta=5.0))
    >>> [sr.verdict(mdp, along(v).argmax(1)) for v in (0.0, 0.5)]
    ['risky', 'safe']
    """

    def __init__(self, mdp: TabularMDP, scheme: Scheme, visitation: Any = None, mixing: str = "matched") -> None:
        self.mdp, self.scheme, self.visitation, self.anchored = mdp, scheme, visitation, mixing == "anchored"
        self.near: Floats | None = None

    @cached_property
    def w(self) -> Floats:
        """w^∞ of every outcome, [K]: it does not depend on v."""
        return limit_weights(self.mdp, self.scheme, visitation=given_visits(self.mdp, 0.0, self.visitation))

    @cached_property
    def most_weight(self) -> float:
        """W of the most replayed pair; 1 if there is none."""
        return float(np.bincount(self.mdp.pair, weights=self.w).max()) or 1.0

    def __call__(self, v: float) -> Floats:
        """The fixed point of H at v, [S, A]."""
        d = given_visits(self.mdp, v, self.visitation, self.anchored)
        if self.scheme.follows_values:
            return valued(self.mdp, self.scheme, v, self.visitation, self.anchored)[0]
        H = operator(self.mdp, self.scheme, v, anchored=True) if self.anchored else weighted(self.mdp, self.w, v, d)
        p = H.p
        del H, d  # may be large
        Q = optimal(self.mdp, p, near=self.near)
        self.near = Q.max(1)
        return Q
