"""The kinds of learners in the playground, their dials, and *sides*: one learner and its dials, as links write them.

    q        replay,v:0.5,beta:5,mixing:matched,scheme:variance        mihatsch,kappa:0.6        gaskett,beta:0.2
    design,limit:0.035        prioritised,priority:0.6,v:0.5,by:rank

Dials that are left out have their defaults. Numbers and their sliders come from the catalog's classes
(:class:`safereplay._config.Dial`); titles and choices are here. A replay also has the dials of its scheme.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple

from .. import _checks, catalog
from .._config import SYMBOLS, Dial

PLAIN, REPLAY, CAREFUL, OTHERS = "Without replay", "Replay", "Careful learners", "Other replay methods"


class Kind(NamedTuple):
    """A kind of learner: its texts, and the names of its dials that are words."""

    title: str
    group: str
    about: str
    formula: str
    words: tuple[str, ...] = ()


#: The kinds, in the menu's order.
KINDS: dict[str, Kind] = {
    "q": Kind(
        "Plain Q-learning",
        PLAIN,
        "Learns once from every step and maximises the average, in which a rare disaster counts little.",
        "Q(s,a) ← Q(s,a) + α · [ r + γ max Q(s′,b) − Q(s,a) ]",
    ),
    "replay": Kind(
        "Shaped replay",
        REPLAY,
        "Between its steps it replays old ones, bad outcomes most often. That alone makes it careful.",
        "w ∝ var(r|s,a) · e^(−βr)",
        ("mixing", "scheme"),
    ),
    "design": Kind(
        "Designed replay",
        REPLAY,
        "Set a limit on the risk. The least replay is computed that gives the best policy under it.",
        "ρ(s,a) = ( E − V + margin ) / ( E − worst )",
    ),
    "mihatsch": Kind(
        "Risk-sensitive",
        CAREFUL,
        "In every update, bad surprises count more than good ones (Mihatsch and Neuneier).",
        "Q(s,a) ← Q(s,a) + α · (1 − κ sign δ) · δ",
    ),
    "gaskett": Kind(
        "Pessimistic",
        CAREFUL,
        "It assumes that its next action may be the worst one (Gaskett).",
        "target = r + γ [ (1−β) max Q(s′,b) + β min Q(s′,b) ]",
    ),
    "worst-case": Kind(
        "Worst case",
        CAREFUL,
        "It assumes the worst outcome that ever followed an action (Heger).",
        "Q(s,a) ← min over all seen of  r + γ max Q(s′,b)",
    ),
    "worst-transition": Kind(
        "Worst next cell",
        CAREFUL,
        "It assumes the worst next cell, with the mean reward of that move.",
        "target = min over s′ of  mean r(s,a,s′) + γ max Q(s′,b)",
    ),
    "robust": Kind(
        "Robust",
        CAREFUL,
        "With probability δ it assumes the worst outcome seen (robust Q-learning).",
        "target = (1−δ) [ r + γ max Q(s′,b) ] + δ min over all seen of  r + γ max Q(s′,b)",
    ),
    "exponential": Kind(
        "Exponential utility",
        CAREFUL,
        "It values each step by its certainty equivalent, in which large losses outweigh gains.",
        "Q(s,a) = −(1/θ) log E e^(−θ [ r + γ max Q(s′,b) ])",
    ),
    "mean-variance": Kind(
        "Mean minus variance",
        CAREFUL,
        "It also learns the variance of the return, and subtracts a price for it.",
        "score = mean − risk · variance of the return",
    ),
    "error-states": Kind(
        "Price on danger",
        CAREFUL,
        "It also learns the probability of harm, and subtracts a price for it (Geibel and Wysotzki).",
        "score = (1 − weight) · value − weight · scale · P(unsafe)",
    ),
    "lagrangian": Kind(
        "Limit on danger",
        CAREFUL,
        "The price of harm rises while more episodes are harmed than the limit allows.",
        "score = value − λ · P(unsafe),   λ ← max( 0, λ + η (harm − limit) )",
    ),
    "window": Kind(
        "Uniform replay",
        OTHERS,
        "It replays its last transitions, all equally often (Lin).",
        "(s,a,r,s′) uniformly from the last N",
    ),
    "prioritised": Kind(
        "Prioritised replay",
        OTHERS,
        "It replays transitions with a large error more often (Schaul and others).",
        "P(i) ∝ (|δ_i| + ε)^priority",
        ("by",),
    ),
    "recent": Kind(
        "Recent replay",
        OTHERS,
        "It prefers recent transitions (Wang and Ross).",
        "uniformly from the last c_k = max( N η^(1000k/K), c_min )",
    ),
    "combined": Kind(
        "Combined replay",
        OTHERS,
        "Each batch of replays has the newest transition, and others at random (Zhang and Sutton).",
        "the newest, then batch − 1 uniformly from the last N",
    ),
    "backward": Kind(
        "Backward replay",
        OTHERS,
        "It replays whole episodes from their end to their start (Lee and others).",
        "target = r + γ max Q̃(s′,b),   Q̃ = β · next target + (1−β) · Q",
    ),
    "dyna": Kind(
        "Planning",
        OTHERS,
        "After each step it learns from outcomes that it remembers, of cells seen before (Dyna-Q, Sutton).",
        "n times: s,a seen before, (r,s′) from memory",
        ("model",),
    ),
}


class Choice(NamedTuple):
    """A value of a dial that is a word."""

    title: str
    about: str
    formula: str = ""


MIXINGS = {
    "matched": Choice("after each visit", "Replays of a move follow each visit of it (Theorem 1 of the paper)."),
    "literal": Choice("any time", "At any time, any move in memory may be replayed (Algorithm 1 of the paper)."),
    "anchored": Choice("instead of the visit", "A replay of the move takes the place of what just happened."),
}
SCHEMES = {
    "variance": Choice("volatile moves, worst rewards", "The paper's scheme.", "w ∝ var(r|s,a) · e^(−βr)"),
    "score": Choice(
        "low rewards, by standard score",
        "All volatile moves equally; β needs no unit.",
        "w ∝ e^(−β (r − mean) / σ)",
    ),
    "return": Choice(
        "volatile values, worst values",
        "As the paper's scheme, with what follows the reward.",
        "w ∝ var(y|s,a) · e^(−βy),   y = r + γ max Q(s′,b)",
    ),
    "error": Choice(
        "unsafe outcomes", "It uses whether an outcome is unsafe, not its reward.", "w ∝ h (1−h) · p · e^(β [unsafe])"
    ),
    "downside": Choice(
        "rewards below the mean",
        "Rare prizes are not mistaken for danger.",
        "w ∝ σ₋² · p · e^(−β min(r − mean, 0) / σ₋)",
    ),
    "bold": Choice("volatile moves, best rewards", "The paper's scheme for a bold agent.", "w ∝ var(r|s,a) · e^(|β|r)"),
    "uniform": Choice("all transitions equally", "It changes the speed of learning only.", "w = n(s,a,s′,r) / t"),
    "planning": Choice("all moves equally", "Outcomes as often as they happened.", "w ∝ n(s,a,s′,r) / n(s,a)"),
    "cvar": Choice(
        "the worst share of outcomes", "A move is valued by its worst share α (CVaR).", "w ∝ p within the worst α"
    ),
    "spectral": Choice("outcomes by rank", "Low ranks count more (a spectral risk measure).", "w = Φ(F⁺) − Φ(F⁻)"),
    "expectile": Choice(
        "bad surprises",
        "Outcomes below Q(s,a) more often; as the risk-sensitive learner.",
        "w ∝ p · (1 + κ) below Q(s,a),  p · (1 − κ) above",
    ),
    "entropic": Choice(
        "low outcomes, at random slopes",
        "A move is valued by its entropic risk.",
        "w = E_b [ p e^(−by) / Σ p e^(−by) ]",
    ),
}
WORDS: dict[str, dict[str, Choice]] = {
    "mixing": MIXINGS,
    "scheme": SCHEMES,
    "by": {
        "error": Choice("by error", "Priority is a power of the error."),
        "rank": Choice("by rank", "Priority is a power of the error's rank."),
    },
    "model": {
        "last": Choice("last outcome", "Each move is remembered by its last outcome."),
        "counts": Choice("all outcomes", "Outcomes are drawn as often as they happened."),
    },
}
LIMIT = Dial("[0, 1]", "on risk", "the largest P(unsafe)", (0.0, 1.0, 0.001))
#: Bounds of numbers in links, where those of the classes allow too much.
BOUNDS = {"v": "[0, 0.9999]", "kappa": "[-0.99, 0.99]", "alpha": "[0.001, 1]"}
BOUNDS |= {"window": "[1, 100000]", "batch": "[1, 1000]", "planning": "[0, 100]"}
MOST = {"scale": 1e6, "rate": 1e6}  # the largest value of a dial whose interval has no end
FAR = 100.0  # of all others

Value = float | int | str | None


@lru_cache(maxsize=64)
def dials_of(kind: str, scheme: str = "variance") -> dict[str, tuple[Dial | None, Value]]:
    """The dials of a kind of learner and their defaults, in the order of links; words have no Dial."""
    if kind == "design":
        return {"limit": (LIMIT, None)}  # None: a limit that depends on the world
    learner: Any = catalog.learner(kind)
    numbers: dict[str, tuple[Dial | None, Value]] = learner.dials() | (
        catalog.scheme(scheme).dials() if kind == "replay" else {}
    )
    words = {name: scheme if name == "scheme" else getattr(learner, name) for name in KINDS[kind].words}
    return numbers | {name: (None, word) for name, word in words.items()}


def bounds_of(name: str, about: Dial) -> str:
    """The interval of a number in a link; it is finite.

    >>> bounds_of("beta", Dial("(-inf, inf)")), bounds_of("scale", Dial("(0, inf)")), bounds_of("v", Dial("[0, 1]"))
    ('[-100, 100]', '(0, 1e+06]', '[0, 0.9999]')
    """
    most = f"{MOST.get(name, FAR):g}"
    return BOUNDS.get(name, about.interval.replace("(-inf", f"[-{most}").replace("inf)", f"{most}]"))


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


@dataclass(frozen=True)
class Side:
    """A learner's kind and its dials; a limit that depends on the world is None."""

    kind: str
    settings: tuple[tuple[str, Value], ...] = ()

    @staticmethod
    def parse(text: str) -> Side:
        """A side from its text.

        >>> Side.parse("replay,v:0.3,mixing:matched").to_dict()
        {'kind': 'replay', 'v': 0.3, 'beta': 5.0, 'mixing': 'matched', 'scheme': 'variance'}
        >>> Side.parse("replay,scheme:cvar,alpha:0.1").text
        'replay,v:0.5,alpha:0.1,mixing:literal,scheme:cvar'
        """
        kind, *parts = text.split(",")
        _checks.choice("learner", kind, KINDS)
        given = {name: value for name, _, value in (part.partition(":") for part in parts)}
        scheme = given.get("scheme", "variance") if kind == "replay" else "variance"
        dials = dials_of(kind, _checks.choice("scheme", scheme, SCHEMES))
        for name in given:
            _checks.require(name in dials, f"dial of {kind}", f"be one of {', '.join(dials) or 'none'}", name)
        return Side(kind, tuple((name, _value(name, given.get(name), *dial)) for name, dial in dials.items()))

    @property
    def text(self) -> str:
        """The text that :meth:`parse` reads, with all dials in order."""
        dials = {name: x if isinstance(x, str) else f"{x:.10g}" for name, x in self.settings if x is not None}
        return ",".join([self.kind, *(f"{name}:{x}" for name, x in dials.items())])

    def dials(self) -> dict[str, Any]:
        """The dials of this learner."""
        return dict(self.settings)

    def to_dict(self) -> dict[str, Any]:
        """The form that the page uses."""
        return {"kind": self.kind, **self.dials()}


def _value(name: str, text: str | None, about: Dial | None, default: Value) -> Value:
    """The value of a dial as a link writes it, checked; without a text, the default."""
    if text is None:
        return default
    if about is None:
        return _checks.choice(name, text, WORDS[name])
    value = _checks.between(name, number(name, text), bounds_of(name, about))
    if isinstance(default, int):
        _checks.require(value.is_integer(), name, "be a whole number", value)
        return int(value)
    return value


def learner_dials() -> dict[str, Any]:
    """All kinds of learners: their texts, the defaults and sliders of their dials, and the choices of words."""
    found = {}
    for kind, about in KINDS.items():
        texts = {name: getattr(about, name) for name in ("title", "group", "about", "formula")}
        dials = dials_of(kind)
        choices = {name: [_choice(name, value) for value in WORDS[name]] for name in about.words}
        found[kind] = {**texts, **_shown(dials), "choices": choices}
    return found


def _shown(dials: Mapping[str, tuple[Dial | None, Value]], defaults: str = "defaults") -> dict[str, Any]:
    """The defaults of dials, and their sliders."""
    sliders = {}
    for name, (about, _) in dials.items():
        if about is not None and about.slider is not None:
            text = {"symbol": SYMBOLS.get(name, name), "label": about.label, "hint": about.hint}
            sliders[name] = text | dict(zip(("min", "max", "step"), about.slider, strict=True))
    return {defaults: {name: default for name, (_, default) in dials.items()}, "sliders": sliders}


def _choice(name: str, value: str) -> dict[str, Any]:
    """A value of a dial that is a word; a scheme with its own dials."""
    found = WORDS[name][value]
    shown: dict[str, Any] = {"value": value, "title": found.title, "about": found.about}
    if name != "scheme":
        return shown
    return {**shown, "formula": found.formula, **_shown(catalog.scheme(value).dials(), "dials")}
