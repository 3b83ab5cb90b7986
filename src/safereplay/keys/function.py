"""The user's own key: a function of observations and actions that gives whole numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _checks
from .._types import AnyArray
from ..kernels import hashing
from .base import PairKey
from .exact import fold_exactly
from .rows import rows

NAMED = "be a function that a module holds by its name, since saving a replay buffer pickles it"
HINT = "define it with def at the top of a module, not as a lambda, a closure or a method"


@dataclass(frozen=True, repr=False)
class FunctionKey(PairKey):
    """A pair is the same if ``function(observation, action)`` gives the same whole number, or the same row of them.

    The function gets whole batches, [n, ...], and gives [n] or [n, k]. It must be importable by name. A saved key knows only
    that name, and wants the function itself when it is loaded: ``PairKey.from_state(state, function=...)``.

    >>> import numpy as np, safereplay as sr
    >>> words = sr.FunctionKey(np.maximum)(np.array([3, 1, 2]), np.array([1, 3, 1]))  # the larger of the two is all that counts
    >>> bool(words[0] == words[1]), bool(words[0] == words[2])
    (True, False)
    """

    function: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        _checks.require(callable(self.function), "function", "be a function of (observation, action)", self.function)
        _checks.require(_found_by_name(self.function), "function", NAMED, self.function, HINT)

    @property
    def name(self) -> str:
        """Where the function lives: 'module:name'."""
        return _name(self.function)

    def __call__(self, observation: Any, action: Any) -> AnyArray:
        """The words of n transitions, uint64 [n]."""
        numbers = np.asarray(self.function(observation, action))
        good = numbers.dtype.kind in "biu" and numbers.ndim in (1, 2) and len(numbers) == len(action)
        if not good:
            wanted = f"give whole numbers of shape [{len(action)}] or [{len(action)}, k]"
            _checks.fail("function", wanted, f"{numbers.dtype} {list(numbers.shape)}")
        out = np.full(len(numbers), hashing.START)
        fold_exactly(rows("function", numbers), out)
        return out

    def to_dict(self) -> dict[str, Any]:
        """The kind, and the function's name."""
        return {"kind": type(self).__name__, "function": self.name}

    def state_dict(self) -> dict[str, Any]:
        """The kind, and the function's name."""
        return self.to_dict()

    @classmethod
    def _given(cls, state: dict[str, Any], function: Callable[..., Any] | None) -> dict[str, Any]:
        wanted = str(state.get("function"))
        _checks.require(function is not None, "function", f"be given to load this key: {wanted}", None)
        _checks.require(_name(function) == wanted, "function", f"be the one that was saved: {wanted}", function)
        return {"function": function}


def _name(function: Any) -> str:
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}:{getattr(function, '__qualname__', getattr(function, '__name__', '?'))}"


def _found_by_name(function: Any) -> bool:
    """Whether its module holds this very function under its name."""
    module, _, path = _name(function).partition(":")
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is function
