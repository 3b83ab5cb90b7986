"""What can be taken home: a study as a Python script of the public API, and a world as a map file."""

from __future__ import annotations

import inspect
from typing import Any

import safereplay as sr

from .answers import SEARCH
from .links import StateLink
from .sides import SCHEMES, Side
from .worlds import World

SCRIPT = '''\
"""{title}

A study from the playground of safereplay: the exact limits of two learners, their risk, and what learning makes of them.
Needs safereplay ({version} wrote this), nothing else: python study.py
"""

import safereplay as sr

world = sr.grids.from_map(
    """
{rows}
    """,
{options}
)
start = {start}  # where episodes are judged from
exploration = sr.EpsilonGreedy({epsilon!r})
learners = [
    {left},
    {right},
]


def limit(learner):
    """What the learner converges to, Q [S, A]."""
    if isinstance(learner, sr.ReplayQLearning) and learner.mixing == "literal" and learner.v > 0:
        # Algorithm 1 as it is written has limits only together with what it visits; the first that is found is shown.
        found = sr.fixed_point(world, learner.scheme, learner.v, "self", exploration, {search})
        return found[0].Q
    return sr.exact(world, learner)


for learner in learners:
    policy = limit(learner).argmax(1)
    risk = sr.evaluate(world, policy, start=start)
    verdict = sr.verdict(world, policy)
    print(f"{{learner.describe()}}: exact limit {{verdict}}, P(unsafe) {{risk.p_unsafe:.6f}}, mean {{risk.mean:.6f}}")

for learner in learners:
    runs = sr.learn(world, learner, episodes=20_000, seeds={seeds}, exploration=exploration)
    risks = [sr.evaluate(world, policy, start=start).p_unsafe for policy in runs.policy]
    verdicts = ", ".join(runs.verdicts)
    print(f"{{learner.describe()}}: learned {{verdicts}}, P(unsafe) {{sum(risks) / len(risks):.6f}}")
'''


def script(link: StateLink) -> str:
    """The study of a link as a script."""
    world = link.to_world()
    world.mdp()
    left, right = Side.parse(link.left), Side.parse(link.right)
    return SCRIPT.format(
        title=f"{left.learner().describe()} and {right.learner().describe()} on {world.name}.",
        version=sr.__version__,
        rows="\n".join(f"    {row}" for row in world.rows),
        options="\n".join(f"    {name}={_code(value)}," for name, value in _different(world).items()),
        start=_start(world),
        epsilon=link.epsilon,
        left=_call(left),
        right=_call(right),
        search=", ".join(f"{name}={value!r}" for name, value in SEARCH.items()),
        seeds=link.seeds,
    )


def world_file(world: World) -> str:
    """The world as a map file, with its rewards."""
    world.mdp()
    return sr.grids.map_file("\n".join(world.rows), **_different(world))


def _different(world: World) -> dict[str, Any]:
    """The arguments of ``from_map`` that are not its defaults; γ always."""
    defaults = {p.name: p.default for p in inspect.signature(sr.grids.from_map).parameters.values()}
    return {
        name: value
        for name, value in world.options().items()
        if name == "gamma" or (value != defaults[name] and not (value == {} and defaults[name] is None))
    }


def _code(value: Any) -> str:
    """A value as code, quoted as formatters like it."""
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _start(world: World) -> str:
    """Code for where episodes are judged from."""
    layout = world.mdp().layout
    cells = [layout.cells[s] for s in world.judged()] if layout else []
    if len(cells) == 1:
        return f"world.layout.state_at{cells[0]}"
    return f"[{1 / len(cells)!r} if cell in {cells} else 0.0 for cell in world.layout.cells]"


def _call(side: Side) -> str:
    """Code for a learner."""
    if side.kind != "replay":
        dials = ", ".join(f"{name}={value!r}" for name, value in side.dials().items())
        return f"sr.{type(side.learner()).__name__}({dials})"
    scheme = f"sr.{SCHEMES[str(side.scheme)].__name__}(beta={side.beta!r})"
    return f'sr.ReplayQLearning({scheme}, v={side.v!r}, mixing="{side.mixing}")'
