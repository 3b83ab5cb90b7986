"""The benchmark as a page: performance.md, and one picture of it.

GPU results come from another machine: if the folder has a file ``gpu.json``, its tables are shown in a separate section. It is

    {"machine": "one H200 ...", "tables": [{"title": "...", "said": "...", "header": ["...", ...], "rows": [["...", ...], ...]}]}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from safereplay._files import make_folder, read_text, write_atomic
from safereplay.errors import BadFile
from safereplay.views.document import Block, Heading, Picture, Table, Text, to_markdown
from safereplay.views.drawing import BLUE, GREY, ORANGE, new_figure, save, styled

from . import native
from .machine import in_words
from .report import BenchReport
from .sheets import Sheet

PICTURE = "performance"
GPU = "gpu.json"
AGAIN = (
    "`safereplay bench` shows these tables, `--quick` in about a minute, `--only tree,threads` in part. Contestants alternate, "
    "so that a busy moment affects all; still, measure on a quiet machine. `pip install 'safereplay[peers]'` installs the "
    "peers except MushroomRL, which needs its own environment (see `benchmarks/mushroom.py`). cpprb's tree without its "
    "buffer is timed in C++ by `benchmarks/cpprb_tree.cpp`."
)


def page_folder(out: str | Path) -> Path:
    """Make the folder for a page, or refuse it before any work."""
    folder = make_folder(out, "performance.md")
    gpu_blocks(folder / GPU)
    return folder


def write_page(report: BenchReport, out: str | Path) -> Path:
    """Write ``performance.md`` and its picture (img/performance.svg and .png) to a folder; return the page's path."""
    folder = page_folder(out)
    images = make_folder(folder / "img")
    save(picture(report), images, PICTURE)
    text = to_markdown("Performance", [*_blocks(report), *gpu_blocks(folder / GPU)])
    return write_atomic(folder / "performance.md", text.replace("(figures/", "(img/"))


def _blocks(report: BenchReport) -> list[Block]:
    named = ", ".join(report.parts)
    blocks: list[Block] = [
        Text(f"Written by `safereplay bench --out DIR` (parts {named}). Machine: {in_words(report.machine)}"),
        Picture(
            PICTURE,
            "Left: speed-up over each peer, in the least favourable case. Middle: speed-up over one thread, compared with a "
            "bare compiled loop. Right: the times of an update, of the exact limit and of the exact risk against the size of the model.",
        ),
    ]
    for sheet in report.sheets():
        blocks += _section(sheet)
    if report.parts.get("c"):
        blocks += [Heading("What the loop's speed depends on"), Text(native.TRIED)]
    return [*blocks, Heading("How to repeat"), Text(AGAIN)]


def _section(sheet: Sheet) -> list[Block]:
    title = sheet.title[0].upper() + sheet.title[1:]
    return [Heading(title), Text(f"**{sheet.reading}** {sheet.said}"), Table(sheet.header, sheet.rows)]


def gpu_blocks(file: Path) -> list[Block]:
    """The results on a GPU, if there are any."""
    if not file.is_file():
        return []
    try:
        told: dict[str, Any] = json.loads(read_text(file))
        tables = [
            (str(t["title"]), str(t["said"]), Table(tuple(t["header"]), [tuple(map(str, r)) for r in t["rows"]]))
            for t in told["tables"]
        ]
        machine = str(told["machine"])
    except (OSError, ValueError, KeyError, TypeError):
        raise BadFile(f"{file} must hold a machine and tables, got something else") from None
    blocks: list[Block] = [Heading("On a GPU"), Text(f"Measured on {machine}.")]
    for title, said, table in tables:
        blocks += [Heading(title, 3), Text(said), table]
    return blocks


# -- the picture -------------------------------------------------------------------------------------------------------


def ratios(report: BenchReport) -> list[tuple[str, float]]:
    """The speed-up over each peer, in the least favourable case."""
    parts = report.parts
    found: list[tuple[str, float]] = []
    for grid in dict.fromkeys(row.grid for row in parts.get("plain", ())):
        found.append((f"plain Python, {grid}", min(row.ratio for row in parts["plain"] if row.grid == grid)))
    for grid in dict.fromkeys(row.grid for row in parts.get("c", ())):
        found.append((f"C, {grid}", min(row.ratio for row in parts["c"] if row.grid == grid)))
    found += [(f"MushroomRL, {row.grid}", row.ratio) for row in parts.get("mushroom", ())]
    trees = [row for row in parts.get("tree", ()) if row.ratio is not None]
    for work in dict.fromkeys(row.work for row in trees):
        found.append((f"cpprb, {work}", min(row.ratio for row in trees if row.work == work)))
    solved = [row for row in parts.get("solving", ()) if row.solver != "safereplay"]
    for peer in dict.fromkeys(row.solver.split(",")[0] for row in solved):
        found.append((f"{peer}, exact solving", min(row.ratio for row in solved if row.solver.startswith(peer))))
    return found


@styled
def picture(report: BenchReport) -> Figure:
    """Bars of the ratios to peers, and lines of the scaling with threads and pairs."""
    figure, axes = new_figure(9.2, 3.4, 1, 3)
    bars, lines, cost = axes[0]
    bars.get_gridspec().set_width_ratios([1.5, 1.0, 1.2])
    _draw_ratios(bars, ratios(report))
    _draw_threads(lines, report)
    _draw_pairs(cost, report)
    return figure


def _draw_ratios(ax: Axes, found: list[tuple[str, float]]) -> None:
    ax.set_title("speed-up over peers")
    if not found:
        return _nothing(ax)
    names, values = zip(*reversed(found), strict=True)
    places = range(len(names))
    ax.barh(
        places, [x - 1.0 for x in values], left=1.0, color=[BLUE if x >= 1.0 else ORANGE for x in values], height=0.62
    )
    ax.set_yticks(places, names)
    ax.set_xscale("log")
    ax.set_xlim(min(1.0, 0.7 * min(values)), 4.0 * max(1.0, *values))
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}×")
    ax.axvline(1.0, color=GREY, lw=1.0)
    for k, value in enumerate(values):
        ax.text(max(value, 1.0) * 1.08, k, f"{value:,.0f}×" if value >= 10 else f"{value:.1f}×", va="center")
    return None


def _draw_threads(ax: Axes, report: BenchReport) -> None:
    ax.set_title("threads")
    rows = report.parts.get("threads", ())
    if not rows:
        return _nothing(ax)
    numbers = [row.threads for row in rows]
    ax.plot(numbers, [row.ceiling for row in rows], color=GREY, lw=1.0, ls="--", label="a bare loop")
    ax.plot(numbers, [row.speedup for row in rows], color=BLUE, marker="o", label=f"{rows[0].runs} runs of the cliff")
    for row in rows[1:]:
        ax.annotate(f"{row.speedup:.2f}×", (row.threads, row.speedup), (-8, 4), textcoords="offset points", ha="right")
    ax.set_xticks(numbers)
    ax.set_xlabel("threads")
    ax.set_ylabel("speed-up over one thread")
    ax.set_ylim(0.0, max(numbers) * 1.1)
    ax.legend(frameon=False, loc="lower right")
    return None


def _draw_pairs(ax: Axes, report: BenchReport) -> None:
    ax.set_title("cost against pairs")
    rows = report.parts.get("pairs", ())
    if not rows:
        return _nothing(ax)
    sizes = [row.pairs for row in rows]
    lines = {
        "learn, per update": (ORANGE, [row.nanoseconds for row in rows]),
        "fixed_point, per pair": (BLUE, [1e9 * row.solve.seconds / row.pairs for row in rows]),
        "evaluate, per pair": (GREY, [1e9 * row.judge.seconds / row.pairs for row in rows]),
    }
    for label, (color, costs) in lines.items():
        ax.plot(sizes, costs, color=color, marker="o", label=label)
        above = -13 if color == ORANGE else 5  # the lowest line has its number below
        ax.annotate(f"{costs[-1]:,.0f}", (sizes[-1], costs[-1]), (0, above), textcoords="offset points", ha="center")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("pairs of the model")
    ax.set_ylabel("ns")
    ax.margins(x=0.1)
    ax.set_ylim(top=30.0 * max(max(costs) for _, costs in lines.values()))  # room for the legend
    ax.legend(frameon=False, loc="upper right")
    return None


def _nothing(ax: Axes) -> None:
    ax.text(0.5, 0.5, "not measured", ha="center", va="center", transform=ax.transAxes, color=GREY)
    ax.set_axis_off()
