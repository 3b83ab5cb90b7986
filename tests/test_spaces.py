"""Spaces as numbers, and environments that can be led back to where they were."""

import numpy as np
import pytest
from gymnasium import Env
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Space, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

import safereplay as sr
from safereplay.kernels.step import NO_STATE
from safereplay.spaces import World, codec

small = st.integers(1, 4)
starts = st.integers(-5, 5)
shapes = st.lists(st.integers(1, 2), min_size=1, max_size=2).map(tuple)


@st.composite
def multi_discrete(draw: st.DrawFn) -> MultiDiscrete:
    shape = draw(shapes)
    size = int(np.prod(shape))
    nvec = np.reshape(draw(st.lists(small, min_size=size, max_size=size)), shape)
    start = np.reshape(draw(st.lists(starts, min_size=size, max_size=size)), shape)
    return MultiDiscrete(nvec, start=start)


leaves = st.one_of(
    st.builds(lambda n, start: Discrete(n, start=start), small, starts),
    st.builds(MultiBinary, st.one_of(small, shapes)),
    multi_discrete(),
)
any_space = st.recursive(
    leaves,
    lambda parts: st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(Tuple),
        st.dictionaries(st.sampled_from("abc"), parts, min_size=1, max_size=3).map(Dict),
    ),
    max_leaves=4,
)


def same(x: object, y: object) -> bool:
    if isinstance(x, dict) and isinstance(y, dict):
        return x.keys() == y.keys() and all(same(x[k], y[k]) for k in x)
    if isinstance(x, tuple) and isinstance(y, tuple):
        return len(x) == len(y) and all(same(a, b) for a, b in zip(x, y, strict=True))
    return type(x) is type(y) and np.array_equal(x, y) and np.asarray(x).dtype == np.asarray(y).dtype


@settings(deadline=None, max_examples=150)
@given(any_space, st.data())
def test_each_number_below_n_is_one_element_of_the_space_and_back(space: Space, data: st.DataObject) -> None:
    numbers = codec("observation", space)
    i = data.draw(st.integers(0, numbers.n - 1))
    element = numbers.decode(i)
    assert space.contains(element)
    assert numbers.encode(element) == i


@settings(deadline=None, max_examples=150)
@given(any_space, st.integers(0, 2**31))
def test_each_sample_comes_back_from_its_number_in_the_same_type(space: Space, seed: int) -> None:
    numbers = codec("observation", space)
    space.seed(seed)
    element = space.sample()
    i = numbers.encode(element)
    assert 0 <= i < numbers.n
    assert same(numbers.decode(i), element)


def test_a_number_is_read_in_mixed_radix_with_the_last_digit_fastest() -> None:
    space = Dict(a=Tuple((Discrete(3, start=1), MultiBinary(2))), b=MultiDiscrete([2, 5], start=[0, -2]))
    element = {"a": (3, np.array([1, 0])), "b": np.array([1, 0])}
    assert codec("observation", space).encode(element) == ((2 * 4 + 0b10) * 10) + 1 * 5 + 2


def test_equal_spaces_and_only_they_have_equal_texts() -> None:
    texts = {
        codec("observation", space).text
        for space in (
            Discrete(4),
            Discrete(4, start=1),
            MultiDiscrete([4]),
            MultiDiscrete([2, 2]),
            MultiDiscrete([[2, 2]]),
            MultiBinary(2),
            MultiBinary([1, 2]),
            Tuple((Discrete(2), Discrete(2))),
            Dict(a=Discrete(2), b=Discrete(2)),
        )
    }
    assert len(texts) == 9
    assert codec("observation", Discrete(4)).text == codec("action", Discrete(4)).text


@pytest.mark.parametrize(
    ("space", "value", "message"),
    [
        (Discrete(4), 4, r"observation must be in Discrete\(4\), got 4"),
        (Discrete(4), -1, "must be in"),
        (Discrete(4), 1.5, "must be in"),
        (Discrete(4), float("nan"), "must be in"),
        (Discrete(4), None, "must be in"),
        (
            MultiDiscrete([2, 3]),
            np.array([0, 3]),
            r"observation must be in MultiDiscrete\(\[2 3\]\), got array\(\[0, 3\]\)",
        ),
        (MultiDiscrete([2, 3]), np.array([-1, 5]), "must be in"),
        (MultiDiscrete([2, 3]), [0], "must be in"),
        (MultiDiscrete([2, 3]), [0, 0.5], "must be in"),
        (MultiDiscrete([2, 3]), "ab", "must be in"),
        (MultiDiscrete([2, 3]), [[0], [1, 2]], "must be in"),
        (MultiBinary(2), [0, 2], r"observation must be in MultiBinary\(2\)"),
        (Tuple((Discrete(2), Discrete(3))), (0, 3), r"observation\[1\] must be in Discrete\(3\), got 3"),
        (Tuple((Discrete(2), Discrete(3))), (0,), r"observation must be a tuple of 2, got \(0,\)"),
        (Tuple((Discrete(2),)), 0, "must be a tuple of 1"),
        (Dict(x=Tuple((Discrete(2),))), {"x": (2,)}, r"observation\['x'\]\[0\] must be in"),
        (Dict(x=Discrete(2)), {"y": 0}, r"observation must be a dict with keys 'x', got \{'y': 0\}"),
        (Dict(x=Discrete(2)), 0, "must be a dict"),
    ],
)
def test_what_is_outside_the_space_is_named(space: Space, value: object, message: str) -> None:
    with pytest.raises(sr.BadInput, match=message):
        codec("observation", space).encode(value)


def test_a_continuous_space_is_refused_in_one_line() -> None:
    kinds = r"be discrete \(Discrete, MultiDiscrete, MultiBinary, or a Tuple or Dict of those\), got Box\("
    with pytest.raises(sr.BadInput, match=r"^observation_space must " + kinds):
        codec("observation", Box(0, 1, (2,)))
    with pytest.raises(sr.BadInput, match=r"^action_space\['x'\]\[1\] must " + kinds):
        codec("action", Dict(x=Tuple((Discrete(2), Box(0, 1, (2,))))))
    with pytest.raises(sr.BadInput, match=r"got Sequence\("):
        codec("observation", Sequence(Discrete(2)))
    with pytest.raises(sr.BadInput, match="got None"):
        codec("observation", None)


class Walk(Env):
    """A random walk on 0, ..., 9 that ends at 9 and fails when told to."""

    observation_space, action_space = Discrete(10), Discrete(2)
    fails = False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s = int(self.np_random.integers(5))
        return self.s, {}

    def step(self, action):
        if self.fails:
            raise RuntimeError("out of order")
        self.s = max(0, min(9, self.s + int(self.np_random.integers(-1, 3))))
        return self.s, float(self.np_random.normal()), self.s == 9, False, {}


def wander(world: World, steps: int) -> list[tuple[float, int, bool]]:
    seen = []
    for k in range(steps):
        world.here()
        seen.append(world.step(k % 2))
    return seen


@pytest.mark.parametrize("before", [1, 2, 3, 30, 31, 32, 33, 34])
def test_another_copy_of_an_environment_is_led_to_the_same_place(before: int) -> None:
    first, second = World(Walk(), seed=3), World(Walk(), seed=3)
    wander(first, before)
    assert second.go_to(*first.whereabouts())
    assert second.s == first.s
    assert wander(second, 50) == wander(first, 50)


def test_a_place_that_the_environment_does_not_lead_to_is_not_reached() -> None:
    world = World(Walk(), seed=3)
    wander(world, 3)
    origin, total, actions, states = world.whereabouts()
    assert states.size == 4  # still in the first episode
    for wrong in (
        (origin, total, actions, (states + 1) % 10),
        (origin, total + 1.0, actions, states),
        (World(Walk(), 4).env.np_random.bit_generator.state, total, actions, states),
        ({"bit_generator": "MT19937"}, total, actions, states),
        (None, total, actions, states),
        ("nonsense", total, actions, states),
    ):
        other = World(Walk(), seed=3)
        assert not other.go_to(*wrong)
        assert other.s == NO_STATE
        assert not other.returns
    long = np.array([0] * 100)
    assert not World(Walk(), seed=3).go_to(origin, total, long, np.append(states, [0] * 97))


def test_an_episode_broken_off_by_an_error_is_over_and_does_not_count() -> None:
    world = World(Walk(), seed=3)
    wander(world, 2)
    world.env.fails = True
    with pytest.raises(RuntimeError, match="out of order"):
        world.step(0)
    assert world.s == NO_STATE
    assert not world.returns
    world.env.fails = False
    wander(world, 100)
    assert world.returns
