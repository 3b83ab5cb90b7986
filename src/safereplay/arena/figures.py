"""Pictures of a comparison: the share of the ceiling per contestant, and return against risk on each world.

A world's picture shows the paper's contestants and the best few others; small multiples show all contestants, one panel
each. Each contestant of a picture has its own colour and its own marker, so that no information is in colour alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .._checks import Bools, Floats
from ..views.drawing import BLUE, GREEN, GREY, INK, ORANGE, RED, new_figure, styled
from ..views.intervals import percent
from .plan import Contestant
from .results import Chapter, Comparison, Family

SOFT = "#5b6472"
OTHERS = (("#8e4a9e", "P"), ("#8c5a2b", "X"), ("#0f8a8a", "h"), ("#c2569b", "p"))
PAPER = {"q": (ORANGE, "*"), "mihatsch": (GREEN, "D"), "gaskett": (RED, "^"), "worst-case": (GREY, "v")}
OURS = {"literal": (BLUE, "o"), "matched": ("#123f73", "s")}
STEEP = 0.05  # of the risk range: a steep ceiling below this may be cut off
ACROSS = 5  # small multiples per row
SHADES = LinearSegmentedColormap.from_list("areas", ["#f6f7f9", "#cfe3f3", "#7fb8dd", "#2f7fb8", "#123f73"])


class Look(NamedTuple):
    """How a contestant is drawn."""

    colour: str
    marker: str


@styled
def overview_figure(found: Comparison) -> Figure:
    """The share of the ceiling's area, contestants by worlds; the best of a world are framed.

    Worlds that do not separate the contestants are on the right of a line; designed replay is under a line.
    """
    labels, chapters = found.labels, [*found.separating, *found.equal]
    names, means = [*map(found.marked, labels)], [*found.means.values()] if len(chapters) > 1 else []
    last = [found.mean_designed(some) for some in means]
    names += ["designed replay"] * bool(found.designed)
    figure, axes = new_figure(max(4.4, 2.7 + 0.37 * (len(chapters) + len(means))), 1.5 + 0.2 * len(names))
    ax = axes[0, 0]
    standings = [[c.standing(label) for c in chapters] for label in labels]
    shares = [[np.nan if standing is None else standing.area.mean for standing in row] for row in standings]
    if found.designed:
        shares.append([chapter.designed_area for chapter in chapters])
    shown = np.ma.masked_invalid(np.array(shares).reshape(len(names), -1))
    ax.imshow(shown, cmap=SHADES, vmin=0.0, vmax=1.0, aspect="auto")
    centred: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
    for i, row in enumerate(standings):
        for j, standing in enumerate(row):
            if standing is None:
                ax.text(j, i, "·", color=SOFT, **centred)
                continue
            share, best = standing.area.mean, standing.among_best
            look = {"color": "white" if share > 0.55 else INK, "weight": "bold" if best else "normal"}
            ax.text(j, i, f"{100 * share:.0f}", **centred, **look)
            if best:
                x, y = [j - 0.44, j + 0.44, j + 0.44, j - 0.44, j - 0.44], [i - 0.4, i - 0.4, i + 0.4, i + 0.4, i - 0.4]
                ax.plot(x, y, color=ORANGE, lw=1.1, zorder=3)
    for j, share in enumerate(shares[-1] if found.designed else ()):
        text, colour = ("·", SOFT) if np.isnan(share) else (f"{100 * share:.0f}", "white" if share > 0.55 else INK)
        ax.text(j, len(labels), text, color=colour, **centred)
    if found.designed:
        ax.axhline(len(labels) - 0.5, color=INK, lw=2.0)
    if found.separating and found.equal:
        ax.axvline(len(found.separating) - 0.5, color=INK, lw=2.0)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set_xticks(range(len(chapters)), [c.title for c in chapters], rotation=40, ha="right", fontsize=8)
    ax.tick_params(length=0)
    ours = {one.label for one in found.plan.contestants if one.ours}
    for text, label in zip(ax.get_yticklabels(), labels, strict=False):
        if label in ours:
            text.set(weight="bold")
    for k, some in enumerate(means):
        column = [found.mean_area(label, some) for label in labels] + last[k : k + 1] * bool(found.designed)
        for i, mean in enumerate(["mean" if k == 0 else "mean, left", *map(percent, column)], -1):
            place: dict[str, Any] = {"xytext": (6 + 42 * k, 0), "textcoords": "offset points", "va": "center"}
            ax.annotate(mean, (len(chapters) - 0.5, i), **place, fontsize=8, color=SOFT, annotation_clip=False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    figure.suptitle("Share of the ceiling's area, %", x=0.02, ha="left", fontsize=10, weight="bold")
    return figure


def featured(chapter: Chapter) -> list[tuple[Family, Look]]:
    """The contestants of a world's main picture: the paper's, and the best of the others."""
    chosen: list[tuple[Family, Look]] = []
    rest = list(OTHERS)
    for standing in chapter.standings:
        look = _paper_look(standing.family.contestant)
        if look is not None:
            chosen.append((standing.family, look))
        elif rest:
            chosen.append((standing.family, Look(*rest.pop(0))))
    return chosen


def _paper_look(one: Contestant) -> Look | None:
    if one.ours:
        return Look(*OURS["matched" if one.label.endswith("(matched)") else "literal"])
    return Look(*PAPER[one.name]) if one.name in PAPER and not one.replays else None


class Frame(NamedTuple):
    """The part of the plane that a world's pictures show."""

    left: float
    right: float
    bottom: float
    top: float


def frame_of(chapter: Chapter) -> Frame:
    """The frame around the ceiling and all useful settings that are not dominated, with a margin.

    Other settings are drawn at the edge. If no setting is useful, those that keep some limit count instead.
    """
    scale = chapter.world.scale
    first, last = 100 * float(scale.risks[0]), 100 * float(scale.risks[-1])
    useful = any(f.good.any() for f in chapter.families)
    kept = []
    for f in chapter.families:
        p, value = f.p.mean(1), f.value.mean(1)
        beaten = ((p[:, None] < p) & (value[:, None] > value)).any(0)  # another has both less risk and more return
        kept.append(value[(f.good if useful else 100 * p <= last) & ~beaten])
    steep = np.interp(scale.risks[0] + STEEP * (scale.risks[-1] - scale.risks[0]), scale.risks, scale.top)
    seen = np.concatenate([*kept, scale.top[-1:], [steep]])
    low, high = max(float(seen.min()), scale.low), max(float(seen.max()), float(scale.top[-1]))
    tall = (high - low) or 0.1 * abs(high) or 1.0
    return Frame(first - 0.06 * (last - first), last + 0.12 * (last - first), low - 0.25 * tall, high + 0.12 * tall)


@styled
def world_figure(chapter: Chapter) -> Figure:
    """Return against risk: the paper's contestants, the best of the others, and the ceiling."""
    figure, axes = new_figure(9.4, 4.6)
    ax, frame = axes[0, 0], frame_of(chapter)
    _draw_ceiling(ax, chapter, frame)
    shown, handles = featured(chapter), [Line2D([], [], color=INK, lw=1.4, label="ceiling (linear program)")]
    if chapter.frontier is not None:
        _draw_designed(ax, chapter, frame)
        name = f"designed replay, {percent(chapter.designed_area)}"
        handles.append(Line2D([], [], color=SOFT, lw=1.4, ls="--", label=name))
    for k, (family, look) in enumerate(shown):
        drawn: dict[str, Any] = {"color": look.colour, "marker": look.marker, "ms": 11 if look.marker == "*" else 6}
        name = f"{family.label}, {percent(family.area)}"
        handles.append(Line2D([], [], mec="white", mew=0.6, lw=1, label=name, **drawn))
        _draw_family(ax, family, look, frame, 6.0, zorder=4 + 0.1 * (len(shown) - k))
        inside = _inside(family.limits[:, 0] * 100, family.limits[:, 1], frame)
        ax.plot(*(family.limits[inside].T * [[100], [1]]), "o", ms=2.6, mfc="white", mec=INK, mew=0.8, zorder=8)
    ax.axvline(100 * chapter.world.scale.limit, color=GREY, lw=0.8, ls=":", zorder=1)
    ax.set(xlabel="P(unsafe), %", ylabel=_return_name(chapter), xlim=frame[:2], ylim=frame[2:], title=chapter.title)
    handles += [
        Line2D([], [], color=INK, marker="o", ms=2.6, mfc="white", mew=0.8, lw=0, label="exact limits"),
        Line2D([], [], color=GREY, lw=0.8, ls=":", label="limit of the useful band"),
    ]
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8, handlelength=1.6)
    return figure


def _return_name(chapter: Chapter) -> str:
    return "mean discounted return" if chapter.world.discounted else "mean return"


def _draw_ceiling(ax: Axes, chapter: Chapter, frame: Frame, lw: float = 1.4, every: int = 1) -> None:
    scale = chapter.world.scale
    some = np.unique([*range(0, scale.risks.size, every), scale.risks.size - 1])
    risks, top = 100 * scale.risks[some], scale.top[some]
    x, y = np.append(risks, max(frame.right, risks[-1])), np.append(top, top[-1])
    ax.fill_between(x, y, frame.top, color="#eef0f4", lw=0, zorder=0)
    ax.fill_betweenx([frame.bottom, frame.top], frame.left, x[0], color="#eef0f4", lw=0, zorder=0)
    ax.plot(risks, top, color=INK, lw=lw, zorder=2)


def _draw_designed(ax: Axes, chapter: Chapter, frame: Frame) -> None:
    """The best return of designed replay under each limit on the risk: steps, as its area counts them."""
    assert chapter.frontier is not None
    p, value = chapter.frontier.T
    x, y = np.append(100 * p, max(frame.right, 100 * p[-1])), np.maximum.accumulate(value)
    ax.plot(x, np.append(y, y[-1]), color=SOFT, lw=1.4, ls="--", drawstyle="steps-post", zorder=2.5)


def _inside(x: Floats, y: Floats, frame: Frame) -> Bools:
    return np.asarray((x >= frame.left) & (x <= frame.right) & (y >= frame.bottom) & (y <= frame.top))


def _draw_family(ax: Axes, family: Family, look: Look, frame: Frame, size: float, zorder: float = 4.0) -> None:
    """A family along its dial, with intervals; lines join neighbours in the frame, triangles at the edge mark settings outside it."""
    p, v = np.array(family.risks) * 100, np.array(family.returns)  # [settings, (mean, low, high)]
    inside = _inside(p[:, 0], v[:, 0], frame)
    ax.plot(p[:, 0], np.where(inside, v[:, 0], np.nan), color=look.colour, lw=0.9, alpha=0.45, zorder=zorder - 1.5)
    bars = [[(x, row[0]) for x in risk[1:]] for risk, row in zip(p[inside], v[inside], strict=True)]
    bars += [[(risk[0], y) for y in row[1:]] for risk, row in zip(p[inside], v[inside], strict=True)]
    bars = [np.clip(bar, (frame.left, frame.bottom), (frame.right, frame.top)) for bar in bars]
    ax.add_collection(LineCollection(bars, colors=look.colour, lw=0.8, alpha=0.4, zorder=zorder - 1))
    larger = 2.3 * size if look.marker == "*" else size
    ax.plot(p[inside, 0], v[inside, 0], look.marker, color=look.colour, ms=larger, mec="white", mew=0.5, zorder=zorder)
    right, left = p[:, 0] > frame.right, p[:, 0] < frame.left
    for beyond, marker in ((right, ">"), (left, "<"), (~right & ~left & ~inside, "v")):
        x, y = np.clip(p[beyond, 0], *frame[:2]), np.clip(v[beyond, 0], *frame[2:])
        ax.plot(x, y, marker, ms=0.7 * size, mfc="none", mec=look.colour, clip_on=False, zorder=zorder)


@styled
def everyone_figure(chapter: Chapter) -> Figure:
    """Small multiples: one panel per contestant, all with the same ceiling, sorted from the largest area."""
    families = [standing.family for standing in chapter.standings]
    down = -(-len(families) // ACROSS)
    height = 1.5 * down + 0.7
    figure = Figure(figsize=(10.0, height))  # manual layout: the automatic one takes seconds for so many panels
    room = {"left": 0.065, "right": 0.99, "top": 1.0 - 0.25 / height, "bottom": 0.5 / height}
    axes = figure.subplots(down, ACROSS, squeeze=False, gridspec_kw={**room, "hspace": 0.38, "wspace": 0.12})
    frame = frame_of(chapter)
    for k, ax in enumerate(axes.ravel()):
        if k >= len(families):
            ax.set_visible(False)
            continue
        family, left, last = families[k], k % ACROSS == 0, k + ACROSS >= len(families)
        _draw_ceiling(ax, chapter, frame, 0.9, every=4)
        _draw_family(ax, family, _paper_look(family.contestant) or Look("#8e4a9e", "o"), frame, 3.6)
        ax.set(xlim=frame[:2], ylim=frame[2:])
        ax.tick_params(labelsize=7.5, labelleft=left, labelbottom=last, length=2)
        ax.set_title(family.label, fontsize=7.5, weight="normal", pad=3)
        ax.text(0.97, 0.05, percent(family.area), transform=ax.transAxes, ha="right", fontsize=8, color=INK)
    figure.supxlabel("P(unsafe), %", fontsize=8.5, y=0.08 / height)
    figure.supylabel(_return_name(chapter), fontsize=8.5, x=0.008)
    return figure
