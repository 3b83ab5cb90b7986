import pytest

import safereplay as sr
from safereplay import catalog
from safereplay.arena.plan import SHARES, contestants
from safereplay.errors import BadInput


def test_a_learner_takes_part_over_its_own_dial():
    (one,) = contestants(["mihatsch"], [])
    assert one.dial == "kappa"
    assert one.settings == sr.RiskSensitive.SETTINGS
    assert [learner.kappa for learner in one.learners] == list(one.settings)


def test_a_learner_without_a_dial_takes_part_once():
    (one,) = contestants(["q"], [])
    assert one.learners == (sr.QLearning(),)
    assert one.shown(one.settings[0]) == "—"


def test_a_scheme_takes_part_in_both_mixings_and_its_neutral_end_is_q_learning():
    literal, matched = contestants([], ["variance"])
    assert literal.settings == matched.settings == SHARES
    assert literal.learners[0] == matched.learners[0] == sr.QLearning()
    assert {learner.mixing for learner in literal.learners[1:]} == {"literal"}
    assert {learner.mixing for learner in matched.learners[1:]} == {"matched"}
    assert literal.ours
    assert matched.ours


def test_a_risk_measure_runs_over_v_and_over_its_own_dial():
    over_v, over_alpha = contestants([], ["cvar"])
    assert (over_v.dial, over_alpha.dial) == ("v", "alpha")
    assert over_v.learners[0] == sr.QLearning()
    assert over_v.learners[-1] == over_alpha.learners[-1] == sr.ReplayQLearning(sr.CVaRReplay(0.05), 1.0, "anchored")
    assert {learner.v for learner in over_alpha.learners} == {1.0}
    assert over_alpha.learners[0].scheme == sr.CVaRReplay(1.0)


def test_replay_without_a_scheme_is_the_papers():
    assert contestants(["replay"], []) == contestants([], ["variance"])


def test_every_system_of_the_catalog_can_take_part_and_has_a_name_of_its_own():
    everyone = contestants(catalog.LEARNERS, catalog.SCHEMES)
    labels = [one.label for one in everyone]
    assert len(set(labels)) == len(labels)
    assert len(everyone) == len(catalog.LEARNERS) - 1 + 2 * len(catalog.SCHEMES)


@pytest.mark.parametrize(
    ("learners", "schemes", "said"), [(["mihatch"], [], "mihatsch"), ([], ["varience"], "variance")]
)
def test_a_misspelt_name_is_answered(learners, schemes, said):
    with pytest.raises(BadInput, match=f"did you mean '{said}'"):
        contestants(learners, schemes)
