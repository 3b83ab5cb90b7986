"""SB3's replay buffer with shaped replay: it stores what SB3 stores, and draws other slots.

**Without a key**, the default, transitions that turned out worse than the model expects are drawn more often (:mod:`safereplay.surprise`). The buffer computes their TD
errors by the networks of the model that samples it. SB3 gives a buffer no reference to its model, so the caller of ``sample`` is looked up;
:meth:`ShapedReplayBuffer.attach` sets it in a loop of your own.

**With a key**, which says which transitions belong to one pair (s,a), draws are made within pairs (:class:`~safereplay.Shaper`):

    an anchor, uniformly over the stored transitions; then, with probability ρ(s,a), another stored transition of the
    anchor's pair (s,a) instead of it, with probability ∝ e^{−b·r/u}: b uniform on (0, β), u the unit of the whole buffer

The frequency of pairs does not depend on v then; only the frequencies of a pair's outcomes change. Rewards are tilted as stored: with ``VecNormalize`` that is
before normalising, which makes no difference, since β has no unit. New transitions are passed to the shaper in batches, at its next use: one call per step would
cost more than storing does.

A transition is identified by its slot, position · n_envs + environment, so a batch has exactly the environment that was drawn, whereas SB3 draws
the environment separately.

At v = 0 every call goes to SB3's code: the same numbers are drawn from numpy's global generator, so a run is the same to the last bit. At v > 0
draws come from a generator of the buffer's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import FrameType
from typing import Any, Self, cast

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.type_aliases import DictReplayBufferSamples, ReplayBufferSamples
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from .. import _checks
from .._checks import AnyArray, Bools, Ints
from ..keys import PairKey
from ..keys.spatial import AutoKey
from ..schemes import Scheme
from ..shaper import FIRST_LOOK, Shaper
from ..surprise import BATCHES, BETA, SurpriseSampler, V
from .stored import Stored, advise, as_stored, check_rewards, column, give_advice, is_stored, merged, rows, unsafe_flags
from .values import reach, td_errors

STORED = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts", "unsafe")
SB3 = ["observation_space", "action_space", "device", "n_envs", "optimize_memory_usage", "handle_timeout_termination"]
FEW = 8  #: external steps are few if they are less than 1/FEW of the buffer; else reading all again costs no more
AT_ONCE = 1024  #: about the number of transitions that are passed to the shaper at once
HER = ("n_sampled_goal", "goal_selection_strategy", "copy_info_dict")
NO_HER = "shaped replay and hindsight (HER) cannot be combined; use HerReplayBuffer without a dial, or this without HER"
EVERY_IMAGES = 32  #: batches per pool of TD errors if observations are images, whose forward passes cost most
KEYED = ("key", "scheme", "mixing", "tilt_on", "horizon")  #: dials that only a buffer with a key has
OWN = (ReplayBuffer._get_samples, DictReplayBuffer._get_samples)  #: methods that this module replaces


class _Fixed:
    """A read-only dial, set when the buffer is made."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, buffer: Any, owner: type | None = None) -> Any:
        return self if buffer is None else buffer._dials[self.name]

    def __set__(self, buffer: Any, value: Any) -> None:
        if "_dials" in buffer.__dict__:  # before that, SB3's __init__ sets it
            another = f"{type(buffer).__name__}.from_buffer(buffer, {self.name}=...) makes another buffer with the same content"
            _checks.fail(self.name, "be given when the buffer is made", value, another)


class ShapedReplayBuffer(ReplayBuffer):
    """A replay buffer for SB3's off-policy algorithms that replays bad surprises more often.

    Without a key, a transition is drawn with probability ∝ (1 − v) + v·h, h in [0, 1] its bad surprise: how far its target lies below the
    model's value, in the unit u/β. With a key, or any other dial of keys, a volatile pair's worst outcomes are drawn more often.

    Dict observations get a :class:`ShapedDictReplayBuffer` automatically, n-step targets a
    :class:`ShapedNStepReplayBuffer`. A subclass may override ``add``, ``sample`` and ``_get_samples`` as with SB3, and may
    have Dict observations, too. ``v``, ``beta`` and ``scheme`` can be set at any time.

    Parameters
    ----------
    buffer_size, observation_space, action_space, device, n_envs, optimize_memory_usage, handle_timeout_termination : SB3's
    v : float in [0, 1), or [0, 1] with a key; largest share of replays in a pair's updates; 0 is SB3's own buffer; default: 0.8, or 0.5 with a key
    beta : float, optional; how strongly replays prefer bad outcomes (good ones if β < 0); default: 1, or 2 with a key
    key : PairKey, optional; decides which transitions belong to one pair; default: none, or :class:`~safereplay.AutoKey` with one of the next four
    scheme, mixing, tilt_on : as in :class:`~safereplay.Shaper`, with a key
    horizon : int, optional; with a key, steps of the return for ``tilt_on="return"``; default: ``n_steps`` if above 1, else 3
    n_steps, gamma : SB3's, for n-step targets; tilted returns use gamma, too
    seed : int, optional; of the draws; default: drawn once from numpy's global generator, which SB3 seeds: same seed, same run

    >>> import numpy as np, safereplay as sr
    >>> from gymnasium.spaces import Box, Discrete
    >>> def filled(**dials):
    ...     buffer = ShapedReplayBuffer(100, Box(0.0, 1.0, (2,)), Discrete(2), seed=0, **dials)
    ...     s, a = np.zeros((1, 2), np.float32), np.array([1])
    ...     for r in [1.0] * 9 + [-9.0]:
    ...         buffer.add(s, s, a, np.array([r]), np.array([True]), [{}])
    ...     return buffer
    >>> buffer = filled()
    >>> buffer.attach(lambda batch: batch.rewards)  # of a loop without an SB3 model; here every value is 0
    >>> buffer.sample(32).rewards.shape
    torch.Size([32, 1])
    >>> buffer = filled(v=0.5, key=sr.ExactKey())
    >>> buffer.shaper.index.distribution()[:10].round(2)  # uniform would be 0.1 each
    array([0.08, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08, 0.08, 0.28])
    >>> buffer.explain()
    v = 0.5, EntropicReplay(beta=2.0), unit 5; 1 pairs in 10 transitions, tilted on the reward
    pair           n   low  low drawn  value  value drawn  moved
    [0., 0.] [1]  10  10 %       28 %      0       -1.812   18 %
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        v: float | None = None,
        beta: float | None = None,
        key: PairKey | None = None,
        scheme: Scheme | None = None,
        mixing: str | None = None,
        tilt_on: str | None = None,
        horizon: int | None = None,
        n_steps: int | None = None,
        gamma: float = 0.99,
        seed: int | None = None,
        **others: Any,
    ) -> None:
        if n_steps is None:
            n_steps = 3 if isinstance(self, NStepReplayBuffer) else 1
        n_steps = _checks.whole("n_steps", n_steps, 1, bits=16)
        horizon = _former(type(self).__name__, others, horizon)
        _checks.require(key is None or isinstance(key, PairKey), "key", "be a PairKey", key)
        self.is_keyed = any(
            dial is not None for dial in (key, scheme, mixing, tilt_on, horizon)
        )  #: whether pairs have keys
        if seed is not None:
            seed = _checks.whole("seed", seed, 0)
        self._become(observation_space, n_steps)
        settings = device, n_envs, optimize_memory_usage, handle_timeout_termination
        more: dict[str, Any] = {"n_steps": n_steps, "gamma": gamma} if isinstance(self, NStepReplayBuffer) else {}
        super().__init__(buffer_size, observation_space, action_space, *settings, **more)
        enough = self.buffer_size > 1 or not optimize_memory_usage
        _checks.require(enough, "buffer_size", "be at least 2 · n_envs here", buffer_size)
        self.unsafe: Bools = np.zeros((self.buffer_size, n_envs), bool)  #: the flags ``info["unsafe"]``
        self.on_draw: Callable[[Ints], None] | None = None  #: called with the slots of each batch; not saved
        self._untold = 0  # positions before ``pos`` that were not passed to the shaper
        self._seen_at = (0, False)  # the last known ``pos`` and ``full``; other code may change them
        self._seed = seed
        self._aware = tilt_on != "target"  # whether the check for missing targets was made
        self.has_huber_loss: bool | None = None  #: of the model that samples; None if unknown
        self._next_look = FIRST_LOOK
        self._source: Any = None  # of TD errors; see attach
        self._env: VecNormalize | None = None  # of the last call of sample
        self._shaper: Shaper | None = None
        self._sampler: SurpriseSampler | None = None
        gamma = _checks.between("gamma", gamma, "[0, 1]")
        self._dials: dict[str, Any] = {"n_steps": n_steps, "gamma": gamma, "seed": seed}
        self._dials |= {name: None for name in KEYED if name != "scheme"}
        if not self.is_keyed:
            made = SurpriseSampler(V if v is None else v, BETA if beta is None else beta)  # refuses bad arguments here
            self._v, self._beta = made.v, made.beta
            return
        if horizon is None:
            horizon = n_steps if n_steps > 1 else 3
        self._dials |= {
            "key": (AutoKey() if key is None else key).prepared(observation_space, as_stored(action_space)),
            "mixing": "matched" if mixing is None else mixing,
            "tilt_on": "reward" if tilt_on is None else tilt_on,
            "horizon": _checks.whole("horizon", horizon, 1, bits=16),
        }
        self._v = _checks.between("v", 0.5 if v is None else v, "[0, 1]")
        self._scheme = Shaper(1, beta=beta, scheme=scheme).index.scheme
        if self._v > 0.0:
            self._shaper = self._new_shaper()
        else:
            self._made_shaper(1, 0)  # to refuse bad arguments here, too

    def _become(self, observation_space: spaces.Space[Any], n_steps: int) -> None:
        """Change to the class that is needed: SB3 has one for Dict observations and one for n-step targets."""
        is_dict, cls = isinstance(observation_space, spaces.Dict), type(self)
        ok = is_dict or not isinstance(self, DictReplayBuffer)
        _checks.require(ok, "observation_space", f"be a Dict for {cls.__name__}", observation_space)
        _checks.require(n_steps == 1 or not is_dict, "n_steps", "be 1 with Dict observations, as in SB3", n_steps)
        if is_dict:
            self.__class__ = _joined(cls, ShapedDictReplayBuffer)
        elif n_steps > 1:
            self.__class__ = _joined(cls, ShapedNStepReplayBuffer)

    @classmethod
    def from_buffer(cls, buffer: ReplayBuffer, **dials: Any) -> Self:
        """A shaped buffer with the content of an SB3 buffer and these dials. The arrays are shared, not copied.

        Parameters
        ----------
        buffer : ReplayBuffer; of SB3, but not for HER
        **dials : v, beta, key, ... as above; from a shaped buffer, those that are not given are taken over

        >>> from gymnasium.spaces import Box, Discrete
        >>> plain = ReplayBuffer(100, Box(0.0, 1.0, (2,)), Discrete(2))
        >>> shaped = ShapedReplayBuffer.from_buffer(plain, v=0.5)
        >>> shaped.observations is plain.observations
        True
        """
        name = type(buffer).__name__
        _checks.require(isinstance(buffer, ReplayBuffer), "buffer", "be an SB3 ReplayBuffer", name)
        _checks.require(not isinstance(buffer, HerReplayBuffer), "buffer", "not be one for HER", name, NO_HER)
        if isinstance(buffer, ShapedReplayBuffer):
            same = buffer.is_keyed or not any(dials.get(name) is not None for name in KEYED)
            kept: dict[str, Any] = {"v": buffer.v} if same else {}
            if same and "beta" not in dials:
                kept |= {"scheme": buffer.scheme} if buffer.is_keyed else {"beta": buffer.beta}
            dials = {**kept, **buffer._dials, **dials}
        elif isinstance(buffer, NStepReplayBuffer):
            dials = {"n_steps": buffer.n_steps, "gamma": buffer.gamma, **dials}
        settings = {name: getattr(buffer, name) for name in SB3}
        made = cls(buffer_size=buffer.buffer_size * buffer.n_envs, **settings, **dials)
        for name in (*STORED, "pos", "full"):
            if hasattr(buffer, name):
                setattr(made, name, getattr(buffer, name))
        return made

    @property
    def v(self) -> float:
        """The largest share of replays in a pair's updates. It can be set at any time; 0 is SB3's own buffer."""
        return self._v

    @v.setter
    def v(self, value: float) -> None:
        chooser: Any = self.shaper.index if self.is_keyed else self.sampler
        chooser.v = value
        self._v = chooser.v

    @property
    def scheme(self) -> Scheme:
        """The scheme: what is replayed at a pair with a key. It can be set at any time."""
        self._needs_key("scheme")
        return self._scheme

    @scheme.setter
    def scheme(self, scheme: Scheme) -> None:
        self._needs_key("scheme")
        self._scheme = Shaper(1, scheme=scheme).index.scheme
        if self._shaper is not None:
            self.shaper.index.scheme = self._scheme

    @property
    def beta(self) -> float | None:
        """How strongly replays prefer bad outcomes; None if the scheme has no β. It can be set at any time."""
        return getattr(self._scheme, "beta", None) if self.is_keyed else self._beta

    @beta.setter
    def beta(self, value: float) -> None:
        if not self.is_keyed:
            self.sampler.beta = value
            self._beta = self.sampler.beta
            return
        name = type(self._scheme).__name__
        _checks.require(hasattr(self._scheme, "beta"), "beta", f"be a dial of the scheme, {name}", value)
        self.scheme = replace(cast(Any, self._scheme), beta=value)

    key, mixing, tilt_on, horizon, n_steps, gamma, seed = (_Fixed() for _ in range(7))

    @property
    def sampler(self) -> SurpriseSampler:
        """What chooses the slots of a buffer without a key."""
        _checks.require(not self.is_keyed, "buffer", "have no key, for a sampler", self.key, "it has a shaper")
        if self._sampler is None:
            every = EVERY_IMAGES if _has_images(self.observation_space) else BATCHES
            self._sampler = SurpriseSampler(self._v, self._beta, every=every, seed=self._own_seed())
        return self._sampler

    @property
    def shaper(self) -> Shaper:
        """What chooses the slots of a buffer with a key, up to date with the buffer. At v = 0 it is made at the first access."""
        self._needs_key("shaper")
        if self._shaper is None:
            self._shaper = self._new_shaper()
            self._read_again(self._shaper)
        if (self.pos, self.full) != self._seen_at:
            self._follow_writes(self._shaper)
        if self._untold:
            self._pass_on(self._shaper)
        return self._shaper

    def _needs_key(self, what: str) -> None:
        how = "give one, for example key=safereplay.AutoKey()"
        _checks.require(self.is_keyed, "buffer", f"have a key, for a {what}", "none", how)

    @property
    def tilted(self) -> Bools:
        """Of the last batch: which draws were replays."""
        return self.shaper.index.tilted if self.is_keyed else self.sampler.tilted

    def attach(self, source: Any) -> None:
        """Say where TD errors come from, in a loop without an SB3 model; it is not saved.

        Parameters
        ----------
        source : an SB3 model, or a callable that maps a batch, as :meth:`sample` returns it, to the TD errors of its transitions, [n] or [n, 1]
        """
        known = isinstance(source, OffPolicyAlgorithm) or callable(source)
        _checks.require(known, "source", "be an SB3 model or a function of a batch", source)
        self._source = source

    def _td_errors(self, slots: Ints) -> Any:
        """TD errors by what was attached, or by the model that samples."""
        source = _caller(self) if self._source is None else self._source
        if isinstance(source, OffPolicyAlgorithm):
            self.sampler.reach = reach(source)
            return td_errors(source, self, slots)
        with th.no_grad():
            found = source(self.transitions(slots, self._env))
        return found.cpu().numpy() if isinstance(found, th.Tensor) else found

    def _own_seed(self) -> int:
        if self._seed is None:  # SB3's only seeded generator
            self._seed = int(np.random.randint(2**31))  # noqa: NPY002
        return self._seed

    def _new_shaper(self) -> Shaper:
        return self._made_shaper(self.buffer_size * self.n_envs, self._own_seed())

    def _made_shaper(self, capacity: int, seed: int) -> Shaper:
        dials = {name: self._dials[name] for name in ("key", "mixing", "tilt_on", "gamma")}
        more = {"n_step": self.horizon, "n_envs": self.n_envs, "seed": seed}
        return Shaper(capacity, self._v, scheme=self._scheme, **dials, **more)

    def add(
        self,
        obs: AnyArray,
        next_obs: AnyArray,
        action: AnyArray,
        reward: AnyArray,
        done: AnyArray,
        infos: list[dict[str, Any]] | dict[str, Any] | None,
    ) -> None:
        """Store one transition of each environment, as in SB3.

        Parameters
        ----------
        obs, next_obs, action, reward, done : array [n_envs, ...]
        infos : list of dicts; may be None or Gymnasium's dict of arrays if ``handle_timeout_termination`` is False

        Raises
        ------
        BadInput : a reward is not finite; nothing was stored
        """
        if self._v > 0.0:
            check_rewards(reward)
        if self._shaper is not None and (self.pos, self.full) != self._seen_at:
            self._follow_writes(self._shaper)
        position = self.pos
        super().add(obs, next_obs, action, reward, done, infos)  # type: ignore[arg-type]
        self.unsafe[position] = unsafe_flags(infos)
        if self._shaper is not None:
            self._untold += 1
            self._seen_at = (self.pos, self.full)
            if self._untold >= AT_ONCE // self.n_envs or self._untold >= self.buffer_size:
                self._pass_on(self._shaper)

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """Draw a batch of ``batch_size`` transitions, normalised by a VecNormalize ``env``.

        Without a key, TD errors are computed for every eighth batch. With one, new transitions are first passed to the shaper, which then draws
        the slots; it may warn about what is stored.

        Raises
        ------
        BadInput : without a key, no SB3 model samples the buffer, and none is attached
        """
        if self._v == 0.0:
            return super().sample(batch_size, env=env)
        if not self.is_keyed:
            self._env = env
            self.sampler.forget(self._is_gone)
            slots = self.sampler.draw(self._drawable(), batch_size, self._td_errors, self._slots)
            if self.on_draw is not None:
                self.on_draw(slots)
            return self.transitions(slots, env)
        shaper = self.shaper
        slots = shaper.draw(batch_size)
        if shaper.added >= self._next_look:
            self._next_look = 2 * shaper.added
            give_advice(self, env)
        if self.on_draw is not None:
            self.on_draw(slots)
        if not self._aware:
            self._aware = True
            if np.isnan(shaper.index.x_of(slots)).all():
                advise(
                    'tilt_on="target" tilts nothing until targets are known; pass callback=ShapingCallback() to learn()'
                )
        return self.transitions(slots, env)

    def reset(self) -> None:
        """Delete all transitions."""
        super().reset()
        if self._shaper is not None:
            self._read_again(self._shaper)
        if getattr(self, "_sampler", None) is not None:  # SB3's __init__ calls this, too
            self.sampler.clear()

    def reread(self) -> None:
        """Read the whole buffer again after a change in place (``buffer.rewards[:] *= 0.1``), which ``pos`` and ``full`` do not show."""
        if self._shaper is not None:
            self._read_again(self._shaper)

    def cut(self) -> None:
        """End the running episodes, though their last step is not marked as done: n-step returns end there."""
        if self._shaper is not None:
            self.shaper.cut()

    def explain(self, k: int = 10) -> None:
        """Print what is drawn most.

        With a key: :meth:`Shaper.explain <safereplay.Shaper.explain>`, with the observation and action of each pair's worst transition. Without one:
        the worst surprises of the last pool, and how often each is drawn, relative to an ordinary transition.
        """
        if self.is_keyed:
            sys.stdout.write(self.shaper.explain(k, self._named) + "\n")
            return
        slots, errors, often = self.sampler.pool
        k, found = _checks.whole("k", k, 1), dict[str, None]()  # each line once: tables have many equal transitions
        lines = [
            f"v = {self.v:g}, beta = {self.beta:g}, unit {self.sampler.unit:.4g}; {slots.size:,} transitions seen last"
        ]
        lines += ["drawn  reward  TD error  observation and action" if slots.size else "nothing was drawn yet"]
        for i in np.argsort(-often, kind="stable"):
            if len(found) == k:
                break
            r = float(self.rewards.take(slots[i]))
            found[f"{often[i]:.2f}×  {r:6.4g}  {errors[i]:8.4g}  {self._named(int(slots[i]))}"] = None
        sys.stdout.write("\n".join([*lines, *found]) + "\n")

    def _named(self, slot: int) -> str:
        """A short name of a pair: the observation and action in a slot."""
        observation, action = self.seen(np.array([slot]))
        style: Any = {"precision": 3, "separator": ", "}
        parts = observation.items() if isinstance(observation, dict) else [("", observation)]
        shown = [name + np.array2string(np.ravel(x), threshold=8, edgeitems=2, **style) for name, x in parts]
        return " ".join([*("".join(x.split("\n")) for x in shown), np.array2string(np.ravel(action), **style)])

    def transitions(self, slots: Ints, env: VecNormalize | None = None) -> ReplayBufferSamples:
        """The transitions in these slots, as SB3's samples; a subclass's ``_get_samples`` is used."""
        if getattr(self._get_samples, "__func__", None) in OWN:
            return self._taken(slots, env)
        if self.n_envs == 1:
            return self._get_samples(slots, env)
        n_envs, shape = self.n_envs, (self.buffer_size, self.n_envs)
        positions, which = np.divmod(slots, n_envs)
        parts, order = [], []
        for e in np.unique(which) if slots.size else [0]:
            mine = np.flatnonzero(which == e)
            # act as a buffer of environment e only, so that a ``_get_samples`` that draws an environment draws this one
            stored = {name: x for name, x in self.__dict__.items() if is_stored(x, shape)}
            self.__dict__.update({name: column(x, int(e)) for name, x in stored.items()}, n_envs=1)
            try:
                parts.append(self._get_samples(positions[mine], env))
            finally:
                self.__dict__.update(stored, n_envs=n_envs)
            order.append(mine)
        back = th.as_tensor(np.argsort(np.concatenate(order)), device=self.device)
        return cast(ReplayBufferSamples, merged(parts, back))

    def _taken(self, slots: Ints, env: VecNormalize | None) -> ReplayBufferSamples:
        """The result of SB3's ``_get_samples``, for these environments instead of random ones."""
        after: Stored = self.observations if self.optimize_memory_usage else self.next_observations
        where = (slots + self.n_envs) % (self.buffer_size * self.n_envs) if self.optimize_memory_usage else slots
        ends = self.dones.take(slots) * (1 - self.timeouts.take(slots))

        def tensors(x: Any) -> Any:
            return {k: tensors(y) for k, y in x.items()} if isinstance(x, dict) else self.to_torch(x, copy=False)

        data = (
            self._normalize_obs(rows(self.observations, slots), env),
            rows(self.actions, slots),
            self._normalize_obs(rows(after, where), env),
            ends.reshape(-1, 1),
            self._normalize_reward(self.rewards.take(slots).reshape(-1, 1), env),
        )
        kind: Any = DictReplayBufferSamples if isinstance(self, DictReplayBuffer) else ReplayBufferSamples
        return cast(ReplayBufferSamples, kind(*map(tensors, data)))

    def seen(self, slots: Ints) -> tuple[Any, AnyArray]:
        """Observations and actions in these slots, as stored: the input of the key."""
        return rows(self.observations, slots), rows(self.actions, slots)

    def held(self) -> Ints:
        """The slots that can be drawn, oldest first."""
        return self._slots(np.arange(self._drawable()))

    def _drawable(self) -> int:
        """The number of slots that can be drawn; the oldest position of a full buffer may be half overwritten."""
        return (self.size() - int(self.full and self.optimize_memory_usage)) * self.n_envs

    def _is_gone(self, slots: Ints) -> Bools:
        """Which slots, drawable before, cannot be drawn now."""
        if self.full and self.optimize_memory_usage:
            return np.asarray(slots // self.n_envs == self.pos)
        return np.asarray(slots >= self.size() * self.n_envs)

    def _slots(self, numbers: Ints) -> Ints:
        """The slots of transitions that are numbered from the oldest one that can be drawn."""
        first = (self.pos + int(self.optimize_memory_usage)) * self.n_envs if self.full else 0
        return np.asarray((numbers + first) % (self.buffer_size * self.n_envs))

    def _follow_writes(self, shaper: Shaper) -> None:
        """Handle external writes. A few steps more, as by a subclass's own ``add``, are new; else all is read again."""
        pos, full = self._seen_at
        steps = (self.pos - pos) % self.buffer_size
        if full == self.full and (full or self.pos > pos) and FEW * steps < self.size():
            self._untold = min(self._untold + steps, self.buffer_size)
            self._seen_at = (self.pos, self.full)
        else:
            self._read_again(shaper)

    def _read_again(self, shaper: Shaper) -> None:
        """Clear the shaper, to pass it the whole buffer again."""
        shaper.clear()
        self._untold = self.size()
        self._seen_at = (self.pos, self.full)

    def _pass_on(self, shaper: Shaper) -> None:
        """Pass new transitions to the shaper, oldest first."""
        while self._untold:  # counted down after each success: transitions that the shaper refuses are not lost
            first = (self.pos - self._untold) % self.buffer_size
            n = min(self._untold, max(AT_ONCE // self.n_envs, 1), self.buffer_size - first)
            slots = np.arange(first * self.n_envs, (first + n) * self.n_envs)
            obs, actions = self.seen(slots)
            shaper.add(slots, obs, actions, self.rewards.take(slots), self.dones.take(slots) > 0)
            self._untold -= n
        if self.optimize_memory_usage and self.full:  # the last next observation overwrote an observation
            shaper.drop(np.arange(self.n_envs) + self.pos * self.n_envs)

    def __getstate__(self) -> dict[str, Any]:
        """Plain arrays and numbers, without compiled code and callbacks."""
        books = None if self._shaper is None else self.shaper.state_dict()
        return {**self.__dict__, "on_draw": None, "_shaper": books, "_source": None, "_env": None}

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a class made by ``_joined`` as its two parts, since it cannot be imported by name."""
        parts = vars(type(self)).get("parts", (type(self), type(self)))
        return _empty, parts, self.__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state of :meth:`__getstate__`."""
        again = "fill another buffer with its arrays, or save it again with this version"
        _checks.require("is_keyed" in state, "buffer", "have been saved by this version", "an older one", again)
        books = state["_shaper"]
        self.__dict__.update({**state, "_shaper": None})
        if books is not None:
            self._shaper = self._new_shaper()
            self._shaper.load_state_dict(books)


class ShapedDictReplayBuffer(ShapedReplayBuffer, DictReplayBuffer):  # type: ignore[misc]
    """The same for Dict observations; :class:`ShapedReplayBuffer` makes it automatically.

    Parameters
    ----------
    *args, **dials : as in :class:`ShapedReplayBuffer`

    >>> from gymnasium.spaces import Box, Dict, Discrete
    >>> type(ShapedReplayBuffer(10, Dict(x=Box(0.0, 1.0)), Discrete(2))).__name__
    'ShapedDictReplayBuffer'
    """


class ShapedNStepReplayBuffer(ShapedReplayBuffer, NStepReplayBuffer):
    """The same with SB3's n-step targets; :class:`ShapedReplayBuffer` makes it if ``n_steps`` is above 1.

    Parameters
    ----------
    *args, **dials : as in :class:`ShapedReplayBuffer`

    >>> from gymnasium.spaces import Box, Discrete
    >>> type(ShapedReplayBuffer(10, Box(0.0, 1.0), Discrete(2), n_steps=3, gamma=0.9)).__name__
    'ShapedNStepReplayBuffer'
    """


def _has_images(space: spaces.Space[Any]) -> bool:
    """Whether observations are images, or have one among their parts."""
    if isinstance(space, spaces.Dict):
        return any(_has_images(part) for part in space.spaces.values())
    return is_image_space(space)


def _caller(buffer: ShapedReplayBuffer) -> Any:
    """The model that is sampling this buffer: the nearest caller whose ``replay_buffer`` it is."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        model = frame.f_locals.get("self")
        if isinstance(model, OffPolicyAlgorithm) and model.replay_buffer is buffer:
            return model
        frame = frame.f_back
    how = "in a loop of your own call buffer.attach(function of a batch), or give the buffer a key"
    return _checks.fail("buffer", "be sampled by the SB3 model that it belongs to", "another caller", how)


def _former(name: str, others: dict[str, Any], horizon: int | None) -> int | None:
    """The horizon, also by its former name n_step; other keywords are refused."""
    if "n_step" in others:
        advise("n_step is called horizon now; n_steps (SB3's) is for n-step targets")
        horizon = others.pop("n_step")
    for other, value in others.items():
        _checks.require(other not in HER, other, "be left out", value, NO_HER)
        raise TypeError(f"{name}.__init__() got an unexpected keyword argument {other!r}")
    return horizon


@cache
def _joined(cls: Any, kind: Any) -> Any:
    """The class with what ``kind`` adds to :class:`ShapedReplayBuffer`, under the same name."""
    if issubclass(cls, kind):
        return cls
    if issubclass(kind, cls):
        return kind
    named = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls, kind), {**named, "parts": (cls, kind)})


def _empty(cls: Any, kind: Any) -> Any:
    """An object of the joined class, without state."""
    joined = _joined(cls, kind)
    return joined.__new__(joined)
