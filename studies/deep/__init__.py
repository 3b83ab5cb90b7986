"""Deep RL with shaped replay: the worlds, the rivals and the study.

    worlds      the paper's grids, a delayed fall, a point, a lander, lava
    rivals      QR-DQN that is greedy on CVaR, as a reference
    training    one run: a Setting in, a plain dict out

Importing this package loads neither torch nor Stable-Baselines3; a run does.
"""
