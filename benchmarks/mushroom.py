"""Updates per second of MushroomRL's tabular Q-learning on a model that is given as JSON. It shares no code with the package.

MushroomRL 1.10.2 pins old versions of numpy and torch, so it needs its own environment:

    python -m venv peer
    peer/bin/pip install -c constraints.txt numpy scipy scikit-learn matplotlib joblib tqdm pygame opencv-python-headless torch
    peer/bin/pip install --no-deps mushroom_rl==1.10.2
    safereplay bench --only mushroom --mushroom peer/bin/python

Reads from standard input {"p": [S][A][S'], "r": [S][A][S'], "start": [S], "gamma", "horizon", "epsilon", "power", "steps", "seed"};
writes {"version", "updates", "seconds", "Q"} to standard output. A state without outcomes is terminal.
"""

import json
import sys
import time

import mushroom_rl
import numpy as np
from mushroom_rl.algorithms.value import QLearning
from mushroom_rl.core import Core
from mushroom_rl.environments.finite_mdp import FiniteMDP
from mushroom_rl.policy import EpsGreedy
from mushroom_rl.utils.parameters import ExponentialParameter, Parameter


def run(p, r, start, gamma, horizon, epsilon, power, steps, seed):
    """Learn for some steps; return the CPU seconds, and Q [S][A]."""
    np.random.seed(seed)  # noqa: NPY002  MushroomRL draws from the global generator
    world = FiniteMDP(np.array(p), np.array(r), np.array(start), gamma, horizon)
    step_size = ExponentialParameter(value=1.0, exp=power, size=world.info.size)
    agent = QLearning(world.info, EpsGreedy(Parameter(epsilon)), step_size)
    core = Core(agent, world)
    core.learn(n_steps=100, n_steps_per_fit=1, quiet=True)  # set-up
    began = time.process_time()
    core.learn(n_steps=steps, n_steps_per_fit=1, quiet=True)
    return time.process_time() - began, agent.Q.table.tolist()


if __name__ == "__main__":
    task = json.load(sys.stdin)
    seconds, Q = run(**task)
    print(json.dumps({"version": mushroom_rl.__version__, "updates": task["steps"], "seconds": seconds, "Q": Q}))
