"""Recorded answers: those of the preset worlds and of the lessons, which the server gives without a worker.

:mod:`safereplay.web.recording` writes the file. Without it, the server works out all answers.
"""

from __future__ import annotations

import gzip
import json
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from .state import LearnerLink, OpenLink, WorldLink, presets

PAGE = Path(__file__).parent / "page"
FILE = Path(__file__).parent / "recorded.json.gz"


def key_of(link: WorldLink) -> str:
    """The world of a request and, if it has one, its learner and ε: equal for requests with equal answers."""
    world = {name: value for name, value in link.to_world().to_dict().items() if name != "name"}
    learner = [link.to_side().text, link.epsilon] if isinstance(link, LearnerLink) else []
    return json.dumps([world, *learner], separators=(",", ":"))


@lru_cache(maxsize=1)
def _answers() -> dict[str, dict[str, Any]]:
    """All recorded answers, by the name of their job and by key; none if the file cannot be read."""
    try:
        found = json.loads(gzip.decompress(FILE.read_bytes()))
        return {name: dict(answers) for name, answers in dict(found).items()}
    except (OSError, ValueError, TypeError, EOFError, zlib.error):
        return {}


def answer_to(name: str, link: WorldLink) -> bytes | None:
    """The recorded answer of job ``name`` as JSON, if there is one."""
    found = _answers().get(name, {}).get(key_of(link))
    return None if found is None else json.dumps(found, separators=(",", ":")).encode()


def read_link(query: str) -> OpenLink:
    """The state of a link to the page.

    >>> read_link("world=cliff&slip=0.2&lesson=1").slip
    0.2
    """
    return OpenLink.model_validate(dict(parse_qsl(query.lstrip("?"), keep_blank_values=True)))


def lesson_links() -> list[str]:
    """Every link of the lessons, each once; none without the file of the lessons."""
    try:
        lessons = json.loads((PAGE / "lessons.json").read_text("utf-8"))
    except OSError:
        return []
    steps = [step for lesson in lessons for step in lesson["steps"]]
    found = [one.get("link") for step in steps for one in (step, step.get("do") or {})]
    return list(dict.fromkeys(link for link in found if link is not None))


def page_links() -> list[str]:
    """The links whose answers are recorded: the page without one, the preset worlds, and the lessons."""
    return list(dict.fromkeys(["", *(f"world={name}" for name in presets()), *lesson_links()]))


def questions(link: OpenLink) -> list[LearnerLink]:
    """The requests about both learners of a link."""
    world = {name: getattr(link, name) for name in WorldLink.model_fields if name != "quiet"}
    return [LearnerLink(**world, learner=side, epsilon=link.epsilon) for side in (link.left, link.right)]
