"""The command ``design``: the replay for a policy or for a limit on risk."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import (
    Gamma,
    Json,
    LearningOptions,
    LimitOptions,
    Model,
    Options,
    Out,
    app,
    check_page_folder,
    complain,
    echo,
    load_model,
    named,
    plain_table,
    print_policy,
    show_result,
)

if TYPE_CHECKING:
    from ..mdp import TabularMDP
    from ..theory.design import Design
    from ..views.designs import Learned, Shown

LEASTS = ("total", "largest")


@dataclass(frozen=True)
class Confirmation(LearningOptions):
    """The options of a confirmation by learning."""

    episodes: Annotated[int, typer.Option(help="Episodes per seed, with --seeds.")] = 100_000
    seeds: Annotated[int, typer.Option(help="Seeds to confirm it by learning; 0 for none.")] = 0


@app.command()
def design(
    model: Model,
    *,
    limit: LimitOptions,
    policy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Instead of a limit, a policy: a .json list of actions, one per state; -1 for any."
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="STATE",
            help="The state in which episodes start, or 'model' for the model's start distribution. Default: the map's start S; without a map, the model's.",
        ),
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="The least lead over other actions; default: one that learning finds."),
    ] = None,
    bold: Annotated[
        bool, typer.Option("--bold", help="Where needed, also replay the best outcomes of the policy's own pairs.")
    ] = False,
    least: Annotated[str, named(LEASTS, "What is least: the total replay, or the largest ρ.")] = "total",
    gamma: Gamma = None,
    learning: Confirmation,
    option: Options = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compute the replay whose limit has a given policy, or the best policy under a limit on risk.

    Few pairs are replayed, each with one outcome. With --out the learner is written to learner.json, for learn --learner and sweep.
    The exit code is 1 if no such replay exists.
    """
    from .. import _checks
    from .._files import write_atomic
    from ..views.designs import LEARNER, Shown, design_page
    from ..views.pages import write_page

    arguments, actions = learning.arguments(), None if policy is None else _actions(policy)
    _checks.whole("seeds", learning.seeds, 0)
    mdp = load_model(model, gamma, option)
    here = _started(mdp, start)
    check_page_folder(out)
    terms = {"margin": margin, "bold": bold, "least": least}
    plan = _designed(mdp, actions, start=here.start, **asdict(limit), **terms)
    shown = Shown(plan, here, _learned(plan, here, actions, arguments) if learning.seeds else None)
    page = None
    if out is not None:
        page = write_page(design_page(shown), out)
        write_atomic(out / LEARNER, json.dumps(plan.learner.to_dict(), indent=1) + "\n")
    learned = None if shown.learned is None else shown.learned._asdict()
    head = {"model": model, "gamma": mdp.gamma, "learned": learned}
    show_result(as_json, lambda: {**head, **plan.to_dict()}, lambda: _show(model, shown), page)


def _actions(file: Path) -> list[Any]:
    """The policy of a file."""
    from .. import _checks, _files

    found = _files.read_json("--policy", file)
    _checks.require(isinstance(found, list), "--policy", "hold a list of actions, one per state", found)
    return list(found)


def _started(mdp: TabularMDP, start: str | None) -> TabularMDP:
    """The model from the start of the episodes."""
    from .. import _checks

    if start == "model" or (start is None and mdp.layout is None):
        return mdp
    _checks.require(start is None or start.isdecimal(), "--start", "be a state or 'model'", start)
    return mdp.with_start(mdp.origin if start is None else int(start))


def _designed(mdp: TabularMDP, policy: list[Any] | None, **terms: Any) -> Design:
    """The design; exit code 1 if none exists."""
    from ..errors import Unreachable
    from ..theory.design import design as design_replay

    try:
        return design_replay(mdp, policy, **terms)
    except Unreachable as error:
        raise typer.Exit(complain(str(error), 1)) from None


def _learned(plan: Design, here: TabularMDP, given: list[Any] | None, arguments: dict[str, Any]) -> Learned:
    """Train, and count the seeds whose policy keeps the limit, or is the given one where its action matters."""
    import numpy as np

    from ..runs import learn
    from ..theory.design import matters
    from ..theory.risk import evaluate
    from ..views.designs import Learned

    runs = learn(plan.mdp, plan.learner, **arguments).whole()
    if plan.price is None:
        fixed = matters(plan.mdp) & (np.asarray(given) >= 0)
        met = (runs.policy == plan.policy)[:, fixed].all(1)
    else:
        policies, which = np.unique(runs.policy, axis=0, return_inverse=True)
        kept = np.array([plan.price.limit.met_by(evaluate(here, policy, quiet=True)) for policy in policies])
        met = kept[which.ravel()]
    return Learned(int(met.sum()), met.size, runs.episodes)


def _show(model: str, shown: Shown) -> None:
    from rich.console import Console

    from ..views.designs import PAIRS

    console, plan = Console(), shown.plan
    console.print(f"[bold]{shown.goal}[/] on {model}, γ = {plan.mdp.gamma:g}, {shown.start}", highlight=False)
    if plan.replays:
        table = plain_table(PAIRS, left=2)
        for row in shown.pairs():
            table.add_row(*row)
        console.print(table)
    console.print(f"{shown.replay}\n", highlight=False)
    header, rows = shown.prices()
    table = plain_table(header)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for line in filter(None, [shown.confirmation, *shown.notes]):
        echo(line)
    print_policy(console, "designed policy", plan.mdp, plan.policy)
