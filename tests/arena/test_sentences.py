from dataclasses import replace

import pytest
from planted import chapter, comparison

from safereplay.arena import results as sentences


@pytest.mark.parametrize(
    ("areas", "found"),
    [
        ({"q": 0.1, "matched": 0.9, "variance": 0.9}, "wins"),
        ({"q": 0.9, "matched": 0.1, "variance": 0.9}, "shares"),
        ({"q": 0.9, "matched": 0.1, "variance": 0.2}, "loses"),
        ({"q": 0.9, "matched": 0.897}, "shares"),  # half a point is not counted
        ({"mihatsch": (0.801, 0.05), "matched": (0.8, 0.05)}, "shares"),  # nor is a difference within the noise
        ({"q": 0.9}, "absent"),
    ],
)
def test_the_papers_replay_is_judged_by_the_better_of_its_mixings(areas, found):
    assert sentences.verdict(chapter(**areas)) == found


def test_the_summary_counts_where_the_papers_replay_wins_and_loses():
    worlds = [
        chapter("a", q=0.1, matched=0.9),
        chapter("b", q=0.5, mihatsch=0.8, matched=0.7),
        chapter("c", gaskett=0.9, matched=0.2),
        chapter("d", q=0.9, matched=0.9),
    ]
    told = sentences.summary(comparison(*worlds))
    assert any("wins on 1, is among the best on 1 and loses on 2 of 4 worlds" in line for line in told)
    assert not any("replay" in line for line in sentences.summary(comparison(chapter("a", q=0.9), chapter("b", q=0.9))))


def test_the_summary_begins_with_the_two_largest_mean_areas():
    worlds = [chapter("a", q=0.9, mihatsch=0.8), chapter("b", q=0.9, mihatsch=0.8), chapter("c", q=0.0, mihatsch=0.8)]
    assert sentences.summary(comparison(*worlds))[0].endswith("3 worlds: Mihatsch–Neuneier 80 %, Q-learning 60 %.")
    assert sentences.summary(comparison(worlds[0])) == []


def test_being_among_the_best_is_counted_by_world():
    worlds = [chapter("a", q=0.9, mihatsch=0.8), chapter("b", q=0.9, mihatsch=0.9), chapter("c", q=0.0, mihatsch=0.8)]
    assert sentences.bests(comparison(*worlds)) == {"Q-learning": 2, "Mihatsch–Neuneier": 2}


def test_who_fails_where_is_told_with_what_it_does_there():
    found = comparison(chapter("a", q=0.3, mihatsch=0.8), chapter("b", q=0.7, mihatsch=0.8))
    assert [c.title for c in sentences.failures(found, "Q-learning")] == ["a"]
    assert sentences.failures(found, "Mihatsch–Neuneier") == []
    assert sentences.reasons(found, "Q-learning") == "too little return at every setting: a"
    assert sentences.reasons(found, "Mihatsch–Neuneier") == ""


def test_worlds_on_which_most_are_among_the_best_are_named():
    found = comparison(
        chapter("a", q=0.9, mihatsch=0.9, matched=0.9, gaskett=0.1), chapter("b", q=0.1, mihatsch=0.2, matched=0.9)
    )
    assert [c.title for c in sentences.easy(found)] == ["a"]
    assert any(line.startswith("On a at least two in three") for line in sentences.summary(found))


def test_the_largest_area_without_a_mark_is_named_where_the_largest_has_one():
    found = comparison(chapter("a", q=0.1, mihatsch=0.9, matched=0.5), chapter("b", q=0.1, mihatsch=0.9, matched=0.7))
    unmarked = "Largest among contestants without † or ‡: variance replay (matched) 60 %, Q-learning 10 %."
    assert unmarked not in sentences.summary(found)
    assert sentences.marks(found) == ""
    told = replace(found)
    told.__dict__["told"] = frozenset({"Mihatsch–Neuneier"})
    assert unmarked in sentences.summary(told)
    assert sentences.marks(told) == "† is given which outcomes are unsafe."


def test_what_is_taken_from_the_true_model_is_named():
    worlds = [chapter(name, q=0.1, cvar=0.9, worst_case=0.8, matched=0.5) for name in "ab"]
    found = comparison(*worlds)
    assert found.given == {"CVaR": "the best target for its α", "worst case": "the largest reward"}
    assert [found.marked(label) for label in found.labels[:3]] == [
        "CVaR ‡",
        "worst case ‡",
        "variance replay (matched)",
    ]
    for label, what in found.given.items():
        assert f"{label}, {what}" in sentences.marks(found)


def test_who_does_not_apply_is_listed_with_its_worlds_and_the_first_reason():
    refused = [[("hindsight", f"needs goals, got '{name}'")] for name in "ab"]
    found = comparison(*(chapter(name, q=0.1, refused=why) for name, why in zip("ab", refused, strict=True)))
    assert sentences.absent(found) == [["hindsight", "a, b", "needs goals, got 'a'"]]


def test_the_summary_has_the_mean_over_the_worlds_that_separate_and_the_rule():
    worlds = [chapter("a", q=0.2, mihatsch=0.8), chapter("b", q=1.0, mihatsch=1.0), chapter("c", q=0.4, mihatsch=0.6)]
    told = sentences.summary(comparison(*worlds))
    assert told[0] == "Largest mean areas over 3 worlds: Mihatsch–Neuneier 80 %, Q-learning 53 %."
    assert told[1].startswith("Over the 2 that separate the contestants: Mihatsch–Neuneier 70 %, Q-learning 30 %.")
    assert told[1].endswith("can be unsafe and at least one contestant is not among the best; b does not.")
    assert not any("separate" in line for line in sentences.summary(comparison(worlds[0], worlds[2])))
