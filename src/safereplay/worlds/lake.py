"""FrozenLake, 8×8 or 4×4: Gymnasium's own table, with the actions of a map.

Gymnasium numbers the actions left, down, right, up; a :class:`~safereplay.mdp.Layout` up, right, down, left. Ours is 3
minus theirs, and nothing else changes: of the 4×4 lake this is :func:`safereplay.grids.frozen_lake`, number for number.

A hole ends the episode and pays what a step pays. So var(r|s,a) is 0 but beside the goal, and a replay by the variance
of rewards is blind to holes: it only lowers what the goal is worth.

**Learning.** Nothing is paid before the goal is first reached. From Q = 0 and with ε = 0.1 a greedy learner keeps to
the first action and does not get there in 20,000 steps, on either lake. Begun at c0 = 1, above every return, Q-learning
reaches the best policy of the small one, and about half of the large one's goals; after 200,000 steps 85 % of them.

Source: Gymnasium's ``FrozenLake-v1``, after OpenAI Gym (Brockman et al. 2016).
"""

from dataclasses import replace

import numpy as np
from gymnasium.envs.toy_text.frozen_lake import MAPS, FrozenLakeEnv

from .. import _checks
from ..mdp import Layout, TabularMDP


def lake(gamma: float = 0.99, *, size: str = "8x8", slippery: bool = True) -> TabularMDP:
    """Danger from transitions, and no reward tells of it: two moves in three slip to a side, and a hole pays nothing.

    ``size`` is ``"8x8"`` or ``"4x4"``. On the large one somebody patient need never fall: a policy reaches the goal
    with probability 1, by leaning on walls. The best for γ = 0.99 does not wait for that.

    >>> import safereplay as sr
    >>> from safereplay.worlds.lake import lake
    >>> mdp = lake()
    >>> mdp.n_states, round(sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1)).p_unsafe, 3)
    (64, 0.106)
    """
    text = MAPS[_checks.choice("size", size, MAPS)]
    env = FrozenLakeEnv(map_name=size, is_slippery=_checks.flag("slippery", slippery))
    table = TabularMDP.from_gymnasium(env, gamma)
    s, a = np.divmod(table.pair, 4)
    columns = [s, 3 - a, table.p, table.s_next, table.r, table.terminal, table.unsafe]
    cells = tuple(divmod(place, len(text[0])) for place in range(table.n_states))
    drawn = Layout("\n".join(text).replace("F", ".").replace("H", "X"), cells, table.origin)
    made = TabularMDP.from_outcomes(table.n_states, 4, np.column_stack(columns), gamma, table.start, layout=drawn)
    return replace(made, name=f"lake {size}")
