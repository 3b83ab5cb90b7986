"""Folders as a sweep leaves them, for tests of what reads them: real runs, or given columns."""

import itertools
import json

import pyarrow as pa
import pyarrow.parquet as pq

import safereplay as sr


def write_part(folder, columns, name="part-0"):
    """One part of a dataset, atomically."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), hidden)
    hidden.rename(folder / "runs" / f"{name}.parquet")
    return folder


def write_total(folder, runs):
    (folder / "sweep.json").write_text(json.dumps({"runs": runs}))


def learned(models=("cliff",), gammas=(0.95,), vs=(0.0, 0.5), betas=(5.0,), seeds=3, episodes=500, curves=0):
    """The rows of real runs, one each."""
    rows = []
    for model, gamma, v, beta in itertools.product(models, gammas, vs, betas):
        mdp = getattr(sr.grids, model)(gamma=gamma)
        learner = sr.ReplayQLearning(sr.VarianceReplay(beta), v)
        runs = sr.learn(mdp, learner, episodes, seeds, snapshots=curves)
        for k, seed in enumerate(runs.seeds):
            shared = {"model": model, "gamma": gamma, "learner": "replay", "kind": "ReplayQLearning", "v": v}
            shared |= {"scheme": "VarianceReplay", "beta": beta, "episodes": episodes, "seed": seed}
            risk = profile(mdp, runs.policy[k])
            row = {"id": f"{len(rows):032x}", **shared, "verdict": runs.verdicts[k], **risk}
            rows.append(row | (curve(mdp, runs, k) if curves else {}))
    return pa.Table.from_pylist(rows)


def profile(mdp, policy, cache={}):  # noqa: B006
    """What the dataset says of a policy's risk."""
    key = (mdp.name, mdp.gamma, policy.tobytes())
    if key not in cache:
        risk = sr.evaluate(mdp, policy, start=mdp.origin, quiet=True)
        cache[key] = {n: getattr(risk, n) for n in ("mean", "std", "p_unsafe", "p_never")} | {"cvar10": risk.cvar(0.1)}
    return cache[key]


def curve(mdp, runs, k):
    Q = runs.snapshots.Q[k]
    return {
        "curve_episodes": runs.snapshots.episodes.tolist(),
        "curve_value": Q[:, mdp.origin].max(1).tolist(),
        "curve_p_unsafe": [profile(mdp, q.argmax(1))["p_unsafe"] for q in Q],
    }


def given(**columns):
    """A table with these columns, and a model and a learner if none are named."""
    n = len(next(iter(columns.values())))
    shared = {"model": ["cliff"] * n, "learner": ["replay"] * n, "seed": list(range(n))}
    kinds = {"seed": pa.uint64()}
    whole = {**shared, **columns}
    return pa.table({name: pa.array(list(x), kinds.get(name)) for name, x in whole.items()})
