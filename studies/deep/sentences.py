"""Sentences of the study's page, chosen by the data.

'No significant difference' means that the 95 % interval of a difference contains 0; see :mod:`studies.deep.summary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from safereplay.views.intervals import Estimate, listed, number

from .frontier import VERDICTS, Comparison, compare
from .limits import Predicted, best_return
from .study import SET_ON
from .summary import (
    FAILS,
    MAY_LOSE,
    OURS,
    PLAIN,
    RIVALS,
    Chapter,
    Group,
    certificates,
    difference,
    loss,
    ratio,
    significance,
)
from .worlds import world_named

PART = 1 / 3  #: the aim for P(catastrophe), as a share of the plain learner's
NEARLY = 0.9  #: of the seeds should end with a certificate
DANGER = 0.01  #: the smallest P(catastrophe) of the plain learner at which the aim is judged
LITTLE, MUCH = "too little less risk", "too much return lost"  #: the reasons why the aim is not met


# -- numbers -----------------------------------------------------------------------------------------------------------


def share(x: float) -> str:
    """A share in percent.

    >>> share(0.1234), share(0.004), share(0.0)
    ('12.3 %', '0.40 %', '0 %')
    """
    if not isfinite(x):
        return "—"
    return "0 %" if x == 0 else _minus(f"{100 * x:.1f} %" if abs(x) >= 0.01 else f"{100 * x:.2f} %")


def _minus(text: str) -> str:
    return text.replace("-", "−")


def with_interval(found: Estimate, percent: bool = False) -> str:
    """A number and its interval, if it has one."""
    show = share if percent else number
    if not isfinite(found.low):
        return show(found.mean)
    ends = f"[{show(found.low)}, {show(found.high)}]".replace(" %", "")
    return f"{show(found.mean)} {ends}"


# -- the aim -----------------------------------------------------------------------------------------------------------


def judged(chapters: Sequence[Chapter]) -> list[tuple[Chapter, Group]]:
    """The worlds where the aim can be judged, with the default: it was run, and the plain learner is in danger and better than random."""
    found = [(c, c.default) for c in chapters if c.plain.p.mean >= DANGER and c.plain.mean.mean > c.random.mean.mean]
    return [(c, default) for c, default in found if default is not None]


def misses(chapter: Chapter, default: Group) -> list[str]:
    """The reasons why the aim is not met; none if it is."""
    little = ratio(default, chapter.plain).mean > PART
    much = chapter.lost(default).mean > MAY_LOSE
    return [reason for reason, holds in ((LITTLE, little), (MUCH, much)) if holds]


def aim(chapters: Sequence[Chapter]) -> str:
    """On how many worlds the aim is met; where it is not, and why; and where P(catastrophe) is above the plain learner's."""
    there = judged(chapters)
    if not there:
        return "The aim cannot be judged yet: no world has runs of the default, and a plain learner with catastrophes."
    missed = {c.title: why for c, default in there if (why := misses(c, default))}
    text = (
        f"**On {len(there) - len(missed)} of {len(there)} worlds shaped replay at its default, with no key and no tuning to the world, has at most a third of the plain "
        f"learner's P(catastrophe), for at most {100 * MAY_LOSE:.0f} % of the gap in return between the plain learner and a random policy.**"
    )
    known = [c.title for c, _ in there if c.world in SET_ON]
    if known and len(known) < len(there):
        met = [c.title not in missed for c, _ in there if c.world in SET_ON]
        others = len(there) - len(missed) - sum(met)
        text += f" Of the {len(known)} worlds that the default was set with, it does on {sum(met)}; of the {len(there) - len(known)} others, on {others}."
    if missed:
        told = [f"{title} ({' and '.join(why)})" for title, why in missed.items()]
        text += f" This aim is not met on {listed(told)}."
    above = [c.title for c, default in there if significance(difference(default, c.plain, 0)) > 0]
    text += f" P(catastrophe) is significantly above the plain learner's on {listed(above) or 'no world'}."
    left = [c.title for c in chapters if c.title not in {x.title for x, _ in there}]
    if left:
        text += f" Not judged: {listed(left)}, where the default was not run, or the plain learner has less than {share(DANGER)} catastrophes or is no better than random."
    return text


def unkept(chapters: Sequence[Chapter]) -> str:
    """The families of which no setting stays within the rule's loss."""
    found = [
        (c.title, [name for name, x in c.choices.items() if not x.kept])
        for c in chapters
        if c.plain.selected()[1] > c.random.selected()[1]
    ]
    told = [f"{title} ({', '.join(names)})" for title, names in found if names]
    least = f"No setting loses at most {100 * MAY_LOSE:.0f} % on the selection episodes, so the one that loses least is shown: "
    return f"{least}{listed(told)}." if told else ""


def certified(found: Sequence[tuple[Chapter, Group]]) -> str:
    """On how many worlds nine seeds in ten certify the named limit, and where fewer do."""
    counts = {c.title: (sum(x["kept"] for x in certificates(g)), g.seeds) for c, g in found}
    fewer = [f"{title} ({kept} of {seeds})" for title, (kept, seeds) in counts.items() if kept < NEARLY * seeds]
    text = f"**On {len(counts) - len(fewer)} of {len(counts)} worlds at least nine seeds in ten end with a certificate of the limit.**"
    return text + (f" Fewer do on {listed(fewer)}." if fewer else "")


# -- frontiers ---------------------------------------------------------------------------------------------------------


def compared(chapter: Chapter) -> dict[str, Comparison]:
    """The reach of shaped replay compared with that of each rival that was run."""
    if not chapter.family(OURS):
        return {}
    ours = chapter.dialled(OURS)
    return {
        name: compare(ours, chapter.dialled(name), chapter.plain, chapter.random)
        for name in RIVALS
        if chapter.family(name)
    }


def frontiers(found: Sequence[tuple[str, dict[str, Comparison]]], rivals: Sequence[str] = RIVALS) -> list[str]:
    """For each rival: the verdicts on the reach of shaped replay, and the worlds of each. ``found`` has the title of a world and its comparisons."""
    lines = []
    for name in rivals:
        verdicts = {title: x[name].verdict for title, x in found if name in x}
        parts = [
            f"{verdict} on {listed(titles)}"
            for verdict in VERDICTS
            if (titles := [title for title, x in verdicts.items() if x == verdict])
        ]
        if parts:
            lines.append(f"**{name}**: {'; '.join(parts)}.")
    return lines


def waiting(chapters: Sequence[Chapter]) -> list[str]:
    """For each family: how many networks have episodes of more than half of the time limit, on worlds where the plain learner does not."""
    limits = {c.title: world_named(c.world).time_limit / 2 for c in chapters}
    short = [c for c in chapters if np.mean([run.evaluation.steps for run in c.plain.runs]) < limits[c.title]]
    lines = []
    for name in (OURS, *RIVALS):
        steps = {c.title: [run.evaluation.steps for group in c.family(name) for run in group.runs] for c in short}
        late = {title: sum(x > limits[title] for x in all_steps) for title, all_steps in steps.items()}
        if parts := [f"{n} of {len(steps[title])} on {title}" for title, n in late.items() if n]:
            lines.append(f"{name}: {listed(parts)}")
    return lines


def reached(found: Comparison | None) -> str:
    """The cell of a table: the difference of two reaches, bold with its verdict if it is significant."""
    if found is None or found.verdict == "no danger":
        return "—"
    told = with_interval(found.gain)
    return f"**{told}** {found.verdict}" if found.verdict in VERDICTS[:2] else told


# -- where it does not help --------------------------------------------------------------------------------------------


def shortcomings(chapters: Sequence[Chapter], told: Sequence[Predicted]) -> list[str]:
    """The shortcomings of shaped replay that the data and the exact limits show, one paragraph each."""
    makers = (_in_training, _without_effect, _failed, _too_far, _beaten)
    return [line for line in (causes(chapters, told), *(make(chapters) for make in makers)) if line]


def causes(chapters: Sequence[Chapter], told: Sequence[Predicted]) -> str:
    """For tabular worlds where the aim is not met: whether the exact limit misses it, too, or only the networks do."""
    limits = {c.title: x for c, g, x in told if g is c.default}
    exact, learned, best = [], [], []
    for c, default in judged(chapters):
        x = limits.get(c.title)
        if x is None or not misses(c, default):
            continue
        part, price = x.p / c.plain.p.mean, loss(x.mean, c.plain.mean.mean, c.random.mean.mean)
        numbers = f"{share(x.p)}, {share(price)} of the gap lost"
        if part > PART or price > MAY_LOSE:
            exact.append(f"{c.title} ({numbers})")
            if (mean := best_return(c.world, PART * c.plain.p.mean)) is not None:
                best.append(f"{share(loss(mean, c.plain.mean.mean, c.random.mean.mean))} of the gap on {c.title}")
        else:
            learned.append(f"{c.title} ({numbers}), and {x.same} of {x.of} networks have its policy")
    parts = []
    if exact:
        parts.append(f"The exact limit does not meet the aim either on {listed(exact)}.")
    if best:
        parts.append(
            f"Of the deterministic policies that end, the best one with at most a third of the plain learner's P(catastrophe), by `sr.design`, loses {listed(best)}."
        )
    if learned:
        parts.append(f"The exact limit meets it on {'; on '.join(learned)}.")
    return "**Limit or learning.** Where the aim is not met on a table: " + " ".join(parts) if parts else ""


def training_share(group: Group) -> float:
    """The share of training episodes with a catastrophe, on average over seeds; nan without such episodes."""
    shares = [run.training.unsafe.mean() for run in group.runs if run.training.unsafe.size]
    return float(np.mean(shares)) if shares else float("nan")


def _in_training(chapters: Sequence[Chapter]) -> str:
    pairs = [(c.title, training_share(c.plain), training_share(c.default)) for c in chapters if c.default]
    worst = [f"{title} ({share(a)} to {share(b)})" for title, a, b in pairs if a > 0 and b > 0.5 * a]
    if not worst:
        return ""
    return (
        "**It does not make training safe.** Of the catastrophes per episode *of training*, exploration included, more than half of the plain learner's remain "
        f"on {listed(worst)}."
    )


def _without_effect(chapters: Sequence[Chapter]) -> str:
    found = [(c.title, difference(default, c.plain, 0)) for c, default in judged(chapters)]
    flat = [title for title, x in found if isfinite(x.low) and significance(x) >= 0]
    calm = [c.title for c in chapters if c.plain.p.mean < DANGER]
    parts = []
    if flat:
        parts.append(f"On {listed(flat)} the default does not lower P(catastrophe) significantly.")
    if calm:
        parts.append(f"On {listed(calm)} the plain learner has less than {share(DANGER)} catastrophes.")
    return "**Without effect.** " + " ".join(parts) if parts else ""


def _failed(chapters: Sequence[Chapter]) -> str:
    """Worlds where seeds of the default lose more than half of the gap."""
    found = [
        f"{c.title} ({n} of {c.default.seeds}; plain {c.failed(c.plain)} of {c.plain.seeds})"
        for c in chapters
        if c.default and (n := c.failed(c.default))
    ]
    return (
        f"**Failed seeds.** Some seeds of the default lose more than half of the gap: {listed(found)}." if found else ""
    )


def _too_far(chapters: Sequence[Chapter]) -> str:
    found = []
    for c in chapters:
        far = [g.dial for g in c.family(OURS) if c.lost(g).mean > FAILS]
        if far:
            found.append(f"{c.title} ({'; '.join(far)})")
    text = "**Too much replay.** Some settings lose more than half of the gap on average"
    return f"{text}: {listed(found)}." if found else ""


def beaten_by(chapter: Chapter) -> list[str]:
    """The rivals whose chosen setting is better than the default in risk or return, and not worse in the other."""
    ours = chapter.default
    if ours is None:
        return []
    rivals = {name: group for name, group in chapter.contestants.items() if name in (PLAIN, *RIVALS)}
    signs = {name: [significance(difference(ours, group, k)) for k in (0, 1)] for name, group in rivals.items()}
    return [name for name, (risk, gain) in signs.items() if risk >= 0 >= gain and risk != gain]


def _beaten(chapters: Sequence[Chapter]) -> str:
    found = [f"{c.title} ({', '.join(names)})" for c in chapters if (names := beaten_by(c))]
    text = "**Beaten.** The default has significantly more risk or less return, and neither less risk nor more return, than"
    return f"{text} these learners, rivals at their chosen settings: {listed(found)}." if found else ""
