"""Map files: a map as text, and under it the options that make it a model.

    ......
    ......
    SXXXXG

    goal = 10.0
    slip = 0.1
    goals = { "2,5" = 50.0 }      # cells are written "row,column"

What is under the map is TOML, with the names of :func:`safereplay.grids.from_map`'s options; all of it may be absent.
"""

import inspect
import json
import tomllib
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np

from . import _checks
from .maps import from_map

#: from_map's options, with their defaults.
OPTIONS = {name: each.default for name, each in inspect.signature(from_map).parameters.items() if name != "text"}


def map_file(text: str, **options: Any) -> str:
    """A map file of this map and these options of :func:`from_map`, which are checked; defaults are left out.

    >>> print(map_file("S..G", slip=0.1, slip_to="sides", step=-1.0), end="")
    S..G
    <BLANKLINE>
    slip = 0.1
    slip_to = "sides"
    """
    for name in options:
        _checks.choice("option", name, OPTIONS)
    layout = from_map(text, **options).layout
    assert layout is not None  # every map has one
    lines = [f"{name} = {_toml(options[name])}" for name in OPTIONS if options.get(name) is not None]
    kept = [line for line in lines if line not in DEFAULTS]
    return "\n".join([layout.text, *([""] if kept else []), *kept, ""])


def parsed(content: str) -> tuple[str, dict[str, Any]]:
    """The map of a map file, and its options.

    >>> parsed("S..G\\n\\ngoal = 50.0\\n")
    ('S..G', {'goal': 50.0})
    """
    lines = content.splitlines(keepends=True)
    first = next((k for k, line in enumerate(lines) if line.strip()), len(lines))
    end = next((k for k in range(first, len(lines)) if not lines[k].strip() or "=" in lines[k]), len(lines))
    if first == end < len(lines):
        _checks.fail("a map file", "begin with its map", lines[first].strip())
    try:  # blank lines for the map, so that an error names the line of the file
        options = tomllib.loads("\n" * end + "".join(lines[end:]))
    except (ValueError, RecursionError) as error:
        _checks.fail("what is under the map", "be lines of name = value, as TOML has them", str(error))
    for name in options:
        _checks.choice("option of the map", name, OPTIONS)
    return "".join(lines[first:end]).strip(), options


def _toml(value: Any) -> str:
    """A value as TOML that reads back as the same option."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, str):  # TOML's strings are JSON's, but for the one control character that JSON lets pass
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        cells = ((key if isinstance(key, str) else f"{key[0]},{key[1]}", each) for key, each in value.items())
        return "{ " + ", ".join(f"{_toml(cell)} = {_toml(each)}" for cell, each in cells) + " }"
    if np.iterable(value):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return str(int(value)) if isinstance(value, Integral) else repr(float(value))


#: The lines that say what holds anyway.
DEFAULTS = {f"{name} = {_toml(default)}" for name, default in OPTIONS.items() if default is not None}
