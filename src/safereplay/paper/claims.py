"""The paper's claims as data, each with a function that judges it by the measurements.

A claim that does not hold is reported with the evidence. Shares of seeds have Wilson's 95 % interval. A claim about what
a learner does holds if at least 95 % of the seeds do it. The two claims on TD errors are undecided: it depends on the
histogram. Their ``holds`` is the majority of 16 histograms.

Ref: Szlak & Shamir (2021), Section 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from scipy.ndimage import gaussian_filter1d
from scipy.signal import find_peaks
from scipy.stats import binomtest, bootstrap

from .._checks import Floats
from .experiments import CAST, GRIDS, Cast, Dose, Sweep

if TYPE_CHECKING:
    from ..theory.tuning import Plan
    from .studies import BandRow, Certificates, Curves, Map, MatchedRate, RandomModels, TdErrors, World

ENOUGH = 0.95  # share of seeds


@dataclass(frozen=True)
class Study:
    """All measurements."""

    cast: Cast
    kappa: Sweep
    gaskett: Sweep
    amount: Dose
    sign: Dose
    sign_matched: Dose
    maps: dict[str, list[Map]]
    bands: list[BandRow]
    curves: list[Curves]
    td: TdErrors
    limits: list[World]
    certificates: Certificates
    plans: dict[str, list[Plan]]
    random: RandomModels
    rate: MatchedRate


class Finding(NamedTuple):
    """The result of judging a claim."""

    observed: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class Verdict:
    """A claim with its finding, as ``claims.json`` lists it."""

    id: str
    claim: str
    grid: str
    expected: str
    observed: str
    holds: bool
    evidence: str


Judge: TypeAlias = Callable[[Study, str], Finding]


class Claim(NamedTuple):
    """A claim of the paper that can be tested."""

    id: str
    claim: str
    grid: str
    expected: str
    judge: Judge


def judge_all(study: Study) -> list[Verdict]:
    """The verdicts on all claims."""
    return [Verdict(*claim[:4], *claim.judge(study, claim.grid)) for claim in CLAIMS]


def interval(k: int, n: int) -> str:
    """'k of n seeds (95 % interval a–b)'."""
    ends = binomtest(k, n).proportion_ci(method="wilson")
    return f"{k} of {n} seeds (95 % interval {ends.low:.2f}–{ends.high:.2f})"


def mean_interval(values: Floats) -> str:
    """A mean with its 95 % bootstrap interval; without it if all values are equal."""
    if np.ptp(values) == 0.0:
        return f"{values[0]:.3f}"
    ends = bootstrap((values,), np.mean, method="percentile", rng=np.random.default_rng(0)).confidence_interval
    return f"{np.mean(values):.3f} ({ends.low:.3f}–{ends.high:.3f})"


def takes(name: str, wanted: str, sweep: str = "") -> Judge:
    """A judge: does this learner of the cast get this verdict? The evidence includes the band of its dial, if it has a sweep."""

    def judge(study: Study, grid: str) -> Finding:
        counts = study.cast.counts(grid, name)
        n = counts.total()
        parts = [f"{CAST[name].describe()}: {wanted} in {interval(counts[wanted], n)}"]
        parts += [", ".join(f"{v} {c}" for v, c in counts.most_common() if v != wanted)]
        evidence = "; ".join(filter(None, parts))
        evidence += f". {band_text(getattr(study, sweep), grid, wanted)}" if sweep else ""
        return Finding(counts.most_common(1)[0][0], counts[wanted] >= ENOUGH * n, evidence)

    return judge


def band_text(sweep: Sweep, grid: str, wanted: str) -> str:
    """The range of a dial with a verdict, learned and exact."""
    parts = []
    for source, label in (("learned", f"learned (up to {sweep.episodes:,} episodes)"), ("exact", "exact limit")):
        band = sweep.band(grid, wanted, source)
        parts.append(f"{label}: " + ("never" if band is None else f"{sweep.dial} from {band[0]:g} to {band[1]:g}"))
    return f"{wanted} — " + "; ".join(parts)


def fails_for_every_kappa(study: Study, grid: str) -> Finding:
    """Mihatsch & Neuneier on the cliff: is there no κ that is safe?"""
    sweep = study.kappa
    safe = [k for k, v in zip(sweep.values, sweep.learned[grid], strict=True) if v == "safe"]
    with_band = [row for row in study.bands if row.band is not None]
    evidence = (
        f"{len(safe)} of {len(sweep.values)} values of κ learned a safe path. {band_text(sweep, grid, 'safe')}. "
        f"{band_text(sweep, grid, 'jumps')}. Over seeds: {takes('Mihatsch–Neuneier', 'safe')(study, grid).evidence}. "
        f"A safe band exists in {len(with_band)} of {len(study.bands)} readings of the grid (layout × slip × γ)"
    )
    observed = f"{len(safe)} of {len(sweep.values)} values of κ are safe"
    return Finding(observed if safe else "fails for every κ", not safe, evidence)


def stays_risky(study: Study, grid: str) -> Finding:
    """Gaskett on the volatile grid: is it risky for every β?"""
    sweep = study.gaskett
    risky = sum(v == "risky" for v in sweep.learned[grid])
    base = takes("Gaskett", "risky")(study, grid)
    share = f"risky at {risky} of {len(sweep.values)} values of β"
    observed = Counter(sweep.learned[grid]).most_common(1)[0][0]
    return Finding(observed, base.holds and risky >= ENOUGH * len(sweep.values), f"{base.evidence}. Learned: {share}")


def too_timid(study: Study, grid: str) -> Finding:
    """High κ: does the learner jump off the cliff at once?"""
    band = study.kappa.band(grid, "jumps", "exact")
    learned = study.kappa.band(grid, "jumps", "learned")
    observed = "jumps" if learned else "jumps in the limit, not learned yet" if band else "never jumps"
    return Finding(observed, band is not None, band_text(study.kappa, grid, "jumps"))


def more_is_safer(study: Study, grid: str) -> Finding:
    """P(unsafe) over v: it must fall, and never rise by more than half a percentage point."""
    risk = np.median(study.amount.p_unsafe[grid], axis=1)
    holds = bool((np.diff(risk) < 0.005).all() and risk[-1] < risk[0])
    counts, seeds = study.amount.verdicts[grid], study.amount.p_unsafe[grid].shape[1]
    rows = zip(study.amount.values, risk, counts, strict=True)
    pairs = ", ".join(f"v={v:g}: {p:.3f} (safe {c['safe']} of {seeds})" for v, p, c in rows)
    evidence = (
        f"median exact P(unsafe) over {seeds} seeds: {pairs}. At v=0.9: safe in {interval(counts[-1]['safe'], seeds)}"
    )
    return Finding(f"P(unsafe) {risk[0]:.3f} → {risk[-1]:.3f}", holds, evidence)


def sign_is_attitude(study: Study, grid: str) -> Finding:
    """β = 5, 0, −5 should order P(unsafe)."""

    def spread(dose: Dose) -> str:
        return " / ".join(mean_interval(x) for x in dose.p_unsafe[grid])

    literal, matched = (np.mean(dose.p_unsafe[grid], axis=1) for dose in (study.sign, study.sign_matched))
    holds = bool(literal[0] < literal[1] - 0.005 and literal[1] < literal[2] - 0.005)
    ordered = bool(matched[0] < matched[1] < matched[2])
    shown = " / ".join(f"{x:.3f}" for x in literal)
    evidence = (
        f"mean exact P(unsafe) at β = 5 / 0 / −5 over {study.sign.p_unsafe[grid].shape[1]} seeds: Algorithm 1 "
        f"{spread(study.sign)}; matched mixing {spread(study.sign_matched)} ({'ordered' if ordered else 'not ordered'})"
    )
    return Finding(f"P(unsafe) {shown}", holds, evidence)


BINS = (30, 40, 60, 80)  # bins of a histogram of TD errors
HEIGHTS = (2.0, 3.0, 5.0, 10.0)  # a peak must be this many times higher than the dips beside it


def modes(td: TdErrors, grid: str, bins: int = 60, height: float = 3.0) -> list[float]:
    """The positions of the peaks in the histogram of TD errors, on a log scale."""
    edges, shares = td.histogram(grid, bins)
    heights = gaussian_filter1d(np.log10(shares + 1e-6), 1.0)
    peaks, _ = find_peaks(np.concatenate(([-6.0], heights, [-6.0])), prominence=np.log10(height))
    middle = (edges[:-1] + edges[1:]) / 2
    return [float(middle[p - 1]) for p in peaks]


def td_three_peaks(study: Study, grid: str) -> Finding:
    """Are there separate peaks near −100, 0 and 100?"""
    return _td_finding(study.td, grid, lambda m: all(any(abs(x - w) <= 50 for x in m) for w in (-100, 0, 100)))


def td_one_peak(study: Study, grid: str) -> Finding:
    """Is there one mode?"""
    return _td_finding(study.td, grid, lambda m: len(m) == 1)


def _td_finding(td: TdErrors, grid: str, agrees: Callable[[list[float]], bool]) -> Finding:
    """Undecided: it depends on the histogram, so 16 are tried, and ``holds`` is their majority."""
    settings = [(bins, height) for bins in BINS for height in HEIGHTS]
    agreeing = sum(agrees(modes(td, grid, *setting)) for setting in settings)
    mean = np.average(td.delta[grid], weights=td.weight[grid])
    spread = float(np.sqrt(np.average((td.delta[grid] - mean) ** 2, weights=td.weight[grid])))
    places = ", ".join(f"{m:.0f}" for m in modes(td, grid))
    evidence = (
        f"as claimed in {agreeing} of {len(settings)} histograms ({BINS[0]} to {BINS[-1]} bins, a peak {HEIGHTS[0]:g} to "
        f"{HEIGHTS[-1]:g} times its dips); with 60 bins and 3 times, peaks at δ ≈ {places}. "
        f"Standard deviation {spread:.2g}, over {td.seeds} seeds at κ = {td.kappa:g}"
    )
    return Finding(f"{agreeing} of {len(settings)} histograms agree", agreeing > len(settings) / 2, evidence)


def settles(study: Study, grid: str) -> Finding:
    """Does w_t → w^∞ under Algorithm 1?"""
    curve = _curve(study, grid, "literal")
    distance = np.median(curve.w_distance, 0)
    evidence = f"total variation to w^∞: {distance[0]:.3f} after {curve.episodes[0]:,} episodes, {distance[-1]:.3f} after {curve.episodes[-1]:,}"
    return Finding(f"{distance[0]:.2f} → {distance[-1]:.3f}", bool(distance[-1] < distance[0] / 4), evidence)


def limit_is_the_papers(study: Study, grid: str) -> Finding:
    """Does Algorithm 1 converge to the fixed point of the paper's mapping?"""
    literal, matched = _curve(study, grid, "literal"), _curve(study, grid, "matched")
    paper, visited = (float(np.median(e[:, -1])) for e in (literal.error_paper, literal.error_visited))
    worst = float(literal.error_visited[:, -1].max())
    evidence = (
        f"largest error of the learned Q over pairs visited more than 500 times, as a share of Q's range, after "
        f"{literal.episodes[-1]:,} episodes (median of {len(literal.error_paper)} seeds): {paper:.1%} against the paper's "
        f"mapping, {visited:.2%} against the mapping with d(s,a) (worst seed {worst:.2%}). Matched mixing: "
        f"{np.median(matched.error_paper[:, -1]):.2%} against the paper's mapping"
    )
    return Finding(f"off by {paper:.0%} of Q's range", paper < 0.02, evidence)


def contracts(study: Study, grid: str) -> Finding:
    """‖HQ − HQ'‖ ≤ γ·‖Q − Q'‖."""
    found = study.certificates.reports[grid].contraction
    evidence = f"{found.reason}. The factor is γ·max Σ p̃ over outcomes that do not end, reached at Q and Q + 1"
    return Finding(f"factor {found.factor:.4g}", found.holds is True, evidence)


def meets_assumption_1(study: Study, grid: str) -> Finding:
    """Does the paper's scheme satisfy the paper's assumption?"""
    found = study.certificates.reports[grid].assumption
    parts = []
    for k, point in enumerate(found.points, 1):
        holding = sum(reading.holds for reading in point.readings)
        witness = next((r.witness.text for r in point.readings if r.witness is not None), "")
        parts.append(f"point {k}: {holding} of {len(point.readings)} readings hold" + (f", {witness}" * bool(witness)))
    return Finding(found.reason, found.holds is True, ". ".join(parts))


def promise_of_theorem_2(study: Study, grid: str) -> Finding:
    """Where Theorem 2's inequality holds, does the action change?"""
    x = study.certificates.waiting.states[0]
    others = "; ".join(f"{g}: {report.theorem.reason}" for g, report in study.certificates.reports.items())
    evidence = (
        f"gamble for 20 or 0, or wait at ±0.01 (γ = 0.9, β = 1/(1 − share)). The gamble has {x.share:.4%} of the variance, "
        f"its loss {x.w_worst:.4%} of w, and it is the best action by {x.gap:g}. The theorem's bound is "
        f"{x.bound:g}, so it predicts that the agent waits. The agent gambles: the value of waiting is that of the gamble a step later, "
        f"so it falls too, by {x.fall:g}. With this fall counted in, the inequality is right. On the paper's grids: {others}"
    )
    return Finding("predicted, not seen" if x.broken else "as predicted", not x.broken, evidence)


def _curve(study: Study, grid: str, mixing: str) -> Curves:
    return next(c for c in study.curves if c.grid == grid and c.mixing == mixing)


BOTH = " ".join(GRIDS)
#: The claims about grids: the first part of the id (the grid is the second), the grids, the claim, what is expected, the judge.
ON_GRIDS: list[tuple[str, str, str, str, Judge]] = [
    ("q", "volatile", "Q-learning takes the short, volatile path", "risky", takes("Q-learning", "risky")),
    ("q", "cliff", "Q-learning walks along the cliff's edge", "risky", takes("Q-learning", "risky")),
    ("replay", "volatile", "Replay (v = 0.5, β = 5) goes around the volatile moves", "safe", takes("replay", "safe")),
    ("replay", "cliff", "Replay (v = 0.5, β = 5) keeps away from the edge", "safe", takes("replay", "safe")),
    (
        "mihatsch",
        "volatile",
        "Mihatsch & Neuneier's learner is safe",
        "safe",
        takes("Mihatsch–Neuneier", "safe", "kappa"),
    ),
    (
        "mihatsch",
        "cliff",
        "Mihatsch & Neuneier's learner fails for every κ from 0 to 1 by 0.01",
        "fails for every κ",
        fails_for_every_kappa,
    ),
    ("gaskett", "volatile", "Gaskett's learner stays on the volatile path", "risky", stays_risky),
    ("gaskett", "cliff", "Gaskett's learner is safe", "safe", takes("Gaskett", "safe", "gaskett")),
    (
        "worst-case",
        "volatile",
        "Optimising the worst trajectory cannot avoid volatile rewards",
        "risky",
        takes("worst transition", "risky"),
    ),
    ("timid", "cliff", "An overly pessimistic learner jumps off the cliff at once", "jumps", too_timid),
    (
        "td",
        "volatile",
        "TD errors have distinct peaks at 0, −100 and 100",
        "3 peaks, within 50 of these",
        td_three_peaks,
    ),
    ("td", "cliff", "TD errors have a single mode", "1 peak", td_one_peak),
    ("amount", BOTH, "More replay, more caution", "P(unsafe) falls with v", more_is_safer),
    (
        "sign",
        BOTH,
        "β > 0 averse to risk, β = 0 neutral, β < 0 fond of it",
        "P(unsafe) rises as β falls",
        sign_is_attitude,
    ),
    ("w-settles", BOTH, "w_t converges to w^∞ (Lemma 4)", "distance → 0", settles),
    ("limit", BOTH, "Q converges to the fixed point of Eqs. 1–4 (Theorem 1)", "error → 0", limit_is_the_papers),
    ("contraction", "volatile", "H is a γ-contraction (Lemma 2)", "at most γ = 0.9", contracts),
    ("contraction", "cliff", "H is a γ-contraction (Lemma 2)", "at most γ = 0.95", contracts),
    ("assumption", BOTH, "The variance scheme satisfies Assumption 1", "all three points hold", meets_assumption_1),
]
CLAIMS = [
    Claim(f"{stem}-{grid}", claim, grid, expected, judge)
    for stem, on, claim, expected, judge in ON_GRIDS
    for grid in on.split()
]
THEOREM_2 = "Where one pair has all the variance and gap < bound, the action changes (Theorem 2)"
CLAIMS.append(Claim("theorem-2", THEOREM_2, "waiting room", "the action changes", promise_of_theorem_2))
