import copy
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import safereplay as sr
from safereplay import _files
from safereplay import mdp as mdp_module
from safereplay.mdp import Layout, _order

build = sr.TabularMDP.from_outcomes
COIN = [(0, 0, 0.5, 1, 1.0, True, False), (0, 0, 0.5, 0, -1.0, False, True)]


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


@st.composite
def tables(draw):
    """(n_states, n_actions, rows) of a random model; the last state is terminal."""
    S, A = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rows = []
    for s in range(S):
        for a in range(A):
            weights = draw(st.lists(st.floats(0.01, 1), min_size=1, max_size=5))
            for weight in weights:
                s_next, r = draw(st.integers(0, S - 1)), draw(st.sampled_from([-1.0, 0.0, -0.0, 2.5, 1e9]))
                rows.append((s, a, weight / sum(weights), s_next, r, draw(st.booleans()), draw(st.booleans())))
    return S + 1, A, draw(st.permutations(rows))


# -- building -----------------------------------------------------------------------------------------------------------


@given(tables())
def test_a_table_is_the_same_distribution_sorted_and_merged(table):
    S, A, rows = table
    mdp = build(S, A, rows)
    for s in range(S - 1):
        for a in range(A):
            o = mdp.outcomes(s, a)
            keys = list(zip(o.r.tolist(), o.s_next.tolist(), o.terminal.tolist(), o.unsafe.tolist(), strict=True))
            assert keys == sorted(set(keys))
            assert o.p.sum() == pytest.approx(1.0, abs=1e-15 * o.p.size)
            for key, p in zip(keys, o.p, strict=True):
                assert p == pytest.approx(sum(x[2] for x in rows if x[:2] == (s, a) and (x[4], x[3], *x[5:]) == key))
            assert len(keys) == len({(x[4] + 0.0, x[3], *x[5:]) for x in rows if x[:2] == (s, a)})
    assert mdp.is_terminal.tolist() == [False] * (S - 1) + [True]
    assert mdp.outcomes(S - 1, 0).p.size == 0


def test_alike_outcomes_are_merged_and_the_rest_sorted_by_reward_then_next_state():
    rows = [
        (0, 0, 0.2, 2, 5.0),
        (0, 0, 0.1, 1, 5.0),
        (0, 0, 0.3, 1, -5.0),
        (0, 0, 0.1, 2, 5.0),
        (0, 0, 0.3, 1, 5.0, True),
    ]
    rows += [(s, 0, 1.0, 0, 0.0, True) for s in (1, 2)]
    o = build(3, 1, rows).outcomes(0, 0)
    assert o.r.tolist() == [-5.0, 5.0, 5.0, 5.0]
    assert o.s_next.tolist() == [1, 1, 1, 2]
    assert o.terminal.tolist() == [False, False, True, False]
    assert o.p.tolist() == pytest.approx([0.3, 0.1, 0.3, 0.3])


def test_minus_zero_and_zero_are_one_reward():
    mdp = build(1, 1, [(0, 0, 0.5, 0, -0.0, True), (0, 0, 0.5, 0, 0.0, True)])
    assert mdp.r.tolist() == [0.0]
    assert not np.signbit(mdp.r).any()


def test_outcomes_without_probability_are_left_out():
    mdp = build(2, 1, [(0, 0, 1.0, 1, 1.0, True), (0, 0, 0.0, 0, 99.0)])
    assert mdp.r.tolist() == [1.0]


def test_flags_may_be_left_out_and_an_array_serves_as_well():
    short = build(2, 1, [(0, 0, 0.5, 0, 1.0), (0, 0, 0.5, 1, 1.0, True)])
    rows = np.array([(0, 0, 0.5, 0, 1.0, 0, 0), (0, 0, 0.5, 1, 1.0, 1, 0)])
    assert short == build(2, 1, rows) == build(2, 1, iter(rows.tolist()))
    assert not short.unsafe.any()


def test_extreme_rewards_are_told_apart_without_a_warning():
    """The largest that are allowed, and the smallest float, which is not zero."""
    for rewards in ([-1e100, 1e100], [0.0, 5e-324]):
        assert build(1, 1, [(0, 0, 0.5, 0, r, True) for r in rewards]).r.tolist() == rewards


def test_rewards_whose_squares_are_no_numbers_are_refused():
    with fails("r of (s=0, a=0) must lie within ±1e+100, got -1.7e+308; in row 1"):
        build(1, 1, [(0, 0, 0.5, 0, r, True) for r in (1.0, -1.7e308)])


def test_the_start_is_uniform_over_states_that_are_not_terminal():
    mdp = build(4, 1, [(s, 0, 1.0, 3, 0.0, True) for s in (0, 2)])
    assert mdp.start.tolist() == [0.5, 0.0, 0.5, 0.0]
    assert mdp.is_terminal.tolist() == [False, True, False, True]
    assert mdp.with_start(2).start.tolist() == [0.0, 0.0, 1.0, 0.0]
    assert mdp.with_start(np.int64(0)).start.tolist() == [1.0, 0.0, 0.0, 0.0]
    assert mdp.with_start([0.25, 0, 0.75, 0]).start.tolist() == [0.25, 0.0, 0.75, 0.0]
    assert mdp.with_start(2).with_start(None) == mdp


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, COIN), "n_states must be at least 1, got 0"),
        ((2, 0, COIN), "n_actions must be at least 1, got 0"),
        ((2.0, 1, COIN), "n_states must be a whole number, got 2"),
        ((2, 1, COIN, 0.0), "gamma must be in (0, 1), got 0"),
        ((2, 1, COIN, 1.0), "gamma must be in (0, 1), got 1"),
        ((2, 1, COIN, -0.5), "gamma must be in (0, 1), got -0.5"),
        ((2, 1, COIN, float("nan")), "gamma must be finite, got nan"),
        ((2, 1, COIN, "0.9"), "gamma must be a number, got '0.9'"),
        ((2, 1, []), "rows must be (s, a, p, s_next, r, ...), got "),
        (
            (2, 1, [("a", 0, 1, 0, 0)]),
            "rows must be numbers (s, a, p, s_next, r, terminal, unsafe), got something else",
        ),
        ((2, 1, [(0,) * 8]), "rows must be (s, a, p, s_next, r, ...), got (1, 8)"),
        ((2, 1, np.zeros((3, 6))), "rows must be (s, a, p, s_next, r, ...), got (3, 6)"),
        ((2, 1, [(0, 0, 1.0)]), "rows must be"),
        ((2, 1, [(0, 0, 1.0, 0)]), "rows must be"),
        ((2, 1, [1, 2, 3]), "rows must be"),
        ((2, 1, None), "rows must be"),
        ((2, 1, [(2, 0, 1.0, 0, 0.0)]), "s of row 0 must be a whole number in 0..1, got 2"),
        ((2, 1, [*COIN, (-1, 0, 1.0, 0, 0.0)]), "s of row 2 must be a whole number in 0..1, got -1"),
        ((2, 1, [(0.5, 0, 1.0, 0, 0.0)]), "s of row 0 must be a whole number in 0..1, got 0.5"),
        ((2, 1, [(float("nan"), 0, 1.0, 0, 0.0)]), "s of row 0 must be a whole number in 0..1, got nan"),
        ((2, 1, [(0, 1, 1.0, 0, 0.0)]), "a of row 0 must be a whole number in 0..0, got 1"),
        ((2, 1, [(0, 0, 1.0, 9, 0.0)]), "s_next of row 0 must be a whole number in 0..1, got 9"),
        ((2, 1, [(0, 0, 1.0, 1e300, 0.0)]), "s_next of row 0 must be a whole number in 0..1, got 1e+300"),
        ((2, 1, [(0, 0, 1.0, 0, float("nan"))]), "r of (s=0, a=0) must be finite, got nan; in row 0"),
        ((2, 1, [(0, 0, 1.0, 0, float("inf"))]), "r of (s=0, a=0) must be finite, got inf; in row 0"),
        ((2, 1, [(0, 0, 1.0, 0, -float("inf"))]), "r of (s=0, a=0) must be finite, got -inf; in row 0"),
        ((2, 1, [*COIN, (1, 0, float("nan"), 0, 0.0)]), "p of (s=1, a=0) must be finite, got nan; in row 2"),
        ((2, 1, [(0, 0, 1.5, 0, 0.0), (0, 0, -0.5, 0, 0.0)]), "p of (s=0, a=0) must be at least 0, got -0.5; in row 1"),
        ((2, 1, [(0, 0, 0.5, 0, 1.0), (0, 0, 0.47, 0, 0.0)]), "outcomes of (s=0, a=0) must sum to 1, got 0.97"),
        ((2, 1, [(0, 0, 1.0, 0, 1.0), (0, 0, 0.03, 0, 0.0)]), "outcomes of (s=0, a=0) must sum to 1, got 1.03"),
        ((2, 2, [(1, 0, 1.0, 1, 1.0)]), "outcomes of (s=1, a=1) must sum to 1, got 0"),
        (
            (2, 1, [(0, 0, 1.0, 1, 1.0)]),
            "outcome of (s=0, a=0) to s_next=1 must be terminal or lead to a state with outcomes, got",
        ),
        ((2, 1, [(0, 0, 0.0, 1, 1.0)]), "rows must leave a state that is not terminal, got 0"),
        ((2, 1, COIN, 0.9, 5), "start must be a state in 0..1, got 5"),
        ((2, 1, COIN, 0.9, -1), "start must be a state in 0..1, got -1"),
        ((2, 1, COIN, 0.9, 1), "start must give terminal states probability 0, got 1"),
        ((2, 1, COIN, 0.9, [0.75, 0.25]), "start must give terminal states probability 0, got 0.25"),
        ((2, 1, COIN, 0.9, [0.5, 0.4]), "start must sum to 1, got 0.9"),
        ((2, 1, COIN, 0.9, [2.0, -1.0]), "start must have no negative entry, got -1"),
        ((2, 1, COIN, 0.9, [1.0]), "start must have shape (2,), got (1,)"),
        ((2, 1, COIN, 0.9, "S"), "start must be an array of numbers, got 'S'"),
    ],
)
def test_what_is_not_a_model_is_refused_with_the_place_and_the_value(arguments, message):
    with fails(message):
        build(*arguments)


def test_probabilities_may_be_off_by_rounding():
    assert build(1, 1, [(0, 0, 0.1, 0, float(k), True) for k in range(10)]).p.sum() == pytest.approx(1.0, abs=1e-15)
    assert build(1, 1, [(0, 0, 1 + 5e-10, 0, 0.0, True)]).p.tolist() == [1.0]


@given(tables(), st.data())
def test_pieces_make_the_same_model_as_all_rows_at_once(table, data):
    S, A, rows = table
    cut = sorted(data.draw(st.lists(st.integers(0, S * A), max_size=3)))
    bounds = list(zip([0, *cut], [*cut, S * A], strict=True))
    pieces = [[x for x in rows if low <= x[0] * A + x[1] < high] for low, high in bounds]
    assert sr.TabularMDP.from_pieces(S, A, filter(None, pieces)) == build(S, A, rows)


def test_pieces_out_of_order_or_none_at_all_are_refused():
    first, second = [(0, 0, 0.5, 0, 1.0), (0, 0, 0.5, 1, 1.0)], [(1, 0, 1.0, 0, 0.0, True)]
    nothing = [(1, 0, 0.0, 0, 0.0)]
    assert sr.TabularMDP.from_pieces(2, 1, iter([first, nothing, second])).r.tolist() == [1.0, 1.0, 0.0]
    for pieces, place in (([second, first], 1), ([first, nothing, first], 2)):
        with fails(f"piece {place} must begin with a later pair than the pieces before, got 'an earlier one'"):
            sr.TabularMDP.from_pieces(2, 1, pieces)
    with fails("pieces must be at least one, got 'none'"):
        sr.TabularMDP.from_pieces(2, 1, [])


def test_more_kinds_of_outcomes_than_one_number_can_tell_apart_are_sorted_all_the_same():
    """2 pairs × 2 rewards × 2⁶⁰ states: (pair, reward, next state) does not fit 63 bits, but the order is the same."""
    columns = (
        np.array([1, 0, 1, 0, 1]),
        np.array([2.0, 2.0, -1.0, 2.0, 2.0]),
        np.array([3, 1, 2, 0, 1]),
        np.zeros(5, int),
    )
    assert _order(*columns, 1 << 60).tolist() == _order(*columns, 4).tolist() == [3, 1, 2, 4, 0]


# -- reading ------------------------------------------------------------------------------------------------------------


def test_pairs_expectations_and_variances_are_those_of_the_rows():
    mdp = build(2, 2, [(0, 0, 0.6, 0, 100.0), (0, 0, 0.4, 0, -100.0), (0, 1, 1.0, 1, 3.0, True)], gamma=0.5)
    assert mdp.n_pairs == 4
    assert mdp.pair.tolist() == [0, 0, 1]
    assert mdp.row.tolist() == [0, 2, 3, 3, 3]
    assert mdp.expect(mdp.r).tolist() == pytest.approx(np.array([[20.0, 3.0], [0.0, 0.0]]))
    assert mdp.reward_variance == pytest.approx(np.array([[9600.0, 0.0], [0.0, 0.0]]))
    assert mdp.expect(np.ones(3), np.array([0.1, 0.2, 0.3])) == pytest.approx(np.array([[0.3, 0.3], [0, 0]]))


def test_the_origin_is_the_layouts_or_the_likeliest_start():
    assert build(2, 1, COIN).origin == 0
    mdp = build(3, 1, [(s, 0, 1.0, s, 0.0, True) for s in range(3)], start=[0.2, 0.5, 0.3])
    assert mdp.origin == 1
    assert sr.grids.cliff().origin == 18


@pytest.mark.parametrize(
    ("s", "a", "message"),
    [
        (2, 0, "s must be below 2, got 2"),
        (-1, 0, "s must be at least 0, got -1"),
        (0, 1, "a must be below 1, got 1"),
        (0, -1, "a must be"),
    ],
)
def test_a_pair_that_does_not_exist_is_refused(s, a, message):
    with fails(message):
        build(2, 1, COIN).outcomes(s, a)


def test_no_array_of_a_model_can_be_written_to():
    mdp = sr.grids.cliff()
    names = ["row", "p", "s_next", "r", "terminal", "unsafe", "start", "pair", "is_terminal", "reward_variance"]
    for array in [*(getattr(mdp, name) for name in names), *mdp.outcomes(0, 0)]:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError, match="cannot assign"):
        mdp.gamma = 0.5
    assert mdp == sr.grids.cliff()


def test_an_array_that_a_user_handed_in_stays_writable_and_apart():
    rows, start = np.array([(0, 0, 1.0, 0, 1.0, 0, 0), (1, 0, 1.0, 0, 1.0, 0, 0)]), np.array([0.5, 0.5])
    mdp = build(2, 1, rows, start=start)
    rows[:] = start[:] = 9.0
    assert mdp.r.tolist() == [1.0, 1.0]
    assert mdp.start.tolist() == [0.5, 0.5]


def test_copies_and_pickles_are_equal_and_frozen_too():
    mdp = sr.grids.volatile()
    for other in (copy.deepcopy(mdp), pickle.loads(pickle.dumps(mdp))):  # noqa: S301
        assert other == mdp
        with pytest.raises(ValueError, match="read-only"):
            other.p[0] = 0.5


def test_a_model_equals_itself_and_nothing_else():
    mdp = sr.grids.cliff()
    assert mdp == sr.grids.cliff()
    assert mdp != mdp.with_gamma(0.5)
    assert mdp != mdp.with_start(0)
    assert mdp != sr.grids.cliff(layout="gap")
    assert mdp != sr.grids.cliff(slip=0.2)
    assert mdp != "cliff"
    with pytest.raises(TypeError, match="unhashable"):
        hash(mdp)


def test_another_gamma_leaves_the_rest_alone():
    mdp = sr.grids.cliff()
    assert mdp.with_gamma(0.5).gamma == 0.5
    assert mdp.with_gamma(0.5).with_gamma(mdp.gamma) == mdp
    with fails("gamma must be in (0, 1), got 2"):
        mdp.with_gamma(2)


def test_a_model_says_what_it_is_in_one_line():
    assert repr(build(2, 1, COIN)) == (
        "TabularMDP(2 states × 1 actions, 2 outcomes, gamma=0.9, rewards -1 to 1, 1 terminal state, 1 unsafe outcome)"
    )
    assert repr(sr.grids.cliff()) == (
        "TabularMDP(4×6 grid, 24 states × 4 actions, 289 outcomes, gamma=0.95, rewards -12 to 10, 5 terminal states, "
        "20 unsafe outcomes)"
    )


def test_a_layout_finds_the_state_of_a_cell():
    layout = sr.grids.from_map("S#G\n...").layout
    assert layout.shape == (2, 3)
    assert layout.rows == ["S#G", "..."]
    assert [layout.state_at(*cell) for cell in layout.cells] == list(range(5))
    for cell in [(0, 1), (2, 0), (-1, 0)]:
        with fails(f"cell must be a free cell of the 2×3 map, got {cell}"):
            layout.state_at(*cell)


# -- files --------------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(tables(), st.floats(0.01, 0.99), st.data())
def test_what_is_saved_is_loaded_equal_to_the_last_bit(tmp_path_factory, table, gamma, data):
    S, A, rows = table
    weights = np.array([*data.draw(st.lists(st.floats(0.01, 1), min_size=S - 1, max_size=S - 1)), 0.0])
    mdp = build(S, A, rows, gamma, weights / weights.sum(), name="mine")
    file = mdp.save(tmp_path_factory.getbasetemp() / "model.npz")
    loaded = sr.TabularMDP.load(file)
    assert loaded == mdp
    assert loaded.name == "mine"


@pytest.mark.parametrize(
    "mdp", [sr.grids.cliff(), sr.grids.volatile(), sr.grids.from_map("S#G\n...", start="S")], ids=str
)
def test_a_grid_is_loaded_with_its_layout(mdp, tmp_path):
    loaded = sr.TabularMDP.load(mdp.save(tmp_path / "grid.npz"))
    assert loaded == mdp
    assert loaded.layout == mdp.layout
    assert loaded.name == mdp.name
    assert repr(loaded) == repr(mdp)
    with pytest.raises(ValueError, match="read-only"):
        loaded.r[0] = 1.0


def rewritten(tmp_path, change):
    """A saved cliff whose meta data and arrays were changed, in an archive that is otherwise in order."""
    meta, arrays = _files.load_arrays(sr.grids.cliff().save(tmp_path / "m.npz"), "TabularMDP", 1)
    change(meta, arrays)
    return _files.save_arrays(tmp_path / "m.npz", "TabularMDP", 1, meta, arrays)


def set_in(place, key, value):
    def change(meta, arrays):
        (meta if place == "meta" else arrays)[key] = value

    return change


def without(place, key):
    def change(meta, arrays):
        del (meta if place == "meta" else arrays)[key]

    return change


@pytest.mark.parametrize(
    "change",
    [
        without("arrays", "p"),
        without("arrays", "pair"),
        without("arrays", "start"),
        without("meta", "gamma"),
        without("meta", "layout"),
        set_in("meta", "layout", 7),
        set_in("meta", "layout", {"text": "..", "cells": [1, 2], "origin": 0}),
    ],
)
def test_a_file_with_parts_missing_is_refused(tmp_path, change):
    with pytest.raises(sr.BadFile, match=r"m\.npz must be a saved TabularMDP, got one with parts missing"):
        sr.TabularMDP.load(rewritten(tmp_path, change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_in("meta", "gamma", 1.5), "gamma must be in (0, 1), got 1.5"),
        (set_in("meta", "n_states", 3), "must"),
        (set_in("meta", "n_states", "many"), "must"),
        (set_in("meta", "n_actions", None), "must"),
        (set_in("meta", "n_actions", 0), "must"),
        (set_in("arrays", "p", np.ones(289)), "outcomes of (s=0, a=0) must sum to 1, got 3"),
        (set_in("arrays", "p", np.ones(5)), "must"),
        (set_in("arrays", "r", np.full(289, np.nan)), "r of (s=0, a=0) must be finite, got nan"),
        (set_in("arrays", "r", np.array(["x"] * 289)), "must"),
        (set_in("arrays", "start", np.ones(24)), "start must"),
        (set_in("meta", "layout", {"text": "..", "cells": [[0, 0]], "origin": 0}), "must"),
        (set_in("meta", "layout", {"text": 5, "cells": [[0, 0]] * 24, "origin": 0}), "must"),
        (set_in("meta", "layout", {"text": "..", "cells": [[0, 0]] * 24, "origin": 99}), "must"),
        *(
            (
                set_in("meta", "layout", {"text": "..\n..", "cells": [[0, 0]] * 23 + [cell], "origin": 0}),
                "cells of the layout must lie on the 2×2 map, got (",
            )
            for cell in ([0, 2], [2, 0], [-1, 0], [0, 10**30], [0.0, 1.0], [True, 0], [0], [0, 0, 0], ["0", "0"])
        ),
        (
            set_in("meta", "layout", {"text": "..\n...", "cells": [[0, 0]] * 24, "origin": 0}),
            "lines of the layout must be of one length",
        ),
    ],
)
def test_a_file_whose_content_is_not_a_model_is_bad_input(tmp_path, change, message):
    """What a file says is checked again, as if it were new."""
    with fails(message):
        sr.TabularMDP.load(rewritten(tmp_path, change))


def test_a_file_of_another_kind_or_a_newer_version_is_refused(tmp_path):
    file = _files.save_arrays(tmp_path / "a", "Agent", 1, {}, {})
    with pytest.raises(sr.BadFile, match="must be a saved TabularMDP, got a saved Agent"):
        sr.TabularMDP.load(file)
    file = _files.save_arrays(tmp_path / "a", "TabularMDP", 2, {}, {})
    with pytest.raises(sr.BadFile, match="must be of format 1 or older, got format 2"):
        sr.TabularMDP.load(file)
    with pytest.raises(sr.BadFile, match="must be a saved TabularMDP, got no such file"):
        sr.TabularMDP.load(tmp_path / "nowhere")


def test_a_cell_of_a_large_map_is_found_at_once():
    """The cells are gone through once, however many are looked up."""
    n, passes = 200, []

    class Cells(tuple):
        def __iter__(self):
            passes.append(1)
            return super().__iter__()

        def index(self, *_):
            raise AssertionError

    layout = Layout("\n".join(["." * n] * n), Cells((i, j) for i in range(n) for j in range(n)), 0)
    passes.clear()
    assert all(layout.state_at(k % n, n - 1) == k % n * n + n - 1 for k in range(10_000))
    assert len(passes) == 1
    layout = Layout(layout.text, tuple(layout.cells), 0)
    assert layout == Layout(layout.text, layout.cells, 0)
    assert pickle.loads(pickle.dumps(layout)) == layout  # noqa: S301


def test_of_several_states_in_one_cell_the_first_is_found():
    assert Layout("..", ((0, 1), (0, 0), (0, 1)), 0).state_at(0, 1) == 0


def test_a_layout_is_plain_data():
    assert Layout("S.", ((0, 0), (0, 1)), 0) == Layout("S.", ((0, 0), (0, 1)), 0)


# -- a search ----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.data())
def test_a_search_in_few_edges_finds_what_one_in_a_sparse_matrix_does(n, data):
    states = st.integers(0, n - 1)
    edges = np.array(data.draw(st.lists(st.tuples(states, states), max_size=60)), np.int64).reshape(-1, 2)
    seeds = np.array(data.draw(st.lists(states, max_size=3)), np.int64)
    bits, matrix = mdp_module._by_bits(n, seeds, *edges.T), mdp_module._by_matrix(n, seeds, *edges.T)
    assert bits.dtype == matrix.dtype == np.bool_
    assert bits.tolist() == matrix.tolist()
