from itertools import pairwise
from typing import get_args

import numpy as np
import pytest
from models import same_model
from pydantic import ValidationError

import safereplay as sr
from safereplay import catalog, worlds
from safereplay.web.kinds import KINDS, MIXINGS, SCHEMES, Side, bounds_of, dials_of, learner_dials
from safereplay.web.learners import learner_of
from safereplay.web.state import TITLES, LearnerLink, Name, OpenLink, StateLink, WorldLink, presets

# -- worlds ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sr.grids.NAMED)
def test_a_preset_is_the_grid_of_its_name(name):
    assert same_model(WorldLink(world=name).to_world().mdp(), sr.grids.NAMED[name]())


def test_the_large_lake_is_gymnasiums():
    """To the last bit but one: there a probability is 1/3, here 1 − 2/3."""
    ours, theirs = WorldLink(world="lake").to_world().mdp(), worlds.lake()
    for name in ("s_next", "r", "terminal", "unsafe", "row", "start", "gamma", "origin"):
        assert np.array_equal(getattr(ours, name), getattr(theirs, name)), name
    np.testing.assert_allclose(ours.p, theirs.p, rtol=0, atol=1e-15)


def test_the_menu_and_the_link_know_the_same_worlds():
    assert get_args(Name) == tuple(TITLES) == tuple(presets())
    assert list(TITLES)[-1] == "blank"
    groups = [text.group for text in TITLES.values()]
    assert len(set(groups)) == 1 + sum(one != other for one, other in pairwise(groups))


def test_a_link_changes_what_it_says_and_nothing_else():
    link = WorldLink(world="cliff", map="S1r/1XG", goals="1.2~50", volatiles="0.2~0.9:4,0.1:-60", slip=0.2)
    world = link.to_world()
    assert world.rows == ("S.>", ".XG")
    expected = sr.grids.from_map(
        "S.>\n.XG",
        gamma=0.95,
        goal=10.0,
        goals={(1, 2): 50.0},
        hazard=-12.0,
        volatiles={(0, 2): [(0.9, 4.0), (0.1, -60.0)]},
        slip=0.2,
    )
    assert same_model(world.mdp(), expected)


def test_episodes_are_judged_from_every_cell_marked_s():
    world = WorldLink(map="S2/3/S1G").to_world()
    assert world.judged() == [0, 6]
    assert world.start_distribution()[[0, 6]].tolist() == [0.5, 0.5]
    assert WorldLink(world="volatile").to_world().judged() == [sr.grids.volatile().origin]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"map": "21/G"}, "map must have at most 20 columns, got '21'"),
        ({"map": "99999999999999999999G"}, "map must have at most 20 columns"),
        ({"map": "/".join(["G"] * 21)}, "map must have at most 20 rows, got 21"),
        ({"map": "2G/2"}, r"map must have rows of equal length, got \[3, 2\]"),
        ({"map": "2?G"}, "map must be numbers and letters of WSGXurdl, got '2.G'"),
        ({"map": "S//G"}, "map must have no empty row"),
        ({"map": "0/0"}, "map must have no empty row"),
        ({"map": "²G"}, "map must be numbers and letters"),
        ({"map": "S2"}, "text must have a goal G, got 'none'"),
        ({"map": "SWG"}, "must be reachable from a start"),
        ({"goals": "3.5"}, "goals must be ROW.COLUMN~VALUE, separated by ';', got '3.5'"),
        ({"goals": "3.5~1e9"}, r"goals must be in \[-1e\+06, 1e\+06\], got 1000000000"),
        ({"goals": "0.0~5"}, "goals"),
        ({"volatile": "0.5:1,0.4:2"}, r"p of volatile must sum to 1, got 0\.9"),
        ({"volatile": "1:5"}, "volatile must have two rewards, got 1"),
        ({"volatile": "nan:1,0.5:2"}, "p of volatile must be a number, got 'nan'"),
        ({"volatile": "0.2:1,0.2:1,0.6:1"}, "volatile must have two rewards, got 3"),
        ({"volatiles": "0.0~0.5:1,0.5:2"}, "volatiles"),
    ],
)
def test_a_world_that_cannot_be_is_refused_in_one_line(changes, said):
    with pytest.raises(sr.BadInput, match=said) as caught:
        WorldLink(**changes).to_world().mdp()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"slip": 1.5},
        {"gamma": 1.0},
        {"gamma": 0.0},
        {"goal": float("nan")},
        {"step": 1e7},
        {"slip_to": "north"},
        {"color": "red"},
    ],
)
def test_what_is_out_of_bounds_does_not_become_a_link(changes):
    with pytest.raises(ValidationError):
        WorldLink(**changes)


# -- sides ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_side_survives_its_text(kind):
    side = Side.parse(kind)
    assert Side.parse(side.text) == side
    assert side.to_dict() == {"kind": kind, **{name: default for name, (_, default) in dials_of(kind).items()}}
    assert isinstance(learner_of(presets()["cliff"], side), sr.Learner)


def test_a_side_is_the_learner_it_says():
    side = Side.parse("replay,v:0.25,beta:-1.5,mixing:matched,scheme:score")
    world = presets()["cliff"]
    assert learner_of(world, side) == sr.ReplayQLearning(sr.ScoreReplay(beta=-1.5), v=0.25, mixing="matched")
    assert learner_of(world, Side.parse("gaskett,beta:0.3")) == sr.Pessimistic(0.3)
    assert learner_of(world, Side.parse("mihatsch,kappa:-0.5")) == sr.RiskSensitive(-0.5)


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_replay_has_the_dials_of_its_scheme(scheme, mixing):
    side, kind = Side.parse(f"replay,mixing:{mixing},scheme:{scheme}"), catalog.scheme(scheme)
    assert Side.parse(side.text) == side
    assert list(side.dials()) == ["v", *kind.dials(), "mixing", "scheme"]
    assert learner_of(presets()["cliff"], side) == sr.ReplayQLearning(kind(), mixing=mixing)


def test_every_learner_that_runs_on_a_map_and_every_scheme_has_a_place():
    assert {*KINDS} == {*catalog.LEARNERS, "design"} - {"cvar", "hindsight"}
    assert {*SCHEMES} == {*catalog.SCHEMES}


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_has_a_slider_within_its_bounds(kind):
    about = learner_dials()[kind]
    of_schemes = [(one["dials"], one["sliders"]) for one in about["choices"].get("scheme", ())]
    for defaults, sliders in [(about["defaults"], about["sliders"]), *of_schemes]:
        assert set(sliders) == {name for name, x in defaults.items() if not isinstance(x, str)}
        for name, slider in sliders.items():
            low, high = (
                float(end)
                for end in bounds_of(name, dials_of(kind).get(name, [None])[0] or sliders_dial(name))[1:-1].split(",")
            )
            assert low <= slider["min"] < slider["max"] <= high
            assert slider["label"]
            assert slider["hint"]
            if defaults[name] is not None:
                assert slider["min"] <= defaults[name] <= slider["max"]


def sliders_dial(name):
    """The dial of a scheme other than the paper's."""
    return next(dials[name][0] for dials in (catalog.scheme(one).dials() for one in SCHEMES) if name in dials)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "unknown learner ''"),
        ("repaly", "unknown learner 'repaly'; did you mean 'replay'?"),
        ("replay,v:1", r"v must be in \[0, 0.9999\], got 1"),
        ("replay,v:inf", "v must be a number, got 'inf'"),
        ("replay,beta:1_0", "beta must be a number, got '1_0'"),
        ("replay,kappa:0.5", "dial of replay must be one of v, beta, mixing, scheme, got 'kappa'"),
        ("q,v:0.5", "dial of q must be one of none, got 'v'"),
        ("replay,scheme:cvar,beta:1", "dial of replay must be one of v, alpha, mixing, scheme, got 'beta'"),
        ("replay,scheme:nothing", "unknown scheme 'nothing'"),
        ("replay,scheme:bold,beta:1", r"beta must be in \[-100, 0\], got 1"),
        ("replay,beta:1e9", r"beta must be in \[-100, 100\], got 1000000000"),
        ("exponential,theta:-1e3", r"theta must be in \[-100, 100\], got -1000"),
        ("error-states,scale:1e9", r"scale must be in \(0, 1e\+06\], got 1000000000"),
        ("window,window:1e9", r"window must be in \[1, 100000\], got 1000000000"),
        ("dyna,planning:2.5", r"planning must be a whole number, got 2\.5"),
        ("dyna,model:first", "unknown model 'first'"),
        ("prioritised,v:1", r"v must be in \[0, 0.9999\], got 1"),
        ("cvar", "unknown learner 'cvar'"),
        ("gaskett,beta:2", r"beta must be in \[0, 1\], got 2"),
        ("replay,mixing:matchd", "unknown mixing 'matchd'; did you mean 'matched'?"),
    ],
)
def test_a_learner_that_cannot_be_is_refused_in_one_line(text, said):
    with pytest.raises(sr.BadInput, match=said):
        LearnerLink(learner=text).to_side()


def test_the_default_state_is_the_cliff_under_plain_and_shaped_learning():
    state = StateLink().to_state()
    assert state["world"]["name"] == "cliff"
    assert (state["left"]["kind"], state["right"]["kind"], state["right"]["v"]) == ("q", "replay", 0.5)


def test_a_state_may_have_an_unfinished_world_and_parameters_of_others():
    state = OpenLink.model_validate({"map": "S2/3", "fbclid": "x", "lesson": "3"}).to_state()
    assert state["world"]["rows"] == ("S..", "...")
    with pytest.raises(sr.BadInput, match="unknown learner"):
        OpenLink(left="nobody").to_state()
    with pytest.raises(ValidationError):
        OpenLink.model_validate({"gamma": "0"})
