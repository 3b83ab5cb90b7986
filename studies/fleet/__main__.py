"""``python -m studies.fleet``: train the study's networks, or those that are missing, and write its page.

    DIR/runs/*.parquet             one row per network
    DOCS/fleet.md, DOCS/img/       the page and its pictures

Exit codes: 0 done, 1 if Ctrl-C stopped it, 2 bad input, with one line on standard error.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.core import TyperCommand

from safereplay.cli.common import Stoppable, run_app

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Study(Stoppable, TyperCommand):
    pass


@app.command(cls=_Study, context_settings={"help_option_names": ["-h", "--help"]})
def study(
    out: Annotated[Path, typer.Option(help="The folder of the networks.")] = Path("fleet-study"),
    docs: Annotated[
        Path | None, typer.Option(help="The folder of fleet.md and its pictures; default: --out.", show_default=False)
    ] = None,
    worlds: Annotated[str | None, typer.Option(help="Some worlds, separated by commas.", show_default=False)] = None,
    families: Annotated[
        str | None, typer.Option(help="Some families, separated by commas.", show_default=False)
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds per setting.")] = 500,
    steps: Annotated[int, typer.Option(help="Steps of training; 0 for each world's default.")] = 0,
    width: Annotated[
        int | None, typer.Option(help="Networks per program; default 16 on a CPU, 2048 on a GPU.", show_default=False)
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Start no new batch after this many seconds.", show_default=False)
    ] = None,
    sb3: Annotated[
        Path, typer.Option(help="The folder of the study with Stable-Baselines3, to compare with; if it exists.")
    ] = Path("deep-study"),
    report_only: Annotated[bool, typer.Option("--report-only", help="Only write the page.")] = False,
) -> int:
    """Thousands of networks: DQN, shaped replay, QR-DQN and static CVaR in JAX. Networks that are there are not trained again."""
    import safereplay.jax  # noqa: F401  says which extra is missing
    from safereplay import _checks

    from . import report
    from . import study as it

    def named(text: str | None, all_of: tuple[str, ...]) -> tuple[str, ...]:
        return all_of if text is None else tuple(x.strip() for x in text.split(",") if x.strip())

    preset = it.Preset(named(worlds, it.Preset().worlds), seeds, steps).checked()
    chosen = [_checks.choice("family", x, it.FAMILIES) for x in named(families, it.FAMILIES)]
    planned = it.plan(preset, chosen)
    if not report_only:
        import jax

        usual = 16 if jax.default_backend() == "cpu" else 2048
        left = it.run(planned, out, usual if width is None else width, budget)
        if left:
            typer.echo(f"{left:,} networks left for later: run the same command to continue")
    page = report.write_page(out, docs or out, sb3, steps)
    typer.echo(page if page is not None else f"no page: {out} has no networks of the plain learner yet")
    return 0


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    flags = f"--xla_force_host_platform_device_count={os.cpu_count() or 1} --xla_cpu_multi_thread_eigen=false"
    os.environ.setdefault("XLA_FLAGS", flags)  # on a CPU, every core is a device with its own networks
    return run_app(app, arguments, "python -m studies.fleet")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
