"""A study whose results are made up, so that every number and every sentence of its page is known beforehand."""

import numpy as np
from planted_runs import block

from studies.deep.records import write_record
from studies.deep.study import Preset, plan
from studies.deep.summary import KEYED, LIMITED, OURS, PENALTY, PLAIN, RANDOM, RIVALS, Episodes, Group, Run, Training

#: P(catastrophe) and mean return of each family, unless a test plants others.
USUAL = {
    RANDOM: (0.5, -20.0),
    PLAIN: (0.2, 10.0),
    OURS: (0.02, 9.5),
    KEYED: (0.04, 9.5),
    LIMITED: (0.05, 9.6),
    **dict.fromkeys(RIVALS, (0.1, 9.0)),
    PENALTY: (0.06, 9.0),
}
PRESET = Preset(("point",), seeds=5, steps=1000, episodes=200, selection=100)


def result(p, mean, job, selected=None, training=0.3, seconds=10.0, paths=(), certified=True, lasting=20.0):
    """What a run would have found; ``selected`` is (P, mean) on the selection episodes, the same unless given.

    ``certified`` says whether a run under a named limit keeps it, ``lasting`` how many steps its episodes have.
    """
    rng = np.random.default_rng([job.setting["seed"], int(job.kind[:8], 16)])
    unsafe = rng.permutation(np.arange(100) < round(100 * training)).astype(int).tolist()
    steps = np.linspace(10, job.setting["steps"], 100).astype(int).tolist()
    return {
        "evaluation": block(p, mean, job.setting["episodes"], rng) | {"mean_steps": lasting},
        "selection": block(*(selected or (p, mean)), job.selection, rng),
        "seconds": seconds,
        "curve": {"step": steps, "return": np.linspace(-5, mean, 100).tolist(), "catastrophe": unsafe},
        "paths": list(paths),
        **({"certificate": certificate(certified)} if job.family == LIMITED else {}),
        "versions": {"python": "3.11", "cpu": "a slow one", "cores": "2", "system": "Linux"},
    }


def certificate(kept):
    return {"kept": kept, "episodes": 400, "settings": {"v": 0.75}}


def plant(folder, planted=None, preset=PRESET, only=None, **kwargs):
    """Write the runs of a preset: ``planted`` maps 'family' or 'family, dial' to (P, mean), or to more of ``result``'s arguments.

    A function of the seed may stand for the pair. ``only`` leaves out all other families. The jobs are returned.
    """
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    values = {**USUAL, **(planted or {})}
    jobs = plan(preset)
    for job in jobs:
        name = f"{job.family}, {job.dial}"
        found = values.get(name, values.get(job.family))
        if found is None or (only is not None and job.family not in only):
            continue
        found = found(job.setting["seed"]) if callable(found) else found
        more = {**kwargs, **(found if isinstance(found, dict) else {"p": found[0], "mean": found[1]})}
        write_record(runs, job, result(job=job, **more))
    return jobs


# -- groups without files ----------------------------------------------------------------------------------------------

NO_TRAINING = Training(np.array([], int), np.array([]), np.array([], bool))


def episodes(p, mean, n=100):
    """All with the same return, the first of them unsafe."""
    return Episodes(np.full(n, float(mean)), np.arange(n) < round(n * p))


def group(name, *runs, dial=""):
    """One run a pair ((P, mean) on evaluation, (P, mean) on selection)."""
    made = [Run(k, episodes(*a), episodes(*b), NO_TRAINING, 1.0) for k, (a, b) in enumerate(runs)]
    return Group(name, dial, tuple(made))


def steady(name, p, mean, selected=None, seeds=5, dial=""):
    """All seeds alike."""
    return group(name, *[((p, mean), selected or (p, mean))] * seeds, dial=dial)
