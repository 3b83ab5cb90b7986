"""``python -m studies.icu``: what plain and shaped replay learn from few patients of ICU-Sepsis.

Each learner sees the same number of episodes, with the same exploration. Its greedy policy is evaluated exactly: P(death)
from the start of the model, by linear equations. The table has means over seeds with 95 % bootstrap intervals, and the
difference of each learner from Q-learning, seed by seed.

Exit codes: 0 done, 1 stopped by Ctrl-C, 2 bad input or the extra ``icu`` is missing, with one line on standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
import typer
from typer.core import TyperCommand

import safereplay as sr
from safereplay import _checks
from safereplay._checks import Floats, Ints
from safereplay.cli.common import Stoppable, run_app
from safereplay.views.document import Table, to_markdown
from safereplay.views.intervals import Estimate, estimates, points, within
from safereplay.worlds import icu_sepsis

SCHEMES = {
    "uniform": sr.UniformReplay(),
    "variance": sr.VarianceReplay(),
    "error": sr.ErrorReplay(),
    "return": sr.ReturnReplay(),
}
EPISODES = (100, 1_000, 10_000)
PART = 4  # seeds at a time: a run of replay takes 100 MB here

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Study(Stoppable, TyperCommand):
    pass


def learners(v: float) -> Iterator[tuple[str, sr.Learner]]:
    """Q-learning, then every scheme in both mixings, by label."""
    yield "Q-learning", sr.QLearning()
    for name, scheme in SCHEMES.items():
        yield f"{name} replay", sr.ReplayQLearning(scheme, v=v)
        yield f"{name} replay (matched)", sr.ReplayQLearning(scheme, v=v, mixing="matched")


def deaths(mdp: sr.TabularMDP, learner: sr.Learner, episodes: Sequence[int], seeds: int, epsilon: float) -> Floats:
    """P(death) of the greedy policies, [seeds, episodes]."""
    found = []
    for first in range(0, seeds, PART):
        part = range(first, min(first + PART, seeds))
        walk, looks = sr.EpsilonGreedy(epsilon), list(episodes)
        runs = sr.learn(mdp, learner, max(looks), part, walk, snapshots=looks, quiet=True).whole()
        assert runs.snapshots is not None
        found += [[p_death(mdp, policy) for policy in run] for run in runs.snapshots.policy]
    return np.array(found)


def p_death(mdp: sr.TabularMDP, policy: Floats | Ints) -> float:
    """P(death) of a policy, [S] or [S, A], from the model's start."""
    return sr.evaluate(mdp, policy, quiet=True).p_unsafe


def over_seeds(values: Floats) -> list[Estimate]:
    """The mean of each column, with its interval over the rows."""
    seeds, n = values.shape
    group, unit = np.tile(np.arange(n), seeds), np.repeat(np.arange(seeds), n)
    return estimates(values.ravel(), group, unit, n)


def table(found: dict[str, Floats], episodes: Sequence[int]) -> Table:
    """A row per learner: P(death) after each number of episodes, and the difference from the first learner."""
    header = ["learner"]
    for n in episodes:
        header += [f"P(death), {n:,} episodes", "minus Q-learning"]
    rows, plain = [], next(iter(found.values()))
    for label, values in found.items():
        row = [label]
        for own, less in zip(over_seeds(values), over_seeds(values - plain), strict=True):
            row += [within(own, 2), points(less, 2) if values is not plain else ""]
        rows.append(row)
    return Table(header, rows)


@app.command(cls=_Study, context_settings={"help_option_names": ["-h", "--help"]})
def study(
    seeds: Annotated[int, typer.Option(help="Seeds per learner.")] = 20,
    episodes: Annotated[
        list[int] | None,
        typer.Option(help="Episodes after which policies are evaluated; repeatable; default: 100, 1000 and 10000."),
    ] = None,
    epsilon: Annotated[float, typer.Option(help="ε of the exploration.")] = 0.1,
    v: Annotated[float, typer.Option(help="The share of replays.")] = 0.5,
) -> None:
    """Learn from few patients: plain against shaped replay on ICU-Sepsis, with P(death) evaluated exactly."""
    seeds = _checks.whole("seeds", seeds, 2)
    looks = sorted({_checks.whole("episodes", n, 1) for n in episodes or EPISODES})
    mdp = icu_sepsis()
    alike = np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)
    first, best = np.zeros(mdp.n_states, np.int64), sr.exact(mdp, sr.QLearning()).argmax(1)
    known = {"random": alike, "always the first action": first, "best": best}
    for name, policy in known.items():
        typer.echo(f"{name}: P(death) = {p_death(mdp, policy):.2%}")
    found = {}
    for label, learner in learners(v):
        found[label] = deaths(mdp, learner, looks, seeds, epsilon)
        typer.echo(f"{label} is done", err=True)
    typer.echo(to_markdown("ICU-Sepsis", [table(found, looks)]))


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    return run_app(app, arguments, "python -m studies.icu")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
