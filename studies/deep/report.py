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
from .limits import Predicted, predictions
from .records import MAPPED, Found, Job, collect
from .sentences import share, with_interval
from .summary import (
    FAMILIES,
    KEYED,
    LAGRANGIAN,
    LIMITED,
    MAY_LOSE,
    OURS,
    PLAIN,
    RANDOM,
    RIVALS,
    STATIC,
    Chapter,
    Group,
    certificates,
    ratio,
)
from .tuning import TRIED
from .worlds import WORLDS

TITLE = "Deep RL with shaped replay"
LEARNERS = (PLAIN, OURS, KEYED, *RIVALS)
TRAFFIC = (
    "highway",
    "merge",
)  #: worlds whose reward is the speed: (speed − 20 m/s) / (10 m/s), less the harm of a crash
KEPT = "deep-runs.tar.xz"  #: the archive of the runs, if it is in the page's folder


def write_page(jobs: Sequence[Job], runs: str | Path, docs: str | Path) -> Path | None:
    """Write ``deep.md`` and img/deep-*.svg|png to a folder; None if no world has the plain learner and a random policy yet."""
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
    made = {"deep-frontier": figures.frontier_figure(chapters), "deep-curves": figures.curves_figure(chapters)}
    if sentences.judged(chapters):
        made["deep-risk"] = figures.risk_figure(chapters)
    walked = [
        g for c in chapters if c.world in MAPPED for g in (c.plain, c.default) if g and any(run.paths for run in g.runs)
    ]
    if walked:
        made["deep-paths"] = figures.paths_figure(walked)
    for name, figure in made.items():
        save(figure, folder, name)
    return set(made)


def compose(found: Found, jobs: Sequence[Job], drawn: set[str]) -> list[Block]:
    """The page's blocks, in order."""
    chapters = found.chapters
    told = predictions(chapters, jobs)
    return [
        *_opening(chapters, drawn, f"{found.missing:,} of {len(jobs):,}" if found.missing else ""),
        *_results(chapters),
        *_limits(chapters),
        *_frontiers(chapters),
        *_traffic(chapters),
        *_theory(told),
        *_curves(chapters),
        *_shortcomings(chapters, told),
        *_cost(chapters),
        *_method(found, jobs),
        *_everything(chapters),
        *_tuning(chapters),
    ]


def _opening(chapters: Sequence[Chapter], drawn: set[str], missing: str) -> list[Block]:
    captions = {
        "deep-risk": "Shaped replay at its default. Left: P(catastrophe), as a share of the plain learner's. Right: the loss in return, as a share of the gap between the plain learner and random. Shaded: the aim. Dashed: the plain learner. Lines: 95 % intervals. Red crosses: not met. Numbers: P(catastrophe), plain → shaped.",
        "deep-paths": "Evaluation paths on the point task, some of each seed, from the ring to G. Paths that end in the pit are red with a cross.",
    }
    return [
        Text(sentences.aim(chapters)),
        *([Text(f"**Not complete**: {missing} planned runs are missing.")] if missing else []),
        *(Picture(name, caption) for name, caption in captions.items() if name in drawn),
        Text(
            "One line in a Stable-Baselines3 script (`replay_buffer_class=ShapedReplayBuffer`) shapes what is replayed: transitions that turned out worse than expected "
            "are drawn up to 1/(1 − v) times as often as others; by default v = 0.8. This page measures the effect on the risk of the learned policy, the cost in return, and the "
            "difference to rivals. The *plain* learner is DQN, or SAC for the cheetah."
        ),
    ]


# -- results -----------------------------------------------------------------------------------------------------------


def _results(chapters: Sequence[Chapter]) -> list[Block]:
    header = ["world", "learner", "setting", "P(catastrophe)", "of plain", "mean return", "gap lost", "failed seeds"]
    main, others = [], []
    for c in chapters:
        chosen = [c.choices[OURS].group] if OURS in c.choices else []
        rest = chosen + [g for name, g in c.contestants.items() if name not in (PLAIN, OURS)]
        main += [_contestant(c, g, k == 0) for k, g in enumerate(filter(None, (c.plain, c.default)))]
        others += [_contestant(c, g, k == 0) for k, g in enumerate(rest)]
    return [
        Heading("Results"),
        Text(
            "Greedy policies on evaluation episodes, which were not used to choose settings; 95 % intervals over seeds and episodes. *Gap lost* is the loss in return, as a share of the "
            "difference between the plain learner and a random policy. A seed has *failed* if it loses more than half of this difference. Shaped replay is at its default, the same on all worlds."
        ),
        Table(header, main),
        Text(
            "Shaped replay and each rival at the setting that the rule (see Method) chooses from its dial, and shaped replay with keys, which has one setting. "
            + sentences.unkept(chapters)
        ),
        Table(header, others, folded=True),
    ]


def _contestant(chapter: Chapter, group: Group, first: bool) -> list[str]:
    plain, scaled = group is chapter.plain, np.isfinite(chapter.lost(group).mean)
    return [
        chapter.title if first else "",
        group.family,
        _dial(chapter, group),
        with_interval(group.p, percent=True),
        "" if plain else with_interval(ratio(group, chapter.plain)),
        with_interval(group.mean),
        "" if plain else with_interval(chapter.lost(group), percent=True),
        f"{chapter.failed(group)} of {group.seeds}" if scaled else "—",
    ]


def _dial(chapter: Chapter, group: Group) -> str:
    return f"{group.dial} (default)" if group is chapter.default else group.dial or "—"


def _limits(chapters: Sequence[Chapter]) -> list[Block]:
    """Runs under a named limit, and how many got a certificate."""
    found = [(c, g) for c in chapters for g in c.family(LIMITED)]
    if not found:
        return []
    rows = []
    for c, g in found:
        told = certificates(g)
        dials = [x["settings"]["v"] for x in told]
        rows.append(
            [
                c.title,
                g.dial,
                share(c.plain.p.mean),
                f"{sum(x['kept'] for x in told)} of {len(told)}",
                with_interval(g.p, percent=True),
                with_interval(g.mean),
                with_interval(c.lost(g), percent=True),
                f"{np.median(dials):.2f} [{min(dials):.2f}, {max(dials):.2f}]",
                f"{np.median([x['episodes'] for x in told]):,.0f}",
                f"{c.failed(g)} of {g.seeds}",
            ]
        )
    return [
        Heading("A named limit"),
        Text(sentences.certified(found)),
        Text(
            "`RiskLimit` gets a limit on P(catastrophe), half of the plain learner's to one digit. It was set before these runs, from 12 seeds of the plain learner, for the cheetah from 20; on the highway, where 20 seeds have more crashes, it is a third. It moves v during training, and certifies the best policy on fresh episodes "
            "(an exact bound at 95 % confidence, see [A limit on risk](sb3.md#name-a-risk)). P(catastrophe) and return below are those of the certified policy, or of the best one seen, in the evaluation episodes of this study, "
            "which were not used for the certificate; for five of the seeds up to 16 of the 300 begin from the same random numbers as an evaluation during training. *Episodes*: of a certificate, median. A *failed* seed keeps the limit with a policy that loses more than half of the gap, for example one that never arrives; the certificate's sentence has its mean return, and the highest one in training. On the volatile grid each policy that arrives under the limit loses more than half: by `sr.design` the best has return 166, at exactly 40 %, and plain DQN 210. In a first set of runs at the merge only 14 of 20 seeds got a certificate. "
            "So `RiskLimit` has more episodes per evaluation since then if the limit is below 4 %, and the runs at the merge were repeated; those of the guarded maze are from before."
        ),
        Table(
            [
                "world",
                "limit",
                "plain",
                "certified",
                "P(catastrophe)",
                "mean return",
                "gap lost",
                "v",
                "episodes",
                "failed seeds",
            ],
            rows,
        ),
    ]


# -- frontiers and curves ----------------------------------------------------------------------------------------------


def _frontiers(chapters: Sequence[Chapter]) -> list[Block]:
    blocks: list[Block] = [
        Heading("Frontiers"),
        Picture(
            "deep-frontier",
            "Mean return against P(catastrophe) of all settings; up and left is better. Step lines: the Pareto-optimal settings of a family, with the plain learner. Faint lines: 95 % intervals of plain and shaped. Rings: shaped replay at its default. Open triangles: below the axis.",
        ),
    ]
    found = [(c, x) for c in chapters if (x := sentences.compared(c))]
    if not found:
        return blocks
    counts = sorted({x.settings for _, all_x in found for x in all_x.values()})
    rivals = [name for name in RIVALS if any(name in x for _, x in found)]
    number_of = sum(len(x) for _, x in found)
    return [
        *blocks,
        Text(
            "*Reach*: the best return of a family's settings within a risk budget, averaged over budgets from 0 to the plain learner's "
            f"P(catastrophe), with random = 0 and plain = 1. Two families have equal numbers of settings ({_span(counts)} with the plain learner), "
            "since more settings reach further by chance. The table has the reach of shaped replay less that of each rival; bold: significant (95 %). "
            f"Of {number_of} comparisons, about {number_of / 20:.0f} would be significant by chance."
        ),
        Table(
            ["world", *rivals],
            [[c.title, *(sentences.reached(x.get(name)) for name in rivals)] for c, x in found],
            folded=True,
        ),
        Text("Shaped replay reaches, compared with"),
        Text("\n".join(f"- {line}" for line in sentences.frontiers([(c.title, x) for c, x in found]))),
        *_waiting(chapters),
    ]


def _waiting(chapters: Sequence[Chapter]) -> list[Block]:
    """Counts of networks with long episodes: they have not learned to arrive."""
    if not (lines := sentences.waiting(chapters)):
        return []
    return [
        Text(
            "Networks whose episodes last more than half of the time limit on average, of all networks of a family. Worlds where the plain learner's episodes are as long are left out. Where there are many, a difference may be one of learning, not of what is maximised. Other scales and rates were tried for the penalty and the Lagrangian on the point task, and for static CVaR in the maze (see the trials at the end): those networks are no safer than plain DQN, or stand still. QR-DQN's other scales in the maze were tried with its mean only."
        ),
        Text("\n".join(f"- {line}." for line in lines)),
    ]


def speeds(chapter: Chapter, group: Group) -> list[float]:
    """The mean speed of each run in m/s, from the returns, the crashes and the steps of its evaluation."""
    harm = WORLDS[chapter.world].harm
    return [20 + 10 * (x.mean + harm * x.p) / x.steps for x in (run.evaluation for run in group.runs)]


def _traffic(chapters: Sequence[Chapter]) -> list[Block]:
    rows = []
    for c in chapters:
        for g in (*c.contestants.values(), *c.family(LIMITED)) if c.world in TRAFFIC else ():
            found = speeds(c, g)
            told = f"{np.mean(found):.1f} [{min(found):.1f}, {max(found):.1f}]"
            rows.append([c.title, g.family, _dial(c, g), with_interval(g.p, percent=True), told])
    if not rows:
        return []
    about = "The reward on these roads is the speed above 20 m/s, less the harm of a crash, so the mean speed follows from returns, crashes and steps. Brackets of the speed: the range of seeds."
    header = ["world", "learner", "setting", "P(crash)", "m/s"]
    return [Heading("Speed and crashes"), Text(about), Table(header, rows, folded=True)]


def _theory(told: Sequence[Predicted]) -> list[Block]:
    """On tabular worlds: the exact limits, and how many networks reached them."""
    if not told:
        return []
    known = [x for _, _, x in told if x is not None]
    rows = [
        [
            c.title,
            g.family,
            _dial(c, g),
            *(("does not converge", "", "") if x is None else (share(x.p), number(x.mean), f"{x.same} of {x.of}")),
            share(g.p.mean),
            number(g.mean.mean),
        ]
        for c, g, x in told
    ]
    return [
        Heading("Predictions of theory"),
        Text(
            "On tabular worlds `sr.shaped_limit` computes the limit of shaped replay before training, without keys (`sr.SurpriseReplay()`) and with them. *Same* counts the networks that have the "
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
    names = [name for name in LEARNERS if any(name in c.contestants for c in chapters)]
    rows = [
        [c.title, *(share(sentences.training_share(g)) if (g := c.contestants.get(name)) else "—" for name in names)]
        for c in chapters
    ]
    return [
        Heading("During training"),
        Picture(
            "deep-curves",
            "Training episodes of the plain learner and of shaped replay at its default, with exploration: return (above) and share of catastrophes (below). Lines: means over seeds. Bands: their range.",
        ),
        Text("Catastrophes per training episode, over the whole training, at the settings of the results:"),
        Table(["world", *names], rows, folded=True),
    ]


def _shortcomings(chapters: Sequence[Chapter], told: Sequence[Predicted]) -> list[Block]:
    lines = sentences.shortcomings(chapters, told) or ["None of these shortcomings was found."]
    return [Heading("Where it does not help"), Text("\n".join(f"- {line}" for line in lines))]


# -- cost and method ---------------------------------------------------------------------------------------------------


def seconds(groups: Sequence[Group], machine: str | None = None) -> float:
    """The median training seconds over all runs of some settings (made on one machine); nan if there are none."""
    times = [run.seconds for g in groups for run in g.runs if machine is None or run.machine == machine]
    return float(np.median(times)) if times else float("nan")


def _cost(chapters: Sequence[Chapter]) -> list[Block]:
    names = [name for name in LEARNERS if any(c.family(name) for c in chapters)]
    rows = []
    for c in chapters:
        machine = Counter(run.machine for run in c.plain.runs).most_common(1)[0][0]
        times = {name: seconds(c.family(name), machine) for name in names}
        plain = times[PLAIN]
        parts = {name: f" ({t / plain:.2f}×)" if name != PLAIN and plain > 0 else "" for name, t in times.items()}
        rows.append([c.title, *(f"{t:.1f}{parts[name]}" if np.isfinite(t) else "—" for name, t in times.items())])
    return [
        Heading("Cost"),
        Text(
            "Training seconds, the median of a family's runs, and the ratio to the plain learner, on the machine with most of the plain learner's runs. The runs "
            "shared this machine, so the ratios are rough; `safereplay bench` measures them better."
        ),
        Table(["world", *names], rows, folded=True),
    ]


def _method(found: Found, jobs: Sequence[Job]) -> list[Block]:
    chapters, told = found.chapters, found.versions
    groups = [g for c in chapters for g in c.groups]
    seeds = sorted({g.seeds for g in groups})
    episodes = sorted({run.evaluation.returns.size for g in groups for run in g.runs})
    chosen = sorted({run.selection.returns.size for g in groups for run in g.runs})
    steps = {job.setting["world"]: job.setting["steps"] for job in jobs}
    worlds = [
        [c.title, f"{steps[c.world]:,}", _sentence(WORLDS[c.world].about), WORLDS[c.world].catastrophe]
        for c in chapters
    ]
    hours = sum(run.seconds for g in groups for run in g.runs) / 3600
    lines = [
        f"{sum(g.seeds for g in groups):,} runs, {_span(seeds)} seeds per setting, {_span(episodes)} evaluation episodes per run, {hours:.1f} hours of training in all, on one thread each.",
        f"**Dials**: {_dials(chapters)}.",
        f"**The rule**, stated before the runs: of a family's settings that lose at most {100 * MAY_LOSE:.0f} % of the gap between the plain learner and random, the one with the lowest P(catastrophe), judged on {_span(chosen)} selection episodes per run, with other seeds than evaluation and training, on the seeds that all settings of the family have; of the plain learner and random, on all their seeds. {_stability(chapters)} A chosen setting may then have more seeds than the others.",
        "**Tuning.** Network, learning rate, exploration and budget of a world were set for the plain learner, and on some worlds for QR-DQN by its mean, on training seeds that are not used here. All families use the same. The trials are listed at the end. "
        "The default of shaped replay is one for all worlds. It was set with a prototype on the point and on tables, among them cliff, volatile, delayed cliff, betting game and guarded maze. "
        "QR-DQN's scale on the highway and at the merge was set after first runs of the study, by its mean return with two seeds; all runs of QR-DQN and IQN there were repeated with it. IQN has QR-DQN's settings, untried.",
        "**Rivals.** Beyond an error of 1 DQN's loss does not see how large harm is, so a penalised DQN has its rewards divided by 1 + k more. The Lagrangian's d is a share of the harm in the plain learner's "
        "training, and its multiplier has time to rise to four times the harm. Static CVaR maximises CVaR_α + (0.1/α)·mean, since CVaR alone has no preference where nothing is owed; at α = 0.1 the mean counts as much as CVaR.",
        "**Intervals**: bootstrap over seeds and, within a seed, episodes, by expanded percentiles (Hesterberg 2015), which with five seeds are about as wide as their range; for P(catastrophe) never narrower than Wilson's.",
        f"**Machine**: {told.get('cpu', '?')}, {told.get('cores', '?')} cores, {told.get('system', '?')}; "
        + ", ".join(f"{name} {told[name]}" for name in sorted(set(told) - {"cpu", "cores", "system"}))
        + ".",
    ]
    if found.strangers:
        lines.append(f"Runs in the folder that are not in this plan, and are ignored: {found.strangers}.")
    again = "Run it with `make deep-study`, or `python -m studies.deep --help`. Finished runs are not repeated."
    header = ["world", "steps", "what it is", "a catastrophe"]
    return [
        Heading("Method"),
        Table(header, worlds, folded=True),
        Text("\n".join(f"- {line}" for line in lines)),
        Text(again),
    ]


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def _span(values: Sequence[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


def _dials(chapters: Sequence[Chapter]) -> str:
    """The settings of each family."""
    found = {name: dict.fromkeys(g.dial for c in chapters for g in c.family(name) if g.dial) for name in FAMILIES}
    return "; ".join(f"{name}: {' or '.join(dials)}" for name, dials in found.items() if dials)


def _stability(chapters: Sequence[Chapter]) -> str:
    """How often the rule chooses the same setting with one seed left out."""
    choices = [choice for c in chapters for name, choice in c.choices.items() if len(c.family(name)) > 1]
    same, of = sum(x.agreeing for x in choices), sum(x.of for x in choices)
    return f"With one seed left out it chooses the same setting in {same} of {of} cases." if of else ""


def _everything(chapters: Sequence[Chapter]) -> list[Block]:
    rows = []
    for c in chapters:
        chosen = [choice.group for choice in c.choices.values()]
        rows += [
            [
                c.title,
                f"{g.family} ✓" if any(g is x for x in chosen) else g.family,
                _dial(c, g),
                str(g.seeds),
                with_interval(g.p, percent=True),
                with_interval(g.mean),
                "" if g is c.plain or g is c.random else with_interval(c.lost(g), percent=True),
                f"{share(g.selected()[0])}, {number(g.selected()[1])}",
                f"{seconds([g]):.1f}",
            ]
            for g in c.groups
        ]
    header = [
        "world",
        "learner",
        "setting",
        "seeds",
        "P(catastrophe)",
        "mean return",
        "gap lost",
        "selection",
        "seconds",
    ]
    return [
        Heading("All settings"),
        Text(
            "✓: chosen by the rule. *Selection*: P(catastrophe) and mean return on the selection episodes, by which the rule chooses."
        ),
        Table(header, rows, folded=True),
    ]


def _tuning(chapters: Sequence[Chapter]) -> list[Block]:
    """The trials: of the plain learner and QR-DQN by its mean, and of rivals that do not learn."""
    titles = {c.world: c.title for c in chapters}
    tried = [trial for trial in TRIED if trial.world in titles]
    if not tried:
        return []
    rows = [
        [
            titles[trial.world],
            {"dqn": "DQN", "qrdqn": "QR-DQN", "sac": "SAC", "static": STATIC, "lagrangian": LAGRANGIAN}[
                trial.algorithm
            ],
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
