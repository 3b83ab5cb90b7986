"""Algorithm 1 and its rivals against the plain transcription in helpers/reference.py, random number by random number."""

import math
from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Algorithm1, factored, gaskett, heger, lemma4, mihatsch_neuneier, q_learning, worst_transition

import safereplay as sr
from safereplay import arrays, runs
from safereplay.kernels import memory as mem
from safereplay.kernels import rng, step

REWARDS = (-50.0, -10.0, -1.0, 0.0, 1.5, 20.0)


def random_model(seed, n_states=4, n_actions=2):
    """Up to four outcomes a pair, some of them alike in reward or in next state; irregular probabilities."""
    random = np.random.default_rng(seed)
    rows = []
    for s in range(n_states):
        for a in range(n_actions):
            p = random.dirichlet(np.ones(random.integers(1, 5)))
            for x in p:
                ends = bool(random.random() < 0.2)
                rows.append((s, a, x, random.integers(n_states), random.choice(REWARDS), ends, False))
    return sr.TabularMDP.from_outcomes(n_states, n_actions, rows, gamma=0.8, start=random.dirichlet(np.ones(n_states)))


def as_lists(mdp):
    table = [
        [
            list(zip(o.p.tolist(), o.s_next.tolist(), o.r.tolist(), o.terminal.tolist(), strict=True))
            for o in (mdp.outcomes(s, a) for a in range(mdp.n_actions))
        ]
        for s in range(mdp.n_states)
    ]
    return table, [(p, s) for s, p in enumerate(mdp.start.tolist()) if p > 0]


class Counting(Algorithm1):
    """The transcription, with each update it makes written down."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.learned_from = Counter()

    def learn_from(self, s, a, r, s_next, ends):
        self.learned_from[s * self.n_actions + a, r, s_next, ends] += 1
        super().learn_from(s, a, r, s_next, ends)


class Stepped:
    """The compiled loop, one iteration of the MDP at a time."""

    def __init__(self, mdp, learner, exploration, step_size, seed, max_steps):
        self.mdp, self.max_steps = mdp, max_steps
        self.program = runs.make_program(learner, exploration, step_size, mdp.gamma, mdp.n_actions)
        c0 = learner.initial_value(float(mdp.r.max()), mdp.gamma)
        self.tables = step.allocate(mdp.n_states, mdp.n_actions, c0, rng.seeded(seed))
        self.memory, self.model = arrays.model_memory(mdp), arrays.sampling_model(mdp)

    def iterate(self):
        """A step of the MDP with the replays that matched mixing makes after it, or a replay of literal mixing."""
        budget = 1
        while budget:
            self.program.advance(self.model, self.memory, self.tables, 1 << 60, self.max_steps, budget)
            budget = int(self.tables.clock[step.DUE])

    def counted(self, counts):
        """{(pair, r, s', ends): count} of the outcomes with a count."""
        mdp = self.mdp
        keys = zip(mdp.pair.tolist(), mdp.r.tolist(), mdp.s_next.tolist(), mdp.terminal.tolist(), strict=True)
        return {key: n for key, n in zip(keys, counts.tolist(), strict=True) if n > 0}

    def w(self):
        w, mdp = arrays.weights_of(self.memory), self.mdp
        keys = zip(mdp.pair.tolist(), mdp.r.tolist(), mdp.s_next.tolist(), mdp.terminal.tolist(), strict=True)
        return {(i, r, (t, ends)): x for (i, r, t, ends), x in zip(keys, w.tolist(), strict=True) if x > 0}


EXPLORATIONS = {
    "constant": (sr.EpsilonGreedy(0.2), {"epsilon": lambda n: 0.2}),
    "falling": (sr.EpsilonGreedy(0.5, power=0.5), {"epsilon": lambda n: 0.5 / math.sqrt(n)}),
    "softmax": (sr.Softmax(5.0, power=0.25), {"temperature": lambda n: 5.0 * n**-0.25}),
}


def compare(mdp, learner, n, seed=0, exploration="constant", max_steps=30, alpha=0.6, **reference):
    """Run both for n iterations and compare everything after each."""
    explorer, rule = EXPLORATIONS[exploration]
    fast = Stepped(mdp, learner, explorer, sr.PowerStep(alpha), seed, max_steps)
    c0 = learner.initial_value(float(mdp.r.max()), mdp.gamma)
    slow = Counting(
        *as_lists(mdp),
        mdp.gamma,
        rng.seeded(seed),
        T0=learner.T0,
        c0=c0,
        max_steps=max_steps,
        alpha=lambda k: k**-alpha,
        **rule,
        **reference,
    )
    scale = max(1.0, float(np.abs(mdp.r).max()), abs(c0))
    for _ in range(n):
        fast.iterate()
        slow.iterate()
        assert fast.tables.Q.tolist() == pytest.approx(np.ravel(slow.Q).tolist(), rel=1e-12, abs=1e-12 * scale)
        if learner.replay is not None:
            found, expected = fast.w(), slow.w()
            for key in set(found) | set(expected):
                assert found.get(key, 0.0) == pytest.approx(expected.get(key, 0.0), rel=1e-11, abs=1e-14)
        assert fast.tables.clock[step.ITERATION] == slow.t
        assert fast.tables.clock[step.EPISODE] == slow.episode
    for column, counts in ((step.VISITS, slow.visits), (step.REPLAYS, slow.replays)):
        assert fast.tables.counts[:, column].tolist() == [counts[i] for i in range(mdp.n_pairs)]
    fresh = Counter(slow.history)
    assert fast.counted(fast.memory.replayed) == slow.learned_from - fresh
    assert not fast.program.recipe.remembers or fast.counted(fast.memory.count) == fresh
    assert fast.tables.generator.tolist() == slow.random.s
    return fast, slow


@pytest.mark.parametrize("exploration", EXPLORATIONS)
@pytest.mark.parametrize("mixing", ["literal", "matched"])
@settings(max_examples=6)
@given(
    st.integers(0, 10**6), st.sampled_from([-0.1, 0.0, 0.05, 5.0]), st.sampled_from([0.0, 0.3, 0.8]), st.integers(1, 30)
)
def test_algorithm_1_equals_its_plain_transcription_at_every_iteration(mixing, exploration, seed, beta, v, T0):
    mdp = random_model(seed)
    learner = sr.ReplayQLearning(sr.VarianceReplay(beta), v=v, mixing=mixing, T0=T0, c0=0.5)
    weights = lambda history, td: lemma4(history, beta)  # noqa: E731
    compare(mdp, learner, 90, seed, exploration, v=v, mixing=mixing, weights=weights)


@pytest.mark.parametrize("mixing", ["literal", "matched"])
def test_algorithm_1_equals_its_plain_transcription_over_several_hundred_iterations(mixing):
    """And both kinds of iteration do happen: at v = 0.7 a run of several hundred replays often enough to matter."""
    learner = sr.ReplayQLearning(sr.VarianceReplay(0.02), v=0.7, mixing=mixing, T0=5)
    weights = lambda history, td: lemma4(history, 0.02)  # noqa: E731
    n, enough = {"literal": (900, 500), "matched": (400, 50)}[mixing]
    fast, _ = compare(random_model(3), learner, n, 3, v=0.7, mixing=mixing, weights=weights)
    assert fast.tables.counts[:, step.REPLAYS].sum() > enough


RIVALS = {
    "Q-learning": (sr.QLearning(), q_learning),
    "optimistic Q-learning": (sr.QLearning(c0=30.0, T0=50), q_learning),
    "Mihatsch–Neuneier": (sr.RiskSensitive(0.6), mihatsch_neuneier(0.6)),
    "Mihatsch–Neuneier, fond of risk": (sr.RiskSensitive(-0.9), mihatsch_neuneier(-0.9)),
    "Gaskett": (sr.Pessimistic(0.3), gaskett(0.3)),
    "worst case": (sr.WorstCase(), heger),
    "worst transition": (sr.WorstTransition(), worst_transition),
}


@pytest.mark.parametrize("exploration", ["constant", pytest.param("softmax", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", RIVALS)
def test_each_rival_follows_its_published_update(name, exploration):
    learner, update = RIVALS[name]
    for seed in range(3):
        compare(random_model(seed), learner, 300, seed, exploration, update=update)


@dataclass(frozen=True)
class SurpriseReplay(sr.Scheme):
    """Pairs by the size of their last TD error, as prioritised replay does."""

    floor: float = 0.01

    @staticmethod
    def pair_weight(td, floor):
        return abs(td) + floor


@dataclass(frozen=True)
class HopeReplay(sr.Scheme):
    """A tilt that turns with the sign of the last TD error."""

    @staticmethod
    def log_tilt(r, td):
        return 0.1 * r if td > 0.0 else -0.1 * r


TD_SCHEMES = {
    "SurpriseReplay": (SurpriseReplay(), {"pair_weight": lambda x: abs(x["td"]) + 0.01, "log_tilt": lambda r, x: 0.0}),
    "HopeReplay": (
        HopeReplay(),
        {"pair_weight": lambda x: 1.0, "log_tilt": lambda r, x: math.copysign(0.1, x["td"] if x["td"] else -1.0) * r},
    ),
}


@pytest.mark.parametrize(
    "name", [next(iter(TD_SCHEMES)), *(pytest.param(x, marks=pytest.mark.slow) for x in [*TD_SCHEMES][1:])]
)
def test_a_scheme_that_follows_the_td_error_is_exact_after_every_update_replays_included(name):
    scheme, factors = TD_SCHEMES[name]
    weights = partial(factored, next_weight=lambda count: 1.0, **factors)
    for seed in range(2):
        learner = sr.ReplayQLearning(scheme, v=0.5)
        compare(random_model(seed), learner, 100, seed, v=0.5, weights=weights)


# -- pieces -----------------------------------------------------------------------------------------------------------


def test_the_greedy_action_is_the_first_of_equals_and_values_are_the_extremes():
    Q = np.array([0.0, 0.0, 0.0, 1.0, 3.0, 3.0, -2.0, -5.0, -2.0])
    assert [mem.greedy(Q, s, 3) for s in range(3)] == [0, 1, 0]
    assert [mem.highest(Q, s, 3) for s in range(3)] == [0.0, 3.0, -2.0]
    assert [mem.lowest(Q, s, 3) for s in range(3)] == [0.0, 1.0, -5.0]


def test_softmax_draws_actions_in_proportion_to_e_to_the_q():
    """Seed 9, n = 60,000; Q = T·ln(1, 2, 3): each share within 5·√(p(1−p)/n) of 1/6, 2/6, 3/6."""
    n, temperature, generator = 60_000, 0.5, rng.seeded(9)
    Q = temperature * np.log([1.0, 2.0, 3.0]) + 1000.0  # 1000/T alone would overflow e^x
    counts = np.bincount([step.boltzmann(Q, 0, 3, temperature, generator) for _ in range(n)], minlength=3)
    for count, p in zip(counts, (1 / 6, 2 / 6, 3 / 6), strict=True):
        assert abs(count / n - p) < 5 * math.sqrt(p * (1 - p) / n)


def test_softmax_at_a_tiny_temperature_is_greedy():
    generator = rng.seeded(0)
    assert {step.boltzmann(np.array([1.0, 2.0, 1.999]), 0, 3, 1e-12, generator) for _ in range(200)} == {1}


def test_fresh_tables_hold_c0_and_no_state():
    tables = step.allocate(3, 2, 7.5, rng.seeded(0))
    assert tables.Q.tolist() == [7.5] * 6
    assert not tables.counts.any()
    assert not tables.visited.any()
    assert tables.clock[[step.ITERATION, step.STATE, step.EPISODE, step.STEP]].tolist() == [0, step.NO_STATE, 0, 0]


def test_beyond_the_tables_the_schedules_are_computed_to_the_same_bits():
    """Step sizes and exploration rates come from a table up to n = 65,535, and from the function after it."""
    learner, schedules = sr.ReplayQLearning(v=0.5), (sr.EpsilonGreedy(0.3, power=0.5), sr.PowerStep(0.6))
    mdp = random_model(1)
    whole, short = (Stepped(mdp, learner, *schedules, 5, 50) for _ in range(2))
    dials = short.program.dials
    short.program = short.program._replace(dials=dials._replace(alphas=dials.alphas[:4], rates=dials.rates[:6]))
    for one in (whole, short):
        one.program.advance(one.model, one.memory, one.tables, 500, 50, 1 << 40)
    assert whole.tables.Q.tobytes() == short.tables.Q.tobytes()
    assert whole.tables.generator.tolist() == short.tables.generator.tolist()
    assert whole.tables.counts.sum() > 1000
