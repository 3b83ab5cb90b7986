"""Results that were never run, for tests of what is said of them."""

from dataclasses import replace

import numpy as np

from safereplay.arena.measures import Scale
from safereplay.arena.plan import Plan, Record, contestants, worlds
from safereplay.arena.results import Chapter, Comparison, Family

SCALE = Scale(0.0, np.array([0.0, 1.0]), np.array([1.0, 1.0]), 0.5)
SEEDS = 20


def record(p, value, never=0.0, noise=0.0, seed=0, updates=1.0):
    """20 runs about (p, value), the same at each look."""
    spread = noise * np.random.default_rng(seed).standard_normal(SEEDS)
    look = np.ones((SEEDS, 4))
    columns = ((value + spread)[:, None] * look, (p + spread)[:, None] * look, never * look)
    return Record(*columns, np.full(SEEDS, int(800 * updates)), np.full(3, np.nan))


def world(title="cliff"):
    found = replace(worlds(["cliff"], 800)[0], name=title)
    found.__dict__["scale"] = SCALE
    return found


def chapter(title="cliff", refused=(), frontier=None, dangerous=True, **areas):
    """A world on which each contestant has an area: its name, '_' for '-', and 'variance' or 'matched' for the paper's."""
    here, everyone = world(title), {}
    here.__dict__["dangerous"] = dangerous
    for one in contestants(["q", "mihatsch", "gaskett", "worst-case", "cvar"], ["variance", "score"]):
        matched = one.ours and one.label.endswith("(matched)")
        everyone.setdefault("matched" if matched else one.name.replace("-", "_"), one)
    families = []
    for k, (name, found) in enumerate(areas.items()):
        share, noise = found if isinstance(found, tuple) else (found, 0.0)
        one = everyone[name]
        families.append(Family(here, one, one.settings[-1:], (record(0.0, share, noise=noise, seed=k),)))
    return Chapter(here, tuple(families), tuple(refused), None if frontier is None else np.array(frontier))


def comparison(*chapters):
    everyone = {f.label: f.contestant for c in chapters for f in c.families}
    plan = Plan(tuple(c.world for c in chapters), tuple(everyone.values()), SEEDS)
    return Comparison(plan, chapters)
