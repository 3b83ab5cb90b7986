"""The playground as a static site: its page, and recorded answers in place of a server.

    index.html, page/, plotly.js        the page
    data/index.json                     presets, learners, and states by link; files of other worlds by query
    data/NAME.json                      a world: its model, answers by the text of the learner, and recorded runs

Dials have only the values of :data:`GRID`. Links of lessons are recorded as they are.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import as_completed
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from .. import _checks
from .._processes import processes
from .._progress import Bar
from ..errors import CannotWrite, SafeReplayError, Stopped
from .app import plotly_file
from .kinds import Side, learner_dials
from .recorded import PAGE, page_links, questions, read_link
from .state import LearnerLink, LearnLink, OpenLink, WorldLink, menu, presets

TENTHS = (0.0, 1.0, 0.1)
#: The recorded dials of each kind, and of each scheme of a replay: lowest, highest and step.
GRID: dict[str, dict[str, tuple[float, float, float]]] = {
    "q": {},
    "replay": {"v": (0.0, 0.95, 0.05)},
    "design": {},
    "mihatsch": {"kappa": (0.0, 0.9, 0.1)},
    "gaskett": {"beta": TENTHS},
    "worst-case": {},
    "worst-transition": {},
    "robust": {"delta": TENTHS},
    "exponential": {"theta": TENTHS},
}
SCHEMES = {"variance": {"beta": (0.0, 10.0, 2.5)}, "score": {"beta": (0.0, 4.0, 1.0)}}
MIXINGS = ("matched", "literal")
LIMITS = 8  # of a designed replay, per world
FRAMES, UNTIL = 60, 50_000  # of a recorded run
TOGETHER = 40  # answers of one task
LIVE, RECORDED = (f'<meta name="safereplay" content="{how}">' for how in ("live", "recorded"))


def export(folder: str | Path, quiet: bool = False) -> Path:
    """Write the playground as a static site into a new or empty folder, or over an earlier export; its page.

    Nothing is changed if it is stopped or fails.
    """
    target = Path(os.path.abspath(folder))
    _refuse_others(target)
    new = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        _write(new / "site", quiet)
        if target.exists():
            target.rename(new / "before")
        (new / "site").rename(target)
    except OSError as error:
        raise CannotWrite(f"{folder} must be a folder that can be written to, got '{error.strerror}'") from None
    except KeyboardInterrupt:
        raise Stopped("nothing is written") from None
    finally:
        if new is not None:
            if (new / "before").exists() and not target.exists():
                (new / "before").rename(target)
            shutil.rmtree(new, ignore_errors=True)
    return Path(folder) / "index.html"


def _refuse_others(target: Path) -> None:
    """Refuse a file, and a folder with anything but an earlier export."""
    kept = "be a new or empty folder, or one of an earlier export"
    _checks.require(target.is_dir() or not target.exists(), "--export", kept, str(target))
    if target.is_dir() and any(target.iterdir()):
        page = target / "index.html"
        ours = page.is_file() and RECORDED.encode() in page.read_bytes()
        _checks.require(ours, "--export", kept, str(target), "it has other files")


def _write(site: Path, quiet: bool) -> None:
    """Write the whole site."""
    shutil.copytree(PAGE, site / "page", ignore=shutil.ignore_patterns("index.html", "docs.*"))
    (site / "index.html").write_text((PAGE / "index.html").read_text("utf-8").replace(LIVE, RECORDED), "utf-8")
    shutil.copyfile(plotly_file(), site / "plotly.js")
    (site / "data").mkdir()
    links = {query: read_link(query) for query in page_links()}
    worlds, files = {_world_query(link): _world_of(link) for link in links.values()}, dict[str, str]()
    for query, world in worlds.items():
        own = query == f"world={world.world}"
        files[query] = (
            world.world if own else f"lesson-{1 + sum(name.startswith('lesson-') for name in files.values())}"
        )
    found: dict[str, dict[str, Any]] = {query: {"model": {}, "solve": {}, "learn": {}} for query in files}
    for query, kind, answers in _answered(list(_tasks(links, worlds)), quiet):
        found[query][kind] |= answers
    for query, name in files.items():
        _dump(site / "data" / f"{name}.json", found[query])
    index = {
        "presets": menu(),
        "learners": recorded_learners(),
        "states": {query: link.to_state() for query, link in links.items()},
        "others": {query: name for query, name in files.items() if name not in presets()},
    }
    _dump(site / "data" / "index.json", index)


def _dump(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content, separators=(",", ":"), allow_nan=False), "utf-8")


def _world_of(link: OpenLink) -> WorldLink:
    return WorldLink(**{name: getattr(link, name) for name in WorldLink.model_fields if name != "quiet"})


def _world_query(link: OpenLink) -> str:
    """The world of a link as a query: its preset, then its changes by name."""
    world = _world_of(link).model_dump(exclude_unset=False, exclude_none=True, exclude={"quiet", "world"})
    changes = [f"{name}={_text(value)}" for name, value in sorted(world.items())]
    return "&".join([f"world={link.world}", *changes])


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.10g}" if isinstance(value, float) else value


def _values(low: float, high: float, step: float) -> list[float]:
    return [float(f"{low + k * step:.10g}") for k in range(round((high - low) / step) + 1)]


def recorded_sides() -> list[str]:
    """The texts of all recorded learners except designed ones, whose limits depend on the world."""
    found = []
    for kind, dials in GRID.items():
        grids = [(dials | own, f",scheme:{scheme}") for scheme, own in SCHEMES.items()]
        for grid, words in grids if kind == "replay" else [(dials, "")] * (kind != "design"):
            for values in product(*(_values(*ends) for ends in grid.values())):
                text = kind + "".join(f",{name}:{x:.10g}" for name, x in zip(grid, values, strict=True)) + words
                found += [f"{text},mixing:{mixing}" for mixing in MIXINGS] if kind == "replay" else [text]
    return [Side.parse(text).text for text in found]


def recorded_learners() -> dict[str, Any]:
    """The catalog of the page, with the recorded kinds, choices and values only."""
    found = {kind: about for kind, about in learner_dials().items() if kind in GRID}
    for kind, grid in GRID.items():
        own = SCHEMES["variance"] if kind == "replay" else {}
        _coarsen(found[kind]["sliders"], grid | own)
    choices = found["replay"]["choices"]
    choices["mixing"] = [one for one in choices["mixing"] if one["value"] in MIXINGS]
    choices["scheme"] = [one for one in choices["scheme"] if one["value"] in SCHEMES]
    for one in choices["scheme"]:
        _coarsen(one["sliders"], SCHEMES[one["value"]])
    return found


def _coarsen(sliders: dict[str, Any], grid: dict[str, tuple[float, float, float]]) -> None:
    """Give sliders the recorded values, and remove those of dials with one value."""
    for name in [name for name in sliders if name != "limit"]:
        if name in grid:
            sliders[name] |= dict(zip(("min", "max", "step"), grid[name], strict=True))
        else:
            del sliders[name]


Task = tuple[str, str, dict[str, Any], Any]  #: query of the world, kind, parameters, and learners


def _tasks(links: dict[str, OpenLink], worlds: dict[str, WorldLink]) -> Iterator[Task]:
    """All that is to be worked out, in tasks of a few seconds."""
    asked: dict[tuple[str, str, float], tuple[LearnerLink, int]] = {}
    for link in links.values():
        for one in questions(link):
            asked.setdefault((_world_query(link), one.to_side().text, link.epsilon), (one, link.seeds))
    for (query, text, _), (one, seeds) in asked.items():
        yield query, "learn", one.model_dump(), [text, seeds]
    for query, world in worlds.items():
        parameters = world.model_dump()
        yield query, "model", parameters, None
        sides = recorded_sides() if query == f"world={world.world}" else []
        for k in range(0, len(sides), TOGETHER):
            yield query, "solve", parameters, sides[k : k + TOGETHER]
        if sides:
            yield query, "design", parameters, None


def _answered(tasks: list[Task], quiet: bool) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The results of all tasks in order: the query, the kind, and the answers."""
    with Bar("recording", len(tasks), quiet) as bar, processes(max(2, os.cpu_count() or 1)) as pool:
        futures = [pool.submit(work, task) for task in tasks]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                bar.update(done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for future in futures:
        yield from future.result()


def work(task: Task) -> list[tuple[str, str, dict[str, Any]]]:
    """The answers of one task; learners that are refused in this world are left out."""
    from . import answers

    query, kind, parameters, given = task
    if kind == "model":
        return [(query, kind, answers.model(parameters))]
    if kind == "design":
        return [(query, "solve", designs(parameters))]
    if kind == "learn":
        text, seeds = given
        solved = answers.solve(parameters)
        return [(query, "solve", {text: solved}), (query, "learn", {text: frames(parameters, seeds, solved)})]
    found = {}
    for text in given:
        with suppress(SafeReplayError):
            found[text] = answers.solve({**parameters, "learner": text})
    return [(query, "solve", found)]


def frames(parameters: dict[str, Any], seeds: int, solved: dict[str, Any]) -> list[dict[str, Any]]:
    """The frames of one recorded run: many at the beginning, fewer later."""
    from . import answers

    link = LearnLink(**parameters, seeds=seeds)
    runs = answers.Runs(link, answers.Target.of(link, json.loads(json.dumps(solved))))
    return [runs.next_frame(-(-UNTIL * k * k // FRAMES**2)) for k in range(1, FRAMES + 1)]


def designs(parameters: dict[str, Any]) -> dict[str, Any]:
    """Designed replays of a world for a few limits, and for the default one; its dial has just these limits."""
    from . import answers
    from .learners import limit_range

    with suppress(SafeReplayError):
        dial = limit_range(WorldLink(**parameters).to_world())
        step = max(1, round((dial.max - dial.min) / dial.step / LIMITS)) * dial.step
        limits = [x for x in _values(dial.min, dial.max, step) if x <= dial.max + 1e-12]
        found = {}
        for text in ("design", *(f"design,limit:{limit:.10g}" for limit in limits)):
            with suppress(SafeReplayError):
                found[text] = answers.solve({**parameters, "learner": text})
                found[text]["design"] |= {"max": limits[-1], "step": float(f"{step:.10g}")}
        return found
    return {}
