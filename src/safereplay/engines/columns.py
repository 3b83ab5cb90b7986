"""The columns of a sweep's dataset: one schema for all parts of a folder, so that any reader can put them together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .tables import TAIL
from .work import KEEPS

if TYPE_CHECKING:
    import pyarrow as pa

MARKS = ("id", "learner", "scheme", "exploration", "step_size")  # columns that begin a section


def merged(old: dict[str, str], new: dict[str, str]) -> dict[str, str]:
    """The columns of both, section by section, the old ones first."""
    parts: dict[str, list[str]] = {mark: [] for mark in MARKS}
    taken: set[str] = set()
    for names in (old, new):
        section = MARKS[0]
        for name in names:
            section = name if name in parts else section
            if name not in taken:
                taken.add(name)
                parts[section].append(name)
    both = {**old, **new}
    return {name: both[name] for names in parts.values() for name in names}


def schema_of(note: dict[str, Any]) -> pa.Schema:
    """The schema of every part of a folder."""
    import pyarrow as pa

    kinds = {"text": pa.string(), "flag": pa.bool_(), "number": pa.float64()}
    tail = dict.fromkeys(TAIL, pa.int64()) | {"seed": pa.uint64()}
    columns = {"id": pa.string()} | {name: kinds[kind] for name, kind in note["columns"].items()} | tail
    special = {
        "policy": pa.list_(pa.int32()),
        "Q": pa.list_(pa.float64()),
        "visits": pa.list_(pa.int64()),
        "replayed": pa.list_(pa.int64()),
        "verdict": pa.string(),
        "curve_episodes": pa.list_(pa.int64()),
        "curve_value": pa.list_(pa.float64()),
        "curve_p_unsafe": pa.list_(pa.float64()),
        "curve_mean": pa.list_(pa.float64()),
        "curve_verdict": pa.list_(pa.string()),
    }
    kept = [name for keep in KEEPS if keep in note["terms"]["keep"] for name in KEEPS[keep]]
    return pa.schema({**columns, **{name: special.get(name, pa.float64()) for name in kept}})


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly the schema's columns, in its order and types; nulls where it has none."""
    import pyarrow as pa

    def column(field: pa.Field) -> Any:
        found = field.name in table.column_names
        return table[field.name].cast(field.type) if found else pa.nulls(table.num_rows, field.type)

    return pa.table([column(field) for field in schema], schema=schema)
