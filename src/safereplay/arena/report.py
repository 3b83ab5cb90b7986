"""A comparison from names to the finished page: the summary, then the worlds, then the method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from .. import _checks, catalog
from .._checks import Floats
from .._progress import Bar
from ..errors import stopping
from ..theory.design import reachable_frontier
from ..views.document import Block, Heading, Picture, Table, Text
from ..views.intervals import listed, number, percent, points, within
from ..views.pages import Page, page_folder, write_page
from . import results
from .figures import OTHERS, everyone_figure, overview_figure, world_figure
from .measures import ENDS, FLAT_WIDTH, STEADY, STEADY_RETURN, WIDTH
from .plan import REPLAY, Plan, Store, World, contestants, run, worlds
from .results import Chapter, Comparison, Standing

TITLE = "Every system on one table"
MOST_PAIRS = 2_000  # pairs: replay is not designed for larger models
DANGERS = {
    "reward": "in the rewards",
    "transition": "in the transitions",
    "delayed": "delayed: harm shows later than its cause",
    "rare": "rare",
    "none": "none",
    "exploration": "only in exploration",
    "caution": "none: caution is wrong here",
}
AREA = (
    "The area of a contestant measures its return under limits on risk. For each limit on P(unsafe), take the best mean return of its "
    "settings that keep the limit, and sum over the limits. 100 % is the ceiling's area: the best that any policy can do. "
    "A contestant is among the best of a world if its distance from the largest area is not significant (95 %), or less than half a point."
)
REFERENCE = "reference: designed replay"
DESIGNED = (
    "designed replay, which is not a contestant but what replay could do at best, with weights computed from the model."
)


def page(found: Comparison) -> Page:
    """A comparison as a page."""
    figures: dict[str, Figure] = {"overview": overview_figure(found)}
    blocks = [*opening(found)]
    for chapter, stem in zip(found.chapters, stems([c.title for c in found.chapters]), strict=True):
        if chapter.families:
            figures |= {stem: world_figure(chapter), f"{stem}-all": everyone_figure(chapter)}
        blocks += _world(chapter, stem, found)
    blocks += [*refusals(found), *method(found)]
    return Page(TITLE, blocks, figures)


def stems(titles: Sequence[str]) -> list[str]:
    """Unique file names for worlds.

    >>> stems(["cliff", "my map", "my-map", "overview"])
    ['cliff', 'my-map-2', 'my-map-3', 'overview-4']
    """
    plain = ["".join(c if c.isalnum() or c in "-_" else "-" for c in title) for title in titles]
    taken = ["overview", *plain]
    return [name if taken.count(name) == 1 else f"{name}-{k}" for k, name in enumerate(plain, 1)]


def opening(found: Comparison) -> list[Block]:
    """The blocks on all worlds together."""
    caption = (
        f"Share of the ceiling's area, %, {found.plan.seeds} seeds per setting. Framed: among the best of a world. Dot: does not apply. "
        "Bold name: the paper's replay."
        + " Right of the line: worlds that do not separate the contestants; the second mean is over the worlds left of it."
        * bool(found.equal and found.separating)
        + f" Last row: {DESIGNED}" * bool(found.designed)
    )
    everyone, places, bests = [], [], results.bests(found)
    for label in found.labels:
        ran = sum(c.standing(label) is not None for c in found.chapters)
        shares = [f"{bests[label]} of {ran}", f"{len(results.failures(found, label))} of {ran}"]
        why = results.reasons(found, label)
        means = [percent(found.mean_area(label, some)) for some in found.means.values()]
        beside = [percent(found.of_designed(label))] * bool(found.designed)
        everyone.append([found.marked(label), *means, *beside, *shares, why])
    if found.designed:
        means = [percent(found.mean_designed(some)) for some in found.means.values()]
        known = f"known on {len(found.designed)} of {len(found.chapters)} worlds"
        everyone.append([REFERENCE, *means, "100 %", "", "", known])
    for chapter in found.separating or found.chapters:
        if chapter.standings:
            first, own = chapter.standings[0], results.ours(chapter)
            alike = [found.marked(s.family.label) for s in chapter.standings[1:] if s.among_best]
            mine = ["—", "", ""]
            if own is not None:
                what = f"{results.WORDS[results.verdict(chapter)]}: {own.family.label}"
                mine = [what, percent(own.area.mean), "" if own is first else points(own.behind)]
            same = listed(alike, results.FEW) or "none"
            places.append([chapter.title, found.marked(first.family.label), within(first.area), same, *mine])
    replay = ["the paper's replay", "area", "behind the largest"]
    header = [
        "contestant",
        *found.means,
        *["of designed replay"] * bool(found.designed),
        "among the best",
        "fails",
        "why it fails, and where",
    ]
    return [
        *(Text(line) for line in (AREA, results.marks(found), *results.summary(found)) if line),
        Picture("overview", caption),
        Heading("Contestants"),
        Text("A contestant fails on a world where its area is less than half of the largest."),
        Table(header, everyone, folded=True),
        Heading("Worlds"),
        Table(["world", "largest area", "area", "also among the best", *replay], places),
        *(_equal(found) if found.separating and found.equal else ()),
    ]


def _equal(found: Comparison) -> list[Block]:
    """The worlds that do not separate the contestants."""
    rows = []
    for chapter in found.equal:
        areas = [standing.area.mean for standing in chapter.standings]
        shown = f"{percent(min(areas))} to {percent(max(areas))}" if areas else "—"
        reason = "all are among the best" if chapter.world.dangerous else "no outcome can be unsafe"
        rows.append([chapter.title, reason, shown])
    return [
        Heading("Worlds that do not separate the contestants"),
        Text(results.rule(found)),
        Table(["world", "why", "areas"], rows),
    ]


def _world(chapter: Chapter, stem: str, found: Comparison) -> list[Block]:
    world, scale = chapter.world, chapter.world.scale
    first, last = percent(float(scale.risks[0]), 1), percent(float(scale.risks[-1]), 1)
    about = [
        ["model", f"{world.mdp.n_states} states, {world.mdp.n_actions} actions, γ = {world.mdp.gamma:g}"],
        *([["danger", DANGERS.get(world.danger, world.danger)]] if world.danger else []),
        ["experience", f"{world.steps:,} steps per run, ε = {world.epsilon:g}"],
        ["return", "discounted (the undiscounted one is unbounded)" if world.discounted else "undiscounted"],
        ["Q-learning's limit", f"P(unsafe) {percent(world.plain[1], 1)}, return {number(world.plain[0])}"],
        ["limits on P(unsafe)", f"{first} to {last}"],
        ["the ceiling's return there", f"{number(float(scale.top[0]))} to {number(float(scale.top[-1]))}"],
        ["return that counts as 0", number(scale.low)],
        ["useful", f"P(unsafe) at most {percent(scale.limit, 1)} and return at least {number(scale.enough)}"],
    ]
    blocks: list[Block] = [Heading(chapter.title), Table(["", ""], about)]
    if not chapter.families:
        return blocks
    return [
        *blocks,
        Picture(
            stem,
            "Mean return against P(unsafe) along each dial, with 95 % intervals over seeds: the contestants of the paper and the "
            f"best {len(OTHERS)} others. Grey: beyond the ceiling. Open triangles: settings outside the picture."
            + f" Dashed: {DESIGNED}"
            * (chapter.frontier is not None),
        ),
        Table(HEADER, [*(row(standing, found) for standing in chapter.standings), *designed_row(chapter)]),
        Picture(f"{stem}-all", "All contestants, sorted from the largest area. The number is the area."),
    ]


HEADER = ["contestant", "area", "behind the largest", "setting", "P(unsafe)", "return", "useful band", "settles"]
HEADER += ["updates per step"]


def row(standing: Standing, found: Comparison) -> list[str]:
    """The cells of a contestant, as in HEADER."""
    family = standing.family
    k, first = family.chosen, standing.behind.mean == 0.0
    return [
        found.marked(family.label),
        within(standing.area, 1),
        "" if first else points(standing.behind) + (" ≈" if standing.best else ""),
        family.contestant.shown(family.settings[k]),
        percent(family.risks[k].mean, 1),
        number(family.returns[k].mean),
        str(family.band) if family.contestant.dial else ("yes" if family.good.any() else "no"),
        f"≤ {int(np.median(family.settles)):,}",
        f"{family.updates:.2f}",
    ]


def designed_row(chapter: Chapter) -> list[list[str]]:
    """The row of designed replay under those of the contestants, if its frontier is known."""
    if chapter.frontier is None:
        return []
    return [[REFERENCE, percent(chapter.designed_area, 1), *[""] * (len(HEADER) - 2)]]


def refusals(found: Comparison) -> list[Block]:
    """Which contestants do not apply, and why."""
    rows, header = results.absent(found), ["contestant", "worlds", "why, on the first of them"]
    return [Heading("Does not apply"), Table(header, rows)] if rows else []


#: The method, after the sentence that counts contestants and worlds.
METHOD = {
    "contestants": "A replay scheme runs in both mixings: literal is the paper's algorithm, matched is the one the paper analyses. v = 0 is Q-learning. A risk measure runs with anchored mixing, over v at a cautious dial, and over its own dial at v = 1.",
    "equal experience": "On a world every run takes the same number of steps of the MDP, with the same exploration and α = n(s,a)^−0.6. The number of updates may differ; the tables show it.",
    "evaluation": "The greedy policy of each run, exactly, by linear equations. No episode is sampled. A policy that may never end, at a cost per step, gets the return that counts as 0.",
    "return that counts as 0": "The return of a uniformly random policy, but not less than the ceiling minus the range of a single reward (or minus the ceiling's absolute value), and low enough for the safest policy to have a positive area.",
    "area": f"The limits go from the least possible P(unsafe) to that of Q-learning's limit, and over at least {100 * WIDTH:.0f} points ({100 * FLAT_WIDTH:.0f} where the ceiling is flat). A limit that no setting keeps counts as 0. P(unsafe) and return of a setting are means over seeds. The seeds that choose a setting also judge it, which slightly favours dials of many settings.",
    "intervals": "95 %, bootstrap over seeds, for all settings and contestants together (percentiles widened for few seeds, Hesterberg 2015). No correction for multiple comparisons. ≈ marks a difference that is not significant.",
    "useful band": f"The settings with P(unsafe) at most half-way from the least possible to Q-learning's (at least a point above the least), P(never ends) at most {100 * ENDS:.0f} %, and at least half of the ceiling's return. In brackets: their share of the dial's range. The setting shown is the useful one with the highest return; if none is useful, the safest.",
    "settles": f"Median over seeds of the step after which P(unsafe) stays within {100 * STEADY:.0f} point and the return within {100 * STEADY_RETURN:.0f} % of the scale of their final values. Evaluated after 1/8, 1/4, 1/2 and all of the steps.",
}


def method(found: Comparison) -> list[Block]:
    """How contestants are compared."""
    plan, settings = found.plan, sum(len(one.settings) for one in found.plan.contestants)
    count = f"{len(plan.contestants)} contestants with {settings} settings in all, {plan.seeds} seeds per setting, {len(plan.worlds)} worlds."
    rows = [[name, f"{count} {text}" if name == "contestants" else text] for name, text in METHOD.items()]
    return [Heading("Method"), Table(["", ""], rows)]


SEEDS = 20  #: the smallest and the default number
LOOKS = 8  # the smallest number of steps: an eighth of it is 1


#: The default learners, schemes and worlds: of the paper's experiments (quick), or all of the catalog (paper).
PRESETS: dict[str, tuple[Sequence[str], Sequence[str], Sequence[str]]] = {
    "quick": (("q", "mihatsch", "gaskett", "worst-transition"), ("variance",), ("volatile", "cliff")),
    "paper": ([name for name in catalog.LEARNERS if name != REPLAY], [*catalog.SCHEMES], [*catalog.WORLDS]),
}


def planned(
    learners: Sequence[str] | None = None,
    schemes: Sequence[str] | None = None,
    places: Sequence[str] | None = None,
    seeds: int = SEEDS,
    steps: int | None = None,
    base: str = "quick",
) -> Plan:
    """A plan from names; what is not given is taken from the preset ``base``.

    If learners or schemes are named, only those take part.

    >>> plan = planned(learners=["mihatsch"], places=["cliff"], steps=800)
    >>> [one.label for one in plan.contestants], [world.steps for world in plan.worlds]
    (['Mihatsch–Neuneier'], [800])
    """
    *usual, usual_places = PRESETS[_checks.choice("preset", base, PRESETS)]
    if learners is None and schemes is None:
        learners, schemes = usual
    seeds = _checks.whole("seeds", seeds, SEEDS, bits=24)
    budget = None if steps is None else _checks.whole("steps", steps, LOOKS)
    chosen = contestants(learners or (), schemes or ())
    _checks.require(bool(chosen), "contestants", "be at least one", chosen)
    return Plan(worlds(usual_places if places is None else places, budget), chosen, seeds)


def designed(world: World) -> Floats:
    """What replay can do at best on a world: points (P(unsafe), return), [n, 2], from least to most risk; none for a large model."""
    points = reachable_frontier(world.mdp, world.mdp.origin) if world.mdp.n_pairs <= MOST_PAIRS else ()
    found = np.array([(x.p_unsafe, x.mean_discounted if world.discounted else x.mean) for x in points]).reshape(-1, 2)
    return found[np.lexsort(found.T[::-1])]


def design_replays(plan: Plan, store: Store, quiet: bool = False) -> None:
    """Design replay for the worlds that the store has no points of."""
    missing = [world for world in plan.worlds if store.frontier(world) is None]
    with Bar("designing replay", len(missing), quiet) as bar:
        for i, world in enumerate(missing):
            bar.update(i, world.title)
            store.put_frontier(world, designed(world))


def compare(plan: Plan, out: str | Path, quiet: bool = False, threads: int | None = None) -> tuple[Comparison, Path]:
    """Do the runs that the folder lacks, and write the page; return the comparison and the page's path.

    If it is stopped (:class:`~safereplay.errors.Stopped` says what is done), the same call continues, and the page is the same to the last bit.
    """
    folder = page_folder(out)

    def kept() -> str:
        there = [store.get(job) is not None for _, job in plan.jobs()]
        return f"{sum(there):,} of {len(there):,} settings are done; run the same command to continue"

    with Store(folder) as store, stopping(kept):
        run(plan, store, quiet, threads)
        design_replays(plan, store, quiet)
        found = results.collect(plan, store)
        return found, write_page(page(found), folder)
