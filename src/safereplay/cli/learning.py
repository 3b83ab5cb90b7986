"""The commands that learn.

``learn``: policies over many seeds, and their risks.
``sweep``: all runs of a spec, into a folder; it can be stopped and continued.
``compare``: all systems on the same worlds with the same experience, and a page of the results.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..catalog import LEARNERS, SCHEMES, WORLDS
from .common import (
    Beta,
    Dials,
    Episodes,
    Epsilon,
    EpsilonPower,
    Gamma,
    Json,
    Kappa,
    LearnerName,
    Mixing,
    Model,
    Options,
    SchemeName,
    Seeds,
    StepPower,
    Temperature,
    V,
    app,
    build_exploration,
    build_learner,
    complain,
    echo,
    load_model,
    plain_table,
    policy_text,
    print_json,
    starting,
)

if TYPE_CHECKING:
    from ..mdp import TabularMDP
    from ..runs import Runs


@app.command()
def learn(
    model: Model,
    learner: LearnerName = "replay",
    v: V = None,
    beta: Beta = None,
    kappa: Kappa = None,
    scheme: SchemeName = "variance",
    dial: Dials = None,
    mixing: Mixing = "literal",
    gamma: Gamma = None,
    episodes: Episodes = 50_000,
    seeds: Seeds = 20,
    epsilon: Epsilon = 0.1,
    epsilon_power: EpsilonPower = 0.0,
    temperature: Temperature = None,
    step_power: StepPower = 0.6,
    t0: Annotated[int, typer.Option("--T0", help="Iterations of pure exploration at the start.")] = 1,
    c0: Annotated[
        float | None, typer.Option(help="Initial Q; default 0, or above every return for worst-case.")
    ] = None,
    max_steps: Annotated[int, typer.Option(help="Steps before an episode is cut off.")] = 1_000,
    xray: Annotated[bool, typer.Option("--xray", help="Show what was replayed most, and its effect.")] = False,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Learn a policy over many seeds, and show its path and its risk."""
    from .. import _checks
    from ..errors import stopping
    from ..runs import learn as run_learner
    from ..schedules import PowerStep

    chosen = build_learner(learner, v, beta, kappa, mixing, t0, c0, scheme, dial)
    _checks.require(not xray or chosen.replay is not None, "--xray", "go with a learner that replays", learner)
    runs = run_learner(
        load_model(model, gamma, option),
        chosen,
        episodes,
        seeds,
        build_exploration(epsilon, epsilon_power, temperature),
        PowerStep(step_power),
        max_steps=max_steps,
    )
    with stopping(lambda: f"{len(runs.seeds)} of {seeds} seeds are finished, but not shown"):
        if as_json:
            print_json(_as_json(model, runs.judged_on, runs, xray))
        else:
            _show(model, runs.judged_on, runs, xray)
    if runs.interrupted:
        complain(f"stopped: {len(runs.seeds)} of {seeds} seeds are finished and shown", 1)
        raise typer.Exit(1)


def _as_json(model: str, mdp: TabularMDP, runs: Runs, with_xray: bool) -> dict[str, Any]:
    from ..theory.risk import evaluate
    from ..theory.xray import xray

    risks = [evaluate(mdp, policy, start=mdp.origin) for policy in runs.policy]
    found = {
        "model": model,
        "gamma": mdp.gamma,
        "learner": runs.learner.to_dict(),
        "exploration": runs.exploration.to_dict(),
        "step_size": runs.step_size.to_dict(),
        "episodes": runs.episodes,
        "interrupted": runs.interrupted,
        "runs": [
            {
                "seed": seed,
                "verdict": verdict,
                "policy": policy.tolist(),
                "updates": int(visits.sum() + replays.sum()),
                "replays": int(replays.sum()),
                "risk": risk.to_dict(),
            }
            for seed, verdict, policy, visits, replays, risk in zip(
                runs.seeds, runs.verdicts, runs.policy, runs.visits, runs.replays, risks, strict=True
            )
        ],
    }
    return found | ({"xray": xray(runs).to_dict()} if with_xray else {})


def _show(model: str, mdp: TabularMDP, runs: Runs, with_xray: bool) -> None:
    from collections import Counter

    from rich.console import Console

    from ..theory.risk import evaluate
    from ..theory.xray import xray

    console = Console()
    console.print(
        f"[bold]{runs.learner.describe()}[/] on {model}, γ = {mdp.gamma:g}, {runs.episodes:,} episodes",
        highlight=False,
    )
    table = plain_table(["path", "seeds", "mean return", "std", "CVaR₁₀", "P(unsafe)", "P(never ends)"])
    for verdict, count in Counter(runs.verdicts).most_common():
        risk = evaluate(mdp, runs.policy[runs.verdicts.index(verdict)], start=mdp.origin)
        numbers = [f"{x:.2f}" for x in (risk.mean, risk.std, risk.cvar(0.1))]
        table.add_row(verdict, f"{count} of {len(runs.seeds)}", *numbers, f"{risk.p_unsafe:.2%}", f"{risk.p_never:.0%}")
    console.print(table)
    if mdp.layout is not None:
        usual = Counter(runs.verdicts).most_common(1)[0][0]
        console.print("\n" + policy_text(mdp, runs.policy[runs.verdicts.index(usual)]), highlight=False)
    if with_xray:
        console.print(f"\n{xray(runs)}", highlight=False, markup=False)


@app.command()
def sweep(
    spec: Annotated[Path, typer.Argument(help="A TOML file: models, learners, ranges, seeds.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the dataset; default sweeps/NAME for NAME.toml.")
    ] = None,
    engine: Annotated[str, typer.Option(help="threads, ray or cuda.")] = "threads",
    address: Annotated[str | None, typer.Option(help="Address of a Ray cluster; default: one on this machine.")] = None,
    threads: Annotated[int | None, typer.Option(help="Workers; default: one per core.")] = None,
    extend: Annotated[
        bool, typer.Option("--extend", help="Add the runs of a changed spec to the folder's dataset.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Do all runs of a spec that its folder lacks. After a stop, run the same command to continue."""
    from ..engines.sweeps import sweep as run_sweep

    found = run_sweep(spec, out, engine, threads=threads, address=address, extend=extend)
    if as_json:
        print_json(found.to_dict())
    else:
        there = f", {found.already:,} were done before" if found.already else ""
        echo(f"{found.done:,} runs done{there}: {found.folder}")
    if found.interrupted:
        left = found.runs - found.done - found.already
        complain(f"stopped: {left:,} of {found.runs:,} runs are left; run the same command to continue", 1)
        raise typer.Exit(1)


WORLDS_ACROSS = 3  # the most worlds with a column each
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

if TYPE_CHECKING:
    from ..arena.results import Comparison


@app.command()
def compare(
    preset: Annotated[
        str, typer.Option(help="quick: the paper's contestants and grids; paper: all systems on all worlds.")
    ] = "quick",
    learner: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A learner of the catalog, over its dial; repeatable.",
            autocompletion=starting(LEARNERS),
        ),
    ] = None,
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A scheme of the catalog, replayed in both mixings over v; repeatable.",
            autocompletion=starting(SCHEMES),
        ),
    ] = None,
    world: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL",
            help="A world of the catalog, a map file or a Gymnasium id; repeatable.",
            autocompletion=starting(WORLDS),
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, at least 20.")] = 20,
    steps: Annotated[int | None, typer.Option(help="Steps of the MDP per run; default: set by the world.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of results and of the page.")] = Path("compare"),
    threads: Annotated[int | None, typer.Option(help="Workers; default: one per core.")] = None,
    as_json: Json = False,
) -> None:
    """Compare systems: return against risk, areas under the ceiling, sample cost, useful bands. It can be stopped and continued."""
    _leave_cores_to_learning()
    from .. import _checks
    from ..arena.report import compare as run_comparison
    from ..arena.report import planned

    if threads is not None:
        _checks.whole("threads", threads, 1)
    plan = planned(learner, scheme, world, seeds, steps, preset)
    found, page = run_comparison(plan, out, threads=threads)
    if as_json:
        print_json({**found.to_dict(), "page": str(page)})
    else:
        _show_comparison(found, page)


def _leave_cores_to_learning() -> None:
    """Limit linear algebra to one thread, since learning uses all cores. This works only before numpy is imported."""
    if "numpy" not in sys.modules:
        for name in ONE_THREAD:
            os.environ.setdefault(name, "1")


def _show_comparison(found: Comparison, page: Path) -> None:
    """All contestants with their areas on each world, or with counts if there are many worlds; then those that do not apply."""
    from rich.console import Console

    from ..arena.results import absent, bests, failures, marks
    from ..views.intervals import percent

    few = len(found.chapters) <= WORLDS_ACROSS
    mean = [] if len(found.chapters) == 1 else ["mean area"]
    table = plain_table(["contestant", *mean, *([c.title for c in found.chapters] if few else ["among best", "fails"])])
    table.columns[0].no_wrap = True
    for label in found.labels:
        places = [c.standing(label) for c in found.chapters]
        ran = sum(s is not None for s in places)
        cells = [percent(found.mean_area(label), 1) for _ in mean]
        if few:
            cells += ["—" if s is None else percent(s.area.mean, 1) + (" *" if s.among_best else "  ") for s in places]
        else:
            cells += [f"{n} of {ran}" for n in (bests(found)[label], len(failures(found, label)))]
        table.add_row(found.marked(label), *cells)
    console = Console()
    console.print(table)
    star = " * is among the best of its world." if few else ""
    notes = [f"\nAreas are shares of the ceiling's area.{star} {marks(found)}".rstrip()]
    notes += [f"{label} does not apply to {titles}: {why}" for label, titles, why in absent(found)]
    for line in notes:
        console.print(line, highlight=False, markup=False)
    console.print(f"\n{page}", highlight=False, soft_wrap=True)
