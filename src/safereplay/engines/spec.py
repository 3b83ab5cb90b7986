"""A study as one small file: models, learners, ranges, seeds, and what to keep.

    episodes = 20_000
    seeds = 20                                   # or a list, or { first = 100, count = 20 }
    keep = ["policy", "verdict", "risk"]
    [models.cliff]                               # source = "cliff" unless another is given
    gamma = [0.9, 0.95]
    [learners.replay]                            # kind = "replay" unless another is given
    v = { from = 0.0, to = 0.9, points = 10 }    # a grid; scale = "log" for equal ratios
    scheme = { kind = "VarianceReplay", beta = [1.0, 5.0] }

A value may also be random: ``{ random = [0.1, 10.0], scale = "log" }``, as many as the table's ``samples``, drawn together.
A table stands for the product of its lists and grids, once per draw. The k-th draw of a value depends only on (the spec's
seed, the value's path, k): it is the same each time, and more samples keep the earlier ones. Values are rounded to twelve
digits, so that a grid's 0.3 equals the literal 0.3.

>>> [table["v"] for table in variants({"v": {"from": 0.0, "to": 0.9, "points": 4}}, "learners.replay")]
[0.0, 0.3, 0.6, 0.9]

A *point* is one combination of such tables. All are built, and so checked, before the first run. Only the tables are held
in memory: points and runs are generated when they are needed.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
import tomllib
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import product
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import _checks, _files, catalog
from .._config import Config, plain
from ..errors import BadFile, BadInput
from ..learners import Learner
from ..mdp import TabularMDP
from ..runs import seed_list
from ..schedules import EpsilonGreedy, Exploration, PowerStep, StepSize
from ..schemes import Scheme
from ..sources import model_from
from .identity import FORMAT, digest, own_code, point_id, seeded_id, table_digest
from .work import KEEPS, Point, Run, Terms

GRID = ("from", "to", "points", "scale")
RANDOM = ("random", "scale")
SCALES = ("linear", "log")
SAMPLES = "samples"


def variants(table: dict[str, Any], path: str, seed: int = 0) -> Iterator[dict[str, Any]]:
    """The plain tables that a table stands for, in order; ``path`` is its name in errors."""
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
    """The product of the alternatives of each entry."""
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
    nothing = 1e-12 * max(abs(low), abs(high))  # the rounding error of a 0 inside the range
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
    word = hashlib.blake2b(f"{seed} {path} {draw}".encode(), digest_size=8).digest()
    u = float((int.from_bytes(word, "little") >> 11) * 2.0**-53)  # in [0, 1), whatever was drawn before
    if _is_log(value, path, low, high):
        return min(max(_rounded(exp(log(low) + u * (log(high) - log(low)))), low), high)
    return min(max(_rounded(low + u * (high - low)), low), high)


def _is_log(value: dict[str, Any], path: str, low: float, high: float) -> bool:
    if _checks.choice(f"{path}.scale", value.get("scale", "linear"), SCALES) == "linear":
        return False
    _checks.require(low > 0.0 and high > 0.0, path, 'lie above 0 for scale = "log"', [low, high])
    return True


def _rounded(x: float) -> float:
    return float(f"{x:.12g}")


TAIL = ("episodes", "seed", "updates", "replays")
FIXED = ("id", "model", "gamma", "learner", "kind", "scheme", "exploration", "step_size", *TAIL)
TAKEN = {*FIXED, *(column for columns in KEEPS.values() for column in columns)}  # names that dials cannot have


class Variant(NamedTuple):
    """One model, learner or schedule that a table stands for, and its columns in the dataset."""

    name: str
    made: Any
    columns: dict[str, Any]


def models_of(name: str, table: dict[str, Any], seed: int, folder: Path) -> Iterator[Variant]:
    """The models of a table; models that differ only in γ share their arrays."""
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


def learners_of(name: str, table: dict[str, Any], seed: int, folder: Path) -> Iterator[Variant]:
    """The learners of a table; ``source`` is the file of a learner, whose dials the table overrides."""
    path, own = f"learners.{name}", {k: x for k, x in table.items() if k != "source"}
    usual = _from_file(f"{path}.source", table["source"], folder) if "source" in table else {"kind": name}
    for variant in variants(usual | own, path, seed):
        learner = _config(variant, path, Learner)
        dials = {f.name: getattr(learner, f.name) for f in fields(learner)}
        scheme = learner.replay[0] if learner.replay is not None else None
        cells = {k: _cell(x) for k, x in dials.items() if not isinstance(x, Config)}
        said = {f"learner_{k}" if k in TAKEN else k: x for k, x in cells.items()}
        of_scheme = {} if scheme is None else {f.name: _cell(getattr(scheme, f.name)) for f in fields(scheme)}
        more = {f"scheme_{k}" if k in TAKEN or k in cells else k: x for k, x in of_scheme.items()}
        head = {"learner": name, "kind": type(learner).__name__}
        yield Variant(name, learner, head | said | {"scheme": scheme and type(scheme).__name__} | more)


def _from_file(path: str, source: Any, folder: Path) -> dict[str, Any]:
    """The table of a learner's file, as ``design --out`` writes it. Its lists are values, not alternatives."""
    _checks.require(isinstance(source, str), path, "be one file", source)
    table = _files.read_json(path, beside if (beside := folder / source).is_file() else source)
    _checks.require(isinstance(table, dict), path, "hold a learner", table)
    return dict(_whole(table))


def _whole(value: Any) -> Any:
    """The same with tuples for lists."""
    if isinstance(value, dict):
        return {name: _whole(x) for name, x in value.items()}
    return tuple(map(_whole, value)) if isinstance(value, list) else value


def schedules_of(
    told: dict[str, Any], key: str, base: type[Config], usual: type[Config], seed: int
) -> Iterator[Variant]:
    """The schedules of [exploration] or [step_size]; a list of tables may have several kinds."""
    tables = told.get(key, {})
    several = isinstance(tables, list) and bool(tables)
    for i, table in enumerate(tables if several else [tables]):
        path = f"{key}[{i}]" if several else key
        _checks.require(isinstance(table, dict), path, "be a table", table)
        for variant in variants({"kind": usual.__name__, **table}, path, seed):
            made = _config(variant, path, base)
            dials = {f"{key}_{f.name}": _cell(getattr(made, f.name)) for f in fields(made)}
            yield Variant(key, made, {key: type(made).__name__} | dials)


def _config(table: dict[str, Any], path: str, base: type[Config]) -> Any:
    """The learner, scheme or schedule that a plain table describes; its kind is a class name or a catalog name."""
    told = table.get("kind")
    short = {Learner: catalog.LEARNERS, Scheme: catalog.SCHEMES}.get(base, {})
    catalog.load([short[told].partition(":")[2] if told in short else told] if isinstance(told, str) else [])
    kinds = {name: one for name, one in Config._known.items() if issubclass(one, base)}
    named = kinds | {name: kinds.get(home.partition(":")[2]) for name, home in short.items()}
    kind = named[_checks.choice(f"{path}.kind", told, named)]
    assert kind is not None
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    values = {name: value for name, value in table.items() if name != "kind"}
    for name, value in values.items():
        _checks.choice(f"key of {path}", name, names)
        if isinstance(value, dict):
            values[name] = _config({"kind": None, **value}, f"{path}.{name}", Scheme if name == "scheme" else Config)
    with _told(path, names):
        return kind(**values)


@contextmanager
def _told(path: str, names: Sequence[str]) -> Iterator[None]:
    """Add the place in the spec to an error about one of ``names``."""
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
    """A value as a cell of a row: None, a flag, a number, or text."""
    if value is None or isinstance(value, bool | str):
        return value
    return float(value) if isinstance(value, int | float) else json.dumps(value)


def as_text(value: Any) -> str | None:
    """A cell as text."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


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
        learners = [list(v.columns) for v in self.learners]
        dials = [name for columns in learners for name in columns[: columns.index("scheme")]]
        scheme = [name for columns in learners for name in columns[columns.index("scheme") :]]
        others = (self.models, self.explorations, self.step_sizes)
        models, rates, steps = ([name for v in group for name in v.columns] for group in others)
        names = ["model", "gamma", *models, "learner", "kind", *dials, "scheme", *scheme]
        names += ["exploration", *rates, "step_size", *steps]
        everyone = (*self.models, *self.learners, *self.explorations, *self.step_sizes)
        found = {}
        for name in dict.fromkeys(names):
            kinds = {type(v.columns[name]) for v in everyone if v.columns.get(name) is not None}
            found[name] = "text" if kinds - {bool, float} else "flag" if kinds == {bool} else "number"
        return found

    @cached_property
    def content(self) -> dict[str, str]:
        """Digests of what the names stand for: each model's outcomes, and the code of classes outside this package."""
        models = {}
        for v in self.models:
            dials = [f"{k.removeprefix('model_')}={as_text(x)}" for k, x in v.columns.items() if k != "model"]
            models[f"models.{v.name} at {', '.join(dials)}"] = table_digest(v.made)
        configs = [v.made for v in (*self.learners, *self.explorations, *self.step_sizes)]
        parts = [*configs, *(x for config in configs for x in vars(config).values() if isinstance(x, Config))]
        code = {f"code of {kind.__name__}": stamp for kind in {type(x) for x in parts} if (stamp := own_code(kind))}
        files = {f"learners.{v.name}": v.made for v in self.learners if "source" in self.plain["learners"][v.name]}
        read = {name: digest(made.to_dict()) for name, made in files.items()}
        return models | read | dict(sorted(code.items())) | {ALGORITHM: str(FORMAT)}

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


def _tables_of(value: Any, inside: bool = False) -> Any:
    """A value of a dictionary in plain types; inside an object a list is one value, so it becomes a list of one."""
    if isinstance(value, Config):
        return _tables_of(value.to_dict(), inside=True)
    if isinstance(value, dict):
        return {name: _tables_of(x, inside) for name, x in value.items()}
    if isinstance(value, list) and not inside:
        return [_tables_of(x) for x in value]
    return [plain(value)] if isinstance(value, list) else plain(value)


def load_spec(source: str | Path | dict[str, Any]) -> Spec:
    """A spec from a TOML file (or JSON by its ending), or from a dictionary of the same shape."""
    if isinstance(source, dict):
        try:
            return _spec(json.loads(json.dumps(_tables_of(source), default=list)), None)
        except TypeError:
            _checks.fail("spec", "hold plain values: numbers, text, lists and tables", source)
    _checks.require(isinstance(source, str | Path), "spec", "be a file or a dictionary", source)
    file = Path(source)
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
    return _spec(dict(found), file)


def _spec(told: dict[str, Any], file: Path | None) -> Spec:
    for name in told:
        _checks.choice("key of the spec", name, (*KEYS, *TABLES))
    folder, modules = Path() if file is None else file.parent, told.get("import", [])  # of the user's classes
    _checks.require(isinstance(modules, list), "import", "be a list of modules", modules)
    if modules and str(folder.resolve()) not in sys.path:
        sys.path.insert(0, str(folder.resolve()))
    for name in modules:
        _checks.require(isinstance(name, str), "import", "name modules", name)
        try:
            importlib.import_module(name)
        except Exception as error:
            raise BadInput(f"import of '{name}' must work, got {type(error).__name__}: {error}") from None
    seed = _checks.whole("seed", told.get("seed", 0), 0, 64)
    models = [v for name, table in _named(told, "models") for v in models_of(name, table, seed, folder)]
    learners = [v for name, table in _named(told, "learners") for v in learners_of(name, table, seed, folder)]
    explorations = list(schedules_of(told, "exploration", Exploration, EpsilonGreedy, seed))
    step_sizes = list(schedules_of(told, "step_size", StepSize, PowerStep, seed))
    parts = (tuple(models), tuple(learners), tuple(explorations), tuple(step_sizes))
    bound: set[tuple[Any, ...]] = set()  # every program is bound once, to find code that numba cannot compile
    for learner, rate, step_size in product(*([v.made for v in group] for group in parts[1:])):
        kind = (type(learner), learner.replay and type(learner.replay[0]), type(rate), type(step_size))
        if kind not in bound:
            bound.add(kind)
            learner.recipe(rate, step_size)
    for variant in step_sizes:
        with _told("step_size", ()):
            variant.made.table()
    for variant, model in product(learners, models):
        if variant.made.replay is not None:
            with _told(f"learners.{variant.name}", ()):
                variant.made.replay[0].check_model(model.made)
    staged = {type(v.made): v for v in learners if type(v.made).training_model is not Learner.training_model}
    for variant, model in product(staged.values(), models):  # rows cannot describe the states of another model
        with _told(f"learners.{variant.name}", ()):
            same = variant.made.training_model(model.made) is model.made
            what = "run on the states of its model in a sweep"
            _checks.require(same, "learner", what, variant.made.describe(), "use sr.learn")
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


def _named(told: dict[str, Any], key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The tables of [models] or [learners], by name."""
    tables = told.get(key, {})
    _checks.require(isinstance(tables, dict) and bool(tables), key, f"name at least one, as in [{key}.NAME]", tables)
    for name, table in tables.items():
        _checks.require(isinstance(table, dict), f"{key}.{name}", "be a table", table)
        yield name, table
