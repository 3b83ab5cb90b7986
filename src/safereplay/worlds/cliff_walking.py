"""CliffWalking: Gymnasium's own table. A fall costs −100 and puts the agent back to the start.

Whether or not moves slip, the best policy never falls, so it is the safest too: all danger is in learning. Where moves
are certain it walks the edge, 13 steps. Where two in three go to a side it bumps into walls that no slip can leave in a
bad way: from the start it moves *left*, and waits to slip up.

So a cautious limit has nothing to win here; what differs between learners is how often they fall before they know.

Source: Sutton & Barto (2018), *Reinforcement Learning*, Example 6.6; Gymnasium's ``CliffWalking-v1``.
"""

from dataclasses import replace

from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv

from .. import _checks
from ..mdp import TabularMDP


def cliff_walking(gamma: float = 0.99, *, slippery: bool = False) -> TabularMDP:
    """Danger from exploring alone: one wrong step on the edge costs 100, and the best policy never takes it.

    >>> import safereplay as sr
    >>> from safereplay.worlds.cliff_walking import cliff_walking
    >>> mdp = cliff_walking()
    >>> best = sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=mdp.origin)
    >>> best.mean, best.p_unsafe
    (-13.0, 0.0)
    """
    env = CliffWalkingEnv(is_slippery=_checks.flag("slippery", slippery))
    table = TabularMDP.from_gymnasium(env, gamma, unsafe=lambda s, a, s_next, r, terminal: r == -100.0)
    return replace(table, name="cliff walking")
