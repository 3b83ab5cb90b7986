"""The study's page: deep.md and its pictures, written from the finished runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from safereplay._files import make_folder, write_atomic
from safereplay.views.document import Block, Heading, Picture, Table, Text, to_markdown
from safereplay.views.drawing import save
from safereplay.views.intervals import number

from . import figures, sentences
from .frontier import Comparison
from .limits import predictions
from .records import MAPPED, Found, Job, collect
from .sentences import compared, share, with_interval
from .summary import CVAR, MAY_LOSE, MEAN, OURS, PLAIN, RANDOM, Chapter, Group
from .tuning import TRIED
from .worlds import WORLDS

TITLE = "Deep RL with shaped replay"
PICTURES = ("deep-risk", "deep-frontier", "deep-curves", "deep-paths")
KEPT = "deep-runs.tar.xz"  #: the archive of the runs, if it is in the page's folder


def write_page(jobs: Sequence[Job], runs: str | Path, docs: str | Path) -> Path | None:
    """Write ``deep.md`` and img/deep-*.svg|png to a folder; None if no world has plain DQN and a random policy yet."""
    found = collect(jobs, runs)
    ready = tuple(c for c in found.chapters if c.family(PLAIN) and c.family(RANDOM))
    if not ready:
        return None
    found = found._replace(chapters=ready)
    folder = make_folder(docs)
    drawn = draw_all(ready, make_folder(folder / "img"))
    blocks = compose(found, jobs, drawn)
    if (folder / KEPT).exists():
        blocks.append(
            Text(
                f"The runs of this page are kept in [{KEPT}]({KEPT}); unpack it in a folder, and give that folder as `--out`."
            )
        )
    text = to_markdown(TITLE, blocks)
    return write_atomic(folder / "deep.md", text.replace("(figures/", "(img/"))


def draw_all(chapters: Sequence[Chapter], folder: Path) -> set[str]:
    """Draw all pictures that have data; return their names."""
    made = {
        "deep-risk": figures.risk_figure(chapters),
        "deep-frontier": figures.frontier_figure(chapters),
        "deep-curves": figures.curves_figure(chapters),
    }
    walked = [g for c in chapters if c.world in MAPPED for g in c.contestants if any(run.paths for run in g.runs)]
    if walked:
        made["deep-paths"] = figures.paths_figure(walked)
    for name, figure in made.items():
        save(figure, folder, name)
    return set(made)


def compose(found: Found, jobs: Sequence[Job], drawn: set[str]) -> list[Block]:
    """The page's blocks, in order."""
    chapters = found.chapters
    return [
        *_opening(chapters),
        *_headline(chapters),
        *_paths(drawn),
        *_frontiers(chapters),
        *_theory(chapters, jobs),
        *_curves(chapters),
        *_shortcomings(chapters),
        *_cost(chapters),
        *_method(found, jobs),
        *_everything(chapters),
        *_tuning(chapters),
    ]


def _opening(chapters: Sequence[Chapter]) -> list[Block]:
    return [
        Text(
            "One line in a Stable-Baselines3 script (`replay_buffer_class=ShapedReplayBuffer`) shapes what DQN replays: with probability v, "
            "if a pair's outcomes vary, a drawn transition is replaced by one of the same pair, tilted by β towards low rewards. This page "
            "measures the effect on the risk of the learned policy, the cost in return, and the difference to QR-DQN that is greedy on CVaR."
        ),
        Text(sentences.aim(chapters)),
    ]


# -- the headline ------------------------------------------------------------------------------------------------------


def _headline(chapters: Sequence[Chapter]) -> list[Block]:
    header = ["world", "learner", "setting", "P(catastrophe)", "of plain", "mean return", "gap lost"]
    rows = [_contestant(c, g, k == 0) for c in chapters for k, g in enumerate(c.contestants)]
    return [
        Heading("Results"),
        Text(
            "Greedy policies on evaluation episodes, which were not used to choose settings; 95 % intervals over seeds and episodes. *Gap lost* is the "
            "loss in return, as a share of the difference between plain DQN and a random policy."
        ),
        Table(header, rows),
        Picture(
            "deep-risk",
            "P(catastrophe) of each learner at the setting that the rule chose, with 95 % intervals; at the right, the change in return as a share of the gap between plain DQN and random.",
        ),
        Text("\n".join(f"- {sentences.headline(c)}" for c in chapters)),
    ]


def _contestant(chapter: Chapter, group: Group, first: bool) -> list[str]:
    plain = group is chapter.plain
    part = sentences.ratio(group.p.mean, chapter.plain.p.mean)
    return [
        chapter.title if first else "",
        group.family,
        group.dial or "—",
        with_interval(group.p, percent=True),
        "" if plain else f"{part:.2f}" if np.isfinite(part) else "—",
        with_interval(group.mean),
        "" if plain else with_interval(chapter.lost(group), percent=True),
    ]


def _paths(drawn: set[str]) -> list[Block]:
    if "deep-paths" not in drawn:
        return []
    caption = "Evaluation paths on the point task, some of each seed, from the ring to G. Paths that end in the pit are red with a cross."
    return [Picture("deep-paths", caption)]


# -- frontiers and curves ----------------------------------------------------------------------------------------------


def _frontiers(chapters: Sequence[Chapter]) -> list[Block]:
    blocks: list[Block] = [
        Heading("Frontiers"),
        Picture(
            "deep-frontier",
            "Mean return against P(catastrophe) of all settings. Faint lines: 95 % intervals. Step lines: the Pareto-optimal settings of a family, with its neutral end. Rings: chosen by the rule. Open triangles: below the axis.",
        ),
    ]
    found = [(c, x) for c in chapters if (x := compared(c)) is not None]
    if found:
        header = ["world", "settings", OURS, CVAR, "difference", "", "settings of QR-DQN that no shaped DQN matches"]
        blocks += [
            Text(
                "*Reach*: the best return of a family's settings within a risk budget, averaged over budgets from 0 to plain DQN's "
                "P(catastrophe), with random = 0 and plain DQN = 1. Families have equal numbers of settings here, with their neutral ends, "
                "since more settings reach further by chance. The last column has all settings of QR-DQN whose (P(catastrophe), return) no "
                "setting of shaped DQN matches in both."
            ),
            Text(sentences.frontiers(chapters)),
            Table(header, [_reach(c, x) for c, x in found]),
        ]
    lines = [(c.title, name, sentences.against(c, name)) for c in chapters for name in (MEAN, CVAR)]
    rows = [[title, name, words] for title, name, words in lines if words]
    if rows:
        blocks += [
            Text("Shaped DQN at its chosen setting, compared with a rival at its chosen setting:"),
            Table(["world", "rival", "shaped DQN"], rows, folded=True),
        ]
    return blocks


def _reach(chapter: Chapter, found: Comparison) -> list[str]:
    told = [with_interval(x) for x in (found.ours, found.rival, found.gain)]
    verdict = sentences.REACHES[found.verdict]
    return [chapter.title, str(found.settings), *told, verdict, sentences.unmatched(found)]


def _theory(chapters: Sequence[Chapter], jobs: Sequence[Job]) -> list[Block]:
    """On tabular worlds: the exact limits, and how many networks reached them."""
    told = predictions(chapters, jobs)
    if not told:
        return []
    known = [x for _, _, x in told if x is not None]
    rows = [
        [
            c.title,
            g.family,
            g.dial or "—",
            *(("does not converge", "", "") if x is None else (share(x.p), number(x.mean), f"{x.same} of {x.of}")),
            share(g.p.mean),
            number(g.mean.mean),
        ]
        for c, g, x in told
    ]
    return [
        Heading("Predictions of theory"),
        Text(
            "On tabular worlds `sr.shaped_limit` computes the limit of shaped replay before training. *Same* counts the networks that have the "
            "return of the limit's policy in every single evaluation episode, which requires the same action in all visited states: "
            f"{sum(x.same for x in known)} of {sum(x.of for x in known)}."
        ),
        Table(
            [
                "world",
                "learner",
                "setting",
                "limit's P(catastrophe)",
                "limit's return",
                "same",
                "P(catastrophe)",
                "return",
            ],
            rows,
            folded=True,
        ),
    ]


def _curves(chapters: Sequence[Chapter]) -> list[Block]:
    rows = [[c.title, *(_training(c, name) for name in (PLAIN, OURS, MEAN, CVAR))] for c in chapters]
    return [
        Heading("During training"),
        Picture(
            "deep-curves",
            "Training episodes, with exploration: return (above) and share of catastrophes (below). Lines: means over seeds. Bands: their range.",
        ),
        Text("Catastrophes per training episode, over the whole training:"),
        Table(["world", PLAIN, OURS, MEAN, CVAR], rows),
    ]


def _training(chapter: Chapter, name: str) -> str:
    groups = [group for group in chapter.contestants if group.family == name]
    return share(sentences.training_share(groups[0])) if groups else "—"


def _shortcomings(chapters: Sequence[Chapter]) -> list[Block]:
    lines = sentences.shortcomings(chapters) or ["None of these shortcomings was found."]
    return [Heading("Where it does not help"), Text("\n".join(f"- {line}" for line in lines))]


# -- cost and method ---------------------------------------------------------------------------------------------------


def seconds(groups: Sequence[Group], machine: str | None = None) -> float:
    """The median training seconds over all runs of some settings (made on one machine); nan if there are none."""
    times = [run.seconds for g in groups for run in g.runs if machine is None or run.machine == machine]
    return float(np.median(times)) if times else float("nan")


def _cost(chapters: Sequence[Chapter]) -> list[Block]:
    rows = []
    for c in chapters:
        machine = Counter(run.machine for run in c.plain.runs).most_common(1)[0][0]
        plain = seconds([c.plain], machine)
        times = [seconds(c.family(name), machine) for name in (OURS, MEAN, CVAR)]
        cells = [
            "—" if not np.isfinite(t) else f"{t:.1f} ({t / plain:.2f}×)" if plain > 0 else f"{t:.1f}" for t in times
        ]
        rows.append([c.title, f"{plain:.1f}", *cells])
    return [
        Heading("Cost"),
        Text(
            "Training seconds, the median of a family's runs, and the ratio to plain DQN, on the machine with most of plain DQN's runs. The runs "
            "shared this machine, so the ratios are rough; `safereplay bench` measures them better."
        ),
        Table(["world", PLAIN, OURS, MEAN, CVAR], rows),
    ]


def _method(found: Found, jobs: Sequence[Job]) -> list[Block]:
    chapters, told = found.chapters, found.versions
    groups = [g for c in chapters for g in c.groups]
    seeds = sorted({g.seeds for g in groups})
    episodes = sorted({run.evaluation.returns.size for g in groups for run in g.runs})
    chosen = sorted({run.selection.returns.size for g in groups for run in g.runs})
    steps = {job.setting["world"]: job.setting["steps"] for job in jobs}
    worlds = "\n".join(
        f"- **{c.title}**, {steps[c.world]:,} steps: {_sentence(WORLDS[c.world].about)} A catastrophe is {WORLDS[c.world].catastrophe}."
        for c in chapters
    )
    hours = sum(run.seconds for g in groups for run in g.runs) / 3600
    lines = [
        f"{sum(g.seeds for g in groups):,} runs, {_span(seeds)} seeds per setting, {_span(episodes)} evaluation episodes per run, {hours:.1f} hours of training in all, on one thread each.",
        f"**The rule**, stated before the runs: of a family's settings that lose at most {100 * MAY_LOSE:.0f} % of the gap between plain DQN and random, the one with the lowest P(catastrophe), judged on {_span(chosen)} selection episodes per run, with other seeds than evaluation and training. It is the same for v and β and for CVaR's α. {_stability(chapters)}",
        "**Tuning.** Network, learning rate, exploration and budget of a world were set for plain DQN, and for QR-DQN by its mean, on training seeds that are not used here; shaped replay and CVaR use the same. The trials are listed at the end. β = 16 was added after the runs up to β = 4 had been seen, since the point's risk was still falling. A family with more settings has more chances of a good choice: "
        + _counts(chapters),
        "**Intervals**: bootstrap over seeds and, within a seed, episodes, by expanded percentiles (Hesterberg 2015), which with five seeds are about as wide as the range of the seeds; for P(catastrophe) never narrower than Wilson's.",
        f"**Machine**: {told.get('cpu', '?')}, {told.get('cores', '?')} cores, {told.get('system', '?')}; "
        + ", ".join(f"{name} {told[name]}" for name in sorted(set(told) - {"cpu", "cores", "system"}))
        + ".",
    ]
    if found.missing:
        lines.append(f"**Not complete**: {found.missing} of {len(jobs)} planned runs are missing.")
    if found.strangers:
        lines.append(f"Runs in the folder that are not in this plan, and are ignored: {found.strangers}.")
    again = "Run it with `make deep-study`, or `python -m studies.deep --help`. Finished runs are not repeated."
    return [Heading("Method"), Text(worlds), Text("\n".join(f"- {line}" for line in lines)), Text(again)]


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def _span(values: Sequence[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


def _counts(chapters: Sequence[Chapter]) -> str:
    """The number of settings per family."""
    counts = {name: sorted({len(c.family(name)) for c in chapters if c.family(name)}) for name in (OURS, CVAR)}
    return "settings per world: " + ", ".join(f"{_span(n)} of {name}" for name, n in counts.items() if n) + "."


def _stability(chapters: Sequence[Chapter]) -> str:
    """How often the rule chooses the same setting with one seed left out."""
    choices = [choice for c in chapters for name, choice in c.choices.items() if len(c.family(name)) > 1]
    same, of = sum(x.agreeing for x in choices), sum(x.of for x in choices)
    return f"With one seed left out it chooses the same setting in {same} of {of} cases." if of else ""


def _everything(chapters: Sequence[Chapter]) -> list[Block]:
    blocks: list[Block] = [
        Heading("All settings"),
        Text(
            "✓: chosen by the rule. *Selection*: P(catastrophe) and mean return on the selection episodes, by which the rule chooses."
        ),
    ]
    header = ["", "learner", "setting", "seeds", "P(catastrophe)", "mean return", "gap lost", "selection", "seconds"]
    for c in chapters:
        chosen = [choice.group for choice in c.choices.values()]
        rows = [
            [
                "✓" if any(g is x for x in chosen) else "",
                g.family,
                g.dial or "—",
                str(g.seeds),
                with_interval(g.p, percent=True),
                with_interval(g.mean),
                "" if g is c.plain or g is c.random else with_interval(c.lost(g), percent=True),
                f"{share(g.selected()[0])}, {number(g.selected()[1])}",
                f"{seconds([g]):.1f}",
            ]
            for g in c.groups
        ]
        blocks += [Heading(c.title, 3), Table(header, rows, folded=True)]
    return blocks


def _tuning(chapters: Sequence[Chapter]) -> list[Block]:
    """The trials before the study, for plain DQN or SAC, and for QR-DQN by its mean."""
    titles = {c.world: c.title for c in chapters}
    tried = [trial for trial in TRIED if trial.world in titles]
    if not tried:
        return []
    rows = [
        [
            titles[trial.world],
            {"dqn": PLAIN, "qrdqn": MEAN, "sac": "SAC"}[trial.algorithm],
            ", ".join(f"{name} = {x}" for name, x in trial.differs.items()) or "nothing",
            number(trial.mean_return),
            share(trial.p_catastrophe),
            trial.note,
        ]
        for trial in tried
    ]
    return [
        Heading("Trials of the tuning"),
        Text(
            "One run per row, on training seeds that the study does not use, and its differences from the study's settings."
        ),
        Table(["world", "learner", "differs in", "mean return", "P(catastrophe)", "note"], rows, folded=True),
    ]
