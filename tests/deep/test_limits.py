"""Networks against the exact limit of their own replay."""

import numpy as np
import pytest

import safereplay as sr
from studies.deep.limits import TablePolicy, prediction
from studies.deep.records import Job
from studies.deep.summary import CVAR, KEYED, OURS
from studies.deep.training import Setting, evaluate, train
from studies.deep.worlds import world_named


class Planted:
    """A group of runs with given returns."""

    def __init__(self, family, *returns):
        self.family, self.seeds = family, len(returns)
        made = [type("E", (), {"returns": np.array(r)}) for r in returns]
        self.runs = [type("Run", (), {"evaluation": evaluation, "seed": i}) for i, evaluation in enumerate(made)]


def job(world="cliff", **changes):
    return Job(OURS, "", Setting(world, **changes).to_dict(), 10)


KEYS = {"v": 0.5, "beta": 2.0, "key": "world"}


@pytest.mark.parametrize(
    ("family", "scheme", "setting"),
    [(OURS, sr.SurpriseReplay(), {"v": 0.8}), (KEYED, sr.EntropicReplay(2.0), KEYS)],
)
def test_a_network_is_the_same_only_if_every_episode_is(family, scheme, setting):
    world = world_named("cliff")
    policy = TablePolicy(sr.shaped_limit(world.mdp(), scheme, v=setting["v"]))
    limit, next_one = (evaluate(policy, world, 300, run=seed) for seed in (0, 1))
    other = [*next_one["returns"][:-1], next_one["returns"][-1] + 1]
    assert limit["returns"] != next_one["returns"]  # each seed has its own episodes
    found = prediction(Planted(family, limit["returns"], other), job(**setting))
    assert (found.same, found.of) == (1, 2)
    assert found.p == np.mean([limit["p_catastrophe"], next_one["p_catastrophe"]]) < 0.06
    assert found.mean == np.mean([limit["mean_return"], next_one["mean_return"]])


def test_what_has_no_known_limit_is_left_out():
    assert prediction(Planted(CVAR, [0.0]), job(algorithm="qrdqn", alpha=0.1)) is None
    assert prediction(Planted(OURS, [0.0]), job("point", v=0.8)) is None


def test_the_limit_without_keys_is_that_of_the_settings_own_dial():
    """The guarded maze: v = 0.5 passes the guard, v = 0.8 goes around; with keys at v = 0.5 it goes around as well."""
    settings = [{"v": 0.5}, {"v": 0.8}, KEYS]
    found = [prediction(Planted(OURS, [0.0]), job("maze", **setting)).p for setting in settings]
    assert found[0] > 0.0
    assert found[1:] == [0.0, 0.0]


def test_targets_settle_where_one_fixed_slope_does_not():
    """The delayed cliff at v = 0.75: standard scores go round, entropic replay has a limit, as a monotone tilt must."""
    mdp = world_named("delayed").mdp()
    with pytest.raises(sr.BadInput, match="let targets converge"):
        sr.shaped_limit(mdp, sr.ScoreReplay(1.0), 0.75, "target")
    late = job("delayed", v=0.75, beta=4.0, tilt_on="target", key="world")
    assert prediction(Planted(KEYED, [0.0]), late) is not None


@pytest.mark.slow
def test_where_danger_comes_late_a_network_needs_the_tilt_on_the_target():
    """The delayed cliff, v = ½, β = 2, seed 0, 300 episodes: a tilt on the reward changes nothing, on the target it halves the falls."""
    settings = [
        Setting("delayed"),
        Setting("delayed", **KEYS),
        Setting("delayed", **KEYS, tilt_on="target"),
    ]
    plain, reward, target = (train(setting)["evaluation"]["p_catastrophe"] for setting in settings)
    assert reward == plain > 0.1
    assert target < plain / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cliff", "volatile"])
def test_a_shaped_network_comes_to_the_tabular_limit_of_the_same_rho_and_tilt(name):
    """SB3's DQN, one-hot, v = ½, β = 4, seeds 0 to 4: the same return as the limit's policy in each of 300 episodes, in 4 seeds or more."""
    world = world_named(name)
    limit, plain = (TablePolicy(sr.shaped_limit(world.mdp(), sr.EntropicReplay(4.0), v=v)) for v in (0.5, 0.0))
    assert evaluate(plain, world, 300)["returns"] != evaluate(limit, world, 300)["returns"]
    runs = [train(Setting(name, v=0.5, beta=4.0, key="world", seed=seed))["evaluation"]["returns"] for seed in range(5)]
    assert sum(returns == evaluate(limit, world, 300, run=seed)["returns"] for seed, returns in enumerate(runs)) >= 4
