"""Sweeps over the states of a model, in place, for models of up to millions of states.

A Gauss–Seidel sweep visits the states in a fixed order and uses each new value at once:

    V(s)  ←  reward(s,a) + Σ q·V(s')     for the a that makes it largest, or for the policy's a,

where ``reward`` is a pair's mean reward and q = γ·p of its outcomes that go on. The theory, for ‖·‖ the largest entry:

**It contracts.** From V and W a sweep makes V⁺ and W⁺. Each new value consists of rewards and of at most γ times values
that are old, or new and by induction at most γ‖V − W‖ apart. So ‖V⁺ − W⁺‖ ≤ γ‖V − W‖: the sweep in place is a
γ-contraction like the plain one, with the same fixed point. The last change bounds the error:

    ‖V⁺ − V*‖  ≤  γ/(1−γ)·‖V⁺ − V‖     for a maximising sweep.

**It rises.** From a V below every return, each sweep only raises V, and never above V*. So sweeps under a
policy never undo the gain of a maximising one: after k maximising sweeps, with any sweeps between them, the error
is at most γᵏ times the first.

**The shift.** In long episodes the error of V is soon nearly constant over states, and a sweep removes only 1 − γ of it. But
under a policy a sweep is affine: V + α·u becomes V⁺ + α·Gu, with G its linear part. The largest α that still rises,

    α  =  min over s of (V⁺ − V)(s) / (u − Gu)(s),

saves these sweeps. Here u = G1, which vanishes where an end is near and certain.

**The order.** States are sorted by their number of likeliest steps to an end, so one sweep carries the value of an end
to all states. They are renumbered in that order: a sweep reads memory from front to back.

Ref: Puterman (1994), Sections 6.3.3 and 6.5; MacQueen (1966) for the shift.
"""

from math import inf
from typing import NamedTuple

from .compile import Array, at, jit, kernel


class Table(NamedTuple):
    """The outcomes of a model: pair i = s·|A| + a has row[i], ..., row[i+1] − 1."""

    row: Array  #: [P + 1]
    p: Array  #: [K]
    s_next: Array  #: [K]
    r: Array  #: [K]
    ends: Array  #: [K]


class Space(NamedTuple):
    """Work space of :func:`arrange`."""

    ahead: Array  #: [P] the next state of a pair's likeliest outcome; S for an end
    first: Array  #: [S + 2]
    behind: Array  #: [P] states, sorted by the next states of their pairs


class Model(NamedTuple):
    """A table prepared for sweeps: states are numbered by their position in the order, and steps that end are left out."""

    row: Array  #: [P + 1]
    s_next: Array  #: [n]
    q: Array  #: [n] γ·p
    reward: Array  #: [P] mean reward


class Chain(NamedTuple):
    """A model under a policy: state s has the steps first[s], ..., last[s] − 1; self-loops are eliminated."""

    action: Array  #: [S] the policy; −1 before the first
    first: Array  #: [S + 1] with room for the steps of any action
    last: Array  #: [S]
    s_next: Array  #: [n]
    q: Array  #: [n]
    reward: Array  #: [S]
    Gu: Array  #: [S]
    fades: Array  #: [S] u − Gu


@jit
def likeliest(table: Table, i: int, end: int) -> int:
    """The next state of the likeliest outcome of pair i; ``end`` if it ends the episode, or the pair has no outcomes."""
    best = table.row[at(i)]
    if best == table.row[at(i + 1)]:
        return end
    for k in range(best + 1, table.row[at(i + 1)]):
        if table.p[at(k)] > table.p[at(best)]:
            best = k
    return end if table.ends[at(best)] else int(table.s_next[at(best)])


@kernel
def arrange(table: Table, order: Array, place: Array, space: Space) -> None:
    """Fill ``order`` with the states by the number of likeliest steps to an end, and ``place`` with its inverse."""
    first, n_states = space.first, order.size
    n_actions = space.ahead.size // n_states
    first[:] = 0
    for i in range(space.ahead.size):
        s = likeliest(table, i, n_states)
        space.ahead[at(i)] = s
        first[at(s + 1)] += 1
    for s in range(n_states + 1):
        first[at(s + 1)] += first[at(s)]
    for i in range(space.ahead.size):  # sort pairs by next state; first[s] moves to the end of its group
        s = space.ahead[at(i)]
        space.behind[at(first[at(s)])] = i // n_actions
        first[at(s)] += 1
    place[:] = -1
    s, found = n_states, 0
    for done in range(n_states + 1):  # breadth first, backwards from the end
        for k in range(first[at(s - 1)] if s > 0 else 0, first[at(s)]):
            t = space.behind[at(k)]
            if place[at(t)] < 0:
                place[at(t)] = found
                order[at(found)] = t
                found += 1
        if done == found:
            break
        s = order[at(done)]
    for t in range(n_states):  # states that never reach an end come last, in their old order
        if place[at(t)] < 0:
            place[at(t)] = found
            order[at(found)] = t
            found += 1


@kernel
def prepare(table: Table, gamma: float, order: Array, place: Array, model: Model) -> None:
    """Fill the model from a table."""
    n_actions = model.reward.size // order.size
    n = 0
    model.row[0] = 0
    for j in range(model.reward.size):
        i = order[at(j // n_actions)] * n_actions + j % n_actions
        mean = 0.0
        for k in range(table.row[at(i)], table.row[at(i + 1)]):
            mean += table.p[at(k)] * table.r[at(k)]
            if not table.ends[at(k)] and table.p[at(k)] > 0.0:
                model.q[at(n)] = gamma * table.p[at(k)]
                model.s_next[at(n)] = place[at(table.s_next[at(k)])]
                n += 1
        model.reward[at(j)] = mean
        model.row[at(j + 1)] = n


@kernel
def improve(model: Model, chain: Chain, V: Array) -> tuple[float, float, int]:
    """A maximising sweep; the chain adopts better actions. Returns the largest change, the largest |V|, actions changed."""
    n_actions = model.reward.size // V.size
    change, size, switched = 0.0, 0.0, 0
    i, k = 0, 0
    for s in range(V.size):
        mine, best, choice = -inf, -inf, 0
        for a in range(n_actions):
            x = model.reward[at(i)]
            i += 1
            while k < model.row[at(i)]:
                x += model.q[at(k)] * V[at(model.s_next[at(k)])]
                k += 1
            if x > best:
                best, choice = x, a
            if a == chain.action[at(s)]:
                mine = x
        if best > mine:
            adopt(model, chain, s, choice)
            switched += 1
        change = max(change, abs(best - V[at(s)]))
        size = max(size, abs(best))
        V[at(s)] = best
    return change, size, switched


@jit
def adopt(model: Model, chain: Chain, s: int, a: int) -> None:
    """Set the chain's action in s to a. A self-loop is eliminated: V = r + q·V + x is V = (r + x) / (1 − q)."""
    i = s * (model.reward.size // chain.action.size) + a
    n, stays = chain.first[at(s)], 0.0
    for k in range(model.row[at(i)], model.row[at(i + 1)]):
        if model.s_next[at(k)] == s:
            stays += model.q[at(k)]
        else:
            chain.s_next[at(n)] = model.s_next[at(k)]
            chain.q[at(n)] = model.q[at(k)]
            n += 1
    for k in range(chain.first[at(s)], n):
        chain.q[at(k)] /= 1.0 - stays
    chain.reward[at(s)] = model.reward[at(i)] / (1.0 - stays)
    chain.last[at(s)] = n
    chain.action[at(s)] = a


@jit
def onward(chain: Chain, V: Array, s: int) -> float:
    """Σ q·V(s') of a state."""
    total = 0.0
    for k in range(chain.first[at(s)], chain.last[at(s)]):
        total += chain.q[at(k)] * V[at(chain.s_next[at(k)])]
    return total


@kernel
def fade(chain: Chain, least: float) -> None:
    """Fill Gu and u − Gu of the chain's policy, u = G1. Values below ``least`` are 0 except for rounding."""
    u, Gu = chain.fades, chain.Gu
    u[:] = 1.0
    for s in range(u.size):
        u[at(s)] = onward(chain, u, s)
    for s in range(u.size):
        Gu[at(s)] = u[at(s)]
    for s in range(u.size):
        Gu[at(s)] = onward(chain, Gu, s)
        fades = u[at(s)] - Gu[at(s)]
        chain.fades[at(s)] = fades if fades > least else 0.0


@kernel
def evaluate(chain: Chain, V: Array, slack: float) -> tuple[float, float]:
    """A sweep under the chain's policy. Returns the largest change, and the α of the shift, with ``slack`` for rounding."""
    change, alpha = 0.0, inf
    for s in range(V.size):
        x = chain.reward[at(s)] + onward(chain, V, s)
        rise = x - V[at(s)]
        V[at(s)] = x
        change = max(change, abs(rise))
        fades = chain.fades[at(s)]
        if fades > 0.0 and rise + slack < alpha * fades:
            alpha = (rise + slack) / fades
    return change, alpha


@kernel
def shift(chain: Chain, V: Array, alpha: float) -> None:
    """Add α·Gu to V."""
    for s in range(V.size):
        V[at(s)] += alpha * chain.Gu[at(s)]


@kernel
def values(model: Model, V: Array, order: Array, Q: Array) -> None:
    """Q(s,a) of every pair from V, into Q [P], numbered as in the table."""
    n_actions = model.reward.size // order.size
    for i in range(Q.size):
        x = model.reward[at(i)]
        for k in range(model.row[at(i)], model.row[at(i + 1)]):
            x += model.q[at(k)] * V[at(model.s_next[at(k)])]
        Q[at(order[at(i // n_actions)] * n_actions + i % n_actions)] = x
