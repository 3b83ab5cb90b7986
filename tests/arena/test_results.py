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


def test_a_world_separates_if_something_can_be_unsafe_and_somebody_is_not_among_the_best():
    assert chapter(q=0.9, matched=0.1).separates
    assert not chapter(q=0.9, matched=0.9).separates
    assert not chapter(q=0.9, matched=0.897).separates  # half a point is not counted
    assert not chapter(mihatsch=(0.801, 0.05), matched=(0.8, 0.05)).separates  # nor is a difference within the noise
    assert not chapter(q=0.9, matched=0.1, dangerous=False).separates


def test_means_are_over_all_worlds_and_over_those_that_separate():
    found = comparison(
        chapter("a", q=0.2, matched=0.8), chapter("b", q=1.0, matched=1.0), chapter("c", q=0.4, matched=0.6)
    )
    assert [c.title for c in found.separating] == ["a", "c"]
    assert [c.title for c in found.equal] == ["b"]
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["separating_worlds"] == ["a", "c"]
    assert plain["equal_worlds"] == ["b"]
    assert [one["separates"] for one in plain["worlds"]] == [True, False, True]
    ours, plain_q = plain["means"]
    assert (ours["label"], plain_q["label"]) == ("variance replay (matched)", "Q-learning")
    assert (ours["all"], ours["separating"]) == (pytest.approx(0.8), pytest.approx(0.7))
    assert (plain_q["all"], plain_q["separating"]) == (pytest.approx(1.6 / 3), pytest.approx(0.3))


def test_without_a_separating_world_there_is_no_mean_over_them():
    found = comparison(chapter("a", q=1.0), chapter("b", q=1.0))
    (only,) = found.to_dict()["means"]
    assert only == {"label": "Q-learning", "all": pytest.approx(1.0), "separating": None, "of_designed": None}
    assert list(found.means) == ["mean area"]


def test_designed_replay_has_the_area_of_its_points():
    found = chapter("a", frontier=[(0.2, 0.5), (0.6, 1.0)], q=0.2, matched=0.8)
    assert found.designed_area == pytest.approx(0.6)  # 0.4 limits at 0.5, then 0.4 at 1
    both = comparison(found, chapter("b", q=0.2, matched=0.8), chapter("c", frontier=[(0.0, 0.4)], q=1.0, matched=1.0))
    assert both.mean_designed() == pytest.approx(0.5)  # over the worlds where it is known
    plain = json.loads(json.dumps(both.to_dict()))
    assert plain["designed_replay"] == {"all": pytest.approx(0.5), "separating": pytest.approx(0.6)}
    assert [one["designed_replay"] is None for one in plain["worlds"]] == [False, True, False]
    assert plain["worlds"][0]["designed_replay"]["points"] == [[0.2, 0.5], [0.6, 1.0]]
    assert np.isnan(both.chapters[1].designed_area)
    assert both.of_designed("variance replay (matched)") == pytest.approx(0.9 / 0.5)  # over the same two worlds
    assert plain["means"][0]["of_designed"] == pytest.approx(1.8)


def test_designed_replay_is_no_contestant():
    found = comparison(chapter("a", frontier=[(0.0, 1.0)], q=0.2, matched=0.8))
    assert found.labels == ("variance replay (matched)", "Q-learning")
    assert found.chapters[0].standings[0].behind.mean == 0.0
