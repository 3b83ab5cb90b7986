"""safereplay: shape the policy an agent learns by choosing what it replays.

>>> import safereplay as sr
>>> mdp = sr.grids.cliff()
>>> runs = sr.learn(mdp, sr.ReplayQLearning(sr.VarianceReplay(beta=5.0), v=0.5), episodes=5_000, seeds=2)
>>> runs.verdicts
['safe', 'safe']

Names load when they are first used, so ``import safereplay`` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import catalog as _catalog
from ._plugin import register_with_gymnasium

__version__ = "0.2.0"

if TYPE_CHECKING:
    from . import grids as grids
    from .agent import Agent as Agent
    from .engines.sweeps import Sweep as Sweep
    from .engines.sweeps import read_sweep as read_sweep
    from .engines.sweeps import sweep as sweep
    from .errors import BadFile as BadFile
    from .errors import BadInput as BadInput
    from .errors import CannotWrite as CannotWrite
    from .errors import MissingExtra as MissingExtra
    from .errors import SafeReplayError as SafeReplayError
    from .footprints import Footprint as Footprint
    from .footprints import footprint as footprint
    from .gym import TabularEnv as TabularEnv
    from .keys.auto import AutoKey as AutoKey
    from .keys.auto import Diagnosis as Diagnosis
    from .keys.auto import diagnose as diagnose
    from .keys.base import ExactKey as ExactKey
    from .keys.base import FunctionKey as FunctionKey
    from .keys.base import PairKey as PairKey
    from .keys.spatial import SimHashKey as SimHashKey
    from .keys.spatial import TileKey as TileKey
    from .learners import Learner as Learner
    from .learners import Pessimistic as Pessimistic
    from .learners import QLearning as QLearning
    from .learners import ReplayQLearning as ReplayQLearning
    from .learners import RiskSensitive as RiskSensitive
    from .learners import WorstCase as WorstCase
    from .learners import WorstTransition as WorstTransition
    from .mdp import TabularMDP as TabularMDP
    from .pair_index import PairIndex as PairIndex
    from .rivals.backward import BackwardReplay as BackwardReplay
    from .rivals.combined import CombinedReplay as CombinedReplay
    from .rivals.cvar import CVaRQLearning as CVaRQLearning
    from .rivals.dyna import DynaQ as DynaQ
    from .rivals.error_states import ErrorStates as ErrorStates
    from .rivals.exponential import ExponentialUtility as ExponentialUtility
    from .rivals.hindsight import HindsightQLearning as HindsightQLearning
    from .rivals.lagrangian import LagrangianQ as LagrangianQ
    from .rivals.mean_variance import MeanVariance as MeanVariance
    from .rivals.prioritised import PrioritisedReplay as PrioritisedReplay
    from .rivals.recency import RecentReplay as RecentReplay
    from .rivals.robust import Robust as Robust
    from .rivals.uniform import WindowReplay as WindowReplay
    from .runs import Runs as Runs
    from .runs import learn as learn
    from .schedules import ConstantStep as ConstantStep
    from .schedules import EpsilonGreedy as EpsilonGreedy
    from .schedules import Exploration as Exploration
    from .schedules import PowerStep as PowerStep
    from .schedules import Softmax as Softmax
    from .schedules import StepSize as StepSize
    from .schemes import BoldReplay as BoldReplay
    from .schemes import DownsideReplay as DownsideReplay
    from .schemes import DynaReplay as DynaReplay
    from .schemes import EntropicReplay as EntropicReplay
    from .schemes import ErrorReplay as ErrorReplay
    from .schemes import ReturnReplay as ReturnReplay
    from .schemes import Scheme as Scheme
    from .schemes import ScoreReplay as ScoreReplay
    from .schemes import UniformReplay as UniformReplay
    from .schemes import VarianceReplay as VarianceReplay
    from .shaper import Shaper as Shaper
    from .stepping import Event as Event
    from .stepping import Stepper as Stepper
    from .theory.augmented import best_cvar as best_cvar
    from .theory.conditions import CheckReport as CheckReport
    from .theory.conditions import check as check
    from .theory.limits import exact as exact
    from .theory.limits import fixed_point as fixed_point
    from .theory.risk import RiskProfile as RiskProfile
    from .theory.risk import evaluate as evaluate
    from .theory.shaped import shaped_limit as shaped_limit
    from .theory.switching import Switches as Switches
    from .theory.switching import switches as switches
    from .theory.tuning import Plan as Plan
    from .theory.tuning import tune as tune
    from .theory.utility import exponential_utility as exponential_utility
    from .theory.visits import SelfConsistent as SelfConsistent
    from .theory.xray import Xray as Xray
    from .theory.xray import xray as xray
    from .verdicts import path as path
    from .verdicts import verdict as verdict

#: The module of each public name; a name equal to its module is the module itself. No function may have the name of its
#: module, since importing the module would hide it. Learners and schemes of the catalog are added below.
_HOMES = {
    "grids": "grids",
    "Agent": "agent",
    "Sweep": "engines.sweeps",
    "read_sweep": "engines.sweeps",
    "sweep": "engines.sweeps",
    "BadFile": "errors",
    "BadInput": "errors",
    "CannotWrite": "errors",
    "MissingExtra": "errors",
    "SafeReplayError": "errors",
    "TabularEnv": "gym",
    "Footprint": "footprints",
    "footprint": "footprints",
    "Runs": "runs",
    "learn": "runs",
    "AutoKey": "keys.auto",
    "Diagnosis": "keys.auto",
    "ExactKey": "keys.base",
    "FunctionKey": "keys.base",
    "PairKey": "keys.base",
    "SimHashKey": "keys.spatial",
    "TileKey": "keys.spatial",
    "diagnose": "keys.auto",
    "PairIndex": "pair_index",
    "Learner": "learners",
    "TabularMDP": "mdp",
    "ConstantStep": "schedules",
    "EpsilonGreedy": "schedules",
    "Exploration": "schedules",
    "PowerStep": "schedules",
    "Softmax": "schedules",
    "StepSize": "schedules",
    "EntropicReplay": "schemes",
    "Scheme": "schemes",
    "Shaper": "shaper",
    "Event": "stepping",
    "Stepper": "stepping",
    "best_cvar": "theory.augmented",
    "CheckReport": "theory.conditions",
    "check": "theory.conditions",
    "exact": "theory.limits",
    "fixed_point": "theory.limits",
    "RiskProfile": "theory.risk",
    "evaluate": "theory.risk",
    "shaped_limit": "theory.shaped",
    "Switches": "theory.switching",
    "switches": "theory.switching",
    "Plan": "theory.tuning",
    "tune": "theory.tuning",
    "SelfConsistent": "theory.visits",
    "Xray": "theory.xray",
    "xray": "theory.xray",
    "exponential_utility": "theory.utility",
    "path": "verdicts",
    "verdict": "verdicts",
}

_HOMES |= _catalog.classes()

register_with_gymnasium()

__all__ = sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'safereplay' has no attribute {name!r}")
    module = import_module(f".{_HOMES[name]}", __name__)
    value = module if _HOMES[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
