"""Every world keeps what its spec says."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import safereplay as sr
from studies.deep import worlds
from studies.deep.cheetah import Fined
from studies.deep.study import FULL, families
from studies.deep.summary import LAGRANGIAN, PENALTY
from studies.deep.traffic import FASTER, IDLE, SLOWER, Traffic
from studies.deep.training import evaluate
from studies.deep.worlds import WORLDS, world_named


class Random:
    """Acts uniformly, whatever it sees."""

    def __init__(self, actions, seed=0):
        self.actions, self.rng = actions, np.random.default_rng(seed)

    def predict(self, seen, deterministic):
        if isinstance(self.actions, gymnasium.spaces.Discrete):
            return self.rng.integers(0, self.actions.n, len(seen)), None
        low, high = self.actions.low, self.actions.high
        return self.rng.uniform(low, high, (len(seen), *low.shape)).astype(np.float32), None


def played(env, seed, actions):
    """All that an episode gave, from its seed on."""
    seen, info = env.reset(seed=seed)
    steps = [(seen, 0.0, False, False, info)]
    for action in actions:
        steps.append(env.step(action))
        if steps[-1][2] or steps[-1][3]:
            break
    return steps


@pytest.fixture(params=WORLDS)
def world(request):
    return WORLDS[request.param]


def test_a_world_is_known_by_its_name(world):
    assert world_named(world.name) is world
    assert world.about.endswith(".")


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
@pytest.mark.filterwarnings("ignore:.*Box observation space .* value is -?infinity")
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
        _, r, terminated, truncated, info = env.step(
            Random(env.action_space, rng.integers(2**31)).predict([0], True)[0][0]
        )
        assert type(info["unsafe"]) is bool
        assert np.isfinite(r)
        if terminated or truncated:
            env.reset()
    assert env.get_wrapper_attr("_max_episode_steps") == world.time_limit


def test_the_return_of_random_actions_is_what_the_spec_says(world):
    """200 episodes, seed 0; the bound is four standard errors (and what the spec rounds away)."""
    result = evaluate(Random(world.make().action_space), world, 200, "validation")
    assert result["mean_return"] == pytest.approx(world.random_return, abs=4 * result["se_return"] + 0.5)


@pytest.mark.parametrize("name", [name for name, world in WORLDS.items() if world.learner == "dqn"])
def test_the_scale_keeps_a_catastrophe_where_the_huber_loss_is_square(name):
    """A surprise of a catastrophe's size is at most 1.5 after scaling, the largest that is asked of the loss."""
    worst = {
        "cliff": -12,
        "volatile": -100,
        "delayed": -12,
        "point": -19,
        "lava": -26,
        "lander": -100,
        "highway": -8,
        "merge": -7,
        "betting": -10,
        "maze": -65,
    }
    scale = WORLDS[name].reward_scale
    assert abs(worst[name]) / scale <= 1.0
    for family, _, changes in families(name):
        if family == PENALTY:
            harm = abs(worst[name]) + changes["penalty"]
            assert harm / changes["overrides"]["reward_scale"] <= 1.0


@pytest.mark.parametrize("name", FULL.worlds)
def test_the_multiplier_has_time_to_rise_and_its_limit_is_below_the_plain_learners_harm(name):
    world = WORLDS[name]
    found = [changes for family, _, changes in families(name) if family == LAGRANGIAN]
    for changes in found:
        assert changes["limit"] <= 0.5 * world.harm_in_training
        updates = world.steps / world.dqn["train_freq"]
        most = changes["overrides"]["rate"] * updates * world.harm_in_training
        assert most == pytest.approx(4.0 * world.harm / world.reward_scale, rel=0.05)
    assert len(found) == (3 if world.learner == "dqn" else 0)


def test_an_episode_is_a_function_of_its_seed_and_its_actions(world):
    env, other = world.make(), world.make()
    draws = Random(env.action_space, seed=1)
    actions = [draws.predict([0], True)[0][0] for _ in range(30)]
    first, again, different = played(env, 7, actions), played(other, 7, actions), played(env, 8, actions)
    same_env = played(env, 7, actions)  # after another episode
    for one in (again, same_env):
        assert len(one) == len(first)
        for (seen, *rest), (seen_again, *rest_again) in zip(first, one, strict=True):
            np.testing.assert_array_equal(seen, seen_again)
            assert rest[:3] == rest_again[:3]
            assert rest[3].get("unsafe") == rest_again[3].get("unsafe")
    told = [[(seen.tolist(), r) for seen, r, *_ in steps] for steps in (first, different)]
    assert told[0] != told[1]


def test_the_plain_learner_fits_the_actions_and_has_arguments(world):
    discrete = isinstance(world.make().action_space, gymnasium.spaces.Discrete)
    assert world.learner == ("dqn" if discrete else "sac")
    assert getattr(world, world.learner)


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


# -- traffic -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("road", ["highway", "merge"])
def test_a_car_that_only_speeds_up_crashes_and_pays_for_it(road):
    cost = {"highway": 7.0, "merge": 5.0}[road]
    env = WORLDS[road].make(judged=True)
    steps = played(env, 0, [FASTER] * 60)
    *before, (_, r, terminated, truncated, info) = steps
    assert (terminated, truncated, info["unsafe"]) == (True, False, True)
    assert r == pytest.approx((info["speed"] - 20.0) / 10.0 - cost)
    assert not any(told["unsafe"] for *_, told in before)
    assert all(r == pytest.approx((told["speed"] - 20.0) / 10.0) for _, r, _, _, told in before[1:])
    assert max(told["speed"] for *_, told in before) > 25.0


@pytest.mark.parametrize("road", ["highway", "merge"])
def test_the_last_observation_is_that_of_the_crash_and_not_of_the_next_start(road):
    """Just before a crash and at it, the nearest car moves on by one second at most; a new start has its own layout."""
    steps = played(Traffic(road, cost=1.0), 0, [FASTER] * 60)
    cars = steps[-1][0].reshape(5, 5)
    hit = np.hypot(100.0 * cars[1:, 1], 12.0 * cars[1:, 2]).min()
    assert hit < 6.0, "two cars that crashed are less than about a car's length apart (a car is 5 m long)"
    starts = [Traffic(road, cost=1.0).reset(seed=i)[0] for i in range(5)]
    assert all(100.0 * abs(start.reshape(5, 5)[1:, 1]).max() > 6.0 for start in starts)


def test_a_slow_car_lasts_to_the_time_limit_and_the_next_episode_takes_its_first_action():
    env = WORLDS["highway"].make(judged=True)
    steps = played(env, 1, [SLOWER] * 60)
    assert len(steps) - 1 == WORLDS["highway"].time_limit
    assert steps[-1][2:4] == (False, True)
    env.reset()
    _, _, terminated, truncated, info = env.step(SLOWER)
    assert not terminated
    assert not truncated
    assert info["speed"] < 25.0, "the first action of the next episode was lost"


def test_a_slow_car_gets_past_the_merge():
    steps = played(WORLDS["merge"].make(judged=True), 0, [SLOWER] * 60)
    assert steps[-1][2:4] == (True, False)
    assert not steps[-1][4]["unsafe"]


def test_traffic_without_a_seed_differs_between_episodes_and_follows_from_the_first_seed():
    def starts(seed):
        env = Traffic("highway", cost=1.0)
        return [env.reset(seed=seed if k == 0 else None)[0].tolist() for k in range(4)]

    assert starts(3) == starts(3)
    assert len({str(start) for start in starts(3) + starts(4)}) == 8


def test_a_finished_road_must_be_reset():
    env = Traffic("merge", cost=1.0)
    with pytest.raises(sr.BadInput, match="step must come after reset"):
        env.step(IDLE)
    played(env, 0, [FASTER] * 60)
    with pytest.raises(sr.BadInput, match="step must come after reset"):
        env.step(IDLE)


def test_an_unknown_road_is_answered_with_a_known_one():
    with pytest.raises(sr.BadInput, match="unknown road 'merg'; did you mean 'merge'"):
        Traffic("merg", cost=1.0)
    with pytest.raises(sr.BadInput, match="cost must"):
        Traffic("merge", cost=-1.0)


# -- the cheetah -------------------------------------------------------------------------------------------------------


class Treadmill(gymnasium.Env):
    """Its speed is the action, and its reward 1; what it sees is nothing."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float64)
    action_space = gymnasium.spaces.Box(0.0, 9.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action):
        return np.zeros(1), 1.0, False, False, {"x_velocity": float(action[0])}


def fined(speed, steps=2000, **options):
    env = Fined(Treadmill(), **{"limit": 3.0, "probability": 0.05, "fine": 20.0, **options})
    env.reset(seed=0)
    return [env.step([speed]) for _ in range(steps)]


def test_nobody_is_fined_at_the_limit_and_one_step_in_twenty_above_it():
    """2000 steps, seed 0; the bound is four standard deviations of a share of 0.05."""
    assert not any(step[4]["unsafe"] for step in fined(3.0))
    fast = fined(3.5)
    assert np.mean([step[4]["unsafe"] for step in fast]) == pytest.approx(0.05, abs=4 * np.sqrt(0.05 * 0.95 / 2000))
    assert {(step[4]["unsafe"], step[1]) for step in fast} == {(False, 1.0), (True, -19.0)}
    assert {step[4]["speed"] for step in fast} == {3.5}
    assert fast[0][0].dtype == np.float32


def test_the_chances_of_an_episode_do_not_depend_on_its_speed():
    env = Fined(Treadmill(), limit=3.0, probability=0.05, fine=20.0)
    env.reset(seed=0)
    late = [env.step([0.0 if k < 1000 else 3.5])[4]["unsafe"] for k in range(2000)]
    assert late[1000:] == [step[4]["unsafe"] for step in fined(3.5)][1000:]
    assert not any(late[:1000])


def test_the_cheetah_is_fined_as_its_spec_says():
    env = WORLDS["cheetah"].make()
    bare = env.env
    assert isinstance(bare, Fined)
    assert (bare._limit, bare._probability, bare._fine) == (3.0, 0.05, 20.0)
    with pytest.raises(sr.BadInput, match="fine must"):
        Fined(Treadmill(), limit=3.0, probability=0.05, fine=-20.0)


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "mean", "p_unsafe"), [("betting", 12.148, 0.363), ("maze", 7.8, 0.05)])
def test_the_best_mean_of_a_table_is_known_exactly(name, mean, p_unsafe):
    mdp = WORLDS[name].mdp()
    best = sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=mdp.origin)
    assert (best.mean, best.p_unsafe) == (pytest.approx(mean, abs=5e-4), pytest.approx(p_unsafe, abs=5e-4))


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    with pytest.raises(sr.MissingExtra, match=r"this world needs nosuchthing; .*pip install 'safereplay\[deep\]'"):
        worlds._needs("nosuchthing")


def test_an_unknown_world_is_answered_with_a_known_one():
    with pytest.raises(sr.BadInput, match="unknown world 'clif'; did you mean 'cliff'"):
        world_named("clif")
