"""The worlds of the study, each a frozen spec: the environment, its catastrophes, and DQN's hyper-parameters.

``info["unsafe"]`` is true if a catastrophe happened in the step. An episode is a *goal* if it terminates without a
catastrophe in its last step, and a *timeout* if it is truncated.

On grids, the point and the lava, training episodes start anywhere, as on the paper's grids, and evaluation episodes at
one place: S, or the start of the volatile row. So plain exploration finds every goal, and results do not depend on
luck in exploring. The other worlds have one distribution of starts.

``reward_scale`` divides the learner's rewards. SB3's DQN has a Huber loss, which fits medians for errors above 1 and so
ignores rare disasters; the scale keeps errors below 1. QR-DQN needs the opposite: for errors below 1 its loss is
quadratic and fits expectiles, whose mean is not the mean; its scale keeps the important errors above 1, except on the
highway and at the merge, where larger scales gave QR-DQN a better mean return. Returns are reported unscaled.

On the highway, at the merge and for the cheetah ``info["speed"]`` is the speed in m/s, so that risks can be compared
at equal speed.

Hyper-parameters were tuned for *plain* DQN and for QR-DQN greedy on the mean, on learner seeds from 1000, which the
study does not use; shaped replay and CVaR use the same (:mod:`.tuning`). The cheetah has continuous actions: there plain
SAC was tuned.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import Any

import gymnasium

from safereplay import _checks, grids, worlds
from safereplay.errors import MissingExtra
from safereplay.gym import TabularEnv
from safereplay.mdp import TabularMDP
from safereplay.point import PointEnv

from .wrappers import Crash, OneHot

Env = gymnasium.Env[Any, Any]


@dataclass(frozen=True)
class World:
    """A world of the study.

    ``make(judged)`` gives a new environment; ``judged`` says whether for training or for evaluation. ``mdp`` makes the
    model, where there is one: state s is then the s-th unit vector. ``key`` names the class of pair keys and its
    arguments. ``learner`` names the plain learner: "dqn", or "sac" for continuous actions. ``dqn``, ``qrdqn`` and
    ``sac`` are the learners' arguments; a ``reward_scale`` among them takes the place of the world's.
    ``harm`` is what a catastrophe costs in reward; an extra penalty is a multiple of it. ``harm_in_training`` is the share of the plain
    learner's training episodes with a catastrophe (20 seeds), 1 where it was not measured. ``random_return`` is the mean return of uniformly random actions in evaluation episodes.
    ``named_limit`` is the limit on P(unsafe) for ``RiskLimit``: half of the plain learner's, to one digit; 0 for none.
    """

    name: str
    about: str
    catastrophe: str
    maker: Callable[[bool], Env]
    harm: float
    time_limit: int
    gamma: float
    reward_scale: float
    steps: int
    random_return: float
    key: tuple[str, Mapping[str, Any]] = ("ExactKey", {})
    net_arch: tuple[int, ...] = (64, 64)
    dqn: Mapping[str, Any] = field(default_factory=dict)
    qrdqn: Mapping[str, Any] = field(default_factory=dict)
    n_quantiles: int = 50
    mdp: Callable[[], TabularMDP] | None = None
    named_limit: float = 0.0
    harm_in_training: float = 1.0
    learner: str = "dqn"
    sac: Mapping[str, Any] = field(default_factory=dict)

    def make(self, judged: bool = False) -> Env:
        """A new environment with the world's time limit, for training or to be judged in."""
        return gymnasium.wrappers.TimeLimit(self.maker(judged), self.time_limit)


# -- makers -----------------------------------------------------------------------------------------------------------


@cache
def _cliff() -> TabularMDP:
    return grids.cliff()


@cache
def _volatile() -> TabularMDP:
    return grids.volatile()


@cache
def _delayed() -> TabularMDP:
    return grids.delayed(grids.cliff(), meanwhile=-1.0)


@cache
def _betting() -> TabularMDP:
    return worlds.betting_game()


@cache
def _maze() -> TabularMDP:
    return worlds.guarded_maze()


def _one_hot(mdp: Callable[[], TabularMDP], judged: bool) -> Env:
    model = mdp()
    return OneHot(TabularEnv(model.with_start(model.origin) if judged else model))


def _point(judged: bool) -> Env:
    return PointEnv(anywhere=not judged)


def _lander(judged: bool) -> Env:
    _needs("Box2D")
    made = gymnasium.make("LunarLander-v3", enable_wind=True, wind_power=15.0, turbulence_power=1.5)
    return Crash(made.unwrapped, reward=-100.0)


def _lava(judged: bool) -> Env:
    _needs("minigrid")
    from .lava import LavaBridge

    return LavaBridge(anywhere=not judged)


def _traffic(road: str, cost: float, judged: bool) -> Env:
    _needs("envpool")
    from .traffic import Traffic

    return Traffic(road, cost)


def _cheetah(judged: bool) -> Env:
    _needs("mujoco")
    _needs("imageio")  # Gymnasium's MuJoCo bodies import it
    from .cheetah import Fined

    return Fined(gymnasium.make("HalfCheetah-v5").unwrapped, limit=3.0, probability=0.05, fine=20.0)


def _needs(package: str) -> None:
    try:
        with warnings.catch_warnings():  # Box2D's bindings warn when imported, and crash where warnings are errors
            warnings.simplefilter("ignore")
            import_module(package)
    except ImportError:
        raise MissingExtra(f"this world needs {package}; install it with: pip install 'safereplay[deep]'") from None


# -- the registry -----------------------------------------------------------------------------------------------------

SMALL = {
    "learning_rate": 1e-3,
    "final_learning_rate": 1e-4,
    "buffer_size": 50_000,
    "learning_starts": 500,
    "batch_size": 64,
    "train_freq": 2,
    "gradient_steps": 1,
    "target_update_interval": 250,
    "exploration_fraction": 0.5,
    "exploration_final_eps": 0.1,
}

LANDER = {
    "learning_rate": 1e-3,
    "final_learning_rate": 1e-4,
    "buffer_size": 100_000,
    "learning_starts": 5_000,
    "batch_size": 128,
    "train_freq": 4,
    "gradient_steps": 1,
    "target_update_interval": 500,
    "exploration_fraction": 0.3,
    "exploration_final_eps": 0.05,
}

CHEETAH = {
    "learning_rate": 1e-3,
    "buffer_size": 100_000,
    "learning_starts": 1_000,
    "batch_size": 128,
    "train_freq": 2,
    "gradient_steps": 1,
    "ent_coef": "auto_0.1",
}

WORLDS: dict[str, World] = {
    world.name: world
    for world in (
        World(
            name="cliff",
            about="The paper's second grid: the short way to the goal runs along a cliff, and one may slip off it.",
            catastrophe="a fall off the cliff, which ends the episode",
            maker=partial(_one_hot, _cliff),
            mdp=_cliff,
            harm=12.0,
            named_limit=0.06,
            harm_in_training=0.131,
            time_limit=100,
            gamma=0.95,
            reward_scale=20.0,
            steps=20_000,
            random_return=-21.1,
            dqn=SMALL,
            qrdqn={**SMALL, "reward_scale": 2.0},
        ),
        World(
            name="volatile",
            about="The paper's first grid: the short way to the goal pays +100 or −100 per step.",
            catastrophe="a reward of −100, which does not end the episode",
            maker=partial(_one_hot, _volatile),
            mdp=_volatile,
            harm=100.0,
            named_limit=0.4,
            harm_in_training=0.41,
            time_limit=100,
            gamma=0.9,
            reward_scale=150.0,
            steps=20_000,
            random_return=132.0,
            dqn=SMALL,
            qrdqn={**SMALL, "reward_scale": 15.0},
        ),
        World(
            name="delayed",
            about="The cliff, but the −12 comes one step after the slip: no reward at the edge varies.",
            catastrophe="the step that hits the ground, one after the slip",
            maker=partial(_one_hot, _delayed),
            mdp=_delayed,
            harm=12.0,
            named_limit=0.06,
            harm_in_training=0.13,
            time_limit=100,
            gamma=0.95,
            reward_scale=20.0,
            steps=20_000,
            random_return=-22.3,
            dqn=SMALL,
            qrdqn={**SMALL, "reward_scale": 2.0},
        ),
        World(
            name="point",
            about="A 2-D point walks to a goal; the straight line runs past a pit that gusts can throw it into.",
            catastrophe="a fall into the pit, which ends the episode",
            maker=_point,
            harm=18.0,
            named_limit=0.07,
            harm_in_training=0.095,
            time_limit=100,
            gamma=0.99,
            reward_scale=20.0,
            steps=30_000,
            random_return=-83.9,
            key=("TileKey", {"tiles": 20}),
            net_arch=(128, 128),
            dqn={**SMALL, "learning_rate": 2e-3},
            qrdqn={**SMALL, "learning_rate": 2e-3, "reward_scale": 10.0},
        ),
        World(
            name="lava",
            about="A MiniGrid world with slip: a short bridge along lava, or a long way behind a wall.",
            catastrophe="a step into the lava, which ends the episode",
            maker=_lava,
            harm=25.0,
            named_limit=0.07,
            harm_in_training=0.066,
            time_limit=100,
            gamma=0.98,
            reward_scale=30.0,
            steps=30_000,
            random_return=-74.9,
            dqn=SMALL,
            qrdqn={**SMALL, "reward_scale": 4.0},
        ),
        World(
            name="lander",
            about="LunarLander-v3 with wind and turbulence: land between the flags and do not crash; these steps are too few to learn it well.",
            catastrophe="a crash, or flying out of sight: the episode ends with −100",
            maker=_lander,
            harm=100.0,
            time_limit=1_000,
            gamma=0.99,
            reward_scale=100.0,
            steps=120_000,
            random_return=-265.0,
            key=("SimHashKey", {"bits": 16}),  # the least bad of three that were tried; tiles are usual in 8 dimensions
            net_arch=(128, 128),
            n_quantiles=32,
            dqn=LANDER,
            qrdqn={**LANDER, "reward_scale": 10.0},
        ),
        World(
            name="highway",
            about="EnvPool's highway: three lanes of slower cars; the reward is the speed above 20 m/s, so overtaking pays.",
            catastrophe="a crash, which ends the episode",
            maker=partial(_traffic, "highway", 7.0),
            harm=7.0,
            named_limit=0.1,
            harm_in_training=0.63,
            time_limit=30,
            gamma=0.9,
            reward_scale=10.0,
            steps=30_000,
            random_return=-2.9,
            key=("TileKey", {"tiles": 4}),
            dqn=SMALL,
            qrdqn={**SMALL, "reward_scale": 20.0},
        ),
        World(
            name="merge",
            about="EnvPool's merge: slower cars ahead, and one that enters from a ramp; the reward is the speed above 20 m/s.",
            catastrophe="a crash, which ends the episode",
            maker=partial(_traffic, "merge", 5.0),
            harm=5.0,
            named_limit=0.02,
            harm_in_training=0.35,
            time_limit=40,
            gamma=0.9,
            reward_scale=10.0,
            steps=20_000,
            random_return=0.6,
            key=("TileKey", {"tiles": 4}),
            dqn=SMALL,
            qrdqn=SMALL,
        ),
        World(
            name="betting",
            about="The betting game: four bets, each won with probability 0.7; a player who has lost everything is out.",
            catastrophe="ruin, which ends the game",
            maker=partial(_one_hot, _betting),
            mdp=_betting,
            harm=10.0,
            named_limit=0.2,
            harm_in_training=0.26,
            time_limit=100,
            gamma=0.99,
            reward_scale=15.0,
            steps=20_000,
            random_return=4.8,
            dqn=SMALL,
            qrdqn={**SMALL, "reward_scale": 3.0},
        ),
        World(
            name="maze",
            about="The guarded maze: the short way passes a guard, who seldom takes a large fee; the long way is safe.",
            catastrophe="the guard's fee, which does not end the episode",
            maker=partial(_one_hot, _maze),
            mdp=_maze,
            harm=64.0,
            named_limit=0.02,
            harm_in_training=0.029,
            time_limit=100,
            gamma=0.99,
            reward_scale=70.0,
            steps=30_000,
            random_return=-82.9,
            dqn=SMALL,
            qrdqn={**SMALL, "reward_scale": 3.0},
        ),
        World(
            name="cheetah",
            about="MuJoCo's HalfCheetah: the reward is its speed, and above 3 m/s a step is fined 20 with probability 0.05.",
            catastrophe="a fine, which does not end the episode",
            maker=_cheetah,
            harm=20.0,
            named_limit=0.4,
            harm_in_training=0.27,
            time_limit=200,
            gamma=0.99,
            reward_scale=5.0,
            steps=40_000,
            random_return=-55.5,
            key=("SimHashKey", {"bits": 16}),
            learner="sac",
            sac=CHEETAH,
        ),
    )
}


def world_named(name: str) -> World:
    """A world of the registry.

    >>> world_named("cliff").gamma
    0.95
    """
    return WORLDS[_checks.choice("world", name, WORLDS)]
