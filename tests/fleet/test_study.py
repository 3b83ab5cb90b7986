"""The study of many networks: its plan, its rows, what is kept after a kill, and its page."""

import jax
import numpy as np
import pyarrow as pa
import pytest

import safereplay as sr
from safereplay.errors import BadInput
from studies.deep.summary import CVAR, KEYED, OURS, PLAIN, STATIC
from studies.fleet import __main__ as command
from studies.fleet import report, study
from studies.fleet.study import FAMILIES, Network, Preset, best_actions, followed, forecast, perform, plan, read, run
from studies.fleet.tasks import MORE, SHARED, task_named

TINY = Preset(("cliff", "point"), seeds=3)


def made_up(networks, width):
    """Rows without training: the risk falls with v, and the seed decides the rest."""
    rows = []
    for x in networks:
        rng = np.random.default_rng(x.seed)
        p = max(0.1 - 0.1 * x.v - 0.05 * (1 - x.alpha), 0.0)
        bad, unlucky = x.seed % 20 == 7, x.world == "cliff" and x.seed == 8  # its simulated episodes alone are bad
        rows.append(
            {
                "id": x.id,
                **x._asdict(),
                "p_unsafe": p + 0.0001 * rng.random(),
                "mean": -50.0 if bad or unlucky else 1.0 - x.v + 0.01 * rng.random(),
                "mean_steps": 10.0,
                "exact_p_unsafe": 0.119 if x.world == "cliff" else None,
                "exact_mean": (-50.0 if bad else 1.0 - x.v) if x.world == "cliff" else None,
                "p_never": 0.0 if x.world == "cliff" else None,
                "at": [1000, 2000],
                "follows": [False, x.seed % 2 == 0] if x.family in (PLAIN, OURS) else None,
                "reward": [0.0, -1.0 if bad else rng.random()],
                "harm": [0.1, 0.1],
            }
        )
    return lambda: pa.Table.from_pylist(rows, schema=study.SCHEMA)


# -- the plan ----------------------------------------------------------------------------------------------------------


def test_every_dial_has_at_least_ten_settings_and_five_hundred_seeds():
    whole = plan(Preset())
    assert {networks[0].world for networks in whole} == {*SHARED, *MORE}
    for networks in whole:
        found = {(x.v, x.alpha) for x in networks}
        least = {PLAIN: 1, STATIC: 9}.get(networks[0].family, 10)
        assert len(found) >= least
        assert len(networks) == 500 * len(found)
    assert sum(map(len, whole)) >= 100_000


def test_keys_are_for_tables():
    assert not list(study.settings("point", KEYED))
    assert len(list(study.settings("cliff", KEYED))) == 10


def test_a_network_has_one_id_and_another_content_another():
    networks = [x for some in plan(TINY) for x in some]
    assert len({x.id for x in networks}) == len(networks)
    one = networks[0]
    assert one._replace(steps=one.steps + 250).id != one.id
    assert Network(*one).id == one.id


def test_shared_tasks_have_the_terms_of_stable_baselines3():
    cliff, point = task_named("cliff"), task_named("point")
    assert (cliff.terms.steps, cliff.terms.gamma, cliff.terms.batch, cliff.terms.first) == (20_000, 0.95, 64, 500)
    assert cliff.scales == {"dqn": 20.0, "qrdqn": 2.0}
    assert (point.terms.layers, point.terms.rates) == ((128, 128), (2e-3, 1e-4))


def test_other_tasks_keep_errors_where_the_huber_loss_is_quadratic():
    """The windfall's prize is 17.6 more than expected, while |Q*| is 4.4."""
    assert task_named("windfall").scales["dqn"] > 17
    with pytest.raises(BadInput, match=r"unknown world 'clif'; did you mean 'cliff'\?"):
        task_named("clif")


# -- the limit ---------------------------------------------------------------------------------------------------------


def test_a_policy_follows_the_limit_if_it_does_wherever_it_goes():
    mdp = sr.grids.cliff()
    good = best_actions("cliff", OURS, 0.8, 1.0)
    best = good.argmax(1)
    limit = sr.shaped_limit(mdp, sr.SurpriseReplay(beta=1.0), 0.8)
    np.testing.assert_array_equal(best, limit.argmax(1))
    away, reached = best.copy(), np.zeros(24, bool)
    reached[mdp.origin] = True
    for _ in range(24):
        for s in np.flatnonzero(reached & ~mdp.is_terminal):
            q = mdp.outcomes(int(s), int(best[s]))
            reached[q.s_next[~q.terminal]] = True
    off = np.flatnonzero(~reached & ~mdp.is_terminal)
    away[off] = (away[off] + 1) % 4
    wrong = best.copy()
    wrong[mdp.origin] = (wrong[mdp.origin] + 1) % 4
    assert followed(mdp, np.stack([best, away, wrong]), good).tolist() == [True, True, False]


def test_a_forecast_has_the_risk_of_the_limits_policy_and_its_smallest_gap():
    """Plain DQN on the cliff, whose rewards are divided by 20; the states that the best policy visits, by simulation."""
    mdp, found = sr.grids.cliff(), forecast("cliff", PLAIN, 0.0, 1.0)
    Q = sr.exact(mdp, sr.QLearning())
    exact = sr.evaluate(mdp, Q.argmax(1), start=mdp.origin)
    assert (found.p_unsafe, found.mean) == pytest.approx((exact.p_unsafe, exact.mean))
    rng, visited = np.random.default_rng(0), set()
    for _ in range(2_000):
        s, over = mdp.origin, False
        while not over:
            visited.add(s)
            q = mdp.outcomes(s, int(Q[s].argmax()))
            k = rng.choice(len(q.p), p=q.p)
            s, over = int(q.s_next[k]), bool(q.terminal[k])
    best = np.sort(Q[sorted(visited)], 1)
    assert found.gap == pytest.approx((best[:, -1] - best[:, -2]).min() / 20.0)


def test_what_has_no_known_limit_is_left_out():
    assert forecast("cliff", CVAR, 0.0, 1.0) is None
    assert best_actions("cliff", CVAR, 0.0, 1.0) is None
    assert best_actions("point", OURS, 0.8, 1.0) is None


# -- running it --------------------------------------------------------------------------------------------------------


def test_a_network_that_is_there_is_not_trained_again(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(study, "perform", lambda networks, width: calls.append(networks) or made_up(networks, width))
    planned = plan(TINY, [PLAIN])
    assert run(planned, tmp_path, 2, budget=0.0) == 6
    assert run([planned[0]], tmp_path, 2) == 0
    assert [len(x) for x in calls] == [2, 1]
    assert run(planned, tmp_path, 2) == 0
    assert [len(x) for x in calls] == [2, 1, 2, 1]
    assert read(tmp_path).num_rows == 6


def test_one_training_of_static_cvar_serves_every_alpha():
    networks = plan(Preset(("cliff",), seeds=5), [STATIC])[0]
    batches = list(study._batches(networks[4:], 2))
    assert [x for batch in batches for x in batch] == networks[4:]
    assert [len({x.seed for x in batch}) for batch in batches] == [2, 2, 1]
    assert [len(x) for x in study._batches(plan(TINY, [PLAIN])[0], 2)] == [2, 1]


def test_a_stopped_study_keeps_its_batches_and_goes_on(tmp_path, monkeypatch, capsys):
    def stops(networks, width):
        def rows():
            if networks[0].world == "point":
                raise KeyboardInterrupt
            return made_up(networks, width)()

        return rows

    monkeypatch.setattr(study, "perform", stops)
    with pytest.raises(KeyboardInterrupt):
        run(plan(TINY, [PLAIN]), tmp_path, 4)
    assert read(tmp_path).num_rows == 3
    monkeypatch.setattr(study, "perform", made_up)
    assert run(plan(TINY, [PLAIN]), tmp_path, 4) == 0
    assert sorted(read(tmp_path)["id"].to_pylist()) == sorted(x.id for some in plan(TINY, [PLAIN]) for x in some)


@pytest.mark.slow
def test_a_networks_bits_do_not_depend_on_its_neighbours():
    networks = [x._replace(steps=1_500) for x in plan(Preset(("cliff",), seeds=4), [OURS])[0]]
    first = perform(networks[:4], 4)().to_pylist()
    again = perform([networks[2], *networks[10:13]], 4)().to_pylist()
    assert again[0] == first[2]
    assert perform(networks[:1], 4)().to_pylist() == first[:1]  # a batch that is filled up
    assert jax.device_count() >= 1


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_has_what_the_schema_promises(family):
    networks = [x._replace(steps=1_500) for x in plan(Preset(("cliff",), seeds=1), [family])[0][:2]]
    for row in perform(networks, 2)().to_pylist():
        assert 0.0 <= row["p_unsafe"] <= 1.0
        assert row["at"] == [750, 1000, 1250, 1500]
        assert len(row["reward"]) == len(row["harm"]) == 4
        tabular = family != STATIC
        assert (row["policy"] is not None) == tabular
        assert (row["follows"] is not None) == (family in (PLAIN, OURS, KEYED))


# -- the page ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def page(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "perform", made_up)
    run(plan(Preset(("cliff", "point"), seeds=200)), tmp_path, 500)
    return report.write_page(tmp_path, tmp_path, tmp_path / "nothing").read_text()


def test_the_page_counts_networks_and_names_failures(page):
    assert "**11,200 networks**" in page
    assert "which gives 14,400 results" in page
    assert "| cliff | plain | 200 | 10.0 % [" in page
    assert "| cliff | shaped | 0.5 | 10 of 200 | 5.0 % |" in page
    assert "| cliff | plain | 0 | 200 | 0.00045 | 0 % | 50.0 % | 11.9 % | 11.9 % |" in page
    assert "**On 2 of 2 worlds the networks with shaped replay" in page
    assert "50.0 % where it is below 0.001" in page
    assert "Beside Stable-Baselines3" not in page
    assert "- 200 networks per setting. Training" in page


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """The page of made-up networks on the cliff, of which some columns are changed: name -> function of a network and its value."""

    def write(families, **columns):
        def work(networks, width):
            rows = made_up(networks, width)().to_pylist()
            for x, row in zip(networks, rows, strict=True):
                row.update({name: new(x, row[name]) for name, new in columns.items()})
            return lambda: pa.Table.from_pylist(rows, schema=study.SCHEMA)

        monkeypatch.setattr(study, "perform", work)
        run(plan(Preset(("cliff",), seeds=20), families), tmp_path, 500)
        return report.write_page(tmp_path, tmp_path, tmp_path / "nothing").read_text()

    return write


def test_the_page_says_where_a_rival_did_not_learn(changed):
    """At seven of nine values of α, and at three of ten."""
    steps = {STATIC: 0.7, CVAR: 0.2}
    text = changed(
        [PLAIN, OURS, CVAR, STATIC], mean_steps=lambda x, old: 90.0 if x.alpha < steps.get(x.family, 0.0) else old
    )
    assert "On cliff more than a third of all networks of static CVaR have episodes more than 3 times as long" in text
    assert "networks of QR-DQN CVaR have" not in text


def test_the_page_says_where_a_rival_has_more_return_than_plain(changed):
    text = changed([PLAIN, OURS, CVAR, STATIC], mean=lambda x, old: 5.0 if x.family == CVAR else old)
    assert "On cliff a setting of QR-DQN CVaR has more return than plain DQN" in text
    assert "a setting of static CVaR has more return" not in text


def test_the_page_says_where_the_dial_goes_too_far(changed):
    text = changed([PLAIN, OURS], p_unsafe=lambda x, old: 0.5 if x.v >= 0.9 else old)
    assert "more risk than plain DQN (95 %): cliff (v from 0.9 on)." in text


def test_the_page_says_where_a_difference_depends_on_the_values_of_a_dial(changed):
    """Shaped replay is safe at v = 0.5 alone; keys are half as risky as plain at all v, static CVaR is never safe."""
    risk = {PLAIN: 0.2, KEYED: 0.1, STATIC: 0.2}
    text = changed(
        [PLAIN, OURS, KEYED, STATIC],
        p_unsafe=lambda x, old: risk.get(x.family, 0.0 if x.v == 0.5 else 0.2),
        mean=lambda x, old: 1.0,
    )
    assert "further on cliff" in text
    assert "vanishes or changes its sign for shaped with keys on cliff; static CVaR on cliff." in text


def test_a_difference_at_all_values_of_a_dial_is_not_in_doubt(changed):
    risk = {PLAIN: 0.2, OURS: 0.0, STATIC: 0.1}
    text = changed([PLAIN, OURS, STATIC], p_unsafe=lambda x, old: risk[x.family], mean=lambda x, old: 1.0)
    assert "further on cliff" in text
    assert "changes its sign" not in text


def test_the_page_says_which_settings_have_fewer_networks(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "perform", made_up)
    run(plan(Preset(("cliff",), seeds=20), [PLAIN, OURS]), tmp_path, 500)
    run(plan(Preset(("cliff",), seeds=5), [CVAR]), tmp_path, 500)
    text = report.write_page(tmp_path, tmp_path, tmp_path / "nothing").read_text()
    assert "- 20 networks per setting, but 5 for QR-DQN CVaR on cliff. Training" in text


def test_no_two_worlds_are_the_same():
    tables = [task_named(name).mdp for name in (*SHARED, *MORE) if task_named(name).mdp is not None]
    columns = ("pair", "p", "s_next", "r", "terminal", "unsafe", "start")
    found = {tuple(np.asarray(getattr(mdp, name), float).tobytes() for name in columns) for mdp in tables}
    assert len(found) == len(tables) == len(SHARED) + len(MORE) - 1


def test_networks_that_the_plan_does_not_have_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "perform", made_up)
    run(plan(Preset(("delayed", "cliff"), seeds=2), [PLAIN, KEYED]), tmp_path, 500)
    monkeypatch.setattr(study, "UNVARIED", ("delayed", "cliff"))
    assert {group.family for chapter in report.chapters(tmp_path) for group in chapter.groups} == {PLAIN}


def test_networks_of_other_steps_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "perform", made_up)
    for steps in (2_000, 0):
        run(plan(Preset(("cliff",), seeds=20, steps=steps), [PLAIN]), tmp_path, 500)
    assert read(tmp_path).num_rows == 40
    for steps in (0, 2_000):
        (group,) = report.chapters(tmp_path, steps)[0].groups
        assert set(group.rows["steps"]) == {steps or 20_000}


def test_the_sign_of_failure_is_the_training_reward(page):
    part = page[page.index("**A sign during training.**") :]
    row = next(line for line in part.splitlines() if line.startswith("| cliff | plain | 0 |"))
    assert row == "| cliff | plain | 0 | 0.50 | 0.50 | 1.00 |"


def test_without_networks_there_is_no_page(tmp_path):
    assert report.write_page(tmp_path, tmp_path, tmp_path) is None
    assert command.run(["--out", str(tmp_path), "--report-only"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--worlds", "clif"], "unknown world 'clif'"),
        (["--families", "plan"], "unknown family 'plan'; did you mean 'plain'?"),
        (["--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--width", "0"], "width must be at least 1, got 0"),
        (["--steps", "600"], "steps must be 0, or 500 and a multiple of 250 more, at most 50,000, got 600"),
        (["--steps", "60000"], "at most 50,000, got 60000"),
        (["--steps", "-1"], "at most 50,000, got -1"),
        (["--worlds", ","], "worlds must name at least one world"),
    ],
)
def test_bad_arguments_end_with_2_and_one_line(arguments, message, tmp_path, capsys):
    assert command.run(["--out", str(tmp_path / "new"), *arguments]) == 2
    assert message in capsys.readouterr().err


# -- beside Stable-Baselines3 ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("v", [0.0, 0.8])
def test_networks_are_those_of_stable_baselines3(v, tmp_path):
    """20 seeds of each on the cliff: two-sample tests of P(unsafe) and of the return, at 0.01."""
    import tarfile
    from pathlib import Path

    from scipy import stats

    with tarfile.open(Path(__file__).parents[2] / "docs" / "deep-runs.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    theirs = report._sb3_runs(tmp_path)["cliff", v]
    assert len(theirs) >= 12
    family = OURS if v else PLAIN
    networks = [x for x in plan(Preset(("cliff",), seeds=20), [family])[0] if x.v == v]
    rows = perform(networks, 20)().to_pylist()
    for name, field in (("p_unsafe", "p"), ("mean", "mean")):
        told = [getattr(run.evaluation, field) for run in theirs]
        assert stats.ks_2samp(told, [row[name] for row in rows]).pvalue > 0.01
