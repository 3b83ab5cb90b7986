"""Replay by the variance of the return: danger that shows in a later reward."""

from dataclasses import dataclass
from typing import ClassVar

from .base import Scheme


@dataclass(frozen=True)
class ReturnReplay(Scheme):
    """The paper's scheme with what an outcome leads to, y = r + γ·max_b Q(s',b), in place of its reward.

        w_t(s,a,s',r) = var_t(y(s,a)) / Σ var_t(y)  ·  e^{−βy} / Σ_{outcomes seen at (s,a)} e^{−βy'}

    A slip that pays as much as a safe step, and only later turns out to be a fall, has no variance of reward: the paper's
    scheme does not see it. Why the variance of y is the right one: by the law of total variance, the variance of the return
    from (s,a) is var(y | s,a) + γ²·E[variance of the return from s'] (Sobel 1982), so var(y) is the part that is decided
    *here*, by which outcome happens: the only part that replaying the outcomes of this pair can change.

    **Limit.** w depends on Q, so limits are pairs of Q and w that make each other: Q = H_{w(Q)} Q. :func:`safereplay.fixed_point`
    iterates Q ← H_{w(Q)} Q and says so if that comes to no end. H_{w(Q)} need not be a contraction, so neither one limit nor
    any is promised; none was missing on the worlds of this package.
    **Assumption 1** is stated in the variance of the reward, which this scheme does not look at; in y for r, and outcome by
    outcome, it holds as VarianceReplay's does: outcomes of equal y count one by one, where the paper counts equal rewards
    once. **w_t** looks at Q and settles only if Q does: Theorem 1 does not cover it.

    **Breaks** order and **Breaks** rarity, with y for r as VarianceReplay does: a better prize can look worse, and a rare loss is replayed as
    often as a common one.

    **When it fails.** Where what differs in y is not danger: a slip that costs a detour is shunned as a small fall is.

    >>> import safereplay as sr
    >>> mdp = sr.grids.delayed(sr.grids.cliff(), meanwhile=-1.0)         # one falls a step after the slip
    >>> schemes = sr.VarianceReplay(beta=5.0), sr.ReturnReplay(beta=5.0)
    >>> limits = [sr.fixed_point(mdp, scheme, v=0.5) for scheme in schemes]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.119, 0.032]
    """

    UNIT: ClassVar[str] = "1/reward"

    beta: float = 5.0

    @staticmethod
    def pair_weight(spread: float) -> float:
        """var_t(y(s,a))."""
        return spread

    @staticmethod
    def log_tilt(y: float, beta: float) -> float:
        """−βy."""
        return -beta * y
