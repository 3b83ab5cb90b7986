"""Gymnasium both ways: tables read off environments, and models stepped as environments."""

import inspect
import pickle
import subprocess
import sys
import warnings
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import safereplay as sr
from safereplay.gym import CELL, TILES, TabularEnv, make_grid_env, table_of

IDS = ("safereplay/Volatile-v0", "safereplay/Cliff-v0")
TAXI = "Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"
TABLES = [
    ("FrozenLake-v1", {}),
    ("FrozenLake-v1", {"is_slippery": False}),
    ("FrozenLake-v1", {"map_name": "8x8"}),
    ("FrozenLake-v1", {"map_name": "8x8", "is_slippery": False}),
    ("CliffWalking-v1", {}),
    ("CliffWalking-v1", {"is_slippery": True}),
    (TAXI, {}),
    (TAXI, {"is_rainy": True}),
]


class Table(gymnasium.Env):
    """A table P and nothing else: what someone else's environment may look like."""

    def __init__(self, P, S, A, start=None):
        self.observation_space = gymnasium.spaces.Discrete(S)
        self.action_space = gymnasium.spaces.Discrete(A)
        self.P = P
        if start is not None:
            self.initial_state_distrib = start


def read(P, S, start=None, A=1, unsafe=None):
    return sr.TabularMDP.from_gymnasium(Table(P, S, A, start), unsafe=unsafe)


def values(P, S, A, gamma, sweeps=3_000):
    """V* by value iteration on Gymnasium's own table, as an independent method."""
    rows = np.array([(s, a, *o) for s in range(S) for a in range(A) for o in P[s][a]], float)
    pair, s_next = (rows[:, 0] * A + rows[:, 1]).astype(int), rows[:, 3].astype(int)
    V = np.zeros(S)
    for _ in range(sweeps):
        targets = rows[:, 2] * (rows[:, 4] + gamma * (1 - rows[:, 5]) * V[s_next])
        V = np.bincount(pair, targets, S * A).reshape(S, A).max(1)
    return V


def run_python(code):
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# -- in: the table of an environment ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "options"), TABLES)
def test_the_optimal_values_are_those_of_gymnasiums_own_table(env_id, options):
    inner = gymnasium.make(env_id, **options).unwrapped
    mdp = sr.TabularMDP.from_gymnasium(env_id, gamma=0.95, **options)
    S, A = mdp.n_states, mdp.n_actions
    theirs, ours = values(inner.P, S, A, 0.95), values(TabularEnv(mdp).P, S, A, 0.95)
    acted_in = ~mdp.is_terminal
    np.testing.assert_allclose(ours[acted_in], theirs[acted_in], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(mdp.start, inner.initial_state_distrib)
    assert np.ptp(theirs[acted_in]) > 0.1


def test_the_shortest_way_of_cliff_walking_has_thirteen_steps():
    mdp = sr.TabularMDP.from_gymnasium("CliffWalking-v1", gamma=0.99)
    V = values(TabularEnv(mdp).P, 48, 4, 0.99)
    assert V[36] == pytest.approx(-(1 - 0.99**13) / (1 - 0.99), abs=1e-9)


@pytest.mark.parametrize("options", [options for env_id, options in TABLES if env_id == "FrozenLake-v1"])
def test_a_hole_of_frozen_lake_is_unsafe_and_the_goal_is_not(options):
    cells = gymnasium.make("FrozenLake-v1", **options).unwrapped.desc.astype(str).ravel()
    mdp = sr.TabularMDP.from_gymnasium("FrozenLake-v1", **options)
    np.testing.assert_array_equal(mdp.unsafe, cells[mdp.s_next] == "H")
    np.testing.assert_array_equal(mdp.terminal, np.isin(cells[mdp.s_next], ["H", "G"]))
    np.testing.assert_array_equal(mdp.is_terminal, np.isin(cells, ["H", "G"]))


@pytest.mark.parametrize("slippery", [False, True])
def test_a_fall_of_cliff_walking_is_unsafe_and_its_goal_has_no_outcomes(slippery):
    mdp = sr.TabularMDP.from_gymnasium("CliffWalking-v1", is_slippery=slippery)
    np.testing.assert_array_equal(mdp.unsafe, mdp.r == -100)
    assert mdp.unsafe.any()
    assert np.flatnonzero(mdp.is_terminal).tolist() == [47]


def test_a_wrong_pickup_of_taxi_is_unsafe():
    mdp = sr.TabularMDP.from_gymnasium(TAXI)
    np.testing.assert_array_equal(mdp.unsafe, mdp.r == -10)
    assert mdp.unsafe.any()
    assert np.count_nonzero(mdp.start) == 300
    assert mdp.r[mdp.terminal].tolist() == [20.0] * 4


def test_cliff_walking_has_a_layout_whose_moves_are_its_actions():
    mdp = sr.TabularMDP.from_gymnasium("CliffWalking-v1")
    assert mdp.layout.shape == (4, 12)
    assert mdp.origin == mdp.layout.state_at(3, 0) == 36
    for a, (down, right) in enumerate(sr.grids.MOVES):
        here = mdp.layout.state_at(1, 5)
        assert mdp.outcomes(here, a).s_next.tolist() == [mdp.layout.state_at(1 + down, 5 + right)]


def test_the_cliff_on_the_layout_is_where_cliff_walking_costs_a_hundred():
    mdp = sr.TabularMDP.from_gymnasium("CliffWalking-v1")
    for s, (i, j) in enumerate(mdp.layout.cells[:36]):
        below = mdp.layout.rows[i + 1][j]
        assert (mdp.outcomes(s, 2).r.min() == -100) == (below == "X")


def test_frozen_lake_has_no_layout_because_its_actions_are_numbered_otherwise():
    assert sr.TabularMDP.from_gymnasium("FrozenLake-v1").layout is None


def test_a_model_is_named_after_its_environment():
    assert sr.TabularMDP.from_gymnasium("FrozenLake-v1").name == "FrozenLake-v1"
    assert read({0: {0: [(1.0, 0, 1.0, True)]}}, 1).name == "Table"


def test_an_environment_gives_the_same_model_as_its_id():
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    assert sr.TabularMDP.from_gymnasium(env) == sr.TabularMDP.from_gymnasium("FrozenLake-v1", is_slippery=False)


def test_an_environment_made_from_an_id_is_closed_again(monkeypatch):
    closed = []
    monkeypatch.setattr(gymnasium.Wrapper, "close", lambda self: closed.append(self.spec.id))
    sr.TabularMDP.from_gymnasium("FrozenLake-v1")
    assert closed == ["FrozenLake-v1"]


@pytest.mark.parametrize(("env_id", "options"), TABLES)
def test_no_environment_needs_pygame_for_its_table(env_id, options, monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    assert sr.TabularMDP.from_gymnasium(env_id, **options).r.size > 40


def test_a_predicate_marks_what_is_unsafe_and_sees_plain_numbers():
    seen = []

    def left_of_the_map(s, a, s_next, r, terminal):
        seen.append((type(s), type(a), type(s_next), type(r), type(terminal)))
        return s_next % 4 == 0

    mdp = sr.TabularMDP.from_gymnasium("FrozenLake-v1", unsafe=left_of_the_map)
    np.testing.assert_array_equal(mdp.unsafe, mdp.s_next % 4 == 0)
    assert set(seen) == {(int, int, int, float, bool)}


def test_a_usual_cost_is_safe_and_five_times_as_much_is_not():
    costs = [-1.0, -1.0, -4.9, -5.0]
    P = {s: {0: [(1.0, (s + 1) % 4, r, False)]} for s, r in enumerate(costs)}
    P[3][0] = [(0.5, 0, -5.0, False), (0.5, 0, -1.0, True)]
    mdp = read(P, 4)
    assert mdp.r[mdp.unsafe].tolist() == [-5.0]


def test_without_costs_or_ends_nothing_is_unsafe():
    assert not read({0: {0: [(1.0, 1, 1.0, False)]}, 1: {0: [(1.0, 0, 0.0, False)]}}, 2).unsafe.any()


def test_the_loop_of_a_state_that_is_over_does_not_count_as_an_end():
    P = {0: {0: [(0.5, 1, -3.0, True), (0.5, 1, -2.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}
    assert read(P, 2).r[read(P, 2).unsafe].tolist() == [-3.0]


def test_a_step_into_a_state_that_is_over_ends_the_episode_although_the_table_does_not_say_so():
    P = {0: {0: [(1.0, 1, 2.0, False)]}, 1: {0: [(1.0, 1, 0.0, False)]}}
    mdp = read(P, 2, start=[1.0, 0.0])
    assert mdp.is_terminal.tolist() == [False, True]
    assert mdp.terminal.tolist() == [True]


def test_a_state_that_the_table_leaves_out_is_terminal():
    mdp = read({0: {0: [(1.0, 1, 2.0, False)]}}, 2)
    assert mdp.is_terminal.tolist() == [False, True]
    assert mdp.terminal.tolist() == [True]


def test_a_start_in_a_state_that_is_over_keeps_its_loop_so_that_returns_stay_the_same():
    P = {0: {0: [(1.0, 1, 2.0, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}
    mdp = read(P, 2, start=[0.25, 0.75])
    assert mdp.start.tolist() == [0.25, 0.75]
    assert mdp.outcomes(1, 0).terminal.tolist() == [True]


def test_an_end_that_leads_back_to_the_start_keeps_the_start():
    P = {0: {0: [(1.0, 1, 0.0, False)]}, 1: {0: [(1.0, 0, 1.0, True)]}}
    for start in ([1.0, 0.0], None):
        assert not read(P, 2, start).is_terminal.any()


def test_without_a_start_distribution_the_start_is_uniform_over_what_is_not_terminal():
    P = {0: {0: [(1.0, 1, 0.0, False)]}, 1: {0: [(1.0, 2, 1.0, True)]}, 2: {0: [(1.0, 2, 0.0, True)]}}
    assert read(P, 3).start.tolist() == [0.5, 0.5, 0.0]


def test_float32_probabilities_are_scaled_to_sum_to_one():
    third = np.float32(1 / 3)
    row = [(third, np.int32(s), np.float32(s), np.bool_(s == 2)) for s in range(3)]
    assert abs(float(3 * np.float64(third)) - 1.0) > 1e-9
    mdp = read({s: {0: row} for s in range(3)}, 3, start=np.full(3, third))
    np.testing.assert_allclose(mdp.p, 1 / 3, rtol=1e-15)
    np.testing.assert_allclose(mdp.start, 1 / 3, rtol=1e-15)


def test_a_table_of_lists_reads_as_a_table_of_dicts():
    row = [(1.0, 1, 1.0, False)], [(1.0, 0, 0.0, True)]
    as_lists = read([[row[0], row[1]], [row[1], row[0]]], 2, A=2)
    assert as_lists == read({0: dict(enumerate(row)), 1: dict(enumerate(row[::-1]))}, 2, A=2)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        (
            "FrozenLak-v1",
            {},
            r"env must be the id of an environment that Gymnasium can make, got 'FrozenLak-v1'; .*Did you mean: `Froz",
        ),
        ("nosuch/Env-v0", {}, "got 'nosuch/Env-v0'; Namespace nosuch not found"),
        ("nosuch_module:Env-v0", {}, "got 'nosuch_module:Env-v0'; ModuleNotFoundError: No module named 'nosuch_mod"),
        ("FrozenLake-v99", {}, "got 'FrozenLake-v99'; Environment version `v99` .* doesn't exist"),
        ("FrozenLake-v1", {"slippery": True}, "got 'FrozenLake-v1'; TypeError: .*unexpected keyword.*'slippery'"),
        ("FrozenLake-v1", {"map_name": "9x9"}, "got 'FrozenLake-v1'; KeyError: '9x9'"),
        ("a:b:c", {}, "got 'a:b:c'; ValueError: too many values"),
        ("safereplay/Cliff-v0", {"slop": 0.1}, "unknown option 'slop'; did you mean 'slip'"),
        ("safereplay/Cliff-v0", {"slip": 2.0}, r"slip must be in \[0, 1\], got 2"),
        (7, {}, "env must be a Gymnasium environment or its id, got 7"),
        (Table({}, 1, 1), {"slip": 0.1}, r"options must be given with an id, not an environment, got \['slip'\]"),
        ("CartPole-v1", {}, "observation_space of env must be Discrete and count from 0, got Box[^;]*$"),
        (
            "Blackjack-v1",
            {},
            "observation_space of env must be Discrete and count from 0, got Tuple.*; use sr.Agent to learn",
        ),
    ],
)
def test_an_environment_that_cannot_be_read_is_answered_in_one_line(env, options, message):
    with pytest.raises(sr.BadInput, match=message) as caught:
        sr.TabularMDP.from_gymnasium(env, **options)
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.skipif("Taxi-v3" in gymnasium.registry, reason="this Gymnasium still has Taxi-v3")
def test_an_id_that_is_too_old_names_the_new_one_and_does_not_warn_as_well():
    with pytest.raises(sr.BadInput, match=r"got 'Taxi-v3'; .* Please use `Taxi-v4` instead"):
        sr.TabularMDP.from_gymnasium("Taxi-v3")


def test_a_warning_of_an_environment_that_was_made_is_passed_on():
    with pytest.warns(UserWarning, match="Using the latest versioned environment `FrozenLake-v1`") as caught:
        sr.TabularMDP.from_gymnasium("FrozenLake")
    assert caught[0].filename == __file__


def test_an_environment_without_a_table_is_pointed_to_the_agent():
    env = Table({}, 2, 2)
    del env.P
    with pytest.raises(sr.BadInput, match=r"env must expose its table P, got 'Table'; use sr\.Agent to learn by step"):
        sr.TabularMDP.from_gymnasium(env)


def test_actions_that_do_not_count_from_zero_are_refused():
    env = Table({}, 2, 2)
    env.action_space = gymnasium.spaces.Discrete(2, start=1)
    with pytest.raises(sr.BadInput, match="action_space of env must be Discrete and count from 0, got Discrete"):
        sr.TabularMDP.from_gymnasium(env)


@pytest.mark.skipif(
    "fickle_passenger" not in inspect.signature(gymnasium.make(TAXI).unwrapped.__class__).parameters,
    reason="this Taxi has no fickle passenger",
)
def test_a_fickle_passenger_is_refused_because_the_table_leaves_it_out():
    with pytest.raises(sr.BadInput, match=r"env must keep all its dynamics in P, got 'Taxi.*; leave out fickle_pass"):
        sr.TabularMDP.from_gymnasium(TAXI, fickle_passenger=True)


@pytest.mark.parametrize(
    "P", [np.full((1, 1, 1), 1.0), {0: {0: [(1.0, 0, 0.0)]}}, {0: {0: [(1.0, 0, "x", True)]}}, [], {0: 5}]
)
def test_a_table_of_another_form_is_refused(P):
    with pytest.raises(sr.BadInput, match=r"P of env must list \(p, s_next, r, terminated\) for each state and action"):
        read(P, 1)


@pytest.mark.parametrize("P", [{}, [[]], {0: {0: [(1.0, 0, 0.0, True)]}}])
def test_a_table_in_which_nothing_happens_is_refused(P):
    with pytest.raises(sr.BadInput, match="P of env must have a state that an action leaves or is rewarded in, got "):
        read(P, 1)


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ((1.0, 2, 1.0, True), r"s_next in P of env must be a state in 0\.\.0, got 2"),
        ((0.5, 0, 1.0, True), r"outcomes of \(s=0, a=0\) must sum to 1, got 0\.5"),
        ((1.0, 0, np.inf, True), r"r of \(s=0, a=0\) must be finite, got inf"),
        ((-1.0, 0, 1.0, True), r"p of \(s=0, a=0\) must be at least 0, got -1"),
    ],
)
def test_a_bad_outcome_in_the_table_is_named(outcome, message):
    with pytest.raises(sr.BadInput, match=message):
        read({0: {0: [outcome]}}, 1)


@pytest.mark.parametrize(
    ("start", "message"),
    [([1.0, 0.0], r"initial_state_distrib of env must have shape \(1,\), got \(2,\)"), ([0.5], "start must sum to 1")],
)
def test_a_bad_start_distribution_is_named(start, message):
    with pytest.raises(sr.BadInput, match=message):
        read({0: {0: [(1.0, 0, 1.0, True)]}}, 1, start)


def test_unsafe_must_be_a_function():
    with pytest.raises(sr.BadInput, match="unsafe must be a function or None, got 3"):
        sr.TabularMDP.from_gymnasium("FrozenLake-v1", unsafe=3)


def test_gamma_is_checked_whatever_the_environment():
    for env_id in ("FrozenLake-v1", "safereplay/Cliff-v0"):
        with pytest.raises(sr.BadInput, match=r"gamma must be in \(0, 1\), got 1"):
            sr.TabularMDP.from_gymnasium(env_id, gamma=1.0)


# -- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mdp", [sr.grids.volatile(), sr.grids.cliff()], ids=["volatile", "cliff"])
def test_a_model_comes_back_from_its_environment_marks_and_layout_included(mdp):
    assert sr.TabularMDP.from_gymnasium(TabularEnv(mdp), gamma=mdp.gamma) == mdp
    assert table_of(TabularEnv(mdp), 0.5, None, {}) == mdp.with_gamma(0.5)


def test_the_option_of_an_id_reaches_the_model():
    mdp = sr.TabularMDP.from_gymnasium("safereplay/Cliff-v0", gamma=0.95, slip=0.2)
    assert mdp == sr.grids.cliff(slip=0.2)


def test_a_predicate_replaces_the_marks_and_keeps_the_rest():
    mdp = sr.grids.cliff()
    marked = sr.TabularMDP.from_gymnasium(TabularEnv(mdp), mdp.gamma, unsafe=lambda s, a, s_next, r, end: r > 0)
    np.testing.assert_array_equal(marked.unsafe, marked.r > 0)
    assert marked.layout == mdp.layout
    np.testing.assert_array_equal(marked.p, mdp.p)


@st.composite
def models(draw):
    """Random models: any outcomes, and terminal states that something leads to."""
    S, A = draw(st.integers(2, 5)), draw(st.integers(1, 3))
    last = draw(st.integers(1, S - 1))  # states from here on are terminal
    rows = []
    for s in range(last):
        for a in range(A):
            shares = draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
            for share in shares:
                s_next, r = draw(st.integers(0, S - 1)), draw(st.sampled_from([-2.0, 1.0, 0.5]))
                end = s_next >= last or draw(st.booleans())
                rows.append((s, a, share / sum(shares), s_next, r, end, r < 0))
    return sr.TabularMDP.from_outcomes(S, A, rows, 0.9, np.repeat([1 / last, 0.0], [last, S - last]))


@settings(max_examples=60, deadline=None)
@given(models())
def test_any_model_comes_back_from_its_table_alone(mdp):
    env = TabularEnv(mdp)
    bare = Table(env.P, mdp.n_states, mdp.n_actions, env.initial_state_distrib)
    back = sr.TabularMDP.from_gymnasium(bare, 0.9, unsafe=lambda s, a, s_next, r, end: r < 0)
    np.testing.assert_allclose(back.p, mdp.p, rtol=1e-12)
    for column in ("row", "s_next", "r", "terminal", "unsafe", "is_terminal"):
        np.testing.assert_array_equal(getattr(back, column), getattr(mdp, column))


# -- out: a model as an environment -----------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", IDS)
def test_a_registered_environment_passes_gymnasiums_own_check(env_id):
    check_env(gymnasium.make(env_id).unwrapped)


@pytest.mark.parametrize("env_id", IDS)
def test_a_wrapped_environment_passes_with_the_one_warning_that_every_wrapper_gets(env_id):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(gymnasium.make(env_id))
    assert ["different from the unwrapped version" in str(warning.message) for warning in said] == [True]


MADE = "; print(env.reset(seed=0)[0] in env.observation_space)"


@pytest.mark.parametrize(
    "code",
    [
        "import gymnasium; env = gymnasium.make('safereplay.gym:safereplay/Cliff-v0')",
        "import gymnasium, safereplay.gym; env = gymnasium.make('safereplay/Cliff-v0')",
        "import safereplay.gym, gymnasium; env = gymnasium.make('safereplay/Cliff-v0')",
        pytest.param("import gymnasium, safereplay; env = gymnasium.make('safereplay/Cliff-v0')"),
        pytest.param("import safereplay, gymnasium; env = gymnasium.make('safereplay/Cliff-v0')"),
        pytest.param("import gymnasium; env = gymnasium.make('safereplay:safereplay/Cliff-v0')"),
    ],
)
def test_an_id_can_be_made_in_a_fresh_process(code):
    assert run_python(code + MADE) == "True"


def test_importing_gymnasium_loads_nothing_of_ours_and_no_numba():
    code = "import gymnasium, sys; print([m for m in sys.modules if m.split('.')[0] in ('safereplay', 'numba')])"
    assert run_python(code) == "[]"


def test_making_an_id_does_not_load_numba():
    code = (
        "import gymnasium, sys; gymnasium.make('safereplay.gym:safereplay/Volatile-v0'); print('numba' in sys.modules)"
    )
    assert run_python(code) == "False"


@pytest.mark.parametrize("env_id", IDS)
def test_a_spec_goes_to_json_and_back(env_id):
    spec = gymnasium.make(env_id, gamma=0.5, layout="....\nS.XG").spec
    env = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(spec.to_json()))
    assert env.spec.id == env_id
    assert env.unwrapped.mdp.gamma == 0.5
    assert env.unwrapped.mdp.layout.text == "....\nS.XG"


def test_a_registered_environment_stops_after_a_thousand_steps():
    env = gymnasium.make("safereplay/Volatile-v0")
    env.reset(seed=0, options={"state": 0})
    steps = [env.step(0)[2:4] for _ in range(1_000)]
    assert steps == [(False, False)] * 999 + [(False, True)]


def test_environments_run_side_by_side_in_a_vector():
    envs = gymnasium.make_vec("safereplay/Cliff-v0", num_envs=3, vectorization_mode="sync")
    states, _ = envs.reset(seed=0)
    _, rewards, *_ = envs.step(np.zeros(3, int))
    assert states.shape == rewards.shape == (3,)


def test_steps_follow_the_table():
    """Seed 0, 20 000 steps of one pair with four outcomes: each frequency within 4 standard deviations of its p."""
    env, n = TabularEnv(sr.grids.cliff(slip=0.4)), 20_000
    q = env.mdp.outcomes(13, 1)  # along the edge
    env.reset(seed=0)
    counts = dict.fromkeys(zip(q.s_next.tolist(), q.r.tolist(), q.unsafe.tolist(), strict=True), 0)
    for _ in range(n):
        env.reset(options={"state": 13})
        s_next, r, terminated, truncated, info = env.step(1)
        counts[s_next, r, info["unsafe"]] += 1
        k = q.s_next.tolist().index(s_next)
        assert (terminated, truncated, info["p"]) == (q.terminal[k], False, q.p[k])
    assert q.unsafe.tolist() == [True, False, False, False]
    assert np.ptp(q.p) > 0.5
    np.testing.assert_array_less(np.abs(np.array(list(counts.values())) / n - q.p), 4 * np.sqrt(q.p * (1 - q.p) / n))


def test_starts_follow_the_start_distribution():
    """Seed 1, 10 000 resets over three states of 20: each frequency within 4 standard deviations of its p."""
    start, n = np.zeros(20), 10_000
    start[[3, 8, 11]] = 0.2, 0.5, 0.3
    env = TabularEnv(sr.grids.volatile().with_start(start))
    env.reset(seed=1)
    drawn = [env.reset() for _ in range(n)]
    assert all(info == {"p": start[s]} for s, info in drawn)
    frequency = np.bincount([s for s, _ in drawn], minlength=20) / n
    assert (np.abs(frequency - start) <= 4 * np.sqrt(start * (1 - start) / n)).all()


def test_a_draw_that_rounding_leaves_above_the_sum_takes_the_last_outcome():
    p = np.full(10, 0.1)
    highest = np.nextafter(1.0, 0.0)  # the largest draw there is
    assert np.cumsum(p)[-1] <= highest
    env = TabularEnv(sr.grids.volatile().with_start(np.insert(np.insert(p, 9, np.zeros(9)), 19, 0.0)))
    env.np_random = SimpleNamespace(random=lambda: highest)
    assert env._draw(p) == 9
    assert env.reset()[0] == 18  # the last that can be, not the last of all


def test_the_least_draw_takes_the_first_outcome_and_never_a_state_without_probability():
    env = TabularEnv(sr.grids.volatile().with_start(7))
    env.np_random = SimpleNamespace(random=lambda: 0.0)
    assert env.reset() == (7, {"p": 1.0})
    assert env._draw(np.array([0.3, 0.7])) == 0


def test_the_same_seed_gives_the_same_episode_and_another_seed_another():
    def episode(seed):
        env = TabularEnv(sr.grids.volatile())
        first, _ = env.reset(seed=seed)
        env.reset(options={"state": 5})
        return first, *(env.step(1)[1] for _ in range(3))

    assert episode(3) == episode(3)
    assert len({episode(seed) for seed in range(10)}) > 5


def test_an_environment_survives_pickling_in_mid_episode():
    env = TabularEnv(sr.grids.cliff(slip=0.5))
    env.reset(seed=0, options={"state": 0})
    copy = pickle.loads(pickle.dumps(env))  # noqa: S301  (our own bytes)
    assert [env.step(0) for _ in range(20)] == [copy.step(0) for _ in range(20)]


def test_a_terminal_state_loops_on_itself_in_the_table_as_gymnasium_has_it():
    env = TabularEnv(sr.grids.volatile())
    assert env.P[9] == {a: [(1.0, 9, 0.0, True)] for a in range(4)}
    assert env.P[5][1] == [(0.4, 6, -100.0, False), (0.6, 6, 100.0, False)]


@pytest.mark.parametrize("action", [4, -1, 1.5, "up", None])
def test_an_action_that_there_is_not_is_refused(action):
    env = TabularEnv(sr.grids.volatile())
    env.reset(seed=0)
    with pytest.raises(sr.BadInput, match=r"action must be a whole number in 0\.\.3, got "):
        env.step(action)


def test_a_numpy_action_is_as_good_as_a_plain_one():
    env = TabularEnv(sr.grids.volatile())
    env.reset(options={"state": 0})
    assert env.step(np.int32(1))[0] == 1


def test_a_step_before_reset_is_refused():
    with pytest.raises(sr.BadInput, match="env must be reset before a step, got 'no episode'"):
        TabularEnv(sr.grids.volatile()).step(0)


def test_a_step_after_the_end_is_refused_until_the_next_reset():
    env = TabularEnv(sr.grids.volatile())
    env.reset(options={"state": 4})
    assert env.step(2) == (9, 150.0, True, False, {"p": 1.0, "unsafe": False})
    with pytest.raises(sr.BadInput, match="env must be reset before a step, got 'an episode that is over'"):
        env.step(0)
    env.reset(options={"state": 4})
    assert env.step(0)[0] == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"state": 20}, r"state must be in 0\.\.19 and not terminal, got 20"),
        ({"state": 9}, r"state must be in 0\.\.19 and not terminal, got 9"),
        ({"state": 1.5}, r"state must be a whole number, got 1\.5"),
        ({"state": -1}, "state must be at least 0, got -1"),
        ({"stat": 1}, "unknown option of reset 'stat'; did you mean 'state'"),
    ],
)
def test_a_reset_to_where_no_episode_can_start_is_refused(options, message):
    with pytest.raises(sr.BadInput, match=message):
        TabularEnv(sr.grids.volatile()).reset(options=options)


def test_an_environment_needs_a_model():
    with pytest.raises(sr.BadInput, match="mdp must be a TabularMDP, got 'cliff'"):
        TabularEnv("cliff")


def test_a_grid_or_option_that_there_is_not_is_refused():
    with pytest.raises(sr.BadInput, match="unknown grid 'clif'; did you mean 'cliff'"):
        make_grid_env("clif")
    with pytest.raises(sr.BadInput, match="unknown option 'hazzard'; did you mean 'hazard'"):
        make_grid_env("cliff", hazzard=-5.0)
    with pytest.raises(sr.BadInput, match="unknown option 'hazard'; choose from gamma, goal, layout, rewards, slip, s"):
        make_grid_env("volatile", hazard=-5.0)


# -- pictures ---------------------------------------------------------------------------------------------------------


def at(mode, mdp, state):
    env = TabularEnv(mdp, render_mode=mode)
    env.reset(options={"state": state})
    return env.render()


def test_text_shows_the_map_with_the_agent_in_brackets():
    assert at("ansi", sr.grids.volatile(), 6).split("\n") == [
        " .  .  .  .  .",
        " > [>] >  .  G",
        " .  .  .  .  .",
        " .  .  .  .  .",
    ]


def test_text_without_a_map_is_a_line():
    mdp = sr.TabularMDP.from_gymnasium("FrozenLake-v1")
    assert at("ansi", mdp, 6) == "FrozenLake-v1: state 6, of 16 states"
    assert TabularEnv(mdp, "ansi").render() == "FrozenLake-v1: no episode, of 16 states"


def cell(picture, row, column):
    return picture[row * CELL : (row + 1) * CELL, column * CELL : (column + 1) * CELL]


def test_a_picture_has_a_cell_for_each_symbol_and_only_the_agents_cell_changes():
    mdp = sr.grids.from_map("S>.G\n.#.X")
    empty, picture = TabularEnv(mdp, "rgb_array").render(), at("rgb_array", mdp, 2)
    assert picture.shape == (2 * CELL, 4 * CELL, 3)
    assert picture.dtype == np.uint8
    for i, line in enumerate(mdp.layout.rows):
        for j, symbol in enumerate(line):
            assert cell(empty, i, j)[CELL // 4, CELL // 4].tolist() == list(TILES.get(symbol, TILES["."]))
            assert (cell(picture, i, j) == cell(empty, i, j)).all() == ((i, j) != (0, 2))


@pytest.mark.parametrize(("arrow", "side"), [("^", (0, 1)), (">", (1, 2)), ("v", (2, 1)), ("<", (1, 0))])
def test_a_volatile_move_is_a_red_triangle_on_the_side_it_goes_to(arrow, side):
    picture = TabularEnv(sr.grids.from_map(f"...\n.{arrow}.\n..G"), "rgb_array").render()
    red, green, _ = np.moveaxis(cell(picture, 1, 1).astype(int), -1, 0)
    rows, columns = np.nonzero(red - green > 100)
    assert (round(2 * rows.mean() / CELL), round(2 * columns.mean() / CELL)) == side


def test_a_picture_without_a_map_puts_states_in_a_near_square():
    mdp = sr.TabularMDP.from_gymnasium("FrozenLake-v1")
    picture = at("rgb_array", mdp, 1)
    assert picture.shape == (4 * CELL, 4 * CELL, 3)
    for state, symbol in ((0, "S"), (5, "X"), (15, "G"), (6, ".")):
        assert cell(picture, *divmod(state, 4))[CELL // 4, CELL // 4].tolist() == list(TILES[symbol])
    five = sr.TabularMDP.from_outcomes(5, 1, [(s, 0, 1.0, (s + 1) % 5, 1.0) for s in range(5)])
    assert (cell(at("rgb_array", five, 0), 1, 2) == 255).all()


def test_rendering_without_a_mode_warns_and_shows_nothing():
    env = TabularEnv(sr.grids.volatile())
    with pytest.warns(UserWarning, match="shows nothing without a render_mode"):
        assert env.render() is None


def test_a_render_mode_that_there_is_not_is_refused():
    with pytest.raises(sr.BadInput, match="unknown render_mode 'rgb_aray'; did you mean 'rgb_array'"):
        TabularEnv(sr.grids.volatile(), "rgb_aray")


def test_gymnasium_can_collect_the_pictures_of_an_episode():
    env = gymnasium.make("safereplay/Volatile-v0", render_mode="rgb_array_list")
    env.reset(seed=0, options={"state": 0})
    env.step(1)
    assert len(env.render()) == 2
