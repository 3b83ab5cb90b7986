import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safereplay as sr
from safereplay import arrays, runs
from safereplay.kernels import rng, step


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.floats(0, 1, exclude_max=True), st.integers(0, 3))
def test_pick_is_the_first_entry_whose_running_sum_exceeds_u(parts, u, low):
    cumulative = np.cumsum(parts) / sum(parts)
    cumulative[-1] = 1.0
    padded = np.concatenate((np.full(low, 0.5), cumulative, [9.0]))
    assert rng.pick(padded, low, low + cumulative.size, u) == low + np.searchsorted(cumulative, u, side="right")


def test_a_sure_outcome_costs_no_random_number():
    model = arrays.sampling_model(sr.grids.volatile())
    mdp, generator = sr.grids.volatile(), rng.seeded(0)
    before = generator.tolist()
    for i in range(mdp.n_pairs):
        if mdp.row[i + 1] - mdp.row[i] == 1:
            assert rng.sample(model, i, generator) == mdp.row[i]
    assert generator.tolist() == before
    rng.sample(model, int(mdp.pair[np.argmax(mdp.r == 100.0)]), generator)
    assert generator.tolist() != before


def test_outcomes_are_sampled_in_proportion_to_their_probabilities():
    """Seed 1, n = 50,000 from the cliff's 'right' above the start: each share within 5·√(p(1−p)/n)."""
    mdp, n, generator = sr.grids.cliff(), 50_000, rng.seeded(1)
    model, i = arrays.sampling_model(mdp), 12 * 4 + 1
    counts = np.bincount([rng.sample(model, i, generator) - mdp.row[i] for _ in range(n)], minlength=4)
    for count, p in zip(counts, mdp.outcomes(12, 1).p, strict=True):
        assert abs(count / n - p) < 5 * math.sqrt(p * (1 - p) / n)


def state_of(plan, budget, max_steps=40, episodes=60):
    """Tables after a run of so many episodes, in chunks of ``budget`` MDP iterations."""
    mdp, program = plan
    tables, memory = step.allocate(mdp.n_states, mdp.n_actions, 0.0, rng.seeded(3)), arrays.model_memory(mdp)
    while tables.clock[step.EPISODE] < episodes:
        program.advance(arrays.sampling_model(mdp), memory, tables, episodes, max_steps, budget)
    return [tables.Q.tolist(), tables.counts.tolist(), tables.clock.tolist(), tables.generator.tolist()]


@pytest.mark.parametrize("budget", [1, 2, 7, 100])
def test_a_run_in_pieces_is_the_run_in_one_go(budget):
    mdp = sr.grids.cliff()
    program = runs.make_program(sr.ReplayQLearning(v=0.5), sr.EpsilonGreedy(), sr.PowerStep(), mdp.gamma, mdp.n_actions)
    assert state_of((mdp, program), budget) == state_of((mdp, program), 1 << 40)


def test_an_episode_is_cut_off_after_max_steps_and_the_last_step_still_looks_ahead():
    """One state, one action, reward 1, no end: with α = 1/n... the value follows 1 + γ·Q though every episode has 1 step."""
    mdp = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 1.0, 0, 1.0)], gamma=0.5)
    learned = sr.learn(mdp, sr.QLearning(), episodes=200, seeds=1, max_steps=1, step_size=sr.ConstantStep(1.0))
    assert learned.visits.sum() == 200
    assert learned.Q[0, 0, 0] == pytest.approx(2.0)


def test_a_terminal_outcome_does_not_look_ahead():
    mdp = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 1.0, 0, 1.0, True)], gamma=0.5)
    learned = sr.learn(mdp, sr.QLearning(c0=9.0), episodes=10, seeds=1, step_size=sr.ConstantStep(1.0))
    assert learned.Q[0, 0, 0] == 1.0


def test_episodes_start_in_proportion_to_the_start_distribution():
    """Seed 0, 20,000 episodes of one step; shares within 5·√(p(1−p)/n) of 0.1, 0, 0.6, 0.3."""
    n, start = 20_000, [0.1, 0.0, 0.6, 0.3]
    mdp = sr.TabularMDP.from_outcomes(4, 1, [(s, 0, 1.0, s, 0.0, True) for s in range(4)], start=start)
    visits = sr.learn(mdp, sr.QLearning(), episodes=n, seeds=1).visits[0, :, 0]
    for count, p in zip(visits, start, strict=True):
        assert abs(count / n - p) <= 5 * math.sqrt(p * (1 - p) / n)
