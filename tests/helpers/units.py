"""The same model with its rewards in another unit, and the same learner, scheme or exploration to go with it."""

from dataclasses import fields, is_dataclass, replace

import safereplay as sr

#: Dials that carry a unit: the power of the unit of reward that they scale with.
UNITS = {
    "VarianceReplay": {"beta": -1},
    "BoldReplay": {"beta": -1},
    "ReturnReplay": {"beta": -1},
    "EntropicReplay": {"beta": -1},  # on tables
    "ScoreReplay": {"floor": 1},
    "ExponentialUtility": {"theta": -1},
    "MeanVariance": {"risk": -1},
    "ErrorStates": {"scale": 1},
    "LagrangianQ": {"rate": 1},
    "CVaRQLearning": {"target": 1},
    "PrioritisedReplay": {"floor": 1, "first": 1},
    "Softmax": {"temperature": 1},
}


def scaled(thing, c):
    """A model, a learner, a scheme or an exploration where every reward is c times as large."""
    if isinstance(thing, sr.TabularMDP):
        own = {name: getattr(thing, name) * c for name in ("step", "reward") if hasattr(thing, name)}  # of a goal
        return replace(thing, r=thing.r * c, **own)
    powers = {"c0": 1, **UNITS.get(type(thing).__name__, {})}
    values = {f.name: getattr(thing, f.name) for f in fields(thing)}
    moved = {name: x * c ** powers[name] for name, x in values.items() if name in powers and x is not None}
    nested = {name: scaled(x, c) for name, x in values.items() if is_dataclass(x)}
    return replace(thing, **moved, **nested)
