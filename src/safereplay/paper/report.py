"""The report of the reproduction: figures, claims, sensitivity, risks, and sections on theory."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from ..theory.limits import answer, grouped
from ..theory.tuning import Plan
from ..theory.xray import xray
from ..views.document import Block, Heading, Picture, Table, Text
from ..views.drawing import BLUE, ORANGE, returns_figure, save
from ..views.pages import Page, check_page, solve_page, tune_page, xray_page
from . import figures
from .claims import Study, Verdict, band_text
from .experiments import CAST, GRIDS, MAX_STEPS, Effort
from .figures import random_figure, rate_figure

if TYPE_CHECKING:
    from .studies import World

TITLE = "Replay For Safety, reproduced"


def draw_all(study: Study, folder: Path) -> None:
    """Draw all figures of the report, as SVG and PNG."""
    made = {
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
    for name, figure in made.items():
        save(figure, folder, name)


def compose(
    study: Study, verdicts: Sequence[Verdict], theory: Sequence[Block], effort: Effort, seconds: float
) -> list[Block]:
    """The report's blocks, in order."""
    return [
        *_opening(verdicts),
        *_figures(),
        *_claims(verdicts),
        *_limits(),
        *theory,
        *_rivals(study),
        *_openness(),
        *_risk(study),
        *_method(effort, seconds),
    ]


def _opening(verdicts: Sequence[Verdict]) -> list[Block]:
    holding = sum(v.holds for v in verdicts)
    failing = "; ".join(f"{v.claim} ({v.grid})" for v in verdicts if not v.holds)
    return [
        Text(
            "Szlak and Shamir (2021) replay volatile state–action pairs more often, and their worst rewards most, so that Q-learning "
            "avoids them. This page repeats their two experiments, judges each claim, and varies what the paper leaves open."
        ),
        Text(f"{holding} of {len(verdicts)} claims hold here. These do not: {failing or 'none'}."),
    ]


def _figures() -> list[Block]:
    return [
        Heading("The two figures"),
        Picture(
            "figure-1",
            "Figure 1. A: volatile moves (red) pay +100 with probability 0.6 and −100 with 0.4; a move to the goal (green) pays 150. B: Q-learning (orange) gambles three times; replay (blue) goes around.",
        ),
        Picture(
            "figure-2",
            "Figure 2. A: a fall costs 12, a step 1, and one action in ten goes a random way. B: Q-learning (orange) walks along the edge; replay (blue) keeps a row between itself and the cliff.",
        ),
        Picture(
            "cast-volatile",
            "Every learner on the volatile grid. The line is the path from the start (S). The colour is its verdict.",
        ),
        Picture("cast-cliff", "Every learner on the cliff."),
    ]


def _claims(verdicts: Sequence[Verdict]) -> list[Block]:
    rows = [["yes" if v.holds else "no", v.claim, v.grid, v.expected, v.observed, v.evidence] for v in verdicts]
    return [
        Heading("The claims"),
        Text(
            "A step is exposed when something unsafe can happen there. A path is safe when it reaches the goal with the fewest exposed steps "
            "possible, and risky when it has more. 'Jumps' ends in an unsafe outcome on purpose. 'Stuck' never ends."
        ),
        Table(["", "claim", "grid", "expected", "observed", "evidence"], rows, badge=0),
    ]


def _limits() -> list[Block]:
    return [
        Heading("What the algorithm converges to"),
        Text(
            "The paper's proof sets Pr(s,a | MDP iteration) to 1, as if each iteration in the MDP visited every pair. It is d(s,a), the share "
            "of these iterations that visit the pair. With d, the share of replays among a pair's updates is ρ = v·W / ((1−v)·d + v·W). "
            "The learned Q converges to the fixed point with d, far from the paper's. Matched mixing replays a pair v·W/(1−v) times on "
            "average after each visit. Its limit is the paper's mapping. It converges more slowly, since it replays visited pairs only."
        ),
        Picture(
            "curves",
            "Left: distance of the weights w_t from their limit w^∞. Middle: error of the paper's algorithm against the paper's limit (red) and the limit with d(s,a) (green). Right: the same for matched mixing. Thin lines: seeds. Thick lines: their median.",
        ),
    ]


def _rivals(study: Study) -> list[Block]:
    return [
        Heading("The rivals' dials"),
        Picture(
            "kappa",
            f"Mihatsch & Neuneier from κ = 0 to {study.kappa.values[-1]:g} (κ = 1 is outside its range), one seed per value. The paper reports that no κ is safe on the cliff. Here: {band_text(study.kappa, 'cliff', 'safe')}.",
        ),
        Picture(
            "bands",
            "The κ whose exact limit is safe on the cliff, for each reading of what the paper leaves open: layout, γ, and where a slip goes. Cross: no κ is safe.",
        ),
        Picture("gaskett", f"Gaskett's β from 0 to 1. On the cliff: {band_text(study.gaskett, 'cliff', 'safe')}."),
        Picture(
            "td-errors",
            "TD errors over a run of Mihatsch & Neuneier's learner (log scale). The paper suspects them to cause its failure.",
        ),
    ]


def _openness() -> list[Block]:
    return [
        Heading("What the verdicts depend on"),
        Text(
            "The paper does not give γ, the exploration, the layouts or where a slip goes. Each cell below is a setting. Its colour mixes "
            "the verdicts of its seeds. Its letter is the most frequent verdict, large where all agree: S safe, R risky, J jumps, – stuck."
        ),
        Picture(
            "maps-volatile",
            "The volatile grid. At γ near 1, repeating a volatile move (it pays +20 on average) beats the goal, and Q-learning does so.",
        ),
        Picture(
            "maps-cliff",
            "The cliff. Grey: the policy never ends. Replay does so at low γ with little exploration.",
        ),
        Picture(
            "amount",
            "Exact P(unsafe) (left) and mean return (right) of the learned policies against v. One dot per seed, the line is the median.",
        ),
    ]


def _risk(study: Study) -> list[Block]:
    rows = []
    for grid in GRIDS:
        for name in CAST:
            risk = study.cast.risk[grid, name]
            usual = study.cast.counts(grid, name).most_common(1)[0]
            numbers = [risk.mean, risk.std, risk.cvar(0.1)]
            shown = ["—" if not np.isfinite(x) else f"{x:.2f}" for x in numbers]
            how = "exact" if risk.distribution.exact else "CVaR sampled"
            rows.append(
                [grid, CAST[name].describe(), usual[0], *shown, f"{risk.p_unsafe:.4f}", f"{risk.p_never:.2g}", how]
            )
    header = ["grid", "learner", "verdict", "mean", "std", "CVaR₁₀", "P(unsafe)", "P(never ends)", ""]
    return [
        Heading("Risk of the policies"),
        Text(
            "The undiscounted return from the start under the policy that most seeds learned. CVaR₁₀ is the mean of the worst tenth."
        ),
        Table(header, rows),
        Picture("returns", "Distribution of the return. Replay gives up the best outcomes and avoids the worst."),
    ]


def _method(effort: Effort, seconds: float) -> list[Block]:
    parts = ", ".join(f"{name} {version(name)}" for name in ("safereplay", "numpy", "scipy", "numba"))
    return [
        Heading("How it was run"),
        Text(
            f"{effort.seeds} seeds and {effort.episodes:,} episodes per learner (a tenth of that for Heger's, whose episodes on the cliff "
            f"are a hundred times longer). {effort.long_episodes:,} episodes for the sweeps and the curves. {effort.map_seeds} seeds and "
            f"{effort.map_episodes:,} episodes per cell of a map. ε-greedy with ε = 0.1. α = n(s,a)^−0.6, replays counted. "
            f"γ = 0.9 on the volatile grid and 0.95 on the cliff. Uniform starts. Episodes are cut off after {MAX_STEPS} steps. "
            "κ = 0.6 and Gaskett's β = 0.2 in the figures and the risk table lie within the bands that are safe on the cliff."
        ),
        Text(f"Python {platform.python_version()}, {parts}; {seconds:.0f} seconds on {platform.machine()}."),
    ]


def theory_page(study: Study) -> Page:
    """All sections on theory as one page."""
    sections = [_two_limits(study), _ends(study), _conditions(study), _plans(study), _xrays(study)]
    return Page(
        "Theory",
        [block for section in sections for block in section.blocks],
        {name: figure for section in sections for name, figure in section.figures.items()},
    )


def _gathered(title: str, opening: Iterable[Block], pages: Iterable[tuple[str, Page]]) -> Page:
    """A section: its opening, then each page under its own heading."""
    blocks: list[Block] = [Heading(title), *opening]
    figures: dict[str, Figure] = {}
    for name, page in pages:
        blocks += [Heading(name, 3), *page.blocks]
        figures |= page.figures
    return Page(title, blocks, figures)


def _two_limits(study: Study) -> Page:
    """The two limits on random models, and over the number of episodes."""
    random, slopes = study.random, study.rate.slopes
    nearer = len(random.differing) - len(random.exceptions)
    blocks: list[Block] = [
        Picture(
            "random-models",
            f"Algorithm 1 on {len(random.cases)} random models, {random.episodes:,} episodes each. On {len(random.differing)} models the two limits "
            f"differ by more than the noise of the run; on {nearer} of these the learned Q is nearer to the limit with d(s,a).",
        ),
        Picture(
            "matched-rate",
            f"Matched mixing: the error against the paper's limit falls with the number n of episodes as n^{slopes['volatile']:.2f} on the "
            f"volatile grid and n^{slopes['cliff']:.2f} on the cliff (medians over seeds). With α = n^−0.6, noise alone falls as n^−0.3.",
        ),
    ]
    return Page("", blocks, {"random-models": random_figure(study.random), "matched-rate": rate_figure(study.rate)})


def _ends(study: Study) -> Page:
    opening = Text(
        "A limit of Algorithm 1 is a pair (Q, d) in which Q follows from d(s,a) and d(s,a) from Q. There can be many: a greedy move is "
        "visited often, so that its bad outcomes are a smaller share of its updates, which keeps it greedy. Then the seed decides. "
        "The limits are found from many starts. The share of seeds is from learning."
    )
    pages = [(f"The {world.name}", _limits_page(world, f"limit-{k}-")) for k, world in enumerate(study.limits)]
    return _gathered("The limits of Algorithm 1", [opening], pages)


def _limits_page(world: World, stem: str) -> Page:
    """The limits of plain Q-learning, of Algorithm 1, and of the paper's mapping."""
    mdp = world.mdp
    answers = [
        answer(mdp, "Q-learning", world.plain),
        *grouped(mdp, "Algorithm 1", world.limits),
        answer(mdp, "the paper's mapping", world.paper),
    ]
    return solve_page(mdp, world.name, answers, stem)


def _conditions(study: Study) -> Page:
    opening = Text(
        "The conditions of Theorem 1, Assumption 1, and what Theorem 2 predicts for each state. Algorithm 1, v = 0.5, β = 5."
    )
    reports = study.certificates.reports.items()
    pages = [(f"Conditions on the {g} grid", check_page(study.cast.mdps[g], r, f"check-{g}-")) for g, r in reports]
    return _gathered("The paper's conditions", [opening], pages)


def _plans(study: Study) -> Page:
    opening = Text(
        "The limit of matched mixing is known exactly, and with it the smallest v that keeps a limit on risk. At that v two actions tie. "
        "The replay in the table has the first larger v at which trained learners keep the limit. 'Any policy' is the best mean of all "
        "policies under the same limit, by linear programming. Episodes start from the grid's start distribution."
    )
    header = [
        "grid",
        "limit",
        "smallest v",
        "replay",
        "P(unsafe)",
        "mean",
        "plain mean",
        "any policy",
        "learners keep it",
    ]
    rows = [_plan_row(grid, plan) for grid, plans in study.plans.items() for plan in plans]
    pages = [
        (f"{plans[0].limit} on the {grid} grid", tune_page(study.cast.mdps[grid], plans[0], f"tune-{grid}-"))
        for grid, plans in study.plans.items()
    ]
    return _gathered("The gentlest replay under a limit", [opening, Table(header, rows)], pages)


def _plan_row(grid: str, plan: Plan) -> list[str]:
    bounded = np.isfinite(plan.ceiling.value)
    best = f"{plan.ceiling.value:.3f}" if bounded else f"{plan.ceiling.value_discounted:.3f} (discounted)"
    last = plan.confirmation[-1] if plan.confirmation else None
    return [
        grid,
        str(plan.limit) + ("" if plan.meets else " (no replay setting keeps it)"),
        f"{plan.v_smallest:.4f}",
        plan.learner.describe(),
        f"{plan.profile.p_unsafe:.4f}",
        f"{plan.profile.mean:.3f}",
        f"{plan.plain.mean:.3f}",
        best,
        "not trained" if last is None else f"{last.met} of {last.seeds} {'fresh ' * last.fresh}seeds",
    ]


def _xrays(study: Study) -> Page:
    opening = Text(
        "What Algorithm 1 replayed, counted over all seeds, and how far the outcomes of its updates are from those of the world."
    )
    pages = [
        (f"The {g} grid, X-rayed", xray_page(study.cast.mdps[g], xray(study.cast.runs[g, "replay"]), f"xray-{g}-"))
        for g in GRIDS
    ]
    return _gathered("X-ray of the runs", [opening], pages)
