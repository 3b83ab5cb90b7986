from pathlib import Path

import numpy as np
import pytest

import safereplay as sr
from safereplay import arrays, runs
from safereplay.goals import goal_cliff, goal_map, goal_mdp
from safereplay.kernels import hindsight, rng, step
from safereplay.rivals.hindsight import HindsightQLearning

EPSILON = 0.3


def chain(n):
    """n cells in a row, and one way: on."""
    return sr.TabularMDP.from_outcomes(n, 1, [(s, 0, 1.0, min(s + 1, n - 1), 0.0) for s in range(n)], start=0)


def program(learner, mdp):
    return runs.make_program(learner, sr.EpsilonGreedy(EPSILON), sr.PowerStep(), mdp.gamma, mdp.n_actions)


def after(mdp, learner, episodes, max_steps, budget=1 << 40, seed=3):
    """Tables and memory after a run, in chunks of ``budget`` iterations."""
    made = program(learner, mdp)
    tables, memory = step.allocate(mdp.n_states, mdp.n_actions, 0.0, rng.seeded(seed)), made.recipe.room(mdp)
    model = arrays.sampling_model(mdp)
    while tables.clock[step.EPISODE] < episodes:
        before = tables.clock[step.ITERATION]
        made.advance(model, memory, tables, episodes, max_steps, budget)
        assert tables.clock[step.ITERATION] - before <= budget
    return tables, memory


def plain_hindsight(mdp, strategy, k, episodes, max_steps, seed):
    """The same algorithm over lists of (cell, action, next cell) and a dict of Q by (cell, goal, action)."""
    model, generator = arrays.sampling_model(mdp), rng.seeded(seed)
    cells, A, goals = mdp.n_cells, mdp.n_actions, mdp.goals.tolist()
    Q, n, iteration = {}, {}, 0

    def values(s, g):
        return [Q.get((s, g, b), 0.0) for b in range(A)]

    def learn(s, g, a, r, s_next, ends):
        n[s, g, a] = n.get((s, g, a), 0) + 1
        alpha = float(n[s, g, a]) ** -0.6
        Q[s, g, a] = (1.0 - alpha) * Q.get((s, g, a), 0.0) + alpha * (
            r + mdp.gamma * (0.0 if ends else max(values(s_next, g)))
        )

    for _ in range(episodes):
        x = int(model.start_state[np.searchsorted(model.start_cum, rng.uniform(generator), side="right")])
        number, s = divmod(x, cells)
        g, played, ends = goals[number], [], False
        while not ends and len(played) < max_steps:
            iteration += 1
            best = int(np.argmax(values(s, g)))
            if iteration <= 1:
                a = rng.below(generator, A)
            else:
                a = rng.below(generator, A) if rng.uniform(generator) < EPSILON else best
            out = rng.sample(model, (number * cells + s) * A + a, generator)
            s_next, r, ends = int(mdp.s_next[out]) % cells, float(mdp.r[out]), bool(mdp.terminal[out])
            learn(s, g, a, r, s_next, ends)
            played.append((s, a, s_next, r if mdp.unsafe[out] else None))
            s = s_next
        for t, (s, a, s_next, price) in enumerate(played):
            for _ in range(k if strategy == "future" else 1):
                later = t + rng.below(generator, len(played) - t) if strategy == "future" else len(played) - 1
                g = played[later][2]
                if g in goals and g != s:
                    iteration += 1
                    learn(s, g, a, (0.0 if s_next == g else -1.0) if price is None else price, s_next, s_next == g)
    table = np.zeros((mdp.goals.size, cells, A))
    for (s, g, a), q in Q.items():
        table[goals.index(g), s, a] = q
    return table.ravel(), iteration


@pytest.mark.parametrize("strategy", ["future", "final"])
@pytest.mark.parametrize("fall_ends", [True, False])
def test_the_loop_is_the_algorithm_written_plainly(strategy, fall_ends):
    mdp = goal_map("S...\n.XX.\n....", slip=0.2, fall_ends=fall_ends, goals=[(2, 3), (0, 2), (1, 0), (0, 0)])
    tables, _ = after(mdp, HindsightQLearning(strategy, 3), episodes=150, max_steps=15)
    Q, iterations = plain_hindsight(mdp, strategy, 3, episodes=150, max_steps=15, seed=3)
    assert tables.Q.tolist() == pytest.approx(Q.tolist(), abs=1e-12)
    assert tables.clock[step.ITERATION] == iterations
    assert tables.counts[:, step.REPLAYS].sum() > 300


@pytest.mark.parametrize("budget", [1, 2, 7, 100])
def test_a_run_in_pieces_is_the_run_in_one_go(budget):
    mdp = goal_cliff()
    whole, memory = after(mdp, HindsightQLearning(k=3), 60, 40)
    pieces, other = after(mdp, HindsightQLearning(k=3), 60, 40, budget)
    for x, y in zip((*whole, *memory), (*pieces, *other), strict=True):
        assert x.tolist() == y.tolist()


@pytest.mark.whole
def test_the_compiled_loop_is_the_plain_one(in_new_process):
    """The same source with and without numba, to the last bit."""
    source = """if True:
        import numpy as np; np.seterr(over="ignore")  # the generator's words wrap around
        import safereplay as sr
        from safereplay import arrays, runs
        from safereplay.goals import goal_cliff
        from safereplay.kernels import rng, step
        from safereplay.rivals.hindsight import HindsightQLearning
        mdp = goal_cliff()
        for strategy in ("future", "final"):
            made = runs.make_program(HindsightQLearning(strategy), sr.EpsilonGreedy(0.3), sr.PowerStep(), mdp.gamma, 4)
            tables, memory = step.allocate(mdp.n_states, 4, 0.0, rng.seeded(3)), made.recipe.room(mdp)
            made.advance(arrays.sampling_model(mdp), memory, tables, 30, 20, 1 << 40)
            print(*(x.tolist() for x in (*tables, *memory)))
    """
    here = str(Path(sr.__file__).parents[1])
    compiled = in_new_process(source, PYTHONPATH=here)
    assert compiled == in_new_process(source, PYTHONPATH=here, NUMBA_DISABLE_JIT="1")


def test_every_iteration_is_a_visit_or_a_replay():
    tables, _ = after(goal_cliff(), HindsightQLearning(), 50, 30)
    assert tables.counts.sum() == tables.clock[step.ITERATION]


def test_each_transition_of_a_path_without_loops_is_learned_k_times_more():
    """Five cells, one way, goals everywhere: to goal 4 an episode has 4 transitions, and so 4·k replays."""
    mdp = goal_mdp(chain(5)).with_start(4 * 5)
    tables, _ = after(mdp, HindsightQLearning(k=3), episodes=10, max_steps=50)
    assert (tables.counts[:, step.VISITS].sum(), tables.counts[:, step.REPLAYS].sum()) == (40, 120)
    by_cell = tables.counts[:, step.REPLAYS].reshape(5, 5).sum(0)
    assert by_cell.tolist() == [30, 30, 30, 30, 0]


def test_final_relabels_once_with_the_last_cell():
    """Cut off after 3 of 4 steps: every transition is learned for cell 3, and nothing else."""
    mdp = goal_mdp(chain(5)).with_start(4 * 5)
    tables, _ = after(mdp, HindsightQLearning("final", k=9), episodes=10, max_steps=3)
    assert tables.counts[:, step.REPLAYS].reshape(5, 5).tolist()[3] == [10, 10, 10, 0, 0]
    assert tables.counts[:, step.REPLAYS].sum() == 30


def test_future_draws_its_times_evenly():
    """Cell 0 of four transitions, 4,000 episodes, k = 2, seed 3: each of 4 goals a quarter within 5σ (σ =
    √(3/16/8000)).
    """
    mdp = goal_mdp(chain(5)).with_start(4 * 5)
    tables, _ = after(mdp, HindsightQLearning(k=2), episodes=4_000, max_steps=50)
    shares = tables.counts[:, step.REPLAYS].reshape(5, 5)[:, 0] / 8_000
    assert shares[0] == 0.0
    assert np.abs(shares[1:] - 0.25).max() < 5 * (3 / 16 / 8_000) ** 0.5


def test_of_a_long_episode_only_the_latest_transitions_are_learned_again():
    mdp = goal_mdp(chain(9)).with_start(8 * 9)
    tables, memory = after(mdp, HindsightQLearning(k=2, window=3), episodes=10, max_steps=50)
    assert memory.pair.size == 3
    assert tables.counts[:, step.REPLAYS].reshape(9, 9).sum(0).tolist() == [0, 0, 0, 0, 0, 20, 20, 20, 0]


def test_a_fall_is_never_relabelled_and_a_success_always():
    """One leap that falls 3 times in 10: replays are k times the successes, which cut the episode short."""
    base = sr.TabularMDP.from_outcomes(3, 1, [(0, 0, 0.7, 1, 0, True), (0, 0, 0.3, 2, -9.0, True, True)], start=0)
    tables, _ = after(goal_mdp(base, goals=[1]), HindsightQLearning(k=5), episodes=1_000, max_steps=9)
    visits, replays = tables.counts[0]
    assert visits == 1_000
    assert replays % 5 == 0
    assert abs(replays / 5 - 700) < 5 * (1_000 * 0.7 * 0.3) ** 0.5


def test_the_step_size_follows_its_formula_beyond_the_table():
    """One sure step to the goal, k = 1: update n has α = n^−0.6, from either side of the end of the table."""
    mdp = goal_mdp(chain(2), goals=[1])
    made = program(HindsightQLearning(k=1), mdp)
    short = made.dials._replace(alphas=made.dials.alphas[:7])
    found = []
    for dials in (made.dials, short):
        tables = step.allocate(2, 1, 5.0, rng.seeded(0))
        made._replace(dials=dials).advance(arrays.sampling_model(mdp), made.recipe.room(mdp), tables, 20, 9, 1 << 40)
        found.append(tables.Q.tolist())
    assert found[0] == found[1]


def test_code_is_kept_by_what_it_is_made_from():
    recipes = [
        HindsightQLearning(x, window=w).recipe(sr.EpsilonGreedy(), sr.PowerStep())
        for x, w in (("future", 9), ("future", 8), ("final", 9), ("none", 9))
    ]
    assert recipes[0].digest() == recipes[1].digest()
    assert len({x.digest() for x in recipes}) == 3
    assert recipes[3].strategy == hindsight.NONE
