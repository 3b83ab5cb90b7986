"""The study as data, and how it is run: one row per network, many networks per program.

    plan  →  networks that the folder lacks, by program  →  batches  →  DIR/runs/*.parquet

A program is compiled once for a world and a family, and its dials are arguments. A batch has a fixed number of networks, the same for all, so that
a network's bits do not depend on its neighbours. The id of a network is a digest of its content. A killed study continues where it was.

**Families.** Plain DQN; shaped replay without keys, over v at β = 1; with keys on tables, over v at β = 2; QR-DQN that is greedy on CVaR_α, with the mean at
α = 1; static CVaR, over α: its training does not depend on α, so one network is trained and judged at each.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

import safereplay as sr
from safereplay import __version__, _checks
from safereplay._checks import Bools, Floats
from safereplay._progress import Bar
from safereplay.engines.identity import digest, judge_of
from safereplay.engines.parts import Parts
from safereplay.errors import BadInput, stopping
from safereplay.mdp import TabularMDP
from safereplay.theory.solver import slack
from studies.deep.summary import CVAR, KEYED, OURS, PLAIN, STATIC

from .dqn import DQN
from .loop import Dials, Learner, Terms, Trail, judge, train
from .qrdqn import QRDQN
from .static import OwedWorld, static
from .tasks import MORE, SHARED, Task, task_named

FORMAT = 1  #: to be raised when the code computes other numbers
VS = (0.2, 0.35, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
KEYED_VS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
ALPHAS = (1.0, 0.9, 0.75, 0.6, 0.5, 0.4, 0.25, 0.15, 0.1, 0.05)
EPISODES = 300
UNVARIED = ("delayed",)  #: worlds where keys have no effect: no reward of the dangerous pairs varies
LOOKS = 16  #: moments of training that are stored
AHEAD = 3  #: batches that are compiled and queued on a GPU while rows of an earlier one are made
FAMILIES = (PLAIN, OURS, KEYED, CVAR, STATIC)

SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "world": pa.string(),
        "family": pa.string(),
        "v": pa.float64(),
        "beta": pa.float64(),
        "alpha": pa.float64(),
        "seed": pa.int64(),
        "steps": pa.int64(),
        "p_unsafe": pa.float64(),  # simulated, as the mean return and the steps per episode
        "mean": pa.float64(),
        "mean_steps": pa.float64(),
        "exact_p_unsafe": pa.float64(),  # of the greedy policy, on tables
        "exact_mean": pa.float64(),
        "p_never": pa.float64(),
        "policy": pa.list_(pa.int16()),
        "at": pa.list_(pa.int64()),  # the steps at which training was looked at
        "follows": pa.list_(pa.bool_()),  # whether the greedy policy was the limit's there
        "reward": pa.list_(pa.float32()),  # per step, since the last look
        "harm": pa.list_(pa.float32()),  # unsafe steps per episode
    }
)


class Network(NamedTuple):
    """One network of the plan."""

    world: str
    family: str
    v: float
    beta: float
    alpha: float
    steps: int
    seed: int

    @property
    def id(self) -> str:
        """A digest of its content."""
        return digest([FORMAT, list(self), _plain_terms(self.world, self.family)])


class Preset(NamedTuple):
    """The size of a study."""

    worlds: tuple[str, ...] = (*SHARED, *MORE)
    seeds: int = 500
    steps: int = 0  #: 0 for each world's default

    def checked(self) -> Preset:
        """The same, after checks."""
        _checks.require(len(self.worlds) > 0, "worlds", "name at least one world", self.worlds)
        _checks.whole("seeds", self.seeds, 1)
        for name in self.worlds:
            terms = task_named(name).terms
            first, each, most = terms.first, terms.target_every, terms.buffer
            fits = first < self.steps <= most and (self.steps - first) % each == 0
            what = f"be 0, or {first:,} and a multiple of {each:,} more, at most {most:,}"
            _checks.require(self.steps == 0 or fits, "steps", what, self.steps)
        return self


def settings(world: str, family: str) -> Iterator[tuple[float, float, float]]:
    """(v, β, α) of a family's settings."""
    if family == PLAIN:
        yield 0.0, 1.0, 1.0
    elif family == OURS:
        yield from ((v, 1.0, 1.0) for v in VS)
    elif family == KEYED and world not in UNVARIED and task_named(world).mdp is not None:
        yield from ((v, 2.0, 1.0) for v in KEYED_VS)
    elif family in (CVAR, STATIC):
        yield from ((0.0, 1.0, alpha) for alpha in ALPHAS if family == CVAR or alpha < 1.0)


def plan(preset: Preset, families: Sequence[str] = FAMILIES) -> list[list[Network]]:
    """The networks of each program."""
    found = []
    for family in families:
        for world in preset.worlds:
            steps = preset.steps or task_named(world).terms.steps
            dials = list(settings(world, family))
            found.append([Network(world, family, *one, steps, seed) for seed in range(preset.seeds) for one in dials])
    return [networks for networks in found if networks]


def terms_of(task: Task, family: str) -> Terms:
    """The terms of a family's training."""
    scale = task.scales["qrdqn" if family == CVAR else "dqn"]
    replay = {OURS: "shaped", KEYED: "keyed"}.get(family, "plain")
    return task.terms._replace(reward_scale=scale, replay=replay)


@cache
def _plain_terms(world: str, family: str) -> list[Any]:
    terms = terms_of(task_named(world), family)._replace(steps=0)  # a network has its own steps
    return [list(x) if isinstance(x, tuple) else x for x in terms]


# -- a program ---------------------------------------------------------------------------------------------------------


class Program(NamedTuple):
    """Compiled functions of a batch of networks."""

    task: Task
    terms: Terms
    train: Callable[..., Any]
    judge: Callable[..., Any]


@cache
def program(world: str, family: str, steps: int) -> Program:
    """The functions of a world and a family."""
    task = task_named(world)
    terms = terms_of(task, family)._replace(steps=steps)
    learner: Learner = QRDQN if family == CVAR else DQN
    here, there = task.world, task.judged
    if family == STATIC:
        learner, owing = static(task.world, terms.gamma, terms.reward_scale)
        here, there = owing, OwedWorld(task.judged, terms.gamma, terms.reward_scale, owing.window)
    seen = jnp.zeros(0) if task.mdp is None or family == STATIC else task.world.observe(jnp.arange(task.mdp.n_states))

    def watch(params: Any, dials: Dials) -> Any:
        """The greedy action in every state of a table."""
        return learner.act(params, seen, dials).astype(jnp.int16) if seen.size else seen

    return Program(
        task,
        terms,
        jax.jit(jax.vmap(partial(train, here, learner, terms, watch))),
        jax.jit(jax.vmap(partial(judge, there, learner, episodes=EPISODES))),
    )


def training(network: Network) -> Network:
    """The network whose training serves this one: for static CVaR the same for all α."""
    return network._replace(alpha=1.0) if network.family == STATIC else network


def per_training(family: str) -> int:
    """How many networks of the plan one training serves."""
    return len(ALPHAS) - 1 if family == STATIC else 1


def perform(networks: Sequence[Network], width: int) -> Callable[[], pa.Table]:
    """Start to train and judge at most ``width`` networks of one program; a smaller batch is filled up.

    The result is to be called: it waits for the networks, and gives their rows. So one batch can be compiled, another
    one trained, and the rows of a third one made at the same time.
    """
    family = networks[0].family
    made = program(networks[0].world, family, networks[0].steps)
    needed = [training(x) for x in networks]
    asked = list(dict.fromkeys(needed))
    number = {x: k for k, x in enumerate(asked)}
    at = [number[x] for x in needed]
    trained = made.train(*_spread(_arguments(asked, width)))
    filled = jnp.array(_filled(at, width * per_training(family)))
    params = jax.tree.map(lambda leaf: leaf[filled], trained.params)
    keys, dials = _arguments(networks, width * per_training(family))
    judged = made.judge(params, jax.vmap(partial(jax.random.fold_in, data=1))(keys), dials)

    def rows() -> pa.Table:
        trail: Trail = jax.tree.map(np.asarray, trained.trail)
        told = _trails(made, asked, trail)
        columns = {"p_unsafe": judged.p_unsafe, "mean": judged.mean, "mean_steps": judged.steps}
        found = zip(*(np.asarray(x, float).tolist() for x in columns.values()), strict=True)
        parts = zip(networks, at, found, strict=False)  # the rest is what the batch was filled up with
        rows = [{"id": x.id, **x._asdict(), **dict(zip(columns, y, strict=True)), **told[k]} for x, k, y in parts]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    return rows


def _filled(values: Sequence[Any], width: int) -> list[Any]:
    """The values, repeated up to a width."""
    _checks.require(len(values) <= width, "networks", f"number at most {width} per batch", len(values))
    return [values[k % len(values)] for k in range(width)]


def _arguments(networks: Sequence[Network], width: int) -> tuple[Any, Dials]:
    whole = _filled(networks, width)
    keys = jax.vmap(jax.random.key)(jnp.array([x.seed for x in whole]))
    return keys, Dials(*(jnp.array([getattr(x, name) for x in whole], jnp.float32) for name in Dials._fields))


def _spread(values: Any) -> Any:
    """The values divided among all devices, if they can be."""
    devices = jax.devices()
    if len(jax.tree.leaves(values)[0]) % len(devices):
        return values
    rows = jax.sharding.PartitionSpec("n")  # type: ignore[no-untyped-call]
    return jax.device_put(values, jax.sharding.NamedSharding(jax.sharding.Mesh(devices, "n"), rows))


def _trails(made: Program, networks: Sequence[Network], trail: Trail) -> list[dict[str, Any]]:
    """What is stored of the training of each network and, on tables, of its policies."""
    terms, mdp = made.terms, made.task.mdp
    n, copies = len(networks), trail.reward.shape[1]
    ends = np.unique(np.linspace(0, copies, min(LOOKS, copies) + 1).astype(int)[1:])
    starts = np.concatenate(([0], ends[:-1]))

    def summed(x: Any) -> Floats:
        return np.asarray(np.add.reduceat(x[:n].astype(float), starts, axis=1))

    reward, harm = summed(trail.reward) / (ends - starts), summed(trail.unsafe) / np.maximum(summed(trail.ends), 1.0)
    at = (terms.first + terms.target_every * ends).tolist()
    trails = (x.astype(np.float16).tolist() for x in (reward, harm))  # three digits: they take most of the space
    rows = [{"at": at, "reward": x, "harm": y} for x, y in zip(*trails, strict=True)]
    if mdp is None or not trail.seen.size:
        return rows
    policies = trail.seen[:n, ends - 1].astype(np.int64)  # [n, looks, S]
    judge = judge_of(mdp)
    for row, policy in zip(rows, policies[:, -1], strict=True):
        mean, _, p_unsafe, p_never = judge.of(policy).moments
        row.update(exact_p_unsafe=p_unsafe, exact_mean=mean, p_never=p_never, policy=policy.tolist())
    by_setting: dict[tuple[float, float], list[int]] = {}
    for k, x in enumerate(networks):
        by_setting.setdefault((x.v, x.beta), []).append(k)
    for (v, beta), group in by_setting.items():
        good = best_actions(networks[0].world, networks[0].family, v, beta)
        if good is not None:
            distinct, which = np.unique(policies[group].reshape(-1, mdp.n_states), axis=0, return_inverse=True)
            follows = followed(mdp, distinct, good)[which.reshape(len(group), -1)]
            for k, x in zip(group, follows.tolist(), strict=True):
                rows[k]["follows"] = x
    return rows


# -- the limit ---------------------------------------------------------------------------------------------------------


@cache
def limit(world: str, family: str, v: float, beta: float) -> Floats | None:
    """The exact limit Q of a setting, [S, A]; None if it is unknown or does not exist."""
    mdp = task_named(world).mdp
    if mdp is None or family not in (PLAIN, OURS, KEYED):
        return None
    if family == PLAIN:
        return np.asarray(sr.exact(mdp, sr.QLearning()))
    try:
        return sr.shaped_limit(mdp, sr.EntropicReplay(beta) if family == KEYED else sr.SurpriseReplay(beta=beta), v)
    except BadInput:  # an iteration that does not converge
        return None


def best_actions(world: str, family: str, v: float, beta: float) -> Bools | None:
    """Which actions are best in the exact limit, [S, A]; None if there is none."""
    Q = limit(world, family, v, beta)
    return None if Q is None else np.asarray(Q.max(1, keepdims=True) - slack(1e-9, Q, 0.0) <= Q)


class Forecast(NamedTuple):
    """What the exact limit says of a setting."""

    p_unsafe: float  #: of the limit's policy
    mean: float
    gap: float  #: by how much its actions are better than others at least, where it goes; rewards are as the learner sees them


@cache
def forecast(world: str, family: str, v: float, beta: float) -> Forecast | None:
    """The forecast for a setting; None if its limit is unknown or does not exist."""
    Q, good, task = limit(world, family, v, beta), best_actions(world, family, v, beta), task_named(world)
    if Q is None or good is None or task.mdp is None:
        return None
    mdp, policy = task.mdp, good.argmax(1)
    mean, _, p_unsafe, _ = judge_of(mdp).of(policy).moments
    here = reached(mdp, policy[None])[0] & ~mdp.is_terminal
    worse = np.where(good, np.inf, Q.max(1, keepdims=True) - Q)[here]
    return Forecast(p_unsafe, mean, float(worse.min()) / terms_of(task, family).reward_scale)


def followed(mdp: TabularMDP, policies: Any, good: Bools) -> Bools:
    """Whether policies [n, S] take a best action in every state that they reach from the origin.

    >>> mdp = sr.grids.cliff()
    >>> good = best_actions("cliff", PLAIN, 0.0, 1.0)
    >>> followed(mdp, np.stack([good.argmax(1), np.zeros(24, int)]), good).tolist()
    [True, False]
    """
    fine = good[np.arange(mdp.n_states), policies]
    return np.asarray((fine | ~reached(mdp, policies) | mdp.is_terminal).all(1))


def reached(mdp: TabularMDP, policies: Any) -> Bools:
    """The states that policies [n, S] reach from the origin, [n, S]."""
    n, S = policies.shape
    on = ~mdp.terminal & (mdp.p > 0)
    moves = np.unique(np.stack([mdp.pair[on], mdp.s_next[on]]), axis=1)
    place = np.arange(moves.shape[1]) - np.searchsorted(moves[0], moves[0])
    leads = np.full((mdp.n_pairs, int(place.max(initial=0)) + 1), S)  # the next states of a pair; S for none
    leads[moves[0], place] = moves[1]
    found = np.zeros((n, S + 1), bool)
    found[:, S] = True
    row, s = np.arange(n), np.full(n, mdp.origin)
    while row.size:
        found[row, s] = True
        there = leads[s * mdp.n_actions + policies[row, s]]
        moved = np.stack([np.repeat(row, there.shape[1]), there.ravel()])
        row, s = np.unique(moved[:, ~found[moved[0], moved[1]]], axis=1)
    return found[:, :S]


# -- running it --------------------------------------------------------------------------------------------------------


class Folder(Parts):
    """The folder of a study."""

    schema = SCHEMA


def run(plan: Sequence[list[Network]], folder: str | Path, width: int, budget: float | None = None) -> int:
    """Train the networks of some programs that the folder lacks; return how many are missing then. After ``budget`` seconds no new batch is started."""
    _checks.whole("width", width, 1)
    end = float("inf") if budget is None else time.monotonic() + _checks.between("budget", budget, "[0, inf)")
    store = Folder(folder, _tell, {"safereplay": __version__, "format": str(FORMAT)})
    with store, stopping(lambda: f"{len(store.done):,} networks are in {folder}; run the same command to continue"):
        waiting = _waiting(plan, store.done, width)
        total, done, left = sum(map(len, plan)), 0, 0
        with Bar("networks", total) as bar:
            ahead = 1 if jax.default_backend() == "cpu" else AHEAD
            begun: deque[tuple[list[Network], Future[Callable[[], pa.Table]]]] = deque()
            pool = ThreadPoolExecutor(ahead)

            def finish(batch: list[Network], started: Future[Callable[[], pa.Table]]) -> None:
                nonlocal done
                store.add(started.result()())
                done += len(batch)
                bar.update(done, f"{batch[0].world}, {batch[0].family}")

            try:
                for batch, n in waiting:
                    if time.monotonic() >= end:
                        left = len(batch) + sum(len(x) for x, _ in waiting)
                        break
                    begun.append((batch, pool.submit(perform, batch, n)))
                    if len(begun) > ahead:
                        finish(*begun.popleft())
                while begun:
                    finish(*begun.popleft())
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    return left


def _waiting(plan: Sequence[list[Network]], done: set[bytes], width: int) -> Iterator[tuple[list[Network], int]]:
    """The batches of networks that are not done, and how many trainings a batch of their program has."""
    for networks in plan:
        n = min(width, len(set(map(training, networks))))
        yield from ((x, n) for x in _batches([x for x in networks if bytes.fromhex(x.id) not in done], n))


def _batches(networks: list[Network], width: int) -> Iterator[list[Network]]:
    """Batches of at most ``width`` trainings."""
    served: dict[Network, list[Network]] = {}
    for network in networks:
        served.setdefault(training(network), []).append(network)
    parts = list(served.values())
    return ([x for part in parts[k : k + width] for x in part] for k in range(0, len(parts), width))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  as sweeps do


def read(folder: str | Path) -> pa.Table:
    """All rows of a folder."""
    return ds.dataset(Path(folder) / "runs", format="parquet").to_table()
