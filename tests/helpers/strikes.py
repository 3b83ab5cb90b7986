"""A signal at a named point of the code: the n-th call of a function, and not after so many seconds.

In a process of its own:   python strikes.py SIGNAL PLACE COUNT ARGUMENTS      the command line, struck there
Here:                      strike("safereplay.engines.sweeps:Store.add", 3)
"""

import itertools
import os
import signal
import subprocess
import sys
from importlib import import_module

from waiting import END

#: Calls of it are runs: in a pool of threads, which take the next when one is done.
RUN = "safereplay.runs:OneRun.finish"


def place_of(name):
    """``module:path`` as the owner and the attribute."""
    module, _, path = name.partition(":")
    owner = import_module(module)
    *above, last = path.split(".")
    for part in above:
        owner = getattr(owner, part)
    return owner, last


def at_call(name, count, act, replace=setattr):
    """Have ``act(*arguments)`` called at the start of the n-th call of a function."""
    owner, last = place_of(name)
    function, calls = getattr(owner, last), itertools.count(1)

    def noted(*arguments, **options):
        if next(calls) == count:
            act(*arguments)
        return function(*arguments, **options)

    replace(owner, last, noted)


def strike(name, count=1, sent=signal.SIGINT, replace=setattr):
    """Send this process a signal at the start of the n-th call of a function."""
    at_call(name, count, lambda *_: os.kill(os.getpid(), sent), replace)


def interrupt_runs(count, replace=setattr):
    """Ctrl-C at the start of the n-th run: those before it finish, and it and those after it wait until they are stopped."""
    owner, last = place_of(RUN)
    finish, calls = owner.finish, itertools.count(1)

    def struck(run, stop, report):
        number = next(calls)
        if number == count:
            os.kill(os.getpid(), signal.SIGINT)
        if number >= count:
            assert stop.wait(END)
        return finish(run, stop, report)

    replace(owner, last, struck)


def listen_to_ctrl_c():
    """Also where a shell started us in the background, which has SIGINT ignored by all its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def interrupted(name, count, *arguments):
    """The command line with Ctrl-C there, in a process of its own: what it wrote, its complaints and its exit code."""
    command = [sys.executable, __file__, "SIGINT", name, count, *arguments]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=END, check=False)
    assert done.returncode >= 0, done.stderr  # a crash
    return done.stdout, done.stderr, done.returncode


def main():
    from safereplay.cli import run  # without lines of progress: when they come depends on the machine's speed

    sent, name, count, *arguments = sys.argv[1:]
    listen_to_ctrl_c()
    if name == RUN and sent == "SIGINT":
        interrupt_runs(int(count))
    else:
        strike(name, int(count), getattr(signal, sent))
    sys.exit(run(arguments))


if __name__ == "__main__":
    main()
