"""Sentences on the page of a comparison: which contestants are among the best, and where and why others fail."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..views.intervals import listed, percent
from .results import Chapter, Comparison, Family, Standing

MOST = 2 / 3  # share of contestants among the best: a world with more separates them little
FEW = 4  # names in a sentence
POOR = 0.5  # of the largest area: a contestant with less fails on a world
WORDS = {"wins": "wins", "shares": "among the best", "loses": "loses", "absent": "—"}


# -- one world ---------------------------------------------------------------------------------------------------------


def ours(chapter: Chapter) -> Standing | None:
    """The better of the paper's two mixings."""
    return next((s for s in chapter.standings if s.family.contestant.ours), None)


def verdict(chapter: Chapter) -> str:
    """What the paper's replay does on a world: 'wins', 'shares', 'loses', or 'absent'.

    It *loses* if it is not among the best, and *wins* if no other contestant is.
    """
    own = ours(chapter)
    if own is None:
        return "absent"
    if not own.among_best:
        return "loses"
    return "wins" if all(s.family.contestant.ours for s in chapter.standings if s.among_best) else "shares"


# -- all worlds --------------------------------------------------------------------------------------------------------


def bests(found: Comparison) -> Counter[str]:
    """On how many worlds each contestant is among the best."""
    return Counter(s.family.label for c in found.chapters for s in c.standings if s.among_best)


def marks(found: Comparison) -> str:
    """The meaning of † and ‡, if they are used."""
    told = "† is given which outcomes are unsafe." if found.told else ""
    given = "; ".join(f"{label}, {found.given[label]}" for label in found.labels if label in found.given)
    return f"{told} {f'‡ takes something from the true model: {given}.' if given else ''}".strip()


def summary(found: Comparison) -> list[str]:
    """The largest mean areas, and how often the paper's replay wins and loses; empty for a single world."""
    worlds = len(found.chapters)
    if worlds < 2:
        return []
    ran = [label for label in found.labels if all(c.standing(label) for c in found.chapters)]
    blind = [label for label in ran if label == found.marked(label)]
    same = easy(found)
    lines = []
    if ran:
        first = ", ".join(f"{found.marked(label)} {percent(found.mean_area(label))}" for label in ran[:2])
        lines.append(f"Largest mean areas over {worlds} worlds: {first}.")
    if blind and ran[0] != blind[0]:
        lines.append(f"Largest among contestants without † or ‡: {blind[0]} {percent(found.mean_area(blind[0]))}.")
    if any(one.ours for one in found.plan.contestants):
        count = Counter(verdict(chapter) for chapter in found.chapters)
        lines.append(
            f"The paper's replay (the better of its two mixings) wins on {count['wins']}, is among the best on {count['shares']} "
            f"and loses on {count['loses']} of {worlds} worlds."
        )
    if same:
        lines.append(f"On {listed([c.title for c in same])} at least two in three contestants are among the best.")
    return lines


def failures(found: Comparison, label: str) -> list[Chapter]:
    """The worlds on which a contestant has less than half of the largest area."""
    return [
        c
        for c in found.chapters
        if (s := c.standing(label)) is not None and s.area.mean < POOR * c.standings[0].area.mean
    ]


def reason(family: Family) -> str:
    """Why a family has a small area."""
    scale = family.world.scale
    p, value, never = family.p.mean(1), family.value.mean(1), family.never
    if (never > 0.5).all():
        return "never ends"
    if (p > scale.limit + 1e-9).all():
        return "too risky at every setting"
    if (value < scale.enough).all():
        return "too little return at every setting"
    return "too little return at its safe settings"


def reasons(found: Comparison, label: str) -> str:
    """Where a contestant fails, by reason; empty if it fails nowhere."""
    by: dict[str, list[str]] = {}
    for chapter in failures(found, label):
        standing = chapter.standing(label)
        if standing is not None:
            by.setdefault(reason(standing.family), []).append(chapter.title)
    return "; ".join(f"{why}: {', '.join(titles)}" for why, titles in by.items())


def easy(found: Comparison) -> list[Chapter]:
    """The worlds on which at least two in three contestants are among the best."""
    return [c for c in found.chapters if len(c.standings) > 3 and np.mean([s.among_best for s in c.standings]) >= MOST]


def absent(found: Comparison) -> list[list[str]]:
    """Contestants that do not apply: the label, the worlds, and the reason on the first of them."""
    by: dict[str, list[tuple[str, str]]] = {}
    for chapter in found.chapters:
        for label, why in chapter.refused:
            by.setdefault(label, []).append((chapter.title, why))
    return [[label, ", ".join(title for title, _ in some), some[0][1]] for label, some in by.items()]
