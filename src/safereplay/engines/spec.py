"""A study as one small file: models, learners, ranges, seeds, and what to keep.

    episodes = 20_000
    seeds = 20                                   # or a list, or { first = 100, count = 20 }
    keep = ["policy", "verdict", "risk"]
    [models.cliff]                               # source = "cliff" unless another is given
    gamma = [0.9, 0.95]
    [learners.replay]                            # kind = "replay" unless another is given
    v = { from = 0.0, to = 0.9, points = 10 }
    scheme = { kind = "VarianceReplay", beta = [1.0, 5.0] }

Every table stands for the tables that its ranges make (:mod:`safereplay.engines.tables`). A *point* is one combination
of them. All are built, and so checked, before the first run. Only the tables are held in memory: points and runs are
generated when they are needed.
"""

from __future__ import annotations

import importlib
import json
import sys
import tomllib
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from .. import _checks, _files
from .._config import Config, plain
from ..errors import BadFile, BadInput
from ..runs import seed_list
from ..schedules import EpsilonGreedy, Exploration, PowerStep, StepSize
from .identity import FORMAT, digest, own_code, point_id, seeded_id, table_digest
from .tables import Variant, as_text, compile_all, learners_of, models_of, refuse_other_stages, schedules_of
from .work import KEEPS, Point, Run, Terms

KEYS = ("episodes", "seeds", "seed", "keep", "curves", "max_steps", "import")
ALGORITHM = "the algorithm"
TABLES = ("models", "learners", "exploration", "step_size")


@dataclass(frozen=True, eq=False)
class Spec:
    """A study, read and checked.

    >>> spec = load_spec({"models": {"cliff": {"gamma": [0.9, 0.95]}}, "learners": {"q": {}}, "seeds": 3})
    >>> spec
    Spec(2 points × 3 seeds = 6 runs of 50,000 episodes)
    >>> [(run.point.model, run.point.mdp.gamma, run.seed) for run in spec.runs()][2:4]
    [('cliff', 0.9, 2), ('cliff', 0.95, 0)]
    """

    plain: dict[str, Any] = field(repr=False)  #: the spec as written
    terms: Terms
    seeds: Sequence[int]
    models: tuple[Variant, ...]
    learners: tuple[Variant, ...]
    explorations: tuple[Variant, ...]
    step_sizes: tuple[Variant, ...]
    file: Path | None = None

    def __repr__(self) -> str:
        return (
            f"Spec({self.n_points:,} points × {len(self.seeds):,} seeds = {len(self):,} runs "
            f"of {self.terms.episodes:,} episodes)"
        )

    @property
    def n_points(self) -> int:
        """The number of points; equal points with two names count twice."""
        return len(self.models) * len(self.learners) * len(self.explorations) * len(self.step_sizes)

    def __len__(self) -> int:
        return self.n_points * len(self.seeds)

    @cached_property
    def columns(self) -> dict[str, str]:
        """The columns that describe a point, in order, and whether each is text, a flag or a number."""
        learners = [v.columns for v in self.learners]
        dials = [name for columns in learners for name in list(columns)[: list(columns).index("scheme")]]
        scheme = [name for columns in learners for name in list(columns)[list(columns).index("scheme") :]]
        heads = ["model", "gamma"], ["learner", "kind"], ["scheme"], ["exploration"], ["step_size"]
        parts = (self.models, None, None, self.explorations, self.step_sizes)
        names: list[str] = []
        for head, rest, group in zip(heads, ([], dials, scheme, [], []), parts, strict=True):
            names += [*head, *rest, *(name for v in group or () for name in v.columns)]
        return {name: self._kind(name) for name in dict.fromkeys(names)}

    def _kind(self, name: str) -> str:
        everyone = (*self.models, *self.learners, *self.explorations, *self.step_sizes)
        kinds = {type(v.columns[name]) for v in everyone if v.columns.get(name) is not None}
        if kinds - {bool, float}:
            return "text"
        return "flag" if kinds == {bool} else "number"

    @cached_property
    def content(self) -> dict[str, str]:
        """Digests of what the names stand for: each model's outcomes, and the code of classes outside this package."""
        models = {f"models.{v.name} at {_shown(v.columns)}": table_digest(v.made) for v in self.models}
        configs = [v.made for v in (*self.learners, *self.explorations, *self.step_sizes)]
        parts = [*configs, *(x for config in configs for x in vars(config).values() if isinstance(x, Config))]
        code = {f"code of {kind.__name__}": stamp for kind in {type(x) for x in parts} if (stamp := own_code(kind))}
        return models | dict(sorted(code.items())) | {ALGORITHM: str(FORMAT)}

    @cached_property
    def digest(self) -> str:
        """One digest of the spec and of its content."""
        return digest([self.plain, self.content])

    def points(self) -> Iterator[tuple[str, Point]]:
        """Generate the points and their ids; a point that occurred before under another name is skipped."""
        seen: set[str] = set()
        names = dict.fromkeys(self.columns)
        for model, learner, exploration, step_size in product(
            self.models, self.learners, self.explorations, self.step_sizes
        ):
            parts = (model.made, learner.made, exploration.made, step_size.made)
            key = point_id(*parts, self.terms)
            if key not in seen:
                seen.add(key)
                columns = names | model.columns | learner.columns | exploration.columns | step_size.columns
                text = {name: as_text(x) for name, x in columns.items() if self.columns[name] == "text"}
                yield key, Point(model.name, *parts, columns | text)

    def lacking(self, key: str, done: Set[bytes]) -> Iterator[tuple[str, int]]:
        """The ids and seeds of a point that are not in ``done``, a set of ids as bytes."""
        for seed in self.seeds:
            identity = seeded_id(key, seed)
            if bytes.fromhex(identity) not in done:
                yield identity, seed

    def runs(self, done: Set[bytes] = frozenset()) -> Iterator[Run]:
        """The runs that are not done yet, point by point."""
        for key, point in self.points():
            for identity, seed in self.lacking(key, done):
                yield Run(identity, point, seed)


def load_spec(source: str | Path | dict[str, Any]) -> Spec:
    """A spec from a TOML file (or JSON by its ending), or from a dictionary of the same shape."""
    if isinstance(source, dict):
        try:
            return _spec(json.loads(json.dumps(plain(source), default=list)), None)
        except TypeError:
            _checks.fail("spec", "hold plain values: numbers, text, lists and tables", source)
    _checks.require(isinstance(source, str | Path), "spec", "be a file or a dictionary", source)
    file = Path(source)
    return _spec(_read(file), file)


def _read(file: Path) -> dict[str, Any]:
    try:
        text = _files.read_text(file)
    except FileNotFoundError:
        raise BadFile(f"spec must be an existing file, got '{file}'") from None
    except OSError as error:
        raise BadFile(f"spec must be a text file that can be read, got '{error.strerror}'") from None
    except UnicodeDecodeError as error:
        raise BadFile(f"spec must be a text file that can be read, got {error}") from None
    try:
        found = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFile(f"{file} must be {'JSON' if file.suffix == '.json' else 'TOML'}, got: {error}") from None
    _checks.require(isinstance(found, dict), str(file), "hold a table", found)
    return dict(found)


def _spec(told: dict[str, Any], file: Path | None) -> Spec:
    for name in told:
        _checks.choice("key of the spec", name, (*KEYS, *TABLES))
    _import(told.get("import", []), file)
    seed = _checks.whole("seed", told.get("seed", 0), 0, 64)
    folder = Path() if file is None else file.parent
    models = [v for name, table in _named(told, "models") for v in models_of(name, table, seed, folder)]
    learners = [v for name, table in _named(told, "learners") for v in learners_of(name, table, seed)]
    explorations = list(schedules_of(told, "exploration", Exploration, EpsilonGreedy, seed))
    step_sizes = list(schedules_of(told, "step_size", StepSize, PowerStep, seed))
    compile_all(learners, explorations, step_sizes)
    refuse_other_stages(models, learners)
    parts = (tuple(models), tuple(learners), tuple(explorations), tuple(step_sizes))
    return Spec(told, _terms(told), _seeds(told.get("seeds", 20)), *parts, file)


def _terms(told: dict[str, Any]) -> Terms:
    keep = told.get("keep", ["policy", "verdict", "risk"])
    _checks.require(isinstance(keep, list), "keep", f"be a list of {', '.join(KEEPS)}", keep)
    for name in keep:
        _checks.choice("keep", name, KEEPS)
    episodes = _checks.whole("episodes", told.get("episodes", 50_000), 1)
    curves = 0
    if "curves" in keep:
        curves = _checks.whole("curves", told.get("curves", min(50, episodes)), 1)
        _checks.require(curves <= episodes, "curves", f"be at most {episodes} (episodes)", curves)
    else:
        _checks.require("curves" not in told, "curves", "go with 'curves' in keep", told.get("curves"))
    max_steps = _checks.whole("max_steps", told.get("max_steps", 1_000), 1)
    return Terms(episodes, max_steps, tuple(name for name in KEEPS if name in keep), curves)


def _seeds(seeds: Any) -> Sequence[int]:
    """A number n for 0 to n − 1, a list, or {first, count}."""
    if isinstance(seeds, dict):
        for name in seeds:
            _checks.choice("key of seeds", name, ("first", "count"))
        first = _checks.whole("seeds.first", seeds.get("first", 0), 0, 64)
        count = _checks.whole("seeds.count", seeds.get("count", 20), 1, 32)
        return range(first, _checks.whole("the last of seeds", first + count - 1, 0, 64) + 1)
    if isinstance(seeds, list):
        return tuple(dict.fromkeys(seed_list(seeds)))
    return range(_checks.whole("seeds", seeds, 1, 32))


def _import(modules: Any, file: Path | None) -> None:
    """Import the modules that define the user's classes; they may be in the spec's folder."""
    _checks.require(isinstance(modules, list), "import", "be a list of modules", modules)
    folder = str((Path() if file is None else file.parent).resolve())
    if modules and folder not in sys.path:
        sys.path.insert(0, folder)
    for name in modules:
        _checks.require(isinstance(name, str), "import", "name modules", name)
        try:
            importlib.import_module(name)
        except Exception as error:
            raise BadInput(f"import of '{name}' must work, got {type(error).__name__}: {error}") from None


def _named(told: dict[str, Any], key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables of [models] or [learners], by name."""
    tables = told.get(key, {})
    _checks.require(isinstance(tables, dict) and bool(tables), key, f"name at least one, as in [{key}.NAME]", tables)
    for name, table in tables.items():
        _checks.require(isinstance(table, dict), f"{key}.{name}", "be a table", table)
        yield name, table


def _shown(columns: dict[str, Any]) -> str:
    return ", ".join(f"{name.removeprefix('model_')}={as_text(x)}" for name, x in columns.items() if name != "model")
