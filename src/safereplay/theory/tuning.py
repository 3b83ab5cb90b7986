"""Tuning: the gentlest replay that keeps a limit on risk, its price, and the best that any policy could do.

The limit of a shaped replay is known exactly (see :mod:`safereplay.theory.switching`), and so is the risk of its policy. So
the question 'how much replay do I need for P(unsafe) ≤ 1 %?' has an exact answer:

    v*  =  min { v : some β gives a fixed point whose policy keeps the limit }.

Of the β whose v* round up to the same point of a grid, the smallest |β| is taken, since it is gentler.

**v* itself is the worst v to learn with.** There two actions tie, so noise in learning decides between them. The
recommended v is the first on a grid at or above v* whose *learned* policies keep the limit in at least 95 % of the
seeds, each evaluated exactly, and again in 95 % of three times as many fresh seeds, since the first that passes among
many tries may have passed by chance. A trial ends as soon as too many seeds have failed, that of the fresh seeds also
after twice as many as in the first trial, and at least 40, if none of them failed. So a v at which one seed in ten fails
passes both trials with probability 5.5 %; with all 60 fresh seeds it would be 5.4 %. The grid has steps of
``v_step``, ten times finer for each nine of v (0.37, 0.901, 0.9902); its points are tried at distances 0, 1, 3, 6, 10, ...
from the first.

**The price.** The plan includes the best mean of *any* policy under the same limit (see
:mod:`safereplay.theory.constrained`). So the price of safety has two parts:

    plain − plan  =  (plain − ceiling)  +  (ceiling − plan):    for any policy, and the rest for replay.

If replay cannot keep the limit, the plan is the gentlest replay with the best risk of any exact limit, and
the price is that of this risk. Then no learner is trained, since none could confirm it.

Ref: Szlak & Shamir (2021), Section 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from math import ceil, floor, inf, isfinite, log10, nan
from typing import Any, NamedTuple

import numpy as np

from .. import _checks
from .._checks import Floats, Ints
from .._config import plain
from .._progress import Bar
from ..learners import Learner, QLearning, ReplayQLearning, paper_mixing
from ..mdp import TabularMDP
from ..runs import learn, resolved, seed_list
from ..schedules import Exploration, StepSize
from ..schemes import Scheme
from .constrained import CeilingPoint, Ceilings
from .limits import exact
from .occupancy import SLACK, UNKNOWN, Ceiling, Limit
from .risk import RiskProfile
from .switching import Tracer, View, candidates, traced

SHARE = 0.95  # share of the seeds that must keep the limit
FRESH = 3  # factor for the number of fresh seeds in the confirmation
SURE = 40  # fresh seeds, at least, after which a trial without a failure ends
MOST_TRIES = 12  # values of v that are tried by learning
BATCH = 2  # seeds that a trial begins with; each batch doubles their number
CEILINGS = 13  # points of the best frontier


@dataclass(frozen=True)
class FrontierPoint:
    """The exact limit of a replay, from v up to the next point of the same β."""

    v: float
    beta: float | None  #: None if the scheme has no such dial
    mean: float
    mean_discounted: float
    std: float
    p_unsafe: float
    cvar: float
    p_never: float
    policy: int  #: index into the plan's policies
    meets: bool
    pareto: bool = False  #: no other point has both a better mean and a better risk, in the limit's measure


@dataclass(frozen=True)
class Trial:
    """A test of a learner: how many of the seeds trained learned a policy that keeps the limit."""

    v: float
    beta: float | None
    met: int
    seeds: int
    episodes: int
    fresh: bool  #: seeds that were not used for the choice

    @property
    def passed(self) -> bool:
        """Whether enough seeds keep the limit."""
        return self.met >= ceil(SHARE * self.seeds - 1e-9)


@dataclass(frozen=True)
class Price:
    """The price of safety in mean return: for any policy, and for replay on top. nan if a ceiling is unknown."""

    safety: float  #: plain − ceiling; can be negative, since plain Q-learning maximises the discounted return
    replay: float  #: ceiling − plan
    safety_discounted: float
    replay_discounted: float


@dataclass(frozen=True, eq=False)
class Plan:
    """A tuned replay, the evidence for it, and the alternatives.

    Parameters
    ----------
    meets, confirmed : bool
        Whether some replay's exact limit keeps the limit, and whether learners did. If no exact limit keeps it, no
        learner was trained.
    v, beta, scheme, learner : the recommended replay; if none was confirmed, the one with the largest share of seeds that kept the limit
    profile, plain, price, ceiling : its risk, that of plain Q-learning, the price of safety, and the best of any policy

    >>> import safereplay as sr
    >>> plan = tune(sr.grids.volatile(), sr.VarianceReplay(), max_p_unsafe=0.5, episodes=5_000)
    >>> print(plan)                                                              # plain Q-learning will do
    P(unsafe) ≤ 50%: replay(v=0, beta=5, matched) keeps it
      episodes from       the model's start distribution
      smallest v          0 at β = 5
      this replay         mean 174.4, P(unsafe) 38.4%
      plain Q-learning    mean 174.4, P(unsafe) 38.4%
      any policy          any mean, as some loop gains for ever; discounted 141.4 at best
      price of safety     at least 0 of the discounted return for any policy, at most 0 more for this replay
      seeds that kept it  20 of 20 at v=0; 40 of 40 fresh at v=0 (5,000 episodes each)
    """

    limit: Limit
    meets: bool
    confirmed: bool
    v: float
    beta: float | None
    scheme: Scheme
    learner: ReplayQLearning
    profile: RiskProfile  #: of the learner's limit; of the riskiest if there are several
    policy: Ints = field(repr=False)  #: [S]
    v_smallest: float  #: smallest v with this risk at this β, exact; another β may have a smaller one, within a step
    confirmation: tuple[Trial, ...] = field(repr=False)
    frontier: tuple[FrontierPoint, ...] = field(repr=False)
    policies: Ints = field(repr=False)  #: [n, S]
    plain: FrontierPoint = field(repr=False)
    ceiling: Ceiling
    ceiling_frontier: tuple[CeilingPoint, ...] = field(repr=False)
    price: Price
    start: str  #: the start of the evaluated episodes, in words
    episodes: int  #: episodes of each test run, and its schedules:
    exploration: Exploration = field(repr=False)
    step_size: StepSize = field(repr=False)

    @property
    def risk(self) -> float:
        """The limited quantity."""
        return self.limit.risk(self.profile)

    def limits(self, mdp: TabularMDP) -> tuple[Floats, Floats]:
        """The limits of plain Q-learning and of this replay, each [S, A]."""
        return exact(mdp, QLearning()), exact(mdp, self.learner)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; numbers that are not finite become None."""
        first = ("limit", "meets", "confirmed", "v", "beta", "v_smallest", "confirmation", "frontier", "plain")
        second = ("learner", "profile", "policy", "policies", "ceiling", "ceiling_frontier", "price")
        third = ("start", "episodes", "exploration", "step_size")
        values = {name: getattr(self, name) for name in (*first, *second, *third)}
        return {name: x.to_dict() if hasattr(x, "to_dict") else plain(x) for name, x in values.items()}

    def __str__(self) -> str:
        return "\n".join([self.answer, *(f"  {label:<20}{text}" for label, text in self.rows)])

    @property
    def answer(self) -> str:
        """Whether the limit can be kept, and by which replay, in one sentence."""
        name, limit = self.learner.describe(), self.limit
        if self.meets:
            head = f"{name} keeps it" + " in the exact limit; not confirmed by learning" * (not self.confirmed)
        elif self.profile.p_never > SLACK:
            head = f"no replay setting keeps it. Under {name} episodes may never end"
        else:
            best = f"Best found: {name} with {limit.label} {limit.shown(self.risk)} in the exact limit"
            head = f"no replay setting keeps it. {best}"
        return f"{limit}: {head}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """The rest of the report, as (label, text)."""
        return _rows(self)


def tune(
    mdp: TabularMDP,
    scheme: Scheme,
    *,
    max_p_unsafe: float | None = None,
    min_cvar: float | None = None,
    max_std: float | None = None,
    alpha: float = 0.1,
    start: Any = None,
    mixing: str = "matched",
    betas: Iterable[float] | None = None,
    v_step: float = 0.01,
    episodes: int = 100_000,
    seeds: Iterable[int] | int = 20,
    exploration: Exploration | None = None,
    step_size: StepSize | None = None,
    quiet: bool = False,
) -> Plan:
    """The gentlest replay whose exact limit keeps one limit on risk, confirmed by learning.

    Parameters
    ----------
    mdp, scheme : the model and the scheme
    max_p_unsafe, min_cvar, max_std : float; the limit: exactly one of them; a policy that may never end keeps none
    alpha : float; share of the worst episodes in CVaR
    start : state or distribution [S], optional; of the episodes whose risk is limited; learners begin at the model's start
    mixing : {"matched", "literal"}
        With "literal" there may be dozens of limits, and all that are found must keep the limit. Then v is searched in
        steps of 0.05, and the smallest is found to 0.001.
    betas : iterable of float, optional
        Tried if the scheme has this dial. Default: its own, 0, and some in steps of two over the range of the rewards;
        only its own with "literal".
    v_step : float; step of the grid of v
    episodes, seeds, exploration, step_size : of the learners that confirm the plan
    quiet : bool; without a progress bar

    Returns
    -------
    Plan

    Raises
    ------
    BadInput : an argument is invalid, or the scheme has no limit

    >>> import safereplay as sr
    >>> plan = tune(sr.grids.cliff(), sr.VarianceReplay(), max_p_unsafe=0.02, episodes=20_000)
    >>> plan.meets, plan.confirmed, round(plan.v_smallest, 3), round(plan.profile.p_unsafe, 4)
    (True, True, 0.396, 0.0164)
    >>> round(plan.plain.mean, 2), round(plan.ceiling.value, 2), round(plan.profile.mean, 2)
    (5.48, 5.45, 5.43)

    Ref: Szlak & Shamir (2021), Section 5.
    """
    exploration, step_size = resolved(mdp, QLearning(), exploration, step_size)
    _checks.require(isinstance(scheme, Scheme), "scheme", "be a Scheme", scheme)
    limit = Limit.one_of(max_p_unsafe=max_p_unsafe, min_cvar=min_cvar, max_std=max_std, alpha=alpha)
    mixing = paper_mixing(mixing)
    v_step = _checks.between("v_step", v_step, "(0, 0.1]")
    listed = seed_list(seeds)
    _checks.require(len(set(listed)) == len(listed), "seeds", "be different", listed)
    quiet = _checks.flag("quiet", quiet)
    test = _Test(_checks.whole("episodes", episodes, 1), listed, exploration, step_size, quiet)
    schemes = candidates(mdp, scheme, betas, mixing)
    tracer = Tracer(mdp, limit, start, mixing, exploration)
    views = traced(tracer, scheme, schemes, quiet)
    meets = any(tracer.keeps(limit, view.badness) for view in views)
    goal = limit if meets else limit.at(limit.sign * min(view.badness for view in views))
    # The smallest v on the grid, then the smallest |β|; the v of ``first`` is the exact one.
    kept = [view for view in views if tracer.keeps(goal, view.badness)] or views[:1]
    near = min(kept, key=lambda view: (_up(view.v, v_step), abs(_beta(view.scheme) or 0.0), _beta(view.scheme) or 0.0))
    first = tracer.sharpened(near, goal)
    grid = _grid(first.v, tracer.v_at(first.scheme, tracer.most), v_step) or [first.v]
    seen = (tracer.view(first.scheme, nan, v) for v in grid)
    offered = (view for view in seen if tracer.keeps(goal, view.badness))
    chosen, trials = _confirmed(tracer, test, first, goal, offered) if meets else (next(offered, first), ())
    return _plan(tracer, test, views, first, chosen, trials, meets)


def _beta(scheme: Scheme) -> float | None:
    return float(scheme.beta) if "beta" in scheme.params_names() else None  # type: ignore[attr-defined]


class _Test(NamedTuple):
    """The settings of the test runs."""

    episodes: int
    seeds: list[int]
    exploration: Exploration
    step_size: StepSize
    quiet: bool


def _up(v: float, v_step: float) -> float:
    """The first point at or above v of a grid that is ten times finer for each nine of v.

    >>> [_up(v, 0.01) for v in (0.0, 0.3612, 0.9004, 0.99012)]
    [0.0, 0.37, 0.901, 0.9902]
    """
    step = v_step * 10.0 ** -floor(-log10(1.0 - v) + 1e-9)
    return round(ceil(v / step - 1e-9) * step, 12)


def _grid(v: float, most: float, v_step: float) -> list[float]:
    """Points of the grid at distances 0, 1, 3, 6, 10, ... from the first at or above v."""
    points: list[float] = []
    point, ahead = _up(v, v_step), 0
    while point <= most and len(points) < MOST_TRIES:
        points.append(point)
        ahead += 1
        for _ in range(ahead):
            point = _up(point + 1e-3 * v_step * (1.0 - point), v_step)
    return points


def _confirmed(
    tracer: Tracer, test: _Test, first: View, goal: Limit, offered: Iterator[View]
) -> tuple[View, tuple[Trial, ...]]:
    """The first of these views at which learners keep the limit, else the one where the largest share did; and all trials."""
    trials: list[Trial] = []
    unused = (seed for seed in count() if seed not in set(test.seeds))
    tried: list[tuple[float, View]] = []
    for view in offered:
        trials.append(_trial(tracer, test, view, goal, test.seeds))
        if trials[-1].passed:
            trials.append(_trial(tracer, test, view, goal, list(islice(unused, FRESH * len(test.seeds)))))
            if trials[-1].passed:
                return view, tuple(trials)
        tried.append((trials[-1].met / trials[-1].seeds, view))
    return max(tried, key=lambda t: t[0], default=(0.0, first))[1], tuple(trials)


def _trial(tracer: Tracer, test: _Test, view: View, goal: Limit, seeds: list[int]) -> Trial:
    """Train, and count the seeds whose policy keeps the limit; ends as soon as too many do not, or enough fresh ones do."""
    learner: Learner = QLearning()  # at v = 0: the same, without a memory
    if view.v > 0.0:
        learner = ReplayQLearning(view.scheme, v=view.v, mixing=tracer.mixing)
    trial = Trial(view.v, _beta(view.scheme), 0, 0, test.episodes, seeds is not test.seeds)
    sure = max(SURE, 2 * len(test.seeds)) if trial.fresh else len(seeds)
    while trial.seeds < len(seeds) and trial.seeds - trial.met <= (1.0 - SHARE) * len(seeds) + 1e-9:
        if trial.seeds == trial.met == sure:
            break
        ahead = max(BATCH, 2 * trial.seeds)
        part = seeds[trial.seeds : min(ahead, sure) if trial.seeds < sure else ahead]
        runs = learn(
            tracer.mdp, learner, test.episodes, part, test.exploration, test.step_size, quiet=test.quiet
        ).whole()
        met = sum(tracer.keeps(goal, tracer.badness(tracer.number(policy))) for policy in runs.policy)
        trial = replace(trial, met=trial.met + met, seeds=trial.seeds + len(part))
    return trial


def _plan(
    tracer: Tracer,
    test: _Test,
    views: Sequence[View],
    first: View,
    chosen: View,
    trials: tuple[Trial, ...],
    meets: bool,
) -> Plan:
    frontier = _frontier(tracer, views)
    ceilings = Ceilings(tracer.mdp, tracer.limit, tracer.start)
    ceiling = ceilings.at(tracer.limit.value)
    # If replay misses the limit, its mean is compared with the best one at the risk that it reaches.
    fair = ceiling if meets or not isfinite(chosen.badness) else ceilings.at(tracer.limit.sign * chosen.badness)
    own = _point(tracer, chosen)
    given = f"state {tracer.start}" if np.ndim(tracer.start) == 0 else "the start distribution given"
    return Plan(
        limit=tracer.limit,
        meets=meets,
        confirmed=bool(trials) and trials[-1].fresh and trials[-1].passed,
        v=chosen.v,
        beta=_beta(chosen.scheme),
        scheme=chosen.scheme,
        learner=ReplayQLearning(chosen.scheme, v=chosen.v, mixing=tracer.mixing),
        profile=tracer.profile(chosen.worst),
        policy=tracer.policies[chosen.worst],
        v_smallest=first.v,
        confirmation=trials,
        frontier=frontier,
        policies=np.stack(tracer.policies[: 1 + max(point.policy for point in frontier)]),
        plain=frontier[0],
        ceiling=ceiling,
        ceiling_frontier=_best_frontier(ceilings, frontier, test.quiet),
        price=_price(frontier[0], fair, own, tracer.size),
        start="the model's start distribution" if tracer.start is None else given,
        episodes=test.episodes,
        exploration=test.exploration,
        step_size=test.step_size,
    )


def _price(plain: FrontierPoint, fair: Ceiling, own: FrontierPoint, size: float) -> Price:
    """The price of safety; nan if the ceiling is unknown."""
    if fair.status == UNKNOWN:
        return Price(nan, nan, nan, nan)

    def gap(more: float, less: float) -> float:
        """more − less, or 0 if they differ by rounding."""
        return 0.0 if abs(more - less) <= SLACK * max(size, abs(less)) < inf else more - less

    means = gap(plain.mean, fair.value), gap(fair.value, own.mean)
    discounted = fair.value_discounted
    return Price(*means, gap(plain.mean_discounted, discounted), gap(discounted, own.mean_discounted))


def _point(tracer: Tracer, view: View) -> FrontierPoint:
    profile, discounted, limit = tracer.profile(view.worst), tracer.discounted(view.worst), tracer.limit
    numbers = (profile.mean, discounted, profile.std, profile.p_unsafe, profile.cvar(limit.alpha), profile.p_never)
    return FrontierPoint(view.v, _beta(view.scheme), *numbers, view.worst, tracer.keeps(limit, view.badness))


def _frontier(tracer: Tracer, views: Sequence[View]) -> tuple[FrontierPoint, ...]:
    """The points of all views; those that no other dominates are marked."""
    points = [_point(tracer, view) for view in views]
    goods = np.array([(-point.mean, view.badness) for point, view in zip(points, views, strict=True)])
    sound, slack = np.isfinite(goods).all(1), SLACK * np.array([tracer.size, tracer.limit.unit(tracer.size)])

    def pareto(own: Floats) -> bool:
        no_worse = (goods[sound] <= own + slack).all(1)
        return not bool((no_worse & (goods[sound] < own - slack).any(1)).any())

    return tuple(
        replace(point, pareto=bool(fine) and pareto(own)) for point, own, fine in zip(points, goods, sound, strict=True)
    )


def _best_frontier(ceilings: Ceilings, frontier: Sequence[FrontierPoint], quiet: bool) -> tuple[CeilingPoint, ...]:
    """The ceilings from the best risk of any policy to the worst of a replay, at the limit, and at undominated replays."""
    limit = ceilings.limit
    risks = [getattr(point, limit.measure) for point in frontier if point.p_never <= SLACK]
    ends = [x for x in (ceilings.best, *risks, limit.value) if isfinite(x)]
    # At the risk of each undominated replay too: the best frontier is concave, so it may lie above a line between points.
    own = {getattr(point, limit.measure) for point in frontier if point.pareto and point.p_never <= SLACK}
    values = sorted({limit.value, *own, *np.linspace(min(ends), max(ends), CEILINGS).tolist()})
    found: list[CeilingPoint] = []
    with Bar("the best of any policy", len(values), quiet) as bar:
        for i, value in enumerate(values):
            bar.update(i)
            found += ceilings.frontier([value])
    return tuple(found)


def _rows(plan: Plan) -> list[tuple[str, str]]:
    limit, ceiling, price = plan.limit, plan.ceiling, plan.price

    def numbers(mean: float, risk: float) -> str:
        return f"mean {mean:.4g}, {limit.label} {limit.shown(risk)}"

    reason = f", {ceiling.reason}" if ceiling.reason else f"; at best {numbers(ceiling.value, ceiling.best)}"
    best = {
        "optimal": f"mean {ceiling.value:.4g} at best, discounted {ceiling.value_discounted:.4g}",
        "unbounded": f"any mean, as {ceiling.reason}; discounted {ceiling.value_discounted:.4g} at best",
        "infeasible": f"no policy can keep it{reason}",
        "unknown": f"unknown: {ceiling.reason}",
    }[ceiling.status]
    discounted = not isfinite(price.safety)
    must, own = (price.safety_discounted, price.replay_discounted) if discounted else (price.safety, price.replay)
    relaxed = "at most " if discounted or limit.measure == "std" else ""  # a bound that may not be attained
    whole = "discounted return" if discounted else "mean"
    cost = f"at least {must:.3g} of the {whole} for any policy, {relaxed}{own:.3g} more for this replay"
    cost += "" if plan.meets else f", at {limit.label} {limit.shown(plan.risk)}"
    trials = [f"{t.met} of {t.seeds}{' fresh' * t.fresh} at v={t.v:g}" for t in plan.confirmation]
    learned = "; ".join([*["..."] * (len(trials) > 4), *trials[-4:]]) + f" ({plan.episodes:,} episodes each)"
    return [
        ("episodes from", plan.start),
        ("smallest v", f"{plan.v_smallest:.6g}" + ("" if plan.beta is None else f" at β = {plan.beta:g}")),
        ("this replay", numbers(plan.profile.mean, plan.risk)),
        ("plain Q-learning", numbers(plan.plain.mean, getattr(plan.plain, limit.measure))),
        ("any policy", best),
        ("price of safety", cost if isfinite(must) else "unknown"),
        ("seeds that kept it", learned if trials else "no learner was trained"),
    ]
