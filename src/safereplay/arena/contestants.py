"""Who takes part: a learner of the catalog over its dial, or a scheme of the catalog as replay over v, in both mixings.

A learner says itself what a comparison turns (``DIAL``) and where (``SETTINGS``). A scheme is run as ReplayQLearning over
:data:`SHARES`. At v = 0 nothing is replayed, whatever the scheme: that is Q-learning, and is run once for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from .. import catalog
from ..learners import Learner, QLearning, ReplayQLearning

PLAIN = "q"
REPLAY = "replay"  #: of the catalog's learners the one that needs a scheme
OURS = "variance"  #: the paper's scheme
SHARES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85)
MIXINGS = ("literal", "matched")
GREEK = {
    "alpha": "α",
    "beta": "β",
    "epsilon": "ε",
    "kappa": "κ",
    "theta": "θ",
    "delta": "δ",
    "lambda": "λ",
    "lam": "λ",
    "xi": "ξ",
    "eta": "η",
}


@dataclass(frozen=True)
class Contestant:
    """One who takes part: what the page calls it, what its dial is, and the learner at each setting.

    >>> [one.label for one in contestants(["mihatsch"], ["variance"])]
    ['Mihatsch–Neuneier', 'variance replay', 'variance replay, matched']
    """

    name: str  #: the catalog's
    label: str
    dial: str  #: "" where there is none
    settings: tuple[float, ...]
    learners: tuple[Learner, ...]
    replays: bool = False  #: a scheme of replay

    @property
    def ours(self) -> bool:
        """Whether it is the paper's own."""
        return self.replays and self.name == OURS

    @property
    def given(self) -> str:
        """What it takes from the model beside its own experience."""
        return self.learners[-1].GIVEN

    def shown(self, setting: float) -> str:
        """A setting in words.

        >>> contestants(["mihatsch"], [])[0].shown(0.5)
        'κ = 0.5'
        """
        return f"{GREEK.get(self.dial, self.dial)} = {setting:g}" if self.dial else "—"


def contestants(learners: Iterable[str], schemes: Iterable[str]) -> tuple[Contestant, ...]:
    """Those that the catalog's names stand for; Algorithm 1 without a scheme is the paper's."""
    learners, schemes = list(dict.fromkeys(learners)), list(dict.fromkeys(schemes))
    if REPLAY in learners:
        learners.remove(REPLAY)
        schemes = list(dict.fromkeys([OURS, *schemes]))
    found = [_learner(name) for name in learners]
    return (*found, *(_scheme(name, mixing) for name in schemes for mixing in MIXINGS))


def _learner(name: str) -> Contestant:
    kind = catalog.learner(name)
    dial, settings = kind.DIAL, tuple(float(x) for x in kind.SETTINGS)
    if not dial or not settings:
        return Contestant(name, kind.LABEL, "", (0.0,), (kind(),))
    return Contestant(name, kind.LABEL, dial, settings, tuple(_turned(kind, dial, x) for x in settings))


def _turned(kind: type[Learner], dial: str, setting: float) -> Learner:
    """A learner at a setting of its dial; whole numbers stay whole where the dial's default is one."""
    whole = any(f.name == dial and isinstance(f.default, int) and not isinstance(f.default, bool) for f in fields(kind))
    value: Any = int(setting) if whole else setting
    return kind(**{**kind.COMPARED, dial: value})


def _scheme(name: str, mixing: str) -> Contestant:
    scheme = catalog.scheme(name)()
    replay = [QLearning() if v == 0.0 else ReplayQLearning(scheme, v=v, mixing=mixing) for v in SHARES]
    label = f"{name} replay" + (", matched" if mixing == "matched" else "")
    return Contestant(name, label, "v", SHARES, tuple(replay), replays=True)
