"""Whether the arrays of :mod:`.layers` fit together: for files that anybody may have changed, and for tests."""

from math import inf

from .compile import jit, kernel
from .layers import (
    FREE_LAYER,
    FREE_PAIR,
    HELD,
    HIGH,
    LARGEST,
    LAYER_TOP,
    N_LAYERS,
    N_PAIRS,
    NONE,
    PAIR_TOP,
    POOL_TOP,
    REACH,
    Layers,
    pair_of,
)


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
