import json

import numpy as np
import pytest
from planted import SCALE, SEEDS, chapter, comparison, record, world

from safereplay.arena.measures import area
from safereplay.arena.plan import contestants
from safereplay.arena.results import Family


def family(*records, name="mihatsch"):
    (one,) = contestants([name], [])
    return Family(world(), one, one.settings[: len(records)], records)


def test_a_familys_area_is_that_of_its_means_over_seeds():
    found = family(record(0.0, 0.4, noise=0.0), record(0.5, 1.0))
    assert found.area == pytest.approx(0.7)
    assert found.areas == pytest.approx(0.7)  # nothing varies over seeds


def test_resamples_take_the_same_seeds_for_all_settings():
    found = family(record(0.2, 0.5, noise=0.1, seed=1), record(0.4, 0.9, noise=0.1, seed=2))
    picked = np.random.default_rng(0).integers(SEEDS, size=(999, SEEDS))
    first = [x[:, picked[7]].mean(1)[:, None] for x in (found.p, found.value)]
    assert found.areas[7] == pytest.approx(area(*first, SCALE)[0])


def test_the_chosen_setting_is_the_useful_one_of_the_highest_return():
    found = family(record(0.6, 0.99), record(0.4, 0.8), record(0.1, 0.7), record(0.0, 0.1))
    assert found.good.tolist() == [False, True, True, False]
    assert found.chosen == 1
    assert found.band.settings == (0.1, 0.2)


def test_without_a_useful_setting_the_safest_is_chosen():
    assert family(record(0.9, 0.9), record(0.7, 0.2), record(0.7, 0.3)).chosen == 2


def test_what_cannot_be_judged_counts_as_unsafe_and_worthless():
    found = family(record(np.nan, np.nan, np.nan), record(0.0, -np.inf, 1.0))
    assert found.p.mean(1).tolist() == [1.0, 0.0]
    assert found.value.mean(1).tolist() == [0.0, 0.0]
    assert found.area == 0.0
    assert not found.good.any()


def test_updates_are_counted_by_the_step():
    assert family(record(0.0, 1.0, updates=2.5)).updates == pytest.approx(2.5)


def test_standings_go_from_the_best_on_and_say_who_cannot_be_told_apart():
    found = chapter(q=(0.5, 0.001), mihatsch=(0.8, 0.05), gaskett=(0.801, 0.05), matched=(0.7, 0.001))
    ranked = found.standings
    assert {s.family.contestant.name for s in ranked[:2]} == {"mihatsch", "gaskett"}
    assert [s.best for s in ranked] == [True, True, False, False]
    assert ranked[0].behind.mean == 0.0
    assert ranked[-1].behind.mean == pytest.approx(ranked[0].area.mean - ranked[-1].area.mean)
    assert ranked[-1].behind.low > 0.0


def test_labels_go_by_their_mean_area():
    found = comparison(
        chapter("a", q=0.9, matched=0.1), chapter("b", q=0.1, matched=0.2), chapter("c", q=0.0, matched=0.9)
    )
    assert found.labels == ("variance replay (matched)", "Q-learning")
    assert found.mean_area("Q-learning") == pytest.approx(1 / 3)


def test_what_was_found_goes_to_json():
    found = comparison(chapter("a", refused=[("hindsight", "needs goals")], q=0.9, matched=(0.1, 0.01)))
    plain = json.loads(json.dumps(found.to_dict()))
    (only,) = plain["worlds"]
    assert only["does_not_apply"] == {"hindsight": "needs goals"}
    assert [x["label"] for x in only["contestants"]] == ["Q-learning", "variance replay (matched)"]
    assert only["contestants"][0]["area"] == {
        "mean": pytest.approx(0.9),
        "low": pytest.approx(0.9),
        "high": pytest.approx(0.9),
    }
