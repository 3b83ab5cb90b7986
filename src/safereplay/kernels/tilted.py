"""Tilted draws for one scheme: its two factors compiled into the kernels that update layers and draw from them.

From a pair's statistics the scheme computes a weight W and, since its tilt is a straight line in x, a slope λ. The slope of a
``pooled`` scheme is in the unit of the memory, and each draw uses a uniform share of it. When the statistics
have changed the pair is *settled*: its weight is stored, and its layers are rebuilt if necessary.
"""

from collections.abc import Callable
from functools import lru_cache
from math import exp, inf, isnan, sqrt
from typing import NamedTuple, TypeAlias

from . import layers as lay
from . import memory as mem
from . import rng, tree
from .compile import Array, Bound, digest_of, jit, specialise
from .layers import Layers

_Change: TypeAlias = Callable[..., int]


class Pieces(NamedTuple):
    """The kernels for one scheme."""

    put: Callable[..., int]
    value: Callable[..., int]
    drop: Callable[..., int]
    renew: Callable[..., int]
    draw: Callable[..., None]
    weigh: Callable[..., None]


@jit
def _statistics(row: Array) -> tuple[float, ...]:
    """The quantities that a scheme's factors may name, in the order of ``memory.STATISTICS``; 0 for those not kept."""
    n = float(row["n"])
    return n, float(row["mean"]), float(row["m2"]) / max(n, 1.0), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0


@jit
def outcome(x: float) -> tuple[float, ...]:
    """OF_OUTCOME of a transition with the number x: y is x, it counts once, and ``luck`` is 1, the steepest slope."""
    return 1.0, x, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0


@jit
def _gathered(here: Layers, i: int, slot: int) -> int:
    """Remove the slots of pair i from their layers; link them, and ``slot`` if not NONE, by ``place``; returns the first."""
    row, chain = here.pairs[i], slot
    if slot != lay.NONE:
        here.slots[slot]["place"] = lay.NONE
    while row["first"] != lay.NONE:
        b = row["first"]
        layer = here.layers[b]
        for k in range(layer["n"]):
            member = here.pool[layer["start"] + k]
            here.slots[member]["place"] = chain
            chain = int(member)
        lay.unchain(here, i, b)
    return chain


def _make_settle(
    weight_of: Callable[..., float], slope_of: Callable[..., float], pooled: bool
) -> tuple[Callable[..., None], Callable[..., None]]:
    """settle and layer_anew, to call after pair i has changed; ``slot`` is new in it, or NONE."""

    @jit
    def layer_slope(here: Layers, row: Array, params: tuple[float, ...]) -> float:
        """λ per unit of x, for building layers."""
        slope = slope_of(row, params)
        if pooled:
            return slope / here.scale[lay.LAYERED] if here.scale[lay.LAYERED] > 0.0 else 0.0
        return slope

    @jit
    def layer_anew(here: Layers, i: int, slot: int, params: tuple[float, ...]) -> None:
        """Sum the statistics again and rebuild the layers."""
        row, chain = here.pairs[i], _gathered(here, i, slot)
        row["n"], row["mean"], row["m2"] = 0, 0.0, 0.0
        highest, lowest, member = -inf, inf, chain
        while member != lay.NONE:
            x = here.slots[member]["x"]
            row["n"] += 1
            row["mean"], row["m2"] = mem.joined(row["mean"], row["m2"], x, row["n"])
            lowest, highest = min(lowest, x), max(highest, x)
            member = here.slots[member]["place"]
        weight = weight_of(row, params)
        row["slope"] = layer_slope(here, row, params) if 0.0 < weight < inf else 0.0
        row["origin"] = lowest if row["slope"] >= 0.0 else highest
        row["m2_then"], row["changes"] = row["m2"], 0
        while chain != lay.NONE:
            member, chain = chain, here.slots[chain]["place"]
            lay.enter(here, i, member)

    @jit
    def settle(here: Layers, i: int, slot: int, params: tuple[float, ...]) -> None:
        """Store the weight of pair i, and rebuild its layers if necessary; else put ``slot`` into its layer."""
        row = here.pairs[i]
        row["changes"] += 1
        row["m2_then"] = max(row["m2_then"], row["m2"])
        weight = weight_of(row, params)
        if not 0.0 <= weight < inf:
            here.heads[lay.TROUBLE], here.heads[lay.WHERE] = lay.BAD_WEIGHT, i
            weight = 0.0
        slope = layer_slope(here, row, params) if weight > 0.0 else 0.0
        built = row["slope"]
        fits = slope == built or ((slope > 0.0) == (built > 0.0) and abs(built) <= 2.0 * abs(slope) <= 4.0 * abs(built))
        accurate = row["m2"] * 4.0 >= row["m2_then"] and row["changes"] <= 4 * row["n"] + 4096
        if slot != lay.NONE:
            reached = lay.depth(row, here.slots[slot]["x"]) >= -lay.REACH
        else:
            reached = row["first"] == lay.NONE or here.layers[row["first"]]["bin"] <= lay.DEEP
        if not (fits and accurate and reached):
            layer_anew(here, i, slot, params)
            weight = max(weight_of(row, params), 0.0)
        elif slot != lay.NONE:
            lay.enter(here, i, slot)
        if here.tree.size > 2:
            tree.put(here.tree, i, weight if weight < inf else 0.0)

    return settle, layer_anew


@jit
def _short(here: Layers, slot: int, key_pair: int) -> int:
    """The resource that may be too small to change ``slot`` (or NONE) and to add to pair ``key_pair``."""
    heads = here.heads
    if heads[lay.FREE_PAIR] == lay.NONE and heads[lay.PAIR_TOP] == here.pairs.shape[0]:
        return lay.PAIRS_FULL
    if here.layers.shape[0] - heads[lay.N_LAYERS] < 4 * lay.REACH:
        return lay.LAYERS_FULL
    most = 1
    if slot != lay.NONE and here.slots[slot]["pair"] != lay.NONE:
        most += here.pairs[here.slots[slot]["pair"]]["n"]
    if key_pair != lay.NONE:
        most += here.pairs[key_pair]["n"]
    most *= 4  # n slots that enter a layer one by one use stretches of 1, 2, 4, ...: fewer than 4n in all
    if here.pool.size - heads[lay.POOL_TOP] < most:
        heads[lay.WHERE] = most
        return lay.POOL_FULL
    return lay.FINE


def _make_moves(settle: Callable[..., None]) -> tuple[Callable[..., None], Callable[..., None]]:
    """The operations that changes consist of: remove a slot, and set its x."""

    @jit
    def withdraw(here: Layers, slot: int, params: tuple[float, ...]) -> None:
        """Remove a slot from its layer, if it is in one."""
        i = here.slots[slot]["pair"]
        if here.slots[slot]["layer"] != lay.NONE:
            row = here.pairs[i]
            lay.leave(here, i, slot)
            row["n"] -= 1
            row["mean"], row["m2"] = mem.parted(row["mean"], row["m2"], here.slots[slot]["x"], row["n"])
            settle(here, i, lay.NONE, params)

    @jit
    def take_out(here: Layers, slot: int, params: tuple[float, ...]) -> None:
        """Empty a slot that is held; a pair is removed with its last slot."""
        withdraw(here, slot, params)
        i = here.slots[slot]["pair"]
        row = here.pairs[i]
        here.slots[slot]["pair"] = lay.NONE
        row["held"] -= 1
        if row["held"] == 0:
            lay.release(here, i)
        here.heads[lay.HELD] -= 1

    @jit
    def revalue(here: Layers, slot: int, x: float, params: tuple[float, ...]) -> None:
        """Set x of a slot that is held."""
        withdraw(here, slot, params)
        i = here.slots[slot]["pair"]
        here.slots[slot]["x"] = x
        if not isnan(x):
            row = here.pairs[i]
            row["n"] += 1
            row["mean"], row["m2"] = mem.joined(row["mean"], row["m2"], x, row["n"])
            settle(here, i, slot, params)

    return take_out, revalue


def _make_changes(
    settle: Callable[..., None], layer_anew: Callable[..., None], digest: str | None
) -> tuple[_Change, _Change, _Change, _Change]:
    """put, value, drop and renew: each returns how many entries it processed, and stops before one without room."""
    take_out, revalue = _make_moves(settle)

    def put(here: Layers, slots: Array, keys: Array, x: Array, done: int, params: tuple[float, ...]) -> int:
        """Store these slots, replacing their previous contents."""
        for k in range(done, slots.size):
            slot, i = slots[k], lay.NONE
            trouble = _checked(here, slot, x[k])
            if trouble == lay.FINE:
                i = lay.pair_of(here, keys[k])
                trouble = _short(here, slot, i)
            if trouble != lay.FINE:
                here.heads[lay.TROUBLE] = trouble
                return k
            if here.slots[slot]["pair"] != lay.NONE:
                take_out(here, slot, params)
                i = lay.pair_of(here, keys[k])
            if i == lay.NONE:
                i = lay.claim(here, keys[k])
            here.slots[slot]["pair"], here.slots[slot]["layer"] = i, lay.NONE
            here.pairs[i]["held"] += 1
            here.heads[lay.HELD] += 1
            here.heads[lay.HIGH] = max(here.heads[lay.HIGH], slot + 1)
            revalue(here, slot, x[k], params)
        return int(slots.size)

    def value(here: Layers, slots: Array, x: Array, done: int, params: tuple[float, ...]) -> int:
        """Set x of slots that are held."""
        for k in range(done, slots.size):
            slot = slots[k]
            trouble = _checked(here, slot, x[k])
            if trouble == lay.FINE:
                i = here.slots[slot]["pair"]
                trouble = _short(here, slot, i) if i != lay.NONE else lay.NOT_HELD  # its layers may be rebuilt twice
            if trouble != lay.FINE:
                here.heads[lay.TROUBLE] = trouble
                return k
            revalue(here, slot, x[k], params)
        return int(slots.size)

    def drop(here: Layers, slots: Array, done: int, params: tuple[float, ...]) -> int:
        """Remove these slots; slots that are not held are ignored."""
        for k in range(done, slots.size):
            slot = slots[k]
            trouble = _checked(here, slot, 0.0)
            if trouble == lay.FINE and here.slots[slot]["pair"] != lay.NONE:
                trouble = _short(here, slot, lay.NONE)
            if trouble != lay.FINE:
                here.heads[lay.TROUBLE] = trouble
                return k
            if here.slots[slot]["pair"] != lay.NONE:
                take_out(here, slot, params)
        while here.heads[lay.HIGH] > 0 and here.slots[here.heads[lay.HIGH] - 1]["pair"] == lay.NONE:
            here.heads[lay.HIGH] -= 1
        return int(slots.size)

    def renew(here: Layers, rows: Array, done: int, params: tuple[float, ...]) -> int:
        """Rebuild the layers of these pairs for the current slopes."""
        for k in range(done, rows.size):
            trouble = _short(here, lay.NONE, rows[k])
            if trouble != lay.FINE:
                here.heads[lay.TROUBLE] = trouble
                return k
            layer_anew(here, rows[k], lay.NONE, params)
            settle(here, rows[k], lay.NONE, params)
        return int(rows.size)

    return specialise(put, digest), specialise(value, digest), specialise(drop, digest), specialise(renew, digest)


@jit
def _checked(here: Layers, slot: int, x: float) -> int:
    if slot < 0 or slot >= here.slots.shape[0]:
        return lay.BAD_SLOT
    return lay.BAD_X if abs(x) > lay.LARGEST else lay.FINE


TRIES = 10_000  # upper bound that is not reached: at least one try in seven is accepted


def _make_draw(
    weight_of: Callable[..., float], slope_of: Callable[..., float], pooled: bool, digest: str | None
) -> Callable[..., None]:
    @jit
    def tilted_slot(here: Layers, i: int, params: tuple[float, ...]) -> int:
        """A slot of pair i, ∝ e^{−λx}; if ``pooled``, with λ times a uniform number."""
        row = here.pairs[i]
        built = row["slope"]
        ratio = slope_of(row, params) / built if built != 0.0 else 0.0
        if pooled and built != 0.0:
            ratio *= rng.uniform(here.generator) / here.scale[lay.UNIT]
        first = row["first"]
        top = here.layers[first]["bin"]
        total, b, j = 0.0, first, 0
        while b != lay.NONE:
            layer = here.layers[b]
            total += layer["n"] * exp(-ratio * (layer["bin"] - top))
            here.sums[j] = total
            b = layer["next"]
            j += 1
        slot = lay.NONE
        for _ in range(TRIES):
            u = rng.uniform(here.generator) * total
            b, j = first, 0
            while here.sums[j] <= u and here.layers[b]["next"] != lay.NONE:
                b = here.layers[b]["next"]
                j += 1
            layer = here.layers[b]
            slot = here.pool[layer["start"] + rng.below(here.generator, layer["n"])]
            if built == 0.0:
                break
            above = lay.depth(row, here.slots[slot]["x"]) - layer["bin"]
            if rng.uniform(here.generator) < exp(-ratio * above):
                break
        return int(slot)

    def draw(here: Layers, v: float, params: tuple[float, ...], out: Array, tilted: Array) -> None:
        """Draw a batch of slots into ``out``; ``tilted`` marks those drawn by the tilt. At least one slot must be held.

        With a tree of weights: with probability v a slot of a pair drawn by weight, else a uniform one (literal mixing). Without: a
        uniform one, replaced with probability ρ = v·min(1, weight) by one of its own pair (matched mixing).
        """
        for k in range(out.size):  # in three passes, so that memory accesses overlap; first any slots that are held
            slot = rng.below(here.generator, here.heads[lay.HIGH])
            while here.slots[slot]["pair"] == lay.NONE:
                slot = rng.below(here.generator, here.heads[lay.HIGH])
            out[k] = slot
        for k in range(out.size):
            if here.tree.size > 2:
                tilted[k] = rng.uniform(here.generator) < v and here.tree[1] > 0.0
            else:
                weight = weight_of(here.pairs[here.slots[out[k]]["pair"]], params)
                tilted[k] = rng.uniform(here.generator) < v * min(1.0, weight)
        for k in range(out.size):
            if tilted[k]:
                if here.tree.size > 2:
                    i = tree.find(here.tree, rng.uniform(here.generator) * here.tree[1])
                else:
                    i = here.slots[out[k]]["pair"]
                out[k] = tilted_slot(here, i, params)

    return specialise(draw, digest)


@lru_cache(maxsize=64)
def make_pieces(pair_weight: Bound, log_tilt: Bound, pooled: bool) -> Pieces:
    """The kernels for a scheme's two factors; ``pooled`` is :attr:`Scheme.POOLED <safereplay.schemes.Scheme.POOLED>`."""
    digest = digest_of([pair_weight, log_tilt], "layers", pooled)
    own_weight, tilt_of = pair_weight.call, log_tilt.call

    @jit
    def weight_of(row: Array, params: tuple[float, ...]) -> float:
        """The weight of a pair; 0 while no x is known."""
        if row["n"] == 0:
            return 0.0
        return float(own_weight((*_statistics(row), *params)))

    @jit
    def slope_of(row: Array, params: tuple[float, ...]) -> float:
        """λ: the decrease of log_tilt, a straight line, from the mean to one standard deviation above, per unit of x."""
        stats = _statistics(row)
        step = sqrt(stats[2]) if stats[2] > 0.0 else 1.0
        low = tilt_of((stats[1] + step, *stats, *outcome(stats[1] + step), *params))
        fall = tilt_of((stats[1], *stats, *outcome(stats[1]), *params)) - low
        return float(fall / step)

    def weigh(pairs: Array, params: tuple[float, ...], weights: Array, slopes: Array) -> None:
        """The weight and the slope of each row of ``pairs``, from its n, mean and m2."""
        for i in range(pairs.shape[0]):
            weights[i] = weight_of(pairs[i], params)
            slopes[i] = slope_of(pairs[i], params) if weights[i] > 0.0 else 0.0

    changes = _make_changes(*_make_settle(weight_of, slope_of, pooled), digest)
    return Pieces(*changes, _make_draw(weight_of, slope_of, pooled, digest), specialise(weigh, digest))
