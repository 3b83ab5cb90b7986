"""``safereplay reproduce``: run every experiment of the paper, judge its claims, draw its figures, and write the report."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from .experiments import CAST, GRIDS, MAX_STEPS, Cast, Effort

if TYPE_CHECKING:
    from ..theory.tuning import Plan

TITLE = "Replay For Safety, reproduced"


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
    study: Study, verdicts: Sequence[Verdict], pages: Mapping[str, Page], effort: Effort, seconds: float
) -> list[Block]:
    """The report's blocks, in order; ``pages`` are those of the stages."""
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
        *(block for name in THEORY for block in pages[name].blocks),
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
            f"{effort.dose_seeds} seeds per value of v and β; {ex.STEPS * effort.episodes:,} steps for β = 5, 0, −5. "
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
THEORY = ("random", "rate", "limits", "certificates", "plans", "cast")  #: the stages with a section on theory, in order


def _nothing(result: Any) -> Page:
    return Page("", [])


def _figure(name: str, draw: Callable[[Any], Figure], result: Any) -> Page:
    """A page of a figure that the report describes elsewhere."""
    return Page("", [], {name: draw(result)})


def _section(title: str, opening: Sequence[Block], pages: Mapping[str, Page]) -> Page:
    """A section on theory, made of pages, each under its own heading."""
    blocks: list[Block] = [Heading(title), *opening]
    figures: dict[str, Any] = {}
    for name, page in pages.items():
        blocks += [Heading(name, 3), *page.blocks]
        figures |= page.figures
    return Page(title, blocks, figures)


def _cast(cast: Cast) -> Page:
    """The figures of the cast, and the X-ray of its runs."""
    rays = {g: xray_page(cast.mdps[g], xray(cast.runs[g, "replay"]), f"xray-{g}-") for g in GRIDS}
    section = _section("X-ray of the runs", [Text(XRAYS)], {f"The {g} grid, X-rayed": page for g, page in rays.items()})
    returns = {g: {n: cast.risk[g, n].distribution for n in ("Q-learning", "replay")} for g in GRIDS}
    drawn: dict[str, Any] = {
        "hero": figures.hero_figure(cast),
        "figure-1": figures.paper_figure(cast, "volatile", 1),
        "figure-2": figures.paper_figure(cast, "cliff", 2),
        "returns": returns_figure(
            {f"{g} grid": shown for g, shown in returns.items()}, {"Q-learning": ORANGE, "replay": BLUE}
        ),
        **{f"cast-{g}": figures.cast_figure(cast, g) for g in GRIDS},
    }
    return replace(section, figures={**drawn, **section.figures})


def _pictured(name: str, caption: str, figure: Figure) -> Page:
    return Page("", [Picture(name, caption)], {name: figure})


def _random(random: studies.RandomModels) -> Page:
    nearer = len(random.differing) - len(random.exceptions)
    caption = (
        f"Algorithm 1 on {len(random.cases)} random models, {random.steps:,} steps each. On {len(random.differing)} models the two limits "
        f"differ by more than the noise of the run; on {nearer} of these the learned Q is nearer to the limit with d(s,a)."
    )
    return _pictured("random-models", caption, figures.random_figure(random))


def _rate(rate: studies.MatchedRate) -> Page:
    caption = (
        f"Matched mixing: the error against the paper's limit falls with the number n of episodes as n^{rate.slopes['volatile']:.2f} on the "
        f"volatile grid and n^{rate.slopes['cliff']:.2f} on the cliff (medians over seeds). With α = n^−0.6, noise alone falls as n^−0.3."
    )
    return _pictured("matched-rate", caption, figures.rate_figure(rate))


def _maps(maps: Mapping[str, Any]) -> Page:
    return Page("", [], {f"maps-{grid}": figures.maps_figure(found, grid) for grid, found in maps.items()})


def _certificates(found: studies.Certificates) -> Page:
    pages = {f"Conditions on the {g} grid": check_page(GRIDS[g](), r, f"check-{g}-") for g, r in found.reports.items()}
    return _section("The paper's conditions", [Text(CONDITIONS)], pages)


def _limits(worlds: Sequence[studies.World]) -> Page:
    opening = Text(
        "A limit of Algorithm 1 is a pair (Q, d) in which Q follows from d(s,a) and d(s,a) from Q. There can be many: a greedy move is "
        "visited often, so that its bad outcomes are a smaller share of its updates, which keeps it greedy. Then the seed decides. "
        "The limits are found from many starts. The share of seeds is from learning."
    )
    pages = {}
    for k, (name, mdp, plain, paper, limits) in enumerate(worlds):
        ends = grouped(mdp, "Algorithm 1", limits)
        answers = [answer(mdp, "Q-learning", plain), *ends, answer(mdp, "the paper's mapping", paper)]
        pages[f"The {name}"] = solve_page(mdp, name, answers, f"limit-{k}-")
    return _section("The limits of Algorithm 1", [opening], pages)


def _plans(found: Mapping[str, Sequence[Plan]]) -> Page:
    opening = Text(
        "The limit of matched mixing is known exactly, and with it the smallest v that keeps a limit on risk. At that v two actions tie. "
        "The replay in the table has the first larger v at which trained learners keep the limit. 'Any policy' is the best mean of all "
        "policies under the same limit, by linear programming. Episodes start from the grid's start distribution."
    )
    header = ["grid", "limit", "smallest v", "replay"]
    header += ["P(unsafe)", "mean", "plain mean", "any policy", "learners keep it"]
    rows, pages = [], {}
    for grid, plans in found.items():
        pages[f"{plans[0].limit} on the {grid} grid"] = tune_page(GRIDS[grid](), plans[0], f"tune-{grid}-")
        for plan in plans:
            limit = f"{plan.limit}{'' if plan.meets else ' (no replay setting keeps it)'}"
            numbers = [f"{plan.profile.p_unsafe:.4f}", f"{plan.profile.mean:.3f}", f"{plan.plain.mean:.3f}"]
            bounded, last = np.isfinite(plan.ceiling.value), plan.confirmation[-1] if plan.confirmation else None
            best = f"{plan.ceiling.value:.3f}" if bounded else f"{plan.ceiling.value_discounted:.3f} (discounted)"
            kept = "not trained" if last is None else f"{last.met} of {last.seeds} {'fresh ' * last.fresh}seeds"
            rows.append([grid, limit, f"{plan.v_smallest:.4f}", plan.learner.describe(), *numbers, best, kept])
    return _section("The gentlest replay under a limit", [opening, Table(header, rows)], pages)


class Stage(NamedTuple):
    """One experiment: its field of the study, its label, its share of the time, its function, and the page of its result."""

    field: str
    label: str
    share: float
    run: Callable[[ex.Effort, ex.Work], Any]
    page: Callable[[Any], Page] = _nothing  #: may be called in another process


#: Pages are rendered while later stages run, so the last stages have few pictures.
STAGES = [
    Stage("cast", "every learner on both grids", 4, ex.run_cast, _cast),
    Stage(
        *("kappa", "Mihatsch–Neuneier, κ from 0 to 1", 6, ex.run_kappa),
        partial(_figure, "kappa", partial(figures.sweep_figure, title="Mihatsch–Neuneier")),
    ),
    Stage(
        *("gaskett", "Gaskett, β from 0 to 1", 6, ex.run_gaskett),
        partial(_figure, "gaskett", partial(figures.sweep_figure, title="Gaskett")),
    ),
    Stage(
        *("amount", "more replay: v from 0 to 0.9", 9, ex.run_amount), partial(_figure, "amount", figures.dose_figure)
    ),
    Stage("sign", "β = 5, 0, −5", 4, ex.run_sign),
    Stage("sign_matched", "β = 5, 0, −5, matched mixing", 3, partial(ex.run_sign, mixing="matched")),
    Stage("maps", "sensitivity of the verdicts", 34, studies.run_maps, _maps),
    Stage(
        *("bands", "exact bands of κ under every reading", 6, studies.run_bands),
        partial(_figure, "bands", figures.bands_figure),
    ),
    Stage(
        *("curves", "learning against its limits", 12, studies.run_curves),
        partial(_figure, "curves", figures.curves_figure),
    ),
    Stage("td", "TD errors", 1, studies.run_td_errors, partial(_figure, "td-errors", figures.td_figure)),
    Stage("limits", "what Algorithm 1 can converge to", 2, studies.run_limits, _limits),
    Stage("certificates", "the paper's conditions", 1, studies.run_certificates, _certificates),
    Stage("plans", "the gentlest replay under a limit", 6, studies.run_plans, _plans),
    Stage("random", "the two limits on random models", 10, studies.run_random_models, _random),
    Stage("rate", "convergence rate of matched mixing", 6, studies.run_matched_rate, _rate),
]
WRITING = 3.0  # the share of the time after the last stage


def reproduce(
    out: str | Path,
    quick: bool = False,
    tell: Callable[[str, float], None] = lambda label, done: None,
    drawing: Executor | None = None,
) -> list[Verdict]:
    """Run everything and write ``report.html``, ``report.md``, ``claims.json`` and ``figures/`` to a folder.

    ``tell(label, done)`` is called with the current stage and the finished share of the work. ``drawing`` renders the pages
    while later stages learn: by default a thread, which a process outruns, since drawing is Python. Returns the verdicts.

    Ref: Szlak & Shamir (2021), Section 5.
    """
    folder = make_folder(out, "claims.json", "report.md", "report.html")
    effort = ex.QUICK if quick else ex.FULL
    began = time.monotonic()
    with drawing or ThreadPoolExecutor(1) as pool:
        study, pages = run_study(effort, tell, pool)
    with stopping(lambda: f"all {len(STAGES)} experiments are finished, but not the report"):
        verdicts = judge_all(study)
        blocks = compose(study, verdicts, pages, effort, time.monotonic() - began)
        claims = json.dumps([asdict(v) for v in verdicts], indent=2, ensure_ascii=False)
        write_atomic(folder / "claims.json", claims + "\n")
        drawn = {name: figure for page in pages.values() for name, figure in page.figures.items()}
        write_page(Page(TITLE, blocks, drawn), folder)
    tell("done", 1.0)
    return verdicts


def _rendered(page: Callable[[Any], Page], found: Any) -> Page:
    return page(found).rendered()


def run_study(
    effort: ex.Effort, tell: Callable[[str, float], None], drawing: Executor
) -> tuple[Study, dict[str, Page]]:
    """Run all stages in order. Their pages are rendered by ``drawing``, while the next stages learn."""
    total = sum(stage.share for stage in STAGES) + WRITING
    before = 0.0
    results: dict[str, Any] = {}
    pages: dict[str, Future[Page]] = {}
    with stopping(lambda: f"{len(results)} of {len(STAGES)} experiments are finished, but not the report"):
        try:
            drawing.submit(_rendered, _nothing, None)  # starts a process, which imports meanwhile
            for stage in STAGES:

                def tick(done: float, stage: Stage = stage, before: float = before) -> None:
                    tell(stage.label, (before + done * stage.share) / total)

                tick(0.0)
                found = results[stage.field] = stage.run(effort, ex.Work(tick))
                pages[stage.field] = drawing.submit(_rendered, stage.page, found)
                before += stage.share
            tell("figures and report", before / total)
            return Study(**results), {field: page.result() for field, page in pages.items()}
        except BaseException:
            drawing.shutdown(cancel_futures=True)
            raise
