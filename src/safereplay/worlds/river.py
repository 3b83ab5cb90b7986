"""A river above a waterfall: the current carries only who swims.

A stroke fails with probability ``current`` and the swimmer is carried one row down instead. Whoever walks h − 1 rows up
the bank before swimming straight across w columns of water falls if h strokes fail before w succeed:

    P(fall)  =  P( Bin(h + w − 1, current) ≥ h ).

Every row up costs two steps, one on each bank, so the world has a dial of its own: how far up to walk.
"""

import numpy as np

from .. import _checks
from ..maps import from_map
from ..mdp import TabularMDP

MAP = ".....\n.....\n.....\n.....\nS...G\n#XXX#"


def river(
    gamma: float = 0.99,
    *,
    current: float = 0.2,
    goal: float = 10.0,
    step: float = -1.0,
    hazard: float = -5.0,
) -> TabularMDP:
    """Danger from transitions, in part of the world only: on land moves are certain, in the water they are not.

    >>> import safereplay as sr
    >>> from safereplay.worlds.river import river
    >>> mdp = river()
    >>> straight = [1, 1, 1, 1, 2] * 5 + [0] * 3                               # swim, and walk down the far bank
    >>> round(sr.evaluate(mdp, straight, start=mdp.origin).p_unsafe, 3)        # 1 − 0.8³
    0.488
    """
    _checks.between("current", current, "[0, 1]")
    models = [
        from_map(MAP, gamma=gamma, goal=goal, step=step, hazard=hazard, slip=slip, slip_to="down", goal_slips=True)
        for slip in (0.0, current)
    ]
    layout = models[0].layout
    wet = np.array([0 < cell[1] < 4 for cell in layout.cells]) if layout else np.zeros(0, bool)
    rows = []
    for mdp, kept in zip(models, (~wet, wet), strict=True):
        columns = [mdp.pair // 4, mdp.pair % 4, mdp.p, mdp.s_next, mdp.r, mdp.terminal, mdp.unsafe]
        rows.append(np.column_stack(columns)[kept[mdp.pair // 4]])
    start = models[0].start
    return TabularMDP.from_outcomes(wet.size, 4, np.concatenate(rows), gamma, start, layout=layout, name="river")
