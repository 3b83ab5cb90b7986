"""Checkpoints of a training, and a warning when a plain buffer is loaded.

SB3's ``load_replay_buffer`` loads any buffer. With a plain one, replay is no longer shaped. To warn about that, the method
is wrapped when :mod:`safereplay.sb3` is imported; its behaviour is unchanged.

A stopped training continues from a checkpoint to the same parameters, bit for bit, as without the stop.

SB3 saves a model and, separately, its replay buffer. Training also depends on the state of all generators, which is saved
here, and on the environment, which cannot be saved in general. Therefore a checkpoint cuts episodes:

    a checkpoint ends the running episodes (they are not stored as ended), and new ones start after it,
    both in the original run and in the resumed one.

The environment must draw all its randomness from Gymnasium's ``np_random``, whose state is saved, and carry nothing else
from one episode to the next. VecNormalize's running statistics are saved too. ``model.zip`` and ``buffer.pkl`` are SB3's
files, which SB3 reads with pickle: load only what you saved. The third file is a plain archive of arrays.
"""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.save_util import load_from_pkl
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from .. import _checks, _files
from .._types import AnyArray
from ..errors import BadFile
from .buffers import ShapedReplayBuffer
from .stored import advise

_load: Any = OffPolicyAlgorithm.load_replay_buffer


@wraps(_load)
def load_replay_buffer(self: OffPolicyAlgorithm, *args: Any, **kwargs: Any) -> None:
    """SB3's method, with a warning if a shaped model gets a plain buffer."""
    _load(self, *args, **kwargs)
    wanted = self.replay_buffer_class
    shaped = isinstance(wanted, type) and issubclass(wanted, ShapedReplayBuffer)
    if wanted is not None and shaped and not isinstance(self.replay_buffer, ShapedReplayBuffer):
        kind, name = type(self.replay_buffer).__name__, wanted.__name__
        how = f"model.replay_buffer = {name}.from_buffer(model.replay_buffer, **model.replay_buffer_kwargs)"
        advise(f"the loaded buffer is a plain {kind}, so replay is no longer shaped; {how}")


def look_at_loading() -> None:
    """Wrap SB3's method, once."""
    if OffPolicyAlgorithm.load_replay_buffer is _load:
        setattr(OffPolicyAlgorithm, "load_replay_buffer", load_replay_buffer)  # noqa: B010  (mypy: a method is no variable)


KIND, VERSION = "training checkpoint", 1
LATEST, PREFIX = "latest.json", "step-"
MODEL, BUFFER, GENERATORS = "model.zip", "buffer.pkl", "generators.npz"

Algorithm = TypeVar("Algorithm", bound=OffPolicyAlgorithm)


def save_training(model: OffPolicyAlgorithm, folder: str | Path) -> Path:
    """Save all that training needs to continue, between two calls of ``learn``; the next one starts new episodes.

    The folder holds the last checkpoint. It is replaced only when the new one is complete, so after a kill at any moment
    there is a complete one.
    """
    _checks.require(
        isinstance(model, OffPolicyAlgorithm), "model", "be of an off-policy algorithm", type(model).__name__
    )
    _checks.require(model.env is not None, "model", "have an environment", None)
    root = _files.make_folder(folder)
    model._last_obs = None  # so that the next learn() starts new episodes in this run, too
    if isinstance(model.replay_buffer, ShapedReplayBuffer):
        model.replay_buffer.cut()
    place = (
        root / Path(tempfile.mkdtemp(prefix=f"{PREFIX}{model.num_timesteps}-", dir=root)).name
    )  # an absolute path from Python 3.12 on
    model.save(place / MODEL)
    model.save_replay_buffer(place / BUFFER)
    meta, arrays = _generators(model)
    _files.save_arrays(place / GENERATORS, KIND, VERSION, meta, arrays)
    _files.write_atomic(root / LATEST, json.dumps({"checkpoint": place.name}), durable=True)
    for old in root.glob(f"{PREFIX}*"):
        if old != place:
            shutil.rmtree(old, ignore_errors=True)
    return place


def load_training(
    algorithm: type[Algorithm], folder: str | Path, env: GymEnv | str, device: th.device | str = "auto"
) -> Algorithm:
    """The model that :func:`save_training` or :class:`TrainingCheckpoint` saved, ready to continue in ``env``.

    ``env``, or its id, must be made and wrapped as before. Continue with ``learn(..., reset_num_timesteps=False)``.
    """
    place = _latest(Path(folder))
    meta, arrays = _files.load_arrays(place / GENERATORS, KIND, VERSION)
    buffer = load_from_pkl(place / BUFFER)
    env = gymnasium.make(env) if isinstance(env, str) else env
    model = algorithm.load(place / MODEL, env=env, device=device, replay_buffer=buffer)
    _checks.require(model.n_envs == buffer.n_envs, "env", f"be {buffer.n_envs} environments as saved", model.n_envs)
    buffer.device = model.device
    _restore(model, meta, arrays)
    return model


class TrainingCheckpoint(BaseCallback):
    """Saves a checkpoint about every ``every`` steps, within one call of ``learn``, and starts new episodes there.

    A killed run of N steps continues with ``load_training(...)`` and ``learn(N - model.num_timesteps,
    reset_num_timesteps=False, callback=TrainingCheckpoint(...))``, and ends with the same parameters.

    >>> TrainingCheckpoint("checkpoints", every=50_000).every
    50000
    """

    model: OffPolicyAlgorithm

    def __init__(self, folder: str | Path, every: int = 10_000, verbose: int = 0) -> None:
        super().__init__(verbose)
        self.folder = Path(folder)
        self.every = _checks.whole("every", every, 1)
        self._saved_at = 0

    def _on_training_start(self) -> None:
        sde = bool(self.model.use_sde)
        _checks.require(
            not sde, "use_sde", "be False with TrainingCheckpoint", sde, "save_training between calls of learn() works"
        )
        self._saved_at = self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        """Called between training and collecting, when no update is half done."""
        if self.model.num_timesteps - self._saved_at >= self.every:
            self._saved_at = self.model.num_timesteps
            save_training(self.model, self.folder)
            _begin_episodes(self.model)

    def _on_step(self) -> bool:
        return True


def _begin_episodes(model: OffPolicyAlgorithm) -> None:
    """Reset the environment, as SB3's learn() does if there is no last observation."""
    assert model.env is not None
    if model.action_noise is not None:
        model.action_noise.reset()
    model._last_obs = model.env.reset()  # type: ignore[assignment]
    model._last_episode_starts = np.ones(model.env.num_envs, bool)
    normalizer = model.get_vec_normalize_env()
    if normalizer is not None:
        model._last_original_obs = normalizer.get_original_obs()


def _latest(root: Path) -> Path:
    """The folder of the last complete checkpoint."""
    try:
        name = json.loads(_files.read_text(root / LATEST))["checkpoint"]
    except (OSError, ValueError, KeyError, TypeError):
        raise BadFile(f"{root} must be a folder that save_training wrote, got no readable {LATEST}") from None
    place = root / str(name)
    if place.parent != root or not place.is_dir():
        raise BadFile(f"{root} must hold the checkpoint that {LATEST} names, got no {_checks.shown(name)}")
    return place


# -- generators -------------------------------------------------------------------------------------------------------


def _generators(model: OffPolicyAlgorithm) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """The state of every generator, and VecNormalize's statistics."""
    assert model.env is not None
    meta = {
        "numpy": _plain(np.random.get_state(legacy=False)),  # noqa: NPY002
        "python": random.getstate(),
        "actions": _plain(model.action_space.np_random.bit_generator.state),
        "envs": _of_envs(model.env),
    }
    arrays = {"torch": th.get_rng_state().numpy()}
    if th.cuda.is_available():
        arrays |= {f"cuda/{i}": state.numpy() for i, state in enumerate(th.cuda.get_rng_state_all())}
    for name, statistics in _running(model.get_vec_normalize_env()).items():
        arrays |= {f"{name}/{part}": np.asarray(getattr(statistics, part)) for part in ("mean", "var", "count")}
    return meta, arrays


def _restore(model: OffPolicyAlgorithm, meta: dict[str, Any], arrays: dict[str, AnyArray]) -> None:
    """Restore all generators; building the model has seeded and used some."""
    assert model.env is not None
    _restore_running(model.get_vec_normalize_env(), arrays)
    _restore_envs(model.env, meta["envs"])
    model.action_space.np_random.bit_generator.state = meta["actions"]
    np.random.set_state(meta["numpy"])  # noqa: NPY002
    version, words, gauss = meta["python"]
    random.setstate((version, tuple(words), gauss))
    th.set_rng_state(th.from_numpy(arrays["torch"]))
    if th.cuda.is_available() and "cuda/0" in arrays:
        th.cuda.set_rng_state_all([th.from_numpy(arrays[f"cuda/{i}"]) for i in range(th.cuda.device_count())])


def _of_envs(env: VecEnv) -> list[dict[str, Any]] | None:
    """The state of each environment's generator; None if there is none."""
    try:
        return [_plain(generator.bit_generator.state) for generator in env.get_attr("np_random")]
    except AttributeError:
        advise("the environment has no np_random; after a resume its random numbers will differ")
        return None


def _restore_envs(env: VecEnv, states: list[dict[str, Any]] | None) -> None:
    for i, state in enumerate(states or []):
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        env.set_attr("np_random", np.random.Generator(bits), i)
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    env._reset_seeds()  # else the next reset would seed again


def _running(env: VecNormalize | None) -> dict[str, RunningMeanStd]:
    """VecNormalize's running statistics by name."""
    if env is None:
        return {}
    found = {"returns": env.ret_rms}
    if env.norm_obs:
        rms: Any = env.obs_rms
        found |= {f"obs/{key}": x for key, x in rms.items()} if isinstance(rms, dict) else {"obs": rms}
    return found


def _restore_running(env: VecNormalize | None, arrays: dict[str, AnyArray]) -> None:
    running = _running(env)
    saved = {name.removesuffix("/mean") for name in arrays if name.endswith("/mean")}
    _checks.require(saved == set(running), "env", f"{'' if saved else 'not '}be in a VecNormalize as saved", env)
    for name, statistics in running.items():
        statistics.mean, statistics.var = arrays[f"{name}/mean"], arrays[f"{name}/var"]
        statistics.count = float(arrays[f"{name}/count"])


def _plain(state: Any) -> Any:
    """A generator's state as plain JSON types."""
    return json.loads(json.dumps(state, default=lambda x: x.tolist()))
