"""The cluster engine: Ray distributes chunks to the CPUs of many machines, or of this one.

    chunks  →  at most two per CPU in flight  →  one task per chunk, on one CPU  →  tables, in the order they are done

A model is sent once, without γ and the cells of its layout, and the workers of a node share its arrays. All else is sent as
plain types: learners and schedules are sent as the dicts of ``to_dict`` and rebuilt from their names. Rows come back as an
Arrow table. A worker refuses a chunk if its code differs from this process's, since the numbers might differ. A chunk that
needs much memory reserves it, so a node runs no more of them at a time than fit.

If a worker or a node is lost, the chunks that ran there are submitted again. Nothing else is affected, since a row is a
pure function of its run.
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from .. import __version__, _checks, errors
from .._config import Config
from ..errors import BadInput, MissingExtra, SafeReplayError
from ..footprints import MATTERS, amount, of_runs
from ..kernels.compile import PACKAGE, source_digest
from ..learners import Learner
from ..mdp import Layout, TabularMDP
from ..schedules import Exploration, StepSize
from .identity import know_table, own_code, table_digest
from .work import Chunk, Done, Point, Run, Terms, perform, room_of

LOG = logging.getLogger(__name__)
AHEAD = 2  # chunks per CPU, one of them waiting
ATTEMPTS = 5  # per chunk whose worker is lost
LOOK = 1.0  # seconds between two checks of the nodes
ANSWER = 5.0  # seconds for a cluster to answer
LONGEST = 40  # characters of the path of Ray's folder: the paths of its sockets are limited to 107
#: No usage statistics, no warning about accelerators, and no Ray log on standard output.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_DEDUP_LOGS_SKIP_REGEX": "."}


class RayEngine:
    """Runs on the Ray cluster at ``address``, or on one of ``workers`` CPUs that is started and stopped with the engine.

    >>> RayEngine.name, RayEngine.least
    ('ray', 1)
    """

    name = "ray"
    seconds = 5.0
    least = 1
    most = 10_000

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        self._limit = None if workers is None else _checks.whole("threads", workers, 1)
        self._ray = _ray()
        if address is not None and address != "auto":  # without an answer, Ray itself would retry for minutes
            words = "be HOST:PORT where a Ray cluster listens, or auto"
            host, _, port = str(address).removeprefix("ray://").rpartition(":")
            _checks.require(isinstance(address, str) and bool(host) and port.isdigit(), "address", words, address)
            try:
                socket.create_connection((host, int(port)), timeout=ANSWER).close()
            except (OSError, OverflowError) as error:
                raise BadInput(f"address must {words}, got {address!r}: {_first_line(error)}") from None
        self._folder: str | None = None
        self._mine = not self._ray.is_initialized()  # else the caller started it, and stops it
        self._models: dict[int, tuple[TabularMDP, Any]] = {}
        self._sent: dict[Any, Any] = {}
        try:
            if self._mine:
                self._start(address)
            self._task = self._ray.remote(num_cpus=1, max_retries=0)(_perform)  # finish() submits lost chunks again
            self._looked, self.workers, self._ahead, self._largest = -LOOK, 1, AHEAD, inf
            self._look()
        except BaseException:
            self.close()
            raise

    def _start(self, address: str | None) -> None:
        """Connect to a cluster, or start one."""
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address is None:
            cpus = os.cpu_count() if self._limit is None else self._limit
            options |= {"num_cpus": cpus, "include_dashboard": False, "address": "local"}
            if len(tempfile.gettempdir()) <= LONGEST:
                self._folder = tempfile.mkdtemp(prefix="ray-")
                options["_temp_dir"] = self._folder
        else:
            options["address"] = address
        try:
            with _environment(QUIET):
                self._ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            where = "a cluster on this machine" if address is None else f"address {address!r}"
            raise SafeReplayError(f"{where} must be one that Ray can use, got: {_first_line(error)}") from None

    def _look(self) -> None:
        """Count the CPUs of the cluster."""
        if time.monotonic() - self._looked >= LOOK:
            cpus = int(self._ray.cluster_resources().get("CPU", 0))
            self._largest = max(
                (n["Resources"].get("memory", inf) for n in self._ray.nodes() if n["Alive"]), default=inf
            )
            limited = self._limit is not None and self._limit < cpus  # then a waiting chunk would run as well
            self.workers, self._ahead = max(1, self._limit or 1 if limited else cpus), 1 if limited else AHEAD
            self._looked = time.monotonic()

    def finish(self, chunks: Iterator[Chunk], terms: Terms) -> Iterator[Done]:
        """Do the chunks; on Ctrl-C yield the chunks that are finished, then raise KeyboardInterrupt."""
        flights: dict[Any, tuple[Chunk, int]] = {}  # by task: a chunk, and which attempt it is
        try:
            while True:
                self._look()
                for chunk in islice(chunks, max(0, self._ahead * self.workers - len(flights))):
                    self._send(flights, chunk, 1, terms)
                if not flights:
                    return
                ready, _ = self._ray.wait(list(flights), timeout=LOOK)
                yield from self._landed(flights, ready, terms)
        except KeyboardInterrupt:
            if flights:
                ready, _ = self._ray.wait(list(flights), num_returns=len(flights), timeout=0)
                yield from self._landed(flights, ready, None)
            raise
        finally:
            for task in flights:
                with suppress(Exception):  # the first error matters more
                    self._ray.cancel(task, force=True)

    def _send(self, flights: dict[Any, tuple[Chunk, int]], chunk: Chunk, attempt: int, terms: Terms) -> None:
        """Submit a chunk."""
        models = {id(run.point.mdp): run.point.mdp for run in chunk}
        order = {key: k for k, key in enumerate(models)}
        sent, need = [self._model(mdp) for mdp in models.values()], self._need(chunk, terms)
        task = self._task.options(memory=need) if need > MATTERS else self._task
        flights[task.remote(_packed(chunk, order), tuple(terms), *sent)] = chunk, attempt

    def _need(self, chunk: Chunk, terms: Terms) -> int:
        """The bytes that a chunk needs besides its models: those of one run at a time, and the results of all."""
        points = {id(run.point): run.point for run in chunk}.values()
        recipes = [(p.mdp, p.learner.recipe(p.exploration, p.step_size)) for p in points]
        one = max((of_runs(mdp, recipe, 1, terms.curves, 1) for mdp, recipe in recipes), key=lambda need: need.total)
        need = one.total + sum(room_of(run.point, terms) for run in chunk)
        if need > max(MATTERS, self._largest):
            free = f"the {amount(int(self._largest))} of memory of the largest node"
            raise BadInput(f"runs must fit into {free}, got {amount(need)} for {len(chunk)} of them, each {one}")
        return need

    def _landed(
        self, flights: dict[Any, tuple[Chunk, int]], ready: Iterable[Any], terms: Terms | None
    ) -> Iterator[Done]:
        """The results of finished tasks; a lost chunk is submitted again if ``terms`` is given."""
        for task in ready:
            chunk, attempt = flights.pop(task)
            try:
                answer = self._ray.get(task)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self._ray.exceptions.RayError as error:
                point, why = chunk[0].point, f"{type(error).__name__}: {_first_line(error)}"
                what = f"{len(chunk)} run{'s' * (len(chunk) > 1)} of {point.learner.describe()} on {point.model}"
                if attempt >= ATTEMPTS:  # the chunk itself must cause so many losses
                    lost = f"{what} must finish on the cluster, got {ATTEMPTS} lost workers; the last: {why}"
                    raise SafeReplayError(lost) from error
                LOG.warning("safereplay: a worker was lost, and %s will be done again (%s)", what, why)
                if terms is not None:
                    self._send(flights, chunk, attempt + 1, terms)
                continue
            finally:
                del task  # free its table in the cluster's memory
            if isinstance(answer[0], str):
                raise getattr(errors, answer[0], BadInput)(answer[1])
            yield Done(chunk, *answer)

    def _model(self, mdp: TabularMDP) -> Any:
        """The cluster's reference to a model, which is sent at its first use."""
        if id(mdp) not in self._models:
            plain, hint = type(mdp) is TabularMDP, "use engine 'threads'"
            _checks.require(plain, "model", "be a plain TabularMDP on a cluster", mdp, hint)
            key = table_digest(mdp), mdp.name  # the digest covers the layout's origin: a run needs no more of it
            if key not in self._sent:
                layout = mdp.layout and Layout("", (), mdp.layout.origin)
                self._sent[key] = self._ray.put(replace(mdp, layout=layout))  # without what was computed from it
            self._models[id(mdp)] = mdp, self._sent[key]
        return self._models[id(mdp)][1]

    def close(self) -> None:
        """Disconnect; a cluster that was started here is stopped, and its files are removed."""
        self._models.clear()
        self._sent.clear()
        if self._mine:
            self._ray.shutdown()
            self._mine = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _ray() -> Any:
    try:
        with _environment(QUIET):
            import ray
    except ImportError:
        raise MissingExtra("the engine ray needs Ray; install it with: pip install 'safereplay[ray]'") from None
    return ray


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for Ray's processes, unless they are set already."""
    new = {name: value for name, value in values.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _code() -> str:
    """The versions that the numbers depend on."""
    return f"{__version__} (kernels {source_digest()[:8]})"


def _packed(chunk: Chunk, models: dict[int, int]) -> dict[str, Any]:
    """A chunk as plain types: models by their index among those sent with it, and for each module outside this package
    that has a class of the chunk, its path and a digest of each such class's code.
    """
    points = {id(run.point): run.point for run in chunk}
    place = {key: k for k, key in enumerate(points)}
    configs = [c for p in points.values() for c in (p.learner, p.exploration, p.step_size)]
    modules: dict[str, tuple[str, dict[str, str | None]]] = {}
    for kind in {type(x) for c in configs for x in (c, *vars(c).values()) if isinstance(x, Config)}:
        if kind.__module__.partition(".")[0] != PACKAGE:
            module = sys.modules.get(kind.__module__)
            importable = kind.__module__ != "__main__" and getattr(module, "__file__", None) is not None
            _checks.require(importable, kind.__name__, "be in a module that workers can import", kind.__module__)
            folder = Path(str(getattr(module, "__file__", ""))).resolve().parents[kind.__module__.count(".")]
            modules.setdefault(kind.__module__, (str(folder), {}))[1][kind.__name__] = own_code(kind)
    return {
        "code": _code(),
        "modules": modules,
        "points": [
            (p.model, models[id(p.mdp)], table_digest(p.mdp), p.mdp.gamma, *(x.to_dict() for x in p[2:5]), p.columns)
            for p in points.values()
        ],
        "runs": [(run.id, place[id(run.point)], run.seed) for run in chunk],
    }


def _perform(
    packed: dict[str, Any], terms: tuple[Any, ...], *models: TabularMDP
) -> tuple[pa.Table, float] | tuple[str, str]:
    """Do a chunk on this worker; return its rows and its seconds, or the kind and the text of an error of safereplay."""
    try:
        began = time.perf_counter()
        return perform(_unpacked(packed, models), Terms(*terms)), time.perf_counter() - began
    except SafeReplayError as error:
        return type(error).__name__, str(error)


def _unpacked(packed: dict[str, Any], models: tuple[TabularMDP, ...]) -> Chunk:
    """Import what the chunk needs, and refuse the chunk if the code differs from the sender's."""
    _checks.require(packed["code"] == _code(), "safereplay on every node", f"be {packed['code']}", _code())
    for name, (folder, kinds) in packed["modules"].items():
        if folder not in sys.path and Path(folder).is_dir():
            sys.path.append(folder)
        try:
            module = importlib.import_module(name)
        except Exception as error:
            raise BadInput(f"module {name!r} must be on every node, got {type(error).__name__}: {error}") from None
        for kind, code in kinds.items():
            same = own_code(Config._known[kind]) == code
            _checks.require(same, f"{kind} of {module.__name__}", "be the same on every node", "other code on one")
    points = []
    for name, k, table, gamma, learner, exploration, step_size, columns in packed["points"]:
        configs = [Config.from_dict(x) for x in (learner, exploration, step_size)]
        typed = cast(tuple[Learner, Exploration, StepSize], configs)
        points.append(Point(name, know_table(models[k].with_gamma(gamma), table), *typed, columns))
    return tuple(Run(id_, points[k], seed) for id_, k, seed in packed["runs"])
