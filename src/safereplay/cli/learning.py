"""The commands that solve and learn: ``solve``, ``check``, ``tune``, ``learn``, ``sweep`` and ``compare``."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..catalog import LEARNERS, SCHEMES, WORLDS
from .common import (
    Episodes,
    ExplorationOptions,
    Gamma,
    Json,
    LearnerName,
    LearnerOptions,
    LearningOptions,
    LimitOptions,
    Model,
    Options,
    Out,
    SchemeOptions,
    V,
    app,
    check_page_folder,
    complain,
    echo,
    load_model,
    named,
    plain_table,
    policy_text,
    print_policy,
    show_result,
)

if TYPE_CHECKING:
    from ..arena.results import Comparison
    from ..learners import Learner
    from ..mdp import TabularMDP
    from ..runs import Runs
    from ..schedules import Exploration
    from ..theory.limits import Answer
    from ..theory.tuning import Plan

MATCHED = SchemeOptions(mixing="matched")
SHORT, LONG = LearningOptions(20_000, 5), LearningOptions(100_000)
WORLDS_ACROSS = 3  # the most worlds with a column each
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


@app.command()
def solve(
    model: Model,
    chosen: LearnerOptions,
    *,
    gamma: Gamma = None,
    exploring: ExplorationOptions,
    episodes: Episodes = 20_000,
    seeds: Annotated[int, typer.Option(help="Seeds to learn with, for the share of each limit; 0 for none.")] = 20,
    option: Options = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compute the exact limits of a learner, of plain Q-learning, and of the paper's mapping."""
    from ..views.pages import solve_page, write_page

    learner, exploration = chosen.build(), exploring.build()
    mdp = load_model(model, gamma, option)
    check_page_folder(out)
    answers = _answers(mdp, learner, exploration, episodes, seeds)
    page = None if out is None else write_page(solve_page(mdp, f"{learner.describe()} on {model}", answers), out)
    head = {"model": model, "gamma": mdp.gamma, "learner": learner.to_dict()}
    show_result(
        as_json,
        lambda: {**head, "limits": [a.to_dict() for a in answers]},
        lambda: _show_answers(mdp, model, learner, answers),
        page,
    )


def _answers(mdp: TabularMDP, learner: Learner, exploration: Exploration, episodes: int, seeds: int) -> list[Answer]:
    """Plain Q-learning, and all limits of the learner."""
    from ..learners import QLearning, ReplayQLearning
    from ..theory.limits import answer, exact, fixed_point, grouped

    name, plain = learner.describe(), answer(mdp, "Q-learning", exact(mdp, QLearning()))
    if isinstance(learner, QLearning):
        return [plain]
    if not isinstance(learner, ReplayQLearning) or learner.mixing != "literal" or learner.v == 0.0:
        return [plain, answer(learner.judging_model(mdp), name, exact(mdp, learner))]
    scheme, v = learner.scheme, learner.v
    found = fixed_point(mdp, scheme, v, "self", exploration=exploration, episodes=episodes, seeds=seeds, quiet=False)
    paper = answer(mdp, "the paper's mapping", fixed_point(mdp, scheme, v))
    return [plain, *grouped(mdp, "Algorithm 1", found), paper]


def _show_answers(mdp: TabularMDP, model: str, learner: Learner, answers: list[Answer]) -> None:
    from rich.console import Console

    from ..verdicts import verdict
    from ..views.pages import how, number

    console = Console()
    console.print(f"[bold]{learner.describe()}[/] on {model}, γ = {mdp.gamma:g}: exact limits", highlight=False)
    counted = any(a.learned is not None for a in answers)
    table = plain_table(["limit", *["seeds"] * counted, "path", "mean", "std", "CVaR₁₀", "P(unsafe)", "never"])
    table.columns[0].no_wrap = True
    for a in answers:
        seeds = ["" if a.learned is None else f"{a.learned:.0%}"] * counted
        numbers = [number(x) for x in (a.risk.mean, a.risk.std, a.risk.cvar(0.1))]
        chances = [f"{a.risk.p_unsafe:.2%}", f"{a.risk.p_never:.0%}"]
        table.add_row(a.name, *seeds, verdict(a.mdp, a.policy), *numbers, *chances)
    console.print(table)
    for said in sorted({how(a.risk) for a in answers} - {"exact"}):
        console.print(said, highlight=False)
    for a in answers:
        print_policy(console, a.name, a.mdp, a.policy)


@app.command()
def check(
    model: Model,
    learner: LearnerName = "replay",
    v: V = None,
    *,
    replay: SchemeOptions,
    gamma: Gamma = None,
    learning: LearningOptions = SHORT,
    option: Options = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Check the paper's conditions: step sizes, exploration, w_t, contraction, Assumption 1, Theorem 2.

    For other learners than replay: the schedules, whether the weights of its replay converge, and the limit.
    """
    from .. import _checks
    from ..theory.conditions import check as check_conditions
    from ..theory.conditions import prospects
    from ..views.pages import check_page, write_page

    arguments = learning.arguments()
    if learner != "replay":
        other = LearnerOptions(learner, v, **asdict(replay)).build()
        _checks.require(out is None, "--out", "go with --learner replay", str(out))
        schedules = (arguments["exploration"], arguments["step_size"])
        found = prospects(load_model(model, gamma, option), other, *schedules)
        show_result(as_json, lambda: {"model": model, **found.to_dict()}, lambda: echo(found))
        return
    scheme = replay.build()
    mdp = load_model(model, gamma, option)
    check_page_folder(out)
    report = check_conditions(mdp, scheme, 0.5 if v is None else v, mixing=replay.mixing, **arguments)
    page = None if out is None else write_page(check_page(mdp, report), out)
    head = {"model": model, "gamma": mdp.gamma}
    show_result(as_json, lambda: {**head, **report.to_dict()}, lambda: echo(report), page)


@app.command()
def tune(
    model: Model,
    *,
    limit: LimitOptions,
    replay: SchemeOptions = MATCHED,
    gamma: Gamma = None,
    origin: Annotated[
        bool, typer.Option("--origin", help="Episodes start at the map's start S, not from the start distribution.")
    ] = False,
    learning: LearningOptions = LONG,
    option: Options = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Find the gentlest replay that keeps a limit on risk; show its cost and the best of all policies.

    The exit code is 1 if no setting keeps the limit.
    """
    from ..theory.tuning import tune as tune_replay
    from ..views.pages import tune_page, write_page

    arguments, scheme = learning.arguments(), replay.build()
    mdp = load_model(model, gamma, option)
    check_page_folder(out)
    plan = tune_replay(
        mdp,
        scheme,
        **asdict(limit),
        start=mdp.origin if origin else None,
        mixing=replay.mixing,
        **arguments,
    )
    page = None if out is None else write_page(tune_page(mdp, plan), out)
    head = {"model": model, "gamma": mdp.gamma}
    show_result(as_json, lambda: {**head, **plan.to_dict()}, lambda: _show_plan(mdp, model, plan), page)
    if not plan.meets:
        raise typer.Exit(complain(f"no replay setting keeps {plan.limit}", 1))


def _show_plan(mdp: TabularMDP, model: str, plan: Plan) -> None:
    from rich.console import Console

    echo(f"{model}, γ = {mdp.gamma:g}\n{plan}")
    gentlest = {p.policy: p for p in sorted(plan.frontier, key=lambda p: (-p.v, -abs(p.beta or 0.0))) if p.pareto}
    table = plain_table(["from v", "β", "mean", "std", f"CVaR {plan.limit.alpha:.0%}", "P(unsafe)", ""], left=0)
    for p in sorted(gentlest.values(), key=lambda p: p.mean):
        beta = "" if p.beta is None else f"{p.beta:g}"
        numbers = [f"{x:.3f}" for x in (p.mean, p.std, p.cvar)]
        table.add_row(f"{p.v:.4f}", beta, *numbers, f"{p.p_unsafe:.3%}", "keeps it" if p.meets else "")
    console = Console()
    console.print("\n[bold]the frontier[/]: limits of replay that are not dominated", highlight=False)
    console.print(table)
    print_policy(console, plan.learner.describe(), mdp, plan.policy)


@app.command()
def learn(
    model: Model,
    chosen: LearnerOptions,
    *,
    gamma: Gamma = None,
    learning: LearningOptions,
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

    learner = chosen.build(t0, c0)
    _checks.require(not xray or learner.replay is not None, "--xray", "go with a learner that replays", chosen.learner)
    mdp = load_model(model, gamma, option)
    runs = run_learner(mdp, learner, **learning.arguments(), max_steps=max_steps)
    with stopping(lambda: f"{len(runs.seeds)} of {learning.seeds} seeds are finished, but not shown"):
        shown = (model, runs.judged_on, runs, xray)
        show_result(as_json, lambda: _as_json(*shown), lambda: _show(*shown))
    if runs.interrupted:
        raise typer.Exit(complain(f"stopped: {len(runs.seeds)} of {learning.seeds} seeds are finished and shown", 1))


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
        f"[bold]{runs.learner.describe()}[/] on {model}, γ = {mdp.gamma:g}, {runs.episodes:,} episodes", highlight=False
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
    there = f", {found.already:,} were done before" if found.already else ""
    show_result(as_json, found.to_dict, lambda: echo(f"{found.done:,} runs done{there}: {found.folder}"))
    if found.interrupted:
        left = found.runs - found.done - found.already
        message = f"stopped: {left:,} of {found.runs:,} runs are left; run the same command to continue"
        raise typer.Exit(complain(message, 1))


@app.command()
def compare(
    preset: Annotated[
        str, typer.Option(help="quick: the paper's contestants and grids; paper: all systems on all worlds.")
    ] = "quick",
    learner: Annotated[
        list[str] | None, named(LEARNERS, "A learner of the catalog, over its dial; repeatable.")
    ] = None,
    scheme: Annotated[
        list[str] | None, named(SCHEMES, "A scheme of the catalog, replayed in both mixings over v; repeatable.")
    ] = None,
    world: Annotated[
        list[str] | None, named(WORLDS, "A world of the catalog, a map file or a Gymnasium id; repeatable.", "MODEL")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of seeds, at least 20.")] = 20,
    steps: Annotated[int | None, typer.Option(help="Steps of the MDP per run; default: set by the world.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of results and of the page.")] = Path("compare"),
    threads: Annotated[int | None, typer.Option(help="Workers; default: one per core.")] = None,
    as_json: Json = False,
) -> None:
    """Compare systems: return against risk, areas under the ceiling, sample cost, useful bands. It can be stopped and continued."""
    if "numpy" not in sys.modules:  # limit linear algebra to one thread, since learning uses all cores
        for name in ONE_THREAD:
            os.environ.setdefault(name, "1")
    from .. import _checks
    from ..arena.report import compare as run_comparison
    from ..arena.report import planned

    if threads is not None:
        _checks.whole("threads", threads, 1)
    plan = planned(learner, scheme, world, seeds, steps, preset)
    found, page = run_comparison(plan, out, threads=threads)
    show_result(as_json, lambda: {**found.to_dict(), "page": str(page)}, lambda: _show_comparison(found, page))


def _show_comparison(found: Comparison, page: Path) -> None:
    """All contestants with their areas on each world, or with counts if there are many worlds; then those that do not apply."""
    from rich.console import Console

    from ..arena.results import absent, bests, failures, marks, rule
    from ..views.intervals import percent

    means = {} if len(found.chapters) == 1 else found.means
    few = len(found.chapters) + max(len(means) - 1, 0) <= WORLDS_ACROSS  # a second mean takes the place of a world
    table = plain_table(
        ["contestant", *means, *([c.title for c in found.chapters] if few else ["among best", "fails"])]
    )
    table.columns[0].no_wrap = True
    for label in found.labels:
        places = [c.standing(label) for c in found.chapters]
        ran = sum(s is not None for s in places)
        cells = [percent(found.mean_area(label, some), 1) for some in means.values()]
        if few:
            cells += ["—" if s is None else percent(s.area.mean, 1) + (" *" if s.among_best else "  ") for s in places]
        else:
            cells += [f"{n} of {ran}" for n in (bests(found)[label], len(failures(found, label)))]
        table.add_row(found.marked(label), *cells)
    if found.designed:
        areas = [percent(c.designed_area, 1) + "  " for c in found.chapters] if few else ["", ""]
        table.add_row()
        table.add_row("designed replay", *(percent(found.mean_designed(some), 1) for some in means.values()), *areas)
    console = Console()
    console.print(table)
    star = " * is among the best of its world." if few else ""
    notes = [f"\nAreas are shares of the ceiling's area.{star} {marks(found)}".rstrip()]
    notes += [rule(found)] if len(means) > 1 else []
    if found.designed:
        notes.append(
            "Designed replay is no contestant: it is what replay could do at best, with weights computed from the model."
        )
    notes += [f"{label} does not apply to {titles}: {why}" for label, titles, why in absent(found)]
    for line in notes:
        console.print(line, highlight=False, markup=False)
    console.print(f"\n{page}", highlight=False, soft_wrap=True)
