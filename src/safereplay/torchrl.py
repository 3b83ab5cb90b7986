"""TorchRL: shaped replay as a sampler for ``ReplayBuffer`` and ``TensorDictReplayBuffer``.

    sampler = ShapedSampler(td_errors=lambda batch: target(batch) - value(batch))
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100_000), sampler=sampler, batch_size=256)

TorchRL's buffer consists of a storage (holds transitions), a writer (chooses the next slot) and a sampler (draws
slots). This module replaces only the sampler.

**With ``td_errors``**, a function of stored transitions, a :class:`~safereplay.SurpriseSampler` draws: transitions that turned out worse than
expected come more often. It needs no keys and reads no writes, so any storage works that can be indexed.

**Without it**, draws are made within pairs (s,a), which a key identifies. After each write, the writer calls ``mark_update``; the sampler then
reads the new contents of the slots and passes them to a :class:`~safereplay.Shaper`, which draws as follows:

    anchor uniformly over the slots held;  with ρ(s,a) a slot of the same pair instead, ∝ e^{log_tilt(x)}

So its statistics always match the storage, also after the ring wraps around. Any storage with a ``max_size`` works
if its items are tensordicts (or dicts) of one transition each: ``LazyTensorStorage``, ``LazyMemmapStorage``,
``ListStorage``, ``LazyStackStorage``. In a storage of several dimensions the first one is time and the others are
environments, as ``ReplayBuffer`` fills it.

Two limitations of keys. Writes of *another process* to a shared buffer are not detected. Changes in place
(``buffer[i] = ...``) are detected after ``buffer.mark_update(i)``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any, TypeAlias, Unpack, cast

import numpy as np

from . import _checks
from ._checks import AnyArray, Floats, Ints
from ._files import load_state, make_folder, save_state
from .errors import BadInput, MissingExtra
from .shaper import Dials, Shaper, last_of_each
from .surprise import BETA, SurpriseSampler, V

try:
    import torch
    from tensordict import is_tensor_collection
    from torchrl.data.replay_buffers.samplers import Sampler
    from torchrl.data.replay_buffers.storages import Storage, TensorStorage
except ImportError:
    raise MissingExtra("safereplay.torchrl needs TorchRL; install it with: pip install 'safereplay[torchrl]'") from None

#: An entry of a tensordict: its name, or its path.
Name: TypeAlias = str | tuple[str, ...]
Index: TypeAlias = "int | torch.Tensor | tuple[torch.Tensor, ...]"

FILE, KIND, VERSION = "sampler.npz", "sampler", 1
HINT = "say which one it is: ShapedSampler(observation=..., action=..., reward=..., done=...)"
MOST = 1 << 30


class EmptyStorage(BadInput, RuntimeError):
    """The storage is empty. A RuntimeError as well, like those of TorchRL's own samplers."""


class ShapedSampler(Sampler):  # type: ignore[misc]  # TorchRL has no types
    """Draws transitions uniformly, but bad surprises more often, or with keys the worst of each pair.

    With ``td_errors`` it draws as :class:`~safereplay.SurpriseSampler` does, otherwise as :class:`~safereplay.Shaper`.

    With keys: for ``tilt_on="return"`` transitions must be written in the order they happened: those of one environment into a storage
    of one dimension, those of several into one with ``ndim=2``. With ``tilt_on="target"``, ``buffer.update_priority(index,
    r + γ·max Q(s',·))`` gives the slots of :meth:`due` their targets.

    Parameters
    ----------
    v : float, optional; largest share of replays in a pair's updates; default: 0.8, or 0.5 with keys
    beta : float, optional; how strongly bad outcomes are preferred (good ones if β < 0); default: 1, or the scheme's with keys
    td_errors : callable, optional; maps stored transitions, as ``storage.get(index)`` returns them, to their TD errors, [n] or [n, 1]; it is
        called without gradients, on a pool of eight batches for every eighth batch, and is not saved
    reach : float, optional; with ``td_errors``, the TD error beyond which the loss is linear: 1 for a Huber loss; default: infinite
    key, scheme, mixing, tilt_on, n_step, gamma : the other dials of :class:`~safereplay.Shaper`; not with ``td_errors``
    seed : int, optional; of the sampler's own stream, which is saved with it; default: draws follow the buffer's
        ``generator`` or torch's own, so ``torch.manual_seed`` makes a run repeatable
    report : bool; add to a sample, for each draw, whether it was ``tilted``, and with keys the ``rho`` of its pair
    observation, action, reward, done : str or tuple of str; with keys, the storage's entries of a transition; for observations a list gives all of them;
        an action is a number, a vector, or one-hot

    >>> import safereplay as sr, torch
    >>> from tensordict import TensorDict
    >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    >>> reward = torch.tensor([1.0, 1.0, 1.0, -9.0]).repeat(25)[:, None]  # one pair; a quarter of it is bad
    >>> data = {"observation": torch.zeros(100, 2), "action": torch.zeros(100)}
    >>> data["next"] = {"reward": reward, "done": reward < 0}
    >>> def filled(sampler):
    ...     buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(1_000), sampler=sampler, batch_size=1_000)
    ...     buffer.extend(TensorDict(data, [100]))
    ...     return buffer
    >>> buffer = filled(ShapedSampler(td_errors=lambda batch: batch["next", "reward"], seed=0))  # every value is 0 here
    >>> (buffer.sample()["next", "reward"] < 0).float().mean().round(decimals=1)  # 0.25·5 / (0.25·5 + 0.75)
    tensor(0.6000)
    >>> sampler = ShapedSampler(v=0.5, beta=2.0, key=sr.ExactKey())
    >>> _ = filled(sampler)
    >>> sampler
    ShapedSampler(v=0.5, tilt_on='reward', held=100, pairs=1)
    >>> sampler.shaper.index.distribution()[3:100:4].sum().round(3)  # what is drawn of the bad quarter
    np.float64(0.458)
    """

    def __init__(
        self,
        v: float | None = None,
        beta: float | None = None,
        *,
        td_errors: Callable[[Any], Any] | None = None,
        reach: float | None = None,
        seed: int | None = None,
        report: bool = False,
        observation: Name | list[Name] = "observation",
        action: Name = "action",
        reward: Name = ("next", "reward"),
        done: Name = ("next", "done"),
        **dials: Unpack[Dials],
    ) -> None:
        several = observation if isinstance(observation, list) else [observation]
        _checks.require(bool(several), "observation", "name at least one entry", observation)
        self._observation = [_name("observation", name) for name in several]
        self._report, self._follows = _checks.flag("report", report), seed is None
        self._action, self._reward, self._done = _name("action", action), _name("reward", reward), _name("done", done)
        first = 0 if seed is None else seed
        self._settings: dict[str, Any] = {"v": 0.5 if v is None else v, "beta": beta, **dials, "seed": first}
        self._lock = threading.RLock()  # a prefetching buffer samples in threads, and clears without its own lock
        self._shaper: Shaper | None = None
        self._surprise: SurpriseSampler | None = None
        self._td_errors = td_errors
        if td_errors is None:
            _checks.require(reach is None, "reach", "be left out without td_errors", reach)
            Shaper(1, **self._settings)  # checks the settings now, not at the first write
            return
        _checks.require(callable(td_errors), "td_errors", "be a function of stored transitions", td_errors)
        for name, value in dials.items():
            _checks.require(value is None, name, "be left out with td_errors", value, "it is a dial of keys")
        self._surprise = SurpriseSampler(
            V if v is None else v,
            BETA if beta is None else beta,
            reach=inf if reach is None else reach,
            seed=first,
        )

    @property
    def shaper(self) -> Shaper:
        """The shaper that draws with keys. It exists from the first write on, when the storage's size is known."""
        _checks.require(self._surprise is None, "sampler", "have keys, for a shaper", "td_errors", "it has a surprise")
        _checks.require(self._shaper is not None, "storage", "have been written to", "none so far")
        assert self._shaper is not None
        return self._shaper

    @property
    def surprise(self) -> SurpriseSampler:
        """What draws with ``td_errors``; its dials can be set at any time."""
        _checks.require(self._surprise is not None, "sampler", "have td_errors, for a surprise", "keys")
        assert self._surprise is not None
        return self._surprise

    @property
    def tilt_on(self) -> str:
        """The quantity that the tilt uses: "td_error"; with keys "reward", "return" or "target"."""
        if self._surprise is not None:
            return "td_error"
        return str(self._settings.get("tilt_on", "reward")) if self._shaper is None else self._shaper.tilt_on

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def mark_update(self, index: Index, *, storage: Storage | None = None) -> None:
        """Slots were written: read their new contents, with keys."""
        if self._surprise is not None:
            return
        _checks.require(storage is not None, "storage", "be given", None)
        with self._lock:
            self._read(_slots(index, storage), storage)

    def _read(self, slots: Ints, storage: Any) -> None:
        slots = slots[slots >= 0]  # a writer gives -1 for transitions that it did not keep
        slots = slots[np.sort(last_of_each(slots))]  # a batch longer than the ring overwrites itself
        if not slots.size:
            return
        size, n_envs = storage.max_size, _n_envs(storage)
        _checks.require(size < MOST, "max_size of storage", f"be below {MOST}", size, "set max_size")
        capacity = -(-int(size) // n_envs) * n_envs  # TorchRL rounds up the first dimension to hold ``max_size``
        if self._shaper is None:
            self._shaper = Shaper(capacity, n_envs=n_envs, **self._settings)
        mine = self._shaper.capacity
        _checks.require(mine == capacity, "storage", f"have {mine} slots, as the sampler has", capacity)
        held = _Held(storage, slots)
        parts = [part for name in self._observation for part in held.parts(name)]
        obs = dict(parts) if len(parts) > 1 else parts[0][1]
        reward, ends = held.numbers(self._reward), held.numbers(self._done).astype(np.bool_)
        self._shaper.add(slots, obs, held.entry(self._action), reward, ends)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def sample(self, storage: Storage, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Draw ``batch_size`` slots: their index, and with ``report`` a dict of ``tilted``, and with keys ``rho``.

        Raises
        ------
        EmptyStorage : nothing was stored
        BadInput : a TD error is not finite, or not one per transition
        """
        _checks.whole("batch_size", batch_size, 1)
        with self._lock:
            if not len(storage):
                raise EmptyStorage("storage must hold a transition, got an empty one; extend the buffer first")
            if self._surprise is not None:
                return self._surprising(self._surprise, storage, batch_size)
            if self._shaper is None or not len(self._shaper):  # the storage was filled before this sampler was attached
                self._read(np.arange(len(storage), dtype=np.int64), storage)
            index = self.shaper.index
            if self._follows:
                index._here.generator[:] = self._words()
            slots, said = self.shaper.draw(batch_size), {}
            if self._report:
                said = {"tilted": torch.from_numpy(index.tilted.copy()), "rho": torch.from_numpy(index.rho(slots))}
        return _index(slots, storage), said

    def _surprising(self, chooser: SurpriseSampler, storage: Any, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Draw by TD errors."""
        size, (pool, _, _) = len(storage), chooser.pool
        if pool.max(initial=0) >= size:  # of another storage, or of this one before it was emptied
            chooser.clear()
        if self._follows:
            chooser.restart(self._words())

        def found(slots: Ints) -> Any:
            data = storage.get(_index(slots, storage))
            with torch.no_grad():
                errors = cast(Any, self._td_errors)(torch.stack(data) if isinstance(data, list) else data)
            return errors.cpu().numpy() if isinstance(errors, torch.Tensor) else errors

        slots = chooser.draw(size, batch_size, found)
        return _index(slots, storage), {"tilted": torch.from_numpy(chooser.tilted)} if self._report else {}

    def _words(self) -> Any:
        """256 bits of torch's generator, or the buffer's: the state of our own generator for the next draws."""
        device = "cpu" if self._rng is None else self._rng.device
        words = torch.randint(-(2**63), 2**63 - 1, (4,), generator=self._rng, device=device)
        return words.cpu().numpy().view(np.uint64)

    def due(self, k: int, storage: Storage | None = None) -> Any:
        """Up to k slots whose target should be computed now; a storage of several dimensions must be given."""
        with self._lock:
            return _index(self.shaper.due(k), storage)

    def update_priority(self, index: Index, priority: Any, *, storage: Storage | None = None) -> None:
        """With ``tilt_on="target"``, set the targets of slots, [n] or one for all; otherwise TorchRL's own error is raised.

        A storage of several dimensions must be given.
        """
        if self.tilt_on != "target":
            super().update_priority(index, priority, storage=storage)
            return
        with self._lock:
            slots = _slots(index, storage)
            x = torch.as_tensor(priority).detach().cpu().numpy().astype(np.float64).reshape(-1)
            _checks.require(x.size in (1, slots.size), "priority", f"have 1 or {slots.size} entries", x.size)
            kept = slots >= 0
            kept[kept] = self.shaper.index.is_held(slots[kept])  # the buffer may have been cleared since the draw
            self.shaper.value(slots[kept], np.broadcast_to(x, slots.shape)[kept])

    def _empty(self) -> None:
        with self._lock:
            for chooser in (self._shaper, self._surprise):
                if chooser is not None:
                    chooser.clear()

    def _state(self) -> dict[str, Any]:
        with self._lock:
            if self._surprise is not None:
                return {"surprise": self._surprise.state_dict()}
            if self._shaper is None:
                return {}
            return {"capacity": self._shaper.capacity, "shaper": self._shaper.state_dict()}

    def _go_on(self, state: dict[str, Any]) -> None:
        """Restore a state; that of a sampler that was never written to is empty, and so is that of TorchRL's uniform one."""
        with self._lock:
            if not state:
                self._shaper = None
                self._empty()
                return
            inner = state.get("shaper" if self._surprise is None else "surprise")
            _checks.require(isinstance(inner, dict), "state", "be as state_dict gives it", sorted(map(str, state)))
            if self._surprise is not None:
                self._surprise.load_state_dict(cast(dict[str, Any], inner))
                return
            made = self._shaper
            if made is None:
                made = Shaper(_checks.whole("capacity", state.get("capacity"), 1), **self._settings)
            made.load_state_dict(cast(dict[str, Any], inner))
            self._shaper = made

    def state_dict(self) -> dict[str, Any]:
        """The whole state, in tensors and plain values that ``torch.load(weights_only=True)`` accepts."""
        return cast(dict[str, Any], _packed(self._state()))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a state, with its dials: the next draws are those of the sampler that saved it."""
        _checks.require(isinstance(state_dict, Mapping), "state_dict", "be a dict", state_dict)
        self._go_on(cast(dict[str, Any], _unpacked(state_dict)))

    def dumps(self, path: str | Path) -> None:
        """Save to a folder: one file of arrays, without pickle."""
        save_state(make_folder(path) / FILE, KIND, VERSION, self._state())

    def loads(self, path: str | Path) -> None:
        """Restore from what :meth:`dumps` saved. With ``td_errors``, a folder of another sampler will do: draws begin anew."""
        file = Path(path) / FILE
        self._go_on({} if self._surprise is not None and not file.exists() else load_state(file, KIND, VERSION))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        if self._surprise is not None:
            return (
                f"{type(self).__name__}(v={self._surprise.v:g}, beta={self._surprise.beta:g}, tilt_on={self.tilt_on!r})"
            )
        v, held, pairs = self._settings["v"], 0, 0
        if self._shaper is not None:
            v, held, pairs = self._shaper.index.v, len(self._shaper), self._shaper.index.n_pairs
        return f"{type(self).__name__}(v={v:g}, tilt_on={self.tilt_on!r}, held={held}, pairs={pairs})"


class _Held:
    """The contents of a storage at some slots, by entry: only requested entries are copied."""

    def __init__(self, storage: Any, slots: Ints) -> None:
        self._n = slots.size
        if isinstance(storage, TensorStorage):
            self._rows: list[Any] = [storage.get(slice(None))]
            self._at: Any = _index(slots, storage)
        else:
            self._rows, self._at = storage.get(slots.tolist()), None

    def entry(self, name: tuple[str, ...]) -> AnyArray:
        """An entry of each slot's transition [n, ...]."""
        found = [_at(row, name) for row in self._rows]
        value = found[0][self._at] if self._at is not None else torch.stack(found)
        return np.asarray(value.detach().cpu().numpy())

    def parts(self, name: tuple[str, ...]) -> list[tuple[str, AnyArray]]:
        """An entry with its name; for a nested entry, all entries inside it."""
        inside = _inside(_at(self._rows[0], name))
        if inside is None:
            return [(".".join(name).replace("/", "."), self.entry(name))]
        return [part for below in sorted(inside) for part in self.parts((*name, below))]

    def numbers(self, name: tuple[str, ...]) -> Floats:
        """An entry with one number per transition, stored as [n, 1] or [n]."""
        values = self.entry(name)
        _checks.require(np.size(values) == self._n, _shown(name), "be one number per transition", np.shape(values))
        return np.asarray(values, dtype=np.float64).reshape(self._n)


def _inside(value: Any) -> list[str] | None:
    """The names of the entries in a tensordict or dict; None for anything else."""
    if not is_tensor_collection(value) and not isinstance(value, Mapping):
        return None
    return [str(name) for name in value.keys()]  # noqa: SIM118  (a tensordict iterates over its rows)


def _at(row: Any, name: tuple[str, ...]) -> Any:
    """An entry of a tensordict, or of nested dicts."""
    value = row
    for part in name:
        inside = _inside(value)
        if inside is None:
            _checks.fail("storage", f"hold tensordicts or dicts, for {_shown(name)}", type(value).__name__)
        _checks.require(part in inside, "storage", f"have the entry {_shown(name)}", sorted(inside), HINT)
        value = value[part]
    return value


def _name(argument: str, name: Any) -> tuple[str, ...]:
    path = (name,) if isinstance(name, str) else name
    ok = isinstance(path, tuple) and bool(path) and all(isinstance(part, str) for part in path)
    _checks.require(ok, argument, "be the name of an entry, or a tuple of names that leads to it", name)
    return tuple(path)


def _shown(name: tuple[str, ...]) -> str:
    return repr(name[0] if len(name) == 1 else name)


def _inner(storage: Any) -> tuple[int, ...]:
    """The storage's shape without its first dimension, which is the ring's."""
    return tuple(storage.shape[1:]) if storage.ndim > 1 else ()


def _slots(index: Any, storage: Any) -> Ints:
    """The slots of an index: a number, [n], [n, ndim], or a tuple of [n] for each dimension; they count consecutively."""
    rows = torch.stack(tuple(index), -1) if isinstance(index, tuple) else torch.as_tensor(index)
    numbers = rows.detach().cpu().numpy().astype(np.int64)
    if storage is None or storage.ndim == 1:
        return np.atleast_1d(numbers).reshape(-1)
    strides = np.cumprod((1, *_inner(storage)[::-1]))[::-1]
    return np.asarray((numbers.reshape(-1, storage.ndim) * strides).sum(1))


def _index(slots: Ints, storage: Any) -> Any:
    """The index of slots, in the form that the storage expects."""
    device = getattr(storage, "device", None)
    numbers = torch.from_numpy(slots).to(device if isinstance(device, torch.device) else "cpu")
    if storage is None or storage.ndim == 1:
        return numbers
    return torch.unravel_index(numbers, (-(-storage.max_size // _n_envs(storage)), *_inner(storage)))


def _n_envs(storage: Any) -> int:
    return int(np.prod(_inner(storage), dtype=np.int64))


def _packed(value: Any) -> Any:
    """Arrays, including structured ones, as bytes with their type and shape; everything else unchanged."""
    if isinstance(value, dict):
        return {name: _packed(part) for name, part in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    raw = torch.from_numpy(np.frombuffer(value.tobytes(), np.uint8).copy())
    return {"bytes": raw, "shape": list(value.shape), "dtype": np.lib.format.dtype_to_descr(value.dtype)}


def _unpacked(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    if set(value) != {"bytes", "shape", "dtype"}:
        return {name: _unpacked(part) for name, part in value.items()}
    try:
        dtype = np.lib.format.descr_to_dtype(value["dtype"])
        return np.frombuffer(value["bytes"].cpu().numpy().tobytes(), dtype).reshape(value["shape"]).copy()
    except (AttributeError, TypeError, ValueError) as error:
        raise BadInput(f"state_dict must be as state_dict gives it, got an array with: {error}") from None
