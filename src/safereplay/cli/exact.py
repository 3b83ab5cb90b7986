"""``solve``, ``check`` and ``tune``: exact limits, the paper's conditions, and the replay that keeps a limit on risk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

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
    Out,
    SchemeName,
    Seeds,
    StepPower,
    Temperature,
    V,
    app,
    build_exploration,
    build_learner,
    build_scheme,
    check_page_folder,
    complain,
    echo,
    load_model,
    parse_options,
    plain_table,
    policy_text,
    print_json,
)

if TYPE_CHECKING:
    from ..learners import Learner
    from ..mdp import TabularMDP
    from ..schedules import Exploration
    from ..theory.limits import Answer
    from ..theory.tuning import Plan

Tilt = Annotated[float | None, typer.Option("--beta", help="Tilt β of the replay; default: the scheme's.")]


@app.command()
def solve(
    model: Model,
    learner: LearnerName = "replay",
    v: V = None,
    beta: Beta = None,
    kappa: Kappa = None,
    scheme: SchemeName = "variance",
    dial: Dials = None,
    mixing: Mixing = "literal",
    gamma: Gamma = None,
    epsilon: Epsilon = 0.1,
    epsilon_power: EpsilonPower = 0.0,
    temperature: Temperature = None,
    episodes: Episodes = 20_000,
    seeds: Annotated[int, typer.Option(help="Seeds to learn with, for the share of each limit; 0 for none.")] = 20,
    option: Options = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compute the exact limits of a learner, of plain Q-learning, and of the paper's mapping."""
    from ..views.pages import solve_page, write_page

    chosen = build_learner(learner, v, beta, kappa, mixing, scheme=scheme, dials=dial)
    exploration = build_exploration(epsilon, epsilon_power, temperature)
    mdp = load_model(model, gamma, option)
    check_page_folder(out)
    answers = _answers(mdp, chosen, exploration, episodes, seeds)
    if out is not None:
        page = write_page(solve_page(mdp, f"{chosen.describe()} on {model}", answers), out)
    if as_json:
        shown = {"model": model, "gamma": mdp.gamma, "learner": chosen.to_dict()}
        print_json({**shown, "limits": [answer.to_dict() for answer in answers]})
        return
    _show_answers(mdp, model, chosen, answers)
    if out is not None:
        echo(f"\n{page}")


def _answers(mdp: TabularMDP, learner: Learner, exploration: Exploration, episodes: int, seeds: int) -> list[Answer]:
    """Plain Q-learning, and all limits of the learner."""
    from ..learners import QLearning, ReplayQLearning
    from ..theory.limits import answer, exact, fixed_point, grouped

    name, plain = learner.describe(), answer(mdp, "Q-learning", exact(mdp, QLearning()))
    if isinstance(learner, QLearning):
        return [plain]
    if not isinstance(learner, ReplayQLearning) or learner.mixing == "matched" or learner.v == 0.0:
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
        text = policy_text(a.mdp, a.policy)
        if text and len(text) < 4_000:
            console.print(f"\n{a.name}\n{text}", highlight=False, markup=False)


@app.command()
def check(
    model: Model,
    learner: LearnerName = "replay",
    v: V = None,
    scheme: SchemeName = "variance",
    beta: Tilt = None,
    dial: Dials = None,
    mixing: Mixing = "literal",
    gamma: Gamma = None,
    episodes: Episodes = 20_000,
    seeds: Seeds = 5,
    epsilon: Epsilon = 0.1,
    epsilon_power: EpsilonPower = 0.0,
    temperature: Temperature = None,
    step_power: StepPower = 0.6,
    option: Options = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Check the paper's conditions: step sizes, exploration, w_t, contraction, Assumption 1, Theorem 2.

    For other learners than replay: the schedules, whether the weights of its replay converge, and the limit.
    """
    from .. import _checks
    from ..schedules import PowerStep
    from ..theory.conditions import check as check_conditions
    from ..theory.conditions import prospects
    from ..views.pages import check_page, write_page

    exploration = build_exploration(epsilon, epsilon_power, temperature)
    if learner != "replay":
        other = build_learner(learner, v, beta, None, mixing, scheme=scheme, dials=dial)
        _checks.require(out is None, "--out", "go with --learner replay", str(out))
        found = prospects(load_model(model, gamma, option), other, exploration, PowerStep(step_power))
        if as_json:
            print_json({"model": model, **found.to_dict()})
        else:
            echo(str(found))
        return
    chosen = build_scheme(scheme, beta, parse_options(dial or [], "--dial"))
    mdp = load_model(model, gamma, option)
    check_page_folder(out)
    report = check_conditions(
        mdp,
        chosen,
        0.5 if v is None else v,
        mixing=mixing,
        exploration=exploration,
        step_size=PowerStep(step_power),
        episodes=episodes,
        seeds=seeds,
    )
    if out is not None:
        page = write_page(check_page(mdp, report), out)
    if as_json:
        print_json({"model": model, "gamma": mdp.gamma, **report.to_dict()})
        return
    echo(str(report))
    if out is not None:
        echo(f"\n{page}")


@app.command()
def tune(
    model: Model,
    max_p_unsafe: Annotated[float | None, typer.Option(help="The largest P(unsafe).")] = None,
    min_cvar: Annotated[float | None, typer.Option(help="The smallest CVaR, the mean of the worst episodes.")] = None,
    max_std: Annotated[float | None, typer.Option(help="The largest standard deviation of the return.")] = None,
    alpha: Annotated[float, typer.Option(help="The share of worst episodes for CVaR.")] = 0.1,
    scheme: SchemeName = "variance",
    beta: Tilt = None,
    dial: Dials = None,
    mixing: Mixing = "matched",
    gamma: Gamma = None,
    origin: Annotated[
        bool,
        typer.Option("--origin", help="Episodes start at the map's start S, not from the start distribution."),
    ] = False,
    episodes: Episodes = 100_000,
    seeds: Seeds = 20,
    epsilon: Epsilon = 0.1,
    epsilon_power: EpsilonPower = 0.0,
    temperature: Temperature = None,
    step_power: StepPower = 0.6,
    option: Options = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Find the gentlest replay that keeps a limit on risk; show its cost and the best of all policies.

    The exit code is 1 if no setting keeps the limit.
    """
    from ..schedules import PowerStep
    from ..theory.tuning import tune as tune_replay
    from ..views.pages import tune_page, write_page

    exploration = build_exploration(epsilon, epsilon_power, temperature)
    chosen = build_scheme(scheme, beta, parse_options(dial or [], "--dial"))
    mdp = load_model(model, gamma, option)
    check_page_folder(out)
    plan = tune_replay(
        mdp,
        chosen,
        max_p_unsafe=max_p_unsafe,
        min_cvar=min_cvar,
        max_std=max_std,
        alpha=alpha,
        start=mdp.origin if origin else None,
        mixing=mixing,
        episodes=episodes,
        seeds=seeds,
        exploration=exploration,
        step_size=PowerStep(step_power),
    )
    if out is not None:
        page = write_page(tune_page(mdp, plan), out)
    if as_json:
        print_json({"model": model, "gamma": mdp.gamma, **plan.to_dict()})
    else:
        _show_plan(mdp, model, plan)
        if out is not None:
            echo(f"\n{page}")
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
    text = policy_text(mdp, plan.policy)
    if text and len(text) < 4_000:
        console.print(f"\n{plan.learner.describe()}\n{text}", highlight=False, markup=False)
