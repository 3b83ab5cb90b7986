"""One run of the study and its file; and the files of a study, grouped by setting and world.

A run trains once and is judged twice, on the selection and on the evaluation episodes. Their seeds differ from each other and
from those of training. Its file is named after a digest of the setting and the world's terms (network, learning rate,
discount, key): if one changes, it is another run. The digest does not include code: if the behaviour of a world or a learner
changes, :data:`FORMAT` must be raised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium.spaces import Box

from benchmarks.speed.machine import machine
from safereplay._checks import Floats
from safereplay._config import plain
from safereplay._files import read_text, write_atomic
from safereplay.engines.identity import digest
from safereplay.errors import BadFile

from .summary import FAMILIES, Chapter, Episodes, Group, Run, Training
from .training import SPLITS, arguments_of, as_action, judged
from .worlds import WORLDS, World, world_named

FORMAT = 3  #: the version of a run and its file
PATHS = 6  #: stored evaluation paths per run
TITLES = {
    "delayed": "delayed cliff",
    "lava": "MiniGrid lava",
    "lander": "LunarLander in wind",
    "betting": "betting game",
    "maze": "guarded maze",
    "cheetah": "fined cheetah",
}
MAPPED = ("point",)  #: worlds whose observations are positions on a map

Perform: TypeAlias = Callable[[dict[str, Any], int], dict[str, Any]]


class Job(NamedTuple):
    """One run: its family and dial, its setting, and the number of selection episodes."""

    family: str
    dial: str
    setting: dict[str, Any]
    selection: int

    @property
    def kind(self) -> str:
        """A digest of its content, without the seed and the names."""
        return _kind(self.setting, self.selection)

    @property
    def file(self) -> str:
        """The name of its file."""
        return _file(self.kind, self.setting["seed"])

    @property
    def line(self) -> str:
        """The run as text."""
        dial = f", {self.dial}" if self.dial else ""
        return f"{self.setting['world']}, {self.family}{dial}, seed {self.setting['seed']}"


def _kind(setting: dict[str, Any], selection: int) -> str:
    what = {key: x for key, x in setting.items() if key != "seed"}
    return digest([FORMAT, what, selection, terms(setting)])


def _file(kind: str, seed: int) -> str:
    return f"{kind}-{seed}.json"


def terms(setting: dict[str, Any]) -> dict[str, Any]:
    """The world's part of a run's content."""
    world = world_named(setting["world"])
    learner = {} if setting["algorithm"] == "random" else arguments_of(world, setting["algorithm"])
    own = ("gamma", "time_limit", "reward_scale", "net_arch", "n_quantiles", "key")
    found = plain({**{name: getattr(world, name) for name in own}, "learner": learner})
    return dict(found)


# -- one run -----------------------------------------------------------------------------------------------------------


class RandomPolicy:
    """Uniformly random actions, with the interface of a trained model: 0..n−1, or vectors between two bounds."""

    def __init__(self, actions: Any, seed: int) -> None:
        self._actions: Any = actions
        size = actions.shape[0] if isinstance(actions, Box) else int(actions)
        self._rng = np.random.default_rng([seed, size])

    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> tuple[Any, None]:
        """An action, or one for each row of observations."""
        shape = np.shape(observation)[:-1]
        if isinstance(self._actions, Box):
            low, high = self._actions.low, self._actions.high
            return self._rng.uniform(low, high, (*shape, *low.shape)).astype(np.float32), None
        return self._rng.integers(self._actions, size=shape or None), None


def perform(setting: dict[str, Any], selection: int) -> dict[str, Any]:
    """Train, and judge twice; return the content of the file."""
    from . import training

    world = world_named(setting["world"])
    curve: dict[str, Any] = {"step": [], "return": [], "catastrophe": []}
    seconds, certificate = 0.0, None
    with training.one_thread():
        if setting["algorithm"] == "random":
            space: Any = world.make(judged=True).action_space
            model: Any = RandomPolicy(space if isinstance(space, Box) else int(space.n), setting["seed"])
        else:
            fitted = training.fit(training.Setting.from_dict(setting))  # type: ignore[arg-type]  # from_dict knows kinds
            model, seconds, diary, certificate = fitted.model, fitted.seconds, fitted.diary, fitted.certificate
            unsafe = [int(x) for x in diary.unsafe]
            curve = {"step": diary.ends, "return": np.round(diary.returns, 4).tolist(), "catastrophe": unsafe}
        evaluation = training.evaluate(model, world, setting["episodes"], "test", setting["seed"])
        chosen_by = training.evaluate(model, world, selection, "validation", setting["seed"])
        paths = _paths(model, world) if world.name in MAPPED else []
    return {
        "evaluation": evaluation,
        "selection": chosen_by,
        "seconds": seconds,
        "curve": curve,
        "paths": paths,
        **({"certificate": certificate} if certificate else {}),
        "versions": {**training.versions(), **_machine()},
    }


def _machine() -> dict[str, str]:
    found = machine()
    return {name: found[name] for name in ("cpu", "cores", "system")}


def _paths(model: Any, world: World) -> list[list[list[float]]]:
    """The paths of the first evaluation episodes."""
    env = judged(model, world)
    paths = []
    for k in range(PATHS):
        here, _ = env.reset(seed=SPLITS["test"] + k)
        path, over = [here], False
        while not over:
            here, _, terminated, truncated, _ = env.step(as_action(model.predict(here, deterministic=True)[0]))
            path.append(here)
            over = terminated or truncated
        paths.append(np.round(np.array(path, dtype=float), 4).tolist())
    return paths


# -- files -------------------------------------------------------------------------------------------------------------


def write_record(folder: Path, job: Job, result: dict[str, Any]) -> Path:
    """Write the file of a run."""
    record = {
        "format": FORMAT,
        "setting": job.setting,
        "selection": job.selection,
        "terms": terms(job.setting),
        "result": result,
    }
    return write_atomic(folder / job.file, json.dumps(record, separators=(",", ":")))


class Record(NamedTuple):
    """A run from its file, and the versions it was run with."""

    kind: str
    run: Run
    versions: dict[str, str]


def read_record(file: Path) -> Record:
    """A run from its file."""
    try:
        told = json.loads(read_text(file))
        setting, result, selection = told["setting"], told["result"], told["selection"]
        judged = [_episodes(result[name]) for name in ("evaluation", "selection")]
        curve = result["curve"]
        training = Training(
            np.array(curve["step"], dtype=int), _floats(curve["return"]), np.array(curve["catastrophe"], dtype=bool)
        )
        made_on = str(result["versions"].get("cpu", ""))
        paths = tuple(np.array(path) for path in result["paths"])
        certificate = result.get("certificate")
        run = Run(
            int(setting["seed"]), judged[0], judged[1], training, float(result["seconds"]), paths, made_on, certificate
        )
        what = {key: x for key, x in setting.items() if key != "seed"}
        kind = digest([told["format"], what, selection, told["terms"]])
        return Record(kind, run, dict(result["versions"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise BadFile(f"{file} must be a run of this study, got another file; delete it to repeat the run") from None


def _episodes(block: dict[str, Any]) -> Episodes:
    steps = float(block.get("mean_steps", "nan"))
    return Episodes(_floats(block["returns"]), np.array(block["unsafe"], dtype=bool), steps)


def _floats(values: Any) -> Floats:
    return np.array(values, dtype=float)


class Found(NamedTuple):
    """The runs of a plan in a study's folder."""

    chapters: tuple[Chapter, ...]
    missing: int  #: runs of the plan that are missing
    strangers: int  #: runs that are not in the plan
    versions: dict[str, str]


def collect(jobs: Sequence[Job], folder: str | Path) -> Found:
    """Group the runs of a folder by world and setting. Seeds that are not in the plan count as well."""
    records = [read_record(file) for file in sorted((Path(folder) / "runs").glob("*.json"))]
    by_kind: dict[str, list[Run]] = {}
    for record in records:
        by_kind.setdefault(record.kind, []).append(record.run)
    settings = {job.kind: job for job in sorted(jobs, key=lambda job: job.setting["seed"])}
    here = {(record.kind, record.run.seed) for record in records}
    missing = sum((job.kind, job.setting["seed"]) not in here for job in jobs)
    strangers = sum(record.kind not in settings for record in records)
    found: dict[str, list[Group]] = {}
    for kind, job in settings.items():
        if kind in by_kind:
            runs = tuple(sorted(by_kind[kind], key=lambda run: run.seed))
            found.setdefault(job.setting["world"], []).append(Group(job.family, job.dial, runs))
    chapters = tuple(_chapter(name, found[name]) for name in WORLDS if name in found)
    return Found(chapters, missing, strangers, versions(records))


def _chapter(world: str, groups: list[Group]) -> Chapter:
    return Chapter(world, TITLES.get(world, world), tuple(sorted(groups, key=lambda g: FAMILIES.index(g.family))))


def versions(records: Sequence[Record]) -> dict[str, str]:
    """The versions that the runs were made with; several values are separated by commas."""
    names = sorted({name for record in records for name in record.versions})
    return {name: ", ".join(sorted({record.versions.get(name, "?") for record in records})) for name in names}
