"""Every world keeps what its spec says."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import safereplay as sr
from studies.deep import worlds
from studies.deep.training import evaluate
from studies.deep.worlds import WORLDS, world_named


class Random:
    """Acts uniformly, whatever it sees."""

    def __init__(self, n_actions, seed=0):
        self.n_actions, self.rng = n_actions, np.random.default_rng(seed)

    def predict(self, seen, deterministic):
        return self.rng.integers(0, self.n_actions, len(seen)), None


@pytest.fixture(params=WORLDS)
def world(request):
    return WORLDS[request.param]


def test_a_world_is_known_by_its_name(world):
    assert world_named(world.name) is world
    assert world.about.endswith(".")


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.parametrize("judged", [False, True])
def test_a_world_is_a_proper_environment(world, judged):
    env = world.make(judged)
    assert isinstance(env.observation_space, gymnasium.spaces.Box)
    assert env.observation_space.dtype == np.float32
    check_env(env.unwrapped if world.mdp is None else env, skip_render_check=True)


def test_every_step_says_whether_it_was_unsafe_and_episodes_are_cut_off_in_time(world):
    env = world.make()
    rng = np.random.default_rng(0)
    env.reset(seed=1)
    for _ in range(300):
        _, r, terminated, truncated, info = env.step(int(rng.integers(env.action_space.n)))
        assert type(info["unsafe"]) is bool
        assert np.isfinite(r)
        if terminated or truncated:
            env.reset()
    assert env.get_wrapper_attr("_max_episode_steps") == world.time_limit


def test_the_return_of_random_actions_is_what_the_spec_says(world):
    """200 episodes, seed 0; the bound is four standard errors (and what the spec rounds away)."""
    result = evaluate(Random(int(world.make().action_space.n)), world, 200, "validation")
    assert result["mean_return"] == pytest.approx(world.random_return, abs=4 * result["se_return"] + 0.5)


def test_the_scale_keeps_a_catastrophe_where_the_huber_loss_is_square(world):
    """A surprise of a catastrophe's size is at most 1.5 after scaling, the largest that is asked of the loss."""
    worst = {"cliff": -12, "volatile": -100, "delayed": -12, "point": -19, "lava": -26, "lander": -100}[world.name]
    assert abs(worst) / world.reward_scale <= 1.0


def test_a_grid_is_learned_from_everywhere_and_judged_from_its_origin():
    env, judged = WORLDS["cliff"].make(), WORLDS["cliff"].make(judged=True)
    assert len({int(env.reset(seed=i)[0].argmax()) for i in range(60)}) > 10
    assert {int(judged.reset(seed=i)[0].argmax()) for i in range(5)} == {18}
    assert int(WORLDS["volatile"].make(judged=True).reset(seed=0)[0].argmax()) == 5


def test_a_lander_that_only_falls_crashes_in_the_wind():
    env = WORLDS["lander"].make()
    env.reset(seed=0)
    terminated = False
    while not terminated:
        _, r, terminated, _, info = env.step(0)
    assert (r, info["unsafe"]) == (-100.0, True)
    bare = env.unwrapped
    assert (bare.enable_wind, bare.wind_power, bare.turbulence_power) == (True, 15.0, 1.5)


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    with pytest.raises(sr.MissingExtra, match=r"this world needs nosuchthing; .*pip install 'safereplay\[deep\]'"):
        worlds._needs("nosuchthing")


def test_an_unknown_world_is_answered_with_a_known_one():
    with pytest.raises(sr.BadInput, match="unknown world 'clif'; did you mean 'cliff'"):
        world_named("clif")
