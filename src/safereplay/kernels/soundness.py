"""Whether the arrays of :mod:`.layers` fit together: for files that anybody may have changed, and for tests."""

from .compile import jit, kernel
from .layers import (
    FREE_LAYER,
    FREE_PAIR,
    FREE_ROOM,
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
    return _pairs_are_sound(here, held) and _lists_are_sound(here)


@jit
def _pairs_are_sound(here: Layers, held: int) -> bool:
    pairs, layers, heads = here.pairs, here.layers, here.heads
    found = in_pairs = in_layers = listed = 0
    for i in range(heads[PAIR_TOP]):
        row = pairs[i]
        if row["held"] < 0 or (row["held"] == 0 and not NONE <= row["first"] < heads[PAIR_TOP]):
            return False
        if row["held"] == 0:
            continue
        if pair_of(here, row["key"]) != i:
            return False
        listed += 1
        in_pairs += row["held"]
        b, before, known, steps = row["first"], -REACH - 1, 0, 0
        while b != NONE:
            if not 0 <= b < heads[LAYER_TOP] or not before < layers[b]["bin"] <= REACH or layers[b]["n"] < 1:
                return False
            layer = layers[b]
            if not 0 <= layer["room"] < 31 or layer["n"] > 1 << layer["room"]:
                return False
            for k in range(layer["n"]):
                slot = here.pool[layer["start"] + k]
                if (
                    not 0 <= slot < here.slots.shape[0]
                    or here.slots[slot]["layer"] != b
                    or here.slots[slot]["pair"] != i
                ):
                    return False
            known, before, b = known + layer["n"], layer["bin"], layer["next"]
            steps += 1
        if known != row["n"] or known > row["held"]:
            return False
        in_layers += steps
    for j in range(here.table.size):
        if not NONE <= here.table[j] < heads[PAIR_TOP]:
            return False
        found += here.table[j] != NONE
    return listed == found == heads[N_PAIRS] and in_pairs == held and in_layers == heads[N_LAYERS]


@jit
def _lists_are_sound(here: Layers) -> bool:
    """The lists of what is free end, within what is in use."""
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
        if not 0 <= j < heads[LAYER_TOP] or steps > heads[LAYER_TOP]:
            return False
        j, steps = here.layers[j]["next"], steps + 1
    if steps != heads[LAYER_TOP] - heads[N_LAYERS]:
        return False
    for size in range(32):
        j, steps = heads[FREE_ROOM + size], 0
        while j != NONE:
            if not 0 <= j < heads[POOL_TOP] or steps > heads[POOL_TOP]:
                return False
            j, steps = here.pool[j], steps + 1
    return True
