"""``safereplay reproduce``: run every experiment of the paper, judge its claims, draw its figures, and write the report."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from .._files import make_folder, write_atomic
from ..errors import stopping
from ..theory.limits import answer, grouped
from ..theory.xray import xray
from ..views.document import Block, Heading, Picture, Table, Text
from ..views.drawing import BLUE, ORANGE, returns_figure
from ..views.pages import Page, check_page, solve_page, tune_page, write_page, xray_page
from . import experiments as ex
from . import figures, studies
from .claims import Study, Verdict, band_text, judge_all
from .experiments import CAST, GRIDS, MAX_STEPS, Effort

TITLE = "Replay For Safety, reproduced"


def figures_of(study: Study) -> dict[str, Figure]:
    """The figures of the report, except those of the sections on theory."""
    return {
        "hero": figures.hero_figure(study.cast),
        "figure-1": figures.paper_figure(study.cast, "volatile", 1),
        "figure-2": figures.paper_figure(study.cast, "cliff", 2),
        "kappa": figures.sweep_figure(study.kappa, "Mihatsch–Neuneier"),
        "bands": figures.bands_figure(study.bands),
        "gaskett": figures.sweep_figure(study.gaskett, "Gaskett"),
        "amount": figures.dose_figure(study.amount),
        "curves": figures.curves_figure(study.curves),
        "td-errors": figures.td_figure(study.td),
        "returns": returns_figure(
            {f"{g} grid": {n: study.cast.risk[g, n].distribution for n in ("Q-learning", "replay")} for g in GRIDS},
            {"Q-learning": ORANGE, "replay": BLUE},
        ),
        **{f"cast-{g}": figures.cast_figure(study.cast, g) for g in GRIDS},
        **{f"maps-{g}": figures.maps_figure(maps, g) for g, maps in study.maps.items()},
    }


#: The captions that do not depend on the results.
CAPTIONS = {
    "figure-1": "Figure 1. A: volatile moves (red) pay +100 with probability 0.6 and −100 with 0.4; a move to the goal (green) pays 150. B: Q-learning (orange) gambles three times; replay (blue) goes around.",
    "figure-2": "Figure 2. A: a fall costs 12, a step 1, and one action in ten goes a random way. B: Q-learning (orange) walks along the edge; replay (blue) keeps a row between itself and the cliff.",
    "cast-volatile": "Every learner on the volatile grid. The line is the path from the start (S). The colour is its verdict.",
    "cast-cliff": "Every learner on the cliff.",
    "curves": "Left: distance of the weights w_t from their limit w^∞. Middle: error of the paper's algorithm against the paper's limit (red) and the limit with d(s,a) (green). Right: the same for matched mixing. Thin lines: seeds. Thick lines: their median.",
    "bands": "The κ whose exact limit is safe on the cliff, for each reading of what the paper leaves open: layout, γ, and where a slip goes. Cross: no κ is safe.",
    "td-errors": "TD errors over a run of Mihatsch & Neuneier's learner (log scale). The paper suspects them to cause its failure.",
    "maps-volatile": "The volatile grid. At γ near 1, repeating a volatile move (it pays +20 on average) beats the goal, and Q-learning does so.",
    "maps-cliff": "The cliff. Grey: the policy never ends. Replay does so at low γ with little exploration.",
    "amount": "Exact P(unsafe) (left) and mean return (right) of the learned policies against v. One dot per seed, the line is the median.",
    "returns": "Distribution of the return. Replay gives up the best outcomes and avoids the worst.",
}
OPENING = (
    "Szlak and Shamir (2021) replay volatile state–action pairs more often, and their worst rewards most, so that Q-learning "
    "avoids them. This page repeats their two experiments, judges each claim, and varies what the paper leaves open."
)
PATHS = (
    "A step is exposed when something unsafe can happen there. A path is safe when it reaches the goal with the fewest exposed steps "
    "possible, and risky when it has more. 'Jumps' ends in an unsafe outcome on purpose. 'Stuck' never ends."
)
LIMITS = (
    "The paper's proof sets Pr(s,a | MDP iteration) to 1, as if each iteration in the MDP visited every pair. It is d(s,a), the share "
    "of these iterations that visit the pair. With d, the share of replays among a pair's updates is ρ = v·W / ((1−v)·d + v·W). "
    "The learned Q converges to the fixed point with d, far from the paper's. Matched mixing replays a pair v·W/(1−v) times on "
    "average after each visit. Its limit is the paper's mapping. It converges more slowly, since it replays visited pairs only."
)
OPENNESS = (
    "The paper does not give γ, the exploration, the layouts or where a slip goes. Each cell below is a setting. Its colour mixes "
    "the verdicts of its seeds. Its letter is the most frequent verdict, large where all agree: S safe, R risky, J jumps, – stuck."
)
UNDECIDED = "The two claims on TD errors are undecided: it depends on the histogram. Here they are judged by the majority of 16 histograms."


def compose(
    study: Study, verdicts: Sequence[Verdict], theory: Sequence[Block], effort: Effort, seconds: float
) -> list[Block]:
    """The report's blocks, in order."""
    failing = "; ".join(f"{v.claim} ({v.grid})" for v in verdicts if not v.holds) or "none"
    kappa, gaskett = (band_text(sweep, "cliff", "safe") for sweep in (study.kappa, study.gaskett))
    header = ["", "claim", "grid", "expected", "observed", "evidence"]
    rows = [["yes" if v.holds else "no", v.claim, v.grid, v.expected, v.observed, v.evidence] for v in verdicts]
    parts = ", ".join(f"{name} {version(name)}" for name in ("safereplay", "numpy", "scipy", "numba"))
    return [
        Text(OPENING),
        Text(
            f"{sum(v.holds for v in verdicts)} of {len(verdicts)} claims hold here. These do not: {failing}. {UNDECIDED}"
        ),
        Heading("The two figures"),
        *_pictures("figure-1", "figure-2", "cast-volatile", "cast-cliff"),
        Heading("The claims"),
        Text(PATHS),
        Table(header, rows, badge=0),
        Heading("What the algorithm converges to"),
        Text(LIMITS),
        *_pictures("curves"),
        *theory,
        Heading("The rivals' dials"),
        Picture(
            "kappa",
            f"Mihatsch & Neuneier from κ = 0 to {study.kappa.values[-1]:g} (κ = 1 is outside its range), one seed per value. The paper reports that no κ is safe on the cliff. Here: {kappa}.",
        ),
        *_pictures("bands"),
        Picture("gaskett", f"Gaskett's β from 0 to 1. On the cliff: {gaskett}."),
        *_pictures("td-errors"),
        Heading("What the verdicts depend on"),
        Text(OPENNESS),
        *_pictures("maps-volatile", "maps-cliff", "amount"),
        *_risk(study),
        Heading("How it was run"),
        Text(
            f"{effort.seeds} seeds and {effort.episodes:,} episodes per learner (a tenth of that for Heger's, whose episodes on the cliff "
            f"are a hundred times longer). {effort.long_episodes:,} episodes for the sweeps and the curves; a run of a sweep ends after a fifth "
            "of them if its policy has the verdict of the exact limit there and after a tenth. "
            f"{effort.map_seeds} seeds and {effort.map_steps:,} steps per cell of a map. ε-greedy with ε = 0.1. α = n(s,a)^−0.6, replays counted. "
            f"γ = 0.9 on the volatile grid and 0.95 on the cliff. Uniform starts. Episodes are cut off after {MAX_STEPS} steps. "
            "κ = 0.6 and Gaskett's β = 0.2 in the figures and the risk table lie within the bands that are safe on the cliff."
        ),
        Text(f"Python {platform.python_version()}, {parts}; {seconds:.0f} seconds on {platform.machine()}."),
    ]


def _pictures(*names: str) -> list[Picture]:
    return [Picture(name, CAPTIONS[name]) for name in names]


def _risk(study: Study) -> list[Block]:
    rows = []
    for grid in GRIDS:
        for name in CAST:
            risk = study.cast.risk[grid, name]
            usual = study.cast.counts(grid, name).most_common(1)[0]
            shown = [f"{x:.2f}" if np.isfinite(x) else "—" for x in (risk.mean, risk.std, risk.cvar(0.1))]
            shown += [f"{risk.p_unsafe:.4f}", f"{risk.p_never:.2g}"]
            how = "exact" if risk.distribution.exact else "CVaR sampled"
            rows.append([grid, CAST[name].describe(), usual[0], *shown, how])
    header = ["grid", "learner", "verdict", "mean", "std", "CVaR₁₀", "P(unsafe)", "P(never ends)", ""]
    return [
        Heading("Risk of the policies"),
        Text(
            "The undiscounted return from the start under the policy that most seeds learned. CVaR₁₀ is the mean of the worst tenth."
        ),
        Table(header, rows),
        *_pictures("returns"),
    ]


CONDITIONS = "The conditions of Theorem 1, Assumption 1, and what Theorem 2 predicts for each state. Algorithm 1, v = 0.5, β = 5."
XRAYS = "What Algorithm 1 replayed, counted over all seeds, and how far the outcomes of its updates are from those of the world."
#: A section on theory: its title, its opening, and its pages, each under its own heading.
Section = tuple[str, list[Block], list[tuple[str, Page]]]


def theory_page(study: Study) -> Page:
    """All sections on theory as one page: first the two limits, on random models and over the number of episodes."""
    random, slopes = study.random, study.rate.slopes
    nearer = len(random.differing) - len(random.exceptions)
    blocks: list[Block] = [
        Picture(
            "random-models",
            f"Algorithm 1 on {len(random.cases)} random models, {random.steps:,} steps each. On {len(random.differing)} models the two limits "
            f"differ by more than the noise of the run; on {nearer} of these the learned Q is nearer to the limit with d(s,a).",
        ),
        Picture(
            "matched-rate",
            f"Matched mixing: the error against the paper's limit falls with the number n of episodes as n^{slopes['volatile']:.2f} on the "
            f"volatile grid and n^{slopes['cliff']:.2f} on the cliff (medians over seeds). With α = n^−0.6, noise alone falls as n^−0.3.",
        ),
    ]
    drawn = {"random-models": figures.random_figure(random), "matched-rate": figures.rate_figure(study.rate)}
    mdps, reports = study.cast.mdps, study.certificates.reports
    rays = {g: xray(study.cast.runs[g, "replay"]) for g in GRIDS}
    checks = [(f"Conditions on the {g} grid", check_page(mdps[g], r, f"check-{g}-")) for g, r in reports.items()]
    xrays = [(f"The {g} grid, X-rayed", xray_page(mdps[g], x, f"xray-{g}-")) for g, x in rays.items()]
    sections: tuple[Section, ...] = (
        _ends(study),
        ("The paper's conditions", [Text(CONDITIONS)], checks),
        _plans(study),
        ("X-ray of the runs", [Text(XRAYS)], xrays),
    )
    for title, opening, pages in sections:
        blocks += [Heading(title), *opening]
        for name, page in pages:
            blocks += [Heading(name, 3), *page.blocks]
            drawn |= page.figures
    return Page("Theory", blocks, drawn)


def _ends(study: Study) -> Section:
    opening = Text(
        "A limit of Algorithm 1 is a pair (Q, d) in which Q follows from d(s,a) and d(s,a) from Q. There can be many: a greedy move is "
        "visited often, so that its bad outcomes are a smaller share of its updates, which keeps it greedy. Then the seed decides. "
        "The limits are found from many starts. The share of seeds is from learning."
    )
    pages = []
    for k, (name, mdp, plain, paper, limits) in enumerate(study.limits):
        ends = grouped(mdp, "Algorithm 1", limits)
        answers = [answer(mdp, "Q-learning", plain), *ends, answer(mdp, "the paper's mapping", paper)]
        pages.append((f"The {name}", solve_page(mdp, name, answers, f"limit-{k}-")))
    return "The limits of Algorithm 1", [opening], pages


def _plans(study: Study) -> Section:
    opening = Text(
        "The limit of matched mixing is known exactly, and with it the smallest v that keeps a limit on risk. At that v two actions tie. "
        "The replay in the table has the first larger v at which trained learners keep the limit. 'Any policy' is the best mean of all "
        "policies under the same limit, by linear programming. Episodes start from the grid's start distribution."
    )
    header = ["grid", "limit", "smallest v", "replay"]
    header += ["P(unsafe)", "mean", "plain mean", "any policy", "learners keep it"]
    rows, pages = [], []
    for grid, plans in study.plans.items():
        page = tune_page(study.cast.mdps[grid], plans[0], f"tune-{grid}-")
        pages.append((f"{plans[0].limit} on the {grid} grid", page))
        for plan in plans:
            limit = f"{plan.limit}{'' if plan.meets else ' (no replay setting keeps it)'}"
            numbers = [f"{plan.profile.p_unsafe:.4f}", f"{plan.profile.mean:.3f}", f"{plan.plain.mean:.3f}"]
            bounded, last = np.isfinite(plan.ceiling.value), plan.confirmation[-1] if plan.confirmation else None
            best = f"{plan.ceiling.value:.3f}" if bounded else f"{plan.ceiling.value_discounted:.3f} (discounted)"
            kept = "not trained" if last is None else f"{last.met} of {last.seeds} {'fresh ' * last.fresh}seeds"
            rows.append([grid, limit, f"{plan.v_smallest:.4f}", plan.learner.describe(), *numbers, best, kept])
    return "The gentlest replay under a limit", [opening, Table(header, rows)], pages


class Stage(NamedTuple):
    """One experiment: its field of the study, its label, its share of the time, and its function."""

    field: str
    label: str
    share: float
    run: Callable[[ex.Effort, ex.Work], Any]


STAGES = [
    Stage("cast", "every learner on both grids", 8, ex.run_cast),
    Stage("kappa", "Mihatsch–Neuneier, κ from 0 to 1", 22, ex.run_kappa),
    Stage("gaskett", "Gaskett, β from 0 to 1", 20, ex.run_gaskett),
    Stage("amount", "more replay: v from 0 to 0.9", 9, ex.run_amount),
    Stage("sign", "β = 5, 0, −5", 6, ex.run_sign),
    Stage("sign_matched", "β = 5, 0, −5, matched mixing", 4, lambda effort, work: ex.run_sign(effort, work, "matched")),
    Stage("maps", "sensitivity of the verdicts", 22, studies.run_maps),
    Stage("bands", "exact bands of κ under every reading", 6, studies.run_bands),
    Stage("curves", "learning against its limits", 8, studies.run_curves),
    Stage("td", "TD errors", 1, studies.run_td_errors),
    Stage("limits", "what Algorithm 1 can converge to", 4, studies.run_limits),
    Stage("certificates", "the paper's conditions", 3, studies.run_certificates),
    Stage("plans", "the gentlest replay under a limit", 12, studies.run_plans),
    Stage("random", "the two limits on random models", 8, studies.run_random_models),
    Stage("rate", "convergence rate of matched mixing", 6, studies.run_matched_rate),
]
DRAWING = 8.0  # the figures' share of the time


def reproduce(
    out: str | Path, quick: bool = False, tell: Callable[[str, float], None] = lambda label, done: None
) -> list[Verdict]:
    """Run everything and write ``report.html``, ``report.md``, ``claims.json`` and ``figures/`` to a folder.

    ``tell(label, done)`` is called with the current stage and the finished share of the work. Returns the verdicts.

    Ref: Szlak & Shamir (2021), Section 5.
    """
    folder = make_folder(out, "claims.json", "report.md", "report.html")
    effort = ex.QUICK if quick else ex.FULL
    began = time.monotonic()
    study = run_study(effort, tell)
    tell("figures and report", 1.0 - DRAWING / (sum(s.share for s in STAGES) + DRAWING))
    with stopping(lambda: f"all {len(STAGES)} experiments are finished, but not the report"):
        verdicts = judge_all(study)
        drawn, theory = figures_of(study), theory_page(study)
        blocks = compose(study, verdicts, theory.blocks, effort, time.monotonic() - began)
        claims = json.dumps([asdict(v) for v in verdicts], indent=2, ensure_ascii=False)
        write_atomic(folder / "claims.json", claims + "\n")
        write_page(Page(TITLE, blocks, drawn | theory.figures), folder)
    tell("done", 1.0)
    return verdicts


def run_study(effort: ex.Effort, tell: Callable[[str, float], None]) -> Study:
    """Run all stages in order."""
    total = sum(stage.share for stage in STAGES) + DRAWING
    before = 0.0
    results: dict[str, Any] = {}
    with stopping(lambda: f"{len(results)} of {len(STAGES)} experiments are finished, but not the report"):
        for stage in STAGES:

            def tick(done: float, stage: Stage = stage, before: float = before) -> None:
                tell(stage.label, (before + done * stage.share) / total)

            tick(0.0)
            results[stage.field] = stage.run(effort, ex.Work(tick))
            before += stage.share
    return Study(**results)
