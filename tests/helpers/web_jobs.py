"""Questions for the workers' tests: quick, slow, wrong, deadly."""

import os
import signal
import time

import numpy as np

from safereplay.errors import BadInput


def echo(arguments):
    return {"pid": os.getpid(), **arguments}


def sleep(arguments):
    time.sleep(arguments["nap"])
    return {"pid": os.getpid()}


def spin(arguments):
    while True:
        pass


def refuse(arguments):
    raise BadInput("v must be in [0, 1),\n got 2\ud800")


def fail(arguments):
    raise ZeroDivisionError("by zero")


def crash(arguments):
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(arguments):
    raise SystemExit(3)


def nan(arguments):
    return {"x": float("nan")}


def big(arguments):
    return {"text": "x" * arguments["size"]}


def threads(arguments):
    """How many threads BLAS has started for a product that is worth several."""
    before = np.ones((600, 600))
    assert (before @ before).sum() > 0
    return {"threads": len(os.listdir("/proc/self/task")), "OMP": os.environ["OMP_NUM_THREADS"]}


def handlers(arguments):
    return {"ignored": signal.getsignal(signal.SIGINT) == signal.SIG_IGN}


JOBS = {f.__name__: f for f in (echo, sleep, spin, refuse, fail, crash, leave, nan, big, threads, handlers)}
