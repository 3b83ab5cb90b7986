"""Hyper-parameters as frozen dataclasses that go to JSON and back.

A :class:`Config` knows its kind by its class name. ``to_dict`` gives plain JSON types; ``Config.from_dict``
finds the class again by that name. A user's own subclass takes part as soon as it is defined.
"""

import numbers
from dataclasses import fields
from typing import Any, ClassVar

from . import _checks


def _plain(value: Any) -> Any:
    """A field as JSON has it: numpy's numbers and fractions become Python's."""
    if isinstance(value, Config):
        return value.to_dict()
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


class Config:
    """The base of everything a user configures: schemes, schedules, learners."""

    _known: ClassVar[dict[str, type["Config"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Config._known[cls.__name__] = cls

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: the kind, then the fields in order."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {
            "kind": type(self).__name__,
            **{k: _plain(v) for k, v in values.items()},
        }

    @staticmethod
    def from_dict(data: dict[str, Any]) -> "Config":
        """The inverse of :meth:`to_dict`."""
        kind = _checks.choice("kind", data.get("kind"), Config._known)
        values = {
            k: Config.from_dict(v) if isinstance(v, dict) and "kind" in v else v for k, v in data.items() if k != "kind"
        }
        cls = Config._known[kind]
        names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        for name in values:
            _checks.choice(f"field of {kind}", name, names)
        return cls(**values)
