"""Runs that are made up at once, in any process; a module of its own, so that a new process has little to import."""

import os

import numpy as np


def block(p, mean, n, rng, noise=1.0):
    """Exactly round(n·p) catastrophes in n episodes, whose returns have exactly this mean."""
    unsafe = np.arange(n) < round(n * p)
    returns = rng.normal(0.0, noise, n)
    return {
        "returns": (returns - returns.mean() + mean).tolist(),
        "unsafe": rng.permutation(unsafe).astype(int).tolist(),
        "mean_steps": 20.0,
    }


def made_up(setting, selection):
    """As a run, at once; QR-DQN fails at seed 1."""
    if setting["seed"] == 1 and setting["algorithm"] == "qrdqn":
        raise ValueError("this one\nis planted")
    return whole(setting, selection)


def deadly(setting, selection):
    """As a run whose process is ended from outside."""
    if setting["seed"] == 1 and setting["algorithm"] == "random":
        os._exit(9)
    return whole(setting, selection)


def bare(setting, selection):
    """As a run where torch is not installed."""
    from safereplay.errors import MissingExtra

    raise MissingExtra("training needs torch; install it with: pip install 'safereplay[deep]'")


def whole(setting, selection):
    """A run that comes to its end."""
    rng = np.random.default_rng(setting["seed"])
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return {
        "evaluation": block(0.1, 1.0, setting["episodes"], rng),
        "selection": block(0.1, 1.0, selection, rng),
        "seconds": 1.0,
        "curve": {"step": [1], "return": [0.0], "catastrophe": [0]},
        "paths": [],
        "versions": {"python": "3.11", "cpu": "a slow one", "cores": threads, "system": str(os.getpid())},
    }
