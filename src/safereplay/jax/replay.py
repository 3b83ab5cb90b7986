"""Replay buffers as pure functions: shaped replay without keys, and with them.

    buffer = make_shaped_buffer(max_length=50_000, sample_batch_size=64)
    state  = buffer.init(transition)                       # any pytree of arrays: one transition
    state  = buffer.add(state, transition)
    state  = buffer.update(state, key, td_errors)          # TD errors of a fresh part of the memory, by the current networks
    sample = buffer.sample(state, key, v, beta)            # sample.experience, as in flashbax

All functions can be compiled, mapped and scanned. v and β are ordinary arguments, so one compiled program can sweep them.

**Without keys.** A transition is drawn with probability ∝ (1 − v) + v·h(δ), see :mod:`safereplay.surprise`, whose formula is used here. ``update`` draws
some stored transitions uniformly, and puts their TD errors into a *pool* of the last eight such parts. So all steps do the same
work, and nothing is conditional: under ``vmap`` both branches of a condition would be computed. A batch is uniform, except
for a share that is drawn from the pool. Transitions of the pool that were overwritten since then are not drawn from it.

**With keys**, for small discrete worlds. As in :class:`~safereplay.PairIndex` with :class:`~safereplay.EntropicReplay`: an anchor is drawn uniformly, and with
probability v another transition of its pair (s,a) replaces it, drawn ∝ e^{−b·x/u}, with b uniform on (0, β) and u the unit of
the memory. This is one distribution over all slots,

    P(i)  =  1/N · ((1 − ρ) + ρ·n·tᵢ/T),          tᵢ = e^{−b·xᵢ/u},   n and T: count and sum of t over the pair of i,   ρ = v if the pair's x vary, else 0,

computed anew for each batch, in time proportional to ``max_length``. All draws of a batch share one slope b, so each has the
right distribution, but two of the same batch are not independent.

Transitions are counted in 32 bits: at most 2³¹ may be added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _checks
from ..surprise import BATCHES, BETA, KEPT, V, weight

LARGEST = 1e15  #: TD errors are smaller: sums of their squares are float32
ROW = 32  #: heights are summed and searched in rows

Tree = Any  #: a pytree of arrays
Array = Any  #: a jax.Array, or a traced one


class Memory(NamedTuple):
    """A ring of transitions."""

    experience: Tree  #: [max_length, ...] each
    added: Array  #: how many were ever added; number i is in slot i mod max_length


class Shaped(NamedTuple):
    """The state of a buffer without keys."""

    experience: Tree
    added: Array
    pool: Array  #: numbers of the transitions in the pool, [P]; −1 for none
    errors: Array  #: their TD errors, [P]
    looked: Array  #: how many were ever put into the pool
    sums: Array  #: of |δ| and δ², the recent ones weighted most


class Sample(NamedTuple):
    """A batch."""

    experience: Tree  #: [sample_batch_size, ...] each
    indices: Array  #: its slots
    tilted: Array  #: which draws are not from the uniform part


@dataclass(frozen=True)
class ShapedBuffer:
    """Pure functions; see the module. ``update`` does nothing for a buffer with keys, which needs none."""

    init: Callable[[Tree], Any]
    add: Callable[[Any, Tree], Any]
    sample: Callable[..., Sample]
    can_sample: Callable[[Any], Array]
    update: Callable[..., Any]


def make_shaped_buffer(
    max_length: int,
    *,
    sample_batch_size: int,
    min_length: int | None = None,
    add_batches: bool = False,
    looks: int | None = None,
    reach: float = inf,
) -> ShapedBuffer:
    """A buffer that draws by TD errors, without keys.

    Parameters
    ----------
    max_length : int; number of transitions that are kept
    sample_batch_size : int
    min_length : int, optional; transitions before ``can_sample`` is true; default: a batch
    add_batches : bool; whether ``add`` takes several transitions at once, along a leading axis
    looks : int, optional; how many TD errors ``update`` computes; default: as many as a batch has
    reach : float; the TD error beyond which the loss is linear: 1 for the Huber loss, infinite (default) for the squared error

    Raises
    ------
    BadInput : a size is wrong; a transition does not fit; a state that is not traced holds too little

    >>> import jax, jax.numpy as jnp
    >>> buffer = make_shaped_buffer(max_length=1000, sample_batch_size=256)
    >>> fill = lambda state, i: (buffer.add(state, {"r": jnp.where(i % 10 == 0, -9.0, 1.0)}), None)
    >>> state, _ = jax.lax.scan(fill, buffer.init({"r": jnp.zeros(())}), jnp.arange(1000))
    >>> for k in range(8):
    ...     state = buffer.update(state, jax.random.key(k), lambda t: t["r"])  # the value 0 is their mean
    >>> keys = jax.random.split(jax.random.key(9), 100)
    >>> drawn = jax.vmap(lambda key: buffer.sample(state, key, v=0.8).experience["r"])(keys)
    >>> bool(abs((drawn < 0).mean() - 0.1 * 5 / (0.1 * 5 + 0.9)) < 0.05)  # uniform: 0.1
    True
    """
    size, batch, least = _sizes(max_length, sample_batch_size, min_length)
    many = batch if looks is None else _checks.whole("looks", looks, 1)
    span = BATCHES * many
    kept = KEPT ** (1.0 / BATCHES)  # the numpy sampler looks once for eight batches
    if reach != inf:
        _checks.between("reach", reach, "(0, inf)")

    def init(transition: Tree) -> Shaped:
        """An empty buffer for transitions like this one."""
        nothing = jnp.full(span, -1, jnp.int32), jnp.zeros(span, jnp.float32)
        return Shaped(*_empty(transition, size), *nothing, jnp.int32(0), jnp.zeros(2, jnp.float32))

    def update(state: Shaped, key: Array, td_errors: Callable[[Tree], Array]) -> Shaped:
        """Compute the TD errors of some transitions, by a function of a batch of them. One that is not finite is refused or, if it is traced, left out."""
        _require_enough(state, 1)
        numbers = _uniform(state, jax.random.bits(key, (many,), jnp.uint32))
        errors = td_errors(_taken(state, numbers))
        _checks.require(jnp.shape(errors) == (many,), "td_errors", f"give one number per transition, {many}", errors)
        errors = jax.lax.stop_gradient(errors).astype(jnp.float32)
        if not isinstance(errors, jax.core.Tracer):
            fits = bool((np.abs(np.asarray(errors)) < LARGEST).all())
            _checks.require(fits, "td_errors", f"be numbers below {LARGEST:g}", errors)
        fit = jnp.abs(errors) < LARGEST
        errors, numbers = jnp.where(fit, errors, 0.0), jnp.where(fit, numbers, -1)
        at = state.looked % span  # a multiple of ``many``, so that nothing wraps around
        sums = kept * state.sums + jnp.stack([jnp.abs(errors).sum(), (errors**2).sum()])
        pool = jax.lax.dynamic_update_slice(state.pool, numbers, (at,))
        known = jax.lax.dynamic_update_slice(state.errors, errors, (at,))
        return state._replace(pool=pool, errors=known, looked=state.looked + many, sums=sums)

    def sample(state: Shaped, key: Array, v: Any = V, beta: Any = BETA) -> Sample:
        """A batch; v in [0, 1) and β may be traced."""
        _require_enough(state, least)
        _dials(v, beta, "[0, 1)")
        luck, of_slot = jax.random.bits(key, (2, batch), jnp.uint32)
        if reach == inf and isinstance(v, float | int) and v == 0:  # uniform: nothing to compute
            numbers = _uniform(state, of_slot)
            return Sample(_taken(state, numbers), numbers % size, jnp.zeros(batch, bool))
        unit = state.sums[1] / jnp.where(state.sums[0] > 0.0, state.sums[0], 1.0)
        here = (state.pool >= 0) & (state.pool >= state.added - size)
        extra = jnp.where(here, weight(state.errors, unit, v, beta, reach, jnp) - 1.0, 0.0)
        heights = _heights(extra)
        total = heights[-1, -1]
        place = luck.astype(jnp.float32) * 2.0**-32 * (total + here.sum())
        tilted = place < total
        found = jnp.minimum(_found(heights, place), span - 1)
        numbers = jnp.where(tilted, state.pool[found], _uniform(state, of_slot))
        return Sample(_taken(state, numbers), numbers % size, tilted)

    return ShapedBuffer(init, _adder(size, add_batches), sample, lambda state: state.added >= least, update)


def make_keyed_buffer(
    max_length: int,
    *,
    sample_batch_size: int,
    n_pairs: int,
    pair: Callable[[Tree], Array],
    x: Callable[[Tree], Array],
    min_length: int | None = None,
    add_batches: bool = False,
) -> ShapedBuffer:
    """A buffer that draws by pairs, with the tilt of :class:`~safereplay.EntropicReplay`.

    Parameters
    ----------
    max_length, sample_batch_size, min_length, add_batches : as in :func:`make_shaped_buffer`
    n_pairs : int; number of pairs (s,a)
    pair : callable; maps transitions to the numbers of their pairs, below ``n_pairs``
    x : callable; maps transitions to the number that is tilted on, usually the reward

    >>> import jax, jax.numpy as jnp
    >>> buffer = make_keyed_buffer(4, sample_batch_size=4, n_pairs=2, pair=lambda t: t["pair"], x=lambda t: t["r"], add_batches=True)
    >>> four = {"pair": jnp.array([0, 0, 0, 1]), "r": jnp.array([1.0, 1.0, -5.0, 3.0])}
    >>> state = buffer.add(buffer.init({"pair": jnp.int32(0), "r": jnp.float32(0)}), four)
    >>> draw = lambda key: buffer.sample(state, key, v=0.9, beta=2.0).indices
    >>> slots = jax.vmap(draw)(jax.random.split(jax.random.key(0), 20_000)).ravel()
    >>> [round(float((slots == i).mean()), 1) for i in range(3)]  # as the example of sr.PairIndex
    [0.1, 0.1, 0.5]
    """
    size, batch, least = _sizes(max_length, sample_batch_size, min_length)
    total = _checks.whole("n_pairs", n_pairs, 1)

    def sample(state: Memory, key: Array, v: Any = 0.5, beta: Any = 2.0) -> Sample:
        """A batch; v in [0, 1] and β may be traced."""
        _require_enough(state, least)
        _dials(v, beta, "[0, 1]")
        of_slope, of_slot, of_part = jax.random.split(key, 3)
        held, (k, y) = jnp.arange(size) < _held(state), _described(state, pair, x, total)

        def summed(values: Array) -> Array:
            return jax.ops.segment_sum(jnp.where(held, values, 0.0), k, total)

        def highest(values: Array) -> Array:
            return jax.ops.segment_max(jnp.where(held, values, -jnp.inf), k, total)

        n = jnp.maximum(summed(jnp.ones(size)), 1.0)
        varies = highest(y) > -highest(-y)
        d = jnp.where(held & varies[k], y - (summed(y) / n)[k], 0.0)
        size_of = jnp.abs(d).sum()
        unit = jnp.where(size_of > 0.0, (d**2).sum() / size_of, jnp.inf)
        exponent = -jax.random.uniform(of_slope) * beta * d / unit
        t = jnp.where(held, jnp.exp(exponent - highest(exponent)[k]), 0.0)
        rho = jnp.where(varies[k], v, 0.0)
        moved = rho * (n / jnp.maximum(summed(t), 1.0))[k] * t  # the largest t of a pair is 1
        heights = jnp.cumsum(jnp.where(held, 1.0 - rho + moved, 0.0))
        luck = jax.random.uniform(of_slot, (batch,)) * heights[-1]
        slots = jnp.minimum(jnp.searchsorted(heights, luck, side="right"), jnp.maximum(_held(state) - 1, 0))
        tilted = jax.random.uniform(of_part, (batch,)) < (moved / (1.0 - rho + moved))[slots]
        return Sample(jax.tree.map(lambda leaf: leaf[slots], state.experience), slots, tilted)

    return ShapedBuffer(
        lambda transition: _empty(transition, size),
        _adder(size, add_batches),
        sample,
        lambda state: state.added >= least,
        lambda state, key, td_errors: state,
    )


# -- the ring ----------------------------------------------------------------------------------------------------------


def _sizes(max_length: int, sample_batch_size: int, min_length: int | None) -> tuple[int, int, int]:
    size = _checks.whole("max_length", max_length, 1, bits=31)
    batch = _checks.whole("sample_batch_size", sample_batch_size, 1)
    _checks.require(batch <= size, "sample_batch_size", f"be at most max_length, {size}", batch)
    least = batch if min_length is None else _checks.whole("min_length", min_length, 1)
    _checks.require(least <= size, "min_length", f"be at most max_length, {size}", least)
    return size, batch, least


def _empty(transition: Tree, size: int) -> Memory:
    leaves = jax.tree.leaves(transition)
    _checks.require(len(leaves) > 0, "transition", "have at least one array", transition)
    return Memory(
        jax.tree.map(lambda x: jnp.zeros((size, *jnp.shape(x)), jnp.result_type(x)), transition), jnp.int32(0)
    )


def _adder(size: int, batches: bool) -> Callable[[Any, Tree], Any]:
    def add(state: Any, transition: Tree) -> Any:
        """Store a transition, or several along a leading axis; the oldest are overwritten."""
        given = transition if batches else jax.tree.map(lambda x: jnp.asarray(x)[None], transition)
        n = _count(state.experience, given, "transitions" if batches else "transition")
        _checks.require(n <= size, "transitions", f"be at most max_length, {size}", n)
        at = state.added % size

        def stored(old: Array, new: Array) -> Array:
            if n == 1:  # a slice is faster than a scatter
                return jax.lax.dynamic_update_slice_in_dim(old, jnp.asarray(new, old.dtype), at, 0)
            return old.at[(at + jnp.arange(n)) % size].set(new)

        kept = jax.tree.map(stored, state.experience, given)
        return state._replace(experience=kept, added=state.added + n)

    return add


def _count(known: Tree, given: Tree, name: str) -> int:
    """The number of transitions; one line if they are not like those of ``init``."""
    a, b = (str(jax.tree.structure(tree)) for tree in (known, given))
    _checks.require(a == b, name, f"have the structure given to init, {a}", b)
    pairs = list(zip(jax.tree.leaves_with_path(known), jax.tree.leaves(given), strict=True))
    n = jnp.shape(pairs[0][1])[0] if jnp.ndim(pairs[0][1]) else 0
    for (path, old), new in pairs:
        want, found = (n, *old.shape[1:]), jnp.shape(new)
        where = f"{name}{jax.tree_util.keystr(path)}"
        _checks.require(want == found, where, f"have shape {want}", found)
        plain = getattr(new, "weak_type", False)  # a Python number, which has no type of its own
        cast = jnp.can_cast(jnp.result_type(new, old.dtype) if plain else jnp.result_type(new), old.dtype, "same_kind")
        _checks.require(cast, where, f"have type {old.dtype}", jnp.result_type(new).name)
    return int(n)


def _described(state: Memory, pair: Callable[[Tree], Array], x: Callable[[Tree], Array], n_pairs: int) -> Any:
    """The pairs of all slots, and what is tilted on, after checks."""
    k, y = pair(state.experience), x(state.experience)
    size = jax.tree.leaves(state.experience)[0].shape[0]
    for name, values in (("pair", k), ("x", y)):
        _checks.require(
            jnp.shape(values) == (size,), name, f"give one number per transition, {size}", jnp.shape(values)
        )
    _checks.require(jnp.issubdtype(k.dtype, jnp.integer), "pair", "give whole numbers", k.dtype.name)
    if not isinstance(k, jax.core.Tracer):
        told = np.asarray(k)
        inside = bool(((told >= 0) & (told < n_pairs)).all())
        _checks.require(inside, "pair", f"give numbers from 0 to n_pairs - 1, {n_pairs - 1}", int(told.max()))
    return k, y


def _held(state: Any) -> Array:
    return jnp.minimum(state.added, jax.tree.leaves(state.experience)[0].shape[0])


def _uniform(state: Any, bits: Array) -> Array:
    """The numbers of stored transitions, uniform over them, from 32 random bits each: ⌊bits·held / 2³²⌋, without 64-bit integers."""
    held = jnp.maximum(_held(state), 1).astype(jnp.uint32)
    low, high = 0xFFFF, 16
    middle = (bits >> high) * (held & low) + (((bits & low) * (held & low)) >> high)
    lower = (bits & low) * (held >> high) + (middle & low)
    found = (bits >> high) * (held >> high) + (middle >> high) + (lower >> high)
    return state.added - 1 - found.astype(jnp.int32)


def _heights(weights: Array) -> Array:
    """Cumulative sums in rows of :data:`ROW`, [n, ROW], padded with zeros: by a product with a triangle, which is faster than a scan."""
    rows = jnp.pad(weights, (0, -len(weights) % ROW)).reshape(-1, ROW)
    sums = jnp.matmul(rows, jnp.triu(jnp.ones((ROW, ROW), rows.dtype)), precision="highest")
    return sums + (jnp.cumsum(sums[:, -1]) - sums[:, -1])[:, None]


def _found(heights: Array, place: Array) -> Array:
    """The number of the first weight whose height exceeds ``place`` [batch]: first its row, then its column."""
    row = jnp.minimum((heights[:, -1] <= place[:, None]).sum(-1), len(heights) - 1)
    return row * ROW + (heights[row] <= place[:, None]).sum(-1)


def _taken(state: Any, numbers: Array) -> Tree:
    return jax.tree.map(lambda leaf: leaf[numbers % leaf.shape[0]], state.experience)


def _require_enough(state: Any, least: int) -> None:
    """Refuse a state that holds too little; a traced one cannot be looked at, and is for ``can_sample``."""
    if not isinstance(state.added, jax.core.Tracer):
        added = int(state.added)
        _checks.require(added >= least, "state", f"hold at least {least} transitions", added)


def _dials(v: Any, beta: Any, interval: str) -> None:
    """Refuse wrong dials; traced ones cannot be looked at."""
    for name, value, allowed in (("v", v, interval), ("beta", beta, "(-inf, inf)")):
        if not isinstance(value, jax.core.Tracer):
            _checks.require(np.ndim(value) == 0, name, "be one number", value, "map over several")
            _checks.between(name, value.item() if isinstance(value, jax.Array) else value, allowed)
