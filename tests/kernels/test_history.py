"""Replay from a history: each rule beside a plain list that does the same, and the structures under it."""

import math
from pathlib import Path

import diary
import numpy as np
import pytest

import safereplay as sr
from safereplay import arrays, runs
from safereplay.kernels import history, rng, step
from safereplay.kernels import history as ring
from safereplay.rivals.prioritised import PrioritisedReplay
from safereplay.rivals.replaying import BackwardReplay, CombinedReplay, DynaQ, RecentReplay, WindowReplay

WINDOW, V, MAX_STEPS = 37, 0.6, 25
LEARNERS = {
    "uniform": WindowReplay(V, WINDOW),
    "recent": RecentReplay(V, eta=0.9, least=3, cycle=20, window=WINDOW),
    "combined": CombinedReplay(V, batch=3, window=WINDOW),
    "proportional": PrioritisedReplay(0.7, V, window=WINDOW),
    "proportional weighed": PrioritisedReplay(0.7, V, importance=0.4, window=WINDOW),
    "rank": PrioritisedReplay(0.7, V, by="rank", window=WINDOW),
    "rank weighed": PrioritisedReplay(0.7, V, by="rank", importance=0.4, window=WINDOW),
    "backward": BackwardReplay(V, 0.5, WINDOW),
    "backward from far": BackwardReplay(V, 1.0, 500),
    "dyna": DynaQ(3),
    "dyna counted": DynaQ(3, "counts"),
}
PLAIN = {
    "uniform": lambda: diary.uniform,
    "recent": lambda: diary.recent(0.9, 3, 20),
    "combined": lambda: diary.combined(3),
    "proportional": lambda: diary.proportional(0.7, 0.0, 0.01),
    "proportional weighed": lambda: diary.proportional(0.7, 0.4, 0.01),
    "backward": lambda: diary.backward(0.5),
    "backward from far": lambda: diary.backward(1.0),
    "dyna": lambda: diary.dyna(3, counted=False),
    "dyna counted": lambda: diary.dyna(3, counted=True),
}


def program_of(mdp, learner):
    return runs.make_program(learner, sr.EpsilonGreedy(), sr.PowerStep(), mdp.gamma, mdp.n_actions)


def lived(mdp, learner, budgets, seed=3):
    """Tables and history after so many iterations, in pieces."""
    program = program_of(mdp, learner)
    tables = step.allocate(mdp.n_states, mdp.n_actions, 0.0, rng.seeded(seed))
    memory, model = program.recipe.room(mdp), arrays.sampling_model(mdp)
    for budget in budgets:
        program.advance(model, memory, tables, 1 << 40, MAX_STEPS, budget)
    return tables, memory


# -- each rule beside a plain list --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PLAIN)
def test_a_rule_does_what_a_plain_list_of_the_past_does(name):
    """Cliff, seed 3, 1,500 iterations, a window of 37: the same draws, so the same values to the last bit."""
    mdp, learner = sr.grids.cliff(), LEARNERS[name]
    tables, _ = lived(mdp, learner, [1_500])
    alphas = program_of(mdp, learner).dials.alphas
    window = {"window": learner.window, "v": learner.v} if hasattr(learner, "window") else {}
    options = {"alpha": lambda n: float(alphas[n]), "max_steps": MAX_STEPS, **window}
    told = diary.kept(mdp, rng.seeded(3), PLAIN[name](), 1_500, **options)
    assert tables.counts[:, step.VISITS].tolist() == told.visits
    assert tables.counts[:, step.REPLAYS].tolist() == told.replays
    assert sum(told.replays) > 700
    assert tables.Q.tolist() == told.Q


@pytest.mark.parametrize("learner", [WindowReplay(0.0), DynaQ(0), BackwardReplay(0.0), PrioritisedReplay(v=0.0)])
def test_without_replay_it_is_q_learning_to_the_last_bit(learner):
    settings = {"episodes": 200, "seeds": 2, "max_steps": 50}
    ours, plain = (sr.learn(sr.grids.cliff(), one, **settings) for one in (learner, sr.QLearning()))
    assert ours.Q.tobytes() == plain.Q.tobytes()
    assert ours.visits.tobytes() == plain.visits.tobytes()
    assert not ours.replays.any()


@pytest.mark.parametrize("name", LEARNERS)
def test_a_run_in_pieces_is_the_run_in_one_go(name):
    mdp, learner = sr.grids.cliff(), LEARNERS[name]
    whole, memory = lived(mdp, learner, [900])
    for pieces in ([1] * 900, [7] * 128 + [4], [333, 567]):
        parts, kept = lived(mdp, learner, pieces)
        for one, other in zip((*whole, *memory), (*parts, *kept), strict=True):
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("name", [name for name, one in LEARNERS.items() if not isinstance(one, DynaQ)])
def test_a_share_v_of_the_iterations_are_replays_whatever_the_rule(name):
    """Seed 3, n = 30,000, T0 = 1: within 5·√(v(1−v)/n), but for what backward replay misses before an episode has ended."""
    n = 30_000
    tables, _ = lived(sr.grids.cliff(), LEARNERS[name], [n])
    assert tables.counts.sum() == tables.clock[step.ITERATION] == n
    assert abs(tables.counts[:, step.REPLAYS].sum() / n - V) < 5 * math.sqrt(V * (1 - V) / n)


def test_dyna_plans_exactly_n_times_a_step():
    tables, _ = lived(sr.grids.cliff(), DynaQ(3), [4 * 1_000])
    assert tables.counts.sum(0).tolist() == [1_000, 3_000]


PLAIN_AND_COMPILED = """
import numpy as np; np.seterr(over="ignore")  # the generator's words wrap around
import sys; sys.path.insert(0, {here!r})
import test_history as here
import safereplay as sr
from functools import cache
from safereplay.schedules import Schedule
Schedule.table = cache(Schedule.table)
for name, learner in here.LEARNERS.items():
    tables, memory = here.lived(sr.grids.cliff(), learner, [200])
    print(name, *(array.tobytes().hex() for array in (*tables, *memory)))
"""


@pytest.mark.whole
def test_the_compiled_loop_equals_its_plain_python_form_to_the_last_bit(in_new_process):
    script = PLAIN_AND_COMPILED.format(here=str(Path(__file__).parent))
    package = str(Path(sr.__file__).parent.parent)
    plain, compiled = (in_new_process(script, PYTHONPATH=package, NUMBA_DISABLE_JIT=off) for off in "10")
    assert plain == compiled


# -- priorities ---------------------------------------------------------------------------------------------------------


def test_the_trees_hold_the_priorities_that_a_list_keeps():
    mdp, learner = sr.grids.cliff(), LEARNERS["proportional weighed"]
    _, memory = lived(mdp, learner, [1_500])
    alphas = program_of(mdp, learner).dials.alphas
    options = {"alpha": lambda n: float(alphas[n]), "max_steps": MAX_STEPS, "window": WINDOW, "v": V}
    told = diary.kept(mdp, rng.seeded(3), PLAIN["proportional weighed"](), 1_500, **options)
    expected = {t % WINDOW: one[6] for t, one in list(enumerate(told.past))[-WINDOW:]}
    leaves = memory.tree[memory.tree.size >> 1 :]
    assert leaves[:WINDOW] == pytest.approx([expected[place] for place in range(WINDOW)], rel=1e-12)
    assert memory.tree[1] == pytest.approx(sum(expected.values()))
    assert memory.least[1] == leaves[:WINDOW].min()
    assert memory.numbers[ring.TOP] == pytest.approx(told.top)


@pytest.mark.parametrize(("window", "seed"), [(1, 0), (2, 1), (5, 2), (37, 3), (64, 4)])
def test_the_heap_is_one_and_knows_its_places(window, seed):
    _, memory = lived(sr.grids.cliff(), PrioritisedReplay(0.7, V, by="rank", window=window), [1_234], seed)
    places, keys = list(range(window)), memory.key[memory.order]
    assert memory.marks[ring.STORED] > window
    assert sorted(memory.order.tolist()) == places
    assert memory.order[memory.where].tolist() == places
    assert all(keys[(j - 1) // 2] >= keys[j] for j in range(1, window))
    assert memory.key.max() <= memory.numbers[ring.TOP]
    assert memory.law.tolist() == pytest.approx(np.cumsum(np.arange(1.0, window + 1) ** -0.7).tolist())


def test_ranks_are_drawn_by_their_power_law():
    """12 ranks at α = 0.7, seed 0, n = 6,000 draws: each share within 5·√(p(1−p)/n) of rank^−α / Σ."""
    learner = PrioritisedReplay(0.7, V, by="rank", importance=0.4, window=12)
    _, memory = lived(sr.grids.cliff(), learner, [500])
    dials = program_of(sr.grids.cliff(), learner).dials
    n, tables = 6_000, step.allocate(1, 1, 0.0, rng.seeded(0))
    always = dials._replace(update_params=(1.0, *dials.update_params[1:]))  # a replay each time
    counts = np.zeros(12)
    for _ in range(n):
        ring.recall_by_rank(None, memory, tables, always)
        counts[memory.where[memory.marks[ring.AT]]] += 1
    law = np.arange(1, 13) ** -0.7
    law /= law.sum()
    assert (np.abs(counts / n - law) < 5 * np.sqrt(law * (1 - law) / n)).all()
    memory.marks[ring.AT] = memory.order[2]  # rank 3
    expected = (12 * law[2]) ** -0.4 / max((12 * law) ** -0.4)
    assert ring.weigh_by_rank(memory, dials) == pytest.approx(expected)


def test_a_heap_is_sorted_once_a_window():
    """Iterations one at a time, window 8: right after each eighth step of the MDP the keys fall from rank to rank."""
    learner, mdp = PrioritisedReplay(0.7, V, by="rank", window=8), sr.grids.cliff()
    program = program_of(mdp, learner)
    tables = step.allocate(mdp.n_states, mdp.n_actions, 0.0, rng.seeded(3))
    memory, model = program.recipe.room(mdp), arrays.sampling_model(mdp)
    sorted_at = []
    for _ in range(400):
        before = int(memory.marks[ring.SORTED])
        program.advance(model, memory, tables, 1 << 40, MAX_STEPS, 1)
        if memory.marks[ring.SORTED] != before:
            sorted_at.append(int(memory.marks[ring.STORED]))
            assert (np.diff(memory.key[memory.order]) <= 0).all()
    assert len(sorted_at) > 10
    assert sorted_at == list(range(8, 8 * len(sorted_at) + 1, 8))


def test_ties_are_broken_evenly_and_a_single_best_action_costs_no_random_number():
    """Seed 0, n = 6,000 of three equal actions in four: each share within 5·√(2/9/n)."""
    Q, generator, n = np.array([0.0, 2.0, 2.0, 2.0, 5.0, 1.0, 1.0, 1.0]), rng.seeded(0), 6_000
    counts = np.bincount([history.shuffled(Q, 0, 4, generator) for _ in range(n)], minlength=4)
    assert counts[0] == 0
    assert (np.abs(counts[1:] / n - 1 / 3) < 5 * math.sqrt(2 / 9 / n)).all()
    before = generator.tolist()
    assert history.shuffled(Q, 1, 4, generator) == 0
    assert generator.tolist() == before


def test_one_compiled_loop_serves_all_windows():
    one, other = (WindowReplay(0.5, n).recipe(sr.EpsilonGreedy(), sr.PowerStep()).make() for n in (10, 20))
    assert one is other
