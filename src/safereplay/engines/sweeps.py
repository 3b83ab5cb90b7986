"""A sweep: an engine does the runs of a spec that its folder lacks.

    spec  →  runs that the folder lacks  →  chunks  →  engine  →  parts in the folder

    OUT/runs/*.parquet   the dataset: one part per chunk, one row per run
    OUT/spec.toml        the spec as written (spec.json if it was a dictionary); OUT/specs/ has earlier ones
    OUT/sweep.json       the spec as read, digests of its content, columns, number of runs
    OUT/.lock            held by the process that is named in it; the system releases it when the process ends
    OUT/.locking         held while a process takes the lock and writes its name, or reads the name in it

Without .locking, a process could find the lock taken, but with no name in it, or that of an earlier process.

The parts are whole or absent (:mod:`safereplay.engines.parts`), so after a kill at any moment the same call continues.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from .. import __version__, _checks, _files
from .._config import plain
from .._progress import Bar
from ..errors import BadFile, BadInput, CannotWrite, stopping
from .parts import Parts
from .spec import ALGORITHM, TAIL, Spec, load_spec
from .work import KEEPS, Chunks, Costs, Done, Engine, ThreadsEngine

MARKS = ("id", "learner", "scheme", "exploration", "step_size")  # columns that begin a section


def merged(old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    """The columns of both, section by section, old ones first."""
    parts: dict[str, dict[str, str]] = {mark: {} for mark in MARKS}
    left = {**old, **new}
    for names in (old, new):
        section = MARKS[0]
        for name in names:
            section = name if name in parts else section
            if name in left:
                parts[section][name] = left.pop(name)
    return {name: kind for part in parts.values() for name, kind in part.items()}


def schema_of(note: dict[str, Any]) -> pa.Schema:
    """The schema of every part of a folder."""
    kinds = {"text": "string", "flag": "bool", "number": "double"}
    described = {name: kinds[kind] for name, kind in note["columns"].items()}
    tail = dict.fromkeys(TAIL, "int64") | {"seed": "uint64"}
    columns = {"id": "string"} | described | tail
    for keep, kept in KEEPS.items():
        columns |= kept if keep in note["terms"]["keep"] else {}
    types = {}
    for name, kind in columns.items():
        inner = pa.type_for_alias(kind.removesuffix("[]"))
        types[name] = pa.list_(inner) if kind.endswith("[]") else inner
    return pa.schema(types)


FORMAT = 1  # the version of the folder's layout
SAME = ("keep", "curves", "max_steps")  # not in the rows, so it must be equal for a whole folder
ELSEWHERE = "choose another folder"


class Store(Parts):
    """A folder that is open for one sweep. After :meth:`__enter__` the folder belongs to this spec."""

    def __init__(self, folder: str | Path, spec: Spec, extend: bool, tell: Callable[[str], None]) -> None:
        super().__init__(folder, tell, {"safereplay": __version__, "spec": spec.digest})
        self.spec, self._extend = spec, extend

    def expect(self, runs: int) -> None:
        """Record how many runs the dataset will have."""
        if self._note["runs"] != runs:
            self._note["runs"] = runs
            self._write_note()

    def _settle(self) -> None:
        """Assign the folder to this spec, or raise an error that says why it cannot be."""
        old = read_note(self.folder) if (self.folder / "sweep.json").exists() else None
        source = self.spec.file
        own_name = "spec.toml" if source is not None and source.suffix != ".json" else "spec.json"
        if old is None:
            strangers = any(self.runs.glob("*.parquet"))
            _checks.require(not strangers, str(self.folder), "be new or a sweep's folder", "parts without a sweep.json")
        self._note: dict[str, Any] = {
            "kind": "safereplay sweep",
            "format": FORMAT,
            "safereplay": __version__,
            "digest": self.spec.digest,
            "runs": len(self.spec),
            "terms": plain(self.spec.terms._asdict()),
            "columns": self.spec.columns,
            "content": self.spec.content,
            "spec": self.spec.plain,
        }
        if old is not None and old["digest"] != self.spec.digest:
            self._note["columns"] = self._check_change(old)
            self._note["content"] = {**old["content"], **self.spec.content}
            self._note["runs"] = None  # until they are counted
            for name in ("spec.toml", "spec.json"):
                if (self.folder / name).exists():
                    text = _files.read_text(self.folder / name)
                    target = _files.make_folder(self.folder / "specs") / f"{old['digest'][:12]}{Path(name).suffix}"
                    if not target.exists():  # else a sweep was killed after this step, and the text is already new
                        _files.write_atomic(target, text, durable=True)
                    if name != own_name:
                        (self.folder / name).unlink()
        elif old is not None:
            self._note |= {key: old[key] for key in ("columns", "content", "runs")}
        self.schema = schema_of(self._note)
        text = json.dumps(self.spec.plain, indent=1, default=str) if source is None else _files.read_text(source)
        file = self.folder / own_name
        if not file.exists() or _files.read_text(file) != text:
            _files.write_atomic(file, text, durable=True)
        if old is None or old["digest"] != self.spec.digest:
            self._write_note()

    def _write_note(self) -> None:
        text = json.dumps(self._note, indent=1, ensure_ascii=False, default=str)
        _files.write_atomic(self.folder / "sweep.json", text, durable=True)

    def _check_change(self, old: dict[str, Any]) -> dict[str, str]:
        """Refuse specs that cannot share a dataset; return the columns of both."""
        for name in SAME:
            before, now = old["terms"][name], self._note["terms"][name]
            _checks.require(before == now, name, f"stay {_checks.shown(before)} within {self.folder}", now, ELSEWHERE)
        for name, stamp in self.spec.content.items():
            if name == ALGORITHM and old["content"].get(name) != stamp:
                raise BadInput(
                    f"{self.folder} must be written by a safereplay that computes runs as {__version__} does, "
                    f"got {old['safereplay']}; {ELSEWHERE}"
                )
            if old["content"].get(name, stamp) != stamp:
                raise BadInput(
                    f"{name} must be the same within {self.folder}, got other content under this name; "
                    f"give it another name, or {ELSEWHERE}"
                )
        paths = changes(old["spec"], self.spec.plain) or changes(old["content"], self.spec.content)
        if not self._extend:
            named = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
            raise BadInput(
                f"{self.folder} must be the folder of this spec, got another spec's: {named} changed; {ELSEWHERE}, "
                "or --extend to add the runs to that dataset"
            )
        for name, kind in self.spec.columns.items():
            before = old["columns"].get(name, kind)
            _checks.require(before == kind, f"column {name}", f"stay a {before} within {self.folder}", kind, ELSEWHERE)
        return merged(old["columns"], self.spec.columns)


def read_note(folder: str | Path) -> dict[str, Any]:
    """The content of a sweep's sweep.json."""
    file = Path(folder) / "sweep.json"
    try:
        note = json.loads(_files.read_text(file))
        stamp, complete = note["format"], all(key in note for key in ("digest", "columns", "content", "spec", "terms"))
    except FileNotFoundError:
        raise BadFile(f"{folder} must be a sweep's folder, got none with a sweep.json") from None
    except (OSError, ValueError, TypeError, KeyError):
        raise BadFile(f"{file} must be what a sweep wrote, got something else") from None
    _checks.require(complete, str(file), "be what a sweep wrote", "a part of it")
    _checks.require(stamp <= FORMAT, str(file), f"be of format {FORMAT} or older", stamp, "pip install -U safereplay")
    return dict(note)


def changes(old: Any, new: Any, path: str = "") -> list[str]:
    """Where two plain tables differ, as dotted paths.

    >>> changes({"seeds": 3, "models": {"cliff": {"gamma": 0.9}}}, {"seeds": 4, "models": {"cliff": {"slip": 0}}})
    ['seeds', 'models.cliff.gamma', 'models.cliff.slip']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        inner = f"{path}." if path else ""
        missing = object()
        pairs = ((name, old.get(name, missing), new.get(name, missing)) for name in dict.fromkeys([*old, *new]))
        return [change for name, x, y in pairs for change in changes(x, y, f"{inner}{name}")]
    return [] if old == new else [path]


def read_sweep(folder: str | Path) -> pa.Table:
    """All rows of a sweep's folder so far, sorted by id; the sweep may still be running.

    Parameters
    ----------
    folder : str or Path; the folder that :func:`sweep` wrote

    Returns
    -------
    pyarrow.Table : one row per run

    Raises
    ------
    BadFile : it is not a sweep's folder, or a part is damaged

    >>> import safereplay as sr, tempfile
    >>> spec = {"models": {"volatile": {}}, "learners": {"q": {}}, "seeds": 2, "episodes": 100, "keep": ["verdict"]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = sr.sweep(spec, folder)
    ...     sr.read_sweep(folder)["seed"].to_pylist() == done.table()["seed"].to_pylist()
    True
    """
    schema = schema_of(read_note(folder))
    files = sorted(str(file) for file in (Path(folder) / "runs").glob("*.parquet"))
    careful = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = ds.ParquetFileFormat(default_fragment_scan_options=careful)
    try:
        return ds.dataset(files, schema=schema, format=form).to_table().sort_by("id")
    except (pa.ArrowException, OSError) as error:
        raise BadFile(f"parts of {folder} must be whole, got '{str(error).splitlines()[0]}'") from None


ENGINES = ("threads", "ray", "cuda")


@dataclass(frozen=True)
class Sweep:
    """The result of :func:`sweep`.

    Parameters
    ----------
    folder : Path; the folder of the dataset
    runs : int; number of runs of the spec
    done, already : int; runs done by this call, and before it
    seconds : float; duration of the call
    interrupted : bool; whether Ctrl-C stopped it: the same call continues

    >>> import safereplay as sr, tempfile
    >>> spec = {"models": {"volatile": {}}, "learners": {"q": {}}, "seeds": 2, "episodes": 100}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first, second = sr.sweep(spec, folder), sr.sweep(spec, folder)
    >>> (first.done, first.already), (second.done, second.already)
    ((2, 0), (0, 2))
    """

    folder: Path
    runs: int
    done: int
    already: int
    seconds: float
    interrupted: bool = False

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
    """Do all runs of a spec that a folder lacks. Ctrl-C keeps finished runs.

    Parameters
    ----------
    spec : str, Path, dict or Spec; a TOML or JSON file, or a dictionary of the same shape
    out : str or Path, optional; the folder; default: sweeps/NAME for NAME.toml
    engine : {"threads", "ray", "cuda"} or Engine; where the runs are done
    threads : int, optional; number of workers; default: all CPUs
    address : str, optional; HOST:PORT of a Ray cluster, or auto; default: a cluster on this machine
    extend : bool; let another spec add its runs to the folder's dataset
    quiet : bool; without a progress bar

    Returns
    -------
    Sweep : the folder, and how many runs were done

    Raises
    ------
    BadInput : the spec is wrong, or the folder belongs to another spec
    CannotWrite : the folder cannot be written to

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


def _sweep(study: Spec, store: Store, make: Callable[[], Engine], quiet: bool) -> Sweep:
    began, costs = time.monotonic(), Costs(study.terms)
    before = len(store.done)
    units: dict[Hashable, float] = {}  # the work that is left
    missing = total = 0  # runs
    for key, point in study.points():
        left = sum(1 for _ in study.lacking(key, store.done)) if store.done else len(study.seeds)
        group = costs.group(point)
        units[group] = units.get(group, 0.0) + left * costs.units(point)
        missing, total = missing + left, total + len(study.seeds)
    store.expect(before + missing)
    interrupted = False
    if missing:
        engine = make()
        try:
            chunks = Chunks(study.runs(store.done), units, study.terms, engine, costs)
            _finish(store, engine.finish(chunks, study.terms), missing, costs, quiet)
        except KeyboardInterrupt:
            interrupted = True
            store.recount()
        except CannotWrite as error:
            raise CannotWrite(
                f"{error}; {len(store.done):,} runs are kept in {store.folder}; run the same command to continue"
            ) from None
        finally:
            engine.close()
    done = len(store.done) - before
    return Sweep(store.folder, total, done, total - missing, time.monotonic() - began, interrupted)


def _finish(store: Store, results: Iterator[Done], runs: int, costs: Costs, quiet: bool) -> None:
    """Write each chunk of the remaining runs when it is finished."""
    done = 0
    with Bar(f"{store.folder.name}: {runs:,} runs", runs, quiet) as bar:
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
    if done != runs:
        raise BadInput(f"the engine must finish every run, got {done:,} of {runs:,}")
