from pathlib import Path

import numpy as np
import pytest
from ledger_worlds import random_world

import safereplay as sr
from safereplay import arrays, runs
from safereplay.kernels import ledger, rng, step
from safereplay.rivals.lagrangian import LagrangianQ
from safereplay.rivals.ledgers import ErrorStates, LedgerLearner, MeanVariance, audit, diary

SURE_STEP = sr.PowerStep(power=0.0)  # α = 1


def state_of(mdp, learner, budget, episodes=60, max_steps=40):
    """All that a run has after so many episodes, made in chunks of ``budget`` iterations."""
    program = runs.make_program(learner, sr.EpsilonGreedy(), sr.PowerStep(), mdp.gamma, mdp.n_actions)
    tables, memory = step.allocate(mdp.n_states, mdp.n_actions, 2.0, rng.seeded(3)), program.recipe.room(mdp)
    while tables.clock[step.EPISODE] < episodes:
        program.advance(arrays.sampling_model(mdp), memory, tables, episodes, max_steps, budget)
    return [x.tolist() for x in (*tables, *memory)]


@pytest.mark.parametrize("learner", [MeanVariance(0.0), ErrorStates(0.0), LagrangianQ(1.0)], ids=lambda x: x.LABEL)
@pytest.mark.parametrize("c0", [0.0, 5.0])
def test_with_its_dial_at_no_effect_every_ledger_is_q_learning_bit_for_bit(learner, c0):
    mdp, same = sr.grids.cliff(), {"episodes": 500, "seeds": 2}
    plain, other = (sr.learn(mdp, x, **same) for x in (sr.QLearning(c0=c0), type(learner)(learner.SETTINGS[0], c0=c0)))
    assert plain.Q.tolist() == other.Q.tolist()
    assert plain.visits.tolist() == other.visits.tolist()


@pytest.mark.parametrize("learner", [MeanVariance(0.1), LagrangianQ(0.05, trust=0.5)], ids=lambda x: x.LABEL)
def test_a_run_in_pieces_is_the_run_in_one_go(learner):
    whole = state_of(sr.grids.cliff(), learner, 1 << 40)
    assert all(state_of(sr.grids.cliff(), learner, budget) == whole for budget in (1, 7, 100))


@pytest.mark.whole
def test_what_is_compiled_is_what_the_source_says(in_new_process):
    script = (
        "import numpy as np, safereplay as sr\n"
        "from safereplay.rivals.lagrangian import LagrangianQ\n"
        "from safereplay.rivals.ledgers import audit\n"
        "from safereplay.rivals.ledgers import MeanVariance\n"
        "np.seterr(over='ignore')\n"
        "for learner in (LagrangianQ(0.02, trust=0.3), MeanVariance(0.2)):\n"
        "    print([x.tolist() if hasattr(x, 'tolist') else x for x in audit(sr.grids.cliff(), learner, 30)])\n"
    )
    home = str(Path(sr.__file__).parent.parent)
    compiled, plain = (in_new_process(script, PYTHONPATH=home, NUMBA_DISABLE_JIT=off) for off in "01")
    assert compiled == plain


def test_both_tables_follow_the_action_of_the_best_score_and_nothing_follows_an_end():
    """0 → 1 → end, α = 1. In 1, action 0 pays 5 and harms, action 1 pays 1: at weight 1/2, 1 is the better by score."""
    rows = [(0, a, 1.0, 1, 2.0, False, False) for a in range(2)]
    rows += [(1, 0, 1.0, 2, 5.0, True, True), (1, 1, 1.0, 2, 1.0, True, False)]
    mdp = sr.TabularMDP.from_outcomes(3, 2, rows, gamma=0.5, start=[1.0, 0.0, 0.0])
    book = audit(mdp, ErrorStates(0.5, scale=100.0), 200, step_size=SURE_STEP)
    assert book.X.tolist() == [[2.5, 2.5], [5.0, 1.0], [0.0, 0.0]]
    assert book.M.tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    assert book.score.tolist() == [[1.25, 1.25], [-47.5, 0.5], [0.0, 0.0]]


def test_an_episode_that_is_cut_off_still_looks_ahead_and_counts_as_one():
    """One state, reward 1, every step unsafe, no end: X → 1/(1−γ) though every episode has one step; all are harmed."""
    mdp = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 1.0, 0, 1.0, False, True)], gamma=0.5)
    book = audit(mdp, ErrorStates(0.0), 60, step_size=SURE_STEP, max_steps=1)
    assert book.X[0, 0] == pytest.approx(2.0)
    assert (book.M[0, 0], book.harms) == (1.0, 60)


def test_an_episode_is_harmed_once_however_often_it_was():
    mdp = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 0.01, 0, 0.0, True, False), (0, 0, 0.99, 0, 0.0, False, True)])
    assert audit(mdp, ErrorStates(), 50).harms in (49, 50)


def test_the_price_is_the_sum_of_what_each_episode_did_to_it():
    """Every episode is harmed: λ = Σ rate·k^−power·(1 − limit); at a limit of 1 nothing moves it."""
    rows = [(0, a, 1.0, 1, 0.0, True, True) for a in range(2)]
    sure = sr.TabularMDP.from_outcomes(2, 2, rows)
    expected = sum(3.0 * k**-0.5 * 0.75 for k in range(1, 101))
    assert audit(sure, LagrangianQ(0.25, rate=3.0, power=0.5), 100).price == pytest.approx(expected, rel=1e-12)
    assert audit(sure, LagrangianQ(1.0), 100).price == 0.0


def test_the_forecast_is_the_chance_of_harm_of_the_best_action_where_the_episode_began():
    """Both actions harm for sure and α = 1: the forecast is 1 from the first episode of each on."""
    sure = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 1.0, 1, 0.0, True, True)])
    book = audit(sure, LagrangianQ(0.5, rate=1.0, power=0.0, trust=1.0), 10, step_size=SURE_STEP)
    assert book.price == pytest.approx(5.0)
    safe = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 1.0, 1, 0.0, True, False)])
    assert audit(safe, LagrangianQ(0.0, trust=1.0), 10).price == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_every_score_is_of_the_newest_tables_and_price(seed):
    mdp, learner = random_world(seed), LagrangianQ(0.1)
    for book in diary(mdp, learner, [10, 500, 3_000], seed):
        assert book.score.tolist() == (book.X - book.price * book.M).tolist()


def test_a_diary_is_what_learning_gives_back_and_steps_can_be_counted_instead():
    mdp, learner = sr.grids.cliff(), LagrangianQ(0.05)
    learned = sr.learn(mdp, learner, 400, seeds=[5], snapshots=[100, 400])
    for book, Q in zip(diary(mdp, learner, [100, 400], 5), learned.snapshots.Q[0], strict=True):
        assert book.score.tolist() == Q.tolist()
    assert sr.learn(mdp, learner, steps=1_234, seeds=2).visits.sum((1, 2)).tolist() == [1_234, 1_234]
    assert (learned.w, learned.seen, learned.replays.sum()) == (None, None, 0)


def test_softmax_explores_too():
    learned = sr.learn(sr.grids.cliff(), ErrorStates(0.5), 2_000, seeds=1, exploration=sr.Softmax(1.0))
    assert (learned.visits[0].sum(1) > 0).sum() == 19


def test_a_function_may_name_only_what_is_offered():
    class Odd(LedgerLearner):
        score = staticmethod(lambda q, best: q - best)

    class Taken(LedgerLearner):
        DIALS = ("ahead",)
        ahead = 1.0

    with pytest.raises(sr.BadInput, match=r"unknown argument of Odd\.score 'best'; choose from m, price, q"):
        Odd()
    with pytest.raises(
        sr.BadInput, match="name of Taken's dial must differ from the quantities that the loop offers, got 'ahead'"
    ):
        Taken()


def test_a_function_that_cannot_be_compiled_is_refused_in_a_line():
    class Wordy(LedgerLearner):
        score = staticmethod(lambda q: q + "a")

    with pytest.raises(sr.BadInput, match="score of Wordy must be code that numba can compile"):
        sr.learn(sr.grids.cliff(), Wordy(), 10, seeds=1)


def test_the_offers_are_in_the_order_of_the_loop():
    assert ledger.UPDATE_OFFERS == ("q", "m", "r", "best", "ahead", "unsafe", "alpha", "gamma")
    assert np.isfinite(audit(sr.grids.bridge(), MeanVariance(0.1), 200).score).all()
