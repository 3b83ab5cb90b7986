"""Compilation of plain functions, and the cache of compiled code.

Three levels:

``jit``         a piece of a kernel, inlined where it is used;
``kernel``      an entry point that Python calls, kept on disk;
``specialise``  an entry point built around a user's functions (a scheme's weight, a learner's update),
                kept on disk when all of them come with this package.

**Named arguments.** A user's function is plain Python and requests quantities *by name*, as in
``def log_tilt(r, beta)``. :func:`bind` turns it into a function of one tuple that holds all offered quantities.
The names also tell what a function depends on, so the loop computes only quantities that some function names.

**Cache.** numba keys its cache by the time stamp of one file, and misses changes in other files that it calls.
Ours is keyed by a digest of all kernel sources and of the bound functions, so a hit is never stale.
"""

import builtins
import hashlib
import inspect
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

import numpy as np
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.errors import NumbaError
from numba.core.registry import CPUDispatcher

F = TypeVar("F", bound=Callable[..., Any])
Array: TypeAlias = Any  #: a numpy array; numba infers its type
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
PACKAGE = __name__.partition(".")[0]


class DigestCache(FunctionCache):
    """numba's on-disk cache, keyed by a digest of all sources of the compiled code."""

    def __init__(self, py_func: Callable[..., Any], digest: str) -> None:
        super().__init__(py_func)  # type: ignore[no-untyped-call]
        self._digest = digest
        # numba unpickles no index of another version; it may name moved classes
        self._cache_file._version += source_digest()

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, Any, str]:
        return sig, codegen.magic_tuple(), self._digest


@lru_cache(maxsize=1)
def source_digest() -> str:
    """A digest of every kernel source file."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


class Piece(CPUDispatcher):
    """A compiled function without the wrappers for calls from Python, which take longer to compile than the function."""

    def __call__(self, *arguments: Any) -> Any:  # noqa: D102
        return self._with_wrappers(*arguments)

    @cached_property
    def _with_wrappers(self) -> Any:
        return njit(**OPTIONS)(self.py_func)


def jit(function: F) -> F:
    """A piece of a kernel: compiled with its callers and inlined into them."""
    compiled = njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **OPTIONS)(function)
    if isinstance(compiled, CPUDispatcher):  # otherwise compilation is disabled
        compiled.__class__ = Piece
    return cast(F, compiled)


@jit
def at(i: int) -> Any:
    """i as an unsigned index, so that the compiled code does not handle negative indices."""
    return np.uint64(i)


def kernel(function: F) -> F:
    """An entry point from Python, cached on disk between processes."""
    return specialise(function, source_digest())


def specialise(function: F, digest: str | None) -> F:
    """An entry point built as a closure over bound functions; cached on disk unless ``digest`` is None."""
    compiled = njit(no_cfunc_wrapper=True, **OPTIONS)(function)
    if digest is not None and hasattr(compiled, "py_func"):
        with suppress(RuntimeError):  # no writable cache folder: compiled again in each process
            compiled._cache = DigestCache(function, digest)
    return cast(F, compiled)


def is_kept(entry: Any) -> bool:
    """Whether the compiled code of an entry point is cached on disk."""
    return isinstance(getattr(entry, "_cache", None), DigestCache)


class Bound(NamedTuple):
    """A user's function, compiled to take one tuple of all offered quantities."""

    call: Callable[[tuple[float, ...]], float]
    names: frozenset[str]
    digest: str | None  #: None when the function is not this package's own
    size: int  #: length of the tuple

    def uses(self, *names: str) -> bool:
        """Whether the function names any of these quantities."""
        return not self.names.isdisjoint(names)


def parameters(function: Callable[..., Any]) -> list[str]:
    """The argument names of a function, in order."""
    return list(inspect.signature(function).parameters)


@lru_cache(maxsize=512)
def bind(function: Callable[..., float], offered: tuple[str, ...]) -> Bound:
    """Compile ``function`` to read the quantities it names from a tuple in the order of ``offered``.

    >>> tilt = bind(lambda r, beta: -beta * r, ("r", "mean", "beta"))
    >>> tilt.call((2.0, 0.0, 5.0)), tilt.uses("mean")
    (-10.0, False)
    """
    names = parameters(function)
    call = jit(CALLS[len(names)](jit(function), *(offered.index(name) for name in names)))
    made_from = (function.__module__, _code_digest(function.__code__), names, offered)  # numba imports this module
    digest = hashlib.sha256(repr(made_from).encode()).hexdigest() if _is_own(function) else None
    return Bound(call, frozenset(names), digest, len(offered))


@lru_cache(maxsize=512)
def trouble(bound: Bound) -> str | None:
    """Why a user's function cannot be compiled, in one line; None if it can."""
    if bound.digest is not None:
        return None
    try:
        bound.call((1.0,) * bound.size)
    except NumbaError as error:
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # remove numba's colour codes
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return next((line for line in lines if not line.startswith("Failed in nopython")), "no reason given")
    return None


def _is_own(function: Callable[..., Any]) -> bool:
    """Whether a function is this package's and depends on its code alone, builtins, :mod:`math` and pieces of kernels."""
    ours = getattr(function, "__module__", "").partition(".")[0] == PACKAGE
    names, known = function.__code__.co_names, getattr(function, "__globals__", {})

    def is_common(x: str) -> bool:
        if x not in known:
            return hasattr(builtins, x)
        piece = getattr(known[x], "__module__", "").startswith(__name__.rpartition(".")[0])
        return piece or known[x] is getattr(math, x, None)

    return ours and not function.__closure__ and all(map(is_common, names))


def _code_digest(code: CodeType) -> str:
    constants = tuple(_code_digest(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return hashlib.sha256(repr((code.co_code, constants, code.co_names)).encode()).hexdigest()


#: For each number of names: a function that maps f and their positions to a function of one tuple. (1.0·f is a float for
#: any result of f; numba has no float(bool).) Written out, since composing them would compile one function per name.
CALLS: tuple[Callable[..., Any], ...] = (
    lambda f: lambda x: 1.0 * f(),
    lambda f, a: lambda x: 1.0 * f(x[a]),
    lambda f, a, b: lambda x: 1.0 * f(x[a], x[b]),
    lambda f, a, b, c: lambda x: 1.0 * f(x[a], x[b], x[c]),
    lambda f, a, b, c, d: lambda x: 1.0 * f(x[a], x[b], x[c], x[d]),
    lambda f, a, b, c, d, e: lambda x: 1.0 * f(x[a], x[b], x[c], x[d], x[e]),
    lambda f, a, b, c, d, e, g: lambda x: 1.0 * f(x[a], x[b], x[c], x[d], x[e], x[g]),
    lambda f, a, b, c, d, e, g, h: lambda x: 1.0 * f(x[a], x[b], x[c], x[d], x[e], x[g], x[h]),
    lambda f, a, b, c, d, e, g, h, i: lambda x: 1.0 * f(x[a], x[b], x[c], x[d], x[e], x[g], x[h], x[i]),
    lambda f, a, b, c, d, e, g, h, i, j: lambda x: 1.0 * f(x[a], x[b], x[c], x[d], x[e], x[g], x[h], x[i], x[j]),
)
MOST_NAMES = len(CALLS) - 1  #: maximum number of arguments of a function


def digest_of(bounds: Sequence[Bound], *settings: Any) -> str | None:
    """One digest for a closure over ``bounds`` and constant settings; None if it must not be cached on disk."""
    if any(b.digest is None for b in bounds):
        return None
    made_from = (source_digest(), [b.digest for b in bounds], settings)
    return hashlib.sha256(repr(made_from).encode()).hexdigest()
