"""``learn``: a policy over many seeds, and what it risks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
    SchemeName,
    Seeds,
    StepPower,
    Temperature,
    V,
    app,
    build_exploration,
    build_learner,
    complain,
    load_model,
    plain_table,
    policy_text,
    print_json,
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
    t0: Annotated[int, typer.Option("--T0", help="Iterations that only explore.")] = 1,
    c0: Annotated[
        float | None, typer.Option(help="Initial Q; default 0, and above every return for worst-case.")
    ] = None,
    max_steps: Annotated[int, typer.Option(help="Steps before an episode is cut off.")] = 1_000,
    xray: Annotated[bool, typer.Option("--xray", help="Show what was replayed most, and what it did.")] = False,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Learn a policy over many seeds, and show which way it goes and what it risks."""
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
            print_json(_as_json(model, runs.stand, runs, xray))
        else:
            _show(model, runs.stand, runs, xray)
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
