"""The paper's cliff, where the fall is only felt steps later: caution that looks at rewards does not see it.

A slip off the edge pays what a step pays; ``delay`` steps later comes the −12, whatever is done then. So at the edge

    var(r|s,a) = 0,    while    var(r + γ·max_b Q(s',b)) > 0,

and the paper's scheme, which replays by var(r|s,a), replays nothing there: its limit keeps the risky path for every v
and every β. A replay by the variance of the *return* sees the danger through Q(s'), and goes the safe way. A drawn path
does not see it either: :func:`safereplay.verdict` counts a step as exposed when its own outcome may be unsafe. Ask
:func:`safereplay.evaluate`.
"""

from dataclasses import replace

from .. import _checks
from ..grids import cliff, delayed
from ..mdp import TabularMDP


def late_cliff(
    gamma: float = 0.95,
    *,
    delay: int = 1,
    layout: str = "between",
    slip: float = 0.1,
    goal: float = 10.0,
    step: float = -1.0,
    hazard: float = -12.0,
) -> TabularMDP:
    """Danger that comes late: a slip pays what every step pays, and the fall is paid for one or more steps after.

    ``delay`` says how many. The other options are those of :func:`safereplay.grids.cliff`.

    >>> import safereplay as sr
    >>> from safereplay.worlds.late_cliff import late_cliff
    >>> mdp = late_cliff()
    >>> limits = [sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v) for v in (0.0, 0.5, 0.9)]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.119, 0.119, 0.119]
    """
    mdp = cliff(gamma, layout=layout, slip=slip, goal=goal, step=step, hazard=hazard)
    for _ in range(_checks.whole("delay", delay, 1)):
        mdp = delayed(mdp, meanwhile=step)
    return replace(mdp, name="late cliff")
