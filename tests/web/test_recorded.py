"""Recorded answers: the server's own, found by the question, and not needed."""

import json

import numpy as np
import pytest

from safereplay.web import recorded, recording
from safereplay.web.state import TITLES, LearnerLink, StateLink, WorldLink


@pytest.fixture
def forgotten():
    """The file is read again, before and after."""
    recorded._answers.cache_clear()
    yield
    recorded._answers.cache_clear()


@pytest.mark.parametrize("world", TITLES)
def test_the_first_answers_of_every_preset_are_recorded(world):
    asked = [LearnerLink(world=world, learner=side) for side in (StateLink().left, StateLink().right)]
    assert all(recorded.answer_to("solve", link) for link in asked)
    assert recorded.answer_to("model", WorldLink(world=world))


def test_an_answer_is_found_by_what_is_asked_not_by_how():
    said = LearnerLink(world="cliff", learner="replay,scheme:variance,mixing:matched,v:0.50", slip=0.1, epsilon=0.1)
    assert recorded.key_of(said) == recorded.key_of(LearnerLink(learner="replay,mixing:matched"))
    assert recorded.answer_to("solve", said) is not None
    for other in ({"slip": 0.1001}, {"epsilon": 0.11}, {"learner": "replay,mixing:matched,v:0.51"}):
        assert recorded.key_of(LearnerLink(**{"learner": "replay,mixing:matched", **other})) != recorded.key_of(said)


def test_the_same_answers_give_the_same_file():
    found = {"solve": {"a": {"x": 0.1}}, "model": {}}
    assert recording.packed(found) == recording.packed(found)


@pytest.mark.parametrize("content", [None, b"", b"no archive", recording.packed({})[:-3], recording.packed([1])])
def test_without_a_readable_file_nothing_is_recorded(content, forgotten, tmp_path, monkeypatch):
    file = tmp_path / "recorded.json.gz"
    if content is not None:
        file.write_bytes(content)
    monkeypatch.setattr(recorded, "FILE", file)
    assert recorded.answer_to("solve", LearnerLink()) is None


def test_lessons_are_read_where_they_are_and_every_link_of_them(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "PAGE", tmp_path)
    assert recorded.lesson_links() == []
    steps = [{"text": "", "link": "world=cliff"}, {"text": ""}, {"text": "", "do": {"link": "world=bridge"}}]
    (tmp_path / "lessons.json").write_text(json.dumps([{"title": "", "steps": steps}]))
    assert recorded.lesson_links() == ["world=cliff", "world=bridge"]


def test_every_lesson_is_recorded():
    for query in recorded.lesson_links():
        for link in recorded.questions(recorded.read_link(query)):
            assert recorded.answer_to("solve", link) is not None, f"{query}: run python -m safereplay.web.recording"


@pytest.mark.whole
def test_every_recorded_answer_is_the_live_one():
    live, known = json.loads(json.dumps(recording.answers())), recorded._answers()
    assert {name: list(found) for name, found in live.items()} == {name: list(found) for name, found in known.items()}
    for name, found in live.items():
        for key, answer in found.items():
            assert alike(known[name][key], answer), f"{key}: run python -m safereplay.web.recording"


def alike(one, other):
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in other)
    if isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return np.isclose(one, other, rtol=1e-6, atol=1e-9) if isinstance(other, float) else one == other
