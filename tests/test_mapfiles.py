import re

import numpy as np
import pytest
from drawn import OPTIONS, random_maps
from hypothesis import given
from hypothesis import strategies as st

import safereplay as sr
from safereplay.grids import map_file, parsed
from safereplay.sources import model_from

CLIFF = """
......
......
SXXXXG

goal = 10.0
slip = 0.1
gamma = 0.95
goals = { "2,5" = 50.0 }
"""


def test_options_stand_under_the_map():
    text, options = parsed(CLIFF)
    assert text == "......\n......\nSXXXXG"
    assert options == {"goal": 10.0, "slip": 0.1, "gamma": 0.95, "goals": {"2,5": 50.0}}
    assert sr.grids.from_map(text, **options).r.max() == 50.0


@pytest.mark.parametrize(
    "content", ["S.\n.G\nslip = 0.1", "\n\nS.\n.G\n\n# a comment\nslip = 0.1 # more", "  S.\n  .G\n \n  slip=0.1\n"]
)
def test_what_is_between_map_and_options_does_not_matter(content):
    text, options = parsed(content)
    assert options == {"slip": 0.1}
    assert sr.grids.from_map(text) == sr.grids.from_map("S.\n.G")


@pytest.mark.parametrize("content", ["S.\n##\n.G", "\n#S.\n.G#\n\n", "", "  \n "])
def test_a_file_that_is_only_a_map_has_no_options(content):
    assert parsed(content) == (content.strip(), {})


def test_a_table_of_cells_can_have_a_heading():
    assert parsed('S>>G\n\nslip = 0.1\n[volatiles]\n"0,1" = [[1.0, 2.0]]\n"0,2" = [[1.0, 3.0]]')[1] == {
        "slip": 0.1,
        "volatiles": {"0,1": [[1.0, 2.0]], "0,2": [[1.0, 3.0]]},
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("S..G\n\nslipp = 0.1", "unknown option of the map 'slipp'; did you mean 'slip'?"),
        ("S..G\n\ntext = 'S'", "unknown option of the map 'text'; choose from fall_ends, gamma, goal, "),
        ("slip = 0.1\n\nS..G", "a map file must begin with its map, got 'slip = 0.1'"),
        ("S.\n\n.G", "the part below the map must be lines of name = value, as TOML has them, got "),
        ("S..G\n\nslip = high", "as TOML has them, got 'Invalid value (at line 3, column 8)'"),
        ("S..G\n\nslip = 0.1\nslip = 0.2", "as TOML has them, got 'Cannot overwrite a value (at "),
        ("S..G\n\nstart = " + "[" * 5000, "as TOML has them, got "),
        ("S..G\n\ngoal = " + "9" * 5000, "as TOML has them, got "),
    ],
)
def test_what_is_not_a_map_file_is_refused_in_one_line(content, message):
    with pytest.raises(sr.BadInput, match=re.escape(message)) as caught:
        parsed(content)
    assert "\n" not in str(caught.value)


def test_a_map_file_says_what_differs_from_the_defaults():
    options = {"slip": 0.1, "step": -1.0, "start": [(0, 1)], "fall_ends": False, "goals": {(0, 3): 50.0}, "name": "a"}
    assert map_file(" S.XG\n ....", **options) == (
        'S.XG\n....\n\ngoals = { "0,3" = 50.0 }\nslip = 0.1\nfall_ends = false\nstart = [[0, 1]]\nname = "a"\n'
    )
    assert map_file("S..G", gamma=0.9, goals=None, volatile=[(0.6, 100.0), (0.4, -100.0)]) == "S..G\n"


def test_what_is_no_model_is_not_written():
    with pytest.raises(sr.BadInput, match=re.escape("slip must be in [0, 1], got 2")):
        map_file("S..G", slip=2.0)
    with pytest.raises(sr.BadInput, match=re.escape("unknown option 'slipp'; did you mean 'slip'?")):
        map_file("S..G", slipp=0.1)


def test_numpys_numbers_are_written_as_plain_ones(tmp_path):
    options = {
        "slip": np.float32(0.1),
        "goal_slips": np.True_,
        "start": np.array([[0, 1]]),
        "volatile": np.array([[0.5, 1e-9], [0.5, -1e22]]),
    }
    (tmp_path / "a.map").write_text(map_file("S>.G", **options))
    assert model_from(str(tmp_path / "a.map")) == sr.grids.from_map("S>.G", **options)


@st.composite
def worlds(draw):
    """A map and options of from_map that make a model."""
    text = draw(random_maps())
    cells = [(i, j, c) for i, row in enumerate(text.split("\n")) for j, c in enumerate(row)]
    rewards = st.floats(-1e9, 1e9) | st.integers(-100, 100)
    offered = OPTIONS | {
        "gamma": st.floats(0.01, 0.99),
        "goal": rewards | st.just({(i, j): 1.0 + j for i, j, c in cells if c == "G"}),
        "goals": st.dictionaries(st.sampled_from([(i, j) for i, j, c in cells if c == "G"]), rewards),
        "start": st.sampled_from(["uniform", "S"]) | st.just([(i, j) for i, j, c in cells if c == "S"]),
        "name": st.text(st.characters(exclude_categories=["Cs"])),
    }
    if arrows := [(i, j) for i, j, c in cells if c in "^>v<"]:
        offered["volatiles"] = st.dictionaries(st.sampled_from(arrows), OPTIONS["volatile"])
    return text, draw(st.fixed_dictionaries({}, optional=offered))


@given(worlds())
def test_what_is_written_reads_back_as_the_same_model(tmp_path_factory, world):
    """To the last bit, name and all; or both are refused in the same words."""
    text, options = world
    try:
        wanted = sr.grids.from_map(text, **options)
    except sr.BadInput as error:
        with pytest.raises(sr.BadInput, match=re.escape(str(error))):
            map_file(text, **options)
        return
    file = tmp_path_factory.getbasetemp() / "map.txt"  # so that the default name is the same
    file.write_text(map_file(text, **options), encoding="utf-8")
    again = model_from(str(file))
    assert again == wanted
    assert again.name == wanted.name
    assert again.layout == wanted.layout
