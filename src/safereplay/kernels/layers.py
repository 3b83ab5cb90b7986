"""The slots of each pair in layers of nearly equal weight: exact tilted draws in O(1) while weights change.

A memory of transitions is an array of *slots*. A slot belongs to a *pair* (by a 64-bit key) and has a number x, which
the tilt uses. Within a pair a slot is drawn with probability

    ŵ(slot | pair)  ∝  e^{−λ·x},        λ the pair's slope for its *current* statistics.

The statistics change with each transition that is added or overwritten, and λ and all weights of the pair change with
them: a sum tree could not keep up. So slots are stored by *layer* instead of weight: layer b holds the slots with
b ≤ λ₀·(x − origin) < b + 1, where λ₀ is the slope when the layers of the pair were last built. The weights in a layer lie
within a factor e^{λ/λ₀} of its heaviest, for any current λ. A draw picks layer b with probability ∝ n_b·e^{−λ/λ₀·b}, then
one of its slots uniformly, and accepts it with e^{−λ·(x − x_b)} ≤ 1, where x_b = origin + b/λ₀; else it repeats. This is
exact, in about two tries.

The layers of a pair are rebuilt, in time proportional to its slots, when λ has left [λ₀/2, 2λ₀], when its heaviest slots
left, when a slot came that is heavier than the layers reach, and periodically for the statistics. This is rare, unless
extremes come and go in a large pair. Mean and variance follow each change by Welford's update, forwards and backwards, and
are summed again before rounding errors accumulate.

A scheme may measure x in a unit of the whole memory (see :class:`~safereplay.EntropicReplay`): u = Σ d² / Σ |d| over all slots, with
d = x − mean of the pair. It is measured before a draw, after an eighth of the slots held has changed. Layers are built with the unit
at which all pairs were last rebuilt; draws use the newest.

A pair has at most 2·REACH + 1 layers: slots lighter than e^{−REACH} of the heaviest share the last. The slots of a layer are a
stretch of one pool; stretches have a size that is a power of two and are reused. A slot with unknown x (NaN) belongs to its pair but to no layer.

:func:`is_sound` checks that the arrays are consistent, for files, which may have been modified, and for tests.
"""

from math import floor, inf, isnan
from typing import NamedTuple

import numpy as np

from . import tree
from .compile import Array, jit, kernel

NONE = -1
REACH = 63  #: layers on either side of the origin
DEEP = 31  #: the first layer is at most this deep, so that the last one, which holds the rest, is rarely picked in vain
LARGEST = 1e100  #: x must lie within ±

SLOT = np.dtype([("x", "f8"), ("pair", "i4"), ("layer", "i4"), ("place", "i4")], align=True)
PAIR = np.dtype(
    [
        ("key", "u8"),
        ("mean", "f8"),
        ("m2", "f8"),
        ("m2_then", "f8"),  # the largest m2 since the layers were built
        ("slope", "f8"),  # λ₀: the slope for which the layers were built
        ("origin", "f8"),  # x of the heaviest slot then
        ("n", "i4"),  # slots with known x
        ("held", "i4"),  # all slots
        ("first", "i4"),  # the heaviest layer; in a free row, the next free row
        ("changes", "i4"),  # since the layers were built
    ],
    align=True,
)
LAYER = np.dtype([("bin", "i4"), ("n", "i4"), ("start", "i4"), ("room", "i4"), ("next", "i4")], align=True)

#: Columns of ``heads``: counts, ends of the used parts, and heads of the free lists.
HELD, HIGH, N_PAIRS, FREE_PAIR, PAIR_TOP, N_LAYERS, FREE_LAYER, LAYER_TOP, POOL_TOP, TROUBLE, WHERE = range(11)
FREE_ROOM = 11
N_HEADS = FREE_ROOM + 32

#: Entries of ``scale``: the unit, the one that the layers were built with, and the slots changed since it was measured.
UNIT, LAYERED, CHANGED = range(3)
N_SCALE = 3

#: Reasons why a kernel stops before slot k is changed, in ``heads[TROUBLE]``; after BAD_WEIGHT, at pair WHERE, it continues.
FINE, PAIRS_FULL, LAYERS_FULL, POOL_FULL, BAD_SLOT, BAD_X, BAD_WEIGHT, NOT_HELD = range(8)


class Layers(NamedTuple):
    """The arrays of a memory in layers."""

    slots: Array  #: [N] SLOT; pair is NONE for an empty slot
    pairs: Array  #: [P] PAIR
    layers: Array  #: [L] LAYER
    pool: Array  #: stretches of slot numbers
    table: Array  #: open addressing from key to pair; its size is a power of two
    heads: Array  #: [N_HEADS]
    scale: Array  #: [3] UNIT, LAYERED, CHANGED
    tree: Array  #: sum tree of the pairs' weights; of one leaf if pairs are not drawn by weight
    generator: Array  #: [4]
    sums: Array  #: [2·REACH + 2] work space


def allocate(capacity: int, generator: Array, by_weight: bool) -> Layers:
    """Empty arrays, with room for some pairs; they grow later."""
    slots = np.zeros(capacity, SLOT)
    slots["pair"] = slots["layer"] = NONE
    heads = np.zeros(N_HEADS, np.int64)
    heads[[FREE_PAIR, FREE_LAYER]] = heads[FREE_ROOM:] = NONE
    rows, weights = 64, tree.allocate(64 if by_weight else 1)
    pool, table = np.zeros(256, np.int32), np.full(2 * rows, NONE, np.int32)
    of_pairs = np.zeros(rows, PAIR), np.zeros(4 * REACH, LAYER), pool, table
    return Layers(slots, *of_pairs, heads, np.zeros(N_SCALE), weights, generator, np.zeros(2 * REACH + 2))


@kernel
def measure(here: Layers) -> float:
    """u of the slots held, or 0 if no pair varies."""
    total = squares = 0.0
    for slot in range(here.heads[HIGH]):
        i, x = here.slots[slot]["pair"], here.slots[slot]["x"]
        if i != NONE and not isnan(x) and here.pairs[i]["m2"] > 0.0:
            d = abs(x - here.pairs[i]["mean"])
            total += d
            squares += d * d
    return squares / total if total > 0.0 else 0.0


_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_32 = np.uint64(32)


@jit
def _home(table: Array, key: np.uint64) -> int:
    return int(int((key * _SPREAD) >> _32) & (table.size - 1))


@jit
def pair_of(here: Layers, key: np.uint64) -> int:
    """The pair of a key; NONE if it has no slots."""
    j = _home(here.table, key)
    while here.table[j] != NONE:
        if here.pairs[here.table[j]]["key"] == key:
            return int(here.table[j])
        j = (j + 1) & (here.table.size - 1)
    return NONE


@jit
def claim(here: Layers, key: np.uint64) -> int:
    """A new row for a key."""
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
    """Remove a pair without slots from the table; displaced entries move up."""
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


@jit
def _stretch(here: Layers, size: int) -> int:
    """The start of a free stretch of 2**size entries."""
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
    """The smallest size with n ≤ 2**size."""
    size = 0
    while (1 << size) < n:
        size += 1
    return size


@kernel
def live_pool(here: Layers) -> int:
    """The length of the pool after packing."""
    total = 0
    for b in range(here.heads[LAYER_TOP]):
        if here.layers[b]["n"] > 0:  # else the layer is free
            total += 1 << room_for(here.layers[b]["n"])
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


@jit
def depth(row: Array, x: float) -> float:
    """λ₀·(x − origin): how much lighter than the origin, as a logarithm."""
    return float(row["slope"] * (x - row["origin"]))


@jit
def _layer_at(here: Layers, i: int, b: int) -> int:
    """Layer b of pair i, created if necessary; layers are linked, heaviest first."""
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
    """Free an empty layer."""
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
    """Remove a slot from its layer; the layer's last slot takes its place."""
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
    """Whether the arrays are consistent: indices are in range, and slots, layers, pairs and table agree."""
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
    listed = 0
    for j in range(here.table.size):
        if not NONE <= here.table[j] < heads[PAIR_TOP]:
            return False
        listed += here.table[j] != NONE
    if not listed == heads[N_PAIRS] < here.table.size:  # with a free entry, searches end
        return False
    if not _pairs_are_sound(here, held):
        return False
    j, steps = heads[FREE_PAIR], 0  # the free lists are complete and end (those of the pool are rebuilt)
    while j != NONE:
        if not 0 <= j < heads[PAIR_TOP] or pairs[j]["held"] != 0 or steps > heads[PAIR_TOP]:
            return False
        j, steps = pairs[j]["first"], steps + 1
    if steps != heads[PAIR_TOP] - heads[N_PAIRS]:
        return False
    j, steps = heads[FREE_LAYER], 0
    while j != NONE:
        if not 0 <= j < heads[LAYER_TOP] or layers[j]["n"] != 0 or steps > heads[LAYER_TOP]:
            return False
        j, steps = layers[j]["next"], steps + 1
    return bool(steps == heads[LAYER_TOP] - heads[N_LAYERS])


@jit
def _pairs_are_sound(here: Layers, held: int) -> bool:
    heads = here.heads
    holding = in_pairs = in_layers = 0
    for i in range(heads[PAIR_TOP]):
        row = here.pairs[i]
        if row["held"] < 0:
            return False
        if row["held"] > 0:
            origin = row["origin"] if row["n"] > 0 else 0.0  # infinite if no x was known when the layers were built
            numbers = abs(row["mean"]) + abs(row["slope"]) + abs(origin) + abs(row["m2"])
            found = _layers_of(here, i)
            if pair_of(here, row["key"]) != i or found < 0 or not numbers < inf or row["m2"] < 0.0:
                return False
            holding += 1
            in_pairs += row["held"]
            in_layers += found
    return bool(holding == heads[N_PAIRS] and in_pairs == held and in_layers == heads[N_LAYERS])


@jit
def _layers_of(here: Layers, i: int) -> int:
    """The number of layers of pair i; −1 if they are inconsistent."""
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
