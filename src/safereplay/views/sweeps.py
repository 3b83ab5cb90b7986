"""The results of a sweep: its runs read from their folder, counted and averaged, with intervals.

The folder holds a Parquet dataset, one row per run: settings (the model and its options, the learner and its dials, exploration,
step size), the seed, and the kept results. A setting is an *axis* if it has more than one value within one model and
learner.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from .. import _checks, _files
from .._checks import AnyArray, Bools, Floats, Ints
from .._config import SYMBOLS
from ..errors import BadFile
from ..verdicts import VERDICTS
from .intervals import Estimate, estimates

#: Verify checksums, so that damaged parts raise an error.
VERIFY = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
CAREFUL = ds.ParquetFileFormat(default_fragment_scan_options=VERIFY)
RISKS = ("mean", "std", "p_unsafe", "p_never", "cvar10")
CURVES = ("curve_episodes", "curve_value", "curve_p_unsafe")
#: Columns that are not settings.
OUTCOMES = {"id", "seed", "updates", "replays", "policy", "Q", "visits", "replayed", "verdict", *RISKS}
RISK_TITLES = {"mean": "mean return", "p_unsafe": "P(unsafe)"}


def label(name: str) -> str:
    """A column's name in the paper's symbols.

    >>> label("beta"), label("exploration_epsilon"), label("model_slip"), label("step_size_power")
    ('β', 'ε', 'slip', 'power of step size')
    """
    for prefix, place in (("model_", ""), ("exploration_", " of exploration"), ("step_size_", " of step size")):
        if name.startswith(prefix) and name != prefix:
            rest = name.removeprefix(prefix)
            return SYMBOLS.get(rest, rest.replace("_", " ") + place)
    return SYMBOLS.get(name, name.replace("_", " "))


class Levels(NamedTuple):
    """A column as codes [n] into its sorted values; null becomes None, which is last."""

    codes: Ints
    values: tuple[Any, ...]


class Groups(NamedTuple):
    """Groups of runs with equal settings: the group of each run [n], and the settings of each group."""

    member: Ints
    keys: list[tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class Results:
    """Runs of a sweep, one row each."""

    folder: Path
    table: pa.Table
    expected: int | None = None  #: the total number of runs, if the folder has it
    _levels: dict[str, Levels] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __repr__(self) -> str:
        return f"Results({str(self.folder)!r}, {len(self):,} runs, axes {', '.join(self.axes) or 'none'})"

    @property
    def complete(self) -> bool:
        """Whether all runs are done."""
        return self.expected is not None and len(self) >= self.expected

    def has(self, *names: str) -> bool:
        """Whether these columns were kept."""
        return set(names) <= set(self.table.column_names)

    def numbers(self, name: str) -> Floats:
        """A column of numbers [n]; null becomes nan."""
        return np.asarray(self.table[name].to_numpy(), dtype=np.float64)

    def levels(self, name: str) -> Levels:
        """A column as codes into its values."""
        if name not in self._levels:
            self._levels[name] = _levels(self.table[name])
        return self._levels[name]

    @cached_property
    def settings(self) -> tuple[str, ...]:
        """The columns that describe a run, except the seed."""
        return tuple(name for name in self.table.column_names if _is_setting(name))

    @cached_property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """The settings that vary within some model and learner, with their sorted values."""
        within = self.groups(["model", "learner"]).member
        found = {}
        for name in self.settings:
            codes, values = self.levels(name)
            pairs = np.unique(within * len(values) + codes)
            if name not in ("model", "learner") and np.bincount(pairs // len(values)).max(initial=0) > 1:
                found[name] = tuple(x for x in values if x is not None)
        return found

    def is_number(self, name: str) -> bool:
        """Whether a column holds numbers."""
        kind = self.table.schema.field(name).type
        return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))

    def groups(self, names: Sequence[str]) -> Groups:
        """The runs grouped by these columns, in sorted order."""
        key = np.zeros(len(self), np.int64)
        levels = [self.levels(name) for name in names]
        for codes, values in levels:
            if len(values) > 1:
                key = np.unique(key * len(values) + codes, return_inverse=True)[1]  # against overflow
        _, first, member = np.unique(key, return_index=True, return_inverse=True)
        return Groups(member, [tuple(values[codes[i]] for codes, values in levels) for i in first])

    @cached_property
    def units(self) -> Ints:
        """The units that intervals resample: the seed of each run, or its setting if there is only one seed."""
        seeds = self.levels("seed")
        return seeds.codes if len(seeds.values) > 1 else self.groups(self.settings).member

    def where(self, chosen: Bools) -> Results:
        """The runs for which ``chosen`` is true."""
        return Results(self.folder, self.table.filter(pa.array(chosen)), self.expected)


def _is_setting(name: str) -> bool:
    return name not in OUTCOMES and not name.startswith("curve_")


def _levels(column: pa.ChunkedArray) -> Levels:
    if pa.types.is_null(column.type):
        return Levels(np.zeros(len(column), np.int64), (None,))
    encoded = column.combine_chunks()
    encoded = encoded if pa.types.is_dictionary(encoded.type) else encoded.dictionary_encode()
    raw = encoded.dictionary.to_pylist()
    order = sorted(range(len(raw)), key=lambda k: raw[k])
    values: tuple[Any, ...] = tuple(raw[k] for k in order)
    rank = np.empty(len(raw) + 1, np.int64)
    rank[order] = np.arange(len(raw))
    rank[-1] = len(raw)  # null
    codes = rank[np.asarray(encoded.indices.fill_null(len(raw)))]
    return Levels(codes, (*values, None) if encoded.null_count else values)


class Reader:
    """Reads a sweep's folder repeatedly, each part only once."""

    def __init__(self, folder: str | Path, curves: bool = False) -> None:
        self.folder = Path(folder)
        self._curves = curves
        self._parts: dict[Path, pa.Table] = {}
        _checks.require(self.folder.is_dir(), "DIR", "be the folder of a sweep", str(folder))

    def read(self) -> Results:
        """All runs so far; raise an error if there are none."""
        results = self.peek()
        if results is None:
            raise BadFile(f"{self.folder} must hold runs of a sweep, in {self.folder / 'runs'}, got none")
        return results

    def peek(self) -> Results | None:
        """All runs so far; None if there are none."""
        files = sorted((self.folder / "runs").glob("*.parquet"))
        found = {file: self._parts[file] if file in self._parts else self._read_part(file) for file in files}
        self._parts = {file: table for file, table in found.items() if table is not None}
        if not sum(table.num_rows for table in self._parts.values()):
            return None
        table = pa.concat_tables(self._parts.values(), promote_options="permissive")
        try:
            expected = int(json.loads(_files.read_text(self.folder / "sweep.json"))["runs"])
        except (OSError, ValueError, KeyError, TypeError):
            expected = None
        return Results(self.folder, table.combine_chunks(), expected)

    def _read_part(self, file: Path) -> pa.Table | None:
        """The needed columns of a part; None if it was removed meanwhile."""
        try:
            part = ds.dataset(file, format=CAREFUL)
            names, wanted = part.schema.names, {"seed", "verdict", *RISKS, *(CURVES if self._curves else ())}
            _checks.require({"model", "learner", "seed"} <= set(names), str(file), "hold runs", names)
            return part.to_table(columns=[n for n in names if n in wanted or _is_setting(n)])
        except FileNotFoundError:
            return None
        except (pa.ArrowInvalid, OSError) as error:
            raise BadFile(f"{file} must be a Parquet file, got '{str(error).splitlines()[0]}'") from None


@dataclass(frozen=True)
class Row:
    """The results of the runs of one group."""

    keys: Mapping[str, Any]
    runs: int
    shares: Mapping[str, float]  #: by verdict; empty if verdicts were not kept
    risks: Mapping[str, Estimate]  #: mean return and P(unsafe); empty if risk was not kept
    endless: float  #: share of runs without a finite mean return; the mean excludes them

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        risks = {name: found.to_dict() for name, found in self.risks.items()}
        return {**self.keys, "runs": self.runs, "shares": dict(self.shares), "endless": self.endless, **risks}


def verdict_codes(results: Results) -> tuple[Ints, tuple[str, ...]]:
    """Each run's verdict as a code into the names: those of this package first."""
    codes, values = results.levels("verdict")
    names = (*VERDICTS, *(str(x) for x in values if x not in VERDICTS))
    return np.array([names.index(str(x)) for x in values])[codes], names


def summarise(results: Results, by: Sequence[str] = ()) -> list[Row]:
    """One row per model, learner and value of ``by``: runs, share of each verdict, mean return and P(unsafe) with intervals."""
    names = list(dict.fromkeys(["model", "learner", *by]))
    member, keys = results.groups(names)
    count, runs = len(keys), np.bincount(member)
    shares: list[dict[str, float]] = [{} for _ in keys]
    if results.has("verdict"):
        codes, verdicts = verdict_codes(results)
        table = np.bincount(member * len(verdicts) + codes, minlength=count * len(verdicts)).reshape(count, -1)
        shares = [dict(zip(verdicts, (row / n).tolist(), strict=True)) for row, n in zip(table, runs, strict=True)]
    kept = [name for name in ("mean", "p_unsafe") if results.has(name)]
    found = {name: estimates(results.numbers(name), member, results.units, count) for name in kept}
    endless = np.zeros(count)
    if results.has("mean"):
        endless = np.bincount(member, ~np.isfinite(results.numbers("mean")), count) / runs
    return [
        Row(dict(zip(names, key, strict=True)), int(n), share, {name: found[name][k] for name in kept}, float(never))
        for k, (key, n, share, never) in enumerate(zip(keys, runs, shares, endless, strict=True))
    ]


def axis_text(values: Sequence[Any]) -> str:
    """A short text of the values of an axis.

    >>> axis_text((0.1, 0.2, 0.4)), axis_text(range(30))
    ('0.1, 0.2, 0.4', '0 … 29 (30 values)')
    """
    if len(values) <= 8:
        return ", ".join(map(value_text, values))
    return f"{value_text(values[0])} … {value_text(values[-1])} ({len(values):,} values)"


def value_text(value: Any) -> str:
    """A value of a setting as a cell of a table."""
    return "—" if value is None else f"{value:.4g}".replace("-", "−") if isinstance(value, float) else str(value)


def overview(results: Results) -> str:
    """The sweep in one line."""
    total = "" if results.expected is None else f" of {results.expected:,}"
    models, learners = (results.levels(name).values for name in ("model", "learner"))
    settings, seeds = len(results.groups(results.settings).keys), len(results.levels("seed").values)
    return (
        f"{len(results):,}{total} runs: {', '.join(map(str, models))}; {', '.join(map(str, learners))}; "
        f"{settings:,} setting{'s' * (settings > 1)}, {seeds:,} seed{'s' * (seeds > 1)}"
    )


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """A header and its rows: the settings that vary, runs, verdicts that occur, means with their intervals."""
    keys = [n for n in rows[0].keys if len({row.keys[n] for row in rows}) > 1] or list(rows[0].keys)
    verdicts = [name for name in rows[0].shares if any(row.shares[name] for row in rows)]
    kept = [name for name in RISK_TITLES if name in rows[0].risks]
    endless = ["never"] if any(row.endless for row in rows) else []
    header = [*map(label, keys), "runs", *verdicts, *(RISK_TITLES[name] for name in kept), *endless]
    lines = []
    for row in rows:
        line = [*(value_text(row.keys[name]) for name in keys), f"{row.runs:,}"]
        line += [_percent(row.shares[name]) for name in verdicts]
        line += [_estimate_text(row.risks[name], name == "p_unsafe") for name in kept]
        lines.append(line + [_percent(row.endless) for _ in endless])
    return header, lines


def _percent(share: float) -> str:
    """A share that is not rounded to 0 % or 100 % unless it is exact."""
    return "<1%" if 0.0 < share < 0.005 else ">99%" if 0.995 <= share < 1.0 else f"{share:.0%}"


def _estimate_text(x: Estimate, share: bool) -> str:
    unit, scale = ("%", 100.0) if share else ("", 1.0)
    digits = 1 if abs(scale * x.mean) >= (10.0 if share else 100.0) else 2
    mean, low, high = (f"{scale * y:.{digits}f}".replace("-", "−") for y in x)
    return "—" if not isfinite(x.mean) else mean + unit + (f" ({low}…{high})" if isfinite(x.low) else "")


def to_dict(results: Results, rows: Sequence[Row]) -> dict[str, Any]:
    """The sweep and its results, in plain JSON types."""
    axes = {name: {"count": len(x), "from": x[0], "to": x[-1]} for name, x in results.axes.items()}
    named = {f"{name}s": list(results.levels(name).values) for name in ("model", "learner")}
    head = {"folder": str(results.folder), "runs": len(results), "expected": results.expected}
    return {**head, **named, "axes": axes, "rows": [row.to_dict() for row in rows]}


def matching(results: Results, where: Mapping[str, Any]) -> Results:
    """The runs whose settings have the given values."""
    chosen: AnyArray = np.ones(len(results), bool)
    for name, wanted in where.items():
        _checks.choice("setting", name, results.settings)
        codes, values = results.levels(name)
        same = np.array([x == wanted or str(x) == str(wanted) for x in values])
        _checks.require(bool(same.any()), name, f"be one of {axis_text([x for x in values if x is not None])}", wanted)
        chosen &= same[codes]
    _checks.require(bool(chosen.any()), "--where", "leave some runs", dict(where))
    return replace(results.where(chosen), expected=None)
