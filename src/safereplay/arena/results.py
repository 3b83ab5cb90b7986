"""The results of a comparison: a chapter per world, with settings and standings; and sentences on who is best, who fails, why.

The best contestant of a world has the largest area (:mod:`safereplay.arena.measures`). Another one has *no significant
difference* from it if the 95 % interval of the difference of areas contains 0; seeds are resampled for both together.

A world *separates* the contestants if an outcome there can be unsafe and at least one contestant is not among the best.
Other worlds add the same to every mean, so means are given over all worlds and over those that separate.

*Designed replay* is a reference, not a contestant: what replay could do at best if its weights were chosen for the world
(:func:`safereplay.arena.plan.designed`). Its area is measured like that of a contestant whose settings are its points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import isfinite
from typing import Any

import numpy as np

from .. import _checks
from .._checks import Bools, Floats, Ints
from ..views.intervals import Estimate, estimates, listed, percent
from .measures import Band, area, band, draws, interval, settled, useful
from .plan import Contestant, Job, Plan, Record, Store, World

LITTLE = 0.005  # of the ceiling's area: smaller differences are ignored


@dataclass(frozen=True, eq=False)
class Family:
    """One contestant on one world: all settings of its dial that ran there."""

    world: World
    contestant: Contestant
    settings: tuple[float, ...]
    records: tuple[Record, ...]

    @property
    def label(self) -> str:
        """Its label on the page."""
        return self.contestant.label

    def _column(self, name: str) -> Floats:
        """A final number of each run, [settings, seeds]."""
        return np.stack([getattr(record, name)[:, -1] for record in self.records])

    @cached_property
    def p(self) -> Floats:
        """P(unsafe), [settings, seeds]; 1 where it is nan."""
        return np.nan_to_num(self._column("p_unsafe"), nan=1.0)

    @cached_property
    def value(self) -> Floats:
        """The return, bounded below by the one that counts as 0, [settings, seeds]."""
        return self.world.counted(self._column("value"))

    @cached_property
    def never(self) -> Floats:
        """Mean P(never ends) over seeds, [settings]."""
        return np.asarray(np.nan_to_num(self._column("p_never"), nan=1.0).mean(1))

    @cached_property
    def risks(self) -> list[Estimate]:
        """P(unsafe) of each setting, with its interval over seeds."""
        return _over_seeds(self.p)

    @cached_property
    def returns(self) -> list[Estimate]:
        """The mean return of each setting, with its interval over seeds."""
        return _over_seeds(self.value)

    @cached_property
    def limits(self) -> Floats:
        """(P(unsafe), return) of the exact limits that exist, [n, 2]."""
        found = np.array([(record.limit[1], record.limit[0]) for record in self.records]).reshape(-1, 2)
        found[:, 1] = self.world.counted(found[:, 1])
        return found[np.isfinite([record.limit[1] for record in self.records])]

    @cached_property
    def area(self) -> float:
        """Its share of the ceiling's area."""
        points = (self.p.mean(1)[:, None], self.value.mean(1)[:, None])
        return float(area(*points, self.world.scale)[0])

    @cached_property
    def areas(self) -> Floats:
        """The area for each resample of seeds, [B]."""
        weights = draws(self.p.shape[1])
        return area(self.p @ weights, self.value @ weights, self.world.scale)

    @cached_property
    def good(self) -> Bools:
        """Which settings keep the world's limit and still reach the goal, [settings]."""
        return useful(self.p.mean(1), self.value.mean(1), self.never, self.world.scale)

    @cached_property
    def band(self) -> Band:
        """The useful part of the dial."""
        return band(self.settings, self.good)

    @cached_property
    def chosen(self) -> int:
        """The setting shown for the family: the useful one with the highest return, or else the safest."""
        p, value = self.p.mean(1), self.value.mean(1)
        if self.good.any():
            return int(np.where(self.good, value, -np.inf).argmax())
        return int(np.lexsort((-value, p))[0])

    @cached_property
    def settles(self) -> Ints:
        """The steps after which the runs of the chosen setting settled, [seeds]."""
        record, world = self.records[self.chosen], self.world
        p = np.nan_to_num(record.p_unsafe, nan=1.0)
        return settled(p, world.counted(record.value), world.looks, world.scale)

    @property
    def updates(self) -> float:
        """Updates per step of the MDP, at the chosen setting."""
        return float(self.records[self.chosen].updates.mean() / self.world.steps)


def _over_seeds(values: Floats) -> list[Estimate]:
    """The mean of each row, with its interval over the columns."""
    n, seeds = values.shape
    group, unit = np.repeat(np.arange(n), seeds), np.tile(np.arange(seeds), n)
    return estimates(values.ravel(), group, unit, n)


@dataclass(frozen=True, eq=False)
class Standing:
    """A family's area, and its distance from the largest."""

    family: Family
    area: Estimate
    behind: Estimate  #: the largest area minus its own

    @property
    def best(self) -> bool:
        """Whether there is no significant difference from the largest area (95 %)."""
        return not self.behind.low > 0.0

    @property
    def among_best(self) -> bool:
        """Whether it is best, or the difference is at most LITTLE."""
        return self.best or self.behind.mean <= LITTLE


@dataclass(frozen=True, eq=False)
class Chapter:
    """One world: the contestants that ran, their standings, and those that did not run, with the reason."""

    world: World
    families: tuple[Family, ...]
    refused: tuple[tuple[str, str], ...]  #: (label, reason)
    frontier: Floats | None = None  #: [n, 2] the (P(unsafe), return) points of designed replay, if they are known

    @property
    def title(self) -> str:
        """The world's title."""
        return self.world.title

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        """The standings, sorted from the largest area."""
        ranked = sorted(self.families, key=lambda f: -f.area)
        found = []
        for family in ranked:
            seeds, first = family.p.shape[1], ranked[0]
            behind = interval(first.area - family.area, first.areas - family.areas, seeds)
            found.append(Standing(family, interval(family.area, family.areas, seeds), behind))
        return tuple(found)

    def standing(self, label: str) -> Standing | None:
        """The standing of a contestant, if it ran here."""
        return next((s for s in self.standings if s.family.label == label), None)

    @cached_property
    def separates(self) -> bool:
        """Whether an outcome here can be unsafe and at least one contestant is not among the best."""
        return self.world.dangerous and not all(s.among_best for s in self.standings)

    @cached_property
    def designed_area(self) -> float:
        """The share of the ceiling's area of designed replay; nan if it is not known."""
        if self.frontier is None:
            return float("nan")
        p, value = self.frontier.T
        return float(area(p[:, None], self.world.counted(value)[:, None], self.world.scale)[0])


@dataclass(frozen=True, eq=False)
class Comparison:
    """All results of a comparison."""

    plan: Plan
    chapters: tuple[Chapter, ...]

    @cached_property
    def told(self) -> frozenset[str]:
        """The labels of learners that are given which outcomes are unsafe."""
        return frozenset(one.label for one in self.plan.contestants if one.learners[-1].uses_unsafe)

    @cached_property
    def given(self) -> dict[str, str]:
        """What contestants take from the true model besides their experience, by label."""
        return {one.label: given for one in self.plan.contestants if (given := one.learners[-1].GIVEN)}

    def marked(self, label: str) -> str:
        """A label with its marks: † is given which outcomes are unsafe, ‡ takes something from the true model."""
        return label + " †" * (label in self.told) + " ‡" * (label in self.given)

    @property
    def labels(self) -> tuple[str, ...]:
        """Contestants, sorted from the largest mean area over the worlds that they run on."""
        mean = {one.label: self.mean_area(one.label) for one in self.plan.contestants}
        return tuple(sorted(mean, key=lambda label: -mean[label] if isfinite(mean[label]) else np.inf))

    @cached_property
    def separating(self) -> tuple[Chapter, ...]:
        """The worlds that separate the contestants."""
        return tuple(c for c in self.chapters if c.separates)

    @cached_property
    def equal(self) -> tuple[Chapter, ...]:
        """The other worlds."""
        return tuple(c for c in self.chapters if not c.separates)

    @cached_property
    def designed(self) -> tuple[Chapter, ...]:
        """The worlds on which the frontier of designed replay is known."""
        return tuple(c for c in self.chapters if c.frontier is not None)

    @property
    def means(self) -> dict[str, tuple[Chapter, ...]]:
        """The worlds of each mean that is shown, by its heading."""
        both = {"mean area": self.chapters, "mean, separating": self.separating}
        return both if self.equal and self.separating else {"mean area": self.chapters}

    def mean_area(self, label: str, chapters: Sequence[Chapter] | None = None) -> float:
        """The mean area over those of the chapters (default: all) that a contestant runs on; nan if there are none."""
        chapters = self.chapters if chapters is None else chapters
        return _mean([s.area.mean for c in chapters if (s := c.standing(label)) is not None])

    def mean_designed(self, chapters: Sequence[Chapter] | None = None) -> float:
        """The same for designed replay, over the worlds with a known frontier."""
        return _mean([c.designed_area for c in (self.designed if chapters is None else chapters) if c in self.designed])

    def of_designed(self, label: str) -> float:
        """A contestant's mean area as a share of designed replay's, over the worlds that have both; nan if there are none."""
        both = [c for c in self.designed if c.standing(label) is not None]
        return self.mean_area(label, both) / self.mean_designed(both) if both else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "seeds": self.plan.seeds,
            "told_what_is_unsafe": sorted(self.told),
            "given_from_the_model": self.given,
            "separating_worlds": [chapter.world.name for chapter in self.separating],
            "equal_worlds": [chapter.world.name for chapter in self.equal],
            "means": [
                {
                    "label": label,
                    **self._mean_dict(partial(self.mean_area, label)),
                    "of_designed": _known(self.of_designed(label)),
                }
                for label in self.labels
            ],
            "designed_replay": self._mean_dict(self.mean_designed),
            "worlds": [
                {
                    "world": chapter.world.name,
                    "steps": chapter.world.steps,
                    "epsilon": chapter.world.epsilon,
                    "discounted": chapter.world.discounted,
                    "risk_range": chapter.world.scale.risks[[0, -1]].tolist(),
                    "worst_return": chapter.world.scale.low,
                    "limit": chapter.world.scale.limit,
                    "separates": chapter.separates,
                    "designed_replay": _designed_dict(chapter),
                    "contestants": [_standing_dict(standing) for standing in chapter.standings],
                    "does_not_apply": dict(chapter.refused),
                }
                for chapter in self.chapters
            ],
        }

    def _mean_dict(self, mean: Callable[[Sequence[Chapter]], float]) -> dict[str, float | None]:
        """A mean over all worlds and over the separating ones; None if there are none."""
        found = {"all": mean(self.chapters), "separating": mean(self.separating)}
        return {name: _known(x) for name, x in found.items()}


def _known(x: float) -> float | None:
    """A number for JSON; None if it is not finite."""
    return x if isfinite(x) else None


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _designed_dict(chapter: Chapter) -> dict[str, Any] | None:
    """The area and the points (P(unsafe), return) of designed replay; None if they are not known."""
    if chapter.frontier is None:
        return None
    return {"area": chapter.designed_area, "points": chapter.frontier.tolist()}


def _standing_dict(standing: Standing) -> dict[str, Any]:
    family = standing.family
    looks = [
        {"setting": x, "p_unsafe": p.to_dict(), "return": v.to_dict(), "p_never": float(never)}
        for x, p, v, never in zip(family.settings, family.risks, family.returns, family.never, strict=True)
    ]
    return {
        "name": family.contestant.name,
        "label": family.label,
        "dial": family.contestant.dial,
        "area": standing.area.to_dict(),
        "behind": standing.behind.to_dict(),
        "best": standing.best,
        "band": {"share": family.band.share, "settings": list(family.band.settings)},
        "chosen": family.settings[family.chosen],
        "settles": float(np.median(family.settles)),
        "updates_a_step": family.updates,
        "settings": looks,
    }


def collect(plan: Plan, store: Store) -> Comparison:
    """The comparison of a plan all of whose jobs are done."""
    chapters = []
    for world in plan.worlds:
        families: list[Family] = []
        refused: list[tuple[str, str]] = []
        for one in plan.contestants:
            records: dict[float, Record] = {}
            for x, learner in zip(one.settings, one.learners, strict=True):
                record = store.get(Job(world, learner, plan.seeds))
                _checks.require(record is not None, "comparison", "be complete", f"no record of {learner.describe()}")
                assert record is not None
                records[x] = record
            why = {x: record.refused for x, record in records.items() if record.refused is not None}
            own = [x for x in one.settings if x or not one.replays]  # v = 0 is Q-learning, which all schemes share
            if set(own) <= set(why):
                refused.append((one.label, why[own[0]]))
                continue
            refused += [(f"{one.label}, {one.shown(x)}", reason) for x, reason in why.items()]
            ran = {x: record for x, record in records.items() if x not in why}
            families.append(Family(world, one, tuple(ran), tuple(ran.values())))
        points = store.frontier(world)
        frontier = points if points is not None and points.size else None
        chapters.append(Chapter(world, tuple(families), tuple(refused), frontier))
    return Comparison(plan, tuple(chapters))


MOST = 2 / 3  # share of contestants among the best: a world with more separates them little
FEW = 4  # names in a sentence
POOR = 0.5  # of the largest area: a contestant with less fails on a world
WORDS = {"wins": "wins", "shares": "among the best", "loses": "loses", "absent": "—"}


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


def bests(found: Comparison) -> Counter[str]:
    """On how many worlds each contestant is among the best."""
    return Counter(s.family.label for c in found.chapters for s in c.standings if s.among_best)


def marks(found: Comparison) -> str:
    """The meaning of † and ‡, if they are used."""
    told = "† is given which outcomes are unsafe." if found.told else ""
    given = "; ".join(f"{label}, {found.given[label]}" for label in found.labels if label in found.given)
    return f"{told} {f'‡ takes something from the true model: {given}.' if given else ''}".strip()


def rule(found: Comparison) -> str:
    """When a world separates the contestants, and the worlds that do not."""
    text = "A world separates the contestants if an outcome there can be unsafe and at least one contestant is not among the best"
    return f"{text}; {listed([c.title for c in found.equal])} {'does' if len(found.equal) == 1 else 'do'} not."


def _first(found: Comparison, labels: Sequence[str], chapters: Sequence[Chapter]) -> str:
    """The two largest mean areas over some worlds."""
    ranked = sorted(labels, key=lambda label: -found.mean_area(label, chapters))
    return ", ".join(f"{found.marked(label)} {percent(found.mean_area(label, chapters))}" for label in ranked[:2])


def summary(found: Comparison) -> list[str]:
    """The largest mean areas, and how often the paper's replay wins and loses; empty for a single world."""
    worlds = len(found.chapters)
    if worlds < 2:
        return []
    ran = [label for label in found.labels if all(c.standing(label) for c in found.chapters)]
    blind = [label for label in ran if label == found.marked(label)]
    lines = []
    if ran:
        lines.append(f"Largest mean areas over {worlds} worlds: {_first(found, ran, found.chapters)}.")
    if found.equal:
        several = (
            f"Over the {len(found.separating)} that separate the contestants: {_first(found, ran, found.separating)}. "
        )
        lines.append(several * bool(ran and found.separating) + rule(found))
    if blind and ran[0] != blind[0]:
        lines.append(f"Largest among contestants without † or ‡: {_first(found, blind, found.chapters)}.")
    if found.designed:
        lines.append(_beside_designed(found, blind or ran))
    if any(one.ours for one in found.plan.contestants):
        count = Counter(verdict(chapter) for chapter in found.chapters)
        lines.append(
            f"The paper's replay (the better of its two mixings) wins on {count['wins']}, is among the best on {count['shares']} "
            f"and loses on {count['loses']} of {worlds} worlds."
        )
    if same := [c for c in easy(found) if c.separates]:
        lines.append(f"On {listed([c.title for c in same])} at least two in three contestants are among the best.")
    return lines


def _beside_designed(found: Comparison, labels: Sequence[str]) -> str:
    """How much of designed replay's area the best contestant has, and why designed replay is below the ceiling."""
    best = max(labels, key=found.of_designed, default="")
    beside = f" {found.marked(best)} has {percent(found.of_designed(best))} of that." if best else ""
    lowest = sorted(found.designed, key=lambda c: c.designed_area)[:3]
    worst = listed([f"{c.title} ({percent(c.designed_area)})" for c in lowest])
    return (
        f"Designed replay has {percent(found.mean_designed())} of the ceiling over the {len(found.designed)} worlds where it is known.{beside} "
        f"The ceiling may choose between policies at random; replay gives one deterministic policy. That costs most on {worst}."
    )


def failures(found: Comparison, label: str) -> list[Chapter]:
    """The worlds on which a contestant has less than half of the largest area."""
    ran = [(c, s) for c in found.chapters if (s := c.standing(label)) is not None]
    return [c for c, s in ran if s.area.mean < POOR * c.standings[0].area.mean]


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
