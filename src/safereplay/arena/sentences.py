"""What a comparison says, in words. Every sentence is chosen by the data, and says the other thing when they do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isfinite

import numpy as np

from ..views.intervals import Estimate
from .results import Chapter, Comparison, Family, Standing

MOST = 2 / 3  # of the contestants as good as the best: a world that tells hardly anybody apart
FEW = 4  # names in a sentence
POOR = 0.5  # of the best's area: who has less fails on a world
WORDS = {"wins": "wins", "shares": "among the best", "loses": "loses", "absent": "takes no part"}
LITTLE = 0.005  # of the ceiling's area: a difference that nobody would notice


# -- numbers -----------------------------------------------------------------------------------------------------------


def percent(x: float, digits: int = 0) -> str:
    """A share in percent.

    >>> percent(0.974), percent(0.0123, 1), percent(float("nan"))
    ('97 %', '1.2 %', '—')
    """
    return f"{100 * x:.{digits}f} %".replace("-", "−") if isfinite(x) else "—"


def number(x: float) -> str:
    """A return.

    >>> number(-3.854), number(208.4)
    ('−3.85', '208')
    """
    if not isfinite(x):
        return "—"
    return (f"{x:.2f}" if abs(x) < 10 else f"{x:.1f}" if abs(x) < 100 else f"{x:.0f}").replace("-", "−")


def within(found: Estimate, digits: int = 0) -> str:
    """A share with its interval.

    >>> within(Estimate(0.5, 0.4, 0.6))
    '50 % [40, 60]'
    """
    if not isfinite(found.low):
        return percent(found.mean, digits)
    ends = f"[{percent(found.low, digits)}, {percent(found.high, digits)}]".replace(" %", "")
    return f"{percent(found.mean, digits)} {ends}"


def points(found: Estimate) -> str:
    """A difference of two shares, in points of a hundred, with its interval.

    >>> points(Estimate(0.097, 0.006, 0.15))
    '9.7 points [0.6, 15.0]'
    """
    shown = [f"{round(100 * x, 1) + 0.0:.1f}".replace("-", "−") for x in found]
    return f"{shown[0]} points" + (f" [{shown[1]}, {shown[2]}]" if isfinite(found.low) else "")


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Names in a row; beyond ``most`` they are counted.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d"], 2)
    ('a, b and c', 'a, b and 2 more')
    """
    names = list(names)
    if most is not None and len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} more"]
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


# -- one world ---------------------------------------------------------------------------------------------------------


def alike(standing: Standing) -> bool:
    """Whether somebody is the best of a world, cannot be told apart from it, or is not worth telling apart."""
    return standing.best or standing.behind.mean <= LITTLE


def ours(chapter: Chapter) -> Standing | None:
    """The better of the paper's two mixings."""
    return next((s for s in chapter.standings if s.family.contestant.ours), None)


def rivals(chapter: Chapter) -> list[Standing]:
    """Everyone else, from the best on."""
    return [s for s in chapter.standings if not s.family.contestant.ours]


def verdict(chapter: Chapter) -> str:
    """What the paper's replay does on a world: 'wins', 'shares', 'loses', or 'absent'.

    It *loses* if the best rival's lead has an interval above 0 and is more than :data:`LITTLE`; it *wins* if it leads
    everybody so.
    """
    own = ours(chapter)
    if own is None:
        return "absent"
    if not alike(own):
        return "loses"
    others = rivals(chapter)
    leads = own is chapter.standings[0] and not any(alike(s) for s in others)
    return "wins" if leads else "shares"


def winner(chapter: Chapter) -> str:
    """Who wins on a world, by how much, and what the paper's replay does there."""
    if not chapter.standings:
        return "Nobody runs here."
    first, *others = chapter.standings
    told = f"{first.family.label} has {within(first.area)} of the ceiling's area"
    same = [s.family.label for s in others if alike(s)]
    if same:
        told += f", not told apart from {listed(same, FEW)}"
    elif others:
        next_one = others[0]
        told += f", {points(next_one.behind)} ahead of {next_one.family.label}"
    return f"{told}. {_ours(chapter)}".strip()


def _ours(chapter: Chapter) -> str:
    own, found = ours(chapter), verdict(chapter)
    if own is None:
        return ""
    if found == "wins":
        return "The paper's replay wins here."
    share = percent(own.area.mean)
    if found == "shares":
        return (
            ""
            if own is chapter.standings[0]
            else f"The paper's replay ({own.family.label}, {share}) is among the best."
        )
    ahead = [s for s in rivals(chapter) if s.area.mean > own.area.mean]
    return (
        f"The paper's replay loses: {own.family.label} has {share}, {points(own.behind)} behind "
        f"{ahead[0].family.label}{_and_others(len(ahead) - 1)}."
    )


def _and_others(count: int) -> str:
    return "" if count == 0 else f" and below {count} other{'s' if count > 1 else ''}"


# -- all worlds --------------------------------------------------------------------------------------------------------


def bests(found: Comparison) -> Counter[str]:
    """On how many worlds each contestant is the best or cannot be told apart from it."""
    return Counter(s.family.label for c in found.chapters for s in c.standings if alike(s))


def overall(found: Comparison) -> str:
    """Who does best on average, and who is among the best most often."""
    worlds = len(found.chapters)
    everywhere = [label for label in found.labels if all(c.standing(label) for c in found.chapters)]
    if not everywhere or worlds < 2:
        return ""
    top = everywhere[0]
    count = bests(found).most_common(1)[0][1]
    told = f"Over {worlds} worlds {top} has the largest mean area, {percent(found.mean_area(top))} of the ceiling's"
    if len(everywhere) > 1:
        second = everywhere[1]
        told += f" (next: {second}, {percent(found.mean_area(second))})"
    same = [label for label, n in bests(found).items() if n == count]
    if same == [top]:
        return f"{told}; it is the best, or not told apart from it, on {count} of them, more often than anybody."
    return f"{told}. Most often among the best: {listed(same, FEW)}, on {count} of {worlds}."


def blind(found: Comparison) -> str:
    """Who does best of those that see rewards alone, where the best of all are told or given more."""
    everywhere = [label for label in found.labels if all(c.standing(label) for c in found.chapters)]
    others = [label for label in everywhere if label not in found.told and label not in found.given]
    if not others or everywhere[0] == others[0]:
        return ""
    told = [label for label in found.labels if label in found.told]
    given = [f"{label} is given {found.given[label]}" for label in found.labels if label in found.given]
    more = [f"{listed(told)} {'is' if len(told) == 1 else 'are'} told which outcomes are unsafe (†)."] if told else []
    more += [f"From the true model, {listed(given)} (‡)."] if given else []
    best = f"{others[0]} has the largest mean area, {percent(found.mean_area(others[0]))}."
    return " ".join([*more, f"Of those that see rewards alone, {best}"])


def own_record(found: Comparison) -> str:
    """Where the paper's replay wins, where it is among the best, and where it loses, worst first."""
    by = {"wins": [], "shares": [], "loses": []}  # type: dict[str, list[Chapter]]
    same = easy(found)
    for chapter in found.chapters:
        if (what := verdict(chapter)) in by and not (what == "shares" and chapter in same):
            by[what].append(chapter)
    if not any(one.ours for one in found.plan.contestants):
        return "The paper's replay took no part."
    parts = []
    if by["wins"]:
        parts.append(f"wins on {listed([c.title for c in by['wins']])}")
    if by["shares"]:
        parts.append(f"is among the best on {listed([c.title for c in by['shares']])}")
    losing = sorted(by["loses"], key=lambda c: -_lag(c))
    if losing:
        told = [f"{c.title} (to {c.standings[0].family.label}, by {100 * _lag(c):.1f} points)" for c in losing]
        parts.append(f"loses on {listed(told)}")
    else:
        parts.append("loses nowhere")
    return f"The paper's own replay, taking the better of its two mixings, {listed(parts)}."


def _lag(chapter: Chapter) -> float:
    own = ours(chapter)
    return 0.0 if own is None else own.behind.mean


def mixings(found: Comparison) -> str:
    """Which of the paper's two mixings does better, where they can be told apart."""
    better: dict[str, list[str]] = {}
    for chapter in found.chapters:
        both = [s for s in chapter.standings if s.family.contestant.ours]
        if len(both) == 2:
            lead = both[0].family.areas - both[1].family.areas
            if np.quantile(lead, 0.025) > 0 and both[0].area.mean - both[1].area.mean > LITTLE:
                better.setdefault(both[0].family.label, []).append(chapter.title)
    if not better:
        return ""
    told = [f"{label} has the larger area on {listed(titles)}" for label, titles in better.items()]
    return f"Of the two mixings, {listed(told)}."


def beyond(found: Comparison) -> str:
    """Where the paper's replay loses and another scheme of replay does not."""
    better: dict[str, list[str]] = {}
    losing = [c for c in found.chapters if verdict(c) == "loses"]
    for chapter in losing:
        for s in rivals(chapter):
            if s.family.contestant.replays and alike(s):
                better.setdefault(chapter.title, []).append(s.family.label)
    others = any(one.replays and not one.ours for one in found.plan.contestants)
    if not losing or not others:
        return ""
    if not better:
        return "Where it loses, no other scheme of replay is among the best."
    told = [f"{title} ({listed(labels, FEW)})" for title, labels in better.items()]
    return f"Where it loses, another scheme of replay is among the best on {listed(told)}."


def failures(found: Comparison, label: str) -> list[Chapter]:
    """The worlds on which a contestant has less than half of the best's area."""
    return [
        c
        for c in found.chapters
        if (s := c.standing(label)) is not None and s.area.mean < POOR * c.standings[0].area.mean
    ]


def reason(family: Family) -> str:
    """Why a family has a small area: what its settings do."""
    scale = family.world.scale
    p, value, never = family.p.mean(1), family.value.mean(1), family.never
    if (never > 0.5).all():
        return "never ends"
    if (p > scale.limit + 1e-9).all():
        return "too risky at every setting"
    if (value < scale.enough).all():
        return "too little return at every setting"
    return "too little return where it is safe"


def reasons(found: Comparison, label: str) -> str:
    """Where a contestant fails, by reason; empty if it fails nowhere."""
    by: dict[str, list[str]] = {}
    for chapter in failures(found, label):
        standing = chapter.standing(label)
        if standing is not None:
            by.setdefault(reason(standing.family), []).append(chapter.title)
    return "; ".join(f"{why}: {', '.join(titles)}" for why, titles in by.items())


def easy(found: Comparison) -> list[Chapter]:
    """The worlds on which at least two in three are as good as the best."""
    return [c for c in found.chapters if len(c.standings) > 3 and np.mean([alike(s) for s in c.standings]) >= MOST]


def ties(found: Comparison) -> str:
    """Which worlds tell hardly anybody apart."""
    same = easy(found)
    return f"On {listed([c.title for c in same])} most are as good as the best." if same else ""
