"""Deep RL under the dial: the worlds, the rivals and the study of shaped replay against them.

    worlds      what is learned in: the paper's grids, a delayed fall, a point, a lander, lava
    rivals      QR-DQN that is greedy on CVaR, the honest reference
    training    one run: a Setting in, a plain dict out

Importing this package loads neither torch nor Stable-Baselines3; a run does.
"""
