"""A sweep that is killed with SIGKILL again and again, each time in a process of its own, and what must hold after each.

    FOLDER points     at each point of POINTS
    FOLDER steps      at each step of writing a file of each kind

The processes are forked from this one, which has everything loaded and compiled, so that a kill costs next to nothing.
"""

import os
import shutil
import signal
import sys
import warnings
from pathlib import Path

import pyarrow.parquet as pq
from small_sweeps import SMALL, Impatient, everything, ids, parts, stamps
from strikes import strike

import safereplay as sr
from safereplay.engines.spec import load_spec
from safereplay.engines.work import perform

SPEC = {**SMALL, "episodes": 2_000, "seeds": 12}

#: Where a sweep is killed: at the start of the n-th call of a function, and how many parts are in place by then. A chunk
#: has four runs at most, so that of 108 runs many are left before the last kill.
POINTS = (
    ("safereplay._files:Lock._sign", 1, 0),  # the lock is taken, and nothing is written
    ("safereplay.engines.sweeps:Store._write_note", 1, 0),  # the spec is in place, the note is not
    ("safereplay.engines.work:_one", 1, 0),  # the first chunk begins
    ("safereplay.engines.sweeps:Store.add", 3, 2),  # a chunk is done and not written
    ("safereplay.engines.parts:_read", 2, 0),  # the parts are counted, as the sweep goes on
    ("safereplay.runs:OneRun.finish", 1, 0),  # a run begins
    ("safereplay.engines.work:Costs.learn", 4, 4),  # a part is in place, and nobody has noted it
    ("safereplay._progress:Bar.update", 5, 5),  # between two chunks, while threads learn
)


def forked(work):
    """The id of a forked process that does ``work``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of numpy's idle threads, which the child does not need
        child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def warm_up(spec):
    """Compile what a sweep needs, without starting a thread."""
    firsts = {}
    for run in spec.runs():
        firsts.setdefault((run.point.model, type(run.point.learner)), run)
    perform(list(firsts.values()), spec.terms)


def at_points(folder):
    """Kill a sweep at each point, then let it end; prints how many kills struck, and the rows kept until the end."""
    spec = load_spec(SPEC)
    warm_up(spec)
    reported = {}

    def sweep(point, count):
        strike(point, count, signal.SIGKILL)
        sr.sweep(SPEC, folder, Impatient(2, 4), quiet=True)

    for point, count, new in POINTS:
        child = forked(lambda p=point, c=count: sweep(p, c))
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, point
        present = stamps(folder)
        assert reported.items() <= present.items(), "a part that was in place is gone or was written again"
        assert len(present) == len(reported) + new, point
        assert len(ids(folder)) == len(set(ids(folder))), "a run is there twice"
        reported = present
    kept = len(ids(folder))
    final = sr.sweep(SPEC, folder, quiet=True)
    assert reported.items() <= stamps(folder).items()
    assert (final.already, final.done) == (kept, len(spec) - kept)
    assert not [f for f in everything(folder) if Path(f).name.startswith(".")], "something half written is left"
    alone = sr.sweep(SPEC, folder.parent / "alone", quiet=True).table()
    assert final.table().equals(alone)
    sys.stdout.write(f"{len(POINTS)} {kept} {alone.num_rows}\n")


def deadly(moment, file, count):
    """A sweep that is killed in the ``count``-th call of os.``moment`` for a file of this name."""
    function, calls = getattr(os, moment), []

    def last(*arguments, **options):
        place = arguments[0] if isinstance(arguments[0], str) else os.readlink(f"/proc/self/fd/{arguments[0]}")
        calls.append(file in place)
        if calls[-1] and sum(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    setattr(os, moment, last)
    sr.sweep(SMALL, Path(sys.argv[1]), Impatient(), quiet=True)


def at_steps(folder):
    """Kill a sweep before each step of writing; prints the steps at which that was done."""
    warm_up(load_spec(SMALL))
    for moment in ("fsync", "chmod", "replace"):
        for file, count in (("spec.json", 1), ("sweep.json", 1), (".parquet", 5)):
            child = forked(lambda m=moment, f=file, c=count: deadly(m, f, c))
            assert os.waitpid(child, 0)[1] == signal.SIGKILL, (moment, file)
            assert all(pq.read_table(part).num_rows for part in parts(folder))
            kept = ids(folder)
            assert len(parts(folder)) == (4 if file == ".parquet" else 0), (moment, file)
            hidden = [f for f in everything(folder) if file in f and Path(f).name.startswith(".")]
            assert len(hidden) == 1, (moment, file)
            found = sr.sweep(SMALL, folder, quiet=True)
            assert (found.already, found.done) == (len(kept), 54 - len(kept)), (moment, file)
            rest = [f for f in everything(folder) if not f.endswith(".parquet")]
            assert rest == ["spec.json", "sweep.json"], (moment, file)
            shutil.rmtree(folder)
            sys.stdout.write(f"{moment} {file}\n")


if __name__ == "__main__":
    {"points": at_points, "steps": at_steps}[sys.argv[2]](Path(sys.argv[1]))
