"""What is the same: ids of runs, computed from their content, and policies that behave the same.

    id = H( format | model | γ | learner | exploration | step size | episodes | max_steps | snapshots | seed )

Two runs have the same id only if they compute the same. Names in the spec and what is kept do not matter. The id covers
the model's outcome table, the learner's class and dials, and the code of classes that are not part of this package.
:data:`FORMAT` stands for the code of this package: it is raised when the same spec gives other numbers.

A sweep finds the same few policies many times, and judges each once. What a policy does from the origin depends only on its actions in the
states that it reaches,

    R(π) = { s : π can lead from the origin to s },

so policies that agree on their R are equivalent. They are judged on the model without the other states, which do not
enter the equations. The numbers are those of :func:`safereplay.evaluate` from the origin. They are equal to the last bit
unless the elimination there takes a pivot among the other states.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import json
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from math import nan
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from .._checks import Bools, Ints
from .._config import Config, plain
from ..errors import BadInput
from ..kernels.compile import PACKAGE
from ..learners import Learner
from ..mdp import TabularMDP
from ..schedules import Exploration, StepSize
from ..theory.chain import chain_of
from ..theory.risk import RiskProfile, evaluate
from ..verdicts import verdict

if TYPE_CHECKING:
    from .work import Terms


K = TypeVar("K")
V = TypeVar("V")

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
    know_table(mdp, hasher.hexdigest())
    return hasher.hexdigest()


def know_table(mdp: TabularMDP, digest: str) -> TabularMDP:
    """Remember the digest of a model's table, for a model whose digest another process has computed; returns the model."""
    key = id(mdp)
    _tables[key] = weakref.ref(mdp, lambda _: _tables.pop(key, None)), digest
    return mdp


def config_digest(config: Config) -> str:
    """A digest of a learner, a scheme or a schedule: its class, its dials, and the code of classes outside this package."""
    try:
        return _config_digest(config)
    except TypeError:  # a field is not hashable
        return _config_digest.__wrapped__(config)


@lru_cache(maxsize=1 << 16)
def _config_digest(config: Config) -> str:
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
    configs = [config_digest(config) for config in (learner, exploration, step_size)]
    return digest([FORMAT, table_digest(mdp), mdp.gamma, configs, terms.episodes, terms.max_steps, terms.curves])


def seeded_id(point: str, seed: int) -> str:
    """The id of one seed of a point: 32 hex digits."""
    return hashlib.blake2b(f"{point} {seed}".encode(), digest_size=DIGITS // 2).hexdigest()


MODELS = 64  # models in the cache
POLICIES = 1 << 14  # policies in the cache per model ...
ACTIONS = 1 << 20  # ... and all their actions together
ROOM = 1 << 30  # bytes of all values of a cache


class Latest(Generic[K, V]):
    """A cache of the latest values: at most so many, and of ROOM bytes together, or one. Threads may share it."""

    def __init__(self, most: int, size: Callable[[V], int] = lambda _: 0) -> None:
        self._most, self._size, self._lock = most, size, threading.Lock()
        self._known: dict[K, V] = {}

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if it is not known."""
        found = self._known.get(key)
        if found is None:
            made = make()
            with self._lock:
                found = self._known.setdefault(key, made)
                while len(self._known) > 1 and (len(self._known) > self._most or self._full()):
                    del self._known[next(iter(self._known))]
        return found

    def _full(self) -> bool:
        return sum(map(self._size, self._known.values())) > ROOM


class Risk(NamedTuple):
    """The undiscounted return from the origin and its risk; nan where it cannot be computed."""

    mean: float
    std: float
    p_unsafe: float
    p_never: float
    cvar10: float


class Judged:
    """One policy on one model; each number is computed at its first use."""

    def __init__(self, mdp: TabularMDP, policy: Ints, reached: Bools) -> None:
        self._mdp, self._policy, self._reached = mdp, policy, reached
        self._discounted: dict[float, float] = {}

    @cached_property
    def verdict(self) -> str:
        """The policy's verdict (see :func:`safereplay.verdict`)."""
        return verdict(self._mdp, self._policy)

    @cached_property
    def moments(self) -> tuple[float, float, float, float]:
        """(mean, std, p_unsafe, p_never), which need no distribution of the return."""
        return _moments(self._profile())

    @cached_property
    def risk(self) -> Risk:
        """The risk as :func:`safereplay.evaluate` computes it."""
        found = self._profile()
        self.moments = _moments(found)  # known from now on
        return Risk(*self.moments, nan if found is None else found.cvar(0.1))

    def discounted(self, gamma: float) -> float:
        """The mean discounted return."""
        if gamma not in self._discounted:
            part, start = self._part().with_gamma(gamma), self._mdp.origin
            found = evaluate(part, self._policy, start=start, discounted=True, threads=1, quiet=True)
            self._discounted[gamma] = found.mean
        return self._discounted[gamma]

    def _profile(self) -> RiskProfile | None:
        """None if the end of an episode is too unlikely for floating-point arithmetic."""
        try:
            return evaluate(self._part(), self._policy, start=self._mdp.origin, threads=1, quiet=True)
        except BadInput:
            return None

    def _part(self) -> TabularMDP:
        """The model without the states that the policy does not reach."""
        mdp = self._mdp
        keep = self._reached[mdp.pair // mdp.n_actions]
        row = np.searchsorted(mdp.pair[keep], np.arange(mdp.n_pairs + 1)).astype(np.int64)
        columns = {name: getattr(mdp, name)[keep] for name in ("p", "s_next", "r", "terminal", "unsafe")}
        return replace(mdp, row=row, **columns)


def _moments(found: RiskProfile | None) -> tuple[float, float, float, float]:
    return (nan, nan, nan, nan) if found is None else (found.mean, found.std, found.p_unsafe, found.p_never)


class Judge:
    """A cache of judged policies of one model. Threads may share it.

    >>> import safereplay as sr
    >>> right = Judge(sr.grids.volatile()).of(np.ones(20, np.int64))
    >>> right.verdict, round(right.risk.mean)
    ('risky', 210)
    """

    def __init__(self, mdp: TabularMDP) -> None:
        self._mdp, room = mdp, max(4, min(POLICIES, ACTIONS // mdp.n_states))
        self._whole: Latest[bytes, Judged] = Latest(room)
        self._by_part: Latest[bytes, Judged] = Latest(room)

    @property
    def nbytes(self) -> int:
        """The bytes of its model."""
        return sum(getattr(self._mdp, name).nbytes for name in TABLE)

    def of(self, policy: Ints) -> Judged:
        """The judged policy for a policy [S]."""
        return self._whole.get(_digest(policy), lambda: self._equivalent(policy))

    def _equivalent(self, policy: Ints) -> Judged:
        reached = chain_of(self._mdp, policy).reached(np.eye(1, self._mdp.n_states, self._mdp.origin)[0])
        part = _digest(np.where(reached, policy, -1))
        return self._by_part.get(part, lambda: Judged(self._mdp, policy, reached))


_judges: Latest[str, Judge] = Latest(MODELS, lambda judge: judge.nbytes)


def judge_of(mdp: TabularMDP) -> Judge:
    """The judge of a model, cached by the model's content without γ."""
    return _judges.get(table_digest(mdp), lambda: Judge(mdp))


def _digest(policy: Ints) -> bytes:
    return hashlib.blake2b(policy.tobytes(), digest_size=16).digest()
