from dataclasses import replace

import pytest
from planted import chapter, comparison

from safereplay.arena import sentences


def test_who_wins_and_by_how_much_follows_the_data():
    told = sentences.winner(chapter(q=0.2, mihatsch=0.6, matched=0.9))
    assert told.startswith(
        "variance replay, matched has 90 % [90, 90] of the ceiling's area, 30.0 points [30.0, 30.0] ahead of Mihatsch"
    )
    assert "The paper's replay wins here." in told
    told = sentences.winner(chapter(q=0.2, mihatsch=0.9, gaskett=0.8, matched=0.6))
    assert told.startswith("Mihatsch–Neuneier has 90 %")
    assert "ahead of Gaskett" in told
    assert (
        "The paper's replay loses: variance replay, matched has 60 %, 30.0 points [30.0, 30.0] behind Mihatsch–Neuneier and below 1 other."
        in told
    )


def test_what_cannot_be_told_apart_is_not_called_a_win():
    told = sentences.winner(chapter(mihatsch=(0.801, 0.05), matched=(0.8, 0.05), q=0.1))
    assert "not told apart from" in told
    assert "wins" not in told
    assert "loses" not in told


@pytest.mark.parametrize(
    ("areas", "found"),
    [
        ({"q": 0.1, "matched": 0.9, "variance": 0.9}, "wins"),
        ({"q": 0.9, "matched": 0.1, "variance": 0.9}, "shares"),
        ({"q": 0.9, "matched": 0.1, "variance": 0.2}, "loses"),
        ({"q": 0.9, "matched": 0.897}, "shares"),  # half a point is not worth telling apart
        ({"q": 0.9}, "absent"),
    ],
)
def test_the_papers_replay_is_judged_by_the_better_of_its_mixings(areas, found):
    assert sentences.verdict(chapter(**areas)) == found


def test_the_papers_own_record_names_where_it_loses_and_to_whom_worst_first():
    found = comparison(
        chapter("a", q=0.1, matched=0.9),
        chapter("b", q=0.5, mihatsch=0.8, matched=0.7),
        chapter("c", gaskett=0.9, matched=0.2),
        chapter("d", q=0.9, matched=0.9),
    )
    assert sentences.own_record(found) == (
        "The paper's own replay, taking the better of its two mixings, wins on a, is among the best on d and "
        "loses on c (to Gaskett, by 70.0 points) and b (to Mihatsch–Neuneier, by 10.0 points)."
    )


def test_the_same_record_turned_round_says_the_other_thing():
    found = comparison(chapter("a", q=0.1, matched=0.9), chapter("b", q=0.5, matched=0.7))
    assert "wins on a and b and loses nowhere" in sentences.own_record(found)
    found = comparison(chapter("a", q=0.9, matched=0.1))
    assert "loses on a (to Q-learning, by 80.0 points)" in sentences.own_record(found)
    assert sentences.own_record(comparison(chapter("a", q=0.9))) == "The paper's replay took no part."


def test_over_all_worlds_the_largest_mean_and_the_most_frequent_best_are_named():
    worlds = [chapter("a", q=0.9, mihatsch=0.8), chapter("b", q=0.9, mihatsch=0.8), chapter("c", q=0.0, mihatsch=0.8)]
    told = sentences.overall(comparison(*worlds))
    assert told.startswith(
        "Over 3 worlds Mihatsch–Neuneier has the largest mean area, 80 % of the ceiling's (next: Q-learning, 60 %)"
    )
    assert told.endswith("Most often among the best: Q-learning, on 2 of 3.")
    told = sentences.overall(comparison(chapter("a", q=0.9, mihatsch=0.8), chapter("b", q=0.9, mihatsch=0.8)))
    assert told.endswith("it is the best, or not told apart from it, on 2 of them, more often than anybody.")


def test_the_better_mixing_is_named_where_they_differ():
    found = comparison(
        chapter("a", variance=0.9, matched=0.5),
        chapter("b", variance=0.5, matched=0.9),
        chapter("c", variance=0.5, matched=0.5),
    )
    assert sentences.mixings(found) == (
        "Of the two mixings, variance replay has the larger area on a and variance replay, matched has the larger area on b."
    )
    assert sentences.mixings(comparison(chapter("c", variance=0.5, matched=0.5))) == ""


def test_who_fails_where_is_told_with_what_it_does_there():
    found = comparison(chapter("a", q=0.3, mihatsch=0.8), chapter("b", q=0.7, mihatsch=0.8))
    assert [c.title for c in sentences.failures(found, "Q-learning")] == ["a"]
    assert sentences.failures(found, "Mihatsch–Neuneier") == []
    assert sentences.reasons(found, "Q-learning") == "too little return at every setting: a"
    assert sentences.reasons(found, "Mihatsch–Neuneier") == ""


def test_worlds_on_which_most_are_as_good_as_the_best_are_said_to_be_so():
    same = chapter("a", q=0.9, mihatsch=0.9, matched=0.9, gaskett=0.1)
    found = comparison(same, chapter("b", q=0.1, mihatsch=0.2, matched=0.9))
    assert sentences.ties(found) == "On a most are as good as the best."
    assert "wins on b and loses nowhere" in sentences.own_record(found)
    assert sentences.ties(comparison(chapter("b", q=0.1, mihatsch=0.2, matched=0.9))) == ""


def test_the_best_of_those_that_see_rewards_alone_is_named_where_the_best_of_all_are_told_more():
    found = comparison(chapter("a", q=0.1, mihatsch=0.9, matched=0.5), chapter("b", q=0.1, mihatsch=0.9, matched=0.7))
    assert sentences.blind(found) == ""
    told = replace(found, told=frozenset({"Mihatsch–Neuneier"}))
    assert sentences.blind(told) == (
        "Mihatsch–Neuneier is told which outcomes are unsafe (†). Of those that see rewards alone, variance replay, matched has "
        "the largest mean area, 60 %."
    )


def test_who_takes_something_from_the_true_model_is_not_among_those_that_see_rewards_alone():
    worlds = [chapter(name, q=0.1, cvar=0.9, worst_case=0.8, matched=0.5) for name in "ab"]
    found = comparison(*worlds)
    assert found.given == {"CVaR": "the best target for its α", "worst case": "the largest reward"}
    assert [found.marked(label) for label in found.labels[:3]] == ["CVaR ‡", "worst case ‡", "variance replay, matched"]
    assert sentences.blind(found) == (
        "From the true model, CVaR is given the best target for its α and worst case is given the largest reward (‡). "
        "Of those that see rewards alone, variance replay, matched has the largest mean area, 50 %."
    )


def test_another_scheme_that_does_better_where_the_papers_loses_is_named():
    found = comparison(chapter("a", q=0.5, matched=0.2, score=0.9), chapter("b", q=0.9, matched=0.2, score=0.1))
    assert sentences.beyond(found) == "Where it loses, another scheme of replay is among the best on a (score replay)."
    found = comparison(chapter("a", q=0.9, matched=0.2, score=0.1))
    assert sentences.beyond(found) == "Where it loses, no other scheme of replay is among the best."
    assert sentences.beyond(comparison(chapter("a", q=0.1, matched=0.2, score=0.1))) == ""
