"""Regenerates the pages and pictures of docs/ that come from the code: ``make docs``."""

import importlib
import inspect
import json
import pkgutil
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import safereplay

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
#: Where `make reproduce` leaves what it found, and the pictures of it that the site shows.
FOUND = DOCS.parent / "reproduction"
SHOWN = ("figure-1", "figure-2", "kappa", "bands", "curves", "random-models")
REF = re.compile(r"^\s*Ref: Szlak & Shamir \(2021\), (.+?)\.?$", re.MULTILINE)
#: The order in which the paper has them.
ORDER = [
    "Section 2",
    "Section 3",
    "Algorithm",
    "Eq.",
    "Lemma",
    "Theorem",
    "Section 4",
    "Assumption",
    "Section 5",
    "Figure",
]


def documented() -> dict[str, str]:
    """Every module, and every class and function defined in it, with its docstring."""
    found = {}
    for info in pkgutil.walk_packages(safereplay.__path__, "safereplay."):
        module = importlib.import_module(info.name)
        found[info.name] = module.__doc__ or ""
        for name, thing in vars(module).items():
            if not name.startswith("_") and getattr(thing, "__module__", None) == info.name:
                if inspect.isclass(thing) or inspect.isfunction(getattr(thing, "py_func", thing)):
                    found[f"{info.name}.{name}"] = inspect.getdoc(thing) or ""
                if inspect.isclass(thing):
                    methods = {**vars(thing)}
                    for method, body in methods.items():
                        text = getattr(body, "__doc__", None)
                        if not method.startswith("_") and text:
                            found[f"{info.name}.{name}.{method}"] = text
    return found


def paper_map() -> str:
    """docs/paper-map.md: from each place in the paper to the code."""
    places: dict[str, list[str]] = defaultdict(list)
    for name, text in documented().items():
        for line in REF.findall(text):
            for place in re.split(r", | and ", line):
                places[place.strip()].append(name)

    def position(place: str) -> tuple[int, str]:
        rank = next((k for k, start in enumerate(ORDER) if place.startswith(start)), len(ORDER))
        return rank, place

    lines = ["| in the paper | in the code |", "|---|---|"]
    for place in sorted(places, key=position):
        lines.append(f"| {place} | {', '.join(f'`{n}`' for n in sorted(set(places[place])))} |")
    head = "# From the paper to the code\n\nSzlak & Shamir (2021), *Replay For Safety*. Collected from the docstrings by `make docs`.\n\n"
    return head + "\n".join(lines) + "\n"


def cli_reference() -> str:
    """docs/cli.md: what ``--help`` says."""
    from safereplay.cli.common import ORDER

    parts = [
        "# The command line\n\nWhat `--help` says, collected by `make docs`. `python -m safereplay` is the same command, and "
        "`safereplay --install-completion` has the shell complete commands, options, worlds, learners and schemes.\n\n"
        "Exit codes: 0 done; 1 failed while running, stopped by Ctrl-C, or no replay keeps the limit of `tune` or `design`; 2 bad input. "
        "Results go to standard output; progress and errors go to standard error."
    ]
    for arguments in ([], *([name] for name in ORDER)):
        command = [sys.executable, "-m", "safereplay", *arguments, "--help"]
        environment = {"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
        environment["PYTHONPATH"] = str(Path(safereplay.__file__).parents[1])
        shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout  # noqa: S603
        text = "\n".join(line.rstrip() for line in shown.strip().splitlines())
        parts.append(f"## {' '.join(['safereplay', *arguments])}\n\n```\n{text}\n```")
    return "\n\n".join(parts) + "\n"


def claims(found: Path) -> str:
    """docs/claims.md: every claim of the paper that `make reproduce` judged, with its evidence."""
    verdicts = json.loads((found / "claims.json").read_text())
    holding = sum(one["holds"] for one in verdicts)
    lines = ["| | claim | grid | expected | here | |", "|---|---|---|---|---|---|"]
    parts = []
    for k, one in enumerate(verdicts, 1):
        said = "holds" if one["holds"] else "**does not hold**"
        lines.append(f"| {k} | {one['claim']} | {one['grid']} | {one['expected']} | {one['observed']} | {said} |")
        parts.append(f"{k}. *{one['claim']}* ({one['grid']}): {said}. {one['evidence']}.")
    head = (
        f"# Claim by claim\n\n{holding} of {len(verdicts)} claims of the paper hold here. Written by `make docs` from the `claims.json` of "
        "`make reproduce`; [the reproduction](reproduction.md) explains the results. The two claims on TD errors are "
        "[undecided](reproduction.md#undecided-the-td-errors): it depends on the histogram. Here they are judged by the majority of 16 histograms."
    )
    return "\n\n".join([head, "\n".join(lines), "## The evidence", "\n".join(parts)]) + "\n"


def notebooks() -> None:
    """docs/notebooks: run each of them and keep what it shows."""
    from running import run, save

    for file in sorted((DOCS / "notebooks").glob("*.ipynb")):
        save(run(file), file)


def pictures() -> None:
    """docs/img: the pictures of the README and of docs/."""
    import pictures as site

    import safereplay as sr
    from safereplay.paper import experiments, figures
    from safereplay.theory.limits import answer, grouped
    from safereplay.views import drawing as theory
    from safereplay.views.designs import Shown, boards_figure
    from safereplay.views.drawing import save

    images = DOCS / "img"
    cast = experiments.run_cast(experiments.QUICK, experiments.Work(lambda done: None))
    save(figures.hero_figure(cast), images, "hero")
    cliff, scheme = sr.grids.cliff(), sr.VarianceReplay(beta=5.0)
    save(theory.frontier_figure(sr.tune(cliff, scheme, max_p_unsafe=0.01)), images, "frontier")
    plan = sr.design(cliff, max_p_unsafe=0.035, start=cliff.origin, margin=0.05)
    save(boards_figure(Shown(plan, cliff.with_start(cliff.origin))), images, "design")
    save(theory.xray_figure(cliff, sr.xray(cast.runs["cliff", "replay"])), images, "xray")
    hasty = sr.grids.cliff(gamma=0.9)
    ends = sr.fixed_point(hasty, scheme, 0.5, "self", exploration=sr.EpsilonGreedy(0.05))
    answers = [
        answer(hasty, "Q-learning", sr.exact(hasty, sr.QLearning())),
        *grouped(hasty, "Algorithm 1", ends),
        answer(hasty, "the paper's mapping", sr.fixed_point(hasty, scheme, 0.5)),
    ]
    save(theory.values_figure(hasty, [theory.Panel(a.name, a.Q, a.policy) for a in answers]), images, "limits")
    for name, draw in site.FIGURES.items():
        save(draw(), images, name)
        (images / f"{name}.svg").unlink()


def texts() -> None:
    """The pages that are made from the code."""
    import catalogs

    (DOCS / "paper-map.md").write_text(paper_map())
    (DOCS / "cli.md").write_text(cli_reference())
    (DOCS / "learners.md").write_text(catalogs.learners_page())
    (DOCS / "catalog-schemes.md").write_text(catalogs.schemes_page())
    (DOCS / "catalog-worlds.md").write_text(catalogs.worlds_page())


def reproduction(found: Path = FOUND) -> None:
    """What `make reproduce` found, if it has been run."""
    if (found / "claims.json").exists():
        (DOCS / "claims.md").write_text(claims(found))
        for name in SHOWN:
            shutil.copyfile(found / "figures" / f"{name}.png", DOCS / "img" / f"{name}.png")


PARTS = {"texts": texts, "reproduction": reproduction, "pictures": pictures, "notebooks": notebooks}


def main() -> None:
    """Write them all, or the parts that are named: texts, reproduction, pictures, notebooks."""
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
