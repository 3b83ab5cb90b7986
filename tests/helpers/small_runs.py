"""The same small runs, compiled or plain: each learner × exploration × grid. As a script it saves them to a file.

NUMBA_DISABLE_JIT=1 python small_runs.py out.npz
"""

import sys

import numpy as np

EPISODES, MAX_STEPS, SEEDS = 240, 40, [3]


def cases():
    import safereplay as sr

    learners = {
        "q": sr.QLearning(),
        "literal": sr.ReplayQLearning(sr.VarianceReplay(5.0), v=0.5, T0=10),
        "matched": sr.ReplayQLearning(sr.VarianceReplay(0.1), v=0.8, mixing="matched"),
        "base scheme": sr.ReplayQLearning(sr.Scheme(), v=0.3, c0=2.0),
        "mihatsch": sr.RiskSensitive(0.6),
        "gaskett": sr.Pessimistic(0.3),
        "worst case": sr.WorstCase(),
        "worst transition": sr.WorstTransition(),
    }
    explorations = {
        "constant": sr.EpsilonGreedy(0.1),
        "falling": sr.EpsilonGreedy(0.5, power=0.5),
        "softmax": sr.Softmax(3.0, power=0.2),
    }
    for grid in (sr.grids.volatile(), sr.grids.cliff()):
        for learner_name, learner in learners.items():
            for exploration_name, exploration in explorations.items():
                yield f"{grid.name}/{learner_name}/{exploration_name}", grid, learner, exploration


def run_all(only=""):
    """{case/what: array} of everything that a run gives."""
    import safereplay as sr

    found = {}
    for name, grid, learner, exploration in cases():
        if only not in name:
            continue
        learned = sr.learn(grid, learner, EPISODES, SEEDS, exploration, max_steps=MAX_STEPS, snapshots=4, threads=1)
        found |= {f"{name}/{what}": getattr(learned, what) for what in ("Q", "visits", "replays")}
        found |= {f"{name}/snapshots/{what}": getattr(learned.snapshots, what) for what in ("Q", "visits")}
        if learned.seen is not None:
            found |= {f"{name}/seen": learned.seen}
        if learned.w is not None:
            found |= {f"{name}/replayed": learned.replayed}
            found |= {f"{name}/w": learned.w, f"{name}/snapshots/w": learned.snapshots.w}
    return found


def main(target, only=""):
    import numba

    if numba.config.DISABLE_JIT:
        import warnings
        from functools import cache

        from safereplay.schedules import Schedule

        # numpy's uint64 scalars warn when they wrap around; the compiled ones just do
        warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)
        Schedule.table = cache(Schedule.table)  # 65,536 values, one by one: once is enough
    np.savez(target, **run_all(only))


if __name__ == "__main__":
    main(*sys.argv[1:])
