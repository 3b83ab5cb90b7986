"""Ids of runs, computed from their content.

    id = H( format | model | γ | learner | exploration | step size | episodes | max_steps | snapshots | seed )

Two runs have the same id only if they compute the same. Names in the spec and what is kept do not matter. The id covers
the model's outcome table, the learner's class and dials, and the code of classes that are not part of this package.
:data:`FORMAT` stands for the code of this package: it is raised when the same spec gives other numbers.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import json
import sys
import textwrap
import weakref
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from .._config import Config, plain
from ..kernels.compile import PACKAGE
from ..learners import Learner
from ..mdp import TabularMDP
from ..schedules import Exploration, StepSize

if TYPE_CHECKING:
    from .work import Terms

FORMAT = 1  #: the version of what a run computes and of its row
DIGITS = 32  #: hex digits of an id
FOREIGN = frozenset({*sys.stdlib_module_names, PACKAGE, "numba", "numpy", "scipy"})  # modules that users do not edit
KINDS = {"b": "|b1", "i": "<i8", "u": "<i8", "f": "<f8"}
TABLE = ("row", "p", "s_next", "r", "terminal", "unsafe", "start")

_classes: weakref.WeakKeyDictionary[type, str | None] = weakref.WeakKeyDictionary()
_tables: dict[int, tuple[weakref.ref[TabularMDP], str]] = {}


def digest(content: Any) -> str:
    """A digest of plain JSON content; numbers count by their value, so 1 equals 1.0.

    >>> digest({"v": 1}) == digest({"v": 1.0}), digest({"v": 1}) == digest({"v": True})
    (True, False)
    """
    text = json.dumps(_canonical(plain(content)), sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=DIGITS // 2).hexdigest()


def _canonical(x: Any) -> Any:
    if isinstance(x, dict):
        return {str(key): _canonical(value) for key, value in x.items()}
    if isinstance(x, list):
        return [_canonical(value) for value in x]
    if isinstance(x, int) and not isinstance(x, bool) and int(float(x)) == x:
        return float(x)
    return x + 0.0 if isinstance(x, float) else x  # −0.0 is 0.0


def table_digest(mdp: TabularMDP) -> str:
    """A digest of a model's outcomes and start states, without γ and the name."""
    known = _tables.get(id(mdp))
    if known is not None and known[0]() is mdp:
        return known[1]
    hasher = hashlib.blake2b(repr((mdp.n_states, mdp.n_actions, mdp.origin)).encode(), digest_size=DIGITS // 2)
    for name in TABLE:
        array = getattr(mdp, name)
        array = np.ascontiguousarray(array, KINDS[array.dtype.kind])  # the values count, not their dtype
        hasher.update(f"{name} {array.dtype.str} {array.shape}".encode())
        hasher.update(array.data)
    key = id(mdp)
    _tables[key] = weakref.ref(mdp, lambda _: _tables.pop(key, None)), hasher.hexdigest()
    return _tables[key][1]


def config_digest(config: Config) -> str:
    """A digest of a learner, a scheme or a schedule: its class, its dials, and the code of classes outside this package."""
    parts = [config, *(x for x in vars(config).values() if isinstance(x, Config))]
    return digest([config.to_dict(), [own_code(type(part)) for part in parts]])


def own_code(kind: type) -> str | None:
    """A digest of the code of a class outside this package; None for a class of this package."""
    if kind not in _classes:
        own = [c for c in kind.__mro__ if c is not object and c.__module__.partition(".")[0] != PACKAGE]
        _classes[kind] = digest([[c.__qualname__, sorted(_members(c))] for c in own]) if own else None
    return _classes[kind]


def _members(kind: type) -> Iterator[list[str]]:
    """What a class defines: functions by their code, constants by their value; without what dataclasses generate."""
    for name, member in vars(kind).items():
        body = getattr(member, "__func__", getattr(member, "fget", member))
        if isinstance(body, FunctionType) and (not name.startswith("__") or name == "__post_init__"):
            yield [name, code_digest(body)]
        elif not name.startswith("_") and isinstance(member, str | int | float | tuple):
            yield [name, repr(member)]


def code_digest(function: Callable[..., Any], seen: frozenset[int] = frozenset()) -> str:
    """A digest of a function: its source, and the globals and closures that it uses.

    >>> code_digest(lambda x: x + 1) == code_digest(lambda x: x + 2)
    False
    """
    body = inspect.unwrap(getattr(function, "py_func", function))
    if not isinstance(body, FunctionType) or id(body) in seen:
        return digest(getattr(body, "__qualname__", repr(type(body))))
    inner = seen | {id(body)}
    named = {name: body.__globals__[name] for name in _names(body.__code__) if name in body.__globals__}
    cells = zip(body.__code__.co_freevars, body.__closure__ or (), strict=True)
    named |= {name: cell.cell_contents for name, cell in cells}
    outside = [(name, value) for name, value in sorted(named.items()) if not hasattr(builtins, name)]
    around = [[name, _outside(value, inner, _names(body.__code__))] for name, value in outside]
    return digest([_source(body), repr(body.__defaults__), around])


def _outside(value: Any, seen: frozenset[int], names: set[str]) -> str:
    """A digest of a value that a function uses: functions by their code, numbers and arrays by their values, user modules
    by the names that the function uses of them, and other modules by their name.
    """
    if isinstance(value, ModuleType):
        package = value.__name__.partition(".")[0]
        used = () if package in FOREIGN else sorted(names & set(vars(value)))
        return digest([value.__name__, [[name, _outside(vars(value)[name], seen, names)] for name in used]])
    if isinstance(value, np.ndarray):
        return digest([value.dtype.str, list(value.shape), hashlib.blake2b(value.tobytes()).hexdigest()])
    if isinstance(value, np.generic):
        return f"{value.dtype.str} {value!r}"
    if isinstance(getattr(value, "py_func", value), FunctionType):
        return code_digest(value, seen)
    return repr(value) if isinstance(value, str | int | float | tuple | frozenset | None) else repr(type(value))


def _names(code: CodeType) -> set[str]:
    inner = [_names(c) for c in code.co_consts if isinstance(c, CodeType)]
    return set(code.co_names).union(*inner)


def _source(function: FunctionType) -> str:
    """A function's source without layout and comments; its byte code if there is no source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        first = tree.body[0]
        if isinstance(first, ast.FunctionDef):
            return ast.unparse(first)
    except (OSError, TypeError, SyntaxError):
        pass
    return _byte_code(function.__code__)


def _byte_code(code: CodeType) -> str:
    constants = [_byte_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return repr((code.co_code.hex(), constants, code.co_names, code.co_varnames))


def point_id(mdp: TabularMDP, learner: Learner, exploration: Exploration, step_size: StepSize, terms: Terms) -> str:
    """The digest that all seeds of a point share."""
    configs = [_config_digest(config) for config in (learner, exploration, step_size)]
    return digest([FORMAT, table_digest(mdp), mdp.gamma, configs, terms.episodes, terms.max_steps, terms.curves])


def _config_digest(config: Config) -> str:
    try:
        return _remembered(config)
    except TypeError:  # a field is not hashable
        return config_digest(config)


@lru_cache(maxsize=1 << 16)
def _remembered(config: Config) -> str:
    return config_digest(config)


def seeded_id(point: str, seed: int) -> str:
    """The id of one seed of a point."""
    return hashlib.blake2b(f"{point} {seed}".encode(), digest_size=DIGITS // 2).hexdigest()


def run_id(
    mdp: TabularMDP, learner: Learner, exploration: Exploration, step_size: StepSize, terms: Terms, seed: int
) -> str:
    """The id of a run: 32 hex digits from its content.

    >>> import safereplay as sr
    >>> from safereplay.engines.work import Terms
    >>> rest = sr.QLearning(), sr.EpsilonGreedy(), sr.PowerStep(), Terms(100, 1000, ("verdict",), 0), 7
    >>> run_id(sr.grids.cliff(), *rest) == run_id(sr.grids.cliff(slip=0.1), *rest)        # the same model
    True
    """
    return seeded_id(point_id(mdp, learner, exploration, step_size, terms), seed)
