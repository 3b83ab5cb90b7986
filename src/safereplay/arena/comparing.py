"""The whole way: names to contestants and worlds, every run that is missing, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .. import _checks, catalog
from ..errors import stopping
from ..views.pages import page_folder, write_page
from .contestants import REPLAY, contestants
from .records import Store
from .report import page
from .results import Comparison, collect
from .running import Plan, run
from .worlds import worlds

SEEDS = 20  #: at least
LOOKS = 8  # steps: there must be an eighth of them


class Preset(NamedTuple):
    """Who meets where if nothing else is said."""

    learners: tuple[str, ...]
    schemes: tuple[str, ...]
    worlds: tuple[str, ...]
    steps: int | None  #: None: as many as the world needs


#: ``paper`` is every system of the catalog on every world of it; ``quick`` is the paper's own comparison on its two grids.
PRESETS = ("quick", "paper")
QUICK = Preset(("q", "mihatsch", "gaskett", "worst-transition"), ("variance",), ("volatile", "cliff"), None)


def preset(name: str) -> Preset:
    """A preset by its name.

    >>> preset("quick").worlds
    ('volatile', 'cliff')
    """
    _checks.choice("preset", name, PRESETS)
    if name == "quick":
        return QUICK
    systems = tuple(one for one in catalog.LEARNERS if one != REPLAY)
    return Preset(systems, tuple(catalog.SCHEMES), tuple(catalog.WORLDS), None)


def planned(
    learners: Sequence[str] | None = None,
    schemes: Sequence[str] | None = None,
    places: Sequence[str] | None = None,
    seeds: int = SEEDS,
    steps: int | None = None,
    base: str = "quick",
) -> Plan:
    """Who meets where: the names that are given, and of the preset ``base`` what is not.

    If learners or schemes are named, only those that are named take part.

    >>> plan = planned(learners=["mihatsch"], places=["cliff"], steps=800)
    >>> [one.label for one in plan.contestants], [world.steps for world in plan.worlds]
    (['Mihatsch–Neuneier'], [800])
    """
    usual = preset(base)
    if learners is None and schemes is None:
        learners, schemes = usual.learners, usual.schemes
    seeds = _checks.whole("seeds", seeds, SEEDS, bits=24)
    budget = usual.steps if steps is None else _checks.whole("steps", steps, LOOKS)
    chosen = contestants(learners or (), schemes or ())
    _checks.require(bool(chosen), "contestants", "be at least one", chosen)
    return Plan(worlds(usual.worlds if places is None else places, budget), chosen, seeds)


def compare(plan: Plan, out: str | Path, quiet: bool = False, threads: int | None = None) -> tuple[Comparison, Path]:
    """Run what the folder lacks, and write the page; what was found, and where the page is.

    Stopped at any moment (:class:`~safereplay.errors.Stopped` says what is done), the same call goes on, and ends with the same page to the last bit.
    """
    folder = page_folder(out)
    with Store(folder) as store, stopping(lambda: _kept(plan, store)):
        run(plan, store, quiet, threads)
        found = collect(plan, store)
        return found, write_page(page(found), folder)


def _kept(plan: Plan, store: Store) -> str:
    """How much a comparison that was stopped has done."""
    kept = [store.get(job) is not None for _, job in plan.jobs()]
    return f"{sum(kept):,} of {len(kept):,} settings are done; the same command goes on"
