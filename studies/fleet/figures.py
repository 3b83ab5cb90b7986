"""Pictures of the study: dials, and how many networks follow the exact limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from safereplay.views.drawing import styled
from studies.deep.figures import COLOURS, MARKERS, legend, panels
from studies.deep.summary import KEYED, OURS, PLAIN

if TYPE_CHECKING:
    from .report import Chapter, Outlook

FLOOR = 1.6  #: of the gap: settings that lose more are not drawn
FEWEST = 3  #: settings of a family for which a dial is drawn


def drawn(chapters: Sequence[Chapter], outlooks: Sequence[Outlook]) -> dict[str, Figure]:
    """All pictures, by name."""
    found = {"fleet-forecast": forecast(chapters), "fleet-limit": limit(outlooks)}
    return {"fleet-dials": dials(chapters), **found} if has_dials(chapters) else found


def has_dials(chapters: Sequence[Chapter]) -> bool:
    """Whether any family has enough settings for a picture of its dial."""
    return any(len(c.family(g.family)) >= FEWEST for c in chapters for g in c.groups)


@styled
def dials(chapters: Sequence[Chapter]) -> Figure:
    """Mean return against P(unsafe), along each dial."""
    figure, axes = panels(len(chapters), 2.5)
    for (ax,), c in zip(axes, chapters, strict=True):
        lowest = c.plain.mean.mean - FLOOR * (c.plain.mean.mean - c.random)
        for name in COLOURS:
            shown = [g for g in c.family(name) if g.mean.mean >= lowest]
            x, y = [100 * g.p.mean for g in shown], [g.mean.mean for g in shown]
            ax.plot(
                x,
                y,
                color=COLOURS[name],
                marker=MARKERS[name],
                ms=11 if name == PLAIN else 4,
                lw=1.0,
                zorder=9 if name == PLAIN else 3,
            )
        ax.set_title(c.title)
        ax.set(xlabel="P(unsafe), %", ylabel="mean return")
        ax.margins(0.08)
    legend(figure, [name for name in COLOURS if any(c.family(name) for c in chapters)], line="-")
    return figure


@styled
def forecast(chapters: Sequence[Chapter]) -> Figure:
    """The share of networks that follow the limit, over training."""
    known = [c for c in chapters if any(x is not None for g in c.groups for x in g.rows["follows"])]
    figure, axes = panels(max(len(known), 1), 2.3)
    colours = mpl.colormaps["viridis"]
    for (ax,), c in zip(axes, known, strict=False):
        for name, style in ((PLAIN, "-"), (OURS, "-"), (KEYED, ":")):
            for g in c.family(name):
                rows = [k for k, x in enumerate(g.rows["follows"]) if x is not None]
                if rows:
                    y = np.mean([g.rows["follows"][k] for k in rows], axis=0)
                    colour = COLOURS[PLAIN] if name == PLAIN else colours(0.9 * g.value)
                    ax.plot(np.array(g.rows["at"][rows[0]]) / 1000, 100 * y, ls=style, color=colour, lw=1.2)
        ax.set_title(c.title)
        ax.set(xlabel="steps, thousands", ylabel="follow, %", ylim=(-3, 103))
    values = sorted({(name, g.value) for c in known for name in (OURS, KEYED) for g in c.family(name)})
    handles = [Line2D([], [], color=COLOURS[PLAIN], label=PLAIN)]
    for name, v in values:
        handles.append(
            Line2D([], [], color=colours(0.9 * v), ls=":" if name == KEYED else "-", label=f"{name}, v = {v:g}")
        )
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    return figure


@styled
def limit(outlooks: Sequence[Outlook]) -> Figure:
    """How many networks follow the limit, against its gap; and their risk, against the limit's."""
    figure, axes = panels(2, 3.4)
    (left,), (right,) = axes
    for name in dict.fromkeys(x.group.family for x in outlooks):
        some = [x for x in outlooks if x.group.family == name]
        look = {
            "color": COLOURS[name],
            "marker": MARKERS[name],
            "ls": "",
            "ms": 8 if name == PLAIN else 4.5,
            "alpha": 0.8,
        }
        left.plot([x.forecast.gap for x in some], [100 * x.end for x in some], label=name, **look)
        right.plot([100 * x.forecast.p_unsafe for x in some], [100 * x.p for x in some], **look)
    left.set(xscale="log", xlabel="smallest gap of the limit", ylabel="follow, %", ylim=(-3, 103))
    right.axline((0.0, 0.0), slope=1.0, color="0.6", lw=0.8, zorder=0)
    right.set(xlabel="P(unsafe) of the limit, %", ylabel="of the median network, %")
    right.legend(*left.get_legend_handles_labels(), frameon=False, fontsize=9, loc="upper left")
    return figure
