"""One run: a :class:`Setting` in, a dict of plain JSON types out.

    setting  →  environment, learner, replay buffer  →  train  →  greedy evaluation  →  Result

**Setting** (frozen, ``to_dict`` / ``Setting.from_dict`` for JSON):

    world        str      a name in WORLDS
    algorithm    str      "dqn", "qrdqn", "iqn", "static" or "lagrangian"; "sac" for worlds with continuous actions
    v, beta      float    the dials of shaped replay; v = 0 is SB3's replay buffer
    alpha        float    QR-DQN and IQN act on CVaR_α of their quantiles; 1 is the mean. "static" is for the CVaR_α of
                          the episode, α < 1
    cvar_target  bool     whether QR-DQN's target chooses its action by CVaR_α too, or by the mean
    limit        float    "lagrangian": the limit on the share of training episodes with harm. Shaped replay without a key: a limit on
                          P(unsafe), for which RiskLimit moves v; the evaluated policy is the certified one. 0 is none
    penalty      float    reward shaping: what an unsafe step costs more in training, in the world's unit
    tilt_on      str      with a key: "reward", "return" or "target"
    mixing       str      with a key: "matched" or "literal"
    key          str      "" for replay without keys, "world" for the world's key, or the name of a key class, such as "ExactKey"
    seed         int      of the learner, its exploration and its environment, below 10⁶
    steps        int      0 for the world's default
    episodes     int      greedy episodes of the evaluation
    split        str      "test", or "validation" for choosing settings: other evaluation seeds
    every        int      also evaluate every n-th step; 0 for never
    overrides    dict     of the learner's hyper-parameters, and "net_arch", "reward_scale", "n_quantiles", and
                          "final_learning_rate": the rate falls to it linearly

**Result**:

    setting      Setting.to_dict(), with steps filled in
    seconds      float, of training without evaluations
    evaluation   see below, after the last step
    checks       list of evaluations during training, with a "step" each
    curve        {"step": [...], "return": [...], "catastrophe": [0 or 1, ...]}, one entry per episode of training
    greedy       the greedy action of every state, for worlds that are tables; else None; also None for "static"
    replay       a summary of the shaped buffer's pairs at the end, or None without keys
    versions     {"python", "torch", "stable_baselines3", "sb3_contrib", "gymnasium", "numpy", "safereplay"}

**evaluation**: ``episodes``, ``mean_return``, ``se_return``, ``catastrophes``, ``p_catastrophe``, ``goals``,
``timeouts``, ``mean_steps``, ``returns`` (a list, rounded to 4 places), ``unsafe`` (a list of 0 and 1). Returns are
undiscounted and in the world's unit; a catastrophe is counted once per episode.

The same setting gives the same result, bit for bit, on one machine: one thread, and every generator seeded.
Evaluation episode i of a run has the seed 10⁹ + 10⁴·seed + i (test) or 5·10⁸ + 10⁴·seed + i (validation), and learners' seeds are below 10⁶. So settings are compared on
the same episodes, and seeds have different ones: the noise of episodes falls with the number of seeds.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import gymnasium
import numpy as np

from safereplay import __version__, _checks
from safereplay._config import Config, plain
from safereplay.errors import MissingExtra

from .worlds import World, world_named
from .wrappers import Diary, Penalised, Scaled

Result: TypeAlias = dict[str, Any]

ALGORITHMS = ("dqn", "qrdqn", "iqn", "static", "lagrangian", "sac")
ARGUMENTS = {"iqn": "qrdqn", "static": "dqn", "lagrangian": "dqn"}  #: whose hyper-parameters a rival has
NEUTRAL = ("dqn", "lagrangian", "sac")  #: learners of the mean only
MEAN = {"mean": 0.1}  #: of "static", which has no preference where nothing is owed: CVaR_α + (0.1/α)·mean
OWN_REPLAY = ("static", "lagrangian")  #: learners whose replay cannot be shaped
MIXINGS = ("literal", "matched")
TILTS = ("reward", "return", "target")
SPLITS = {"test": 10**9, "validation": 5 * 10**8}  #: the seed of the first evaluation episode
PER_RUN = 10**4  #: seeds of evaluation episodes per run: runs with other seeds have other episodes
SEEDS = 10**6  #: a learner's seed is below this
OURS = ("net_arch", "reward_scale", "n_quantiles")  #: overrides that are not arguments of the learner
PACKAGES = ("torch", "stable_baselines3", "sb3_contrib", "gymnasium", "numpy")


@dataclass(frozen=True)
class Setting(Config):
    """The definition of a run; the fields are explained at the top of the module.

    >>> Setting("cliff", v=0.5, seed=3)
    Setting(world='cliff', algorithm='dqn', v=0.5, beta=1.0, alpha=1.0, cvar_target=True, limit=0.0, penalty=0.0,
            tilt_on='reward', mixing='matched', key='', seed=3, steps=0, episodes=300, split='test', every=0, overrides={})
    >>> Setting.from_dict(Setting("cliff", v=0.5).to_dict()) == Setting("cliff", v=0.5)
    True
    """

    world: str
    algorithm: str = "dqn"
    v: float = 0.0
    beta: float = 1.0
    alpha: float = 1.0
    cvar_target: bool = True
    limit: float = 0.0
    penalty: float = 0.0
    tilt_on: str = "reward"
    mixing: str = "matched"
    key: str = ""
    seed: int = 0
    steps: int = 0
    episodes: int = 300
    split: str = "test"
    every: int = 0
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        world_named(self.world)
        _checks.choice("algorithm", self.algorithm, ALGORITHMS)
        _checks.between("v", self.v, "[0, 1)")
        _checks.real("beta", self.beta)
        _checks.between("alpha", self.alpha, "(0, 1]")
        self._check_algorithm()
        _checks.flag("cvar_target", self.cvar_target)
        _checks.choice("tilt_on", self.tilt_on, TILTS)
        _checks.choice("mixing", self.mixing, MIXINGS)
        _checks.whole("seed", self.seed, 0)
        _checks.require(self.seed < SEEDS, "seed", f"be below {SEEDS}", self.seed, "evaluation uses larger ones")
        _checks.whole("steps", self.steps, 0)
        _checks.whole("episodes", self.episodes, 1)
        _checks.choice("split", self.split, SPLITS)
        _checks.whole("every", self.every, 0)

    def _check_algorithm(self) -> None:
        """Check that the algorithm fits the world, and the dials the algorithm."""
        name, needed = self.algorithm, getattr(world_named(self.world), "learner", "dqn")
        fits = (name == "sac") == (needed == "sac")
        _checks.require(fits, "algorithm", f"fit the actions of {self.world}", name, f"its learner is {needed}")
        if name in NEUTRAL:
            _checks.require(self.alpha == 1, "alpha", f"be 1 for {name}, which has no quantiles", self.alpha)
        if name == "static":
            _checks.require(self.alpha < 1, "alpha", "be below 1 for static", self.alpha)
        if name in OWN_REPLAY:
            _checks.require(self.v == 0, "v", f"be 0 for {name}, whose replay cannot be shaped", self.v)
        _checks.between("limit", self.limit, "[0, 1]")
        if name != "lagrangian" and (self.v == 0 or self.key):
            _checks.require(
                self.limit == 0, "limit", f"be 0 for {name}, unless replay is shaped without a key", self.limit
            )
        _checks.between("penalty", self.penalty, "[0, inf)")

    @property
    def total_steps(self) -> int:
        """The training steps: the setting's, or else the world's."""
        return self.steps or world_named(self.world).steps

    def hyper_parameters(self) -> dict[str, Any]:
        """The world's hyper-parameters for this algorithm, with the overrides."""
        world = world_named(self.world)
        own = {"net_arch": world.net_arch, "reward_scale": world.reward_scale, "n_quantiles": world.n_quantiles}
        return {**own, **arguments_of(world, self.algorithm), **self.overrides}


def arguments_of(world: World, algorithm: str) -> dict[str, Any]:
    """The world's arguments for an algorithm; a rival has those of DQN or QR-DQN."""
    return dict(getattr(world, ARGUMENTS.get(algorithm, algorithm)))


# -- a run ------------------------------------------------------------------------------------------------------------


def train(setting: Setting) -> Result:
    """Train and evaluate; return the result described at the top of the module."""
    _checks.require(isinstance(setting, Setting), "setting", "be a Setting", setting)
    with one_thread():
        run = fit(setting)
        world = world_named(setting.world)
        return {
            "setting": replace(setting, steps=setting.total_steps).to_dict(),
            "seconds": run.seconds,
            "evaluation": evaluate(run.model, world, setting.episodes, setting.split, setting.seed),
            "checks": run.checks,
            "curve": {
                "step": run.diary.ends,
                "return": _rounded(run.diary.returns),
                "catastrophe": [int(unsafe) for unsafe in run.diary.unsafe],
            },
            "greedy": _greedy(run.model, world),
            "replay": _replay(run.model),
            "versions": versions(),
        }


@dataclass
class Fitted:
    """A trained model, its training episodes, evaluations during training, and seconds; under a limit on risk, its certificate."""

    model: Any
    diary: Diary
    checks: list[dict[str, Any]]
    seconds: float
    certificate: dict[str, Any] | None = None  #: under a limit on risk, without the evaluations during training


def fit(setting: Setting) -> Fitted:
    """Train a model, without the last evaluation."""
    world = world_named(setting.world)
    run = Fitted(None, Diary(world.make()), [], 0.0)
    run.model = _learner(setting, run.diary)
    looking = 0.0

    def look(*_: Any) -> bool:
        nonlocal looking
        if setting.every and run.diary.steps % setting.every == 0:
            began = time.perf_counter()
            run.checks.append(
                {"step": run.diary.steps, **evaluate(run.model, world, setting.episodes, setting.split, setting.seed)}
            )
            looking += time.perf_counter() - began
        return True

    began = time.perf_counter()
    with TemporaryDirectory() as folder:
        callbacks = _shaping_callbacks(setting, folder)
        run.model.learn(setting.total_steps, [_callback(look), *callbacks], log_interval=10**9)
        run.seconds = time.perf_counter() - began - looking
        if setting.limit > 0 and setting.v > 0:
            run.certificate = {**callbacks[0].certificate.to_dict(), "history": []}
            run.model = type(run.model).load(Path(folder) / run.certificate["model"], device="cpu")
    return run


def _learner(setting: Setting, env: gymnasium.Env[Any, Any]) -> Any:
    """The untrained model of a setting, on an environment in the world's unit."""
    arguments = setting.hyper_parameters()
    net_arch, scale, n_quantiles = (arguments.pop(name) for name in OURS)
    if "final_learning_rate" in arguments:
        arguments["learning_rate"] = _line(arguments["learning_rate"], arguments.pop("final_learning_rate"))
    policy: dict[str, Any] = {"net_arch": list(net_arch)}
    arguments = {"gamma": world_named(setting.world).gamma, "device": "cpu", **arguments, "seed": setting.seed}
    if setting.v > 0:
        arguments |= _shaping(setting, arguments["gamma"])
    kind, name, policy_more, more = _kind(setting, scale, n_quantiles)
    if setting.algorithm == "static":  # below what changes rewards, so that evaluation has the same
        from .static import Owed

        env = Owed(env, arguments["gamma"], scale=scale, penalty=setting.penalty)
    if setting.penalty > 0:
        env = Penalised(env, setting.penalty)
    return kind(name, Scaled(env, scale), policy_kwargs=policy | policy_more, **{**more, **arguments})


def _kind(setting: Setting, scale: float, n_quantiles: int) -> tuple[Any, Any, dict[str, Any], dict[str, Any]]:
    """The class of a learner, its policy, and the arguments of both that are not hyper-parameters of the world."""
    sb3, contrib = _imported("stable_baselines3"), _imported("sb3_contrib")
    from . import implicit, lagrangian, rivals, static

    alpha = float(setting.alpha)
    if setting.algorithm == "qrdqn":
        kind = rivals.CVaRQRDQN if setting.cvar_target and setting.alpha < 1 else contrib.QRDQN
        return kind, rivals.CVaRPolicy, {"n_quantiles": n_quantiles, "alpha": alpha}, {}
    if setting.algorithm == "iqn":
        return implicit.IQN, implicit.IQNPolicy, {"alpha": alpha}, {}
    if setting.algorithm == "static":
        return (
            static.StaticCVaRDQN,
            "MlpPolicy",
            {},
            {**MEAN, "alpha": alpha, "scale": scale, "penalty": setting.penalty},
        )
    if setting.algorithm == "lagrangian":
        return lagrangian.LagrangianDQN, lagrangian.LagrangianPolicy, {}, {"limit": float(setting.limit)}
    return getattr(sb3, setting.algorithm.upper()), "MlpPolicy", {}, {}


def _line(first: float, last: float) -> Any:
    """A linear schedule for SB3, a function of the remaining share of training."""
    return _imported("stable_baselines3.common.utils").LinearSchedule(first, last, 1.0)


def _shaping(setting: Setting, gamma: float) -> dict[str, Any]:
    """The arguments that shape replay."""
    from safereplay.sb3.buffers import ShapedReplayBuffer

    chosen: dict[str, Any] = {"v": setting.v, "beta": setting.beta, "gamma": gamma, "seed": setting.seed}
    if setting.key:
        name, arguments = world_named(setting.world).key if setting.key == "world" else (setting.key, {})
        key = getattr(import_module("safereplay"), name)(**arguments)
        chosen |= {"key": key, "mixing": setting.mixing, "tilt_on": setting.tilt_on}
    return {"replay_buffer_class": ShapedReplayBuffer, "replay_buffer_kwargs": chosen}


def _shaping_callbacks(setting: Setting, folder: str) -> list[Any]:
    """The callback that keeps a limit on risk, or the one that refreshes targets; other settings need none."""
    if setting.v > 0 and setting.limit > 0:
        from safereplay.sb3 import RiskLimit

        make = partial(world_named(setting.world).make, judged=True)
        return [RiskLimit(make, max_p_unsafe=setting.limit, folder=folder)]
    if setting.v == 0 or setting.tilt_on != "target":
        return []
    from safereplay.sb3.callbacks import ShapingCallback

    return [ShapingCallback()]


def _callback(function: Any) -> Any:
    return _imported("stable_baselines3.common.callbacks").ConvertCallback(function)


# -- evaluation -------------------------------------------------------------------------------------------------------


def evaluate(model: Any, world: World, episodes: int, split: str = "test", run: int = 0) -> dict[str, Any]:
    """Greedy episodes, run in parallel, those of a run's seed; ``model`` has SB3's ``predict``. Fields as at the top of the module."""
    envs = [judged(model, world) for _ in range(episodes)]
    seen = [env.reset(seed=SPLITS[split] + PER_RUN * run + i)[0] for i, env in enumerate(envs)]
    returns, steps = np.zeros(episodes), np.zeros(episodes, np.int64)
    unsafe, goal, timeout = np.zeros((3, episodes), np.bool_)
    running = np.arange(episodes)
    while running.size:
        actions, _ = model.predict(np.stack([seen[i] for i in running]), deterministic=True)
        ended = np.zeros(running.size, np.bool_)
        for k, (i, action) in enumerate(zip(running.tolist(), actions, strict=True)):
            seen[i], reward, terminated, truncated, info = envs[i].step(as_action(action))
            returns[i] += float(reward)
            steps[i] += 1
            unsafe[i] |= info["unsafe"]
            goal[i] = terminated and not info["unsafe"]
            timeout[i] = truncated and not terminated
            ended[k] = terminated or truncated
        running = running[~ended]
    return {
        "episodes": episodes,
        "mean_return": float(returns.mean()),
        "se_return": float(returns.std(ddof=1) / np.sqrt(episodes)) if episodes > 1 else None,
        "catastrophes": int(unsafe.sum()),
        "p_catastrophe": float(unsafe.mean()),
        "goals": int(goal.sum()),
        "timeouts": int(timeout.sum()),
        "mean_steps": float(steps.mean()),
        "returns": _rounded(returns),
        "unsafe": plain(unsafe.astype(np.int64)),
    }


def judged(model: Any, world: World) -> gymnasium.Env[Any, Any]:
    """An environment for evaluation, with what a model adds to it: what is owed, for static CVaR."""
    env = world.make(judged=True)
    return model.judged(env) if hasattr(model, "judged") else env


def as_action(action: Any) -> Any:
    """An action of ``predict`` for one environment: a whole number, or a vector."""
    return int(action) if np.ndim(action) == 0 else action


def versions() -> dict[str, str]:
    """The versions of everything that affects the numbers."""
    others = {package: str(_imported(package).__version__) for package in PACKAGES}
    return {"python": platform.python_version(), **others, "safereplay": __version__}


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread inside: another order of sums gives other bits."""
    torch = _imported("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _greedy(model: Any, world: World) -> list[int] | None:
    if world.mdp is None or hasattr(model, "judged"):  # what is owed is a part of the state, too
        return None
    actions, _ = model.predict(np.eye(world.mdp().n_states, dtype=np.float32), deterministic=True)
    return [int(a) for a in actions]


def _replay(model: Any) -> dict[str, Any] | None:
    if not getattr(model.replay_buffer, "is_keyed", False):
        return None
    table = model.replay_buffer.shaper.index.pair_table()
    rho = np.asarray(table["rho"])
    return {
        "pairs": int(rho.size),
        "mean_visits": float(np.mean(table["n"])),
        "shaped_pairs": float(np.mean(rho > 0)),
    }


def _rounded(values: Any) -> list[float]:
    return [round(float(x), 4) for x in values]


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        name = module.split(".")[0]
        raise MissingExtra(f"training needs {name}; install it with: pip install 'safereplay[deep]'") from None
