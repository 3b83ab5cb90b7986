"""The verdict on a policy and its risk, computed once for all policies that behave the same.

A sweep finds the same few policies many times. What a policy does from the origin depends only on its actions in the
states that it reaches,

    R(π) = { s : π can lead from the origin to s },

so policies that agree on their R are equivalent. They are judged on the model without the other states, which do not
enter the equations. The numbers are those of :func:`safereplay.evaluate` from the origin. They are equal to the last bit
unless the elimination there takes a pivot among the other states.
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from functools import cached_property
from math import nan
from typing import NamedTuple

import numpy as np

from .._types import Bools, Ints
from ..errors import BadInput
from ..mdp import TabularMDP
from ..theory.chain import chain_of
from ..theory.risk import RiskProfile, evaluate
from ..verdicts import verdict
from .identity import table_digest

MODELS = 64  # models in the cache
POLICIES = 1 << 14  # policies in the cache per model ...
ACTIONS = 1 << 20  # ... and all their actions together


class Risk(NamedTuple):
    """The undiscounted return from the origin and its risk; nan where it cannot be computed."""

    mean: float
    std: float
    p_unsafe: float
    p_never: float
    cvar10: float


class Judged:
    """One policy on one model; each number is computed at its first use."""

    def __init__(self, mdp: TabularMDP, policy: Ints, reached: Bools) -> None:
        self._mdp, self._policy, self._reached = mdp, policy, reached

    @cached_property
    def verdict(self) -> str:
        """The policy's verdict (see :func:`safereplay.verdict`)."""
        return verdict(self._mdp, self._policy)

    @cached_property
    def moments(self) -> tuple[float, float, float, float]:
        """(mean, std, p_unsafe, p_never), which need no distribution of the return."""
        found = self._profile()
        return (nan, nan, nan, nan) if found is None else (found.mean, found.std, found.p_unsafe, found.p_never)

    @cached_property
    def risk(self) -> Risk:
        """The risk as :func:`safereplay.evaluate` computes it."""
        found = self._profile()
        return Risk(*self.moments, nan if found is None else found.cvar(0.1))

    def _profile(self) -> RiskProfile | None:
        """None if the end of an episode is too unlikely for floating-point arithmetic."""
        try:
            return evaluate(self.part(), self._policy, start=self._mdp.origin, threads=1, quiet=True)
        except BadInput:
            return None

    def part(self) -> TabularMDP:
        """The model without the states that the policy does not reach."""
        mdp = self._mdp
        keep = self._reached[mdp.pair // mdp.n_actions]
        row = np.searchsorted(mdp.pair[keep], np.arange(mdp.n_pairs + 1)).astype(np.int64)
        columns = {name: getattr(mdp, name)[keep] for name in ("p", "s_next", "r", "terminal", "unsafe")}
        return replace(mdp, row=row, **columns)


class Judge:
    """A cache of judged policies of one model. Threads may share it.

    >>> import safereplay as sr
    >>> right = Judge(sr.grids.volatile()).of(np.ones(20, np.int64))
    >>> right.verdict, round(right.risk.mean)
    ('risky', 210)
    """

    def __init__(self, mdp: TabularMDP) -> None:
        self._mdp, self._lock = mdp, threading.Lock()
        self._room = max(4, min(POLICIES, ACTIONS // mdp.n_states))
        self._whole: dict[bytes, Judged] = {}
        self._by_part: dict[bytes, Judged] = {}

    def of(self, policy: Ints) -> Judged:
        """The judged policy for a policy [S]."""
        whole = _digest(policy)
        found = self._whole.get(whole)
        if found is None:
            reached = chain_of(self._mdp, policy).reached(np.eye(1, self._mdp.n_states, self._mdp.origin)[0])
            part = _digest(np.where(reached, policy, -1))
            found = self._by_part.get(part) or Judged(self._mdp, policy, reached)
            self._keep(self._by_part, part, found)
            self._keep(self._whole, whole, found)
        return found

    def _keep(self, known: dict[bytes, Judged], key: bytes, judged: Judged) -> None:
        with self._lock:
            known[key] = judged
            while len(known) > self._room:
                del known[next(iter(known))]


_judges: dict[str, Judge] = {}
_lock = threading.Lock()


def judge_of(mdp: TabularMDP) -> Judge:
    """The judge of a model, cached by the model's content without γ."""
    key = table_digest(mdp)
    with _lock:
        if key not in _judges:
            while len(_judges) >= MODELS:
                del _judges[next(iter(_judges))]
            _judges[key] = Judge(mdp)
        return _judges[key]


def _digest(policy: Ints) -> bytes:
    return hashlib.blake2b(policy.tobytes(), digest_size=16).digest()
