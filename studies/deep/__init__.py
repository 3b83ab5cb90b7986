"""Deep RL with shaped replay: the worlds, the rivals and the study.

    worlds      the paper's grids, a delayed fall, a point, a lander, lava
    rivals      QR-DQN that is greedy on CVaR, and the gradient steps of all rivals
    implicit    IQN that is greedy on CVaR
    static      DQN for the CVaR of the episode, by what is still owed
    lagrangian  DQN under a limit on the share of episodes with harm
    training    one run: a Setting in, a plain dict out

Importing this package loads neither torch nor Stable-Baselines3; a run does.
"""
