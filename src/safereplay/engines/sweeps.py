"""A sweep: an engine does the runs of a spec that its folder lacks.

    spec  →  runs that the folder lacks  →  chunks  →  engine  →  parts in the folder

A run is done when its part is written. After a kill at any moment, the same call continues from there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _checks
from .._progress import Bar
from ..errors import BadInput, CannotWrite, stopping
from .spec import Spec, load_spec
from .store import Store, read_sweep
from .threads import Chunks, Costs, ThreadsEngine
from .work import Engine

if TYPE_CHECKING:
    import pyarrow as pa

ENGINES = ("threads", "ray", "cuda")


@dataclass(frozen=True)
class Sweep:
    """The result of :func:`sweep`.

    >>> import safereplay as sr, tempfile
    >>> spec = {"models": {"volatile": {}}, "learners": {"q": {}}, "seeds": 2, "episodes": 100}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, second = sr.sweep(spec, folder), sr.sweep(spec, folder)
    >>> (first.done, first.already), (second.done, second.already)
    ((2, 0), (0, 2))
    """

    folder: Path
    runs: int  #: runs of the spec
    done: int  #: runs done by this call
    already: int  #: runs done before it
    seconds: float
    interrupted: bool = False  #: stopped by Ctrl-C; the same call continues

    def table(self) -> pa.Table:
        """All rows of the folder, sorted by id (see :func:`read_sweep`)."""
        return read_sweep(self.folder)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {**vars(self), "folder": str(self.folder)}


def sweep(
    spec: str | Path | dict[str, Any] | Spec,
    out: str | Path | None = None,
    engine: str | Engine = "threads",
    *,
    threads: int | None = None,
    address: str | None = None,
    extend: bool = False,
    quiet: bool = False,
) -> Sweep:
    """Do all runs of a spec that the folder ``out`` lacks. By default it is sweeps/NAME for NAME.toml.

    ``engine`` is threads, ray (at ``address``, or on this machine) or cuda; ``threads`` is the number of workers.
    ``extend`` allows another spec to add its runs to the folder's dataset. Ctrl-C keeps finished runs.

    >>> import safereplay as sr, tempfile
    >>> spec = {
    ...     "episodes": 2_000, "seeds": 2,
    ...     "models": {"cliff": {}},
    ...     "learners": {"q": {}, "replay": {"v": [0.3, 0.6]}},
    ... }
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = sr.sweep(spec, folder).table()
    >>> table.num_rows, sorted(set(table["verdict"].to_pylist()))
    (6, ['risky', 'safe'])
    """
    study = spec if isinstance(spec, Spec) else load_spec(spec)
    if out is None:
        _checks.require(study.file is not None, "out", "name a folder where the spec is not a file", out)
        out = Path("sweeps") / Path(study.file or "").stem
    extend = _checks.flag("extend", extend)
    make = _engine(engine, threads, address, quiet)
    with (
        Store(out, study, extend, lambda line: _tell(line, quiet)) as store,
        stopping(lambda: f"{len(store.done):,} runs are in {store.folder}; run the same command to continue"),
    ):
        return _sweep(study, store, make, quiet)


def _tell(line: str, quiet: bool) -> None:
    if not quiet:
        sys.stderr.write(f"safereplay: {line}\n")


def _engine(engine: str | Engine, threads: int | None, address: str | None, quiet: bool) -> Callable[[], Engine]:
    """A function that makes the engine; without a GPU, threads replace it, and one line says why."""
    if not isinstance(engine, str):
        return lambda: engine
    name = _checks.choice("engine", engine, ENGINES)
    _checks.require(address is None or name == "ray", "address", "go with the engine ray", address)
    if name == "ray":
        from .ray import RayEngine

        return lambda: RayEngine(workers=threads, address=address)
    if name == "cuda":
        from .cuda import CudaEngine, available

        reason = available()
        if reason is None:
            return CudaEngine
        _tell(f"no GPU can be used here ({reason}): using threads", False)
    local = ThreadsEngine(threads)
    return lambda: local


class _Pending(NamedTuple):
    """The remaining work."""

    runs: int
    total: int  #: runs of the spec, done or not
    units: dict[Hashable, float]


def _pending(study: Spec, done: set[bytes], costs: Costs) -> _Pending:
    """Count the runs that are not done, and their work."""
    units: dict[Hashable, float] = {}
    count = total = 0
    for key, point in study.points():
        left = sum(1 for _ in study.lacking(key, done)) if done else len(study.seeds)
        group = costs.group(point)
        units[group] = units.get(group, 0.0) + left * costs.units(point)
        count, total = count + left, total + len(study.seeds)
    return _Pending(count, total, units)


def _sweep(study: Spec, store: Store, make: Callable[[], Engine], quiet: bool) -> Sweep:
    began, costs = time.monotonic(), Costs(study.terms)
    before = len(store.done)
    pending = _pending(study, store.done, costs)
    store.expect(before + pending.runs)
    interrupted = False
    if pending.runs:
        engine = make()
        try:
            _finish(study, store, engine, pending, costs, quiet)
        except KeyboardInterrupt:
            interrupted = True
            store.recount()
        except CannotWrite as error:
            raise CannotWrite(
                f"{error}; {len(store.done):,} runs are kept in {store.folder}; run the same command to continue"
            ) from None
        finally:
            engine.close()
    done, already = len(store.done) - before, pending.total - pending.runs
    return Sweep(store.folder, pending.total, done, already, time.monotonic() - began, interrupted)


def _finish(study: Spec, store: Store, engine: Engine, pending: _Pending, costs: Costs, quiet: bool) -> None:
    """Do the remaining runs, and write each chunk when it is finished."""
    chunks = Chunks(study.runs(store.done), pending.units, study.terms, engine, costs)
    results = engine.finish(chunks, study.terms)
    done = 0
    with Bar(f"{store.folder.name}: {pending.runs:,} runs", pending.runs, quiet) as bar:
        try:
            for chunk, table, seconds in results:
                store.add(table)
                costs.learn(chunk, seconds)
                done += len(chunk)
                bar.update(done)
        finally:
            close = getattr(results, "close", None)
            if close is not None:
                close()
    if done != pending.runs:
        raise BadInput(f"the engine must finish every run, got {done:,} of {pending.runs:,}")
