"""The cost of shaped replay in JAX: our buffers compared with flashbax's, and eight DQNs in one program compared with Stable-Baselines3's.

    cycles     add a transition, then draw a batch of 64, in a compiled loop: flashbax's uniform buffer, its prioritised one (with new priorities for the
               batch), and ours without keys (with new TD errors for as many transitions). TD errors and priorities are rewards, which cost nothing
    networks   seconds of training per network: 20,000 steps on the cliff, 8 networks in one compiled program, and one with Stable-Baselines3

Times are medians of alternating rounds; for training the best. Compilation is not included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

from .sheets import Effort, Part, Rows, Sheet, Task, in_turns, microseconds, seconds_of, span

BATCH, NUMBERS, SIZE = 64, 8, 50_000
CYCLES, WIDTHS = 500, (1, 64)  #: cycles per round, and buffers that are mapped over
NETWORKS = 8


@dataclass(frozen=True)
class Cost:
    """Seconds per cycle of one buffer, or per network."""

    work: str
    contestant: str
    seconds: float
    ratio: float  #: to the first contestant


def measure_cycles(width: int, rounds: int) -> list[Cost]:
    """The seconds of one cycle of each buffer, with ``width`` buffers at once."""
    if find_spec("jax") is None:
        return []
    import jax
    import jax.numpy as jnp

    item = {"s": jnp.zeros(NUMBERS), "a": jnp.int32(0), "r": jnp.float32(0), "after": jnp.zeros(NUMBERS)}
    state = jax.random.normal(jax.random.key(1), (NUMBERS,))
    new = {"s": state, "a": jnp.int32(1), "r": jnp.float32(0.5), "after": state}
    works: dict[str, Callable[[], float]] = {}
    for name, (init, cycle) in _cycles(item, new).items():

        def loop(carry: Any, key: Any, cycle: Any = cycle) -> Any:
            def one(carry: Any, two: Any) -> Any:
                memory, total = carry
                memory, batch = cycle(memory, two)
                return (memory, total + sum(x.sum() for x in jax.tree.leaves(batch))), None  # all of it is used

            return jax.lax.scan(one, (carry, jnp.float32(0)), jax.random.split(key, (CYCLES, 2)))[0]

        keys = jax.random.split(jax.random.key(0), width)
        memory = jax.vmap(lambda _, init=init: init())(keys)
        compiled: Any = jax.jit(jax.vmap(loop))
        _timed(compiled, memory, keys)  # compiles
        works[name] = partial(_timed, compiled, memory, keys)
    times = [median(each) / CYCLES for each in in_turns(list(works.values()), rounds)]
    work = f"cycle, {width} at once"
    return [Cost(work, name, t, t / times[0]) for name, t in zip(works, times, strict=True)]


def _timed(function: Any, *arguments: Any) -> float:
    import jax

    finished: Any = jax.block_until_ready
    return seconds_of(lambda: finished(function(*arguments)))


def _cycles(item: Any, new: Any) -> dict[str, tuple[Callable[[], Any], Callable[..., Any]]]:
    """(an initial memory that holds some, one cycle with two random keys) of each contestant."""
    import jax

    from safereplay.jax import make_shaped_buffer

    def filled(buffer: Any) -> Callable[[], Any]:
        def init() -> Any:
            return jax.lax.fori_loop(0, 2 * BATCH, lambda _, state: buffer.add(state, new), buffer.init(item))

        return init

    found: dict[str, tuple[Callable[[], Any], Callable[..., Any]]] = {}
    if find_spec("flashbax") is not None:
        import flashbax

        uniform = flashbax.make_item_buffer(SIZE, BATCH, BATCH)
        tree = flashbax.make_prioritised_item_buffer(SIZE, BATCH, BATCH, priority_exponent=0.6, device="cpu")

        def uniformly(memory: Any, keys: Any) -> Any:
            memory = uniform.add(memory, new)
            return memory, uniform.sample(memory, keys[0]).experience

        def by_priority(memory: Any, keys: Any) -> Any:
            memory = tree.add(memory, new)
            drawn = tree.sample(memory, keys[0])
            return tree.set_priorities(memory, drawn.indices, abs(drawn.experience["r"])), drawn.experience

        found |= {"flashbax, uniform": (filled(uniform), uniformly)}
        found |= {"flashbax, prioritised": (filled(tree), by_priority)}
    shaped = make_shaped_buffer(SIZE, sample_batch_size=BATCH)

    def by_surprise(memory: Any, keys: Any) -> Any:
        memory = shaped.update(shaped.add(memory, new), keys[0], lambda batch: batch["r"])
        return memory, shaped.sample(memory, keys[1], 0.8).experience

    return {**found, "safereplay, without keys": (filled(shaped), by_surprise)}


def measure_networks(steps: int, rounds: int) -> list[Cost]:
    """Seconds of training per network, with Stable-Baselines3 and in one program."""
    if find_spec("jax") is None or find_spec("stable_baselines3") is None:
        return []
    import jax
    import jax.numpy as jnp

    from studies.deep.training import Setting, fit, one_thread
    from studies.fleet.loop import Dials
    from studies.fleet.study import program

    works: dict[str, Callable[[], float]] = {}
    for name, family, v in (("plain", "plain", 0.0), ("shaped", "shaped", 0.8)):
        made = program("cliff", family, steps)
        keys = jax.random.split(jax.random.key(0), NETWORKS)
        dials = Dials(jnp.full(NETWORKS, v), jnp.ones(NETWORKS), jnp.ones(NETWORKS))
        _timed(made.train, keys, dials)  # compiles

        def alone(v: float = v) -> float:
            with one_thread():
                return fit(Setting("cliff", v=v, steps=steps, seed=1)).seconds

        def together(made: Any = made, keys: Any = keys, dials: Any = dials) -> float:
            return _timed(made.train, keys, dials) / NETWORKS

        works |= {f"SB3, {name}": alone, f"safereplay.jax, {name}, {NETWORKS} at once": together}
    times = [min(each) for each in in_turns(list(works.values()), rounds)]
    return [Cost("network", name, t, t / times[0]) for name, t in zip(works, times, strict=True)]


def tasks(effort: Effort) -> list[Task]:
    """Both comparisons."""
    found = [
        Task(f"JAX: cycles of {n} buffers", partial(measure_cycles, n, max(effort.draws // 20, 3))) for n in WIDTHS
    ]
    return [*found, Task("JAX: networks", partial(measure_networks, effort.dqn_steps, max(effort.rounds // 2, 1)))]


def sheet(rows: Rows) -> Sheet:
    """Seconds and ratios."""
    beside = any(row.contestant.startswith("flashbax") for row in rows)
    cycles = [row.ratio for row in rows if row.work != "network" and row.contestant.startswith("safereplay") and beside]
    return Sheet(
        "replay in JAX",
        "A cycle adds a transition and draws a batch of 64 from a buffer of 50,000. A network is trained on the cliff. Compilation is not included. Alternating rounds.",
        ("work", "contestant", "time", "ratio to the first"),
        [
            (
                row.work,
                row.contestant,
                f"{microseconds(row.seconds)} µs" if row.work != "network" else f"{row.seconds:.2f} s",
                f"{row.ratio:.2f}×",
            )
            for row in rows
        ],
        f"A cycle takes {span(cycles, 1)} times as long as flashbax's uniform one."
        if cycles
        else "flashbax was not measured.",
    )


PART = Part("jax", tasks, sheet)
