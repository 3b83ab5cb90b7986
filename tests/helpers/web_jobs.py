"""Questions for the workers' tests: quick, held, wrong, deadly.

``began`` and ``end`` are files: the one appears when work begins, and the other is what held work waits for. A worker
that starts while HELD names a file waits for it first.
"""

import os
import signal
from pathlib import Path

import numpy as np
from waiting import wait_until

from safereplay.errors import BadInput

HELD = "SAFEREPLAY_TEST_HELD"
if HELD in os.environ:
    wait_until(Path(os.environ[HELD]).exists)


def echo(arguments):
    return {"pid": os.getpid(), **arguments}


def hold(arguments):
    Path(arguments["began"]).touch()
    wait_until(Path(arguments["end"]).exists)
    return {"pid": os.getpid()}


def spin(arguments):
    Path(arguments["began"]).touch()
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


JOBS = {f.__name__: f for f in (echo, hold, spin, refuse, fail, crash, leave, nan, big, threads, handlers)}
