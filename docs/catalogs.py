"""The pages of the catalog, made from its docstrings and from exact limits, so that they cannot drift from the code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any

from docstrings import to_markdown

import safereplay as sr
from safereplay import catalog
from safereplay.errors import SafeReplayError
from safereplay.pair_index import unfit
from safereplay.theory.limits import limit_of
from safereplay.theory.shaped import judge
from safereplay.theory.theorem2 import assumption_1
from safereplay.views.document import fold

GRIDS = ("volatile", "cliff")
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
NO_LIMIT = "—"
MADE = "*Made by `make docs` from the docstrings and the exact limits.*"
VERDICTS = (
    "In the tables, *safe* keeps away from the volatile moves or the edge, *risky* does not, *stuck* never arrives, and *jumps* falls "
    "on purpose: verdicts on the greedy policy of the exact limit, on the paper's two grids with their default options."
)


def learners_page() -> str:
    """docs/learners.md: every learner of the catalog."""
    head = (
        "# Every learner\n\n"
        "A learner defines how a transition (s, a, r, s′) changes Q(s,a). Each of these runs compiled, by the same call "
        "(`sr.learn(mdp, learner)`, `safereplay learn WORLD --learner NAME`) and is judged by the same exact risk; where its limit is "
        f"known, `sr.exact(mdp, learner)` gives it without training. How they compare is on [one page](compare.md).\n\n{VERDICTS}\n\n{MADE}"
    )
    return _page(head, catalog.LEARNERS, _about_learner)


def schemes_page() -> str:
    """docs/catalog-schemes.md: every scheme of the catalog."""
    head = (
        "# Every scheme\n\n"
        "A scheme defines what `sr.ReplayQLearning(scheme, v)` replays: w_t(s,a,s′,r), in [three factors](schemes.md). A scheme *settles* if "
        "w_t depends on the outcomes alone, so that it has a limit w^∞; then the limit of matched mixing is exact. The paper's Assumption 1 "
        f"is checked point by point ([theory](theory.md)), each in its first reading.\n\n{VERDICTS}\n\n{MADE}"
    )
    return f"{_page(head, catalog.SCHEMES, _about_scheme)}\n{_sound()}\n\n{_everywhere()}\n"


def _sound() -> str:
    """Which properties of a sound tilt each scheme has."""
    lines = ["| scheme | memory | order | direction | units | rarity |", "|---|---|---|---|---|---|"]
    schemes = {name: catalog.scheme(name)() for name in catalog.SCHEMES}
    for name, scheme in schemes.items():
        for memory in ("table",) if unfit(scheme) else ("table", "transitions"):
            cells = [
                "holds" if part.holds else f"**broken**: {part.reason}" for _, part in judge(scheme, memory).parts()
            ]
            lines.append(f"| [`{name}`](#{_anchor(name)}) | {memory} | " + " | ".join(cells) + " |")
    head = (
        "## Which tilts are sound\n\n[What a tilt must satisfy](schemes.md#what-a-tilt-must-satisfy), tested on a fixed family of gambles, each "
        "scheme with its defaults. *Holds*: no counterexample was found. *Table*: tabular learners, which replay distinct outcomes, under matched mixing. "
        "*Transitions*: a `Shaper`, which replays stored transitions.\n\n"
    )
    return head + "\n".join(lines)


def worlds_page() -> str:
    """docs/catalog-worlds.md: every world of the catalog."""
    head = (
        "# Every world\n\n"
        "Models by name, for `safereplay solve NAME`, `sr.learn` and comparisons. What differs is where the danger comes from: the rewards of a "
        "move, where a move leads, a cost that comes later, a rare one, or none at all. How to draw your own is in [Worlds](worlds.md).\n\n"
        + MADE
    )
    lines = ["| world | danger | states × actions | plain Q-learning | in short |", "|---|---|---|---|---|"]
    parts = []
    for name, (home, danger) in catalog.WORLDS.items():
        build, module = catalog.world(name), home.split(":")[0]
        mdp = build()
        text = inspect.getdoc(build) or ""
        size, risk = f"{mdp.n_states} × {mdp.n_actions}", _risk(mdp, sr.QLearning())
        lines.append(f"| [`{name}`](#{_anchor(name)}) | {danger} | {size} | {risk} | {_opening(text)} |")
        drawn = mdp.layout is not None and mdp.layout.shape[1] <= 40
        facts = _facts(danger=danger, made_by=f"`safereplay.{module}.{build.__name__}`")
        body = [
            f"## {name}",
            facts,
            f"```text\n{mdp.layout.text}\n```" if drawn else "",
            _opening(text),
            _more([text], "More: details, source, an example"),
        ]
        parts.append("\n\n".join(filter(None, body)))
    note = "*Plain Q-learning*: P(unsafe) and the mean return of its exact limit, from the world's own start."
    return "\n\n".join([head, "\n".join(lines), note, *parts]) + "\n"


def _everywhere(v: float = 0.7) -> str:
    """Every scheme that settles on every world: exact limits under the mixing that it is made for."""
    schemes = {name: catalog.scheme(name)() for name in catalog.SCHEMES}
    schemes = {name: s for name, s in schemes.items() if not (s.FAITHFUL or _settles(s).startswith("no"))}
    lines = ["| world | danger | none | " + " | ".join(schemes) + " |", "|---" * (len(schemes) + 3) + "|"]
    for name, (_, danger) in catalog.WORLDS.items():
        mdp = catalog.world(name)()
        plain = _risk(mdp, sr.QLearning())
        shaped = [_risk(mdp, sr.ReplayQLearning(scheme, v=v, mixing=scheme.MIXING)) for scheme in schemes.values()]
        cells = [found if found != plain else "the same" for found in shaped]
        lines.append(
            f"| [`{name}`](catalog-worlds.md#{_anchor(name)}) | {danger} | {plain} | " + " | ".join(cells) + " |"
        )
    head = f"## Every scheme on every world\n\nP(unsafe) and mean return from the world's own start, exact limits at v = {v:g}, each scheme with its defaults; matched mixing, and anchored mixing for risk measures. "
    return (
        head
        + "*The same*: as without replay, because the scheme does not detect the danger, there is none, or v is too small. Schemes that replay outcomes as often as they happen are left out: they change no limit.\n\n"
        + "\n".join(lines)
    )


def _risk(mdp: Any, learner: Any) -> str:
    try:
        policy = sr.exact(mdp, learner).argmax(1)
    except SafeReplayError:
        return NO_LIMIT
    risk = sr.evaluate(mdp, policy, start=mdp.origin)
    return f"{100 * risk.p_unsafe:.3g} %, {risk.mean:.4g}" if risk.p_never < 0.001 else "never ends"


def _opening(text: str) -> str:
    return " ".join(to_markdown(text).split("\n\n")[0].split())


def _more(texts: list[str], summary: str = "More: equations, limit, source, when it fails, an example") -> str:
    """What docstrings say beyond the opening of the last."""
    rest = [*map(to_markdown, texts[:-1]), to_markdown(texts[-1]).partition("\n\n")[2]]
    return fold(summary, "\n\n".join(filter(None, rest)))


def _page(head: str, homes: dict[str, str], about: Callable[[str, type], list[str]]) -> str:
    lines, parts = ["| name | class | in short |", "|---|---|---|"], []
    for name, home in homes.items():
        module, _, attribute = home.partition(":")
        owner = import_module(f"safereplay.{module}")
        kind = getattr(owner, attribute)
        alone = "." in module and sum(one.startswith(f"{module}:") for one in homes.values()) == 1
        texts = [owner.__doc__ or ""] if alone else []  # a file of its own has its theory at the top
        texts.append(inspect.getdoc(kind) or "")
        lines.append(f"| [`{name}`](#{_anchor(name)}) | `sr.{attribute}` | {_opening(texts[-1])} |")
        body = [f"`sr.{attribute}({_fields(kind)})`", _opening(texts[-1]), *about(name, kind), _more(texts)]
        parts.append("\n\n".join([f"## {name}", *filter(None, body)]))
    return "\n\n".join([head, "\n".join(lines), *parts]) + "\n"


def _about_learner(name: str, kind: type[Any]) -> list[str]:
    dial = {"dial": f"`{kind.DIAL}`"} if kind.DIAL else {}
    if limit_of.dispatch(kind) is limit_of.dispatch(object):
        return [_facts(exact_limit="none known", **dial)]
    options = {"mixing": "matched"} if kind is sr.ReplayQLearning else {}
    settings = kind.SETTINGS if kind.DIAL else (None,)
    strip = _strip(kind.DIAL, settings, lambda x: kind(**options, **({} if x is None else {kind.DIAL: x})))
    said = "yes, `sr.exact(mdp, learner)`"
    if kind is sr.ReplayQLearning:
        said = 'with `mixing="matched"`; under literal mixing see `sr.fixed_point(..., visitation="self")`'
    elif not strip:
        said = "`sr.exact(mdp, learner)`, but not on the paper's grids"
    elif NO_LIMIT in strip:
        said = f"`sr.exact(mdp, learner)` gives it at some settings; at the others ({NO_LIMIT}) it raises an error with the reason"
    return [_facts(exact_limit=said, **dial), strip]


def _about_scheme(name: str, kind: type[Any]) -> list[str]:
    scheme = kind()
    points = {}
    for grid in GRIDS if scheme.has_limit else ():
        found = assumption_1(catalog.world(grid)(), scheme).points
        points[f"assumption_1_on_{grid}"] = ", ".join(
            f"{k} {'holds' if point.holds else 'fails'}" for k, point in enumerate(found, 1)
        )
    facts = _facts(settles=_settles(scheme), mixing_of_the_table=scheme.MIXING, **points)
    if _settles(scheme).startswith("no"):
        return [facts]
    shares = SHARES if scheme.MIXING == "matched" else (*SHARES, 1.0)
    return [facts, _strip("v", shares, lambda v: sr.ReplayQLearning(scheme, v=v, mixing=scheme.MIXING))]


def _settles(scheme: Any) -> str:
    if scheme.FAITHFUL:
        return "does not matter; a pair's outcomes are replayed as often as they happen, so the limit is Q-learning's"
    if scheme.has_limit:
        return "yes"
    if scheme.follows_values:
        return "if Q does; a limit is a pair (Q, w) that is consistent: each follows from the other"
    return "no; w_t follows TD errors or visits, so Theorem 1 does not apply and no exact limit is known"


def _strip(dial: str, settings: Any, make: Callable[[Any], Any]) -> str:
    """What the exact limit does on the paper's grids, setting by setting."""
    if not dial:
        settings = (None,)
    found = {grid: [_verdict(grid, make(x)) for x in settings] for grid in GRIDS}
    if all(one == NO_LIMIT for verdicts in found.values() for one in verdicts):
        return ""
    head = [f"`{dial}`", *(f"{x:g}" for x in settings)] if dial else ["grid", "exact limit"]
    rows = [[grid, *verdicts] for grid, verdicts in found.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def _verdict(grid: str, learner: Any) -> str:
    mdp = catalog.world(grid)()
    try:
        Q = sr.exact(mdp, learner)
    except SafeReplayError:
        return NO_LIMIT
    return sr.verdict(learner.judging_model(mdp), Q.argmax(1))


def _fields(kind: type[Any]) -> str:
    shown = []
    for field in fields(kind):
        if field.name not in ("c0", "T0"):
            value = field.default_factory() if field.default_factory is not MISSING else field.default
            shown.append(field.name if value is MISSING else f"{field.name}={value!r}")
    return ", ".join(shown)


def _facts(**said: str) -> str:
    return " ".join(f"**{name.replace('_', ' ').capitalize()}**: {text}." for name, text in said.items())


def _anchor(name: str) -> str:
    return name.lower()
