"""Limits of one scheme for several v, and limits of schemes that depend on Q: fixed points in Q and w together.

If the weights depend on Q of the next states (``y``, ``spread``), each Q has its own w(Q) and its own operator, and a limit
is a fixed point of its own operator:

    Q = H_{w(Q)} Q.

Each H_w is a γ-contraction, but w(Q) changes with Q, and the whole need not contract. :func:`valued` follows the expected
updates, Q ← Q + η·(H_{w(Q)} Q − Q), from Q* of the model, with η halved whenever they oscillate. It ends
at a Q with residue 0, up to the tolerance, or raises an error.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from .. import _checks
from .._types import Floats
from ..mdp import TabularMDP
from ..schemes import Scheme
from .operator import Operator, given_visits, limit_weights, weighted
from .solver import optimal, slack

ROUNDS = 20_000
TOLERANCE = 1e-10  # of the residue, as a share of Q's size
PATIENCE = 200  # rounds without a smaller residue before η is halved


def valued(mdp: TabularMDP, scheme: Scheme, v: float, d: Floats) -> tuple[Floats, Operator]:
    """A Q [S, A] with Q = H_{w(Q)} Q, and that operator.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> Q, H = valued(mdp, sr.ReturnReplay(beta=5.0), 0.5, np.ones((mdp.n_states, mdp.n_actions)))
    >>> bool(abs(H(Q) - Q).max() < 1e-8)
    True
    """
    Q, eta, least, since = optimal(mdp, mdp.p), 1.0, np.inf, 0
    for _ in range(ROUNDS):
        H = weighted(mdp, limit_weights(mdp, scheme, Q), v, d)
        step = H(Q) - Q
        residue = float(np.abs(step).max())
        if residue <= slack(TOLERANCE, Q, mdp.r):
            break
        if residue < 0.999 * least:
            least, since = residue, 0
        elif (since := since + 1) > PATIENCE:
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

    def __init__(self, mdp: TabularMDP, scheme: Scheme, visitation: Any = None) -> None:
        self.mdp, self.scheme, self.visitation = mdp, scheme, visitation
        self.near: Floats | None = None

    @cached_property
    def w(self) -> Floats:
        """w^∞ of every outcome, [K]: it does not depend on v."""
        return limit_weights(self.mdp, self.scheme, visitation=given_visits(self.mdp, 0.0, self.visitation))

    @property
    def most_weight(self) -> float:
        """W of the most replayed pair; 1 if there is none."""
        return float(np.bincount(self.mdp.pair, weights=self.w).max()) or 1.0

    def __call__(self, v: float) -> Floats:
        """The fixed point of H at v, [S, A]."""
        d = given_visits(self.mdp, v, self.visitation)
        if self.scheme.follows_values:
            return valued(self.mdp, self.scheme, v, d)[0]
        Q = weighted(self.mdp, self.w, v, d).fixed_point(self.near)
        self.near = Q.max(1)
        return Q
