"""A flood is coming: who takes the quiet way round is on the road for longer.

Every move but the one into the goal is overtaken by the flood with probability ``rate``: it pays what a step pays, and
the episode ends. The short way takes k moves and the long way n > k, so they drown with probability

    1 − (1 − rate)^(k−1)    and    1 − (1 − rate)^(n−1).

The short way also has tolls, drawn from step ± ``noise``: the only rewards that vary, and harmless. A scheme that shuns
them drowns *more* often and earns less. The flood itself pays as a step does, so no variance of rewards shows it.
"""

import numpy as np

from .. import _checks
from ..maps import from_map
from ..mdp import TabularMDP

MAP = "......\nS>>>.G\n......"


def flood(
    gamma: float = 0.95,
    *,
    rate: float = 0.05,
    goal: float = 10.0,
    step: float = -1.0,
    noise: float = 5.0,
) -> TabularMDP:
    """Caution is wrong: the volatile way is the safest, since the danger is to be late, and no reward tells of it.

    >>> import safereplay as sr
    >>> from safereplay.worlds.flood import flood
    >>> mdp = flood()
    >>> limits = [sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v) for v in (0.0, 0.5)]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.185, 0.265]
    """
    rate = _checks.between("rate", rate, "[0, 1)")
    step, noise = _checks.real("step", step), _checks.real("noise", noise)
    draws = [(0.5, step + noise), (0.5, step - noise)]
    dry = from_map(MAP, gamma=gamma, goal=goal, step=step, volatile=draws)
    none, on = np.zeros(dry.p.size), ~dry.terminal
    columns = np.column_stack([dry.pair // 4, dry.pair % 4, dry.p, dry.s_next, dry.r, dry.terminal, none])
    drowned = columns[on]
    columns[on, 2] *= 1.0 - rate
    drowned[:, 2] *= rate
    drowned[:, 4:] = step, 1.0, 1.0
    rows = np.concatenate([columns, drowned]) if rate > 0 else columns
    return TabularMDP.from_outcomes(dry.n_states, 4, rows, gamma, dry.start, layout=dry.layout, name="flood")
