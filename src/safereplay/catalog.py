"""The catalog: every learner, scheme and world that has a name, one line each.

An entry is ``module:attribute`` and is imported at first use. The command line, sweeps, comparisons and ``sr.X`` all
read this catalog, so adding a learner, a scheme or a world takes one line here.

>>> learner("mihatsch").__name__, scheme("variance").__name__, world("cliff")().n_states
('RiskSensitive', 'VarianceReplay', 24)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .learners import Learner
    from .mdp import TabularMDP
    from .schemes import Scheme

#: Learners: how a transition changes Q.
LEARNERS: dict[str, str] = {
    "replay": "learners:ReplayQLearning",
    "q": "learners:QLearning",
    # safe learners
    "mihatsch": "learners:RiskSensitive",
    "gaskett": "learners:Pessimistic",
    "worst-case": "learners:WorstCase",
    "worst-transition": "learners:WorstTransition",
    "robust": "rivals.criteria:Robust",
    "exponential": "rivals.criteria:ExponentialUtility",
    "mean-variance": "rivals.ledgers:MeanVariance",
    "error-states": "rivals.ledgers:ErrorStates",
    "lagrangian": "rivals.lagrangian:LagrangianQ",
    "cvar": "rivals.criteria:CVaRQLearning",
    # replay methods
    "window": "rivals.replaying:WindowReplay",
    "prioritised": "rivals.prioritised:PrioritisedReplay",
    "recent": "rivals.replaying:RecentReplay",
    "combined": "rivals.replaying:CombinedReplay",
    "backward": "rivals.replaying:BackwardReplay",
    "dyna": "rivals.replaying:DynaQ",
    "hindsight": "rivals.hindsight:HindsightQLearning",
}

#: Schemes: what the learner ``replay`` replays.
SCHEMES: dict[str, str] = {
    "variance": "schemes:VarianceReplay",
    "score": "schemes:ScoreReplay",
    "return": "schemes:ReturnReplay",
    "error": "schemes:ErrorReplay",
    "downside": "schemes:DownsideReplay",
    "bold": "schemes:BoldReplay",
    "uniform": "schemes:UniformReplay",
    "planning": "schemes:DynaReplay",
    # risk measures: with anchored mixing at v = 1 a pair is valued by the measure
    "cvar": "schemes:CVaRReplay",
    "spectral": "schemes:SpectralReplay",
    "expectile": "schemes:ExpectileReplay",
    "entropic": "schemes:EntropicReplay",
}


class World(NamedTuple):
    """Where a world is defined, and the source of its danger."""

    home: str
    danger: str


#: Worlds: models by name.
WORLDS: dict[str, World] = {
    "volatile": World("grids:volatile", "reward"),
    "cliff": World("grids:cliff", "transition"),
    "bridge": World("grids:bridge", "transition"),
    "lottery": World("grids:lottery", "reward"),
    "ledge": World("grids:ledge", "transition"),
    "frozen_lake": World("grids:frozen_lake", "transition"),
    "lake": World("worlds:lake", "transition"),
    "cliff_walking": World("worlds:cliff_walking", "exploration"),
    "taxi": World("worlds:taxi", "none"),
    "market": World("worlds:market", "reward"),
    "two_gambles": World("worlds:two_gambles", "reward"),
    "river": World("worlds:river", "transition"),
    "late_cliff": World("worlds:late_cliff", "delayed"),
    "insurance": World("worlds:insurance", "rare"),
    "fog": World("worlds:fog", "none"),
    "flood": World("worlds:flood", "caution"),
    "windfall": World("worlds:windfall", "caution"),
    "betting_game": World("worlds:betting_game", "transition"),
    "guarded_maze": World("worlds:guarded_maze", "reward"),
    "goal_room": World("goals:goal_room", "none"),
    "goal_cliff": World("goals:goal_cliff", "transition"),
}


def learner(name: str) -> type[Learner]:
    """The class of a learner."""
    found: type[Learner] = _found("learner", name, LEARNERS)
    return found


def scheme(name: str) -> type[Scheme]:
    """The class of a scheme."""
    found: type[Scheme] = _found("scheme", name, SCHEMES)
    return found


def world(name: str) -> Callable[..., TabularMDP]:
    """The function that builds a world."""
    found: Callable[..., TabularMDP] = _found("world", name, {key: one.home for key, one in WORLDS.items()})
    return found


def classes() -> dict[str, str]:
    """The module of each learner's and each scheme's class, by the name of the class."""
    return dict(home.split(":")[::-1] for home in (*LEARNERS.values(), *SCHEMES.values()))


def load(kinds: Iterable[str]) -> None:
    """Import the modules of these classes, which registers them; names that are not in the catalog are ignored."""
    homes = classes()
    for kind in kinds:
        if kind in homes:
            import_module(f".{homes[kind]}", __package__)


def _found(what: str, name: str, homes: dict[str, str]) -> Any:
    from . import _checks

    module, _, attribute = homes[_checks.choice(what, name, homes)].partition(":")
    return getattr(import_module(f".{module}", __package__), attribute)
