from collections import Counter

import numpy as np
import pytest

from safereplay.paper import claims, experiments
from safereplay.paper.experiments import Sweep
from safereplay.paper.studies import TdErrors


def sweep(found):
    values = np.round(np.arange(len(found)) / 10, 6)
    return Sweep("κ", values, {"cliff": found}, {"cliff": found}, 1000)


def test_a_band_is_the_longest_unbroken_range():
    assert sweep(["risky", "safe", "safe", "jumps", "safe"]).band("cliff", "safe") == (0.1, 0.2)
    assert sweep(["safe", "risky"]).band("cliff", "safe") == (0.0, 0.0)
    assert sweep(["risky", "safe"]).band("cliff", "safe") == (0.1, 0.1)
    assert sweep(["risky", "risky"]).band("cliff", "safe") is None


def test_an_interval_is_wilsons():
    # Wilson's interval of 20 of 20 at 95 %: 1/(1 + z²/n) to 1, z = 1.96
    assert claims.interval(20, 20) == "20 of 20 seeds (95 % interval 0.84–1.00)"


def peaks(places, wide=0.3, n=200_000):
    """A sample with a large peak at the first place and small ones at the others."""
    generator = np.random.default_rng(0)
    parts = [generator.normal(x, wide, n if k == 0 else n // 100) for k, x in enumerate(places)]
    delta = np.concatenate(parts)
    return TdErrors(
        {"volatile": delta, "cliff": delta}, {"volatile": np.ones(delta.size), "cliff": np.ones(delta.size)}, 0.5, 5
    )


def test_modes_finds_each_peak_and_no_more():
    assert np.round(claims.modes(peaks([0.0], wide=5.0), "cliff")).tolist() == pytest.approx([0.0], abs=2)
    found = claims.modes(peaks([0.0, -100.0, 100.0], wide=8.0), "volatile")
    assert found == pytest.approx([-100.0, 0.0, 100.0], abs=10)


class OneCast:
    def __init__(self, counts):
        self._counts = Counter(counts)

    def counts(self, grid, name):
        return self._counts


@pytest.mark.parametrize(
    ("counts", "holds"), [({"safe": 20}, True), ({"safe": 19, "risky": 1}, True), ({"safe": 18, "stuck": 2}, False)]
)
def test_a_claim_about_a_path_needs_95_percent_of_the_seeds(counts, holds):
    class Study:
        cast = OneCast(counts)

    finding = claims.takes("replay", "safe")(Study(), "cliff")
    assert finding.holds is holds
    assert f"safe in {counts['safe']} of 20 seeds" in finding.evidence


def test_every_claim_has_its_own_id_and_a_world_of_its_own():
    ids = [claim.id for claim in claims.CLAIMS]
    assert len(set(ids)) == len(ids) == 25
    assert {claim.grid for claim in claims.CLAIMS} == {*experiments.GRIDS, "waiting room"}


def test_a_claim_about_peaks_needs_most_histograms():
    clear = claims._td_finding(peaks([0.0, -100.0, 100.0], wide=12.0), "volatile", lambda m: len(m) == 3)
    assert clear.holds
    assert "of 16 histograms" in clear.evidence
    assert not claims._td_finding(peaks([0.0], wide=5.0), "volatile", lambda m: len(m) == 3).holds
