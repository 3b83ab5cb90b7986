"""Values that stand for many: lists, grids and random ranges, and the tables that they make.

    v = [0.1, 0.5]                                   each of them
    v = { from = 0.0, to = 0.9, points = 10 }        a grid; scale = "log" for equal ratios
    v = { random = [0.1, 10.0], scale = "log" }      as many as the table's ``samples``, drawn together

A table of such values stands for the product of its lists and grids, once a draw. The k-th draw of a value is a function
of (the spec's seed, the value's path, k) alone, so it is the same on every reading, and more samples keep the earlier.
Values are rounded to twelve digits, so that a grid's 0.3 is the 0.3 that one would type.

>>> [table["v"] for table in variants({"v": {"from": 0.0, "to": 0.9, "points": 4}}, "learners.replay")]
[0.0, 0.3, 0.6, 0.9]
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import product
from math import exp, log
from typing import Any

import numpy as np

from .. import _checks

GRID = ("from", "to", "points", "scale")
RANDOM = ("random", "scale")
SCALES = ("linear", "log")
SAMPLES = "samples"


def variants(table: dict[str, Any], path: str, seed: int = 0) -> Iterator[dict[str, Any]]:
    """The plain tables that a table stands for, in order; ``path`` is what errors call it."""
    content = {name: value for name, value in table.items() if name != SAMPLES}
    if not _is_random(content):
        _checks.require(SAMPLES not in table, f"{path}.{SAMPLES}", "go with a value that is random", table.get(SAMPLES))
        yield from _tables(content, path, seed, 0)
        return
    _checks.require(SAMPLES in table, f"{path}.{SAMPLES}", "be given, as a value there is random", "nothing")
    for draw in range(_checks.whole(f"{path}.{SAMPLES}", table[SAMPLES], 1, 24)):
        yield from _tables(content, path, seed, draw)


def _is_random(value: Any) -> bool:
    if isinstance(value, dict):
        return "random" in value or any(_is_random(x) for x in value.values())
    return isinstance(value, list) and any(_is_random(x) for x in value)


def _tables(table: dict[str, Any], path: str, seed: int, draw: int) -> Iterator[dict[str, Any]]:
    """The product of what each entry stands for."""
    options = [_alternatives(value, f"{path}.{name}", seed, draw) for name, value in table.items()]
    for values in product(*options):
        yield dict(zip(table, values, strict=True))


def _alternatives(value: Any, path: str, seed: int, draw: int) -> list[Any]:
    """The values that one value stands for."""
    if isinstance(value, list):
        _checks.require(bool(value), path, "list at least one value", value)
        nested = (
            _alternatives(x, f"{path}[{i}]", seed, draw) if isinstance(x, dict) else [x] for i, x in enumerate(value)
        )
        return [x for alternatives in nested for x in alternatives]
    if not isinstance(value, dict):
        return [value]
    if "random" in value:
        return [_drawn(value, path, seed, draw)]
    if any(name in value for name in GRID[:3]):
        return _grid(value, path)
    return list(_tables(value, path, seed, draw))


def _grid(value: dict[str, Any], path: str) -> list[Any]:
    """The points of a grid; whole numbers stay whole."""
    for name in value:
        _checks.choice(f"key of {path}", name, GRID)
    for name in GRID[:3]:
        _checks.require(name in value, f"{path}.{name}", "be given for a grid", "nothing")
    low, high = (_checks.real(f"{path}.{name}", value[name]) for name in GRID[:2])
    count = _checks.whole(f"{path}.points", value["points"], 2, 24)
    spaced = np.geomspace if _is_log(value, path, low, high) else np.linspace
    nothing = 1e-12 * max(abs(low), abs(high))  # what is left of 0 in the middle of a range
    inner = (0.0 if abs(x) < nothing else _rounded(x) for x in spaced(low, high, count)[1:-1].tolist())
    points = [low, *inner, high]
    whole = all(isinstance(value[name], int) for name in GRID[:2]) and all(x.is_integer() for x in points)
    return [int(x) for x in points] if whole else points


def _drawn(value: dict[str, Any], path: str, seed: int, draw: int) -> float:
    """One draw of a random value."""
    for name in value:
        _checks.choice(f"key of {path}", name, RANDOM)
    ends = value["random"]
    _checks.require(isinstance(ends, list) and len(ends) == 2, f"{path}.random", "be [low, high]", ends)
    low, high = (_checks.real(f"{path}.random", x) for x in ends)
    _checks.require(low < high, f"{path}.random", "be [low, high] with low < high", ends)
    u = _uniform(f"{seed} {path} {draw}")
    if _is_log(value, path, low, high):
        return min(max(_rounded(exp(log(low) + u * (log(high) - log(low)))), low), high)
    return min(max(_rounded(low + u * (high - low)), low), high)


def _is_log(value: dict[str, Any], path: str, low: float, high: float) -> bool:
    if _checks.choice(f"{path}.scale", value.get("scale", "linear"), SCALES) == "linear":
        return False
    _checks.require(low > 0.0 and high > 0.0, path, 'lie above 0 for scale = "log"', [low, high])
    return True


def _uniform(key: str) -> float:
    """A number in [0, 1) from a text: no stream, so nothing depends on what was drawn before."""
    word = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
    return float((word >> 11) * 2.0**-53)


def _rounded(x: float) -> float:
    return float(f"{x:.12g}")
