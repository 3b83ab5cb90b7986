"""The sampling core: which slots of a memory of transitions are drawn.

It handles slots, keys and numbers, and does not store transitions. A slot belongs to the pair (s,a) of its key and has a number x,
usually its reward. With q̂ uniform over the slots of a pair, and ŵ ∝ e^{log_tilt(x)} over them,
a draw at pair (s,a) follows

    p̃  =  (1 − ρ)·q̂  +  ρ·ŵ,          ρ(s,a) = v·min(1, W(s,a)),        (matched mixing)

where W and the tilt are the scheme's two factors, evaluated on the statistics of the slots that are held now. The probability of
a *pair* does not change: an anchor is drawn uniformly, and with probability ρ another slot of its pair replaces it. With literal
mixing, as in Algorithm 1, a draw comes with probability v from w = W/ΣW · ŵ over the whole memory, and is uniform otherwise.

The tabular memory tilts over the *distinct* rewards of a pair; here each transition that is held counts once. With continuous
rewards both are the same.

Ref: Szlak & Shamir (2021), Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from . import _checks
from ._checks import Bools, Floats, Ints
from ._config import Config
from .errors import BadInput
from .kernels import layers as lay
from .kernels import rng, tilted, tree
from .kernels.compile import trouble
from .kernels.memory import STATISTICS
from .learners import paper_mixing
from .schemes import EntropicReplay, Scheme

KEPT = ("r", "n", "mean", "var")  # quantities that a factor may name here, besides its own dials ...
OFFERED = ("y", "freq", "luck", "spread")  # ... and in a pooled scheme: y is x, freq and luck are 1, spread is 0
ARRAYS = ("slots", "pairs", "layers", "pool", "table", "heads", "scale", "generator")
ROUNDING = 1e-9  # shares of draws below this count as zero
MEASURED = 8  # measurements of the unit while the whole content changes once
NODES, PANEL, FAR = 16, 4.0, 12  # of the integral over slopes: nodes per panel, panel width, number of equal panels


class Tilt(NamedTuple):
    """The effect of the tilt on a pair."""

    key: int
    worst: int  #: the slot with its lowest x
    n: float  #: slots with known x
    moved: float  #: share of all draws that moves to another slot of the pair
    low: float  #: share of its slots below its mean
    low_drawn: float  #: share of its draws below its mean
    mean: float  #: mean of x over its slots
    mean_drawn: float  #: mean of x over its draws


class PairIndex:
    """An index of slots by pair, with tilted draws.

    Parameters
    ----------
    capacity : int; number of slots
    scheme : Scheme, optional; W and the tilt; default: :class:`~safereplay.EntropicReplay`
    v : float in [0, 1]; share of replay at pairs with weight 1; can be set at any time, as the scheme can
    mixing : {"matched", "literal"}
    seed : int; of the draws

    Raises
    ------
    BadInput : the scheme needs more than a pair's statistics

    >>> import numpy as np, safereplay as sr
    >>> index = sr.PairIndex(capacity=4, v=0.9, scheme=sr.EntropicReplay(beta=2.0))
    >>> index.put([0, 1, 2, 3], keys=[7, 7, 7, 8], x=[1.0, 1.0, -5.0, 3.0])
    >>> index.distribution().round(2)
    array([0.11, 0.11, 0.52, 0.25])
    >>> (np.bincount(index.draw(100_000), minlength=4) / 100_000).round(1)
    array([0.1, 0.1, 0.5, 0.2])
    """

    def __init__(
        self, capacity: int, scheme: Scheme | None = None, v: float = 0.5, mixing: str = "matched", seed: int = 0
    ) -> None:
        capacity = _checks.whole("capacity", capacity, 1, bits=30)
        self._use(EntropicReplay() if scheme is None else scheme)
        self.v = v
        self.mixing = paper_mixing(mixing)
        seed = _checks.whole("seed", seed, 0)
        self.tilted: Bools = np.zeros(0, bool)  #: which entries of the last draw came from the tilt
        self._here = lay.allocate(capacity, rng.seeded(seed), mixing == "literal")

    def _use(self, scheme: Scheme) -> None:
        self._scheme = linear(scheme)
        self._pieces = pieces_of(scheme)
        self._params = scheme.params()

    @property
    def scheme(self) -> Scheme:
        """The replay scheme. It can be set at any time."""
        return self._scheme

    @scheme.setter
    def scheme(self, scheme: Scheme) -> None:
        before = self._scheme
        self._use(scheme)
        try:
            self._measure()
            self._renew()
        except BadInput:
            self._use(before)
            self._renew()
            raise

    @property
    def unit(self) -> float:
        """The unit u of x for the next draw's slope, if the scheme is pooled; 0 while no pair varies."""
        return lay.measure(self._here) if self._is_due() else float(self._here.scale[lay.UNIT])

    def _is_due(self) -> bool:
        """Whether the unit is measured again before the next draw; not before, so that reading the state does not change it."""
        return bool(self._here.scale[lay.CHANGED] * MEASURED >= max(len(self), 1))

    @property
    def v(self) -> float:
        """The share of replay at pairs with weight 1."""
        return self._v

    @v.setter
    def v(self, v: float) -> None:
        self._v = _checks.between("v", v, "[0, 1]")

    @property
    def capacity(self) -> int:
        """The number of slots."""
        return len(self._here.slots)

    def __len__(self) -> int:
        """The number of slots held."""
        return int(self._here.heads[lay.HELD])

    @property
    def n_pairs(self) -> int:
        """The number of pairs that have slots."""
        return int(self._here.heads[lay.N_PAIRS])

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        return sum(array.nbytes for array in self._here)

    def put(self, slots: Any, keys: Any, x: Any) -> None:
        """Store slots, replacing their previous contents.

        Parameters
        ----------
        slots : int [n]
        keys : uint64 [n]; their pairs
        x : float [n]; NaN is not known yet: the slot can be drawn, but is in no statistic and no tilt
        """
        slots, x, keys = slot_numbers(slots), np.asarray(x, np.float64), np.asarray(keys)
        _checks.require(keys.dtype.kind in "iu" or not keys.size, "keys", "be whole numbers", keys)
        keys = keys.astype(np.uint64, copy=False)
        _same_length(slots, keys=keys, x=x)
        self._change(self._pieces.put, x, slots, keys, x)

    def value(self, slots: Any, x: Any) -> None:
        """Set x [n] of slots [n] that are held."""
        slots, x = slot_numbers(slots), np.asarray(x, np.float64)
        _same_length(slots, x=x)
        self._change(self._pieces.value, x, slots, x)

    def drop(self, slots: Any) -> None:
        """Remove these slots."""
        slots = slot_numbers(slots)
        self._change(self._pieces.drop, slots, slots)

    def clear(self) -> None:
        """Remove all slots; the generator keeps its state."""
        self._here = lay.allocate(self.capacity, self._here.generator, self.mixing == "literal")

    def _change(self, kernel: Any, x: Any, slots: Ints, *columns: Any) -> None:
        """Apply a change to some slots."""
        self._here.scale[lay.CHANGED] += slots.size
        self._run(kernel, x, slots, *columns)

    def _run(self, kernel: Any, x: Any, *columns: Any) -> None:
        """Run a kernel over slots or pairs (the first column) to its end; enlarge arrays that are full. ``x`` is for messages."""
        params, heads, slots = self._params, self._here.heads, columns[0]
        done = kernel(self._here, *columns, 0, params)
        while done < slots.size:
            self._make_room(int(heads[lay.TROUBLE]), slots[done], x[done])
            done = kernel(self._here, *columns, done, params)
        if heads[lay.TROUBLE] == lay.BAD_WEIGHT:
            heads[lay.TROUBLE] = lay.FINE
            row = self._here.pairs[heads[lay.WHERE]]
            where = f"at mean {row['mean']:g}, var {row['m2'] / row['n']:g}"
            _checks.fail("pair_weight", "be at least 0 and finite", float("nan"), where)

    def _measure(self) -> None:
        """Measure the unit; if it is out of range of the layers, rebuild the layers of all pairs."""
        scale = self._here.scale
        scale[lay.UNIT], scale[lay.CHANGED] = lay.measure(self._here), 0.0
        if not 0.5 * scale[lay.LAYERED] <= scale[lay.UNIT] <= 2.0 * scale[lay.LAYERED]:
            self._renew()

    def _renew(self) -> None:
        """Rebuild the layers of all pairs for the current scheme and unit."""
        self._here.scale[lay.LAYERED] = self._here.scale[lay.UNIT]
        rows = self._pair_rows()
        self._run(self._pieces.renew, rows, rows)

    def _pair_rows(self) -> Ints:
        return np.flatnonzero(self._here.pairs["held"][: self._here.heads[lay.PAIR_TOP]] > 0)

    def _make_room(self, what: int, slot: int, x: float) -> None:
        """Enlarge the arrays that are full, or raise an error if the input is the reason."""
        here = self._here
        if what == lay.BAD_SLOT:
            _checks.fail("slots", f"be in 0..{self.capacity - 1}", int(slot))
        if what == lay.BAD_X:
            _checks.fail("x", f"lie within ±{lay.LARGEST:g}", float(x), f"at slot {slot}")
        if what == lay.NOT_HELD:
            _checks.fail("slots", "be held", int(slot))
        if what == lay.PAIRS_FULL:
            rows, weights = len(here.pairs) * 2, here.tree
            if self.mixing == "literal":
                leaves = here.tree.size // 2
                weights = tree.allocate(rows)
                tree.put_many(weights, np.arange(leaves), here.tree[leaves:].copy())
            pairs = np.concatenate([here.pairs, np.zeros(rows - len(here.pairs), lay.PAIR)])
            self._here = here._replace(pairs=pairs, table=np.full(2 * rows, lay.NONE, np.int32), tree=weights)
            lay.enlist_all(self._here)
        elif what == lay.LAYERS_FULL:
            more = np.zeros(len(here.layers) // 2 + 4 * lay.REACH, lay.LAYER)
            self._here = here._replace(layers=np.concatenate([here.layers, more]))
        elif what == lay.POOL_FULL:
            self._resize_pool(int(here.heads[lay.WHERE]))

    def _resize_pool(self, need: int) -> None:
        """Repack the pool, with room for this many more entries."""
        live = lay.live_pool(self._here)
        pool = np.zeros(live + max(live // 4, need) + 256, np.int32)
        lay.repack(self._here, pool)
        self._here = self._here._replace(pool=pool)

    def draw(self, batch: int) -> Ints:
        """Slots drawn independently from p̃, int [batch]."""
        batch = _checks.whole("batch", batch, 0)
        _checks.require(len(self) > 0, "slots held", "number at least 1", 0, "nothing was put yet")
        if self._scheme.POOLED and self._is_due():
            self._measure()
        out, self.tilted = np.empty(batch, np.int64), np.empty(batch, bool)
        self._pieces.draw(self._here, self._v, self._params, out, self.tilted)
        return out

    def rho(self, slots: Any) -> Floats:
        """ρ of these slots' pairs: v·min(1, W) with matched mixing, the share of draws by weight with literal mixing."""
        rows, place = np.unique(self._pair_of(slots), return_inverse=True)
        return np.asarray(self._rho(rows)[place])

    def _rho(self, rows: Ints) -> Floats:
        weights = self._weights(self._here.pairs[rows])[0]
        if self.mixing == "matched":
            return self._v * np.minimum(weights, 1.0)
        replayed = self._v * weights / max(tree.total(self._here.tree), 1e-300)
        drawn = replayed + (1.0 - self._v) * self._here.pairs[rows]["held"] / len(self)
        return np.asarray(np.divide(replayed, drawn, out=np.zeros(len(rows)), where=drawn > 0))

    def _weights(self, pairs: Any) -> tuple[Floats, Floats]:
        weights, slopes = np.empty(len(pairs)), np.empty(len(pairs))
        self._pieces.weigh(np.ascontiguousarray(pairs), self._params, weights, slopes)
        return weights, slopes

    def distribution(self) -> Floats:
        """p̃ of every slot, [capacity]: summed directly over the slots held, without layers or running statistics."""
        slots = self._here.slots
        held = np.flatnonzero(slots["pair"] != lay.NONE)
        p = np.zeros(self.capacity)
        if not held.size:
            return p
        rows, pair = np.unique(slots["pair"][held], return_inverse=True)
        x, known = slots["x"][held], ~np.isnan(slots["x"][held])
        n = np.bincount(pair[known], minlength=rows.size)
        mean = np.bincount(pair[known], x[known], rows.size) / np.maximum(n, 1)
        stats = np.zeros(rows.size, lay.PAIR)
        stats["n"], stats["mean"] = n, mean
        stats["m2"] = np.bincount(pair[known], (x - mean[pair])[known] ** 2, rows.size)
        weights, slopes = self._weights(stats)
        if self._scheme.POOLED:
            slopes /= self.unit or 1.0
        w = np.zeros(held.size)
        tilt = -slopes[pair[known]] * (x - mean[pair])[known]
        w[known] = shares(pair[known], np.ones(tilt.size), tilt, self._scheme.POOLED)
        if self.mixing == "matched":
            rho = self._v * np.minimum(weights, 1.0)
            share = np.bincount(pair, minlength=rows.size) / held.size
            p[held] = (1.0 - rho[pair]) / held.size + (rho * share)[pair] * w
        else:
            total = weights.sum()
            v = self._v if total > 0 else 0.0
            p[held] = (1.0 - v) / held.size + v * (weights / max(total, 1e-300))[pair] * w
        return p

    def pair_table(self) -> dict[str, Any]:
        """The pairs that are held: key, n (slots with known x), held (all slots), mean and std of x, and ρ."""
        rows = self._pair_rows()
        pairs = self._here.pairs[rows]
        std = np.sqrt(pairs["m2"] / np.maximum(pairs["n"], 1))
        columns = {name: pairs[name].copy() for name in ("key", "n", "held", "mean")}
        return columns | {"std": std, "rho": self._rho(rows)}

    def tilts(self, k: int) -> list[Tilt]:
        """The k pairs whose draws change most under the tilt, in decreasing order."""
        slots = self._here.slots
        held = np.flatnonzero((slots["pair"] != lay.NONE) & ~np.isnan(slots["x"]))
        rows, pair = np.unique(slots["pair"][held], return_inverse=True)
        x, p = slots["x"][held], self.distribution()[held]

        def summed(values: Any) -> Floats:
            return np.asarray(np.bincount(pair, values, rows.size), np.float64)

        n, total = summed(np.ones(held.size)), summed(p)
        mean = summed(x) / n
        moved = 0.5 * summed(np.abs(p - (total / n)[pair]))
        low = x < mean[pair]
        drawn = np.maximum(total, 1e-300)
        columns = n, moved, summed(low) / n, summed(p * low) / drawn, mean, summed(p * x) / drawn
        first = np.lexsort((x, pair))[np.searchsorted(np.sort(pair), np.arange(rows.size))]
        best = [i for i in np.argsort(-moved, kind="stable")[: _checks.whole("k", k, 0)] if moved[i] > ROUNDING]
        keys = self._here.pairs["key"][rows]
        return [Tilt(int(keys[i]), int(held[first[i]]), *(float(column[i]) for column in columns)) for i in best]

    def key_of(self, slots: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The keys of these slots."""
        return np.asarray(self._here.pairs["key"][self._pair_of(slots)])

    def x_of(self, slots: Any) -> Floats:
        """The numbers of these slots."""
        self._pair_of(slots)
        return np.asarray(self._here.slots["x"][slot_numbers(slots)])

    def is_held(self, slots: Any) -> Bools:
        """Whether these slots are held."""
        return np.asarray(self._here.slots["pair"][self._inside(slot_numbers(slots))] != lay.NONE)

    def _inside(self, slots: Ints) -> Ints:
        outside = slots[(slots < 0) | (slots >= self.capacity)]
        if outside.size:
            _checks.fail("slots", f"be in 0..{self.capacity - 1}", int(outside[0]))
        return slots

    def _pair_of(self, slots: Any) -> Ints:
        slots = self._inside(slot_numbers(slots))
        pairs = self._here.slots["pair"][slots]
        if (pairs == lay.NONE).any():
            _checks.fail("slots", "be held", int(slots[np.argmin(pairs)]))
        return np.asarray(pairs)

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as arrays and plain values; an index loaded from it makes the same draws."""
        arrays = {name: getattr(self._here, name).copy() for name in ARRAYS}
        return {"scheme": self._scheme.to_dict(), "v": self._v, "mixing": self.mixing, **arrays}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state; an invalid state raises an error and changes nothing."""
        scheme = Config.from_dict(state["scheme"])
        _checks.require(isinstance(scheme, Scheme), "state", "hold a scheme", scheme)
        made = PairIndex(self.capacity, cast(Scheme, scheme), float(state["v"]), state["mixing"])
        before = {"scale": np.zeros(lay.N_SCALE)}  # states from older versions have no unit
        made._here = _read(before | state, self.capacity, made.mixing == "literal")
        made._resize_pool(0)  # also discards the free lists of the state
        if made.mixing == "literal":  # rebuild the sum tree from the pairs' statistics
            rows, new = made._pair_rows(), tree.allocate(len(made._here.pairs))
            weights = made._weights(made._here.pairs[rows])[0]
            fit = bool((np.isfinite(weights) & (weights >= 0)).all())
            _checks.require(fit, "state", "have weights of at least 0", weights)
            tree.put_many(new, rows, weights)
            made._here = made._here._replace(tree=new)
        self.__dict__.update(made.__dict__)

    __getstate__ = state_dict

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.tilted = np.zeros(0, bool)
        self._here = lay.allocate(len(state["slots"]), rng.seeded(0), by_weight=False)
        self.load_state_dict(state)


def linear(scheme: Scheme) -> Scheme:
    """Check that a scheme can be used here: its factors name only the statistics kept, and its tilt is a straight line in r."""
    _checks.require(isinstance(scheme, Scheme), "scheme", "be a Scheme", scheme)
    reason = unfit(scheme)
    if reason is not None:
        raise BadInput(reason)
    return scheme


def unfit(scheme: Scheme) -> str | None:
    """Why a scheme cannot be used in a memory of transitions, in one line; None if it can."""
    name = type(scheme).__name__
    for factor in ("pair_weight", "log_tilt"):
        bound = scheme.bound(factor)
        reason = trouble(bound)
        if reason is not None:
            return f"{name}.{factor} must compile, got {reason}"
        odd = sorted(bound.names - {*KEPT, *(OFFERED if scheme.POOLED else ()), *scheme.params_names()})
        if odd:
            return f"{name}.{factor} must name only {', '.join(KEPT)} and its own dials here, got {', '.join(odd)}"
    tilt, unknown = scheme.bound("log_tilt").call, (0.0,) * (len(STATISTICS) - 3)
    for mean, var in ((0.0, 1.0), (3.0, 0.25), (-7.0, 100.0)):
        stats = 8.0, mean, var, *unknown
        low, mid, high = (
            tilt((x, *stats, *tilted.outcome(x), *scheme.params())) for x in (mean - 2.0, mean, mean + 2.0)
        )
        if abs(high - 2.0 * mid + low) > 1e-9 * (1.0 + abs(high) + abs(mid) + abs(low)):
            return f"{name}.log_tilt must be a straight line in r here, got a bend at r = {mean:g}"
    return None


def pieces_of(scheme: Scheme) -> tilted.Pieces:
    """The kernels for a scheme."""
    return tilted.make_pieces(scheme.bound("pair_weight"), scheme.bound("log_tilt"), scheme.POOLED)


def shares(pair: Ints, q: Floats, log_tilt: Floats, pooled: bool) -> Floats:
    """ŵ ∝ q·e^{log_tilt} within each pair; if ``pooled``, the mean of that over slopes t·log_tilt, t uniform on (0, 1).

    The mean is a Gauss–Legendre integral, exact to rounding. The integrand has no pole nearer than π over the range of log_tilt, so
    panels of width PANEL in the exponent are enough; for large t only the largest terms matter, and panels widen with t.
    """
    n = int(pair.max(initial=-1)) + 1
    top, low = np.full(n, -np.inf), np.full(n, np.inf)
    np.maximum.at(top, pair, log_tilt)
    np.minimum.at(low, pair, log_tilt)
    below = log_tilt - top[pair]
    out = np.zeros(pair.size)
    for t, weight in _slopes(float((top - low)[pair].max(initial=0.0))) if pooled else [(1.0, 1.0)]:
        w = q * np.exp(t * below)
        out += weight * w / np.bincount(pair, w, n)[pair]
    return out


def _slopes(reach: float) -> Iterator[tuple[float, float]]:
    """Nodes t in (0, 1) and their weights, for tilts that differ by up to ``reach``."""
    near = min(PANEL / max(reach, PANEL), 1.0)
    edges = [near * k for k in range(min(FAR, int(1.0 / near)) + 1)]
    while edges[-1] < 1.0:
        edges.append(edges[-1] + max(near, edges[-1] / FAR))
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    for start, stop in zip(edges[:-1], [*edges[1:-1], 1.0], strict=True):
        half = (stop - start) / 2.0
        yield from zip(start + half * (nodes + 1.0), half * weights, strict=True)


def slot_numbers(slots: Any) -> Ints:
    """Slots as an integer array."""
    array = np.atleast_1d(np.asarray(slots))
    _checks.require(array.dtype.kind in "iu" or not array.size, "slots", "be whole numbers", slots)
    return array.astype(np.int64, copy=False)


def _same_length(slots: Ints, **columns: Any) -> None:
    for name, column in columns.items():
        if column.shape != slots.shape:
            _checks.fail(name, f"have shape {slots.shape}, as slots", column.shape)


def _read(state: dict[str, Any], capacity: int, by_weight: bool) -> lay.Layers:
    """The arrays of a state, checked, since a file may have been modified."""
    like = lay.allocate(1, rng.seeded(0), by_weight)
    arrays = {}
    for name in ARRAYS:
        array, dtype = np.array(state[name]), getattr(like, name).dtype
        like_it = array.dtype == dtype and array.ndim == 1
        _checks.require(like_it, name, "be an array as state_dict gives it", array.dtype)
        arrays[name] = np.ascontiguousarray(array).view(dtype)  # a file does not keep that a dtype is aligned
    here = lay.Layers(sums=like.sums, tree=like.tree, **arrays)
    _checks.require(len(here.slots) == capacity, "state", f"be of capacity {capacity}", len(here.slots))
    table, rows = here.table.size, len(here.pairs)
    sizes = table & (table - 1) == 0 and table > rows >= 1 and here.heads.size == lay.N_HEADS
    generator = here.generator.size == 4 and bool(here.generator.any())
    scale = here.scale
    scaled = scale.size == lay.N_SCALE and bool((np.isfinite(scale) & (scale >= 0.0)).all())
    scaled = scaled and bool(0.5 * scale[lay.LAYERED] <= scale[lay.UNIT] <= 2.0 * scale[lay.LAYERED])
    whole = sizes and generator and scaled and lay.is_sound(here)
    _checks.require(bool(whole), "state", "be as state_dict gives it", "arrays that do not fit together")
    return here
