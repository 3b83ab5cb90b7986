"""A side of the playground: one learner and its dials, as the page and its links write them.

    q        replay,v:0.5,beta:5,mixing:matched,scheme:variance        mihatsch,kappa:0.6        gaskett,beta:0.2

What is left out has its default; a learner has no other dials than its own.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

import safereplay as sr

from .. import _checks

#: The dials of each kind of learner, with the values they begin from.
KINDS: dict[str, dict[str, Any]] = {
    "q": {},
    "replay": {"v": 0.5, "beta": 5.0, "mixing": "literal", "scheme": "variance"},
    "mihatsch": {"kappa": 0.6},
    "gaskett": {"beta": 0.2},
    "worst-case": {},
    "worst-transition": {},
}
SCHEMES: dict[str, type[sr.Scheme]] = {"variance": sr.VarianceReplay, "score": sr.ScoreReplay}
BOUNDS = {"v": "[0, 0.9999]", "kappa": "[-0.99, 0.99]"}
BETAS = {"replay": "[-100, 100]", "gaskett": "[0, 1]"}
WORDS = {"mixing": ("literal", "matched"), "scheme": tuple(SCHEMES)}


@dataclass(frozen=True)
class Side:
    """A learner's kind and its dials; None for those it does not have."""

    kind: str
    v: float | None = None
    beta: float | None = None
    kappa: float | None = None
    mixing: str | None = None
    scheme: str | None = None

    @staticmethod
    def parse(text: str) -> Side:
        """A side from its text.

        >>> Side.parse("replay,v:0.3,mixing:matched").to_dict()
        {'kind': 'replay', 'v': 0.3, 'beta': 5.0, 'mixing': 'matched', 'scheme': 'variance'}
        """
        kind, *parts = text.split(",")
        dials = dict(KINDS[_checks.choice("learner", kind, KINDS)])
        for part in parts:
            name, _, value = part.partition(":")
            _checks.require(name in dials, f"dial of {kind}", f"be one of {', '.join(dials) or 'none'}", name)
            dials[name] = _checks.choice(name, value, WORDS[name]) if name in WORDS else _number(kind, name, value)
        return Side(kind, **dials)

    @property
    def text(self) -> str:
        """The text that :meth:`parse` reads."""
        return ",".join([self.kind, *(f"{name}:{_plain(x)}" for name, x in self.dials().items())])

    def to_dict(self) -> dict[str, Any]:
        """As the page holds it."""
        return {"kind": self.kind, **self.dials()}

    def dials(self) -> dict[str, Any]:
        """The dials that this learner has."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: values[name] for name in KINDS[self.kind]}

    def learner(self) -> sr.Learner:
        """The learner itself."""
        if self.kind == "replay":
            scheme = SCHEMES[str(self.scheme)](beta=self.beta)  # type: ignore[call-arg]
            return sr.ReplayQLearning(scheme, v=float(self.v or 0.0), mixing=str(self.mixing))
        makers: dict[str, Any] = {
            "q": sr.QLearning,
            "mihatsch": sr.RiskSensitive,
            "gaskett": sr.Pessimistic,
            "worst-case": sr.WorstCase,
            "worst-transition": sr.WorstTransition,
        }
        return makers[self.kind](**self.dials())  # type: ignore[no-any-return]


def _number(kind: str, name: str, value: str) -> float:
    return _checks.between(name, number(name, value), BETAS[kind] if name == "beta" else BOUNDS[name])


def number(name: str, text: str) -> float:
    """A finite number from text.

    >>> number("goal", "-1.5")
    -1.5
    """
    try:
        value = float(text) if text.isascii() and "_" not in text else float("nan")
    except ValueError:
        value = float("nan")
    _checks.require(isfinite(value), name, "be a number", text)
    return value


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"
