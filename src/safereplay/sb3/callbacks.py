"""Callbacks for SB3: logging, targets to tilt on, and checkpoints of a training.

**Targets.** If harm comes later than the step that causes it, that step's reward is always the same, and a key's tilt on it has no effect.
Its target r + γ(1 − done)·V(s') differs, since V(s') includes later rewards (:mod:`safereplay.sb3.values`). A buffer without a key needs no callback for this.

Everything is logged to SB3's logger, under ``shaping/``, and so to TensorBoard, CSV or the screen, as the model is set up.

**Checkpoints.** A stopped training continues from a checkpoint to the same parameters, bit for bit, as without the stop.
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
from collections.abc import Callable
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
from stable_baselines3.common.vec_env import VecEnvWrapper, VecNormalize

from .. import _checks, _files
from .._checks import AnyArray, Bools, Ints
from ..errors import BadFile, Once
from .buffers import ShapedReplayBuffer
from .stored import advise
from .values import check_model, has_huber_loss, targets

CHUNK = 4096  #: transitions that go through the networks at once


def refresh(model: OffPolicyAlgorithm, buffer: ShapedReplayBuffer, at_most: int) -> int:
    """Compute targets of up to ``at_most`` slots, first those without one; return their number."""
    slots = buffer.shaper.due(at_most)
    for first in range(0, len(slots), CHUNK):
        part = slots[first : first + CHUNK]
        buffer.shaper.value(part, targets(model, buffer, part))
    return len(slots)


#: The largest reward of an unsafe transition, or a function of rewards and dones that returns flags.
Unsafe = float | Callable[[AnyArray, AnyArray], Any]


class ShapingCallback(BaseCallback):
    """Logs what is replayed and refreshes targets for ``tilt_on="target"``.

    It logs ``shaping/share_replayed`` of the transitions drawn since, ``shaping/share_unsafe`` of them and ``shaping/share_unsafe_stored``; without a key
    also ``shaping/unit`` of TD errors, with one ``shaping/rho_mean`` over what is stored, ``shaping/pairs``, and for TensorBoard a table of the top pairs.

    Parameters
    ----------
    log_every : int; steps between logs
    top : int; number of pairs in the table
    unsafe : float or callable, optional; largest reward of an unsafe transition, or a function of (rewards, dones) that
        returns flags; default: ``info["unsafe"]`` of the environment
    refresh_every, refresh_size : int; steps between refreshes, and targets computed in each, new transitions first
    verbose : SB3's

    >>> ShapingCallback(log_every=500, unsafe=-10.0).most_replayed()
    []
    """

    model: OffPolicyAlgorithm

    def __init__(
        self,
        log_every: int = 1000,
        top: int = 5,
        unsafe: Unsafe | None = None,
        refresh_every: int = 250,
        refresh_size: int = 2048,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        self.log_every = _checks.whole("log_every", log_every, 1)
        self.top = _checks.whole("top", top, 1)
        self.unsafe = unsafe if unsafe is None or callable(unsafe) else _checks.real("unsafe", unsafe)
        self.refresh_every = _checks.whole("refresh_every", refresh_every, 1)
        self.refresh_size = _checks.whole("refresh_size", refresh_size, 1)
        self._buffer: Any = None  # the ShapedReplayBuffer of the model, from the start of training on
        self._once = Once()
        self._before = 0
        self._drawn = self._replayed = self._bad = 0

    def _on_training_start(self) -> None:
        buffer = getattr(self.model, "replay_buffer", None)
        if not isinstance(buffer, ShapedReplayBuffer):
            _checks.fail("replay_buffer_class", "be ShapedReplayBuffer", type(buffer).__name__)
        self._buffer = buffer
        self._before = self.model.num_timesteps
        buffer.on_draw = self._count
        buffer.has_huber_loss = has_huber_loss(self.model)
        buffer.cut()  # learn() may have started new episodes
        if buffer.tilt_on == "target" or not buffer.is_keyed:
            check_model(self.model)
        if getattr(self.model, "n_steps", 1) not in (1, buffer.n_steps):
            why = f"with a custom replay buffer class; targets use n_steps={buffer.n_steps}"
            ignored = f"n_steps={self.model.n_steps} is ignored by SB3"
            self._once.advise("n_steps", f"{ignored} {why}; set it in replay_buffer_kwargs")
        used = ["targets use"] if buffer.n_steps > 1 else []
        used += ["tilted returns use"] if buffer.v > 0.0 and buffer.tilt_on == "return" else []
        if used and buffer.gamma != self.model.gamma:
            gammas = f"gamma={self.model.gamma:g} but {' and '.join(used)} gamma={buffer.gamma:g}"
            self._once.advise("gamma", f"the model has {gammas}; set it in replay_buffer_kwargs")

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        """Called between collecting and training. It depends only on the number of steps, so a resumed run does the same."""
        before, now = self._before, self.model.num_timesteps
        self._before = now
        if self._buffer.v > 0.0 and self._buffer.tilt_on == "target" and now > self.model.learning_starts:
            if before <= self.model.learning_starts:  # all when learning starts; later some at a time
                refresh(self.model, self._buffer, len(self._buffer.held()))
            elif before // self.refresh_every < now // self.refresh_every:
                refresh(self.model, self._buffer, self.refresh_size)
        if before // self.log_every == now // self.log_every:
            return
        for name, value in self.measures().items():
            self.logger.record(f"shaping/{name}", value)
        if self._buffer.v > 0.0 and self._buffer.is_keyed:
            self.logger.record("shaping/most_replayed", self._text(), exclude=("stdout", "log", "json", "csv"))
        self._drawn = self._replayed = self._bad = 0

    def _on_training_end(self) -> None:
        if self._buffer is not None:
            self._buffer.on_draw = None

    def _count(self, slots: Ints) -> None:
        self._drawn += slots.size
        self._replayed += int(np.count_nonzero(self._buffer.tilted))
        self._bad += int(np.count_nonzero(self._is_unsafe(slots)))

    def _is_unsafe(self, slots: Ints) -> Bools:
        if self.unsafe is None:
            return np.asarray(self._buffer.unsafe.take(slots))
        rewards = self._buffer.rewards.take(slots)
        if not callable(self.unsafe):
            return np.asarray(rewards <= self.unsafe)
        return np.asarray(self.unsafe(rewards, self._buffer.dones.take(slots) > 0), bool)

    def measures(self) -> dict[str, float]:
        """The logged numbers: of the stored transitions, and of those drawn since the last call."""
        buffer = self._buffer
        if buffer is None or not buffer.size():
            return {}
        stored = float(np.mean(self._is_unsafe(buffer.held())))
        drawn = self._bad / self._drawn if self._drawn else stored  # at v = 0 draws are uniform and not counted
        found = {"v": buffer.v, "share_unsafe": drawn, "share_unsafe_stored": stored}
        found["share_replayed"] = self._replayed / max(self._drawn, 1)
        if not buffer.is_keyed:
            found["unit"] = buffer.sampler.unit if buffer.v > 0.0 else 0.0
            return found
        found["rho_mean"] = 0.0
        if buffer.v > 0.0:
            table = buffer.shaper.index.pair_table()
            found["rho_mean"] = float(table["held"] @ table["rho"] / max(table["held"].sum(), 1))
            found["pairs"] = len(table["key"])
        return found

    def most_replayed(self, k: int | None = None) -> list[dict[str, Any]]:
        """The k pairs (default ``top``) with most replays, each with its share of draws, statistics and worst transition.

        Returns
        -------
        list of dict : per pair its key, n, mean, std, rho, share, obs, action, reward
        """
        rows = self._top(self.top if k is None else _checks.whole("k", k, 1))
        if not rows:
            return []
        held = self._buffer.held()
        keys = self._buffer.shaper.index.key_of(held)
        for row in rows:
            slots = held[keys == np.uint64(row["key"])]
            worst = slots[[np.argmin(self._buffer.rewards.take(slots))]]
            batch = self._buffer.transitions(worst)
            obs: Any = batch.observations
            row["obs"] = {name: x[0].tolist() for name, x in obs.items()} if isinstance(obs, dict) else obs[0].tolist()
            row["action"] = batch.actions[0].tolist()
            row["reward"] = float(self._buffer.rewards.take(worst)[0])
        return rows

    def _top(self, k: int) -> list[dict[str, Any]]:
        if self._buffer is None or self._buffer.v == 0.0 or not self._buffer.is_keyed:
            return []
        table = self._buffer.shaper.index.pair_table()
        share = table["held"] * table["rho"] / max(table["held"].sum(), 1)
        best = np.argsort(-share, kind="stable")[:k]
        columns = {name: table[name][best].tolist() for name in ("key", "n", "mean", "std", "rho")}
        columns["share"] = share[best].tolist()
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True) if row[-1] > 0.0]

    def _text(self) -> str:
        """The top pairs as a table for TensorBoard."""
        lines = ["| pair | n | mean | std | ρ | share of draws |", "|---|---|---|---|---|---|"]
        for row in self._top(self.top):
            numbers = " | ".join(f"{row[name]:.3g}" for name in ("mean", "std", "rho", "share"))
            lines.append(f"| {row['key']:016x} | {row['n']:.0f} | {numbers} |")
        return "\n".join(lines)


_load: Any = OffPolicyAlgorithm.load_replay_buffer


@wraps(_load)
def load_replay_buffer(self: OffPolicyAlgorithm, *args: Any, **kwargs: Any) -> None:
    """SB3's method, which loads any buffer, with a warning if a shaped model gets a plain one: replay is then not shaped."""
    _load(self, *args, **kwargs)
    wanted = self.replay_buffer_class
    shaped = isinstance(wanted, type) and issubclass(wanted, ShapedReplayBuffer)
    if wanted is not None and shaped and not isinstance(self.replay_buffer, ShapedReplayBuffer):
        kind, name = type(self.replay_buffer).__name__, wanted.__name__
        how = f"model.replay_buffer = {name}.from_buffer(model.replay_buffer, **model.replay_buffer_kwargs)"
        advise(f"the loaded buffer is a plain {kind}, so replay is no longer shaped; {how}")


setattr(OffPolicyAlgorithm, "load_replay_buffer", load_replay_buffer)  # noqa: B010  (mypy: a method is no variable)

KIND, VERSION = "training checkpoint", 1
LATEST, PREFIX = "latest.json", "step-"
MODEL, BUFFER, GENERATORS = "model.zip", "buffer.pkl", "generators.npz"

Algorithm = TypeVar("Algorithm", bound=OffPolicyAlgorithm)


def save_training(model: OffPolicyAlgorithm, folder: str | Path) -> Path:
    """Save all that training needs to continue, between two calls of ``learn``; the next one starts new episodes.

    The folder holds the last checkpoint. It is replaced only when the new one is complete, so after a kill at any moment
    there is a complete one.

    Parameters
    ----------
    model : OffPolicyAlgorithm; with an environment
    folder : str or Path; where to save; made if needed

    Returns
    -------
    Path : of the checkpoint

    Raises
    ------
    BadInput : the model is of another kind, or has no environment
    CannotWrite : the folder cannot be written
    """
    kind = type(model).__name__
    _checks.require(isinstance(model, OffPolicyAlgorithm), "model", "be of an off-policy algorithm", kind)
    _checks.require(model.env is not None, "model", "have an environment", None)
    assert model.env is not None
    root = _files.make_folder(folder)
    model._last_obs = None  # so that the next learn() starts new episodes in this run, too
    if isinstance(model.replay_buffer, ShapedReplayBuffer):
        model.replay_buffer.cut()
    made = tempfile.mkdtemp(prefix=f"{PREFIX}{model.num_timesteps}-", dir=root)
    place = root / Path(made).name  # mkdtemp gives an absolute path from Python 3.12 on
    model.save(place / MODEL)
    model.save_replay_buffer(place / BUFFER)
    try:
        envs = [_plain(generator.bit_generator.state) for generator in model.env.get_attr("np_random")]
    except AttributeError:
        advise("the environment has no np_random; after a resume its random numbers will differ")
        envs = None
    meta = {
        "numpy": _plain(np.random.get_state(legacy=False)),  # noqa: NPY002
        "python": random.getstate(),
        "actions": _plain(model.action_space.np_random.bit_generator.state),
        "envs": envs,
    }
    arrays = {"torch": th.get_rng_state().numpy()}
    if th.cuda.is_available():
        arrays |= {f"cuda/{i}": state.numpy() for i, state in enumerate(th.cuda.get_rng_state_all())}
    for name, statistics in _running(model.get_vec_normalize_env()).items():
        arrays |= {f"{name}/{part}": np.asarray(getattr(statistics, part)) for part in ("mean", "var", "count")}
    _files.save_arrays(place / GENERATORS, KIND, VERSION, meta, arrays)
    _files.write_atomic(root / LATEST, json.dumps({"checkpoint": place.name}), durable=True)
    for old in root.glob(f"{PREFIX}*"):
        if old != place:
            shutil.rmtree(old, ignore_errors=True)
    return place


def load_training(
    algorithm: type[Algorithm], folder: str | Path, env: GymEnv | str, device: th.device | str = "auto"
) -> Algorithm:
    """The model that :func:`save_training` or :class:`TrainingCheckpoint` saved, ready to continue.

    Continue with ``learn(..., reset_num_timesteps=False)``.

    Parameters
    ----------
    algorithm : type; the class of the model, such as DQN
    folder : str or Path; where it was saved
    env : gymnasium.Env or str; the environment, made and wrapped as before, or its id
    device : SB3's

    Returns
    -------
    Algorithm : the model with its buffer, of the class given

    Raises
    ------
    BadFile : the folder has no complete checkpoint
    BadInput : the environment does not fit
    """
    root = Path(folder)
    try:
        name = json.loads(_files.read_text(root / LATEST))["checkpoint"]
    except (OSError, ValueError, KeyError, TypeError):
        raise BadFile(f"{root} must be a folder that save_training wrote, got no readable {LATEST}") from None
    place = root / str(name)
    if place.parent != root or not place.is_dir():
        raise BadFile(f"{root} must hold the checkpoint that {LATEST} names, got no {_checks.shown(name)}")
    meta, arrays = _files.load_arrays(place / GENERATORS, KIND, VERSION)
    buffer = load_from_pkl(place / BUFFER)
    env = gymnasium.make(env) if isinstance(env, str) else env
    model = algorithm.load(place / MODEL, env=env, device=device, replay_buffer=buffer)
    _checks.require(model.n_envs == buffer.n_envs, "env", f"be {buffer.n_envs} environments as saved", model.n_envs)
    buffer.device = model.device
    _restore(model, meta, arrays)
    return model


class TrainingCheckpoint(BaseCallback):
    """Saves checkpoints within one call of ``learn``, and starts new episodes there.

    A killed run of N steps continues with ``load_training(...)`` and ``learn(N - model.num_timesteps,
    reset_num_timesteps=False, callback=TrainingCheckpoint(...))``, and ends with the same parameters.

    Parameters
    ----------
    folder : str or Path; where to save
    every : int; steps between checkpoints, about
    verbose : SB3's

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
        sde, hint = bool(self.model.use_sde), "save_training between calls of learn() works"
        _checks.require(not sde, "use_sde", "be False with TrainingCheckpoint", sde, hint)
        self._saved_at = self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        """Called between training and collecting, when no update is half done."""
        model = self.model
        if model.num_timesteps - self._saved_at < self.every:
            return
        self._saved_at = model.num_timesteps
        save_training(model, self.folder)
        assert model.env is not None
        if model.action_noise is not None:  # new episodes, as SB3's learn() starts them if there is no last observation
            model.action_noise.reset()
        model._last_obs = model.env.reset()  # type: ignore[assignment]
        model._last_episode_starts = np.ones(model.env.num_envs, bool)
        normalizer = model.get_vec_normalize_env()
        if normalizer is not None:
            model._last_original_obs = normalizer.get_original_obs()

    def _on_step(self) -> bool:
        return True


def _restore(model: OffPolicyAlgorithm, meta: dict[str, Any], arrays: dict[str, AnyArray]) -> None:
    """Restore all generators; building the model has seeded and used some."""
    normalizer = model.get_vec_normalize_env()
    running = _running(normalizer)
    saved = {name.removesuffix("/mean") for name in arrays if name.endswith("/mean")}
    _checks.require(saved == set(running), "env", f"{'' if saved else 'not '}be in a VecNormalize as saved", normalizer)
    for name, statistics in running.items():
        statistics.mean, statistics.var = arrays[f"{name}/mean"], arrays[f"{name}/var"]
        statistics.count = float(arrays[f"{name}/count"])
    env = model.env
    assert env is not None
    for i, state in enumerate(meta["envs"] or []):
        bits = getattr(np.random, state["bit_generator"])()
        bits.state = state
        env.set_attr("np_random", np.random.Generator(bits), i)
    while isinstance(env, VecEnvWrapper):
        env = env.venv
    env._reset_seeds()  # else the next reset would seed again
    model.action_space.np_random.bit_generator.state = meta["actions"]
    np.random.set_state(meta["numpy"])  # noqa: NPY002
    version, words, gauss = meta["python"]
    random.setstate((version, tuple(words), gauss))
    th.set_rng_state(th.from_numpy(arrays["torch"]))
    if th.cuda.is_available() and "cuda/0" in arrays:
        th.cuda.set_rng_state_all([th.from_numpy(arrays[f"cuda/{i}"]) for i in range(th.cuda.device_count())])


def _running(env: VecNormalize | None) -> dict[str, RunningMeanStd]:
    """VecNormalize's running statistics by name."""
    if env is None:
        return {}
    found = {"returns": env.ret_rms}
    if env.norm_obs:
        rms: Any = env.obs_rms
        found |= {f"obs/{key}": x for key, x in rms.items()} if isinstance(rms, dict) else {"obs": rms}
    return found


def _plain(state: Any) -> Any:
    """A generator's state as plain JSON types."""
    return json.loads(json.dumps(state, default=lambda x: x.tolist()))
