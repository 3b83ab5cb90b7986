"""A limit on risk: the dial moves, the best model is kept, and fresh episodes certify it."""

import json
from dataclasses import replace
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import safereplay as sr
from safereplay.errors import ShapingWarning
from safereplay.sb3 import Certificate, RiskLimit, ShapedReplayBuffer, load_training
from safereplay.sb3.limits import FACTORS, Episodes, Limit, clopper_pearson, cvar, lowest_cvar


class Roads(gymnasium.Env):
    """One step: roads that pay more crash more often. A crash costs 1."""

    observation_space, action_space = spaces.Box(0.0, 1.0, (1,), np.float32), spaces.Discrete(3)
    PAYS, RISKS = (0.55, 0.8, 1.0), (0.0, 0.04, 0.15)

    def __init__(self, key="unsafe"):
        self.key = key

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, road):
        crash = bool(self.np_random.random() < self.RISKS[road])
        return np.zeros(1, np.float32), -1.0 if crash else self.PAYS[road], True, False, {self.key: crash}


class Silent(Roads):
    """The same, with an entry in info only after a crash."""

    def step(self, road):
        *step, info = super().step(road)
        return *step, {name: x for name, x in info.items() if x}


class Wide(Roads):
    """The same, with observations that are larger from the 500th episode of the process on."""

    observation_space = spaces.Box(-1e4, 1e4, (1,), np.float32)
    episodes = 0

    def reset(self, *, seed=None, options=None):
        Wide.episodes += 1
        obs, info = super().reset(seed=seed)
        return obs + 100.0 * (Wide.episodes > 500), info


ONE = Roads()


def model(env=None, seed=0, **options):
    return DQN(
        "MlpPolicy",
        env or Roads(),
        learning_rate=5e-3,
        batch_size=64,
        train_freq=2,
        exploration_final_eps=0.5,
        policy_kwargs={"net_arch": [32]},
        seed=seed,
        device="cpu",
        **{"replay_buffer_class": ShapedReplayBuffer, "learning_starts": 100, **options},
    )


def limited(folder, seed=0, steps=3_000, **options):
    keep = RiskLimit(**{"eval_env": Roads, "max_p_unsafe": 0.08, "folder": folder, "evaluations": 20, **options})
    trained = model(seed=seed).learn(steps, callback=keep)
    return trained, keep


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bad", "n"), [(0, 50), (3, 300), (40, 50), (50, 50)])
def test_the_upper_bound_is_exact(bad, n):
    """With P = the bound, at most ``bad`` of n has probability 5 %."""
    p = clopper_pearson(bad, n)
    assert p == 1.0 if bad == n else stats.binom.cdf(bad, n, p) == pytest.approx(0.05)


def test_the_bound_of_cvar_is_below_the_true_one_as_often_as_promised():
    """Uniform returns, CVaR_0.2 = 0.1; 400 samples of 500, at 90 %; the bound of Dvoretzky, Kiefer & Wolfowitz is conservative."""
    rng = np.random.default_rng(0)
    bounds = [lowest_cvar(rng.random(500), 0.2, 0.9, worst=0.0) for _ in range(400)]
    assert np.mean(np.array(bounds) <= 0.1) >= 0.9
    assert np.mean(bounds) > 0.03
    assert cvar(np.arange(10.0), 0.2) == 0.5


@pytest.mark.parametrize(
    ("arguments", "episodes"), [((0.06,), 100), ((0.02,), 200), ((0.003,), 1334), ((None, -5.0), 100)]
)
def test_an_evaluation_has_enough_episodes_to_see_the_limit(arguments, episodes):
    assert RiskLimit("CartPole-v1", *arguments, unsafe=lambda *_: False).episodes == episodes
    assert RiskLimit("CartPole-v1", *arguments, unsafe=lambda *_: False, episodes=50).episodes == 50


def test_the_number_of_fresh_episodes_gives_the_certificate_that_it_promises():
    limit = Limit(most=0.05)
    seen = Episodes(np.zeros(300), np.arange(300) < 6)
    n = limit.episodes_needed(seen, 0.95)
    rng = np.random.default_rng(1)
    bad = rng.binomial(n, 6.5 / 301, 1_000)
    assert 300 <= n <= 2_000
    assert np.mean([clopper_pearson(int(k), n) <= 0.05 for k in bad]) > 0.87


def test_small_limits_are_judged_by_as_many_episodes_as_they_need():
    """2,500 safe episodes prove no limit below 0.16 %."""
    nothing = np.zeros(4_000)
    for most in (0.0005, 0.001, 0.0016, 0.01):
        assert Limit(most).excess(0, 4_000, nothing, 1 - 0.05 / 3, 0.0) <= 0.0
        assert Limit(most).excess(4_000 * most, 4_000, nothing, 1 - 0.05 / 3, 0.0) > 0.0


def test_the_confidence_is_not_rounded_up():
    shown = str(Certificate(True, "P(unsafe)", 0.05, 0.0, 0.02, 0.996, 304, 0, 1.0, 0, 16, "best_model.zip", 100))
    assert "P(unsafe) is at most 2 % with 99.6% confidence (0 of 304 fresh" in shown


# -- the controller ----------------------------------------------------------------------------------------------------


def test_a_limit_is_kept_and_certified_by_episodes_that_the_controller_never_saw(tmp_path):
    _, keep = limited(tmp_path)
    found = keep.certificate
    assert found.kept
    assert found.bound <= 0.08
    assert found.bound == clopper_pearson(found.unsafe, found.episodes, 1 - 0.05 / 3)
    assert keep.history[0]["v"] == 0.0
    assert max(entry["v"] for entry in keep.history) > 0.0
    best = DQN.load(tmp_path / "best_model.zip")
    assert int(best.predict(np.zeros(1, np.float32), deterministic=True)[0]) in (0, 1)
    told = json.loads((tmp_path / "certificate.json").read_text())
    assert told["sentence"] == str(found)
    assert Certificate.load(tmp_path / "certificate.json") == found
    best = max(keep.history, key=lambda entry: entry["mean_return"])
    price = (
        f"the limit of 8 % is kept. The highest mean return in training was {best['mean_return']:.4g}, with P(unsafe)"
    )
    assert price in str(found)
    assert str(replace(found, history=[])).endswith("the limit of 8 % is kept.")


def test_a_limit_that_nothing_keeps_is_reported_with_the_best_that_was_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(Roads, "RISKS", (0.3, 0.4, 0.5))
    _, keep = limited(tmp_path, evaluations=40)
    assert not keep.certificate.kept
    assert "is not certified; this is the best policy seen." in str(keep.certificate)
    assert keep.certificate.value == pytest.approx(0.3, abs=0.12)
    assert keep._top  # every level was tried
    assert (tmp_path / "best_model.zip").exists()


def test_a_floor_on_cvar_is_kept(tmp_path):
    """CVaR_0.2 of the roads: 0.55, 0.44 and −0.5; of the second a bound is 0.28, since a share of the probability is moved to the worst return."""
    _, keep = limited(tmp_path, max_p_unsafe=None, min_cvar=0.2, alpha=0.2)
    assert keep.certificate.kept
    assert keep.certificate.quantity == "CVaR_0.2"
    lowest = keep.certificate.settings["lowest_return_assumed"]
    assert lowest <= 0.55
    assert f"fresh episodes, if no return is below {lowest:.4g}; mean return" in str(keep.certificate)


@pytest.mark.parametrize(("worst", "assumed"), [(-1.0, False), (0.9, True)])
def test_a_lowest_return_that_is_known_is_not_an_assumption_unless_a_return_was_lower(tmp_path, worst, assumed):
    _, keep = limited(tmp_path, max_p_unsafe=None, min_cvar=0.2, alpha=0.2, worst=worst, steps=1_000)
    assert ("lowest_return_assumed" in keep.certificate.settings) is assumed
    assert ("if no return is below" in str(keep.certificate)) is assumed


def test_harm_may_be_reported_only_where_there_is_some(tmp_path):
    """But in the first evaluation there must be some: else an entry with another name would count as safety."""
    keep = RiskLimit(Silent, 0.02, folder=tmp_path, evaluations=20)
    model(Silent()).learn(3_000, callback=keep)
    assert keep.certificate.kept
    assert keep.history[0]["unsafe"] > 0
    assert 0 in [entry["unsafe"] for entry in keep.history]


def test_one_limit_for_two_models_judges_each_by_itself(tmp_path):
    _, keep = limited(tmp_path)
    model(seed=1).learn(400, callback=keep)
    assert [entry["step"] for entry in keep.history] == [*range(20, 400, 20), 400]
    assert keep.history[0]["v"] == 0.0
    assert keep.certificate.step <= 400
    assert {int(file.stem.split("-")[1]) for file in tmp_path.glob("candidate-*")} <= set(range(20, 401, 20))


def test_another_limit_does_not_continue_a_training(tmp_path):
    trained, _ = limited(tmp_path, steps=400)
    keep = RiskLimit(Roads, min_cvar=0.2, alpha=0.2, folder=tmp_path)
    with pytest.raises(sr.BadInput, match=r"folder must hold a training with .*'least': 0.2.*, got .*'most': 0.08"):
        trained.learn(100, reset_num_timesteps=False, callback=keep)
    assert keep.history == []  # nothing of the other training was taken over


def test_files_of_others_in_the_folder_stay(tmp_path):
    mine = [tmp_path / name for name in ("limit-notes.txt", "candidate-list.csv", "limit-7.txt")]
    for file in mine:
        file.write_text("mine")
    (tmp_path / "candidate-7.zip").write_text("of an earlier training")
    limited(tmp_path, steps=400)
    assert all(file.read_text() == "mine" for file in mine)
    assert not (tmp_path / "candidate-7.zip").exists()


def test_with_vecnormalize_a_candidate_has_the_statistics_of_its_step(tmp_path):
    """From step 500 on the statistics are others; the best model is from before."""
    Wide.episodes = 0
    env = VecNormalize(DummyVecEnv([Wide]), norm_reward=False)
    keep = RiskLimit(Wide, 0.3, folder=tmp_path, evaluations=10, episodes=16)
    keep._candidates = lambda: [entry for entry in keep.history if entry["step"] == 300]
    model(env).learn(1_000, callback=keep)
    assert keep.certificate.step == 300
    kept = VecNormalize.load(tmp_path / "best_normalizer.pkl", DummyVecEnv([Wide]))
    assert 300 <= kept.obs_rms.count < 310
    assert float(kept.obs_rms.var[0]) < 0.1 * float(env.obs_rms.var[0])
    loads, load = [], VecNormalize.load
    VecNormalize.load = staticmethod(lambda path, envs: loads.append(path) or load(path, envs))
    try:
        keep._run(16, 0, 300)
    finally:
        VecNormalize.load = load
    assert loads == [str(tmp_path / "candidate-300.pkl")]


def test_of_several_certificates_that_fail_the_best_is_given(tmp_path, monkeypatch):
    rates = {20: 0.06, 40: 0.2, 60: 0.3}
    _, keep = limited(tmp_path, steps=400)
    monkeypatch.setattr(keep, "_candidates", lambda: keep.history[:3])
    monkeypatch.setattr(keep, "_loaded", lambda step: keep.model)
    monkeypatch.setattr(
        keep,
        "_run",
        lambda n, seed, step: Episodes(np.ones(n), np.arange(n) < (0.0 if seed < 1_800_000_000 else rates[step]) * n),
    )
    found = keep._certified()
    assert not found.kept
    assert (found.step, found.tries) == (20, 3)


def test_the_dial_waits_until_learning_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(Roads, "RISKS", (0.3, 0.4, 0.5))
    keep = RiskLimit(Roads, 0.08, folder=tmp_path, evaluations=20)
    model(learning_starts=900).learn(1_500, callback=keep)
    assert {entry["v"] for entry in keep.history if entry["step"] <= 900} == {0.0}
    assert max(entry["v"] for entry in keep.history) > 0.0


def test_episodes_that_evaluations_cut_get_a_warning(tmp_path):
    class Long(Roads):
        def reset(self, **options):
            self.left = 60
            return super().reset(**options)

        def step(self, road):
            self.left -= 1
            obs, reward, _, _, info = super().step(road)
            return obs, reward, self.left == 0, False, info

    keep = RiskLimit(Long, 0.9999, folder=tmp_path, evaluations=5, episodes=10)
    with pytest.warns(ShapingWarning, match="an episode has 60 steps, and each evaluation ends the running episodes"):
        model(Long()).learn(400, callback=keep)


@pytest.mark.parametrize("stop", [900, 1_400])
def test_a_killed_training_ends_with_the_same_certificate(tmp_path, parameters, stop):
    class Killed(Exception):
        pass

    def kill(local, _):
        if local["self"].num_timesteps >= stop:
            raise Killed
        return True

    whole, keep = limited(tmp_path / "whole", steps=2_000)
    again = RiskLimit(Roads, 0.08, folder=tmp_path / "killed", evaluations=20)
    from stable_baselines3.common.callbacks import CallbackList, ConvertCallback

    with pytest.raises(Killed):
        model().learn(2_000, callback=CallbackList([again, ConvertCallback(kill)]))
    resumed = load_training(DQN, tmp_path / "killed", Roads())
    assert 0 < resumed.num_timesteps <= stop
    again = RiskLimit(Roads, 0.08, folder=tmp_path / "killed", evaluations=20)
    resumed.learn(2_000 - resumed.num_timesteps, reset_num_timesteps=False, callback=again)
    np.testing.assert_array_equal(parameters(whole), parameters(resumed))
    assert again.certificate == keep.certificate


@pytest.mark.parametrize("kind", ["id", "env", "vec", "normalized"])
def test_evaluation_environments_of_every_kind(tmp_path, kind):
    gymnasium.register("RoadsOfTest-v0", Roads) if kind == "id" else None
    given = {"id": "RoadsOfTest-v0", "env": Roads(), "vec": DummyVecEnv([Roads] * 3), "normalized": Roads}[kind]
    env = VecNormalize(DummyVecEnv([Roads])) if kind == "normalized" else None
    keep = RiskLimit(given, 0.3, folder=tmp_path, evaluations=5, episodes=10)
    model(env).learn(400, callback=keep)
    assert keep.certificate.episodes >= 300


def test_harm_may_be_a_cost_or_a_function(tmp_path):
    for k, (key, unsafe) in enumerate([("cost", "cost"), ("unsafe", lambda info, reward, terminated: reward < 0)]):
        keep = RiskLimit(lambda key=key: Roads(key), 0.5, unsafe=unsafe, folder=tmp_path / str(k), evaluations=5)
        model().learn(300, callback=keep)
        assert keep.certificate.kept


def test_levels_start_at_plain_replay_and_rise():
    assert FACTORS[0] == 1.0
    assert all(a < b for a, b in pairwise(FACTORS))


# -- bad input ---------------------------------------------------------------------------------------------------------

BAD = [
    ({"max_p_unsafe": 1.5}, r"max_p_unsafe must be in \(0, 1\), got 1.5"),
    ({"max_p_unsafe": 0}, r"max_p_unsafe must be in \(0, 1\), got 0"),
    ({"max_p_unsafe": "1 %"}, "max_p_unsafe must be a number, got '1 %'"),
    ({}, "limit must be either max_p_unsafe or min_cvar, got"),
    ({"max_p_unsafe": 0.1, "min_cvar": 0.0}, "limit must be either max_p_unsafe or min_cvar, got"),
    ({"min_cvar": float("inf")}, "min_cvar must be finite, got inf"),
    ({"max_p_unsafe": 0.1, "alpha": 1.0}, r"alpha must be in \(0, 1\), got 1"),
    ({"max_p_unsafe": 0.0003}, "max_p_unsafe must be at least 0.000409, got 0.0003; else 10,000 safe episodes do"),
    (
        {"min_cvar": 0.1, "alpha": 0.02},
        "alpha must be above 0.0286, got 0.02; the share that the bound of 2,500 episodes",
    ),
    ({"max_p_unsafe": 0.1, "unsafe": 3}, "unsafe must be the name of an entry of info, or a function, got 3"),
    ({"max_p_unsafe": 0.1, "evaluations": 1}, "evaluations must be at least 5, got 1"),
    ({"max_p_unsafe": 0.1, "episodes": 1}, "episodes must be at least 10, got 1"),
    ({"max_p_unsafe": 0.1, "confidence": 1}, r"confidence must be in \(0, 1\), got 1"),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=lambda x: "" if isinstance(x, str) else ",".join(x))
def test_a_bad_argument_gets_one_line(options, message):
    with pytest.raises(sr.BadInput, match=message):
        RiskLimit(Roads, **options)


def test_an_environment_that_never_reports_harm_gets_one_line(tmp_path):
    keep = RiskLimit(lambda: Roads("fine"), 0.1, folder=tmp_path, evaluations=5)
    with pytest.raises(
        sr.BadInput, match=r"eval_env must report harm in info\['unsafe'\], got 'no such entry'; set it in safe"
    ):
        model().learn(300, callback=keep)


def test_the_training_environment_is_refused_for_evaluation(tmp_path):
    env = Roads()
    hidden = DummyVecEnv([lambda: env])
    for given, trained in [(env, model(env)), (vec := DummyVecEnv([Roads]), model(vec)), (hidden, model(env))]:
        with pytest.raises(sr.BadInput, match="eval_env must not be the training environment, got"):
            trained.learn(300, callback=RiskLimit(given, 0.1, folder=tmp_path))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ONE, "eval_env must make another environment at each call, got 'the same one twice'"),
        (lambda: None, "eval_env must make an environment of Gymnasium, got 'NoneType'"),
    ],
)
def test_a_function_that_makes_no_environments_gets_one_line(tmp_path, make, message):
    with pytest.raises(sr.BadInput, match=message):
        model().learn(300, callback=RiskLimit(make, 0.1, folder=tmp_path))


@pytest.mark.parametrize("value", [None, float("nan"), "yes", np.array([1.0, 0.0])], ids=str)
def test_harm_that_is_no_flag_and_no_cost_gets_one_line(tmp_path, value):
    class Odd(Roads):
        def step(self, road):
            *step, _ = super().step(road)
            return *step, {"harm": value}

    for unsafe, name in [("harm", r"info\['harm'\] must be"), (lambda *_: value, "unsafe must return")]:
        keep = RiskLimit(Odd, 0.1, unsafe=unsafe, folder=tmp_path, evaluations=5)
        with pytest.raises(sr.BadInput, match=f"{name} True, False or a finite cost, got"):
            model().learn(300, callback=keep)


def test_a_plain_buffer_and_other_spaces_are_refused(tmp_path):
    keep = RiskLimit(Roads, 0.1, folder=tmp_path)
    with pytest.raises(
        sr.BadInput, match="replay_buffer_class must be ShapedReplayBuffer, for a limit on risk, got 'ReplayB"
    ):
        model(replay_buffer_class=None).learn(300, callback=keep)
    with pytest.raises(sr.BadInput, match="eval_env must have the spaces of the training environment"):
        model().learn(300, callback=RiskLimit("CartPole-v1", 0.1, folder=tmp_path))
    with pytest.raises(
        sr.BadInput, match="eval_env must be a function that makes an environment, its id, or one, got 7"
    ):
        model().learn(300, callback=RiskLimit(7, 0.1, folder=tmp_path))


def test_another_file_is_no_certificate(tmp_path):
    (tmp_path / "other.json").write_text("[1]")
    with pytest.raises(sr.BadFile, match=r"other.json must be a certificate, got another file"):
        Certificate.load(tmp_path / "other.json")


def test_a_folder_that_cannot_be_written_to_is_refused_before_training(tmp_path):
    (tmp_path / "file").write_text("")
    trained = model()
    with pytest.raises(sr.CannotWrite, match="must be a folder"):
        trained.learn(300, callback=RiskLimit(Roads, 0.1, folder=tmp_path / "file"))
    assert trained.num_timesteps == 0
