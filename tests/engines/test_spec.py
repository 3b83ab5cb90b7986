import json
import sys
from dataclasses import replace

import numpy as np
import pytest

import safereplay as sr
from safereplay import catalog
from safereplay.engines.spec import load_spec

SMALL = {"episodes": 100, "seeds": 2, "models": {"cliff": {}}, "learners": {"q": {}}}


def spec_of(**changes):
    return load_spec({**SMALL, **changes})


def learners_of(**table):
    return [v.made for v in spec_of(learners=table).learners]


def written(folder, text, name="study.toml"):
    (folder / name).write_text(text)
    return folder / name


def test_a_file_says_what_the_same_dictionary_says(tmp_path):
    text = """
    episodes = 100
    seeds = 2
    [models.cliff]
    gamma = [0.9, 0.95]
    slip = { from = 0.0, to = 0.2, points = 3 }
    [learners.replay]
    v = 0.5
    mixing = ["literal", "matched"]
    scheme = { kind = "VarianceReplay", beta = 2.0 }
    [exploration]
    epsilon = 0.2
    [step_size]
    kind = "ConstantStep"
    size = 0.1
    """
    plain = {
        "episodes": 100,
        "seeds": 2,
        "models": {"cliff": {"gamma": [0.9, 0.95], "slip": {"from": 0.0, "to": 0.2, "points": 3}}},
        "learners": {
            "replay": {"v": 0.5, "mixing": ["literal", "matched"], "scheme": {"kind": "VarianceReplay", "beta": 2.0}}
        },
        "exploration": {"epsilon": 0.2},
        "step_size": {"kind": "ConstantStep", "size": 0.1},
    }
    found, direct = load_spec(written(tmp_path, text)), load_spec(plain)
    assert found.plain == plain
    assert found.digest == direct.digest == load_spec(written(tmp_path, json.dumps(plain), "s.json")).digest
    assert [run.id for run in found.runs()] == [run.id for run in direct.runs()]
    assert len(found) == 2 * 3 * 2 * 2
    point = next(iter(found.points()))[1]
    assert point.learner == sr.ReplayQLearning(sr.VarianceReplay(2.0), 0.5)
    assert (point.exploration, point.step_size) == (sr.EpsilonGreedy(0.2), sr.ConstantStep(0.1))
    assert point.mdp == sr.grids.cliff(gamma=0.9, slip=0.0)


def test_ids_of_a_spec_are_those_of_its_runs_done_alone():
    from safereplay.engines.identity import point_id, seeded_id
    from safereplay.engines.work import Terms

    terms = Terms(100, 1000, ("policy", "verdict", "risk"), 0)
    parts = (sr.grids.cliff(), sr.QLearning(), sr.EpsilonGreedy(), sr.PowerStep())
    assert [run.id for run in spec_of().runs()] == [seeded_id(point_id(*parts, terms), seed) for seed in (0, 1)]


def test_names_and_what_is_kept_do_not_change_ids():
    renamed = spec_of(models={"world": {"source": "cliff"}}, learners={"plain": {"kind": "QLearning"}}, keep=["Q"])
    assert [run.id for run in renamed.runs()] == [run.id for run in spec_of().runs()]


def test_the_same_point_by_two_names_is_one():
    spec = spec_of(learners={"q": {}, "watkins": {"kind": "QLearning"}, "replay": {"v": [0.5, 0.5]}})
    assert [point.columns["learner"] for _, point in spec.points()] == ["q", "replay"]


@pytest.mark.parametrize("name", [name for name in catalog.LEARNERS if name not in ("cvar", "hindsight")])
def test_short_names_are_kinds(name):
    kind = catalog.learner(name).__name__
    assert type(learners_of(**{name: {}})[0]).__name__ == kind
    assert type(learners_of(x={"kind": name})[0]).__name__ == kind


def test_seeds_are_a_number_a_list_or_a_first_and_a_count():
    assert list(spec_of(seeds=3).seeds) == [0, 1, 2]
    assert list(spec_of(seeds=[5, 1, 5]).seeds) == [5, 1]
    assert list(spec_of(seeds={"first": 100, "count": 2}).seeds) == [100, 101]
    assert list(spec_of(seeds={"first": 2**64 - 1, "count": 1}).seeds) == [2**64 - 1]


def test_a_dictionary_may_hold_what_python_has_for_lists():
    loose = spec_of(seeds=range(3), learners={"replay": {"v": (0.1, np.float64(0.2))}})
    plain = spec_of(seeds=[0, 1, 2], learners={"replay": {"v": [0.1, 0.2]}})
    assert loose.plain == plain.plain
    with pytest.raises(sr.BadInput, match="spec must hold plain values: numbers, text, lists and tables"):
        spec_of(episodes=object())


def test_runs_are_made_lazily_and_those_done_are_left_out():
    spec = spec_of(seeds={"first": 0, "count": 2**31})
    runs = spec.runs()
    first, second = next(runs), next(runs)
    assert first.point is second.point
    assert next(spec.runs({bytes.fromhex(first.id)})).id == second.id


def test_models_that_differ_in_gamma_alone_share_their_arrays():
    spec = spec_of(models={"cliff": {"gamma": [0.9, 0.95]}})
    one, other = (v.made for v in spec.models)
    assert one.p is other.p
    assert (one.gamma, other.gamma) == (0.9, 0.95)


def test_columns_are_in_order_and_complete_for_every_point():
    spec = spec_of(
        models={"cliff": {"slip": [0, 0.1]}},
        learners={"replay": {"v": 0.5}, "gaskett": {"beta": 0.3}, "mihatsch": {}},
        exploration=[{"epsilon": 0.1}, {"kind": "Softmax", "temperature": 2.0}],
    )
    head = ["model", "gamma", "model_slip", "learner", "kind", "c0", "T0", "v", "mixing", "beta", "kappa", "scheme"]
    schedules = ["exploration", "exploration_epsilon", "exploration_power", "exploration_temperature"]
    assert list(spec.columns) == [*head, *schedules, "step_size", "step_size_power", "step_size_scale"]
    rows = [point.columns for _, point in spec.points()]
    assert all(list(row) == list(spec.columns) for row in rows)
    assert rows[0]["beta"] == 5.0
    assert rows[0]["kappa"] is None
    assert {spec.columns[name] for name in ("model_slip", "v", "beta", "T0")} == {"number"}
    assert {row["exploration"] for row in rows} == {"EpsilonGreedy", "Softmax"}
    gaskett = next(row for row in rows if row["learner"] == "gaskett")
    assert (gaskett["beta"], gaskett["scheme"], gaskett["v"]) == (0.3, None, None)


def test_a_column_is_a_flag_where_it_can_be_and_text_where_it_must_be():
    flags = spec_of(models={"cliff": {"fall_ends": [True, False]}})
    assert flags.columns["model_fall_ends"] == "flag"
    lists = spec_of(models={"volatile": {"rewards": [[[0.5, 10], [0.5, -10]]]}})
    assert lists.columns["model_rewards"] == "text"
    assert [point.columns["model_rewards"] for _, point in lists.points()] == ["[[0.5, 10], [0.5, -10]]"]


MINE = """
import safereplay as sr
from dataclasses import dataclass

@dataclass(frozen=True)
class GapOfMine(sr.Scheme):
    beta: float = 0.1
    seed: float = 1.0
    @staticmethod
    def pair_weight(mean, r_min): return mean - r_min
"""


def test_ones_own_schemes_come_from_modules_beside_the_spec(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "schemes_of_mine.py").write_text(MINE)
    text = 'import = ["schemes_of_mine"]\n[models.cliff]\n[learners.replay]\nscheme = {kind = "GapOfMine", beta = [1, 2]}\n'
    spec = load_spec(written(tmp_path, text))
    rows = [point.columns for _, point in spec.points()]
    assert [(row["scheme"], row["beta"], row["scheme_seed"]) for row in rows] == [
        ("GapOfMine", b, 1.0) for b in (1.0, 2.0)
    ]
    assert "code of GapOfMine" in spec.content


def test_map_files_may_lie_beside_the_spec(tmp_path):
    (tmp_path / "world.txt").write_text("S.X.G\n.....\n")
    spec = load_spec(written(tmp_path, '[models.mine]\nsource = "world.txt"\n[learners.q]\n'))
    assert spec.models[0].made.n_states == 10


def test_a_model_whose_file_changed_has_another_digest(tmp_path):
    (tmp_path / "world.txt").write_text("S.X.G\n.....\n")
    file = written(tmp_path, '[models.mine]\nsource = "world.txt"\n[learners.q]\n')
    before = load_spec(file)
    (tmp_path / "world.txt").write_text("S.XXG\n.....\n")
    after = load_spec(file)
    assert before.plain == after.plain
    assert before.digest != after.digest


FALL = (53.0, 19.0, 1.0, -12.0)  # the fall at (2, 1) of the cliff
DESIGNED = sr.ReplayQLearning(sr.DesignedReplay([(*FALL, 1.0), (1.0, 0.0, 0.0, -1.0, 2.0)]), v=0.2, mixing="matched")


def test_the_table_of_an_object_is_one_value_and_a_list_of_tables_is_several():
    assert learners_of(designed=DESIGNED) == [DESIGNED]
    assert learners_of(replay={"scheme": DESIGNED.scheme, "v": 0.2, "mixing": "matched"}) == [DESIGNED]
    scheme = {"kind": "DesignedReplay", "table": [[[*FALL, 1.0]], [[*FALL, 2.0]]]}
    found = learners_of(replay={"scheme": scheme, "v": [0.1, 0.2]})
    assert [(x.scheme.table[0][4], x.v) for x in found] == [(1.0, 0.1), (1.0, 0.2), (2.0, 0.1), (2.0, 0.2)]


@pytest.mark.parametrize("table", [DESIGNED.scheme.table, ()])
def test_a_learner_may_come_from_a_file_whose_dials_can_be_overridden(table, tmp_path):
    learner = replace(DESIGNED, scheme=sr.DesignedReplay(table))
    (tmp_path / "learner.json").write_text(json.dumps(learner.to_dict()))
    text = '[models.cliff]\n[learners.mine]\nsource = "learner.json"\n'
    assert [v.made for v in load_spec(written(tmp_path, text)).learners] == [learner]
    found = load_spec(written(tmp_path, text + "v = [0.3, 0.4]\n")).learners
    assert [v.made for v in found] == [replace(learner, v=0.3), replace(learner, v=0.4)]


def test_a_learner_whose_file_changed_has_another_digest(tmp_path):
    file = written(tmp_path, '[models.cliff]\n[learners.mine]\nsource = "learner.json"\n')
    digests = []
    for learner in (DESIGNED, replace(DESIGNED, v=0.3)):
        (tmp_path / "learner.json").write_text(json.dumps(learner.to_dict()))
        digests.append(load_spec(file).digest)
    assert digests[0] != digests[1]


def test_curves_are_counted_only_where_they_are_kept():
    assert spec_of().terms.curves == 0
    assert spec_of(keep=["curves"]).terms.curves == 50
    assert spec_of(keep=["curves", "Q"], curves=4).terms == (100, 1000, ("Q", "curves"), 4)
    assert spec_of(keep=["curves"], episodes=7).terms.curves == 7


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learners": {"replay": {"v": 1.5}}}, r"learners.replay.v must be in \[0, 1\), got 1.5"),
        ({"learners": {"replay": {"v": [0.1, 1.5]}}}, r"learners.replay.v must be in \[0, 1\), got 1.5"),
        ({"learners": {"replay": {"vv": 0.5}}}, "unknown key of learners.replay 'vv'; did you mean 'v'?"),
        (
            {"learners": {"replay": {"mixing": "litral"}}},
            "unknown learners.replay.mixing 'litral'; did you mean 'literal'",
        ),
        ({"learners": {"replya": {}}}, "unknown learners.replya.kind 'replya'; did you mean 'replay'"),
        ({"learners": {"x": {"kind": 3}}}, "unknown learners.x.kind 3"),
        ({"learners": {"replay": {"scheme": {"beta": 1}}}}, "unknown learners.replay.scheme.kind None"),
        (
            {"learners": {"replay": {"scheme": {"kind": "VarianceReplay", "beta": "x"}}}},
            "learners.replay.scheme.beta must be a number, got 'x'",
        ),
        (
            {"learners": {"replay": {"scheme": {"kind": "QLearning"}}}},
            "unknown learners.replay.scheme.kind 'QLearning'",
        ),
        ({"learners": {"replay": {"scheme": 3}}}, "learners.replay.scheme must be a Scheme, got 3"),
        ({"learners": {"x": {"source": 3}}}, "learners.x.source must be one file, got 3"),
        (
            {"learners": {"x": {"source": "no.json"}}},
            "learners.x.source must be a .json file that can be read, got 'no.json'",
        ),
        (
            {"learners": {"x": DESIGNED}, "models": {"volatile": {}}},
            r"learners.x: table must list outcomes of the model, got \(1.0, .*; it may have been designed for another model",
        ),
        ({"learners": {}}, r"learners must name at least one, as in \[learners.NAME\]"),
        ({"learners": {"q": 3}}, "learners.q must be a table, got 3"),
        ({"models": {"clif": {}}}, "models.clif: unknown model 'clif'; did you mean 'cliff'"),
        ({"models": {"cliff": {"slip": 2}}}, r"models.cliff.slip must be in \[0, 1\], got 2"),
        ({"models": {"cliff": {"slipp": 0.1}}}, "models.cliff: unknown option 'slipp'; did you mean 'slip'"),
        ({"models": {"cliff": {"gamma": 1}}}, r"models.cliff.gamma must be in \(0, 1\), got 1"),
        ({"models": {"cliff": {"gamma": [0.9, 1]}}}, r"models.cliff.gamma must be in \(0, 1\), got 1"),
        ({"models": {"x": {"source": ["cliff"]}}}, r"models.x.source must be one name or file, got \['cliff'\]"),
        ({"exploration": {"epsilon": 2}}, r"exploration.epsilon must be in \[0, 1\], got 2"),
        ({"exploration": {"kind": "PowerStep"}}, "unknown exploration.kind 'PowerStep'"),
        ({"exploration": [{"epsilon": 0.1}, {"epsilon": 2}]}, r"exploration\[1\].epsilon must be in \[0, 1\], got 2"),
        ({"step_size": {"power": 3}}, r"step_size.power must be in \[0, 1\], got 3"),
        ({"step_size": 3}, "step_size must be a table, got 3"),
        ({"episode": 3}, "unknown key of the spec 'episode'; did you mean 'episodes'"),
        ({"episodes": 0}, "episodes must be at least 1, got 0"),
        ({"max_steps": 0.5}, "max_steps must be a whole number, got 0.5"),
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seeds": [-1]}, "seed must be at least 0, got -1"),
        ({"seeds": []}, "seeds must name at least one seed"),
        ({"seeds": {"frist": 1}}, "unknown key of seeds 'frist'; did you mean 'first'"),
        ({"seeds": {"first": 2**64 - 1, "count": 2}}, r"the last of seeds must be below 2\*\*64"),
        ({"seed": -1}, "seed must be at least 0, got -1"),
        ({"keep": ["verdcit"]}, "unknown keep 'verdcit'; did you mean 'verdict'"),
        ({"keep": "verdict"}, "keep must be a list of policy, Q"),
        ({"curves": 5}, "curves must go with 'curves' in keep, got 5"),
        ({"keep": ["curves"], "curves": 101}, r"curves must be at most 100 \(episodes\), got 101"),
        ({"import": ["no_such_module_here"]}, "import of 'no_such_module_here' must work, got ModuleNotFoundError"),
        ({"import": "x"}, "import must be a list of modules, got 'x'"),
    ],
)
def test_bad_specs_get_one_line_that_names_the_place(changes, said):
    with pytest.raises(sr.BadInput, match=said) as caught:
        spec_of(**changes)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_specs_say_so(tmp_path):
    with pytest.raises(sr.BadFile, match=r"spec must be an existing file, got '.*none.toml'"):
        load_spec(tmp_path / "none.toml")
    with pytest.raises(sr.BadFile, match=r"must be TOML, got: .*\(at line 2, column \d+\)"):
        load_spec(written(tmp_path, "episodes = 3\nseeds = = 4\n"))
    with pytest.raises(sr.BadFile, match=r"must be JSON, got: .*line 1"):
        load_spec(written(tmp_path, "{", "s.json"))
    with pytest.raises(sr.BadFile, match="must be a regular file, got a folder"):
        load_spec(tmp_path)
    with pytest.raises(sr.BadFile, match="/dev/null must be a regular file, got a device"):
        load_spec("/dev/null")
    with pytest.raises(sr.BadFile, match="spec must be a text file that can be read"):
        load_spec(__file__ + "/below")
    for text, name in (
        ("seeds = " + "[" * 10_000, "s.toml"),
        ("[" * 100_000, "s.json"),
        ("x = " + "9" * 5_000, "n.toml"),
    ):
        with pytest.raises(sr.BadFile, match=r"must be (TOML|JSON), got: "):
            load_spec(written(tmp_path, text, name))
    with pytest.raises(sr.BadInput, match="spec must be a file or a dictionary, got 3"):
        load_spec(3)


def test_code_that_numba_cannot_compile_is_found_before_the_first_run(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "bad_of_mine.py").write_text(
        MINE.replace("GapOfMine", "BadOfMine").replace("mean - r_min", "open(mean)")
    )
    text = 'import = ["bad_of_mine"]\n[models.cliff]\n[learners.replay]\nscheme = {kind = "BadOfMine"}\n'
    with pytest.raises(sr.BadInput, match="pair_weight of BadOfMine must be code that numba can compile"):
        load_spec(written(tmp_path, text))


def test_a_learner_on_states_of_its_own_is_refused():
    with pytest.raises(
        sr.BadInput, match=r"learners.cvar: learner must run on the states of its model in a sweep, got 'CVaR"
    ):
        spec_of(learners={"cvar": {}})


def test_hindsight_needs_goals_in_a_sweep_too():
    with pytest.raises(
        sr.BadInput, match=r"learners\.hindsight: mdp must have goals to learn in hindsight, got 'cliff'"
    ):
        spec_of(learners={"hindsight": {}})
    assert spec_of(models={"goal_room": {}}, learners={"hindsight": {}}).n_points == 1
