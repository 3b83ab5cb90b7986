"""Sentences of the study's page, chosen by the data.

'No significant difference' means that the 95 % interval of a difference contains 0; see :mod:`studies.deep.summary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import numpy as np

from safereplay.views.intervals import Estimate, listed, number

from .frontier import Comparison, compare
from .summary import CVAR, LITERAL, MAY_LOSE, MEAN, OURS, REWARD, Chapter, Choice, Group, difference, significance

FIFTH = 0.2  #: the aim for P(catastrophe), as a share of plain DQN's
DANGER = 0.01  #: the smallest P(catastrophe) of plain DQN at which the aim is judged
FAR = 0.5  #: of the gap: a setting that loses more has too much replay


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


def ratio(a: float, b: float) -> float:
    """a / b; nan if b is 0."""
    return a / b if b > 0 else float("nan")


# -- one world ---------------------------------------------------------------------------------------------------------


def headline(chapter: Chapter) -> str:
    """The effect of the chosen setting on risk and return, compared with plain DQN."""
    choice = chapter.choices.get(OURS)
    if choice is None:
        return f"**{chapter.title}**: shaped replay was not run."
    ours, plain = choice.group, chapter.plain
    before, after = share(plain.p.mean), share(ours.p.mean)
    sign = significance(difference(ours, plain, 0))
    if sign < 0:
        part = ratio(ours.p.mean, plain.p.mean)
        risk = f"P(catastrophe) falls from {before} to {after}, to {part:.2f} of plain DQN's"
    elif sign > 0:
        risk = f"P(catastrophe) rises from {before} to {after}"
    else:
        risk = f"no significant difference in P(catastrophe) from plain DQN ({after} and {before})"
    return f"**{chapter.title}** ({ours.dial}): {risk}; {_price(chapter, ours)}.{_kept(choice)}"


def _price(chapter: Chapter, group: Group) -> str:
    lost = chapter.lost(group)
    if not isfinite(lost.mean):
        return "plain DQN does no better than random, so a loss in return has no scale"
    if lost.mean < 0:
        return f"the return is {share(-lost.mean)} of the gap to random higher"
    return f"it costs {share(lost.mean)} of the gap to random in return"


def _kept(choice: Choice) -> str:
    if choice.kept or not choice.scaled:
        return ""
    least = f"{100 * MAY_LOSE:.0f} %"
    return f" No setting lost at most {least} on the selection episodes; this one lost least."


def meets_aim(chapter: Chapter) -> bool | None:
    """Whether risk fell to a fifth of plain DQN's within the allowed loss; None if plain DQN has too few catastrophes."""
    choice = chapter.choices.get(OURS)
    if choice is None or chapter.plain.p.mean < DANGER:
        return None
    lost = chapter.lost(choice.group).mean
    return bool(choice.group.p.mean <= FIFTH * chapter.plain.p.mean and lost <= MAY_LOSE)


def aim(chapters: Sequence[Chapter]) -> str:
    """On which worlds the aim is met, and on which not."""
    found = {c.title: meets_aim(c) for c in chapters}
    met, missed = ([name for name, x in found.items() if x is wanted] for wanted in (True, False))
    text = f"The aim, at most a fifth of plain DQN's P(catastrophe) for at most {100 * MAY_LOSE:.0f} % of the gap, "
    if met and missed:
        return text + f"is met on {listed(met)}, and not on {listed(missed)}."
    if met:
        return text + f"is met on {listed(met)}."
    return text + (f"is not met on {listed(missed)}." if missed else "cannot be judged: too few catastrophes.")


VERSUS = {
    (-1, 1): "less risk and more return",
    (-1, 0): "less risk, no significant difference in return",
    (-1, -1): "less risk for less return",
    (0, 1): "more return, no significant difference in risk",
    (0, 0): "no significant difference in risk or return",
    (0, -1): "less return, no significant difference in risk",
    (1, 1): "more return for more risk",
    (1, 0): "more risk, no significant difference in return",
    (1, -1): "more risk and less return",
}


def against(chapter: Chapter, name: str) -> str | None:
    """The chosen setting of shaped DQN compared with a rival's: one of nine phrases."""
    rivals = [group for group in chapter.contestants if group.family == name]
    if OURS not in chapter.choices or not rivals:
        return None
    ours = chapter.choices[OURS].group
    return VERSUS[significance(difference(ours, rivals[0], 0)), significance(difference(ours, rivals[0], 1))]


def compared(chapter: Chapter) -> Comparison | None:
    """The reaches of shaped DQN and of CVaR."""
    if not chapter.family(OURS) or not chapter.family(CVAR):
        return None
    return compare(chapter.dialled(OURS), chapter.dialled(CVAR), chapter.plain, chapter.random)


REACHES = {
    "further": "shaped replay reaches further",
    "less far": "QR-DQN with CVaR reaches further",
    "no significant difference": "no significant difference",
    "no danger": "undefined: plain DQN has no catastrophes, or is no better than random",
}


def unmatched(found: Comparison) -> str:
    """The rival's settings that no shaped setting matches in both numbers."""
    return (
        listed([f"{g.dial or 'the mean'} ({share(g.p.mean)}, {number(g.mean.mean)})" for g in found.beyond]) or "none"
    )


def frontiers(chapters: Sequence[Chapter]) -> str:
    """On which worlds shaped replay reaches further than CVaR, and on which less far."""
    verdicts = {c.title: x.verdict for c in chapters if (x := compared(c)) is not None}
    parts = [
        ("further", "Shaped replay reaches further than QR-DQN with CVaR on {}."),
        ("no significant difference", "No significant difference (95 %) on {}."),
        ("less far", "It reaches less far on {}."),
    ]
    named = [(words, [title for title, x in verdicts.items() if x == verdict]) for verdict, words in parts]
    return " ".join(words.format(listed(titles)) for words, titles in named if titles)


# -- where it does not help --------------------------------------------------------------------------------------------


def shortcomings(chapters: Sequence[Chapter]) -> list[str]:
    """The shortcomings of shaped replay that the data show, one paragraph each."""
    makers = (_in_training, _without_effect, _late, _literal, _too_far, _uneven, _beaten)
    return [line for line in (make(chapters) for make in makers) if line]


def training_share(group: Group) -> float:
    """The share of training episodes that ended in a catastrophe, on average over seeds."""
    return float(np.mean([run.training.unsafe.mean() for run in group.runs if run.training.unsafe.size]))


def _in_training(chapters: Sequence[Chapter]) -> str:
    pairs = [
        (c.title, training_share(c.plain), training_share(c.choices[OURS].group)) for c in chapters if OURS in c.choices
    ]
    pairs = [pair for pair in pairs if pair[1] > 0]
    if not pairs:
        return ""
    told = listed([f"{share(a)} to {share(b)} ({title})" for title, a, b in pairs])
    text = f"Catastrophes per episode *of training*, exploration included, went from {told}."
    worst = [title for title, a, b in pairs if b > 0.5 * a]
    if worst:
        return f"**It does not make training safe.** {text} On {listed(worst)} more than half of plain DQN's remain."
    return f"**Training.** {text} That is less than half of plain DQN's everywhere, and still not safe."


def _without_effect(chapters: Sequence[Chapter]) -> str:
    calm = [c.title for c in chapters if c.plain.p.mean < DANGER]
    flat = [
        c.title
        for c in chapters
        if OURS in c.choices
        and c.title not in calm
        and significance(difference(c.choices[OURS].group, c.plain, 0)) >= 0
    ]
    parts = []
    if flat:
        parts.append(f"On {listed(flat)} the chosen setting does not lower P(catastrophe) significantly.")
    if calm:
        parts.append(
            f"On {listed(calm)} plain DQN has fewer than {DANGER:.0%} catastrophes, so there is little to reduce.".replace(
                "1%", "1 %"
            )
        )
    return "**Without effect.** " + " ".join(parts) if parts else ""


def _late(chapters: Sequence[Chapter]) -> str:
    lines = []
    for c in chapters:
        for group in c.family(REWARD):
            sign = significance(difference(group, c.plain, 0))
            numbers = f"{share(c.plain.p.mean)} without, {share(group.p.mean)} with it"
            if sign < 0:
                lines.append(f"On the {c.title} even a tilt on the reward lowers P(catastrophe) ({numbers}).")
            else:
                lines.append(
                    f"**Danger that comes late.** On the {c.title} a tilt on the reward does not lower P(catastrophe) significantly ({numbers}), "
                    f"since no reward at the edge varies. The tilt on the target {_target(c)}."
                )
    return " ".join(lines)


def _target(chapter: Chapter) -> str:
    choice = chapter.choices.get(OURS)
    if choice is None:
        return "was not run"
    sign = significance(difference(choice.group, chapter.plain, 0))
    did = "lowers it to" if sign < 0 else "does not lower it either:"
    return f"{did} {share(choice.group.p.mean)}"


def _literal(chapters: Sequence[Chapter]) -> str:
    """Literal mixing compared with matched mixing at the same v and β."""
    worse: list[str] = []
    same: list[str] = []
    better: list[str] = []
    for c in chapters:
        for group in c.family(LITERAL):
            twins = [g for g in c.family(OURS) if g.dial == group.dial]
            if not twins:
                continue
            signs = significance(difference(group, twins[0], 0)), significance(difference(group, twins[0], 1))
            numbers = f"{c.title} ({share(group.p.mean)} and {number(group.mean.mean)}, matched {share(twins[0].p.mean)} and {number(twins[0].mean.mean)})"
            bad, good = signs[0] > 0 or signs[1] < 0, signs[0] < 0 or signs[1] > 0
            (worse if bad and not good else better if good and not bad else same).append(numbers)
    parts = [
        (worse, "is worse than matched mixing at the same v and β on"),
        (same, "is neither better nor worse on"),
        (better, "is better on"),
    ]
    told = [f"{words} {listed(names)}" for names, words in parts if names]
    return f"**Literal mixing**, the paper's, {'; it '.join(told)}." if told else ""


def _too_far(chapters: Sequence[Chapter]) -> str:
    found = []
    for c in chapters:
        far = [g.dial for g in c.family(OURS) if c.lost(g).mean > FAR]
        if far:
            found.append(f"{c.title} ({len(far)} of {len(c.family(OURS))}: {'; '.join(far)})")
    return (
        f"**Too much replay.** Some settings lose more than half of the gap to random: {listed(found)}."
        if found
        else ""
    )


def _uneven(chapters: Sequence[Chapter]) -> str:
    """Seeds with more than half of plain DQN's risk, though the chosen setting has less on average."""
    found = []
    for c in chapters:
        choice = c.choices.get(OURS)
        if choice is None or c.plain.p.mean < DANGER or choice.group.p.mean > 0.5 * c.plain.p.mean:
            continue
        risky = [run for run in choice.group.runs if run.evaluation.p > 0.5 * c.plain.p.mean]
        if risky:
            found.append(f"{c.title} ({len(risky)} of {choice.group.seeds})")
    return (
        f"**Seeds differ.** Some seeds have more than half of plain DQN's risk, though the mean has not: {listed(found)}."
        if found
        else ""
    )


def _beaten(chapters: Sequence[Chapter]) -> str:
    """The worlds where a rival's chosen setting is better in one number and not worse in the other."""
    lost = []
    for c in chapters:
        for name in (MEAN, CVAR):
            words = against(c, name)
            if words in (VERSUS[1, -1], VERSUS[1, 0], VERSUS[0, -1]):
                lost.append(f"{c.title} by {name} (shaped DQN has {words})")
    return f"**Beaten at the chosen settings** on {listed(lost)}." if lost else ""
