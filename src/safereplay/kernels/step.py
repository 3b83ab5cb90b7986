"""One iteration of Algorithm 1, in pieces shared by the loop over a table and the agent in an environment.

        recall    count the iteration; the memory's row that it replays, or NO_ROW for an iteration of the MDP
        choose    the action of an iteration of the MDP
        learn     from a transition, fresh or replayed: store it if it is fresh, update Q and w_t

Names: ``i`` is a pair, s·|A| + a; ``row`` its row in the memory; ``slot`` a row's place for an outcome.

A :class:`Recipe` combines a learner, its scheme and its schedules: bound functions and constant switches.
:func:`make` builds the pieces for a recipe; parts that the recipe does not use are not compiled.

Ref: Szlak & Shamir (2021), Algorithm 1.
"""

from collections.abc import Callable
from math import exp, inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from . import memory as mem
from . import rng, tree, wide
from .compile import Array, Bound, at, digest_of, jit

#: Quantities that a learner's update may name, besides its own fields (see :mod:`safereplay.learners`).
UPDATE_OFFERS = ("q", "r", "best", "worst", "worst_state", "worst_outcome", "alpha", "gamma")

VISITS, REPLAYS = range(2)  # columns of Tables.counts
#: Entries of Tables.clock.
#:   STEP    of the episode                            WRONG    1 + a pair whose factors gave an invalid number
#:   DUE     replays still due after a visit          DUE_ROW  the memory's row of the pair that was visited
#:   LAST    2·outcome of the last iteration, + 1 if it was a replay
ITERATION, STATE, EPISODE, STEP, WRONG, DUE, DUE_ROW, LAST = range(8)
CLOCK = 8
AT_REST = 5  # the first entries: the whole state if no replay is due
NO_STATE = -1  # the clock's STATE between two episodes

LITERAL, MATCHED, ANCHORED = range(3)  # mixings

Place: TypeAlias = tuple[int, int, int]  # a pair, its row in the memory, and the slot of an outcome
Outcome: TypeAlias = tuple[float, int, bool]  # r, s', and whether the episode ends


class Tables(NamedTuple):
    """The arrays that a run fills."""

    Q: Array  #: [P]
    counts: Array  #: [P, 2] MDP iterations and replays of each pair
    visited: Array  #: [S] MDP iterations in each state; 0 if exploration is constant
    clock: Array  #: [CLOCK] iteration, state, episode, ...: see ITERATION
    generator: Array  #: [4] random words


class Dials(NamedTuple):
    """Every parameter of a run; none is compiled in."""

    gamma: float
    v: float
    T0: int
    n_actions: int
    alphas: Array  #: [schedules.TABLE_SIZE] α by number of updates; the function is called for larger numbers
    rates: Array  #: [schedules.TABLE_SIZE] ε (or temperature) by visits of the state; likewise
    step_params: tuple[float, ...]
    rate_params: tuple[float, ...]
    update_params: tuple[float, ...]
    scheme_params: tuple[float, ...]


class Recipe(NamedTuple):
    """Bound functions and switches that a run's code is built from."""

    alpha: Bound
    rate: Bound
    update: Bound
    pair_weight: Bound
    log_tilt: Bound
    next_weight: Bound
    softmax: bool  #: explore by softmax, else by ε-greedy
    replays: bool
    mixing: int

    @property
    def remembers(self) -> bool:
        """Whether a run needs a memory of outcomes."""
        return self.replays or self.update.uses("worst_state", "worst_outcome")

    @property
    def n_stats(self) -> int:
        """The number of statistics per pair that some function needs."""
        return mem.N_STATS if self.weighs("r_min", "r_max", "td", *mem.SURVEYED) else mem.FEWER

    @property
    def may_owe(self) -> bool:
        """Whether replays can be due after a visit."""
        return self.replays and self.mixing != LITERAL

    def weighs(self, *names: str) -> bool:
        """Whether w_t depends on any of these quantities."""
        return self.pair_weight.uses(*names) or self.log_tilt.uses(*names)

    def digest(self) -> str | None:
        """A digest of the source of the compiled code; None if it must not be cached on disk."""
        return digest_of([x for x in self if isinstance(x, Bound)], self.softmax, self.replays, self.mixing)


class Form(NamedTuple):
    """Optional parts of the compiled code.

    On a GPU pair weights are in a wide tree, values that may not be needed are loaded early, since it waits at their first
    use, and the replays of each outcome and the last one are not recorded.
    """

    dense: bool = True  #: every pair is stored, so that the memory's row i is pair i
    gpu: bool = False

    @property
    def sums(self) -> Any:
        """The module of the sum tree: total, find, put and leaf."""
        return wide if self.gpu else tree


FULL = Form()


def allocate(
    n_states: int, n_actions: int, c0: float, generator: Array, Q: Array = None, counts: Array = None
) -> Tables:
    """The initial tables of a run; Q [P] and zeros for counts [P, 2] may be given."""
    n_pairs = n_states * n_actions
    clock = np.zeros(CLOCK, np.int64)
    clock[STATE] = NO_STATE
    Q = np.empty(n_pairs) if Q is None else Q
    Q[:] = c0
    counts = np.zeros((n_pairs, 2), np.int64) if counts is None else counts
    return Tables(Q, counts, np.zeros(n_states, np.int64), clock, generator)


@jit
def boltzmann(Q: Array, s: int, n_actions: int, temperature: float, generator: Array) -> int:
    """An action drawn ∝ e^{Q(s,a)/temperature}."""
    i = s * n_actions
    top = mem.highest(Q, s, n_actions)
    total = 0.0
    for j in range(i, i + n_actions):
        total += exp((Q[at(j)] - top) / temperature)
    x = rng.uniform(generator) * total
    for j in range(i, i + n_actions - 1):
        x -= exp((Q[at(j)] - top) / temperature)
        if x < 0.0:
            return j - i
    return n_actions - 1


def make_choose(recipe: Any) -> Callable[..., int]:
    """The function that chooses the action of an MDP iteration, for the recipe of any family."""
    rate_of, softmax, counts = recipe.rate.call, recipe.softmax, recipe.rate.uses("n")

    @jit
    def choose(tables: Tables, s: int, best: int, dials: Dials) -> int:
        """The action of this iteration of the MDP in state s, where ``best`` is the greedy one; counts the visit if need be."""
        n = 0
        if counts:
            n = tables.visited[at(s)] + 1
            tables.visited[at(s)] = n
        if tables.clock[ITERATION] <= dials.T0:
            return rng.below(tables.generator, dials.n_actions)
        rate = dials.rates[at(n)] if counts and n < dials.rates.size else rate_of((float(n), *dials.rate_params))
        if softmax:
            return boltzmann(tables.Q, s, dials.n_actions, rate, tables.generator)
        if rng.uniform(tables.generator) < rate:
            return rng.below(tables.generator, dials.n_actions)
        return best

    return choose


def make_alpha(alpha: Bound) -> Callable[..., float]:
    """The function that gives α of a pair's n-th update."""
    alpha_of, falls = alpha.call, alpha.uses("n")

    @jit
    def step_size(n: int, dials: Dials) -> float:
        if falls and n < dials.alphas.size:
            return float(dials.alphas[at(n)])
        return alpha_of((float(n), *dials.step_params))

    return step_size


def make_backup(recipe: Recipe, form: Form) -> Callable[..., None]:
    """The function that computes Q_t(s,a) from Q_{t−1}(s,a) and one transition, fresh or replayed, and stores it.

    If the transition is ``held``, it is only recorded: a replay of the same pair updates Q in its place.

    Values are loaded together before they are used: a GPU, which waits at the first use of a value, waits only once.
    """
    step_size, update = make_alpha(recipe.alpha), recipe.update.call
    needs_worst, needs_state = recipe.update.uses("worst"), recipe.update.uses("worst_state")
    needs_outcome, follows_td = recipe.update.uses("worst_outcome"), recipe.weighs("td")
    record = mem.make_record(recipe.weighs("r_min", "r_max"))
    replays, remembers, tally, dense = recipe.replays, recipe.remembers, not form.gpu, form.dense
    anchored = replays and recipe.mixing == ANCHORED

    @jit
    def backup(
        tables: Tables, memory: mem.Memory, place: Place, outcome: Outcome, fresh: bool, held: bool, dials: Dials
    ) -> None:
        (i, row, slot), (r, s_next, ends) = place, outcome
        visits, replayed, q = tables.counts[at(i), VISITS], tables.counts[at(i), REPLAYS], tables.Q[at(i)]
        best = worst = worst_state = worst_outcome = 0.0
        if not ends:
            best = mem.highest(tables.Q, s_next, dials.n_actions)
            if needs_worst:
                worst = mem.lowest(tables.Q, s_next, dials.n_actions)
        # anchored: each visit is one update, and a replay comes after its visit
        alpha = step_size(visits + (1 if fresh else 0) if anchored else visits + replayed + 1, dials)
        if fresh:
            tables.counts[at(i), VISITS] = visits + 1
            if remembers and (dense or row != mem.NO_ROW):
                record(memory, row, slot, r, visits + 1)
        elif replays:
            tables.counts[at(i), REPLAYS] = replayed + 1
            if tally:
                memory.replayed[at(slot)] += 1
        if anchored and held:
            return
        if needs_state:  # then every pair is stored, and row i is pair i
            worst_state = mem.worst_state_value(memory, tables.Q, i, dials.gamma, dials.n_actions)
        if needs_outcome:
            worst_outcome = mem.worst_outcome_value(memory, tables.Q, i, dials.gamma, dials.n_actions)
        known = (q, r, best, worst, worst_state, worst_outcome, alpha, dials.gamma, *dials.update_params)
        tables.Q[at(i)] = update(known)
        if follows_td and (dense or row != mem.NO_ROW):
            memory.stats[at(row), mem.TD] = r + dials.gamma * best - q

    return backup


def make(recipe: Recipe, form: Form = FULL) -> tuple[Callable[..., int], Callable[..., int], Callable[..., None]]:
    """The pieces of an iteration for a recipe: recall, choose and learn."""
    literal, may_owe = recipe.replays and recipe.mixing == LITERAL, recipe.may_owe
    total_of, find, dense = form.sums.total, form.sums.find, form.dense
    lucky, refresh = (
        recipe.replays and recipe.log_tilt.uses("luck"),
        mem.make_refresh(recipe.log_tilt, recipe.next_weight),
    )

    @jit
    def recall(tables: Tables, memory: mem.Memory, dials: Dials) -> int:
        tables.clock[ITERATION] += 1
        row = mem.NO_ROW
        if may_owe and tables.clock[DUE] > 0:
            tables.clock[DUE] -= 1
            row = int(tables.clock[DUE_ROW])
        if literal and tables.clock[ITERATION] > dials.T0 and rng.uniform(tables.generator) < dials.v:
            total = total_of(memory.tree)
            if total > 0.0:  # else no pair has weight, and nothing can be replayed
                row = int(find(memory.tree, rng.uniform(tables.generator) * total))
        if lucky and row != mem.NO_ROW:
            luck = rng.uniform(tables.generator)
            n = tables.counts[at(row if dense else memory.pair[at(row)]), VISITS]
            refresh(memory, tables.Q, row, n, dials.gamma, dials.n_actions, luck, dials.scheme_params)
        return row

    return recall, make_choose(recipe), make_learn(recipe, form)


def make_learn(recipe: Recipe, form: Form) -> Callable[..., None]:
    """The function that learns from an outcome; ``moved`` tells whether the pair's slots have moved.

    With matched mixing a visit is followed by replays of the same pair, v·W/(1−v) of them on average, W the pair's share
    of the weights. With anchored mixing a visit is held with probability v·min(1, W), W the pair's weight before it: it is
    recorded, and one replay of the pair takes the place of its update. Replays become due here, and ``recall`` returns them.
    Quantities that depend on Q of next states are updated only with their pair, as Q itself is.
    """
    backup, dense, replays = make_backup(recipe, form), form.dense, recipe.replays
    total_of, leaf, put = form.sums.total, form.sums.leaf, form.sums.put
    matched, anchored = replays and recipe.mixing == MATCHED, replays and recipe.mixing == ANCHORED
    pair_weight = recipe.pair_weight.call
    refresh = mem.make_refresh(recipe.log_tilt, recipe.next_weight)
    survey = mem.make_survey(recipe.pair_weight, recipe.log_tilt)
    tilt_moves = recipe.log_tilt.uses(*mem.STATISTICS, "count", "freq", "luck") or recipe.next_weight.uses("count")
    surveys, always = recipe.weighs(*mem.SURVEYED), recipe.weighs(*mem.FOLLOW_Q)
    tilts_always = recipe.log_tilt.uses(*mem.FOLLOW_Q, "luck")

    @jit
    def update_weights(
        tables: Tables, memory: mem.Memory, i: int, row: int, slot: int, fresh: bool, moved: bool, dials: Dials
    ) -> None:
        """Update w_t after an update of pair i."""
        n = tables.counts[at(i), VISITS]
        if surveys and (fresh or always):
            survey(memory, tables.Q, row, n, dials.gamma, dials.n_actions)
        renew = tilts_always or (fresh and (tilt_moves or moved or memory.count[at(slot)] == 1.0))
        if renew and not refresh(
            memory, tables.Q, row, n, dials.gamma, dials.n_actions, mem.MIDDLE, dials.scheme_params
        ):
            tables.clock[WRONG] = i + 1
        if fresh or always:
            weight = pair_weight((*mem.statistics(memory, tables.Q, row, n), *dials.scheme_params))
            if not 0.0 <= weight < inf:  # the caller reports it; until then the pair is not drawn
                tables.clock[WRONG] = i + 1
                weight = 0.0
            if weight > 0.0 and not mem.total_share(memory, row) > 0.0:
                weight = 0.0
            put(memory.tree, row, weight)

    @jit
    def learn(
        tables: Tables, memory: mem.Memory, place: Place, outcome: Outcome, fresh: bool, moved: bool, dials: Dials
    ) -> None:
        i, row, slot = place
        held = False
        if anchored and fresh and (dense or row != mem.NO_ROW) and tables.clock[ITERATION] >= dials.T0:
            weight = leaf(memory.tree, row)
            held = weight > 0.0 and rng.uniform(tables.generator) < dials.v * min(weight, 1.0)
        backup(tables, memory, place, outcome, fresh, held, dials)
        if replays and (dense or row != mem.NO_ROW):
            update_weights(tables, memory, i, row, slot, fresh, moved, dials)
        if matched and fresh:
            total = total_of(memory.tree)
            if tables.clock[ITERATION] >= dials.T0 and total > 0.0:  # replays begin in the next iteration
                share = leaf(memory.tree, row) / total if dense or row != mem.NO_ROW else 0.0
                tables.clock[DUE] = int(dials.v / (1.0 - dials.v) * share + rng.uniform(tables.generator))
                tables.clock[DUE_ROW] = row
        if anchored and held and leaf(memory.tree, row) > 0.0:
            tables.clock[DUE], tables.clock[DUE_ROW] = 1, row

    return learn
