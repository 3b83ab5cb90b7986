"""The paper's conditions, checked for a scheme, its schedules and a model by :func:`check`.

By Theorem 1 learning converges, if

    step sizes     Σα = ∞ and Σα² < ∞ at each pair;
    exploration    every action of a state that is visited infinitely often is taken infinitely often. The paper calls
                   this GLIE, but its definition and its proof use only the second half of that name;
    w_t settles    w_t → w^∞. Lemma 4 shows it for variance replay, and its proof holds for any factors that are
                   continuous in the statistics of a pair. Here it is also measured, on runs;
    contraction    ‖HQ − HQ'‖ ≤ γ·‖Q − Q'‖, by Lemma 2. A sharper factor is γ·max Σ p̃ over the outcomes of a pair
                   that do not end: Q and Q + c show that it is the smallest.

By Theorem 2 the limit is safe if w favours volatile pairs and bad rewards (Assumption 1): see
:mod:`safereplay.theory.theorem2`.

:func:`prospects` is for other learners, which have no such w_t: their class attributes ``SETTLES`` and ``WHY`` state
whether their replay distribution converges.

Ref: Szlak & Shamir (2021), Lemma 1, Lemma 2, Lemma 3, Lemma 4, Theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import numpy as np

from .. import _checks
from .._checks import Floats
from .._config import plain
from ..errors import BadInput
from ..kernels.memory import STATISTICS
from ..learners import Learner, ReplayQLearning, paper_mixing
from ..mdp import TabularMDP
from ..runs import Runs, learn, resolved
from ..schedules import Exploration, StepSize
from ..schemes import DownsideReplay, DynaReplay, ErrorReplay, Scheme, VarianceReplay, alike, if_seen, no_tilt
from .limits import exact, fixed_point
from .operator import given_visits, limit_table, limit_weights, operator, taken_apart
from .shaped import Soundness, judge
from .solver import largest
from .theorem2 import Assumption1, Part, Theorem2, assumption_1, theorem_2

OCTAVES = 9  # of episodes over which w_t is followed, two snapshots each
EARLY = 16  # distances before this episode are not used for the rate
LATE = 5  # the last octaves, which must show it as well, so that a decrease that has stopped does not count
SETTLED = 1e-9  # a distance that counts as 0
SETTLES, LATELY = -0.2, -0.1  # rates up to which w_t converges, overall and in the last octaves; −½ is usual
JUMP = 1e-3  # of w, when its statistics change by 1e-7
TRIALS = 64  # random pairs of Q on which the contraction is measured
ROWS = 20  # of a printed table


@dataclass(frozen=True)
class StepSizes(Part):
    """Whether Σα = ∞ and Σα² < ∞.

    Ref: Szlak & Shamir (2021), Theorem 1.
    """

    sum_diverges: bool | None
    squares_converge: bool | None
    power: float  #: α ~ n^−power
    proved: bool  #: known from the formula, not measured on values
    partial_sums: tuple[float, float]  #: Σα and Σα² over the first 65,535 updates


@dataclass(frozen=True)
class Exploring(Part):
    """Whether every action is taken infinitely often; ``holds`` is about this half of GLIE, which Theorem 1 uses.

    Ref: Szlak & Shamir (2021), Theorem 1 (GLIE).
    """

    explores: bool | None
    greedy: bool | None  #: in the limit
    proved: bool
    unreachable: tuple[tuple[int, int], ...]  #: pairs (s, a) that cannot be reached


@dataclass(frozen=True)
class Unseen:
    """A pair with outcomes that some runs had not seen, and their w^∞."""

    s: int
    a: int
    weight: float  #: w^∞ of the outcomes not seen, mean over the runs
    runs: int  #: number of such runs
    visited: bool  #: whether any of them visited the pair


@dataclass(frozen=True)
class Settling(Part):
    """The distance of w_t from w^∞ along the runs (from w_2t if there is no w^∞); root mean squares over the seeds.

    Ref: Szlak & Shamir (2021), Lemma 4, Theorem 1.
    """

    limit: bool  #: whether compared with w^∞
    episodes: tuple[int, ...]
    distance: tuple[float, ...]  #: total variation
    rate: float  #: slope of log distance on log episodes; nan if there is no distance
    late_rate: float  #: the same over the last five octaves
    proved: bool  #: by Lemma 4, independent of the measurement
    jump: float  #: change of w for a small change of the statistics at its limit; large if w jumps there
    unseen: tuple[Unseen, ...]


@dataclass(frozen=True)
class Contraction(Part):
    """The contraction factor of H.

    Ref: Szlak & Shamir (2021), Lemma 2.
    """

    gamma: float  #: the paper's bound
    factor: float  #: γ·max_{s,a} Σ p̃ over outcomes that do not end: the exact factor
    measured: float  #: largest ratio on random pairs of Q; nan if there is no w^∞
    reached: float  #: ratio at Q and Q + 1


@dataclass(frozen=True)
class CheckReport:
    """The result of :func:`check`; printing it gives a report.

    Parameters
    ----------
    mdp, scheme, v, mixing, exploration, step_size, visitation : the settings that were checked
    steps, exploring, settling, contraction, assumption, theorem, tilt : each has ``holds`` (or None) and a ``reason``
    warnings : list of str

    >>> import safereplay as sr
    >>> found = sr.check(sr.grids.volatile(), sr.VarianceReplay(beta=5.0), episodes=2_000, seeds=2)
    >>> found.steps.holds, found.exploring.holds, found.contraction.factor
    (True, True, 0.9)
    """

    mdp: str
    scheme: Scheme
    v: float
    mixing: str
    exploration: Exploration
    step_size: StepSize
    visitation: str  #: the source of d(s,a)
    steps: StepSizes
    exploring: Exploring
    settling: Settling
    contraction: Contraction
    assumption: Assumption1
    theorem: Theorem2  #: its smallest v are for a fixed d(s,a)
    tilt: Soundness  #: of the scheme's tilt, for any model
    warnings: list[str]

    @property
    def conditions_hold(self) -> bool | None:
        """Whether Theorem 1's conditions hold: False if one fails, None if one is unknown.

        With matched mixing they are enough: learning converges. With literal mixing the theorem's proof has a gap, d ≡ 1,
        and learning may converge to one of several limits, or alternate between two policies.
        """
        held = [part.holds for part in (self.steps, self.exploring, self.settling, self.contraction)]
        return False if False in held else None if None in held else True

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; numbers that are not finite become None."""
        values = plain(self)
        configs = {name: values[name] for name in ("scheme", "exploration", "step_size")}
        return {**configs, **values, "conditions_hold": self.conditions_hold}

    def __str__(self) -> str:
        return "\n".join(_page(self))


def check(
    mdp: TabularMDP,
    scheme: Scheme,
    v: float = 0.5,
    *,
    mixing: str = "literal",
    exploration: Exploration | None = None,
    step_size: StepSize | None = None,
    visitation: Any = None,
    episodes: int = 20_000,
    seeds: int = 5,
    seed: int = 0,
    quiet: bool = False,
) -> CheckReport:
    """Check the paper's conditions for a scheme on a model: each holds, fails, or is unknown.

    Parameters
    ----------
    mdp, scheme, v : the model, the scheme, and the share of replay iterations, in [0, 1)
    mixing : {"literal", "matched"}; matched mixing has the paper's limit, d ≡ 1, that of literal mixing depends on d(s,a)
    exploration, step_size : optional; default: those of :func:`safereplay.learn`
    visitation : array [S, A], optional; d(s,a) for literal mixing; default: the mean over the runs
    episodes, seeds, seed : int; length and number of the runs, and the first seed
    quiet : bool; without a progress bar

    Returns
    -------
    CheckReport

    Raises
    ------
    BadInput : an argument is invalid, or ``visitation`` is given with matched mixing

    >>> import safereplay as sr
    >>> found = check(sr.grids.volatile(), sr.VarianceReplay(beta=5.0), mixing="matched", episodes=2_000, seeds=3)
    >>> found.conditions_hold, [point.holds for point in found.assumption.points]
    (True, [True, True, False])
    >>> found.theorem.holds, found.theorem.reason
    (None, "says nothing here: of all variance, no state's best action has more than 33.3%")

    Ref: Szlak & Shamir (2021), Lemma 2, Lemma 4, Theorem 1, Assumption 1, Theorem 2.
    """
    learner = ReplayQLearning(scheme, v=v, mixing=paper_mixing(mixing))
    exploration, step_size = resolved(mdp, learner, exploration, step_size)
    episodes = _checks.whole("episodes", episodes, 2)
    count, first = _checks.whole("seeds", seeds, 1, bits=24), _checks.whole("seed", seed, 0, bits=62)
    given, hint = visitation is not None, "its limit does not depend on the visitation"
    _checks.require(mixing == "literal" or not given, "visitation", "be left out with matched mixing", "one", hint)
    d = given_visits(mdp, learner.v, visitation) if given else None
    points = np.unique((episodes * 2.0 ** (-np.arange(2 * OCTAVES + 1) / 2)).astype(np.int64))
    runs_of, shots = range(first, first + count), points[points > 0].tolist()
    runs = learn(mdp, learner, episodes, runs_of, exploration, step_size, snapshots=shots, quiet=quiet).whole()
    where = "d ≡ 1" if mixing == "matched" else "d(s,a) as given"
    if mixing == "literal" and d is None:
        d = runs.visitation.mean(0)
        where = f"d(s,a) as measured on {len(runs.seeds)} run{'s' * (len(runs.seeds) > 1)} of {episodes:,} episodes"
    parts = (
        step_sizes(step_size),
        exploring(mdp, exploration),
        _settling(runs, exploration.glie().explores is True),
        _contraction(mdp, scheme, v, d, first),
        *_safety(mdp, scheme, v, d),
        judge(scheme),
    )
    report = CheckReport(mdp.name, scheme, learner.v, mixing, exploration, step_size, where, *parts, [])
    report.warnings.extend(_warnings(report, runs, not given))
    return report


def step_sizes(step_size: StepSize) -> StepSizes:
    """The conditions on step sizes."""
    sums = step_size.sums()
    both = (sums.diverges, sums.squares_converge)
    holds = False if False in both else None if None in both else True
    first = {True: "Σα = ∞", False: "Σα < ∞, too little to reach every value", None: "Σα unclear"}[sums.diverges]
    second = {True: "Σα² < ∞", False: "Σα² = ∞, too much noise to settle", None: "Σα² unclear"}[sums.squares_converge]
    how = "proved" if sums.decay.proved else "measured on its values, not proved"
    reason = f"{first}; {second}: α ~ n^−{sums.decay.power:.3g} ({how})"
    return StepSizes(holds, reason, *both, sums.decay.power, sums.decay.proved, sums.partial)


def exploring(mdp: TabularMDP, exploration: Exploration) -> Exploring:
    """The conditions on exploration."""
    glie = exploration.glie()
    lost = np.flatnonzero(np.repeat(~mdp.is_reachable & ~mdp.is_terminal, mdp.n_actions))
    unreachable = tuple(divmod(int(i), mdp.n_actions) for i in lost)
    limit = {True: "greedy in the limit", False: "not greedy in the limit", None: "perhaps greedy in the limit"}
    how = "" if glie.decay.proved else ", measured, not proved"
    reason = f"{glie.reason}{how} ({limit[glie.greedy]}, which Theorem 1 does not need)"
    explores, greedy = glie.explores, glie.greedy
    if mdp.n_actions == 1:
        explores, greedy, reason = True, True, "there is only one action"
    return Exploring(explores, reason, explores, greedy, glie.decay.proved, unreachable)


#: Factors that are continuous in the statistics of a pair, so that Lemma 4's proof holds.
CONTINUOUS = {
    *(if_seen, no_tilt, alike, DynaReplay.log_tilt),
    *(kind.pair_weight for kind in (VarianceReplay, DownsideReplay, ErrorReplay)),
    *(kind.log_tilt for kind in (VarianceReplay, DownsideReplay, ErrorReplay)),
}


def _jump(mdp: TabularMDP, scheme: Scheme) -> float:
    """The change of w^∞, in total variation, when means, variances and counts change by 1e-7 of their size.

    Statistics cross their limits infinitely often. So if w jumps there, w_t never converges.
    """
    table, generator = limit_table(mdp), np.random.default_rng(0)
    at_limit = np.exp(taken_apart(scheme, table).outcomes.log_w)
    mean, var = STATISTICS.index("mean"), STATISTICS.index("var")
    furthest = 0.0
    for _ in range(8):
        stats = table.stats.copy()
        stats[:, mean] += 1e-7 * generator.choice([-1.0, 1.0], len(stats)) * np.sqrt(stats[:, var])
        stats[:, var] *= 1.0 + 1e-7 * generator.choice([-1.0, 1.0], len(stats))
        seen = table.seen * (1.0 + 1e-7 * generator.choice([-1.0, 1.0], table.seen.size))
        moved = np.exp(taken_apart(scheme, table._replace(stats=stats, seen=seen)).outcomes.log_w)
        furthest = max(furthest, 0.5 * float(np.abs(moved - at_limit).sum()))
    return furthest


def _settling(runs: Runs, explores: bool) -> Settling:
    """The distance of w_t from w^∞ over the pairs that can be reached, or from w_2t, and the verdict on it."""
    mdp, learner, shots = runs.mdp, runs.learner, runs.snapshots
    if shots is None or shots.w is None or runs.w is None or not isinstance(learner, ReplayQLearning):
        raise AssertionError("a replaying run with snapshots has weights")
    scheme, proved, jump = learner.scheme, False, 0.0
    unseen: list[Unseen] = []
    to, episodes, apart = "w_2t", shots.episodes[:-2], shots.w[:, 2:] - shots.w[:, :-2]  # two snapshots per octave
    if scheme.has_limit:
        w, jump = limit_weights(mdp, scheme), _jump(mdp, scheme)
        to, episodes, apart = "w^∞", shots.episodes, shots.w - w  # [seeds, m, K]
        proved = explores and all(getattr(type(scheme), factor) in CONTINUOUS for factor in scheme.OFFERS)
        # Outcomes with a w^∞ but no weight in a run's last w_t, by pair; those with most missing first.
        missing = np.stack([mdp.expect(w * (seen == 0), np.ones_like(w)).ravel() for seen in runs.w])
        visits, mean = runs.visits.reshape(len(runs.seeds), -1), missing.mean(0)
        for i in np.argsort(-mean, kind="stable")[: (mean > SETTLED).sum()]:
            pair, in_runs = divmod(int(i), mdp.n_actions), missing[:, i] > 0
            unseen.append(Unseen(*pair, float(mean[i]), int(in_runs.sum()), bool(visits[in_runs, i].any())))
    if not episodes.size:
        return Settling(proved or None, "too few episodes to tell", False, (), (), nan, nan, proved, jump, ())
    distance = np.sqrt(((0.5 * np.abs(apart).sum(-1)) ** 2).mean(0))  # so one run that is near by chance matters little
    lately = max(EARLY, int(episodes[-1]) / 2**LATE)
    rates = []
    for since in (EARLY, lately):
        use = (episodes >= since) & (distance > SETTLED)
        enough = use.sum() >= 2
        rates.append(float(np.polyfit(np.log(episodes[use]), np.log(distance[use]), 1)[0]) if enough else nan)
    last, lacking = float(distance[-1]), sum(x.weight for x in unseen)
    holds: bool | None = None
    said = f"w_t is {last:.2g} from {to} in the end, and nears it as t^{rates[0]:.2f}, lately t^{rates[1]:.2f}"
    if distance[-5:].max() <= SETTLED:
        holds, said = True, f"w_t is {to} in the end"
    elif unseen and lacking >= 0.5 * last:
        x = unseen[0]
        said = f"{said}; {lacking:.2g} of w^∞ was never seen, most of it at (s={x.s}, a={x.a})"
    elif rates[0] <= SETTLES and rates[1] <= LATELY:
        holds = True
    elif rates[0] > SETTLES and rates[1] > LATELY:
        holds, said = False, said.replace("nears it", "does not near it:")
    if holds and jump > JUMP:
        holds, said = None, f"{said}; but w jumps by {jump:.2g} where its statistics settle"
    how = "proved (Lemma 4)" if proved else "measured"
    points = tuple(map(int, episodes)), tuple(map(float, distance))
    return Settling(
        proved or holds, f"{how}: {said}", to == "w^∞", *points, rates[0], rates[1], proved, jump, tuple(unseen)
    )


def _contraction(mdp: TabularMDP, scheme: Scheme, v: float, d: Floats | None, seed: int) -> Contraction:
    gamma = mdp.gamma
    if not scheme.has_limit:
        return Contraction(True, f"γ = {gamma:g} whatever w_t is (Lemma 2)", gamma, gamma, nan, nan)
    H = operator(mdp, scheme, v, d)
    factor = gamma * min(1.0, float(mdp.expect((~mdp.terminal).astype(np.float64), H.p).max()))
    one, Q = largest(mdp.r) or 1.0, np.zeros((mdp.n_states, mdp.n_actions))
    trials = np.random.default_rng(seed).normal(scale=one / (1.0 - gamma), size=(TRIALS, 2, *Q.shape))
    most = max(float(np.abs(H(P) - H(Q)).max() / np.abs(P - Q).max()) for P, Q in trials)
    reached = float(np.abs(H(Q + one) - H(Q)).max()) / one
    holds = max(most, reached) <= factor + 1e-9 and factor <= gamma + 1e-9
    reason = f"factor {factor:.4g} (γ = {gamma:g}); at most {most:.4g} on random Q, {reached:.4g} at Q and Q + 1"
    return Contraction(holds, reason, gamma, factor, most, reached)


def _safety(mdp: TabularMDP, scheme: Scheme, v: float, d: Floats | None) -> tuple[Assumption1, Theorem2]:
    if scheme.has_limit or scheme.FAITHFUL:
        return assumption_1(mdp, scheme), theorem_2(mdp, scheme, v, d)
    if scheme.follows_values:
        reason = "says nothing here: w depends on Q, and the theorem is about a w that does not"
        return assumption_1(mdp, scheme, v), Theorem2(None, reason, v, (), None, None)
    reason = "unknown: w_t depends on TD errors or visits, so the model alone gives no w^∞"
    return Assumption1(None, reason, ()), Theorem2(None, reason, v, (), None, None)


def _warnings(report: CheckReport, runs: Runs, measured: bool) -> Iterator[str]:
    exploring, settling, theorem = report.exploring, report.settling, report.theorem
    if not report.steps.holds:
        yield f"step sizes: {report.steps.reason}"
    if not exploring.holds:
        yield f"exploration: {exploring.reason}"
    if exploring.unreachable:
        s, a = exploring.unreachable[0]
        yield f"{len(exploring.unreachable)} pairs cannot be reached from the start, as (s={s}, a={a}): their Q stays c0"
    if not settling.holds:
        yield f"w_t: {settling.reason}"
    for x in settling.unseen[:3]:
        how = "not every outcome was seen" if x.visited else "never visited"
        yield f"(s={x.s}, a={x.a}): {how} in {x.runs} of {len(runs.seeds)} runs; it has {x.weight:.2g} of w^∞"
    literal = report.mixing == "literal"
    if literal:
        yield "literal mixing converges to the limit with d(s,a), not to the paper's (d ≡ 1): matched mixing does"
    if literal and exploring.greedy:
        yield "greedy in the limit: d → 0 where the policy does not go, so that volatile pairs there become all replay"
    if literal and measured and theorem.states:
        # The visits of the runs may differ so much that their limits have different policies.
        limits = [fixed_point(runs.mdp, report.scheme, report.v, d) for d in runs.visitation]
        scale = largest(*limits) or 1.0
        policies = {tuple((Q / scale).round(9).argmax(1).tolist()) for Q in limits}
        if len(policies) > 1:
            yield f"the visits of {len(runs.seeds)} runs give limits with {len(policies)} different policies"
    for number, point in enumerate(report.assumption.points, 1):
        if (witness := point.readings[0].witness) is not None:
            yield f"Assumption 1, point {number}: {witness.text}"
    if theorem.holds is False:
        yield f"Theorem 2 is wrong here: {theorem.reason}"


def _page(report: CheckReport) -> Iterator[str]:
    yield f"{report.mdp}: {report.scheme}, v = {report.v:g}, {report.mixing} mixing; {report.visitation}"
    yield f"{report.exploration}, {report.step_size}"
    yield ""
    gap = "" if report.mixing == "matched" else " (its proof takes d ≡ 1, so it does not cover literal mixing)"
    yield f"Theorem 1, its conditions hold: {_mark(report.conditions_hold).strip()}{gap}"
    names = ("step sizes", "exploration", "w_t settles", "contraction")
    yield from map(_line, names, (report.steps, report.exploring, report.settling, report.contraction))
    yield ""
    yield f"Assumption 1, w favours volatile pairs and bad rewards: {report.assumption.reason}"
    for number, point in enumerate(report.assumption.points, 1):
        yield _line(f"point {number}", point)
        for reading in point.readings:
            yield f"      {_mark(reading.holds)} {reading.name}"
    yield ""
    yield f"Theorem 2, the policy leaves volatile actions: {report.theorem.reason}"
    yield from _switches(report.theorem)
    yield ""
    broken = report.tilt.broken
    yield f"A sound tilt, whatever the model: {'breaks ' + ' and '.join(broken) if broken else 'no promise is broken'}"
    yield from (_line(name, part) for name, part in report.tilt.parts())
    if report.warnings:
        yield ""
        yield from (f"! {line}" for line in report.warnings)


def _mark(holds: bool | None) -> str:
    return {True: "yes", False: "no ", None: "?  "}[holds]


def _line(name: str, part: Part) -> str:
    return f"  {name:<12} {_mark(part.holds)}  {part.reason}"


def _switches(theorem: Theorem2) -> Iterator[str]:
    """The table of states; states where the policy changes come first."""
    if not theorem.states:
        return
    predicted, corrected, switched = (theorem.count(name) for name in ("predicted", "corrected", "switched"))
    by_the_corrected = f"is predicted by the corrected inequality: {corrected}"
    yield f"  states where it is predicted: {predicted}, {by_the_corrected}, happens: {switched}"
    if theorem.v_limit is not None:
        when = f"from v = {theorem.v_limit:.6g} on" if isfinite(theorem.v_limit) else "at no v"
        yield f"  in closed form, if nothing else were replayed, state {theorem.premise} switches {when}"
    head = "s a share b gap bound predicts gap+fall bound(ρ) corrected switches"
    yield "  " + " ".join(f"{name:>9}" for name in [*head.split(), "first v"])
    ranked = sorted(theorem.states, key=lambda x: (not x.switched, not x.predicted, -x.share, x.s))
    least = 1e-12 * largest([(x.gap, x.bound, x.needed, x.bound_rho) for x in ranked])
    for x in ranked[:ROWS]:
        values = (0.0 if abs(y) < least else y for y in (x.gap, x.bound, x.needed, x.bound_rho))  # less is rounding
        gap, bound, needed, bound_rho = (f"{y:.4g}" for y in values)
        predicts, corrects, switches = (_mark(y).strip() for y in (x.predicted, x.corrected, x.switched))
        first = "never" if x.v_switch is None else f"{x.v_switch:.6f}"
        cells = x.s, x.a, f"{x.share:.4g}", x.b, gap, bound, predicts, needed, bound_rho, corrects, switches, first
        yield "  " + " ".join(f"{cell:>9}" for cell in cells)
    if len(ranked) > ROWS:
        yield f"  ... and {len(ranked) - ROWS} more states"


@dataclass(frozen=True)
class Prospects:
    """The result of :func:`prospects`; printing it gives a report."""

    mdp: str
    learner: Learner
    steps: StepSizes
    exploring: Exploring
    settling: Part  #: of its replay distribution
    limit: Part  #: whether an exact limit is known here

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return dict(plain(self))

    def __str__(self) -> str:
        said = {True: "yes", False: "no", None: "open"}
        parts = {"step sizes": self.steps, "exploration": self.exploring, "w_t settles": self.settling}
        parts["exact limit"] = self.limit
        lines = [f"  {label:<12} {said[part.holds]:<5} {part.reason}" for label, part in parts.items()]
        return "\n".join([f"{self.learner.describe()} on {self.mdp}", *lines])


def prospects(
    mdp: TabularMDP, learner: Learner, exploration: Exploration | None = None, step_size: StepSize | None = None
) -> Prospects:
    """What is known about a learner on a model before training.

    >>> import safereplay as sr
    >>> print(prospects(sr.grids.cliff(), sr.PrioritisedReplay()).settling.holds)
    False
    >>> prospects(sr.grids.cliff(), sr.WindowReplay()).limit.holds
    True
    """
    exploration, step_size = resolved(mdp, learner, exploration, step_size)
    hint = "use check(mdp, learner.scheme, v, mixing=...)"
    _checks.require(not isinstance(learner, ReplayQLearning), "learner", "be another than Algorithm 1", learner, hint)
    settles = Part(learner.SETTLES, learner.WHY) if learner.WHY else Part(True, "nothing is replayed: there is no w_t")
    try:
        exact(mdp, learner)
        limit = Part(True, "known: sr.exact(mdp, learner)")
    except BadInput as error:
        limit = Part(False, str(error))
    return Prospects(mdp.name, learner, step_sizes(step_size), exploring(mdp, exploration), settles, limit)
