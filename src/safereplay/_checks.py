"""Checks of arguments, and the wording of their error messages; names for types of arrays.

Every message reads '<argument> must <condition>, got <value>', then a location or a hint. A check returns
the value in the type that the caller needs, so a constructor reads as a list of its conditions.
"""

import difflib
import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from .errors import BadInput

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
AnyArray: TypeAlias = npt.NDArray[Any]


def shown(value: object) -> str:
    """A value as shown in a message: short, on one line."""
    text = f"{value:.10g}" if isinstance(value, float) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "..."


def fail(argument: str, condition: str, value: object, hint: str = "") -> NoReturn:
    """Raise a one-line error with the argument, its condition and the value."""
    raise BadInput(f"{argument} must {condition}, got {shown(value)}" + (f"; {hint}" if hint else ""))


def require(ok: bool, argument: str, condition: str, value: object, hint: str = "") -> None:
    """Fail unless ``ok``."""
    if not ok:
        fail(argument, condition, value, hint)


def real(argument: str, value: object) -> float:
    """A finite real number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real | np.floating | np.integer):
        fail(argument, "be a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    require(math.isfinite(number), argument, "be finite", value)
    return number


def between(argument: str, value: object, interval: str) -> float:
    """A number inside an interval, written as '(0, 1)', '[0, 1)' or '[0, inf)'.

    >>> between("v", 0.5, "[0, 1)")
    0.5
    """
    number = real(argument, value)
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = number >= low if interval[0] == "[" else number > low
    below = number <= high if interval[-1] == "]" else number < high
    require(above and below, argument, f"be in {interval}", value)
    return number


def whole(argument: str, value: object, least: int, bits: int = 63) -> int:
    """A whole number of at least ``least``, and below 2**bits."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral | np.integer):
        fail(argument, "be a whole number", value)
    require(int(value) >= least, argument, f"be at least {least}", value)
    require(int(value) < 1 << bits, argument, f"be below 2**{bits}", value)
    return int(value)


def flag(argument: str, value: object) -> bool:
    """A bool; 0 and 1 are not accepted."""
    require(isinstance(value, bool | np.bool_), argument, "be True or False", value)
    return bool(value)


def choice(argument: str, value: object, options: Iterable[str]) -> str:
    """One of the named options; the error for a near miss suggests the nearest one."""
    names = sorted(options)
    if isinstance(value, str) and value in names:
        return value
    raise BadInput(f"unknown {argument} {shown(value)}; {suggestion(str(value), names)}")


def suggestion(word: str, names: Sequence[str]) -> str:
    """The end of the message for an unknown name: the nearest name, or all names."""
    near = difflib.get_close_matches(word.lower(), [n.lower() for n in names], n=1, cutoff=0.6)
    if near:
        return f"did you mean '{next(n for n in names if n.lower() == near[0])}'?"
    return "choose from " + ", ".join(names)


def finite_array(argument: str, values: Any, shape: tuple[int, ...] | None = None) -> Floats:
    """An array of finite numbers, of the given shape if there is one."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        fail(argument, "be an array of numbers", values)
    if shape is not None:
        require(array.shape == shape, argument, f"have shape {shape}", array.shape)
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        fail(argument, "be finite", float(array[where]), f"at index {where}")
    return array


def distribution(argument: str, values: Any, size: int) -> Floats:
    """A probability distribution over ``size`` entries, rescaled to sum to 1; the sum may be off by 1e-9."""
    array = finite_array(argument, values, (size,))
    require(not (array < 0).any(), argument, "have no negative entry", float(array.min(initial=0.0)))
    total = float(array.sum())
    require(abs(total - 1.0) <= 1e-9, argument, "sum to 1", total)
    return rescaled(array, np.array(total))


def rescaled(p: Floats, total: Floats) -> Floats:
    """p / total where total differs from 1 by more than rounding; otherwise p, unchanged to the last bit."""
    return np.where(np.abs(total - 1.0) > 1e-12, p / total, p)


def arguments(where: str, names: Sequence[str], offered: Iterable[str], most: int) -> None:
    """Check that a user's function has at most ``most`` arguments, all of them among ``offered``."""
    require(len(names) <= most, f"arguments of {where}", f"number at most {most}", len(names))
    for name in names:
        choice(f"argument of {where}", name, offered)


def own_names(owner: str, dials: Iterable[str], offered: Iterable[str]) -> None:
    """Check that no dial has the name of a quantity that the loop offers; the dial would never be read."""
    taken = set(offered)
    for name in dials:
        require(name not in taken, f"name of {owner}'s dial", "differ from the quantities that the loop offers", name)
