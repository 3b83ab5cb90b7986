"""A comparison from names to the finished page.

The page of a comparison: a minute's reading at the top, then world by world, then how it was done.

The whole way: names to contestants and worlds, every run that is missing, and the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from .. import _checks, _files, catalog
from ..errors import stopping
from ..views.document import Block, Heading, Picture, Table, Text, to_markdown
from ..views.pages import Page, page_folder, write_page
from . import sentences
from .figures import everyone_figure, overview_figure, world_figure
from .measures import ENDS, FLAT_WIDTH, STEADY, STEADY_RETURN, WIDTH
from .plan import REPLAY, contestants, worlds
from .results import Chapter, Comparison, Standing, collect
from .running import Plan, Store, run
from .sentences import number, percent, points, within

TITLE = "Every system on one table"
DANGERS = {
    "reward": "the danger is in the rewards",
    "transition": "the danger is in the transitions",
    "delayed": "the danger shows later than it is met",
    "rare": "the danger is rare",
    "none": "there is no danger",
    "exploration": "the danger is only in exploring",
    "caution": "caution is wrong",
}


def page(found: Comparison) -> Page:
    """A comparison as a page."""
    figures: dict[str, Figure] = {"overview": overview_figure(found)}
    blocks = [*_minute(found)]
    for chapter, stem in zip(found.chapters, stems([c.title for c in found.chapters]), strict=True):
        if chapter.families:
            figures |= {stem: world_figure(chapter), f"{stem}-all": everyone_figure(chapter)}
        blocks += _world(chapter, stem, found)
    blocks += [*_failing(found), *_absent(found), *_method(found)]
    return Page(TITLE, blocks, figures)


def stems(titles: Sequence[str]) -> list[str]:
    """Names of files for worlds, each its own.

    >>> stems(["cliff", "my map", "my-map", "overview"])
    ['cliff', 'my-map-2', 'my-map-3', 'overview-4']
    """
    plain = ["".join(c if c.isalnum() or c in "-_" else "-" for c in title) for title in titles]
    taken = ["overview", *plain]
    return [name if taken.count(name) == 1 else f"{name}-{k}" for k, name in enumerate(plain, 1)]


# -- a minute ----------------------------------------------------------------------------------------------------------


def _minute(found: Comparison) -> list[Block]:
    tell = (
        sentences.overall,
        sentences.blind,
        sentences.own_record,
        sentences.beyond,
        sentences.mixings,
        sentences.ties,
    )
    opening = [say(found) for say in tell]
    header = ["world", "the best", "area", "not told apart from it", "the paper's replay", "area", "behind the best"]
    return [
        *(Text(line) for line in opening if line),
        Picture("overview", _caption(found)),
        Table(header, [_line(chapter) for chapter in found.chapters if chapter.standings]),
    ]


def _line(chapter: Chapter) -> list[str]:
    """A world in a line: who wins, and what the paper's replay does."""
    first, own, what = chapter.standings[0], sentences.ours(chapter), sentences.verdict(chapter)
    alike = [s.family.label for s in chapter.standings[1:] if sentences.alike(s)]
    if own is None:
        mine = ["—", "", ""]
    else:
        behind = "" if own is first else points(own.behind)
        mine = [f"{sentences.WORDS[what]}: {own.family.label}", percent(own.area.mean), behind]
    return [
        chapter.title,
        first.family.label,
        within(first.area),
        sentences.listed(alike, sentences.FEW) or "nobody",
        *mine,
    ]


def _caption(found: Comparison) -> str:
    return (
        "Of each ceiling's area over the limits on P(unsafe) that matter, the share below a contestant's frontier, in %. Framed: the best of "
        f"a world and whoever cannot be told apart from it (95 % intervals over {found.plan.seeds} seeds), or is within half a point. A dot: does not apply. Bold: the paper's own."
    )


# -- worlds ------------------------------------------------------------------------------------------------------------


def _world(chapter: Chapter, stem: str, found: Comparison) -> list[Block]:
    blocks: list[Block] = [Heading(chapter.title), Text(_about(chapter))]
    if not chapter.families:
        return blocks
    return [
        *blocks,
        Text(sentences.winner(chapter)),
        Picture(
            stem,
            "Risk against return with 95 % intervals over seeds, along each dial: the paper's own comparison, and the best of the others. "
            "Grey: where no policy can be. Open triangles at the edge: settings that lie beyond it.",
        ),
        Table(HEADER, [_row(standing, found) for standing in chapter.standings]),
        Picture(f"{stem}-all", "Everybody, one panel each, from the largest area on; the number is the area."),
    ]


def _about(chapter: Chapter) -> str:
    world, scale = chapter.world, chapter.world.scale
    danger = DANGERS.get(world.danger, f"danger: {world.danger}" if world.danger else "")
    kind = "discounted return, as the other has no bound" if world.discounted else "undiscounted return"
    first, last = percent(float(scale.risks[0]), 1), percent(float(scale.risks[-1]), 1)
    told = [
        f"{world.mdp.n_states} states, {world.mdp.n_actions} actions, γ = {world.mdp.gamma:g}"
        + (f"; {danger}" if danger else ""),
        f"{world.steps:,} steps a run, ε = {world.epsilon:g}; {kind} from the origin",
        f"what Q-learning converges to risks {percent(world.plain[1], 1)} for a return of {number(world.plain[0])}",
        f"limits on P(unsafe) from {first} to {last}, where the ceiling goes from {number(float(scale.top[0]))} to {number(float(scale.top[-1]))}; "
        f"a return of {number(scale.low)} counts as nothing",
        f"useful: P(unsafe) at most {percent(scale.limit, 1)} at a return of at least {number(scale.enough)}",
    ]
    return ". ".join(line[0].upper() + line[1:] for line in told) + "."


HEADER = [
    "contestant",
    "area",
    "behind the best",
    "setting",
    "P(unsafe)",
    "return",
    "useful band",
    "settles",
    "updates a step",
]


def _row(standing: Standing, found: Comparison) -> list[str]:
    family = standing.family
    k, first = family.chosen, standing.behind.mean == 0.0
    settles = int(np.median(family.settles))
    return [
        found.marked(family.label),
        within(standing.area, 1),
        "" if first else points(standing.behind) + (" ≈" if standing.best else ""),
        family.contestant.shown(family.settings[k]),
        percent(family.risks[k].mean, 1),
        number(family.returns[k].mean),
        str(family.band) if family.contestant.dial else ("yes" if family.good.any() else "no"),
        f"≤ {settles:,}",
        f"{family.updates:.2f}",
    ]


# -- what fails, what does not apply, how -----------------------------------------------------------------------------


def _failing(found: Comparison) -> list[Block]:
    """Where each contestant fails, with the reason."""
    rows = []
    for label in found.labels:
        ran = sum(c.standing(label) is not None for c in found.chapters)
        failed, best = len(sentences.failures(found, label)), sentences.bests(found)[label]
        cells = [percent(found.mean_area(label)), f"{best} of {ran}", f"{failed} of {ran}"]
        rows.append([found.marked(label), *cells, sentences.reasons(found, label)])
    return [
        Heading("Where each fails"),
        Text("A contestant fails on a world where it has less than half of the best's area."),
        Table(["contestant", "mean area", "among the best", "fails", "why, and where"], rows, folded=True),
    ]


def _absent(found: Comparison) -> list[Block]:
    by: dict[str, list[tuple[str, str]]] = {}
    for chapter in found.chapters:
        for label, why in chapter.refused:
            by.setdefault(label, []).append((chapter.title, why))
    rows = [[label, ", ".join(title for title, _ in some), some[0][1]] for label, some in by.items()]
    return [Heading("Does not apply"), Table(["contestant", "worlds", "why, on the first"], rows)] if rows else []


def _method(found: Comparison) -> list[Block]:
    plan = found.plan
    settings = sum(len(one.settings) for one in plan.contestants)
    rows = [
        [
            "who",
            f"{len(plan.contestants)} contestants with {settings} settings in all, {plan.seeds} seeds each, on {len(plan.worlds)} worlds. "
            "A scheme of replay runs in both mixings, literal (the paper's algorithm) and matched (the paper's analysis); v = 0 is Q-learning.",
        ],
        [
            "fair",
            "On a world every run takes exactly the same number of steps of the MDP with the same exploration and α = n(s,a)^−0.6. "
            "Updates are not counted against anyone; the last column of the tables says how many a contestant makes. † marks who is told which "
            "outcomes are unsafe: it learns something else where others are marked. ‡ marks who takes something from the true model before "
            "it learns. Everyone else sees rewards alone.",
        ],
        [
            "judged",
            "Each run's greedy policy, exactly, by linear equations: no episode is sampled. A policy that may never end, at a cost a step, "
            "counts with the worst return that matters; that is what a uniformly random policy gets, but no less than the ceiling less the "
            "range of a single reward (or less its own size), and so little that the safest policy is worth something.",
        ],
        [
            "area",
            "For each limit x on P(unsafe), the best mean return of the settings that keep it, above the worst return that matters; nothing "
            "where none keeps it; summed over x and divided by the same of the linear program's. x goes from the least risk there is to that of "
            f"Q-learning's limit, and over at least {100 * WIDTH:.0f} points ({100 * FLAT_WIDTH:.0f} where the ceiling is flat). P(unsafe) and return are means over seeds: a setting at which half of them go one way counts as half-way. Settings are chosen by "
            "the seeds that judge them, which favours long dials a little.",
        ],
        [
            "intervals",
            "95 %, bootstrap over seeds, for all settings and contestants together (percentiles widened for few seeds, Hesterberg 2015); no "
            "correction for how many are compared. ≈ marks what cannot be told apart from the best.",
        ],
        [
            "useful band",
            "The settings whose P(unsafe) is at most half-way from the least risk to Q-learning's (and at least a point above the least), that end "
            f"(P(never ends) at most {100 * ENDS:.0f} %) and have at least half of the ceiling's return; in brackets their share of the dial's range. "
            "The setting shown is the useful one of the highest return, or else the safest.",
        ],
        [
            "settles",
            f"The median over seeds of the steps after which the policy's P(unsafe) stays within {100 * STEADY:.0f} point, and its return within "
            f"{100 * STEADY_RETURN:.0f} % of the scale, of what they are at the end; looked at after 1/8, 1/4, 1/2 and all of the steps.",
        ],
    ]
    return [Heading("How it was done"), Table(["", ""], rows)]


# -- for the docs ------------------------------------------------------------------------------------------------------


def write_docs(found: Comparison, docs: str | Path, command: str = "safereplay compare --preset paper") -> Path:
    """Write ``compare.md`` and img/compare-*.svg|png to a folder: the minute, the overview, where each fails, and how."""
    folder = _files.make_folder(docs)
    made = Page(TITLE, [], {"compare-overview": overview_figure(found)})
    made.draw(_files.make_folder(folder / "img"))
    blocks: list[Block] = [
        *_minute(found),
        *_standings(found),
        *_failing(found),
        *_absent(found),
        *_method(found),
    ]
    blocks.append(Text(f"Again: `{command}`. It writes a page with a picture and a table for each world."))
    text = to_markdown(TITLE, blocks).replace("(figures/overview", "(img/compare-overview")
    return _files.write_atomic(folder / "compare.md", text)


def _standings(found: Comparison) -> list[Block]:
    """The best three of each world, and the paper's own."""
    rows = []
    for chapter in found.chapters:
        own = sentences.ours(chapter)
        chosen = [*chapter.standings[:3], *([own] if own is not None and own not in chapter.standings[:3] else [])]
        rows += [[chapter.title if k == 0 else "", *_row(s, found)] for k, s in enumerate(chosen)]
    return [
        Heading("The best three of each world, and the paper's own"),
        Table(["world", *HEADER], rows, folded=True),
    ]


SEEDS = 20  #: at least
LOOKS = 8  # steps: there must be an eighth of them


class Preset(NamedTuple):
    """Who meets where if nothing else is said."""

    learners: tuple[str, ...]
    schemes: tuple[str, ...]
    worlds: tuple[str, ...]
    steps: int | None  #: None: as many as the world needs


#: ``paper`` is every system of the catalog on every world of it; ``quick`` is the paper's own comparison on its two grids.
PRESETS = ("quick", "paper")
QUICK = Preset(("q", "mihatsch", "gaskett", "worst-transition"), ("variance",), ("volatile", "cliff"), None)


def preset(name: str) -> Preset:
    """A preset by its name.

    >>> preset("quick").worlds
    ('volatile', 'cliff')
    """
    _checks.choice("preset", name, PRESETS)
    if name == "quick":
        return QUICK
    systems = tuple(one for one in catalog.LEARNERS if one != REPLAY)
    return Preset(systems, tuple(catalog.SCHEMES), tuple(catalog.WORLDS), None)


def planned(
    learners: Sequence[str] | None = None,
    schemes: Sequence[str] | None = None,
    places: Sequence[str] | None = None,
    seeds: int = SEEDS,
    steps: int | None = None,
    base: str = "quick",
) -> Plan:
    """Who meets where: the names that are given, and of the preset ``base`` what is not.

    If learners or schemes are named, only those that are named take part.

    >>> plan = planned(learners=["mihatsch"], places=["cliff"], steps=800)
    >>> [one.label for one in plan.contestants], [world.steps for world in plan.worlds]
    (['Mihatsch–Neuneier'], [800])
    """
    usual = preset(base)
    if learners is None and schemes is None:
        learners, schemes = usual.learners, usual.schemes
    seeds = _checks.whole("seeds", seeds, SEEDS, bits=24)
    budget = usual.steps if steps is None else _checks.whole("steps", steps, LOOKS)
    chosen = contestants(learners or (), schemes or ())
    _checks.require(bool(chosen), "contestants", "be at least one", chosen)
    return Plan(worlds(usual.worlds if places is None else places, budget), chosen, seeds)


def compare(plan: Plan, out: str | Path, quiet: bool = False, threads: int | None = None) -> tuple[Comparison, Path]:
    """Run what the folder lacks, and write the page; what was found, and where the page is.

    Stopped at any moment (:class:`~safereplay.errors.Stopped` says what is done), the same call goes on, and ends with the same page to the last bit.
    """
    folder = page_folder(out)
    with Store(folder) as store, stopping(lambda: _kept(plan, store)):
        run(plan, store, quiet, threads)
        found = collect(plan, store)
        return found, write_page(page(found), folder)


def _kept(plan: Plan, store: Store) -> str:
    """How much a comparison that was stopped has done."""
    kept = [store.get(job) is not None for _, job in plan.jobs()]
    return f"{sum(kept):,} of {len(kept):,} settings are done; the same command goes on"
