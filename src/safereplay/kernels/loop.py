"""The loop of a run over an outcome table: sample, learn, start again, until the episodes are done.

The loop stops after a given number of iterations as well and goes on from exactly there when called again, so a
caller can show progress, take snapshots and be interrupted without changing a single bit of the result.
"""

from collections.abc import Callable

from . import memory as mem
from . import rng, step
from .compile import at, jit, specialise
from .table import Model as Model
from .table import pick as pick
from .table import sample as sample


def make_iterate(recipe: step.Recipe, form: step.Form = step.FULL) -> Callable[..., int]:
    """The function of one iteration in state s, a replay or a step of the MDP; the state it leaves.

    An outcome of a table *is* its slot in the memory. So both kinds of iteration differ only in how they come by a
    slot, and the update after it is the same code for both: threads of a GPU that do different things meet there.
    """
    recall, choose, learn = step.make(recipe, form)
    dense, eager = form.dense, form.eager

    @jit
    def iterate(
        model: Model, memory: mem.Memory, tables: step.Tables, dials: step.Dials, s: int, max_steps: int
    ) -> int:
        clock, generator = tables.clock, tables.generator
        if s == step.NO_STATE:
            s = model.start_state[at(pick(model.start_cum, 0, model.start_cum.size, rng.uniform(generator)))]
            clock[step.STEP] = 0
        best = step.greedy(tables.Q, s, dials.n_actions) if eager else 0
        row = recall(tables, memory, dials)
        fresh = row == mem.NO_ROW
        if fresh:
            if not eager:
                best = step.greedy(tables.Q, s, dials.n_actions)
            i = s * dials.n_actions + choose(tables, s, best, dials)
            row = i if dense else memory.row[at(i)]
            slot = model.slot[at(sample(model, i, generator))]
        else:
            i = row if dense else memory.pair[at(row)]
            slot = mem.draw(memory, row, rng.uniform(generator))
        r, s_next, ends = model.r[at(slot)], model.s_next[at(slot)], model.ends[at(slot)]
        learn(tables, memory, i, row, slot, r, s_next, ends, fresh, False, dials)
        if fresh:
            s = s_next
            clock[step.STEP] += 1
            if ends or clock[step.STEP] >= max_steps:
                clock[step.EPISODE] += 1
                s = step.NO_STATE
        return s

    return iterate


def make(recipe: step.Recipe) -> Callable[..., None]:
    """The compiled loop for a recipe."""
    iterate = make_iterate(recipe)

    def run(
        model: Model,
        memory: mem.Memory,
        tables: step.Tables,
        dials: step.Dials,
        episodes: int,
        max_steps: int,
        budget: int,
    ) -> None:
        clock = tables.clock
        s = clock[step.STATE]
        last = clock[step.ITERATION] + budget
        while clock[step.ITERATION] < last and clock[step.EPISODE] < episodes:
            s = iterate(model, memory, tables, dials, s, max_steps)
        clock[step.STATE] = s

    return specialise(run, recipe.digest())
