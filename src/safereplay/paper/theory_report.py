"""The report's sections on theory: where learning can end, the paper's conditions, plans under a limit, X-rays."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib.figure import Figure

from ..theory.tuning import Plan
from ..theory.xray import xray
from ..views.document import Block, Heading, Picture, Table, Text
from ..views.pages import Page, answer, check_page, grouped, solve_page, tune_page, xray_page
from .certificates import World
from .claims import Study
from .experiments import GRIDS
from .figures import random_figure, rate_figure


def theory_page(study: Study) -> Page:
    """All of it as one page."""
    sections = [_two_limits(study), _ends(study), _conditions(study), _plans(study), _xrays(study)]
    return Page(
        "Theory",
        [block for section in sections for block in section.blocks],
        {name: figure for section in sections for name, figure in section.figures.items()},
    )


def _gathered(title: str, opening: Iterable[Block], pages: Iterable[tuple[str, Page]]) -> Page:
    """A section: its opening, then each page under a heading of its own."""
    blocks: list[Block] = [Heading(title), *opening]
    figures: dict[str, Figure] = {}
    for name, page in pages:
        blocks += [Heading(name, 3), *page.blocks]
        figures |= page.figures
    return Page(title, blocks, figures)


def _two_limits(study: Study) -> Page:
    """The two limits beyond the grids: on random models, and along the episodes."""
    random, slopes = study.random, study.rate.slopes
    nearer = len(random.differing) - len(random.exceptions)
    blocks: list[Block] = [
        Picture(
            "random-models",
            f"Algorithm 1 on {len(random.cases)} random models, {random.episodes:,} episodes each. Where the two limits lie further apart "
            f"than the noise of the run ({len(random.differing)} models), the learned Q is nearer to the limit with d(s,a) in {nearer}.",
        ),
        Picture(
            "matched-rate",
            f"Matched mixing: the error against the paper's limit falls with the episodes as n^{slopes['volatile']:.2f} on the volatile "
            f"grid and n^{slopes['cliff']:.2f} on the cliff, medians over seeds. With α = n^−0.6, noise alone falls as n^−0.3.",
        ),
    ]
    return Page("", blocks, {"random-models": random_figure(study.random), "matched-rate": rate_figure(study.rate)})


def _ends(study: Study) -> Page:
    opening = Text(
        "d(s,a) depends on Q, and Q on d(s,a). So a limit of Algorithm 1 is a pair (Q, d) in which each follows from the other, "
        "and there can be many: a move that is greedy is visited often, so that its bad outcomes are replayed less than elsewhere, which "
        "keeps it greedy. Then the seed decides. They are found from many starts; the share of seeds is from learning."
    )
    pages = [(f"The {world.name}", _limits_page(world, f"limit-{k}-")) for k, world in enumerate(study.limits)]
    return _gathered("Where Algorithm 1 can end", [opening], pages)


def _limits_page(world: World, stem: str) -> Page:
    """Plain, what Algorithm 1 can converge to, and the paper's mapping."""
    mdp = world.mdp
    answers = [
        answer(mdp, "Q-learning", world.plain),
        *grouped(mdp, "Algorithm 1", world.limits),
        answer(mdp, "the paper's mapping", world.paper),
    ]
    return solve_page(mdp, world.name, answers, stem)


def _conditions(study: Study) -> Page:
    opening = Text(
        "What Theorem 1 needs, whether the scheme satisfies Assumption 1, and what Theorem 2 says of each state, for Algorithm 1 "
        "with v = 0.5 and β = 5."
    )
    reports = study.certificates.reports.items()
    pages = [(f"Conditions on the {g} grid", check_page(study.cast.mdps[g], r, f"check-{g}-")) for g, r in reports]
    return _gathered("The paper's conditions", [opening], pages)


def _plans(study: Study) -> Page:
    opening = Text(
        "Matched mixing has the paper's limit, exactly, so the smallest v whose policy keeps a limit on risk can be computed. At that "
        "v two actions tie; the replay in the table is the first beyond it that learners keep the limit with. Beside it stands "
        "the best mean that any policy could have under the same limit, from the constrained MDP's linear program. "
        "Episodes start from the grid's start distribution."
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
        str(plan.limit) + ("" if plan.meets else ": no replay keeps it"),
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
        "Counted, not predicted: what Algorithm 1 replayed over all seeds, and how far that took the outcomes of its updates from "
        "those of the world."
    )
    pages = [
        (f"The {g} grid, X-rayed", xray_page(study.cast.mdps[g], xray(study.cast.runs[g, "replay"]), f"xray-{g}-"))
        for g in GRIDS
    ]
    return _gathered("X-ray of the runs", [opening], pages)
