"""Fog: noise that is harmless, a control for whoever takes noise for danger.

The short way pays step ± ``noise`` with even odds, the long way pays step for sure; nothing ends badly and no outcome
is unsafe. Neutral to risk, one takes the short way. Caution takes the long one: it pays two steps for a smaller spread
of the return, and makes nothing safer.
"""

from dataclasses import replace

import numpy as np

from .. import _checks
from ..maps import from_map
from ..mdp import TabularMDP


def fog(gamma: float = 0.95, *, goal: float = 10.0, step: float = -1.0, noise: float = 4.0) -> TabularMDP:
    """No danger at all: the short way has noisy rewards, and nothing is unsafe.

    >>> import safereplay as sr
    >>> from safereplay.worlds.fog import fog
    >>> mdp = fog()
    >>> limits = [sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v) for v in (0.0, 0.5)]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).mean, 3) for Q in limits]
    [6.0, 4.0]
    """
    step, noise = _checks.real("step", step), _checks.real("noise", noise)
    draws = [(0.5, step + noise), (0.5, step - noise)]
    mdp = from_map("......\nS>>>.G\n......", gamma=gamma, goal=goal, step=step, volatile=draws, name="fog")
    return replace(mdp, unsafe=np.zeros(mdp.p.size, bool))
