"""The slots of each pair in layers of near-equal weight: a tilted draw in O(1), exact while everything changes.

A memory of transitions is a row of *slots*. A slot belongs to a *pair* (by a 64-bit key) and has a number x, that which
the tilt looks at. Within a pair a slot is to be drawn with

    ŵ(slot | pair)  ∝  e^{−λ·x},        λ the pair's slope, as the scheme sees its statistics *now*.

The statistics change with each transition that comes or is overwritten, λ with them, and so do all weights of the pair at
once: no tree of sums could keep up. So slots are not kept by weight but by *layer*: layer b holds those of the pair with
b ≤ λ₀·(x − origin) < b + 1, where λ₀ is the slope of when the pair was last layered. The weights of a layer lie within
a factor e^{λ/λ₀} of its heaviest, whatever λ is now. A draw picks layer b with probability ∝ n_b·e^{−λ/λ₀·b}, one of
its slots alike, and accepts with e^{−λ·(x − edge)} ≤ 1; else it picks again. That is exact, and takes two picks or so.

A pair is layered anew, which takes time in proportion to its slots, when λ has left [λ₀/2, 2λ₀], when its heaviest slots
left or one came that is heavier than the layers reach, and now and then for the statistics' sake. That is seldom, unless extremes
come and go in a large pair. Mean and variance follow each
change by Welford's update, forwards and backwards, and are summed again before rounding can build up.

A scheme may measure x in a unit of the whole memory (see :class:`~safereplay.EntropicReplay`): u = Σ d² / Σ |d| over all slots, with
d = x − mean of the pair. It is measured before a draw, once an eighth of what is held has changed. Layers are made with the unit at which all pairs
were last layered; draws use the newest.

A pair has at most 2·REACH + 1 layers: what is lighter than e^{−REACH} of the heaviest shares the last. The slots of a layer are a
stretch of one pool; stretches have room for a power of two and are reused. A slot whose x is not known (NaN) belongs to its pair but to no layer.

Whether the arrays of :mod:`.layers` fit together: for files that anybody may have changed, and for tests.
"""

from math import floor, inf, isnan
from typing import NamedTuple

import numpy as np

from . import tree
from .compile import Array, jit, kernel

NONE = -1
REACH = 63  #: layers on either side of the origin
DEEP = 31  #: the first layer must not be deeper, lest the last one, which holds the rest, be picked in vain
LARGEST = 1e100  #: x must lie within ±

SLOT = np.dtype([("x", "f8"), ("pair", "i4"), ("layer", "i4"), ("place", "i4")], align=True)
PAIR = np.dtype(
    [
        ("key", "u8"),
        ("mean", "f8"),
        ("m2", "f8"),
        ("m2_then", "f8"),  # the largest since last layered
        ("slope", "f8"),  # when last layered, likewise:
        ("origin", "f8"),
        ("n", "i4"),  # slots whose x is known
        ("held", "i4"),  # all slots
        ("first", "i4"),  # the heaviest layer; of a row that is free, the next free row
        ("changes", "i4"),  # since last layered
    ],
    align=True,
)
LAYER = np.dtype([("bin", "i4"), ("n", "i4"), ("start", "i4"), ("room", "i4"), ("next", "i4")], align=True)

#: Columns of ``heads``: counts, ends of what is in use, and heads of the lists of what is free.
HELD, HIGH, N_PAIRS, FREE_PAIR, PAIR_TOP, N_LAYERS, FREE_LAYER, LAYER_TOP, POOL_TOP, TROUBLE, WHERE, FREE_ROOM = range(
    12
)
N_HEADS = FREE_ROOM + 32

#: Entries of ``scale``: the unit, the one that layers were made with, and how many slots changed since it was measured.
UNIT, LAYERED, CHANGED = range(3)
N_SCALE = 3

#: What stops a kernel before slot k is touched, in ``heads[TROUBLE]``.
FINE, PAIRS_FULL, LAYERS_FULL, POOL_FULL, BAD_SLOT, BAD_X, BAD_WEIGHT, NOT_HELD = range(8)


class Layers(NamedTuple):
    """The arrays."""

    slots: Array  #: [N] SLOT; pair is NONE where nothing is held
    pairs: Array  #: [P] PAIR
    layers: Array  #: [L] LAYER
    pool: Array  #: stretches of slot numbers
    table: Array  #: open addressing from key to pair, a power of two
    heads: Array  #: [N_HEADS]
    scale: Array  #: [3] UNIT, LAYERED, CHANGED
    tree: Array  #: sum tree of the pairs' weights; of one leaf where nobody draws pairs by weight
    generator: Array  #: [4]
    sums: Array  #: [2·REACH + 2] for scratch


def allocate(capacity: int, generator: Array, by_weight: bool) -> Layers:
    """Nothing held; room for some pairs, more as they come."""
    slots = np.zeros(capacity, SLOT)
    slots["pair"] = slots["layer"] = NONE
    heads = np.zeros(N_HEADS, np.int64)
    heads[[FREE_PAIR, FREE_LAYER]] = heads[FREE_ROOM:] = NONE
    rows = 64
    return Layers(
        slots,
        np.zeros(rows, PAIR),
        np.zeros(4 * REACH, LAYER),
        np.zeros(256, np.int32),
        np.full(2 * rows, NONE, np.int32),
        heads,
        np.zeros(N_SCALE),
        tree.allocate(rows if by_weight else 1),
        generator,
        np.zeros(2 * REACH + 2),
    )


# -- the unit ----------------------------------------------------------------------------------------------------------


@kernel
def measure(here: Layers) -> float:
    """u of what is held, or 0 where no pair varies."""
    total = squares = 0.0
    for slot in range(here.heads[HIGH]):
        i, x = here.slots[slot]["pair"], here.slots[slot]["x"]
        if i != NONE and not isnan(x) and here.pairs[i]["m2"] > 0.0:
            d = abs(x - here.pairs[i]["mean"])
            total += d
            squares += d * d
    return squares / total if total > 0.0 else 0.0


# -- from keys to pairs ------------------------------------------------------------------------------------------------

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_32 = np.uint64(32)


@jit
def _home(table: Array, key: np.uint64) -> int:
    return int(int((key * _SPREAD) >> _32) & (table.size - 1))


@jit
def pair_of(here: Layers, key: np.uint64) -> int:
    """The pair of a key; NONE if it has no slot."""
    j = _home(here.table, key)
    while here.table[j] != NONE:
        if here.pairs[here.table[j]]["key"] == key:
            return int(here.table[j])
        j = (j + 1) & (here.table.size - 1)
    return NONE


@jit
def claim(here: Layers, key: np.uint64) -> int:
    """A new row for a key that has none."""
    heads, pairs = here.heads, here.pairs
    i = heads[FREE_PAIR]
    if i == NONE:
        i = heads[PAIR_TOP]
        heads[PAIR_TOP] += 1
    else:
        heads[FREE_PAIR] = pairs[i]["first"]
    row = pairs[i]
    row["key"], row["first"] = key, NONE
    row["mean"] = row["m2"] = row["m2_then"] = row["slope"] = row["origin"] = 0.0
    row["n"] = row["held"] = row["changes"] = 0
    heads[N_PAIRS] += 1
    _enlist(here, i)
    return int(i)


@jit
def _enlist(here: Layers, i: int) -> None:
    j = _home(here.table, here.pairs[i]["key"])
    while here.table[j] != NONE:
        j = (j + 1) & (here.table.size - 1)
    here.table[j] = i


@jit
def release(here: Layers, i: int) -> None:
    """Take a pair without slots out of the table; those that were pushed past its place move up."""
    table, last = here.table, here.table.size - 1
    j = _home(table, here.pairs[i]["key"])
    while table[j] != i:
        j = (j + 1) & last
    k = j
    while True:
        k = (k + 1) & last
        if table[k] == NONE:
            break
        home = _home(table, here.pairs[table[k]]["key"])
        if ((k - home) & last) >= ((k - j) & last):
            table[j] = table[k]
            j = k
    table[j] = NONE
    here.pairs[i]["first"] = here.heads[FREE_PAIR]
    here.heads[FREE_PAIR] = i
    here.heads[N_PAIRS] -= 1


@kernel
def enlist_all(here: Layers) -> None:
    """Fill an empty table with the pairs that hold slots."""
    for i in range(here.heads[PAIR_TOP]):
        if here.pairs[i]["held"] > 0:
            _enlist(here, i)


# -- stretches of the pool ---------------------------------------------------------------------------------------------


@jit
def _stretch(here: Layers, size: int) -> int:
    """The start of a stretch with room for 2**size."""
    start = here.heads[FREE_ROOM + size]
    if start == NONE:
        start = here.heads[POOL_TOP]
        here.heads[POOL_TOP] += 1 << size
    else:
        here.heads[FREE_ROOM + size] = here.pool[start]
    return int(start)


@jit
def _give_back(here: Layers, start: int, size: int) -> None:
    here.pool[start] = here.heads[FREE_ROOM + size]
    here.heads[FREE_ROOM + size] = start


@jit
def room_for(n: int) -> int:
    """The least size with n ≤ 2**size."""
    size = 0
    while (1 << size) < n:
        size += 1
    return size


@kernel
def live_pool(here: Layers) -> int:
    """How long a pool would do, were it packed."""
    total = 0
    for i in range(here.heads[PAIR_TOP]):
        if here.pairs[i]["held"] > 0:
            b = here.pairs[i]["first"]
            while b != NONE:
                total += 1 << room_for(here.layers[b]["n"])
                b = here.layers[b]["next"]
    return total


@kernel
def repack(here: Layers, pool: Array) -> None:
    """Move every stretch into an empty ``pool``, without gaps."""
    top = 0
    for i in range(here.heads[PAIR_TOP]):
        if here.pairs[i]["held"] > 0:
            b = here.pairs[i]["first"]
            while b != NONE:
                layer = here.layers[b]
                for k in range(layer["n"]):
                    pool[top + k] = here.pool[layer["start"] + k]
                layer["start"], layer["room"] = top, room_for(layer["n"])
                top += 1 << layer["room"]
                b = layer["next"]
    here.heads[POOL_TOP] = top
    here.heads[FREE_ROOM:] = NONE


# -- slots in and out of layers ----------------------------------------------------------------------------------------


@jit
def depth(row: Array, x: float) -> float:
    """λ₀·(x − origin): how much lighter than the origin, as a logarithm."""
    return float(row["slope"] * (x - row["origin"]))


@jit
def _layer_at(here: Layers, i: int, b: int) -> int:
    """The layer b of pair i, made if it is not there; layers are chained, heaviest first."""
    layers, heads = here.layers, here.heads
    before, after = NONE, int(here.pairs[i]["first"])
    while after != NONE and layers[after]["bin"] < b:
        before, after = after, int(layers[after]["next"])
    if after != NONE and layers[after]["bin"] == b:
        return after
    made = heads[FREE_LAYER]
    if made == NONE:
        made = heads[LAYER_TOP]
        heads[LAYER_TOP] += 1
    else:
        heads[FREE_LAYER] = layers[made]["next"]
    heads[N_LAYERS] += 1
    layer = layers[made]
    layer["bin"], layer["n"], layer["room"], layer["next"] = b, 0, 0, after
    layer["start"] = _stretch(here, 0)
    if before == NONE:
        here.pairs[i]["first"] = made
    else:
        layers[before]["next"] = made
    return int(made)


@jit
def enter(here: Layers, i: int, slot: int) -> None:
    """Put a slot of pair i into its layer."""
    deep = min(depth(here.pairs[i], here.slots[slot]["x"]), float(REACH))
    made = _layer_at(here, i, int(floor(deep)))  # noqa: RUF046 (numba's floor is a float)
    layer = here.layers[made]
    n, start, room = layer["n"], layer["start"], layer["room"]
    if n == 1 << room:
        wider = _stretch(here, room + 1)
        for k in range(n):
            here.pool[wider + k] = here.pool[start + k]
        _give_back(here, start, room)
        layer["start"], layer["room"] = wider, room + 1
        start = wider
    here.pool[start + n] = slot
    here.slots[slot]["layer"], here.slots[slot]["place"] = made, n
    layer["n"] = n + 1


@jit
def unchain(here: Layers, i: int, b: int) -> None:
    """Free a layer that has become empty."""
    layers = here.layers
    if here.pairs[i]["first"] == b:
        here.pairs[i]["first"] = layers[b]["next"]
    else:
        before = here.pairs[i]["first"]
        while layers[before]["next"] != b:
            before = layers[before]["next"]
        layers[before]["next"] = layers[b]["next"]
    _give_back(here, layers[b]["start"], layers[b]["room"])
    layers[b]["n"], layers[b]["next"] = 0, here.heads[FREE_LAYER]
    here.heads[FREE_LAYER] = b
    here.heads[N_LAYERS] -= 1


@jit
def leave(here: Layers, i: int, slot: int) -> None:
    """Take a slot out of its layer; the layer's last takes its place."""
    b, place = here.slots[slot]["layer"], here.slots[slot]["place"]
    layer = here.layers[b]
    last = layer["n"] - 1
    moved = here.pool[layer["start"] + last]
    here.pool[layer["start"] + place] = moved
    here.slots[moved]["place"] = place
    here.slots[slot]["layer"] = NONE
    layer["n"] = last
    if last == 0:
        unchain(here, i, b)


@kernel
def is_sound(here: Layers) -> bool:
    """Whether the arrays fit together: no number points astray, and slots, layers, pairs and table agree with one another."""
    slots, pairs, layers, heads = here.slots, here.pairs, here.layers, here.heads
    n, rows, n_layers, pool = slots.shape[0], pairs.shape[0], layers.shape[0], here.pool.size
    if not (0 <= heads[PAIR_TOP] <= rows and 0 <= heads[LAYER_TOP] <= n_layers and 0 <= heads[POOL_TOP] <= pool):
        return False
    held = high = 0
    for slot in range(n):
        i, b = slots[slot]["pair"], slots[slot]["layer"]
        if not (NONE <= i < heads[PAIR_TOP] and NONE <= b < heads[LAYER_TOP]) or (i == NONE and b != NONE):
            return False
        if b != NONE:
            layer, place = layers[b], slots[slot]["place"]
            if not (0 <= place < layer["n"] and layer["start"] >= 0 and layer["start"] + layer["n"] <= heads[POOL_TOP]):
                return False
            if here.pool[layer["start"] + place] != slot or not abs(slots[slot]["x"]) <= LARGEST:
                return False
        if i != NONE:
            held += 1
            high = slot + 1
    if held != heads[HELD] or not high <= heads[HIGH] <= n:
        return False
    return _table_is_sound(here) and _pairs_are_sound(here, held) and _lists_are_sound(here)


@jit
def _table_is_sound(here: Layers) -> bool:
    """Every entry is a pair, and there are as many as pairs that hold slots; so some are free, and a search ends."""
    listed = 0
    for j in range(here.table.size):
        if not NONE <= here.table[j] < here.heads[PAIR_TOP]:
            return False
        listed += here.table[j] != NONE
    return bool(listed == here.heads[N_PAIRS] < here.table.size)


@jit
def _pairs_are_sound(here: Layers, held: int) -> bool:
    heads = here.heads
    holding = in_pairs = in_layers = 0
    for i in range(heads[PAIR_TOP]):
        row = here.pairs[i]
        if row["held"] < 0:
            return False
        if row["held"] > 0:
            numbers = abs(row["mean"]) + abs(row["slope"]) + abs(row["origin"]) + abs(row["m2"])
            found = _layers_of(here, i)
            if pair_of(here, row["key"]) != i or found < 0 or not numbers < inf or row["m2"] < 0.0:
                return False
            holding += 1
            in_pairs += row["held"]
            in_layers += found
    return bool(holding == heads[N_PAIRS] and in_pairs == held and in_layers == heads[N_LAYERS])


@jit
def _layers_of(here: Layers, i: int) -> int:
    """How many layers pair i has; −1 if something is wrong with them."""
    row, known, count = here.pairs[i], 0, 0
    b, before = row["first"], -REACH - 1
    while b != NONE:
        if not 0 <= b < here.heads[LAYER_TOP]:
            return -1
        layer = here.layers[b]
        n, start = layer["n"], layer["start"]
        if not (before < layer["bin"] <= REACH and n >= 1 and start >= 0 and start + n <= here.heads[POOL_TOP]):
            return -1
        if not 0 <= layer["room"] < 31 or n > 1 << layer["room"]:
            return -1
        for k in range(n):
            slot = here.pool[start + k]
            if not 0 <= slot < here.slots.shape[0]:
                return -1
            held = here.slots[slot]
            if held["layer"] != b or held["pair"] != i or held["place"] != k:
                return -1
        known, count = known + n, count + 1
        before, b = layer["bin"], layer["next"]
    return count if known == row["n"] <= row["held"] else -1


@jit
def _lists_are_sound(here: Layers) -> bool:
    """The lists of free pairs and free layers hold all that are free, and end. (Those of the pool are made anew.)"""
    heads = here.heads
    j, steps = heads[FREE_PAIR], 0
    while j != NONE:
        if not 0 <= j < heads[PAIR_TOP] or here.pairs[j]["held"] != 0 or steps > heads[PAIR_TOP]:
            return False
        j, steps = here.pairs[j]["first"], steps + 1
    if steps != heads[PAIR_TOP] - heads[N_PAIRS]:
        return False
    j, steps = heads[FREE_LAYER], 0
    while j != NONE:
        if not 0 <= j < heads[LAYER_TOP] or here.layers[j]["n"] != 0 or steps > heads[LAYER_TOP]:
            return False
        j, steps = here.layers[j]["next"], steps + 1
    return bool(steps == heads[LAYER_TOP] - heads[N_LAYERS])
