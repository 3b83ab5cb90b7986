"""What the tables of a spec stand for: models, learners and schedules, built and checked, and what rows say about them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from .. import _checks, catalog
from .._config import Config
from ..errors import BadInput
from ..learners import Learner
from ..mdp import TabularMDP
from ..schemes import Scheme
from ..sources import model_from
from .ranges import variants
from .work import KEEPS

TAIL = ("episodes", "seed", "updates", "replays")
FIXED = ("id", "model", "gamma", "learner", "kind", "scheme", "exploration", "step_size", *TAIL)
TAKEN = {*FIXED, *(column for columns in KEEPS.values() for column in columns)}  # not for dials


class Variant(NamedTuple):
    """One model, learner or schedule that a table stands for, and what the dataset says about it."""

    name: str
    made: Any
    columns: dict[str, Any]


def models_of(name: str, table: dict[str, Any], seed: int, folder: Path) -> Iterator[Variant]:
    """The models of a table; those that differ in γ alone share their arrays."""
    path = f"models.{name}"
    source = table.get("source", name)
    _checks.require(isinstance(source, str), f"{path}.source", "be one name or file", source)
    beside = folder / source
    built: dict[str, TabularMDP] = {}
    for variant in variants({k: x for k, x in table.items() if k != "source"}, path, seed):
        gamma = variant.pop("gamma", None)
        key = json.dumps(variant, sort_keys=True, default=repr)
        with _told(path, ("gamma", *variant)):
            if key not in built:
                built[key] = model_from(str(beside) if beside.is_file() else source, gamma, variant)
            mdp = built[key] if gamma is None else built[key].with_gamma(gamma)
        said = {f"model_{option}": _cell(value) for option, value in variant.items()}
        yield Variant(name, mdp, {"model": name, "gamma": mdp.gamma, **said})


def learners_of(name: str, table: dict[str, Any], seed: int) -> Iterator[Variant]:
    """The learners of a table."""
    path = f"learners.{name}"
    for variant in variants({"kind": name, **table}, path, seed):
        learner = _config(variant, path, Learner)
        dials = {k: getattr(learner, k) for k in (f.name for f in fields(learner))}
        scheme = learner.replay[0] if learner.replay is not None else None
        own = {k: _cell(x) for k, x in dials.items() if not isinstance(x, Config)}
        said = {f"learner_{k}" if k in TAKEN else k: x for k, x in own.items()}
        of_scheme = {} if scheme is None else dict(zip(scheme.params_names(), scheme.params(), strict=True))
        more = {f"scheme_{k}" if k in TAKEN or k in own else k: x for k, x in of_scheme.items()}
        head = {"learner": name, "kind": type(learner).__name__}
        yield Variant(name, learner, head | said | {"scheme": scheme and type(scheme).__name__} | more)


def schedules_of(
    told: dict[str, Any], key: str, base: type[Config], usual: type[Config], seed: int
) -> Iterator[Variant]:
    """The schedules of [exploration] or [step_size]; a list of tables has several kinds."""
    tables = told.get(key, {})
    several = isinstance(tables, list) and bool(tables)
    for i, table in enumerate(tables if several else [tables]):
        path = f"{key}[{i}]" if several else key
        _checks.require(isinstance(table, dict), path, "be a table", table)
        for variant in variants({"kind": usual.__name__, **table}, path, seed):
            made = _config(variant, path, base)
            dials = {f"{key}_{f.name}": _cell(getattr(made, f.name)) for f in fields(made)}
            yield Variant(key, made, {key: type(made).__name__} | dials)


def _class(kind: Any, path: str, base: type[Config]) -> type[Config]:
    """The class that a table's kind names, in full or as the catalog does."""
    short = {Learner: catalog.LEARNERS, Scheme: catalog.SCHEMES}.get(base, {})
    catalog.load([short[kind].partition(":")[2] if kind in short else kind] if isinstance(kind, str) else [])
    kinds = {name: one for name, one in Config._known.items() if issubclass(one, base)}
    named = kinds | {name: kinds.get(home.partition(":")[2]) for name, home in short.items()}
    found = named[_checks.choice(f"{path}.kind", kind, named)]
    assert found is not None
    return found


def _config(table: dict[str, Any], path: str, base: type[Config]) -> Any:
    """The learner, scheme or schedule that a plain table describes."""
    kind = _class(table.get("kind"), path, base)
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    values = {name: value for name, value in table.items() if name != "kind"}
    for name, value in values.items():
        _checks.choice(f"key of {path}", name, names)
        if isinstance(value, dict):
            values[name] = _config({"kind": None, **value}, f"{path}.{name}", Scheme if name == "scheme" else Config)
    with _told(path, names):
        return kind(**values)


def compile_all(*groups: list[Variant]) -> None:
    """Bind every program once, so that code which numba cannot compile is found before the first run."""
    kinds: set[tuple[Any, ...]] = set()
    for learner, exploration, step_size in product(*([v.made for v in group] for group in groups)):
        scheme = learner.replay and type(learner.replay[0])
        kind = (type(learner), scheme, type(exploration), type(step_size))
        if kind not in kinds:
            kinds.add(kind)
            learner.recipe(exploration, step_size)
    for step_size in groups[2]:
        with _told("step_size", ()):
            step_size.made.table()


def refuse_other_stages(models: list[Variant], learners: list[Variant]) -> None:
    """Refuse learners that run on another model than the one they are given: rows say nothing of its states."""
    for learner in {type(v.made): v for v in learners if type(v.made).stage is not Learner.stage}.values():
        for model in models:
            with _told(f"learners.{learner.name}", ()):
                same = learner.made.stage(model.made) is model.made
                what = "run on the states of its model in a sweep"
                _checks.require(same, "learner", what, learner.made.describe(), "use sr.learn")


@contextmanager
def _told(path: str, names: Sequence[str]) -> Iterator[None]:
    """Let a complaint about one of ``names`` say where in the spec it stands."""
    try:
        yield
    except BadInput as error:
        words = str(error).split(" ")
        if words[0] in names:
            raise BadInput(f"{path}.{error}") from None
        if words[0] == "unknown" and words[1] in names:
            raise BadInput(f"unknown {path}.{' '.join(words[1:])}") from None
        raise BadInput(f"{path}: {error}") from None


def _cell(value: Any) -> Any:
    """A value as a row has it: None, a flag, a number, or text."""
    if value is None or isinstance(value, bool | str):
        return value
    return float(value) if isinstance(value, int | float) else json.dumps(value)


def as_text(value: Any) -> str | None:
    """A cell as text."""
    return value if value is None or isinstance(value, str) else json.dumps(value)
