"""Running a comparison: every setting of every contestant on every world, the same experience for all, judged exactly.

A run takes exactly ``world.steps`` steps of the MDP, whatever the learner does with them. Its greedy policy is looked at
after an eighth, a quarter, half and all of them. Learning takes all cores; the policies of one setting are judged while
the next is learned.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from .. import _checks
from .._progress import Bar
from .._types import Floats
from ..errors import BadInput
from ..runs import Runs, learn
from ..schedules import EpsilonGreedy
from ..theory.limits import exact
from .plan import NO_LIMIT, Job, Plan, Record, Store

AHEAD = 2  # settings that may be learned and not yet judged
LARGE = 1_000  # pairs: of a larger model the exact limits are not worked out


def run(plan: Plan, store: Store, quiet: bool = False, threads: int | None = None) -> None:
    """Do what the store lacks. On Ctrl-C what is finished stays."""
    jobs = list(plan.jobs())
    todo = [(label, job) for label, job in jobs if store.get(job) is None]
    there = len(jobs) - len(todo)
    waiting: deque[Future[None]] = deque()
    done = 0
    with Bar("comparing", len(jobs), quiet) as bar, ThreadPoolExecutor(1) as judges:
        for label, job in todo:
            bar.update(there + done, label)
            waiting.append(judges.submit(_finish, store, job, _learned(job, threads)))
            while len(waiting) > AHEAD:
                waiting.popleft().result()
                done += 1
        for one in waiting:
            one.result()


def _learned(job: Job, threads: int | None) -> Runs | str:
    """What the seeds learned, or why the learner does not run here."""
    world = job.world
    try:
        return learn(
            world.mdp,
            job.learner,
            seeds=job.seeds,
            exploration=EpsilonGreedy(world.epsilon),
            steps=world.steps,
            max_steps=world.max_steps,
            snapshots=world.looks.tolist(),
            threads=threads,
            quiet=True,
        ).whole()
    except BadInput as error:
        return str(error)


def _finish(store: Store, job: Job, runs: Runs | str) -> None:
    """Judge what was learned, and keep it."""
    store.put(job, Record.not_run(runs) if isinstance(runs, str) else judged(job, runs))


def judged(job: Job, runs: Runs) -> Record:
    """The record of what the seeds learned."""
    world, model = job.world, job.learner.judging_model(job.world.mdp)
    steps = runs.visits.sum((1, 2))
    _checks.require(bool((steps == world.steps).all()), "steps of a run", f"be {world.steps}", steps.tolist())
    assert runs.snapshots is not None
    policies = runs.snapshots.policy  # [seeds, looks, S]
    found = np.array([[world.judged(model, policy) for policy in run] for run in policies])
    updates = steps + runs.replays.sum((1, 2))
    return Record(found[..., 0], found[..., 1], found[..., 2], updates, _limit(job))


def _limit(job: Job) -> Floats:
    """What the learner converges to, judged; nan where it has no exact limit, or the model is large."""
    world, model = job.world, job.learner.judging_model(job.world.mdp)
    if model.n_pairs > LARGE:
        return np.array(NO_LIMIT)
    try:
        return np.array(world.judged(model, exact(world.mdp, job.learner).argmax(1)))
    except BadInput:
        return np.array(NO_LIMIT)
