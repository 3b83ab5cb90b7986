import math
import threading
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safereplay as sr
from safereplay import stepping

VARIANCE = sr.ReplayQLearning(sr.VarianceReplay(1.0), v=0.9)
SCORE = sr.ReplayQLearning(sr.ScoreReplay(), v=0.9)
LEARNERS = [
    sr.QLearning(),
    VARIANCE,
    replace(VARIANCE, mixing="matched"),
    SCORE,
    replace(SCORE, mixing="matched"),
    sr.RiskSensitive(0.6),
    sr.Pessimistic(0.3),
    sr.WorstCase(),
    sr.WorstTransition(),
]
EPISODES, SEED, MAX_STEPS = 150, 3, 25  # short episodes, so that some are cut off
each_learner = pytest.mark.parametrize("learner", LEARNERS, ids=lambda x: f"{x.describe()}")


def volatile_path():
    """Two states in a row, each with a gamble: matched mixing owes several replays after most visits."""
    rows = [(s, 0, p, s + 1, r, s == 1) for s in (0, 1) for p, r in ((0.5, 1.0), (0.5, -1.0))]
    rows += [(s, 1, 1.0, s, -0.1) for s in (0, 1)]
    return sr.TabularMDP.from_outcomes(3, 2, rows, gamma=0.9, start=0)


def started(mdp, learner):
    return sr.Stepper(mdp, learner, SEED, max_steps=MAX_STEPS)


def learned(mdp, learner, episodes=EPISODES):
    return sr.learn(mdp, learner, episodes, [SEED], max_steps=MAX_STEPS, threads=1)


def assert_same_bits(run, runs):
    assert run.episodes == runs.episodes
    for what in ("Q", "visits", "replays", "policy", "visitation"):
        assert getattr(run, what).tobytes() == getattr(runs, what)[0].tobytes(), what
    assert run.iterations == runs.visits.sum() + runs.replays.sum()


# -- the bits of sr.learn -----------------------------------------------------------------------------------------------


@each_learner
@pytest.mark.parametrize("grid", [sr.grids.cliff, sr.grids.volatile, volatile_path], ids=lambda x: x.__name__)
def test_a_stepper_is_the_run_of_learn_to_the_last_bit(grid, learner):
    mdp = grid()
    assert_same_bits(started(mdp, learner).run_episodes(EPISODES), learned(mdp, learner))


@pytest.mark.parametrize(
    ("mixing", "exploration"),
    [("literal", sr.EpsilonGreedy(0.5, power=0.5)), ("matched", sr.Softmax(3.0, power=0.2))],
    ids=["literal", "matched"],
)
def test_schedules_and_a_warm_up_are_those_of_learn(mixing, exploration):
    learner, mdp = replace(VARIANCE, mixing=mixing, T0=50), sr.grids.cliff()
    schedules = exploration, sr.ConstantStep(0.2)
    run = sr.Stepper(mdp, learner, 11, *schedules).run_episodes(40)
    assert_same_bits(run, sr.learn(mdp, learner, 40, [11], *schedules))
    assert not started(mdp, learner).run(50).replays.any()
    assert run.replays.any()


@each_learner
@settings(max_examples=8)
@given(splits=st.lists(st.tuples(st.booleans(), st.integers(0, 400)), max_size=8))
def test_no_split_of_the_iterations_and_no_trace_changes_a_bit(learner, splits):
    mdp = volatile_path()
    run = started(mdp, learner)
    for traced, n in splits:
        before = run.iterations
        if traced:
            assert len(run.trace(n)) == n
        else:
            assert run.run(n) is run
        assert run.iterations == before + n
    straight = started(mdp, learner).run(run.iterations)
    assert run.Q.tobytes() == straight.Q.tobytes()
    assert (run.episodes, run.state) == (straight.episodes, straight.state)
    goal = max(EPISODES, run.episodes + 1)
    assert_same_bits(run.run_episodes(goal - run.episodes), learned(mdp, learner, goal))


@pytest.mark.parametrize("chunk", [1, 7])
def test_chunks_do_not_change_a_bit(monkeypatch, chunk):
    learner, mdp = replace(VARIANCE, mixing="matched"), volatile_path()
    traced = started(mdp, learner).trace(500)
    monkeypatch.setattr(stepping, "CHUNK", chunk)
    monkeypatch.setattr(stepping, "TRACED", chunk)
    assert started(mdp, learner).trace(500) == traced
    assert_same_bits(started(mdp, learner).run_episodes(EPISODES), learned(mdp, learner))


def test_a_run_can_stop_between_a_visit_and_the_replays_that_it_owes():
    run = started(volatile_path(), replace(VARIANCE, mixing="matched")).run(2_000)
    together = [event.replayed for event in run.trace(1_000)]
    assert any(all(together[k : k + 3]) for k in range(998))  # three replays after one visit: there is a between
    before = run.Q
    while not run.trace(1)[0].replayed:
        before = run.Q
    assert (before != run.Q).sum() == 1  # and each replay moves Q by itself


# -- events -------------------------------------------------------------------------------------------------------------


@each_learner
@pytest.mark.parametrize("grid", [sr.grids.cliff, sr.grids.volatile, volatile_path], ids=lambda x: x.__name__)
def test_events_are_outcomes_of_the_model_and_add_up_to_what_was_counted(grid, learner):
    mdp = grid()
    run = started(mdp, learner).run(700)
    visits, replays = run.visits, run.replays
    for event in run.trace(1_500):
        (replays if event.replayed else visits)[event.s, event.a] += 1
        rows = zip(*(x.tolist() for x in mdp.outcomes(event.s, event.a)[1:]), strict=True)
        assert (event.s_next, event.r, event.terminal, event.unsafe) in set(rows)
    assert np.array_equal(visits, run.visits)
    assert np.array_equal(replays, run.replays)
    assert run.replays.any() == (learner.replay is not None)


@each_learner
def test_each_step_starts_where_the_last_one_led(learner):
    mdp = sr.grids.cliff()
    run, here, steps, ended, cut = started(mdp, learner), None, 0, 0, 0
    for _ in range(3_000):
        (event,) = run.trace(1)
        if event.replayed:
            continue
        assert here is None or event.s == here
        steps = 1 if here is None else steps + 1
        ended, cut = ended + event.terminal, cut + (steps == MAX_STEPS and not event.terminal)
        here = None if event.terminal or steps == MAX_STEPS else event.s_next
        assert run.state == here
        assert run.episodes == ended + cut
    assert ended > 20
    assert cut > 0 or learner != sr.WorstCase()  # that one dares not move: the cut is exercised


@pytest.mark.parametrize("mixing", ["literal", "matched"])
def test_only_what_has_happened_is_replayed_and_matched_replays_follow_their_visit(mixing):
    run, seen, last = started(volatile_path(), replace(VARIANCE, mixing=mixing)), set(), None
    elsewhere = 0
    for event in run.trace(3_000):
        if event.replayed:
            assert event[:6] in seen
            elsewhere += event[:2] != last
        else:
            seen.add(event[:6])
            last = event[:2]
    assert (elsewhere > 0) == (mixing == "literal")


def test_events_can_be_learned_from_again_and_give_the_same_q():
    """Independent of the kernel: plain Q-learning over the events, with α = n^−0.6."""
    mdp = sr.grids.volatile()
    for learner in (sr.QLearning(), VARIANCE, replace(SCORE, mixing="matched")):
        run = started(mdp, learner)
        Q, n = np.zeros((mdp.n_states, mdp.n_actions)), np.zeros((mdp.n_states, mdp.n_actions))
        for s, a, r, s_next, terminal, _, _ in run.trace(4_000):
            n[s, a] += 1
            Q[s, a] += n[s, a] ** -0.6 * (r + (0.0 if terminal else mdp.gamma * Q[s_next].max()) - Q[s, a])
        assert pytest.approx(run.Q, rel=1e-9) == Q


def test_outcomes_alike_but_for_unsafe_are_told_apart_when_they_happen():
    rows = [(0, 0, 0.25, 0, -1.0, True, False), (0, 0, 0.25, 0, -1.0, True, True), (0, 0, 0.5, 0, 5.0, True, False)]
    events = sr.Stepper(sr.TabularMDP.from_outcomes(1, 1, rows), VARIANCE).trace(4_000)
    bad = [event for event in events if event.r < 0.0]
    assert {event.unsafe for event in bad if not event.replayed} == {False, True}
    assert {event.unsafe for event in bad if event.replayed} == {False}


# -- what there is to see -----------------------------------------------------------------------------------------------


def test_before_the_first_iteration_there_is_nothing():
    mdp = sr.grids.cliff()
    run = sr.Stepper(mdp, sr.WorstCase(), seed=4)
    assert (run.iterations, run.episodes, run.state) == (0, 0, None)
    assert (run.learner.initial_value(10.0, mdp.gamma) == run.Q).all()
    assert not run.visits.any()
    assert not run.visitation.any()
    assert math.isnan(run.gap(run.Q))
    assert run.run(0).run_episodes(0).trace(0) == []
    assert run.iterations == 0
    assert repr(run) == "Stepper(worst case, seed=4: 0 iterations, 0 replayed, 0 episodes)"


def test_what_is_given_out_is_a_copy():
    run = started(sr.grids.cliff(), VARIANCE).run(100)
    for what in ("Q", "visits", "replays"):
        getattr(run, what)[:] = 99
        assert (getattr(run, what) != 99).any()


def test_the_gap_is_the_visited_error_as_a_share_of_the_limits_range():
    rows = [(0, 0, 1.0, 1, 4.0, True), (0, 1, 1.0, 1, 8.0, True)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, rows)
    run = sr.Stepper(mdp, sr.QLearning(), exploration=sr.EpsilonGreedy(1.0), step_size=sr.ConstantStep(1.0)).run(400)
    left, right = run.visits[0] / 400
    assert run.Q[0].tolist() == [4.0, 8.0]
    assert run.gap([[4.0, 8.0], [0.0, 99.0]]) == 0.0  # terminal states do not count
    assert run.gap([[6.0, 10.0], [0.0, 0.0]]) == pytest.approx(2.0 / 4.0)
    assert run.gap([[3.0, 13.0], [0.0, 0.0]]) == pytest.approx((left * 1.0 + right * 5.0) / 10.0)
    assert run.gap([[5.0, 5.0], [0.0, 0.0]]) == pytest.approx(left * 1.0 + right * 3.0)  # no range: the error itself


@pytest.mark.parametrize("grid", [sr.grids.cliff, sr.grids.volatile], ids=["cliff", "volatile"])
def test_the_gap_to_its_exact_limit_closes_and_to_another_does_not(grid):
    """Seed 3, 10⁶ iterations: below 1 % of the range; what it is at first, and against Q*, is more than twice that."""
    mdp, learner = grid(), replace(VARIANCE, v=0.95, mixing="matched")
    limit, other = sr.exact(mdp, learner), sr.exact(mdp, sr.QLearning())
    run = sr.Stepper(mdp, learner, SEED)
    early = run.run(300).gap(limit)
    assert run.run(1_000_000).gap(limit) < 0.01
    assert early > 0.05
    assert run.gap(other) > 0.02


def test_threads_run_side_by_side_and_each_gets_its_own_bits():
    mdp, found = sr.grids.cliff(), {}
    seeds = range(6)

    def work(seed):
        run = sr.Stepper(mdp, VARIANCE, seed)
        for _ in range(20):
            run.run(1_000)
            run.trace(10)
        found[seed] = run.Q.tobytes()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {seed: sr.Stepper(mdp, VARIANCE, seed).run(20_200).Q.tobytes() for seed in seeds}
    assert len(set(found.values())) == len(seeds)


def test_others_go_on_while_a_stepper_runs():
    """The compiled loop holds no lock: another thread ticks on in the middle of a call. The calls grow until it is seen.

    (While a lock is held there is one tick at most: when the call is over and the lock is let go.)
    """
    run, ticks, stop = sr.Stepper(sr.grids.cliff(), VARIANCE), [0], threading.Event()
    run.run(1)

    def tick():
        while not stop.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    during = 0
    for doubled in range(12):
        before = ticks[0]
        run._go(500_000 << doubled)  # one call of compiled code
        during = ticks[0] - before
        if during >= 5:
            break
    stop.set()
    thread.join()
    assert during >= 5


# -- what is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mdp": "cliff"}, "mdp must be a TabularMDP, got 'cliff'"),
        ({"learner": "q"}, "learner must be a Learner, got 'q'"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"seed": [0]}, r"seed must be a whole number, got \[0\]"),
        ({"seed": 2**64}, r"seed must be below 2\*\*64"),
        ({"exploration": 0.1}, "exploration must be an Exploration, got 0.1"),
        ({"step_size": 0.1}, "step_size must be a StepSize, got 0.1"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_stepped_is_refused_in_a_line(arguments, message):
    with pytest.raises(sr.BadInput, match=f"^{message}"):
        sr.Stepper(**{"mdp": sr.grids.cliff(), "learner": sr.QLearning(), **arguments})


@pytest.mark.parametrize("value", [-1, 1.5, True, "many", None])
def test_a_number_of_iterations_is_a_whole_number(value):
    run = sr.Stepper(sr.grids.cliff(), sr.QLearning())
    for method, name in ((run.run, "iterations"), (run.trace, "iterations"), (run.run_episodes, "episodes")):
        with pytest.raises(sr.BadInput, match=f"^{name} must be (at least 0|a whole number), got "):
            method(value)
    assert run.iterations == 0


def test_a_limit_has_the_shape_of_q_and_is_finite():
    run = sr.Stepper(sr.grids.cliff(), sr.QLearning()).run(10)
    with pytest.raises(sr.BadInput, match=r"limit must have shape \(24, 4\), got \(2,\)"):
        run.gap([1.0, 2.0])
    with pytest.raises(sr.BadInput, match="limit must be finite, got nan"):
        run.gap(np.full((24, 4), np.nan))


@dataclass(frozen=True)
class Endless(sr.Scheme):
    @staticmethod
    def pair_weight(n):
        return math.inf if n > 3.0 else 1.0


def test_a_scheme_that_gives_no_usable_number_is_refused():
    with pytest.raises(sr.BadInput, match="pair_weight of Endless must be finite and at least 0, got inf"):
        sr.Stepper(sr.grids.cliff(), sr.ReplayQLearning(Endless())).run(10_000)
