import dataclasses
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from random_models import random_model

import safereplay as sr
from safereplay.engines import identity, work
from safereplay.engines.identity import Judge, judge_of, point_id, seeded_id

EVERYTHING = tuple(work.KEEPS)
LEARNERS = [
    sr.QLearning(),
    sr.ReplayQLearning(v=0.4),
    sr.ReplayQLearning(sr.VarianceReplay(2.0), v=0.7, mixing="matched"),
    sr.RiskSensitive(0.4),
    sr.WorstTransition(),
]


def point_of(mdp, learner, exploration=None, step_size=None, **columns):
    return work.Point(mdp.name, mdp, learner, exploration or sr.EpsilonGreedy(), step_size or sr.PowerStep(), columns)


def runs_of(point, terms, seeds):
    return [work.Run(seeded_id(point_id(*point[1:5], terms), seed), point, seed) for seed in seeds]


def terms_of(keep=("policy", "verdict", "risk"), episodes=300, curves=0):
    return work.Terms(episodes, 1000, keep, curves)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.describe())
def test_a_chunk_learns_the_bits_that_learn_learns(learner):
    mdp, terms = sr.grids.cliff(gamma=0.9), terms_of(EVERYTHING, curves=4)
    learned = work.learn_here(runs_of(point_of(mdp, learner), terms, [3, 0, 2**63]), terms)
    runs = sr.learn(mdp, learner, 300, [3, 0, 2**63], snapshots=4, quiet=True)
    np.testing.assert_array_equal(learned.Q, runs.Q)
    np.testing.assert_array_equal(learned.visits, runs.visits)
    np.testing.assert_array_equal(learned.replays, runs.replays)
    np.testing.assert_array_equal(learned.snapshots, runs.snapshots.Q)


def test_schedules_and_the_cut_off_reach_the_runs():
    mdp, learner = sr.grids.volatile(), sr.QLearning()
    point = point_of(mdp, learner, sr.Softmax(3.0), sr.ConstantStep(0.2))
    terms = work.Terms(200, 7, ("Q",), 0)
    learned = work.learn_here(runs_of(point, terms, [5]), terms)
    expected = sr.learn(mdp, learner, 200, [5], sr.Softmax(3.0), sr.ConstantStep(0.2), max_steps=7, quiet=True)
    np.testing.assert_array_equal(learned.Q, expected.Q)


def test_rows_say_what_verdict_and_evaluate_say_to_the_last_bit():
    terms = terms_of(EVERYTHING, episodes=400, curves=3)
    for mdp in (sr.grids.cliff(), sr.grids.volatile(), sr.grids.cliff(slip=0.0), sr.grids.volatile(slip=0.2)):
        learner = sr.ReplayQLearning(v=0.5)
        table = work.perform(runs_of(point_of(mdp, learner), terms, range(6)), terms)
        runs = sr.learn(mdp, learner, 400, 6, snapshots=3, quiet=True)
        risks = [sr.evaluate(mdp, policy, start=mdp.origin) for policy in runs.policy]
        assert table["policy"].to_pylist() == runs.policy.tolist()
        assert table["verdict"].to_pylist() == runs.verdicts
        for name in ("mean", "std", "p_unsafe", "p_never"):
            np.testing.assert_array_equal(table[name].to_numpy(), [getattr(risk, name) for risk in risks])
        np.testing.assert_array_equal(table["cvar10"].to_numpy(), [risk.cvar(0.1) for risk in risks])
        assert table["updates"].to_pylist() == (runs.visits + runs.replays).sum((1, 2)).tolist()
        assert table["replays"].to_pylist() == runs.replays.sum((1, 2)).tolist()
        assert table["Q"].to_pylist() == runs.Q.reshape(6, -1).tolist()
        assert table["visits"].to_pylist() == runs.visits.reshape(6, -1).tolist()
        assert table["replayed"].to_pylist() == runs.replays.reshape(6, -1).tolist()
        shots = runs.snapshots
        assert table["curve_episodes"].to_pylist() == [shots.episodes.tolist()] * 6
        assert table["curve_value"].to_pylist() == shots.Q[:, :, mdp.origin].max(-1).tolist()
        assert table["curve_verdict"].to_pylist() == shots.verdicts
        along = [[sr.evaluate(mdp, p, start=mdp.origin) for p in run] for run in shots.policy]
        np.testing.assert_array_equal(table["curve_mean"].to_pylist(), [[r.mean for r in run] for run in along])
        np.testing.assert_array_equal(table["curve_p_unsafe"].to_pylist(), [[r.p_unsafe for r in run] for run in along])


@pytest.mark.parametrize("seed", range(12))
def test_on_any_model_the_judge_says_what_evaluate_says(seed):
    mdp = random_model(seed, n_states=40, n_actions=2)
    for policy in np.random.default_rng(seed).integers(mdp.n_actions, size=(5, mdp.n_states)):
        judged, risk = Judge(mdp).of(policy), sr.evaluate(mdp, policy, start=mdp.origin)
        assert judged.verdict == sr.verdict(mdp, policy)
        expected = (risk.mean, risk.std, risk.p_unsafe, risk.p_never)
        np.testing.assert_allclose(judged.moments, expected, rtol=1e-11, atol=1e-11)


def test_a_cache_keeps_the_latest_values_that_fit_together_and_at_least_one(monkeypatch):
    monkeypatch.setattr(identity, "ROOM", 10)
    cache = identity.Latest(3, len)
    for key, size in (("a", 4), ("b", 4), ("c", 4), ("d", 20)):
        assert cache.get(key, lambda size=size: [0] * size) == [0] * size
    assert [*cache._known] == ["d"]
    for key in "efgh":
        cache.get(key, lambda: [0])
    assert [*cache._known] == ["f", "g", "h"]


def test_the_digest_of_a_table_that_another_process_computed_is_taken_as_it_is():
    mdp = sr.grids.cliff(slip=0.4321)
    assert identity.know_table(mdp, "known") is mdp
    assert identity.table_digest(mdp) == "known"
    assert identity.table_digest(mdp.with_gamma(0.5)) != "known"


def test_policies_that_differ_only_where_they_never_come_are_judged_once(monkeypatch):
    mdp = sr.grids.volatile()
    judge, policy = Judge(mdp), np.ones(20, np.int64)
    first = judge.of(policy)
    reached = set(sr.path(mdp, policy).states)
    aside = next(s for s in range(20) if s not in reached and not mdp.is_terminal[s])
    other = policy.copy()
    other[aside] = 3
    assert judge.of(other) is first
    assert judge.of(np.zeros(20, np.int64)) is not first
    assert first.risk.mean == sr.evaluate(mdp, other, start=mdp.origin).mean


def test_the_judge_keeps_its_numbers_across_copies_of_a_model_and_forgets_the_oldest(monkeypatch):
    mdp = sr.grids.volatile()
    assert judge_of(mdp) is judge_of(dataclasses.replace(mdp, gamma=0.5, name="else"))
    assert judge_of(mdp) is not judge_of(sr.grids.volatile(slip=0.1))
    judge = Judge(mdp)
    judge._whole._most = judge._by_part._most = 2
    policies = [np.full(20, a) for a in (0, 1, 2)]
    first = judge.of(policies[0])
    assert judge.of(policies[0]) is first
    for policy in policies[1:]:
        judge.of(policy)
    assert judge.of(policies[0]) is not first


def test_a_policy_whose_end_rounding_hides_has_no_risk():
    rows = [(0, 0, 1e-16, 1, 1.0, True, False), (0, 0, 1.0, 0, 0.5, False, False)]
    judged = Judge(sr.TabularMDP.from_outcomes(2, 1, rows)).of(np.zeros(2, np.int64))
    assert all(np.isnan(x) for x in judged.risk)


def test_groups_share_the_model_and_the_program_whatever_the_dials():
    cliff, volatile = sr.grids.cliff(), sr.grids.volatile()
    terms = terms_of()
    points = [
        point_of(cliff, sr.ReplayQLearning(v=0.1)),
        point_of(cliff.with_gamma(0.8), sr.ReplayQLearning(sr.VarianceReplay(1.0), v=0.2)),
        point_of(cliff, sr.ReplayQLearning(v=0.1, mixing="matched")),
        point_of(cliff, sr.ReplayQLearning(v=0.1), sr.Softmax()),
        point_of(volatile, sr.ReplayQLearning(v=0.1)),
    ]
    runs = [run for point in points for run in runs_of(point, terms, [0, 1])]
    assert [[runs.index(run) for run in group] for group in work.groups(runs)] == [[0, 1, 2, 3], [4, 5], [6, 7], [8, 9]]


def test_a_chunk_of_several_groups_gives_the_rows_of_each():
    terms = terms_of()
    points = [
        point_of(sr.grids.cliff(), sr.QLearning(), model="cliff", v=None),
        point_of(sr.grids.volatile(), sr.ReplayQLearning(v=0.3), model="volatile", v=0.3),
    ]
    runs = [run for seed in (0, 1) for point in points for run in runs_of(point, terms, [seed])]
    table = work.perform(runs, terms)
    alone = pa.concat_tables([work.perform([run], terms) for run in runs], promote_options="default")
    assert table.sort_by("id").equals(alone.sort_by("id"))


def test_a_scheme_that_fails_during_a_run_says_in_which():
    @dataclass(frozen=True)
    class Broken(sr.Scheme):
        @staticmethod
        def pair_weight(mean):
            return -1.0 - mean * mean

    point, terms = point_of(sr.grids.cliff(), sr.ReplayQLearning(Broken(), v=0.5)), terms_of()
    with pytest.raises(
        sr.BadInput, match=r"pair_weight of Broken must be finite.*; in replay\(v=0.5\) on cliff with seed 9"
    ):
        work.perform(runs_of(point, terms, [9]), terms)


# -- ids ------------------------------------------------------------------------------------------------------------------


def id_of(mdp=None, learner=None, exploration=None, step_size=None, terms=None, seed=0):
    parts = (mdp or sr.grids.cliff(), learner or sr.ReplayQLearning(v=0.5))
    schedules = exploration or sr.EpsilonGreedy(), step_size or sr.PowerStep()
    return seeded_id(point_id(*parts, *schedules, terms or terms_of()), seed)


def test_everything_that_changes_a_run_changes_its_id():
    cliff = sr.grids.cliff()
    ids = [
        id_of(),
        id_of(seed=1),
        id_of(sr.grids.cliff(slip=0.2)),
        id_of(cliff.with_gamma(0.5)),
        id_of(cliff.with_start(3)),
        id_of(dataclasses.replace(cliff, layout=None)),  # another origin
        id_of(learner=sr.QLearning()),
        id_of(learner=sr.Learner()),
        id_of(learner=sr.ReplayQLearning(v=0.6)),
        id_of(learner=sr.ReplayQLearning(v=0.5, T0=2)),
        id_of(learner=sr.ReplayQLearning(sr.VarianceReplay(4.0), v=0.5)),
        id_of(learner=sr.ReplayQLearning(sr.Scheme(), v=0.5)),
        id_of(exploration=sr.EpsilonGreedy(0.2)),
        id_of(exploration=sr.Softmax(0.1)),
        id_of(step_size=sr.PowerStep(0.7)),
        id_of(terms=terms_of(episodes=301)),
        id_of(terms=terms_of()._replace(max_steps=999)),
        id_of(terms=terms_of(("curves",), curves=5)),
    ]
    assert cliff.origin != dataclasses.replace(cliff, layout=None).origin
    assert len(set(ids)) == len(ids)
    assert all(len(x) == 32 and int(x, 16) >= 0 for x in ids)


def test_what_does_not_change_a_run_does_not_change_its_id():
    assert id_of() == id_of(dataclasses.replace(sr.grids.cliff(), name="my cliff"))
    assert id_of() == id_of(terms=terms_of(("Q",)))
    assert id_of(learner=sr.ReplayQLearning(v=0)) == id_of(learner=sr.ReplayQLearning(v=0.0))


def test_an_id_is_the_same_in_another_process_and_release(in_new_process):
    code = (
        "import safereplay as sr; from safereplay.engines.work import Terms\n"
        "from safereplay.engines.identity import point_id, seeded_id\n"
        "parts = sr.grids.cliff(), sr.ReplayQLearning(v=0.5), sr.EpsilonGreedy(), sr.PowerStep()\n"
        "print(seeded_id(point_id(*parts, Terms(300, 1000, ('Q',), 0)), 0))"
    )
    assert in_new_process(code, PYTHONHASHSEED="7").strip() == id_of() == "d0ce4bc8469172193b263089d344defc"


def scheme_with(factor, **extra):
    return dataclass(frozen=True)(type("Mine", (sr.Scheme,), {"pair_weight": staticmethod(factor), **extra}))


def test_ones_own_schemes_are_told_apart_by_their_code_and_what_it_refers_to():
    def closing(scale):
        def weight(var):
            return scale * var

        return weight

    def holding(table):
        def weight(var):
            return var * table[1]

        return weight

    def a_module(**contents):
        module = ModuleType("mine")
        vars(module).update(contents)
        return module

    def naming(module):
        def weight(var):
            return var * module.scale

        return weight

    def helped(helper):
        def weight(var):
            return helper(var)

        return weight

    factors = [
        lambda var: var,
        lambda var: var + 1.0,
        lambda mean: mean,
        closing(2.0),
        closing(3.0),
        helped(lambda x: x),
        helped(lambda x: 2.0 * x),
        closing(np.float32(2.0)),
        holding(np.array([1.0, 2.0])),
        holding(np.array([1.0, 3.0])),
        naming(a_module(scale=2.0)),
        naming(a_module(scale=3.0)),
    ]
    ids = [id_of(learner=sr.ReplayQLearning(scheme_with(factor)(), v=0.5)) for factor in factors]
    assert len(set(ids)) == len(ids)
    again = [id_of(learner=sr.ReplayQLearning(scheme_with(factor)(), v=0.5)) for factor in factors]
    assert again == ids


def test_nothing_is_nothing_whatever_its_sign():
    assert id_of(learner=sr.RiskSensitive(-0.0)) == id_of(learner=sr.RiskSensitive(0.0))


def test_a_learner_that_starts_elsewhere_is_another_learner():
    def kind(start):
        return dataclass(frozen=True)(type("Mine", (sr.QLearning,), {"initial_value": start}))

    ids = {
        id_of(learner=kind(lambda self, r_max, gamma: r_max)()),
        id_of(learner=kind(lambda self, r_max, gamma: -r_max)()),
    }
    assert len(ids) == 2


def test_comments_and_layout_are_not_code():
    def one(var):
        return var * 2.0

    def other(var):
        # the same, said at more length
        return (
            var
            * 2.0
        )  # fmt: skip

    other.__name__ = "one"
    source = [identity._source(f).replace("other", "one") for f in (one, other)]
    assert source[0] == source[1]
