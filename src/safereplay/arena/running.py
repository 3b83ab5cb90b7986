"""Running a comparison: every setting of every contestant on every world.

A run takes exactly ``world.steps`` steps of the MDP, for any learner. Its greedy policy is judged exactly after an eighth,
a quarter, half and all of them. Learning uses all cores; the policies of one setting are judged while the next one learns.
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

AHEAD = 2  # settings that may wait to be judged
LARGE = 1_000  # pairs: exact limits of larger models are not computed


def run(plan: Plan, store: Store, quiet: bool = False, threads: int | None = None) -> None:
    """Do the jobs that the store lacks. Ctrl-C keeps finished jobs."""
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
    """The runs of all seeds, or the reason why the learner does not run on this world."""
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
    """Judge the runs, and save the record."""
    store.put(job, Record.not_run(runs) if isinstance(runs, str) else judged(job, runs))


def judged(job: Job, runs: Runs) -> Record:
    """The record of the runs of all seeds."""
    world, model = job.world, job.learner.judging_model(job.world.mdp)
    steps = runs.visits.sum((1, 2))
    _checks.require(bool((steps == world.steps).all()), "steps of a run", f"be {world.steps}", steps.tolist())
    assert runs.snapshots is not None
    policies = runs.snapshots.policy  # [seeds, looks, S]
    found = np.array([[world.judged(model, policy) for policy in run] for run in policies])
    updates = steps + runs.replays.sum((1, 2))
    return Record(found[..., 0], found[..., 1], found[..., 2], updates, _limit(job))


def _limit(job: Job) -> Floats:
    """The learner's limit, judged; nan if it has no exact limit, or the model is large."""
    world, model = job.world, job.learner.judging_model(job.world.mdp)
    if model.n_pairs > LARGE:
        return np.array(NO_LIMIT)
    try:
        return np.array(world.judged(model, exact(world.mdp, job.learner).argmax(1)))
    except BadInput:
        return np.array(NO_LIMIT)
