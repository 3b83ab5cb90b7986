"""Statistics over the runs of one setting, and the rule that chooses a setting of a family.

A setting is trained once per seed, and each trained policy is run on two sets of episodes. The *selection* episodes are used to
choose a setting, the *evaluation* episodes for all numbers in tables.

**Intervals.** Networks vary over seeds, and results over episodes. So the bootstrap has two levels: seeds are drawn with
replacement, and within each seed its episodes. With five seeds, plain percentiles would be too narrow; wider ones are taken, at
Φ(−√(n/(n−1))·t), with t Student's quantile for n − 1 (Hesterberg 2015, 'expanded percentile'). With five seeds the interval is
about as wide as the range of the seeds. 0 catastrophes in 1,500 episodes do not mean a probability of 0, so an interval of
P(catastrophe) is never narrower than Wilson's for its episodes.

**The rule**, stated before any run: among a family's settings that lose at most :data:`MAY_LOSE` of the return between the plain learner
and a random policy, the one with the lowest P(catastrophe); at a tie, with the higher return. If none does, the one that loses least. It looks at the seeds
that all settings of the family have, so further seeds of the chosen setting do not change the choice.
Shaped replay at its default is reported as well, without any choice.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from safereplay._checks import AnyArray, Bools, Floats
from safereplay.views.intervals import Estimate

RESAMPLES = 4000
INNER = 400  # samples of a run's episodes; each resample takes one
MAY_LOSE = 0.15  #: of the gap in return between the plain learner and a random policy
FAILS = 0.5  #: of the gap: a seed that loses more has failed
CONFIDENCE = 0.95


class Episodes(NamedTuple):
    """The results of the episodes of one run."""

    returns: Floats  #: [E]
    unsafe: Bools  #: [E]
    steps: float = float("nan")  #: per episode

    @property
    def p(self) -> float:
        """The share of episodes with a catastrophe."""
        return float(self.unsafe.mean())

    @property
    def mean(self) -> float:
        """The mean return."""
        return float(self.returns.mean())


class Training(NamedTuple):
    """The episodes of training, in order: the step at which each ended, its return, and whether it was a catastrophe."""

    steps: AnyArray  #: [T]
    returns: Floats  #: [T]
    unsafe: Bools  #: [T]


class Run(NamedTuple):
    """One trained policy."""

    seed: int
    evaluation: Episodes
    selection: Episodes
    training: Training
    seconds: float
    paths: tuple[Floats, ...] = ()  #: [n, 2] each, if the world has a map
    machine: str = ""
    certificate: dict[str, Any] | None = None  #: of a run under a named limit


@dataclass(frozen=True)
class Group:
    """The runs of one setting, one per seed, and their statistics."""

    family: str
    dial: str
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        """The family and its dial."""
        return f"{self.family}, {self.dial}" if self.dial else self.family

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return len(self.runs)

    @cached_property
    def replicates(self) -> Floats:
        """P(catastrophe) and mean return of each bootstrap sample, [B, 2]; independent for each setting."""
        return resampled([run.evaluation for run in self.runs], seed=zlib.crc32(self.name.encode()))

    @cached_property
    def p(self) -> Estimate:
        """P(catastrophe) on the evaluation episodes."""
        unsafe = np.concatenate([run.evaluation.unsafe for run in self.runs])
        mean = float(np.mean([run.evaluation.p for run in self.runs]))
        low, high = interval(self.replicates[:, 0], self.seeds)
        least, most = wilson(int(unsafe.sum()), unsafe.size)
        return Estimate(mean, float(np.fmin(low, least)), float(np.fmax(high, most)))

    @cached_property
    def mean(self) -> Estimate:
        """The mean return on the evaluation episodes."""
        mean = float(np.mean([run.evaluation.mean for run in self.runs]))
        return Estimate(mean, *interval(self.replicates[:, 1], self.seeds))

    def selected(self, seeds: Collection[int] | None = None) -> tuple[float, float]:
        """P(catastrophe) and mean return on the selection episodes, of all seeds or of some."""
        runs = [run for run in self.runs if seeds is None or run.seed in seeds]
        return float(np.mean([run.selection.p for run in runs])), float(np.mean([run.selection.mean for run in runs]))


def certificates(group: Group) -> list[dict[str, Any]]:
    """The certificates of runs under a named limit."""
    return [run.certificate for run in group.runs if run.certificate is not None]


# -- intervals ---------------------------------------------------------------------------------------------------------


def resampled(blocks: Sequence[Episodes], count: int = RESAMPLES, seed: int = 0) -> Floats:
    """(share of catastrophes, mean return) of ``count`` samples of seeds, then of episodes within each: [count, 2]."""
    rng = np.random.default_rng(seed)
    inner = np.array([_within(block, rng) for block in blocks])  # [seeds, INNER, 2]
    chosen, which = (rng.integers(n, size=(count, len(blocks))) for n in (len(blocks), INNER))
    return np.asarray(inner[chosen, which].mean(1))


def _within(block: Episodes, rng: np.random.Generator) -> Floats:
    """The same for samples of one run's episodes, [INNER, 2]."""
    at = rng.integers(block.returns.size, size=(INNER, block.returns.size))
    return np.column_stack([block.unsafe[at].mean(1), block.returns[at].mean(1)])


def tail(seeds: int) -> float:
    """The share that an interval leaves out at each end: less than 2.5 % for few seeds.

    >>> round(tail(1000), 3), round(tail(5), 3)
    (0.025, 0.001)
    """
    t = stats.t.ppf((1 + CONFIDENCE) / 2, seeds - 1)
    return float(stats.norm.cdf(-np.sqrt(seeds / (seeds - 1)) * t))


def interval(samples: Floats, seeds: int) -> tuple[float, float]:
    """The ends of an interval by expanded percentiles; nan for a single seed."""
    if seeds < 2 or not np.isfinite(samples).all():
        return float("nan"), float("nan")
    low, high = np.quantile(samples, (tail(seeds), 1 - tail(seeds)))
    return float(low), float(high)


def wilson(bad: int, n: int) -> tuple[float, float]:
    """Wilson's interval of a share.

    >>> [round(x, 4) for x in wilson(0, 1500)]
    [0.0, 0.0026]
    """
    found = stats.binomtest(bad, n).proportion_ci(CONFIDENCE, method="wilson")
    return float(found.low), float(found.high)


def difference(a: Group, b: Group, column: int) -> Estimate:
    """a − b in P(catastrophe) (column 0) or mean return (1), with its interval; their runs are independent."""
    samples = a.replicates[:, column] - b.replicates[:, column]
    means = [(g.p, g.mean)[column].mean for g in (a, b)]
    return Estimate(means[0] - means[1], *interval(samples, min(a.seeds, b.seeds)))


def ratio(group: Group, plain: Group) -> Estimate:
    """P(catastrophe) as a multiple of the plain learner's; nan if that has none. At least as wide as for a known P of the plain learner."""
    below = plain.p.mean if plain.p.mean > 0 else float("nan")
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = interval(group.replicates[:, 0] / plain.replicates[:, 0], min(group.seeds, plain.seeds))
    ends = np.fmin(low, group.p.low / below), np.fmax(high, group.p.high / below)
    return Estimate(group.p.mean / below, float(ends[0]), float(ends[1]))


def significance(found: Estimate) -> int:
    """1 if the whole interval is above 0, −1 if it is below, else 0 (also if there is no interval)."""
    return int(found.low > 0) - int(found.high < 0)


# -- the rule ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The setting of a family that the rule chooses."""

    group: Group
    kept: bool  #: whether any setting loses at most what the rule allows
    agreeing: int  #: the number of equal choices with one seed left out
    of: int


def loss(mean: float, plain: float, random: float) -> float:
    """The loss in return, as a share of the gap between the plain learner and a random policy; nan if there is no gap.

    >>> loss(9.0, plain=10.0, random=0.0)
    0.1
    """
    return (plain - mean) / (plain - random) if plain > random else float("nan")


def lost(group: Group, plain: Group, random: Group) -> Estimate:
    """The share of the gap that a setting loses on the evaluation episodes, with its interval."""
    gap = plain.replicates[:, 1] - random.replicates[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = (plain.replicates[:, 1] - group.replicates[:, 1]) / gap
    samples = np.where(gap > 0, samples, np.nan)
    seeds = min(group.seeds, plain.seeds)
    return Estimate(loss(group.mean.mean, plain.mean.mean, random.mean.mean), *interval(samples, seeds))


def choose(groups: Sequence[Group], plain: Group, random: Group) -> Choice | None:
    """Apply the rule to the selection episodes of the seeds that all settings have, and of all seeds of plain and random; None if there are none."""
    seeds = set.intersection(*({run.seed for run in g.runs} for g in groups)) if groups else set()
    if not seeds:
        return None
    best, kept = _by_the_rule(groups, plain, random, seeds)
    again = [_by_the_rule(groups, plain, random, seeds, {one})[0] for one in seeds if len(seeds) > 1]
    return Choice(best, kept, sum(g is best for g in again), len(again))


def _by_the_rule(
    groups: Sequence[Group], plain: Group, random: Group, seeds: set[int], without: Collection[int] = ()
) -> tuple[Group, bool]:
    top, bottom = plain.selected({run.seed for run in plain.runs}.difference(without))[1], random.selected()[1]
    found = [(group, *group.selected(seeds.difference(without))) for group in groups]
    meets = [x for x in found if loss(x[2], top, bottom) <= MAY_LOSE]
    if meets:
        return min(meets, key=lambda x: (x[1], -x[2]))[0], True
    return max(found, key=lambda x: x[2])[0], False


# -- a world -----------------------------------------------------------------------------------------------------------

RANDOM, PLAIN, OURS, KEYED, LIMITED = "random", "plain", "shaped", "shaped with keys", "named limit"
PENALTY, CVAR, IQN, STATIC, LAGRANGIAN = "penalty", "QR-DQN CVaR", "IQN CVaR", "static CVaR", "Lagrangian"
RIVALS = (PENALTY, CVAR, IQN, STATIC, LAGRANGIAN)  #: families with a dial, besides ours

#: The order in which families are listed.
FAMILIES = (PLAIN, OURS, LIMITED, KEYED, *RIVALS, RANDOM)
DEFAULT = "v = 0.8"  #: the dial of shaped replay at its default


@dataclass(frozen=True)
class Chapter:
    """All results on one world."""

    world: str
    title: str
    groups: tuple[Group, ...]

    def family(self, name: str) -> tuple[Group, ...]:
        """A family's settings, in the plan's order."""
        return tuple(group for group in self.groups if group.family == name)

    @cached_property
    def plain(self) -> Group:
        """The plain learner, DQN or SAC."""
        return self.family(PLAIN)[0]

    @cached_property
    def random(self) -> Group:
        """The random policy."""
        return self.family(RANDOM)[0]

    @cached_property
    def default(self) -> Group | None:
        """Shaped replay at its default, if it was run."""
        return next((group for group in self.family(OURS) if group.dial == DEFAULT), None)

    @cached_property
    def choices(self) -> dict[str, Choice]:
        """The rule's choice for each family that has a dial."""
        found = {name: choose(self.family(name), self.plain, self.random) for name in (OURS, *RIVALS)}
        return {name: choice for name, choice in found.items() if choice is not None}

    @cached_property
    def contestants(self) -> dict[str, Group]:
        """One setting of each family that was run: shaped replay at its default, rivals as the rule chooses."""
        found = {PLAIN: self.plain, OURS: self.default, KEYED: next(iter(self.family(KEYED)), None)}
        rivals = {name: self.choices[name].group for name in RIVALS if name in self.choices}
        return {name: group for name, group in found.items() if group is not None} | rivals

    def lost(self, group: Group) -> Estimate:
        """The share of the gap between the plain learner and random that a setting loses."""
        return lost(group, self.plain, self.random)

    def failed(self, group: Group) -> int:
        """The number of seeds that lose more than half of the gap between the plain learner's mean and random."""
        ends = self.plain.mean.mean, self.random.mean.mean
        return sum(loss(run.evaluation.mean, *ends) > FAILS for run in group.runs)

    def dialled(self, name: str) -> tuple[Group, ...]:
        """A family with the neutral end of its dial first, the plain learner."""
        return (self.plain, *self.family(name))
