"""A run that can be observed: the same bits as :func:`safereplay.learn`, however its iterations are split or traced.

An iteration is one update of Q, fresh or replayed. Literal mixing chooses between the two at each iteration. With matched
mixing, replays of (s,a) follow each visit of it; each replay is an iteration of its own, and a run can stop between them. With
anchored mixing a visit may only be recorded; the next iteration is then the replay that updates Q in its place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from . import _checks, footprints
from ._checks import Floats, Ints
from .arrays import sampling_model
from .kernels import step
from .learners import Learner
from .mdp import TabularMDP
from .runs import CHUNK, ENDLESS, NO_LOG, Learned, OneRun, Plan, make_program, resolved
from .schedules import Exploration, StepSize

TRACED = 1 << 16  # iterations logged at a time


class Event(NamedTuple):
    """The transition that one iteration learned from, fresh or replayed.

    The memory merges outcomes that differ only in ``unsafe``: a replay has the flag of the first.

    Parameters
    ----------
    s, a, r, s_next : int, int, float, int; the transition
    terminal : bool; whether the episode ended there; truncation after ``max_steps`` is not an end
    unsafe, replayed : bool; whether the outcome is unsafe, and whether it was replayed

    >>> import safereplay as sr
    >>> sr.Stepper(sr.grids.cliff(), sr.QLearning()).trace(1)
    [Event(s=14, a=3, r=-1.0, s_next=13, terminal=False, unsafe=False, replayed=False)]
    """

    s: int
    a: int
    r: float
    s_next: int
    terminal: bool
    unsafe: bool
    replayed: bool


class Stepper(Learned):
    """One run of a learner that can be stopped after any number of iterations and inspected.

    Steppers share no writable data, and the compiled
    code holds no lock, so threads can run different steppers in parallel. Use one stepper from one thread at a time.

    Parameters
    ----------
    mdp, learner, exploration, step_size, max_steps : as in :func:`safereplay.learn`
    seed : int; the run's seed

    >>> import safereplay as sr
    >>> mdp, replay = sr.grids.cliff(), sr.ReplayQLearning(v=0.5)
    >>> run = sr.Stepper(mdp, replay, seed=3).run(10_000)
    >>> run
    Stepper(replay(v=0.5, beta=5), seed=3: 10000 iterations, 4730 replayed, 713 episodes)
    >>> [event.replayed for event in run.trace(6)]
    [False, False, False, False, True, True]
    >>> learned = sr.learn(mdp, replay, episodes=1_000, seeds=[3])
    >>> bool((run.run_episodes(1_000 - run.episodes).Q == learned.Q[0]).all())
    True
    """

    def __init__(
        self,
        mdp: TabularMDP,
        learner: Learner,
        seed: int = 0,
        exploration: Exploration | None = None,
        step_size: StepSize | None = None,
        *,
        max_steps: int = 1_000,
    ) -> None:
        exploration, step_size = resolved(mdp, learner, exploration, step_size)
        self.mdp, self.learner, self.exploration, self.step_size = mdp, learner, exploration, step_size
        self.seed, self.max_steps = _checks.whole("seed", seed, 0, 64), _checks.whole("max_steps", max_steps, 1)
        self._check_learner()
        program = make_program(learner, exploration, step_size, mdp.gamma, mdp.n_actions)
        footprints.refuse_what_does_not_fit(footprints.of_runs(mdp, program.recipe, 1, 0, 1))
        plan = Plan(mdp, learner, ENDLESS, self.max_steps, np.zeros(0, np.int64), program)
        self._run = OneRun(plan, sampling_model(mdp), self.seed)
        self._tables = self._run.tables
        self._shape = mdp.n_states, mdp.n_actions

    def _check_learner(self) -> None:
        """Refuse learners whose iterations cannot be traced."""
        self.learner.algorithm_1(self.exploration, self.step_size, "a Stepper")

    def __repr__(self) -> str:
        counts = f"{self.iterations} iterations, {int(self.replays.sum())} replayed, {self.episodes} episodes"
        return f"Stepper({self.learner.describe()}, seed={self.seed}: {counts})"

    def run(self, iterations: int) -> Stepper:
        """Run exactly this many iterations.

        Parameters
        ----------
        iterations : int; fresh and replayed together

        Returns
        -------
        Stepper : itself
        """
        left = _checks.whole("iterations", iterations, 0)
        while left:
            left -= self._go(min(left, CHUNK))
        return self

    def run_episodes(self, episodes: int) -> Stepper:
        """Run until this many more episodes are finished, including the replays that follow their last visit.

        From a new stepper this is the run of ``sr.learn(mdp, learner, episodes, [seed])``.

        Parameters
        ----------
        episodes : int

        Returns
        -------
        Stepper : itself
        """
        goal = self.episodes + _checks.whole("episodes", episodes, 0, bits=62)
        while self._go(CHUNK, goal):
            pass
        return self

    def trace(self, iterations: int) -> list[Event]:
        """Run as :meth:`run` does, and record each iteration.

        Parameters
        ----------
        iterations : int

        Returns
        -------
        list of Event : the transition of each iteration, in order
        """
        left = _checks.whole("iterations", iterations, 0)
        log, events = np.empty(min(left, TRACED), np.int64), list[Event]()
        while left:
            done = self._go(min(left, TRACED), log=log)
            outcome, replayed = np.divmod(log[:done], 2)
            s, a = np.divmod(self.mdp.pair[outcome], self.mdp.n_actions)
            of_model = (self.mdp.r, self.mdp.s_next, self.mdp.terminal, self.mdp.unsafe)
            columns = [s, a, *(x[outcome] for x in of_model), replayed == 1]
            events += [Event(*row) for row in zip(*(x.tolist() for x in columns), strict=True)]
            left -= done
        return events

    def _go(self, budget: int, episodes: int = ENDLESS, log: Ints = NO_LOG) -> int:
        """Run up to ``budget`` iterations, or until ``episodes`` are finished in all; returns the iterations."""
        before = self.iterations
        self._run.advance(episodes, budget, log)
        return self.iterations - before

    @property
    def iterations(self) -> int:
        """Updates so far, fresh and replayed."""
        return int(self._tables.clock[step.ITERATION])

    @property
    def episodes(self) -> int:
        """Episodes that have ended or were truncated."""
        return int(self._tables.clock[step.EPISODE])

    @property
    def state(self) -> int | None:
        """The agent's state; None between two episodes."""
        s = int(self._tables.clock[step.STATE])
        return None if s == step.NO_STATE else s

    @property
    def visitation(self) -> Floats:
        """d(s,a): the share of MDP iterations that visited (s,a), [S, A]; zeros before the first."""
        return np.asarray(self.visits / max(1, int(self._tables.counts[:, step.VISITS].sum())))

    def gap(self, limit: Any) -> float:
        """The distance of Q from a limit [S, A], as a share of the limit's range, weighted by visitation:

            Σ d(s,a)·|Q(s,a) − limit(s,a)| / (max limit − min limit),

        with d the visitation so far; sum, maximum and minimum over the pairs of states that are not terminal.

        Parameters
        ----------
        limit : array [S, A]; Q of a limit

        Returns
        -------
        float : undivided if the limit's range is 0; nan before the first visit

        >>> import safereplay as sr
        >>> mdp, learner = sr.grids.cliff(), sr.ReplayQLearning(v=0.5, mixing="matched")
        >>> run, limit = sr.Stepper(mdp, learner), sr.exact(mdp, learner)
        >>> [round(run.run(n).gap(limit), 3) for n in (0, 1_000, 9_000, 990_000)]
        [nan, 0.103, 0.009, 0.002]
        """
        on = ~self.mdp.is_terminal
        there = _checks.finite_array("limit", limit, self._shape)[on]
        visits = self.visits[on]
        if not visits.any():
            return float("nan")
        error = float((visits * np.abs(self.Q[on] - there)).sum() / visits.sum())
        return error / (float(np.ptp(there)) or 1.0)
