"""The command line: parse, call, show.

Exit codes: 0 done, 1 failed while running, 2 bad input, which gets one line on standard error and never a traceback.
Everything heavy is imported inside the command that needs it, so that ``--help`` answers at once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._progress import Bar

if TYPE_CHECKING:
    from .learners import Learner
    from .runs import Runs
    from .schedules import Exploration

app = typer.Typer(
    help="Shape the policy an RL agent learns by choosing what it replays.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

#: What --learner takes.
LEARNERS = ("replay", "q", "mihatsch", "gaskett", "worst-case", "worst-transition")
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; its exit code."""
    from .errors import SafeReplayError

    try:
        result = app(arguments, standalone_mode=False, prog_name="safereplay")
        return result if isinstance(result, int) else 0
    except SafeReplayError as error:
        return _complain(str(error), 2)
    except KeyboardInterrupt:
        return _complain("stopped", 1)
    except BrokenPipeError:
        return 1
    except Exception as error:
        if hasattr(error, "format_message"):  # the parser's own: unknown option, missing value
            return _complain(error.format_message(), 2)
        return _complain(f"{type(error).__name__}: {error}", 1)


def _complain(message: str, code: int) -> int:
    sys.stderr.write("safereplay: " + " ".join(message.split()) + "\n")
    return code


def _version(wanted: bool) -> None:
    if wanted:
        from . import __version__

        typer.echo(f"safereplay {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    pass


# -- reproduce --------------------------------------------------------------------------------------------------------


@app.command()
def reproduce(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("reproduction"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A smaller version: half a minute, and 20 s more on the first run, to compile."),
    ] = False,
) -> None:
    """Every experiment, figure and claim of the paper: DIR/report.html, report.md, claims.json, figures/."""
    from .paper.reproduce import reproduce as run_everything

    with _Stages() as stages:
        verdicts = run_everything(out, quick, stages.tell)
    _show_claims(verdicts)
    typer.echo(f"\n{out / 'report.html'}")


class _Stages(Bar):
    """One bar over all stages on a terminal; elsewhere one line a stage."""

    def __init__(self) -> None:
        super().__init__("", total=1.0)
        self._last = ""

    def tell(self, label: str, done: float) -> None:
        """Hear of a stage."""
        self.update(done, label)
        if label != self._last and done < 1.0 and not sys.stderr.isatty():
            sys.stderr.write(f"{done:4.0%}  {label}\n")
        self._last = label


def _show_claims(verdicts: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("", "claim", "grid", "observed"):
        table.add_column(column)
    for v in verdicts:
        table.add_row("[green]holds[/]" if v.holds else "[red]does not hold[/]", v.claim, v.grid, v.observed)
    Console().print(table)


# -- learn ------------------------------------------------------------------------------------------------------------


@app.command()
def learn(
    model: Annotated[str, typer.Argument(help="volatile, cliff, a map file, a saved model, or a Gymnasium id.")],
    learner: Annotated[str, typer.Option(help="One of " + ", ".join(LEARNERS) + ".")] = "replay",
    v: Annotated[float, typer.Option(help="Probability of a replay, in [0, 1).")] = 0.5,
    beta: Annotated[
        float | None, typer.Option(help="Tilt of replay (default 5), or Gaskett's β (default 0.2).")
    ] = None,
    kappa: Annotated[float, typer.Option(help="κ of Mihatsch & Neuneier, in (−1, 1).")] = 0.6,
    mixing: Annotated[str, typer.Option(help="literal (the paper's) or matched.")] = "literal",
    gamma: Annotated[float | None, typer.Option(help="Discount; default the model's own.")] = None,
    episodes: Annotated[int, typer.Option(help="Episodes a seed.")] = 50_000,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 20,
    epsilon: Annotated[float, typer.Option(help="ε of ε-greedy.")] = 0.1,
    epsilon_power: Annotated[
        float, typer.Option(help="ε, or the temperature, falls as n(s)^−power; 0.5 is GLIE.")
    ] = 0.0,
    temperature: Annotated[float | None, typer.Option(help="Explore by softmax at this temperature instead.")] = None,
    step_power: Annotated[float, typer.Option(help="α = n(s,a)^−power.")] = 0.6,
    t0: Annotated[int, typer.Option("--T0", help="Iterations that only explore.")] = 1,
    c0: Annotated[
        float | None, typer.Option(help="Initial Q; default 0, and above every return for worst-case.")
    ] = None,
    max_steps: Annotated[int, typer.Option(help="Steps before an episode is cut off.")] = 1_000,
    option: Annotated[
        list[str] | None, typer.Option("--option", "-o", help="KEY=VALUE for the model, as slip=0.2; repeatable.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn a policy over many seeds, and show which way it goes and what it risks."""
    from . import _checks
    from .runs import learn as run_learner
    from .schedules import PowerStep
    from .sources import model_from

    _checks.choice("learner", learner, LEARNERS)
    mdp = model_from(model, gamma, _options(option or []))
    runs = run_learner(
        mdp,
        _learner(learner, v, beta, kappa, mixing, t0, c0),
        episodes,
        seeds,
        _exploration(epsilon, epsilon_power, temperature),
        PowerStep(step_power),
        max_steps=max_steps,
    )
    if as_json:
        typer.echo(json.dumps(_as_json(model, runs), ensure_ascii=False))
    else:
        _show_runs(model, runs)
    if runs.interrupted:
        _complain(f"stopped: {len(runs.seeds)} of {seeds} seeds are finished and shown", 1)
        raise typer.Exit(1)


def _learner(name: str, v: float, beta: float | None, kappa: float, mixing: str, t0: int, c0: float | None) -> Learner:
    from . import _checks, learners
    from .schemes import VarianceReplay

    _checks.between("v", v, "[0, 1)")  # checked whether this learner uses them or not
    _checks.between("kappa", kappa, "(-1, 1)")
    _checks.choice("mixing", mixing, learners.MIXINGS)
    common: dict[str, Any] = {"T0": t0} | ({} if c0 is None else {"c0": c0})
    if name == "replay":
        return learners.ReplayQLearning(VarianceReplay(5.0 if beta is None else beta), v, mixing, **common)
    if name == "mihatsch":
        return learners.RiskSensitive(kappa, **common)
    if name == "gaskett":
        return learners.Pessimistic(0.2 if beta is None else beta, **common)
    plain = {"q": learners.QLearning, "worst-case": learners.WorstCase, "worst-transition": learners.WorstTransition}
    return plain[name](**common)


def _exploration(epsilon: float, power: float, temperature: float | None) -> Exploration:
    from .schedules import EpsilonGreedy, Softmax

    return EpsilonGreedy(epsilon, power) if temperature is None else Softmax(temperature, power)


def _options(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE pairs, each value as JSON if it is, else as text."""
    from . import _checks

    options: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        _checks.require(bool(equals and key), "--option", "be KEY=VALUE", pair)
        try:
            options[key] = json.loads(value.lower() if value.lower() in ("true", "false") else value)
        except json.JSONDecodeError:
            options[key] = value
    return options


def _as_json(model: str, runs: Runs) -> dict[str, Any]:
    from .theory.risk import evaluate

    risks = [evaluate(runs.mdp, policy, start=runs.mdp.origin) for policy in runs.policy]
    return {
        "model": model,
        "gamma": runs.mdp.gamma,
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


def _show_runs(model: str, runs: Runs) -> None:
    from collections import Counter

    from rich.console import Console
    from rich.table import Table

    from .theory.risk import evaluate

    console = Console()
    console.print(
        f"[bold]{runs.learner.describe()}[/] on {model}, γ = {runs.mdp.gamma:g}, {runs.episodes:,} episodes",
        highlight=False,
    )
    table = Table(box=None, pad_edge=False)
    for column in ("path", "seeds", "mean return", "std", "CVaR₁₀", "P(unsafe)", "P(never ends)"):
        table.add_column(column, justify="left" if column == "path" else "right")
    for verdict, count in Counter(runs.verdicts).most_common():
        risk = evaluate(runs.mdp, runs.policy[runs.verdicts.index(verdict)], start=runs.mdp.origin)
        numbers = [f"{x:.2f}" for x in (risk.mean, risk.std, risk.cvar(0.1))]
        table.add_row(verdict, f"{count} of {len(runs.seeds)}", *numbers, f"{risk.p_unsafe:.2%}", f"{risk.p_never:.0%}")
    console.print(table)
    if runs.mdp.layout is not None:
        usual = Counter(runs.verdicts).most_common(1)[0][0]
        console.print("\n" + policy_text(runs, runs.verdicts.index(usual)), highlight=False)


def policy_text(runs: Runs, k: int) -> str:
    """Run k's policy on its grid as text: arrows on the path from the origin are heavy."""
    from .verdicts import path

    layout = runs.mdp.layout
    if layout is None:
        return ""
    on_path = set(path(runs.mdp, runs.policy[k]).states)
    rows = [list(line) for line in layout.rows]
    for s, (i, j) in enumerate(layout.cells):
        if not runs.mdp.is_terminal[s]:
            rows[i][j] = ("⬆➡⬇⬅" if s in on_path else "↑→↓←")[int(runs.policy[k][s])]
    return "\n".join("  " + " ".join(row) for row in rows)


# -- bench ------------------------------------------------------------------------------------------------------------


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions and sizes.")] = False,
    as_json: Json = False,
) -> None:
    """Updates a second of each learner on one core, beside plain Python, and how cost grows with the pairs."""
    from rich.console import Console

    from .bench import run_bench, scaling_table, table

    with _Stages() as stages:
        report = run_bench(quick, lambda done, label: stages.tell(label, done))
    if as_json:
        typer.echo(report.to_json())
    else:
        Console().print(table(report.rows), "", scaling_table(report.scaling))
