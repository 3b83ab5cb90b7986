"""Pages of ``solve``, ``check``, ``tune`` and ``xray``: blocks of a document with their pictures.

A page is written on its own, to the folder of ``--out``, or used as a section of the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from .._files import make_folder, write_atomic
from ..verdicts import verdict
from . import drawing
from .document import Block, Heading, Picture, Table, Text, to_html, to_markdown
from .drawing import Files, Panel

if TYPE_CHECKING:
    from ..mdp import TabularMDP
    from ..theory.conditions import CheckReport
    from ..theory.limits import Answer
    from ..theory.risk import RiskProfile
    from ..theory.theorem2 import Part
    from ..theory.tuning import Plan
    from ..theory.xray import Xray

MARKS = {True: "yes", False: "no", None: "open"}
ROWS = 24  # shown of a long table
PALETTE = (drawing.ORANGE, drawing.BLUE, drawing.GREEN, drawing.RED, drawing.GREY)


@dataclass(frozen=True)
class Page:
    """A title, blocks, and the figures that they show, by name."""

    title: str
    blocks: list[Block]
    figures: Mapping[str, Figure | Files] = field(default_factory=dict)
    refresh: int | None = None  #: seconds after which a browser reloads it, if it is live

    def rendered(self) -> Page:
        """The same page with its figures rendered."""
        return replace(
            self, figures={name: x if isinstance(x, dict) else drawing.render(x) for name, x in self.figures.items()}
        )

    def draw(self, folder: Path) -> None:
        """Write the figures, as SVG and PNG."""
        for name, figure in self.figures.items():
            drawing.save(figure, folder, name)


def page_folder(out: str | Path) -> Path:
    """Make the folder of a page."""
    return make_folder(out, "report.md", "report.html")


def write_page(page: Page, out: str | Path) -> Path:
    """Write ``report.html``, ``report.md`` and ``figures/`` to a folder; return the path of the HTML."""
    folder = page_folder(out)
    figures = make_folder(folder / "figures")
    page.draw(figures)
    write_atomic(folder / "report.md", to_markdown(page.title, page.blocks))
    return write_atomic(folder / "report.html", to_html(page.title, page.blocks, figures, page.refresh))


def solve_page(mdp: TabularMDP, title: str, answers: Sequence[Answer], stem: str = "") -> Page:
    """Exact limits compared: values, policies, risks, and the distribution of the return."""
    finite = {a.name: a.risk.distribution for a in answers if isfinite(a.risk.mean)}
    colours = dict(zip((a.name for a in answers), PALETTE * len(answers), strict=False))
    panels = [Panel(a.name, a.Q, a.policy) for a in answers if a.mdp is mdp][:4]
    figures = {
        f"{stem}values": drawing.values_figure(mdp, panels),
        **({f"{stem}returns": drawing.returns_figure({mdp.name: finite}, colours)} if finite else {}),
    }
    caption = "Q as colour, one triangle per action. Arrows: the policy. Line: its likeliest path from the start (S)."
    header = ["limit", "share of seeds", "path", "mean", "std", "CVaR₁₀", "worst", "P(unsafe)", "P(never ends)", ""]
    rows = []
    for a in answers:
        numbers = [number(x) for x in (a.risk.mean, a.risk.std, a.risk.cvar(0.1), a.risk.worst)]
        seeds = "" if a.learned is None else f"{a.learned:.0%}"
        chances = [f"{a.risk.p_unsafe:.4f}", f"{a.risk.p_never:.2g}"]
        rows.append([a.name, seeds, verdict(a.mdp, a.policy), *numbers, *chances, how(a.risk)])
    blocks: list[Block] = [Picture(f"{stem}values", caption), Table(header, rows)]
    if finite:
        blocks += [Picture(f"{stem}returns", "P(return ≤ x) of each policy.")]
    return Page(title, blocks, figures)


def number(x: float, digits: int = 2) -> str:
    """A number for a table; a dash if there is none."""
    return f"{x:.{digits}f}" if isfinite(x) else ("−∞" if x < 0 else "∞" if x > 0 else "—")


def how(risk: RiskProfile) -> str:
    """How the distribution was computed."""
    if not isfinite(risk.mean):
        return "exact"
    found = risk.distribution
    return "exact" if found.exact else f"CVaR and quantiles sampled, ±{found.error:.4f} on each probability"


def check_page(mdp: TabularMDP, report: CheckReport, stem: str = "") -> Page:
    """The conditions of Theorem 1, Assumption 1 and Theorem 2, each with its verdict and a counterexample."""
    figures = {f"{stem}switches": drawing.switch_figure(mdp, report.theorem)}
    parts: Mapping[str, Part] = {
        "step sizes": report.steps,
        "exploration": report.exploring,
        "w_t settles": report.settling,
        "H contracts": report.contraction,
        "Assumption 1": report.assumption,
        "Theorem 2": report.theorem,
        **{f"sound tilt: {name}": part for name, part in report.tilt.parts()},
    }
    blocks: list[Block] = [
        Text(
            f"{report.scheme}, v = {report.v:g}, {report.mixing} mixing, {report.exploration}, {report.step_size}; "
            f"{report.visitation}."
        ),
        Table(["", "condition", "why"], [[MARKS[p.holds], name, p.reason] for name, p in parts.items()], badge=0),
    ]
    if report.settling.distance:
        figures[f"{stem}settling"] = drawing.settling_figure(report.settling)
        blocks += [Picture(f"{stem}settling", "Distance of w_t from its limit during the runs.")]
    if report.warnings:
        blocks += [Text("Warnings: " + "; ".join(report.warnings) + ".")]
    readings = []
    for k, point in enumerate(report.assumption.points, 1):
        for reading in point.readings:
            witness = "" if reading.witness is None else reading.witness.text
            counts = [f"{reading.compared:,}", f"{reading.broken:,}"]
            readings.append([MARKS[reading.holds], f"{k}, {reading.name}", *counts, witness])
    blocks += [
        Heading(f"Assumption 1, in every reading ({mdp.name})", 3),
        Table(["", "point", "compared", "fail", "witness"], readings, badge=0),
        Heading(f"Theorem 2, state by state ({mdp.name})", 3),
        Text(
            "The theorem predicts that the best action a changes to b where gap < bound. Its proof takes the fall of the other action, "
            "Q₀(s,b) − Q*(s,b), as 0, and the share of replays as v. With both corrected, the condition is gap + fall < bound(ρ). It is exact "
            "wherever only the worst reward of a pair is replayed."
        ),
        Picture(
            f"{stem}switches",
            "The smallest v at which the action of a state changes, with d(s,a) held fixed. Dash: it never changes.",
        ),
        _switches(report),
    ]
    return Page(f"Conditions of {report.scheme} on {report.mdp}", blocks, figures)


def _switches(report: CheckReport) -> Table:
    header = ["s", "a", "share of variance", "b", "gap", "bound", "predicted"]
    header += ["gap + fall", "bound(ρ)", "switches", "v"]
    ranked = sorted(report.theorem.states, key=lambda x: (not x.switched, -x.share, x.s))
    rows = []
    for x in ranked[:ROWS]:
        predicted, switched = ("yes" if holds else "no" for holds in (x.predicted, x.switched))
        row = [str(x.s), str(x.a), f"{x.share:.3f}", str(x.b), f"{x.gap:.3f}", f"{x.bound:.3f}", predicted]
        row += [f"{x.needed:.3f}", f"{x.bound_rho:.3f}", switched]
        rows.append([*row, "never" if x.v_switch is None else f"{x.v_switch:.4f}"])
    return Table(header, rows)


def tune_page(mdp: TabularMDP, plan: Plan, stem: str = "") -> Page:
    """The gentlest replay under a limit, the frontier, the cost in return, and the learners that confirm it."""
    trials = [
        [f"{t.v:g}", "" if t.beta is None else f"{t.beta:g}", f"{t.met} of {t.seeds}", "fresh" if t.fresh else "first"]
        for t in plan.confirmation
    ]
    figures = {f"{stem}frontier": drawing.frontier_figure(plan)}
    caption = "Each dot is the policy of one exact limit of replay. Grey line: the best of all policies."
    blocks: list[Block] = [
        Text(f"{plan.answer}."),
        Table(["", ""], [[*row] for row in plan.rows]),
        Picture(f"{stem}frontier", caption),
    ]
    if mdp.layout is not None and plan.learner.mixing == "matched":
        plain, shaped = plan.limits(mdp)
        panels = [
            Panel("plain Q-learning", plain, plan.policies[plan.plain.policy]),
            Panel(plan.learner.describe(), shaped, plan.policy),
        ]
        figures[f"{stem}policies"] = drawing.values_figure(mdp, panels)
        blocks += [Picture(f"{stem}policies", "Exact limits of Q-learning and of this replay.")]
    if trials:
        blocks += [Table(["v", "β", "seeds that kept the limit", "which seeds"], trials)]
    return Page(f"{plan.limit} on {mdp.name}", blocks, figures)


def xray_page(mdp: TabularMDP | None, found: Xray, stem: str = "") -> Page:
    """What was replayed most, and how it shifted the outcomes of the updates."""
    shares = found.unsafe_share
    opening = f"{int(found.replays.sum()):,} of {int(found.replays.sum() + found.visits.sum()):,} updates were replays."
    if shares is not None:
        opening += f" Unsafe outcomes: {shares.replayed:.1%} of the replays, {shares.fresh:.1%} of the steps."
    rows = []
    for x in found.most_shifted(8):
        shares_of_pair = [f"{y:.3f}" for y in (x.rho, x.shift, x.luck)]
        counts, rewards = [f"{x.visits:,}", f"{x.replays:,}"], [f"{x.R:.2f}", f"{x.R_tilde:.2f}"]
        rows.append([found.place(x.s), found.action(x.a), *counts, *shares_of_pair, *rewards])
    blocks: list[Block] = [
        Text(f"{found.title}. {opening}"),
        Picture(
            f"{stem}xray",
            "Left: distance between the outcomes in the updates and in the world. Right: what was replayed most.",
        ),
        Table(["state", "action", "visits", "replays", "ρ", "shift", "by luck", "R", "R̃"], rows),
    ]
    return Page(f"X-ray of {found.title}", blocks, {f"{stem}xray": drawing.xray_figure(mdp, found)})
