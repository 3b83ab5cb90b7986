"""Hyper-parameters as frozen dataclasses with a JSON round trip.

The kind of a :class:`Config` is its class name. ``to_dict`` gives plain JSON types; ``Config.from_dict``
finds the class by that name. A user's own subclass is known as soon as it is defined.
"""

import numbers
from dataclasses import field, fields, is_dataclass
from math import isfinite
from typing import Any, ClassVar, NamedTuple

from . import _checks, catalog

#: Symbols of dials.
SYMBOLS = {"alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "eta": "η", "theta": "θ"}
SYMBOLS |= {"kappa": "κ", "lambda": "λ", "lam": "λ", "xi": "ξ", "temperature": "τ"}


class Dial(NamedTuple):
    """Metadata of a number that users set, read by the API, the command line, the playground and the docs."""

    interval: str  #: interval of its values, such as '[0, 1)'
    label: str = ""  #: short name
    hint: str = ""  #: one line on its effect
    slider: tuple[float, float, float] | None = None  #: lowest, highest and step of the slider in the playground


def dial(default: float, interval: str = "(-inf, inf)", *more: Any) -> Any:
    """A dataclass field that is a dial: its default, then the fields of :class:`Dial`."""
    return field(default=default, metadata={"dial": Dial(interval, *more)})


def plain(value: Any) -> Any:
    """A value in plain JSON types; numbers that are not finite become None."""
    if isinstance(value, Config):
        return value.to_dict()
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items()}
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        value = value.tolist()
    if isinstance(value, tuple | list):
        return [plain(x) for x in value]
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value) if isfinite(value) else None


class Config:
    """The base class of everything that users configure: schemes, schedules, learners."""

    _known: ClassVar[dict[str, type["Config"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Config._known[cls.__name__] = cls

    @classmethod
    def dials(cls) -> dict[str, tuple[Dial, Any]]:
        """The dials of this class and their defaults, by name."""
        return {f.name: (f.metadata["dial"], f.default) for f in fields(cls) if "dial" in f.metadata}  # type: ignore[arg-type]

    @classmethod
    def params_names(cls) -> tuple[str, ...]:
        """The names of the numbers that compiled functions may ask for: all fields."""
        return tuple(f.name for f in fields(cls))  # type: ignore[arg-type]

    def params(self) -> tuple[float, ...]:
        """Their values, in order."""
        return tuple(float(getattr(self, name)) for name in self.params_names())

    def check_dials(self) -> None:
        """Raise an error if a dial's value is outside its interval."""
        for name, (about, _) in self.dials().items():
            _checks.between(name, getattr(self, name), about.interval)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: the kind, then the fields in order."""
        values = {f.name: plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]
        return {"kind": type(self).__name__, **values}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "Config":
        """The inverse of :meth:`to_dict`."""
        catalog.load([str(data.get("kind"))])
        kind = _checks.choice("kind", data.get("kind"), Config._known)
        given = {name: x for name, x in data.items() if name != "kind"}
        values = {k: Config.from_dict(x) if isinstance(x, dict) and "kind" in x else x for k, x in given.items()}
        cls = Config._known[kind]
        names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        for name in values:
            _checks.choice(f"field of {kind}", name, names)
        return cls(**values)
