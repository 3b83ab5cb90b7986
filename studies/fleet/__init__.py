"""Thousands of networks in one program: DQN and its rivals in JAX, over seeds and dials at once.

buffers   transitions, and replay with keys on tables
loop      the training loop that all learners share, and evaluation
dqn       DQN
qrdqn     QR-DQN, greedy on the mean or on CVaR
static    DQN for the CVaR of the episode, by what is still owed
"""
