"""Jobs that report compilation as numba does, for the workers' tests. See web_jobs for the files."""

from pathlib import Path

from numba.core import event
from waiting import wait_until


def compile_begun(arguments):
    Path(arguments["began"]).touch()
    wait_until(Path(arguments["end"]).exists)
    with event.trigger_event("numba:compile"):
        Path(arguments["compiling"]).touch()
        wait_until(Path(arguments["compiled"]).exists)
    while True:
        pass


def compile_nested(arguments):
    with event.trigger_event("other"):
        Path(arguments["began"]).touch()
        wait_until(Path(arguments["end"]).exists)
    with event.trigger_event("numba:compile"):
        with event.trigger_event("numba:compile"):
            Path(arguments["compiling"]).touch()
        wait_until(Path(arguments["compiled"]).exists)
    while True:
        pass


JOBS = {f.__name__: f for f in (compile_begun, compile_nested)}
