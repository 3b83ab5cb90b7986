"""The loop of a run over an outcome table, and the iteration of Algorithm 1.

Every family of learners has its own iteration; episodes begin and end in the same way, and one loop runs them all. It
stops after a given number of iterations and continues from there when called again. So a caller can show progress, take
snapshots and be interrupted without changing a bit of the result.
"""

from collections.abc import Callable
from typing import Any

from . import memory as mem
from . import rng, step
from .compile import Array, at, jit, specialise
from .rng import Model, first_state, sample
from .step import Dials, Tables


@jit
def begin(model: Model, tables: Tables) -> int:
    """Begin an episode; returns its first state."""
    tables.clock[step.STEP] = 0
    return first_state(model, tables.generator)


@jit
def leave(tables: Tables, s_next: int, ends: bool, max_steps: int) -> int:
    """Count a step of the MDP to s_next; returns the next state, or NO_STATE if the episode ends or is truncated."""
    tables.clock[step.STEP] += 1
    if ends or tables.clock[step.STEP] >= max_steps:
        tables.clock[step.EPISODE] += 1
        return step.NO_STATE
    return s_next


def make_iterate(recipe: step.Recipe, form: step.Form = step.FULL) -> Callable[..., int]:
    """The function of one iteration in state s, a replay or a step of the MDP; returns the next state.

    An outcome k of the table has the slot model.slot[k] in the memory: k itself, or the first outcome that differs only in
    its unsafe flag. Both kinds of iteration differ only in how they find a slot, and share the code of the update, so that
    GPU threads with different kinds converge there.
    """
    recall, choose, learn = step.make(recipe, form)
    dense, eager, tally = form.dense, form.gpu, not form.gpu  # see step.Form
    may_owe = recipe.may_owe

    @jit
    def iterate(model: Model, memory: mem.Memory, tables: Tables, dials: Dials, s: int, max_steps: int) -> int:
        clock, generator = tables.clock, tables.generator
        if s == step.NO_STATE and not (may_owe and clock[step.DUE] > 0):  # replays come before the next episode
            s = begin(model, tables)
        best = mem.greedy(tables.Q, max(s, 0), dials.n_actions) if eager else 0
        row = recall(tables, memory, dials)
        fresh = row == mem.NO_ROW
        if fresh:
            if not eager:
                best = mem.greedy(tables.Q, s, dials.n_actions)
            i = s * dials.n_actions + choose(tables, s, best, dials)
            row = i if dense else memory.row[at(i)]
            k = sample(model, i, generator)
            slot = model.slot[at(k)]
        else:
            i = row if dense else memory.pair[at(row)]
            slot = mem.draw(memory, row, rng.uniform(generator))
            k = slot
        if tally:
            clock[step.LAST] = 2 * k + (0 if fresh else 1)
        r, s_next, ends = model.r[at(k)], model.s_next[at(k)], model.ends[at(k)]  # as at its slot
        learn(tables, memory, (i, row, slot), (r, s_next, ends), fresh, False, dials)
        return leave(tables, s_next, ends, max_steps) if fresh else s

    return iterate


def make_advance(iterate: Callable[..., int], hold: Callable[[Array], Array]) -> Callable[..., None]:
    """The loop around an iteration: ``budget`` iterations, or until ``episodes`` are over and no replay is due.

    It writes the clock's LAST of each iteration to ``log``, up to its length. It draws from ``hold(generator)``, which may be
    a copy (see :func:`safereplay.kernels.rng.on_stack`).
    """

    def advance(
        model: Model, memory: Any, tables: Tables, dials: Dials, episodes: int, max_steps: int, budget: int, log: Array
    ) -> None:
        clock, generator = tables.clock, hold(tables.generator)
        held = Tables(tables.Q, tables.counts, tables.visited, clock, generator)
        s, done, last = clock[step.STATE], 0, clock[step.ITERATION] + budget
        while clock[step.ITERATION] < last and (clock[step.EPISODE] < episodes or clock[step.DUE] > 0):
            s = iterate(model, memory, held, dials, s, max_steps)
            if done < log.size:
                log[at(done)] = clock[step.LAST]
                done += 1
        clock[step.STATE] = s
        for k in range(rng.WORDS):
            tables.generator[k] = generator[k]

    return advance


def compiled(iterate: Callable[..., int], digest: str | None) -> Callable[..., None]:
    """The loop around an iteration whose source has this ``digest``, compiled for the CPU."""
    return specialise(make_advance(iterate, rng.on_stack), digest)
