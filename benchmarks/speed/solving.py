"""Exact solving compared with quantecon and mdpsolver, on the same models.

Each solver gets the model in its own form beforehand; only solving is timed, the best of some alternating rounds. All have
a tolerance of 1e-6, and the error of each is measured against a solution with a tolerance a million times smaller. Peers
run with their fastest method:

    quantecon    value iteration, or modified policy iteration with k = 5, 20 or 100 steps
    mdpsolver    modified policy iteration with 5, 20 or 100 steps: plain on one core or all, or Gauss–Seidel on one

The two fastest on a smaller model of the same kind are tried, and the faster one counts. Times are wall-clock seconds; slow
methods have fewer rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from safereplay._checks import Floats
from safereplay.grids import from_map
from safereplay.mdp import TabularMDP
from safereplay.theory.solver import by_sweeps

from .sheets import Effort, Part, Rows, Sheet, Task, span

GAMMA = 0.99
TOLERANCE = 1e-6
PEERS = ("quantecon", "mdpsolver")
SMALL = 2_500  # states of the model for choosing a peer's method
MOST_ITERATIONS = 100_000
ENOUGH = 4.0  # total seconds of a method after which it gets no further round


@dataclass(frozen=True)
class Solving:
    """One solver on one model."""

    model: str
    states: int
    solver: str
    seconds: float
    error: float  #: the largest error of the values
    ratio: float  #: its time relative to safereplay's


class Method(NamedTuple):
    """A method: its name, and a function that solves and returns the values [S]."""

    name: str
    solve: Callable[[], Floats]


def slippery_grid(n_states: int) -> TabularMDP:
    """A square map with one goal in a corner, where one move in ten slips."""
    side = round(n_states**0.5)
    rows = ["." * side] * (side - 1) + ["." * (side - 1) + "G"]
    return from_map("\n".join(rows), slip=0.1, gamma=GAMMA, name="slippery grid")


def random_mdp(n_states: int, n_actions: int = 4) -> TabularMDP:
    """Two to four outcomes per pair, to states drawn uniformly; one outcome in fifty ends the episode."""
    generator = np.random.default_rng(0)
    pair = np.repeat(np.arange(n_states * n_actions), generator.integers(2, 5, size=n_states * n_actions))
    p = generator.exponential(size=pair.size)
    columns = [
        pair // n_actions,
        pair % n_actions,
        p / np.bincount(pair, weights=p)[pair],
        generator.integers(n_states, size=pair.size),
        generator.normal(size=pair.size),
        generator.random(pair.size) < 0.02,
        np.zeros(pair.size),
    ]
    return TabularMDP.from_outcomes(n_states, n_actions, np.column_stack(columns), GAMMA, name="random")


MODELS: dict[str, Callable[[int], TabularMDP]] = {"slippery grid": slippery_grid, "random": random_mdp}


def missing() -> list[str]:
    """Peers that are not installed."""
    return [name for name in PEERS if find_spec(name) is None]


# -- the model in each peer's form -------------------------------------------------------------------------------------


def with_end(mdp: TabularMDP) -> tuple[Any, Floats]:
    """P [(S+1)·A, S+1] and R [(S+1)·A], with the end as an additional absorbing state with reward 0."""
    S, A = mdp.n_states, mdp.n_actions
    idle = np.concatenate((np.flatnonzero(np.diff(mdp.row) == 0), np.arange(S * A, (S + 1) * A)))
    row = np.concatenate((mdp.pair, idle))
    column = np.concatenate((np.where(mdp.terminal, S, mdp.s_next), np.full(idle.size, S)))
    P = sparse.csr_matrix((np.concatenate((mdp.p, np.ones(idle.size))), (row, column)), shape=((S + 1) * A, S + 1))
    return P, np.append(mdp.expect(mdp.r).ravel(), np.zeros(A))


def quantecon_methods(mdp: TabularMDP) -> list[Method]:
    """quantecon's methods for a model."""
    from quantecon.markov import DiscreteDP

    P, R = with_end(mdp)
    n, A = mdp.n_states + 1, mdp.n_actions
    program = DiscreteDP(R, P, mdp.gamma, np.repeat(np.arange(n), A), np.tile(np.arange(A), n))

    def by(method: str, **options: Any) -> Callable[[], Floats]:
        def solve() -> Floats:
            found = program.solve(method, epsilon=TOLERANCE, max_iter=MOST_ITERATIONS, **options)
            return np.asarray(found.v[:-1], np.float64)

        return solve

    partial = [Method(f"quantecon, MPI k={k}", by("modified_policy_iteration", k=k)) for k in (5, 20, 100)]
    return [Method("quantecon, VI", by("value_iteration")), *partial]


def mdpsolver_methods(mdp: TabularMDP) -> list[Method]:
    """mdpsolver's methods for a model."""
    import mdpsolver

    P, R = with_end(mdp)
    n, A = mdp.n_states + 1, mdp.n_actions
    ends, columns, values = P.indptr.tolist(), P.indices.tolist(), P.data.tolist()
    rows = [[slice(ends[s * A + a], ends[s * A + a + 1]) for a in range(A)] for s in range(n)]
    model = mdpsolver.model()
    model.mdp(
        discount=mdp.gamma,
        rewards=R.reshape(n, A).tolist(),
        tranMatProbs=[[values[part] for part in parts] for parts in rows],
        tranMatColumns=[[columns[part] for part in parts] for parts in rows],
    )

    def by(update: str, parallel: bool, steps: int) -> Callable[[], Floats]:
        def solve() -> Floats:
            fresh = {"initValueVector": [0.0] * n, "initPolicy": [0] * n}  # else it starts from its last solution
            how = {"update": update, "parallel": parallel, "parIterLim": steps}
            model.solve(algorithm="mpi", tolerance=TOLERANCE, **how, **fresh)
            return np.array(model.getValueVector())[:-1]

        return solve

    ways = [("standard", True), ("standard", False), ("gs", False)]
    return [
        Method(f"mdpsolver, MPI {update} {steps}{', all cores' * parallel}", by(update, parallel, steps))
        for update, parallel in ways
        for steps in (5, 20, 100)
    ]


FORMS = {"quantecon": quantecon_methods, "mdpsolver": mdpsolver_methods}


# -- the contest -------------------------------------------------------------------------------------------------------


def seconds_of(method: Method) -> tuple[float, Floats]:
    """Seconds of a method, and the values."""
    began = time.perf_counter()
    V = method.solve()
    return time.perf_counter() - began, V


def contenders(peer: str, mdp: TabularMDP, small: TabularMDP) -> list[Method]:
    """A peer's two fastest methods on a small model of the kind: all run once, and the faster half again."""
    methods, whole = FORMS[peer](small), FORMS[peer](mdp)
    for method in methods[:2] if peer == "quantecon" else []:
        method.solve()  # compiles
    once = [seconds_of(method)[0] for method in methods]
    better = np.argsort(once)[: (len(methods) + 1) // 2]
    times = {k: min(once[k], seconds_of(methods[k])[0]) for k in better}
    return [whole[k] for k in sorted(times, key=lambda k: times[k])[:2]]


def measure_solving(kind: str, n_states: int, rounds: int) -> list[Solving]:
    """All installed solvers on one model, alternating; the best time of each, with its faster method, counts."""
    mdp, small = MODELS[kind](n_states), MODELS[kind](min(SMALL, n_states))
    ours = Method("safereplay", lambda: by_sweeps(mdp, mdp.p, TOLERANCE).max(1))
    ours.solve()  # compiles
    exact = by_sweeps(mdp, mdp.p, TOLERANCE * 1e-6).max(1)
    teams = [[ours], *(contenders(peer, mdp, small) for peer in PEERS if peer not in missing())]
    times: dict[str, list[float]] = {method.name: [] for team in teams for method in team}
    values: dict[str, Floats] = {}
    for _ in range(rounds):
        for method in (method for team in teams for method in team):
            if sum(times[method.name]) < ENOUGH:
                seconds, values[method.name] = seconds_of(method)
                times[method.name].append(seconds)
    rows: list[Solving] = []
    for team in teams:
        best = min((method.name for method in team), key=lambda name: min(times[name]))
        seconds, error = min(times[best]), float(np.abs(values[best] - exact).max())
        rows.append(Solving(kind, mdp.n_states, best, seconds, error, seconds / rows[0].seconds if rows else 1.0))
    return rows


def tasks(effort: Effort) -> list[Task]:
    """Both kinds of models in each size."""
    models = [(kind, n) for kind in MODELS for n in effort.states]
    return [
        Task(f"solving: {kind}, {n:,} states", partial(measure_solving, kind, n, effort.rounds)) for kind, n in models
    ]


def sheet(rows: Rows) -> Sheet:
    """The times to exact values, as a table."""
    beside = [row.ratio for row in rows if row.solver != "safereplay"]
    return Sheet(
        f"exact solving to {TOLERANCE:.0e}, γ = {GAMMA}",
        "Optimal values of a slippery grid and of random models, wall-clock seconds, the best round; each peer with the faster "
        "of its methods. The error is measured against a solution with a tolerance a million times smaller.",
        ("model", "solver", "states", "seconds", "relative time", "error"),
        [
            (row.model, row.solver, f"{row.states:,}", f"{row.seconds:.3f}", f"{row.ratio:.1f}×", f"{row.error:.0e}")
            for row in rows
        ],
        f"Peers take {span(beside)} times as long." if beside else "No peer was measured.",
        words=2,
    )


PART = Part("solving", tasks, sheet)
