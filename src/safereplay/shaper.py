"""Shaped replay for any training loop: report what was stored, and ask what to replay.

A :class:`Shaper` joins three parts: a key, which defines the pair (s,a) of a transition; a number x per transition, which
the tilt uses; and a :class:`~safereplay.pair_index.PairIndex`, which draws. The choice of x decides which danger is visible:

    reward   x = r: danger that shows in the reward of the step itself. Known at once.
    return   x = r_t + γ·r_{t+1} + ... + γ^{n−1}·r_{t+n−1}: danger up to n steps ahead. Known n − 1 steps later or at the episode's end;
             the noise of those steps, and of the policy that took them, counts as risk of the first.
    target   x = r + γ·max Q(s',·): danger as far ahead as Q has learned. The caller supplies it:
             :meth:`Shaper.due` lists transitions, :meth:`Shaper.value` takes their targets. Until a transition has a target it
             can be drawn, but is not tilted; between refreshes a target is as old as the Q it was computed from.

The shaper stores no observations, except the first few if its key must learn from data.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from . import _checks
from ._checks import AnyArray, Floats, Ints
from ._files import load_state, save_state
from .errors import BadFile, BadInput, Once
from .kernels import memory as mem
from .keys import PairKey, diagnose
from .keys.spatial import AutoKey
from .pair_index import PairIndex, slot_numbers
from .schemes import EntropicReplay, Scheme

TILTS = ("reward", "return", "target")
KIND, VERSION = "shaper", 1
SAVED, WAITING = ("tilt_on", "n_step", "gamma", "n_envs"), ("open", "waiting", "sums")  # parts of a state
GONE = -1  # a slot that no longer waits
FIRST_LOOK = 1000  #: number of transitions before the first report on the tilt
ENOUGH = 4000  #: number of transitions before a warning that nothing is tilted
LITTLE = 0.002  #: share of transitions in varying pairs below which nothing counts as tilted
ALONE = np.uint64(0x5AFE5AFE00000000)  # + slot: the key of a transition whose pair is not known yet


class Dials(TypedDict, total=False):
    """Dials of a :class:`Shaper` that the adapters pass on."""

    key: PairKey | None
    scheme: Scheme | None
    mixing: str
    tilt_on: str
    n_step: int
    gamma: float


class Shaper:
    """Chooses which transitions of a ring are replayed.

    Parameters
    ----------
    capacity : int; number of slots of the ring
    v : float in [0, 1]; share of a volatile pair's updates that are replays
    beta : float, optional; how strongly they favour low x (β < 0: high x); default: 2
    key : PairKey, optional; decides which transitions belong to one pair; default: :class:`~safereplay.AutoKey`
    scheme : Scheme, optional; in place of :class:`~safereplay.EntropicReplay`; has its own dials, so ``beta`` is left out
    mixing : {"matched", "literal"}; as in :class:`~safereplay.PairIndex`
    tilt_on : {"reward", "return", "target"}; x, the quantity that the tilt uses
    n_step, gamma : int, float; steps n and discount γ of the return
    n_envs : int; number of environments that fill the ring in turn
    seed : int; of the draws

    >>> import numpy as np, safereplay as sr
    >>> shaper = sr.Shaper(capacity=1000, v=0.5, key=sr.ExactKey(), seed=0)
    >>> rewards = np.where(np.arange(1000) % 10 == 0, -9.0, 1.0)  # one in ten is bad
    >>> shaper.add(np.arange(1000), np.zeros((1000, 2)), np.zeros(1000, int), rewards, np.zeros(1000, bool))
    >>> batch = shaper.draw(10_000)
    >>> float((rewards[batch] < 0).mean().round(2))
    0.28
    """

    def __init__(
        self,
        capacity: int,
        v: float = 0.5,
        beta: float | None = None,
        *,
        key: PairKey | None = None,
        scheme: Scheme | None = None,
        mixing: str = "matched",
        tilt_on: str = "reward",
        n_step: int = 3,
        gamma: float = 0.99,
        n_envs: int = 1,
        seed: int = 0,
    ) -> None:
        one = beta is None or scheme is None
        _checks.require(one, "beta", "be left out where a scheme is given", beta, "it has its own")
        scheme = (EntropicReplay() if beta is None else EntropicReplay(beta)) if scheme is None else scheme
        self.index = PairIndex(capacity, scheme, v, mixing, seed)
        self.key = AutoKey() if key is None else key
        _checks.require(isinstance(self.key, PairKey), "key", "be a PairKey", key)
        self.tilt_on = _checks.choice("tilt_on", tilt_on, TILTS)
        self.n_step = _checks.whole("n_step", n_step, 1, bits=16)
        self.gamma = _checks.between("gamma", gamma, "[0, 1]")
        self.n_envs = _checks.whole("n_envs", n_envs, 1, bits=30)
        self.once = Once()
        self.added, self._next_look = 0, FIRST_LOOK  #: transitions added so far, and when to report next
        self._forget()

    def _forget(self) -> None:
        """Clear everything that waits: steps for their return, slots for their target, the first data for the key."""
        shape = (self.n_envs, self.n_step if self.tilt_on == "return" else 1)
        self._open: Ints = np.zeros(self.n_envs, np.int64)
        self._waiting: Ints = np.zeros(shape, np.int64)
        self._sums: Floats = np.zeros(shape)
        self._fresh: list[Ints] = []
        self._next = 0
        self._first: list[tuple[Ints, Any, AnyArray]] = []

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return self.index.capacity

    def __len__(self) -> int:
        """The number of slots held."""
        return len(self.index)

    def add(self, slots: Any, obs: Any, action: Any, reward: Any, ends: Any) -> None:
        """Transitions were stored. Several steps of ``n_envs`` environments are ordered by step, then by environment.

        Parameters
        ----------
        slots : int [n]; where they were stored, replacing the previous contents
        obs, action : array [n, ...]; observations may be a dict of such
        reward : float [n]
        ends : bool [n]; whether the episode ends there (terminated or truncated)

        Raises
        ------
        BadInput : the lengths differ, or a reward is not finite
        """
        slots = slot_numbers(slots)
        reward = _one_each("reward", _checks.finite_array("reward", reward), slots)
        for part in (*(obs.values() if isinstance(obs, dict) else [obs]), action):
            rows = np.shape(part)[:1]
            _checks.require(rows == slots.shape, "observation and action", f"have {slots.size} rows, as slots", rows)
        self.added += slots.size
        if self.tilt_on != "return":
            self._file(slots, obs, action, reward if self.tilt_on == "reward" else np.full(slots.shape, np.nan))
            if self.tilt_on == "target":
                self._fresh.append(slots.copy())
                if sum(new.size for new in self._fresh) > 2 * self.capacity:
                    self._fresh = [self._unvalued()]
            return
        n, action, ends = self.n_envs, np.asarray(action), _one_each("ends", np.asarray(ends, bool), slots)
        _checks.require(slots.size % n == 0, "slots", f"come by n_envs = {n}", slots.size)
        # step by step, so that the result does not depend on how many come at once
        for first in range(0, slots.size, n):
            step = slice(first, first + n)
            self._withdraw(slots[step])
            self._file(slots[step], _rows(obs, step), action[step], np.full(n, np.nan))
            out, x = np.empty(n + self._waiting.size, np.int64), np.empty(n + self._waiting.size)
            new, books = (slots[step], reward[step], ends[step]), (self._open, self._waiting, self._sums)
            known = mem.returns(*new, self.gamma, *books, out, x)
            out, x = out[:known], x[:known]
            self.index.value(out[out != GONE], x[out != GONE])

    def drop(self, slots: Any) -> None:
        """Remove the transitions of these slots."""
        slots = slot_numbers(slots)
        self._withdraw(slots)
        self.index.drop(slots)

    def clear(self) -> None:
        """Remove all transitions; the key and the generator are kept."""
        self.index.clear()
        self._forget()

    def cut(self) -> None:
        """End the running episodes: steps that wait for their return get it now."""
        is_open = np.arange(self._waiting.shape[1]) < self._open[:, None]
        known = is_open & (self._waiting != GONE)
        self.index.value(self._waiting[known], self._sums[known])
        self._open[:] = 0

    def _file(self, slots: Ints, obs: Any, action: Any, x: Floats) -> None:
        """Store transitions under their keys. Until the key has learned, always from as many, each is a pair of its own."""
        if self.key.ready:
            self.index.put(slots, self.key(obs, action), x)
            return
        action = np.asarray(action)
        wanted = min(getattr(self.key, "warm_up", 1), self.capacity) - sum(known.size for known, _, _ in self._first)
        now, later = slice(wanted), slice(wanted, None)
        self._first.append((slots[now].copy(), _rows(obs, now), action[now].copy()))
        self.index.put(slots[now], ALONE + slots[now].astype(np.uint64), x[now])
        if slots.size >= wanted:
            held, *data = _joined(self._first)
            self._first = []
            self.key = self.key.learn(*data)
            keys = self.key(*data)
            last = last_of_each(held)  # the later entry of a slot counts
            last = last[self.index.is_held(held[last])]
            self.index.put(held[last], keys[last], self.index.x_of(held[last]))
        if slots.size > wanted:
            self._file(slots[later], _rows(obs, later), action[later], x[later])

    def _withdraw(self, slots: Ints) -> None:
        """Drop waiting steps whose slot was overwritten: they get no return."""
        self._waiting[np.isin(self._waiting, slots)] = GONE

    def due(self, k: int) -> Ints:
        """Up to k slots whose target should be computed: first those without one, newest last, then round the ring."""
        k = _checks.whole("k", k, 0)
        fresh = self._unvalued()
        taken, rest = fresh[:k], fresh[k:]
        self._fresh = [rest] if rest.size else []
        if taken.size == k or not len(self):
            return taken
        ring = (self._next + np.arange(min(k - taken.size, self.capacity))) % self.capacity
        self._next = int(ring[-1] + 1) % self.capacity
        return np.concatenate([taken, np.setdiff1d(ring[self.index.is_held(ring)], taken)])

    def _unvalued(self) -> Ints:
        """The slots that have no target and were not yet listed by :meth:`due`, each once, in the order they came."""
        came = np.concatenate([*self._fresh, np.zeros(0, np.int64)]).astype(np.int64)
        came = came[np.sort(last_of_each(came))]
        came = came[self.index.is_held(came)]
        return came[np.isnan(self.index.x_of(came))]

    def value(self, slots: Any, x: Any) -> None:
        """Set x [n] of slots [n] that are held."""
        self.index.value(slots, x)

    def draw(self, batch: int) -> Ints:
        """The slots of a batch, int [batch]; it must not be called before the first transition was added."""
        if self.added >= self._next_look:
            self._look()
        return self.index.draw(batch)

    def _look(self) -> None:
        """Report the key and whether anything is tilted. Rarely called, since it reads all that is held."""
        self._next_look = 2 * max(self.added, FIRST_LOOK)
        if self.index.v == 0.0 or not self.key.ready:
            return
        table = self.index.pair_table()
        varying = float(table["held"] @ (table["std"] > 0.0)) / max(len(self), 1)
        key = getattr(self.key, "chosen", None) or self.key
        pairs = f"{key} finds {len(table['key']):,} pairs in {len(self):,} transitions"
        varies = f"the {self.tilt_on} varies in {_percent(varying)} of the transitions"
        self.once.note("key", f"shaped replay: {pairs}; {varies}")
        if varying >= LITTLE or self.added < ENOUGH:
            return
        if self.tilt_on == "target" and not table["n"].sum():
            how = "give them by Shaper.value, or pass callback=ShapingCallback() to SB3's learn()"
            self.once.advise("tilted", f"nothing is tilted: no target is known yet; {how}")
            return
        held = np.flatnonzero(self.index.is_held(np.arange(self.capacity)))
        repeated = diagnose(self.index.key_of(held), self.index.x_of(held)).warning
        if repeated is not None:
            self.once.advise("key_fits", f"nothing is tilted: {repeated}")
        else:
            later = 'tilt_on="target" if harm shows later, ' if self.tilt_on != "target" else ""
            why = f"the {self.tilt_on} varies in only {_percent(varying)} of the transitions so far"
            how = f"try {later}a coarser key if states never repeat, or a reward with a price on harm"
            self.once.advise("tilted", f"nothing is tilted: {why}; {how}")

    def explain(self, k: int = 10, name: Callable[[int], str] | None = None) -> str:
        """A table of the pairs that are tilted most.

        *Low* is an outcome below the pair's mean: how often it happens, and how often it is drawn. *Value* is the mean of x, as it
        happens and as it is drawn.

        Parameters
        ----------
        k : int; number of pairs
        name : callable, optional; maps a slot to the name of its pair; default: its key
        """
        rows = [("pair", "n", "low", "low drawn", "value", "value drawn", "moved")]
        for tilt in self.index.tilts(k):
            shown = f"{tilt.key:016x}" if name is None else name(tilt.worst)
            numbers = _percent(tilt.low), _percent(tilt.low_drawn), f"{tilt.mean:.4g}", f"{tilt.mean_drawn:.4g}"
            rows.append((shown, f"{tilt.n:.0f}", *numbers, _percent(tilt.moved)))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(x.rjust(w) for x, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        unit = f", unit {self.index.unit:.4g}" if self.index.scheme.POOLED else ""
        head = f"v = {self.index.v:g}, {self.index.scheme}{unit}; {self.index.n_pairs:,} pairs in {len(self):,} transitions, tilted on the {self.tilt_on}"
        return "\n".join([head, *(lines if len(rows) > 1 else ["nothing is tilted: no pair varies"])])

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as arrays and plain values; a shaper loaded from it makes the same draws."""
        first = dict(zip(("slots", "obs", "action"), _joined(self._first), strict=True)) if self._first else {}
        state = {"index": self.index.state_dict(), "key": self.key.state_dict()}
        state |= {name: getattr(self, name) for name in SAVED}
        state |= {name: getattr(self, f"_{name}").copy() for name in WAITING}
        fresh = np.concatenate([*self._fresh, np.zeros(0, np.int64)])
        return {**state, "fresh": fresh, "next": self._next, "first": first}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state of a shaper of the same capacity; an invalid state raises an error and changes nothing."""
        other = Shaper._made(state, self.capacity, getattr(self.key, "function", None))
        self.__dict__.update(other.__dict__)

    @staticmethod
    def _made(state: dict[str, Any], capacity: int, function: Any) -> Shaper:
        """A shaper in this state, fully checked."""
        try:
            key = PairKey.from_state(state["key"], function)
            made = Shaper(capacity, key=key, **{name: state[name] for name in SAVED})
            made.index.load_state_dict(state["index"])
            for name in WAITING:
                mine = getattr(made, f"_{name}")
                given = np.array(state[name], mine.dtype)
                _checks.require(given.shape == mine.shape, name, f"have shape {mine.shape}", given.shape)
                setattr(made, f"_{name}", given)
            within = bool(((made._open >= 0) & (made._open < max(made._waiting.shape[1], 1))).all())
            _checks.require(within, "open", "be below n_step", made._open)
            for name in ("waiting", "fresh"):
                slots = np.array(state[name], np.int64)
                least = GONE if name == "waiting" else 0
                inside = bool(((slots >= least) & (slots < capacity)).all())
                _checks.require(inside, name, f"be in {least}..{capacity - 1}", slots)
            made._fresh = [np.array(state["fresh"], np.int64)] if len(state["fresh"]) else []
            made._next = _checks.whole("next", state["next"], 0) % capacity
            first = state["first"]
            made._first = [(np.array(first["slots"], np.int64), first["obs"], first["action"])] if first else []
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"state must be as state_dict gives it, got {type(error).__name__}: {error}") from None
        return made

    def save(self, path: str | Path) -> Path:
        """Write everything to a file, without pickle."""
        return save_state(path, KIND, VERSION, {"capacity": self.capacity, **self.state_dict()})

    @staticmethod
    def load(path: str | Path, function: Any = None) -> Shaper:
        """Load a shaper from a file; ``function`` is that of its key, for a :class:`~safereplay.FunctionKey`.

        Raises
        ------
        BadFile : the file is not a saved shaper
        """
        state = load_state(path, KIND, VERSION)
        try:
            return Shaper._made(state, _checks.whole("capacity", state.get("capacity"), 1, bits=30), function)
        except BadFile:
            raise
        except BadInput as error:
            raise BadFile(f"{path} must be a saved shaper, got one in which {error}") from None


def _percent(share: float) -> str:
    """A share as a percentage, to two figures."""
    return f"{float(f'{100.0 * share:.2g}'):g} %"


def _rows(obs: Any, rows: slice) -> Any:
    """A copy of some rows of observations."""
    if isinstance(obs, dict):
        return {name: _rows(part, rows) for name, part in obs.items()}
    return np.asarray(obs)[rows].copy()


def _one_each(argument: str, values: AnyArray, slots: Ints) -> AnyArray:
    """Values as one axis, one per slot."""
    _checks.require(values.size == slots.size, argument, f"have one entry per slot, {slots.size}", values.shape)
    return values.reshape(slots.shape)


def last_of_each(slots: Ints) -> Ints:
    """The position of the last entry of each slot, in the order of the slots."""
    return np.asarray(slots.size - 1 - np.unique(slots[::-1], return_index=True)[1])


def _joined(first: list[tuple[Ints, Any, AnyArray]]) -> tuple[Ints, Any, AnyArray]:
    """Concatenate pieces of the first data."""
    slots, obs, action = zip(*first, strict=True)
    if isinstance(obs[0], dict):
        return np.concatenate(slots), {n: np.concatenate([o[n] for o in obs]) for n in obs[0]}, np.concatenate(action)
    return np.concatenate(slots), np.concatenate(obs), np.concatenate(action)
