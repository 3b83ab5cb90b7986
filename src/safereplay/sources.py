"""A model from a string: a world's name, a map file, a saved model, or a Gymnasium id."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import _checks, _files, catalog, grids
from .errors import BadInput
from .mdp import TabularMDP

RESERVED = ("env", "gamma", "unsafe")  # arguments of from_gymnasium itself


def model_from(source: str, gamma: float | None = None, options: dict[str, Any] | None = None) -> TabularMDP:
    """The model that ``source`` names, at the given γ; ``options`` are passed to the function that builds it.

    >>> model_from("cliff", gamma=0.9, options={"slip": 0.2}).gamma
    0.9
    """
    extra: dict[str, Any] = {} if options is None else dict(options)
    chosen = {} if gamma is None else {"gamma": gamma}
    if source in catalog.WORLDS:
        return _called(catalog.world(source), extra | chosen)
    file = Path(source)
    try:
        if file.exists() and not file.is_dir():
            return _from_file(file, gamma, extra)
    except OSError as error:
        raise BadInput(f"model must be a file that can be read, got '{error.strerror}'") from None
    for name in extra:
        _checks.require(name not in RESERVED, "option", "be one of the environment's own", name)
    if file.suffix in (".txt", ".map", ".npz"):
        raise BadInput(f"model must be an existing file, got '{source}'")
    import gymnasium

    try:
        return TabularMDP.from_gymnasium(source, **(extra | chosen))
    except BadInput as error:
        near = _checks.suggestion(source, list(catalog.WORLDS))
        if near.startswith("did you mean") and source not in gymnasium.registry:
            raise BadInput(f"unknown model '{source}'; {near}") from None
        raise error from None


def _from_file(file: Path, gamma: float | None, options: dict[str, Any]) -> TabularMDP:
    """A saved model, or else a map file, whose own options are overridden by ``options``."""
    with _files.opened(file) as stream:
        archive = stream.read(2) == b"PK"
    if archive or file.suffix == ".npz":
        mdp = TabularMDP.load(file)
        for name in options:
            _checks.fail("option", "be left out for a saved model", name)
        return mdp if gamma is None else mdp.with_gamma(gamma)
    try:
        text, own = grids.parsed(_files.read_text(file))
    except UnicodeDecodeError:
        raise BadInput(f"{file} must be a text map or a saved TabularMDP, got something else") from None
    chosen = {} if gamma is None else {"gamma": gamma}
    return _called(grids.from_map, {"text": text, "name": file.stem} | own | options | chosen)


def _called(build: Callable[..., TabularMDP], options: dict[str, Any]) -> TabularMDP:
    for name in options:
        _checks.choice("option", name, inspect.signature(build).parameters)
    return build(**options)
