"""``safereplay reproduce``: run every experiment, figure and claim of the paper, and write the report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .._files import make_folder, write_atomic
from ..errors import stopping
from ..views.document import to_html, to_markdown
from . import experiments as ex
from . import studies, theory_study
from .claims import Study, Verdict, as_json, judge_all
from .report import TITLE, compose, draw_all, theory_page


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
    Stage("random", "the two limits on random models", 8, theory_study.run_random_models),
    Stage("rate", "convergence rate of matched mixing", 6, theory_study.run_matched_rate),
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
        pictures = make_folder(folder / "figures")
        draw_all(study, pictures)
        theory = theory_page(study)
        theory.draw(pictures)
        blocks = compose(study, verdicts, theory.blocks, effort, time.monotonic() - began)
        write_atomic(folder / "claims.json", json.dumps(as_json(verdicts), indent=2, ensure_ascii=False) + "\n")
        write_atomic(folder / "report.md", to_markdown(TITLE, blocks))
        write_atomic(folder / "report.html", to_html(TITLE, blocks, pictures))
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
