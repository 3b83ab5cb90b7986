import json
import re
from dataclasses import dataclass, fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safereplay as sr
from safereplay._config import Config

UNIT = st.floats(0, 1, exclude_max=True)
POSITIVE = st.floats(0, 1, exclude_min=True)
SCHEMES = st.one_of(st.just(sr.Scheme()), st.floats(-10, 10).map(sr.VarianceReplay))
CONFIGS = st.one_of(
    SCHEMES,
    st.builds(sr.PowerStep, POSITIVE, POSITIVE),
    st.builds(sr.ConstantStep, POSITIVE),
    st.builds(sr.EpsilonGreedy, UNIT, UNIT),
    st.builds(sr.Softmax, st.floats(1e-3, 1e3), UNIT),
    st.builds(sr.QLearning, c0=st.floats(-1e6, 1e6), T0=st.integers(1, 10**9)),
    st.builds(sr.ReplayQLearning, SCHEMES, UNIT, st.sampled_from(["literal", "matched"]), T0=st.integers(1, 100)),
    st.builds(sr.RiskSensitive, st.floats(-0.99, 0.99)),
    st.builds(sr.Pessimistic, UNIT, c0=st.floats(-5, 5)),
    st.builds(sr.WorstCase),
    st.builds(sr.WorstCase, c0=st.floats(-5, 5)),
    st.builds(sr.WorstTransition),
)


@given(CONFIGS)
def test_every_configuration_goes_to_json_and_back(config):
    text = json.dumps(config.to_dict())
    again = Config.from_dict(json.loads(text))
    assert again == config
    assert type(again) is type(config)
    assert json.dumps(again.to_dict()) == text


def test_numpy_numbers_become_plain_json_numbers():
    learner = sr.ReplayQLearning(sr.VarianceReplay(np.float32(0.5)), v=np.float64(0.25), T0=np.int64(3))
    again = Config.from_dict(json.loads(json.dumps(learner.to_dict())))
    assert again == sr.ReplayQLearning(sr.VarianceReplay(0.5), v=0.25, T0=3)


def test_a_dictionary_has_the_kind_first_then_the_fields_in_order():
    data = sr.ReplayQLearning(sr.VarianceReplay(2.0), v=0.25).to_dict()
    assert data == {
        "kind": "ReplayQLearning",
        "c0": 0.0,
        "T0": 1,
        "scheme": {"kind": "VarianceReplay", "beta": 2.0},
        "v": 0.25,
        "mixing": "literal",
    }
    assert next(iter(data)) == "kind"


def test_fields_that_are_left_out_have_their_defaults():
    assert Config.from_dict({"kind": "EpsilonGreedy"}) == sr.EpsilonGreedy()


def test_configurations_are_frozen_and_equal_by_value():
    learner = sr.RiskSensitive(0.5)
    with pytest.raises(AttributeError, match="cannot assign"):
        learner.kappa = 0.1
    assert learner == sr.RiskSensitive(0.5) != sr.RiskSensitive(0.6)
    assert len({learner, sr.RiskSensitive(0.5)}) == 1


def test_a_users_own_class_takes_part_as_soon_as_it_is_defined():
    @dataclass(frozen=True)
    class JustDefinedReplay(sr.Scheme):
        floor: float = 2.0

    scheme = JustDefinedReplay(3.0)
    assert Config.from_dict(scheme.to_dict()) == scheme
    assert [f.name for f in fields(scheme)] == ["floor"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"kind": "VarianceReply"}, "unknown kind 'VarianceReply'; did you mean 'VarianceReplay'?"),
        ({"kind": "qlearning"}, "unknown kind 'qlearning'; did you mean 'QLearning'?"),
        ({"beta": 5.0}, "unknown kind None; choose from "),
        ({"kind": 7}, "unknown kind 7; choose from "),
        ({"kind": "VarianceReplay", "bata": 1.0}, "unknown field of VarianceReplay 'bata'; did you mean 'beta'?"),
        ({"kind": "PowerStep", "zzz": 1.0}, "unknown field of PowerStep 'zzz'; choose from power, scale"),
        ({"kind": "RiskSensitive", "kappa": 1.5}, "kappa must be in (-1, 1), got 1.5"),
        ({"kind": "ReplayQLearning", "scheme": {"kind": "Softmax"}}, "scheme must be a Scheme, got Softmax("),
        ({"kind": "ReplayQLearning", "scheme": {"beta": 1.0}}, "scheme must be a Scheme, got {'beta': 1.0}"),
        ({"kind": "ReplayQLearning", "scheme": {"kind": "Varianc"}}, "unknown kind 'Varianc'"),
    ],
)
def test_what_cannot_be_built_is_refused_with_one_line(data, message):
    with pytest.raises(sr.BadInput, match=re.escape(message)):
        Config.from_dict(data)


@pytest.mark.parametrize("kind", ["Schedule", "Exploration"])
def test_a_kind_that_is_only_a_base_is_refused_like_any_bad_input(kind):
    with pytest.raises(sr.BadInput, match=kind):
        Config.from_dict({"kind": kind})
