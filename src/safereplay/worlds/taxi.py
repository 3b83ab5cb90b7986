"""Taxi: Gymnasium's own table, a control in which no good policy runs any risk.

Unsafe is what costs 10: picking up where nobody waits, or setting down where nobody wants to go. Moves are certain, and
so is every reward: var(r|s,a) = 0 for all pairs. A replay by the variance of rewards has nothing to replay here, and
every learner that is cautious about chance alone has the limit of Q-learning. Who differs from it differs for another
reason than danger.

500 states, 300 of them equally likely starts; a path is followed from the first of these.

Source: Dietterich (2000), *Hierarchical reinforcement learning with the MAXQ value function decomposition*; Gymnasium's
``Taxi``.
"""

from dataclasses import replace

from gymnasium.envs.toy_text.taxi import TaxiEnv

from ..mdp import TabularMDP


def taxi(gamma: float = 0.99) -> TabularMDP:
    """No danger for who knows the rules: an illegal order costs 10, surely, so no good policy gives one.

    >>> import safereplay as sr
    >>> from safereplay.worlds.taxi import taxi
    >>> mdp = taxi()
    >>> mdp.n_states, float(mdp.reward_variance.max()), int(mdp.unsafe.sum())
    (500, 0.0, 968)
    """
    table = TabularMDP.from_gymnasium(TaxiEnv(), gamma, unsafe=lambda s, a, s_next, r, terminal: r == -10.0)
    return replace(table, name="taxi")
