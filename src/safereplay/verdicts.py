"""The verdict on a policy: which path it takes.

The paper distinguishes policies by their drawn path: from the origin, take the policy's action and follow its
likeliest outcome. A step is *exposed* when an unsafe outcome is possible there, likely or not. A path is

        safe    if it reaches a goal with the fewest possible exposed steps,
        risky   if it reaches a goal with more,
        jumps   if its likeliest outcomes end in an unsafe one,
        stuck   if it never ends.

On the cliff every path has one exposed step, at the start; the path along the edge has five.

A model *has paths* when each pair has a unique likeliest next state. Slippery FrozenLake has none: an action leads to
three cells with the same probability. The verdict there is 'no path'; use :func:`safereplay.evaluate` for the risk.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple

import numpy as np

from . import _checks
from ._checks import Bools, Ints
from .mdp import TabularMDP

SAFE, RISKY, JUMPS, STUCK = VERDICTS = ("safe", "risky", "jumps", "stuck")
NO_PATH = "no path"  #: the verdict for a model without paths
TIE = 1e-9  # probabilities that differ by less are equal


class Path(NamedTuple):
    """A drawn path: the states from the origin on, the number of exposed steps, and its end."""

    states: tuple[int, ...]
    exposed: int
    end: str  #: "goal", "unsafe" or "loop"


def _drawing(mdp: TabularMDP) -> tuple[Ints, Bools, Bools, Bools]:
    """(s_next, terminal, unsafe) of each pair's likeliest outcome, and whether the pair is exposed; all [P]."""
    order = np.lexsort((-mdp.p, mdp.pair))
    rows = np.flatnonzero(np.diff(mdp.row) > 0)
    likeliest = np.zeros(mdp.n_pairs, np.int64)
    likeliest[rows] = order[mdp.row[rows]]
    exposed = np.bincount(mdp.pair, weights=mdp.unsafe, minlength=mdp.n_pairs) > 0
    return mdp.s_next[likeliest], mdp.terminal[likeliest], mdp.unsafe[likeliest], exposed


def path(mdp: TabularMDP, policy: Any, origin: int | None = None) -> Path:
    """The drawn path of a policy. It is meaningful only if :func:`has_paths`.

    Parameters
    ----------
    mdp : TabularMDP
    policy : array [S]
    origin : int, optional; default: the model's own

    Returns
    -------
    Path : the states, the number of exposed steps, and the end: 'goal', 'unsafe' or 'loop'

    Raises
    ------
    BadInput : an argument is invalid, or the origin is terminal

    >>> import safereplay as sr
    >>> sr.path(sr.grids.cliff(), [0] * 18 + [1] * 6).end        # right, off the cliff
    'unsafe'
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    actions = checked_policy(mdp, policy)
    s_next, terminal, unsafe, is_exposed = _drawing(mdp)
    s = mdp.origin if origin is None else _checks.whole("origin", origin, 0)
    _checks.require(s < mdp.n_states, "origin", f"be a state in 0..{mdp.n_states - 1}", origin)
    _checks.require(not mdp.is_terminal[s], "origin", "be a state that is not terminal", s)
    states, passed, exposed = [s], {s}, 0
    while True:
        i = s * mdp.n_actions + int(actions[s])
        exposed += int(is_exposed[i])
        s = int(s_next[i])
        if terminal[i]:
            return Path((*states, s), exposed, "unsafe" if unsafe[i] else "goal")
        if s in passed:
            return Path((*states, s), exposed, "loop")
        states.append(s)
        passed.add(s)


def verdict(mdp: TabularMDP, policy: Any, origin: int | None = None) -> str:
    """The verdict on a policy.

    Parameters
    ----------
    mdp, policy, origin : as in :func:`path`

    Returns
    -------
    str : 'safe', 'risky', 'jumps' or 'stuck'; 'no path' unless :func:`has_paths`

    >>> import safereplay as sr
    >>> sr.verdict(sr.grids.volatile(), [1] * 20)                # right, along the volatile moves
    'risky'
    >>> sr.verdict(sr.grids.frozen_lake(), [1] * 16)
    'no path'
    """
    drawn = path(mdp, policy, origin)
    if not has_paths(mdp):
        return NO_PATH
    if drawn.end != "goal":
        return JUMPS if drawn.end == "unsafe" else STUCK
    return SAFE if drawn.exposed <= fewest_exposed(mdp, drawn.states[0]) else RISKY


def has_paths(mdp: TabularMDP) -> bool:
    """Whether each pair has a unique likeliest next state, so that a drawn path is the usual one.

    >>> import safereplay as sr
    >>> has_paths(sr.grids.cliff()), has_paths(sr.grids.frozen_lake())
    (True, False)
    """
    moves, which = np.unique(mdp.pair * mdp.n_states + mdp.s_next, return_inverse=True)
    p, pair = np.bincount(which, weights=mdp.p), moves // mdp.n_states
    order = np.lexsort((-p, pair))
    p, pair = p[order], pair[order]
    second = (pair[1:] == pair[:-1]) & np.append(True, pair[1:-1] != pair[:-2])  # the second of a pair's next states
    return not bool((second & (p[:-1] - p[1:] <= TIE)).any())


def fewest_exposed(mdp: TabularMDP, origin: int) -> int:
    """The fewest exposed steps of any drawn path from the origin to a goal (Dijkstra)."""
    s_next, terminal, unsafe, exposed = _drawing(mdp)
    cost = {origin: 0}
    queue = [(0, origin)]
    while queue:
        here, s = heapq.heappop(queue)
        if s < 0:
            return here
        for a in range(mdp.n_actions) if here == cost[s] else ():
            i = s * mdp.n_actions + a
            ahead = here + int(exposed[i])
            there = -1 if terminal[i] else int(s_next[i])
            if not (terminal[i] and unsafe[i]) and ahead < cost.get(there, mdp.n_pairs):
                cost[there] = ahead
                heapq.heappush(queue, (ahead, there))
    return mdp.n_pairs


def checked_policy(mdp: TabularMDP, policy: Any) -> Ints:
    """A policy as actions [S]."""
    actions = np.asarray(policy)
    _checks.require(actions.shape == (mdp.n_states,), "policy", f"have shape ({mdp.n_states},)", actions.shape)
    inside = np.issubdtype(actions.dtype, np.integer) and bool(((actions >= 0) & (actions < mdp.n_actions)).all())
    _checks.require(inside, "policy", f"be actions in 0..{mdp.n_actions - 1}", actions.tolist())
    return actions.astype(np.int64)
