"""Limits of schemes that look at values: Q and w that make each other.

Where the weights depend on Q ahead of a pair (``y``, ``spread``), each Q has its own w(Q) and its own operator, and a limit
is a Q that its own operator leaves alone:

    Q = H_{w(Q)} Q.

Each H_w is a γ-contraction, but w(Q) moves with Q, and the whole need not contract. :func:`valued` follows what learning
does on average, Q ← Q + η·(H_{w(Q)} Q − Q), from Q* of the model, with η halved whenever it turns back and forth. It ends
at a Q whose residue is nothing, or says that it found none.
"""

from __future__ import annotations

import numpy as np

from .. import _checks
from .._types import Floats
from ..mdp import TabularMDP
from ..schemes import Scheme
from .linear import slack
from .operator import Operator, limit_weights, weighted
from .solver import optimal

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
        _checks.fail("scheme", "come to a limit on this model", scheme, f"Q still moves by {residue:.2g} a round")
    return Q, H
