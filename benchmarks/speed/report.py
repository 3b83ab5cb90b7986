"""Running the parts of the benchmark, and their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from safereplay import _checks
from safereplay.errors import stopping

from . import buffers, engines, jaxed, learning, mushroom, native, pairs, sheets, solving, threads, trees
from .machine import machine
from .sheets import Part, Rows, Sheet

Progress = Callable[[float, str], None]  #: called with the finished share, and the next task

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        learning.PART,
        native.PART,
        mushroom.PART,
        trees.PART,
        threads.PART,
        engines.PART,
        pairs.PART,
        solving.PART,
        buffers.PART,
        jaxed.PART,
    )
}
DERIVED = ("ratio", "beyond")  # properties of a row besides its fields


@dataclass(frozen=True)
class BenchReport:
    """All measurements by part, and the machine they were made on."""

    machine: dict[str, str]
    parts: dict[str, Rows]

    def sheets(self) -> list[Sheet]:
        """A table for each part that has rows."""
        return [PARTS[name].sheet(rows) for name, rows in self.parts.items() if rows]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        parts = {name: [_plain(row) for row in rows] for name, rows in self.parts.items()}
        return {"machine": self.machine, **parts}

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)


def _plain(row: Any) -> dict[str, Any]:
    return asdict(row) | {name: getattr(row, name) for name in DERIVED if hasattr(row, name)}


def choose(only: Sequence[str] | None) -> list[Part]:
    """The chosen parts: all, or those named.

    >>> [part.name for part in choose(["tree", "threads"])]
    ['tree', 'threads']
    """
    if only is None:
        return list(PARTS.values())
    _checks.require(len(only) > 0, "only", f"name some of {', '.join(PARTS)}", only)
    return [PARTS[_checks.choice("part", name, PARTS)] for name in dict.fromkeys(only)]


def run_bench(
    quick: bool = False,
    progress: Progress | None = None,
    only: Sequence[str] | None = None,
    mushroom_python: str | None = None,
) -> BenchReport:
    """Measure everything, or ``only`` some parts. ``quick`` takes about a fifth of the time and is less precise.

    ``mushroom_python`` is an interpreter with MushroomRL (see ``benchmarks/mushroom.py``).
    """
    effort, tell = sheets.QUICK if quick else sheets.FULL, progress or (lambda share, label: None)
    parts, facts = choose(only), machine()
    plans = {part.name: part.tasks for part in parts}
    if "mushroom" in plans:
        plans["mushroom"] = partial(mushroom.tasks, python=mushroom_python)
    tasks = [(name, task) for name, plan in plans.items() for task in plan(effort)]
    found: dict[str, list[Any]] = {name: [] for name in plans}
    done = 0
    with stopping(lambda: f"{done} of {len(tasks)} measurements are finished, but not the report"):
        for name, task in tasks:
            tell(done / len(tasks), task.label)
            found[name] += task.measure()
            done += 1
    tell(1.0, "done")
    return BenchReport(facts, {name: tuple(rows) for name, rows in found.items()})


def left_out(report: BenchReport) -> list[str]:
    """A line for each peer that is not installed."""
    lines = []
    absent = solving.missing() if "solving" in report.parts else []
    absent += ["cpprb"] if "tree" in report.parts and find_spec("cpprb") is None else []
    if "sb3" in report.parts and find_spec("stable_baselines3") is None:
        lines.append("SB3 not installed, so left out: pip install 'safereplay[sb3]'")
    if "jax" in report.parts and find_spec("jax") is None:
        lines.append("JAX not installed, so left out: pip install 'safereplay[jax]'")
    absent += ["flashbax"] if "jax" in report.parts and find_spec("flashbax") is None else []
    if absent:
        lines.append(f"{' and '.join(absent)} not installed, so left out: pip install 'safereplay[peers]'")
    if "mushroom" in report.parts and not report.parts["mushroom"]:
        lines.append(f"left out: {mushroom.HOW}")
    if "c" in report.parts and not report.parts["c"]:
        lines.append(native.HOW)
    return lines
