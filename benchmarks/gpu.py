"""Benchmarks of the GPU engine: equality with the CPU on 1,000 runs, updates per second on 100,000, and its bottlenecks.

    python benchmarks/gpu.py measure OUT.json          needs a CUDA GPU and numba-cuda
    python benchmarks/gpu.py threads OUT.json 384 512  more threads with fewer registers, and fewer with more
    ncu --clock-control none --section ... --launch-skip 1 --launch-count 1 python benchmarks/gpu.py launch cliff
    python benchmarks/gpu.py profile OUT.json cliff=DETAILS.txt volatile=DETAILS.txt

``measure`` starts the file that ``safereplay bench --out`` shows as its section on GPUs. ``launch`` makes two launches of one
kernel for the profiler, the second in the middle of runs. ``threads`` and ``profile`` add their tables to the file.
"""

import json
import re
import sys
import time
from pathlib import Path

import numpy as np
from numba import cuda

import safereplay as sr
from safereplay.engines import cuda as engine
from safereplay.engines import work
from safereplay.kernels import device

GRIDS = {"volatile": sr.grids.volatile(), "cliff": sr.grids.cliff()}
LEARNERS = [
    sr.QLearning(),
    sr.ReplayQLearning(v=0.5),
    sr.ReplayQLearning(v=0.5, mixing="matched"),
    sr.RiskSensitive(0.5),
    sr.WorstCase(),
]
SAME, SAME_EPISODES = 1_000, 50_000  # runs and episodes of the comparison with the CPU
MANY, MANY_EPISODES = 100_000, 50_000  # runs and episodes of the timing
SHORT = 5_000  # episodes of the comparison of numbers of threads
METRICS = {
    "Duration": "ms",
    "Executed Ipc Active": "instructions per cycle and multiprocessor, of 4",
    "L1/TEX Hit Rate": "%",
    "L2 Hit Rate": "%",
    "DRAM Throughput": "% of its peak",
    "L2 Cache Throughput": "% of its peak",
    "Registers Per Thread": "",
    "Achieved Occupancy": "%",
    "Avg. Active Threads Per Warp": "of 32",
    "Warp Cycles Per Issued Instruction": "cycles",
}


def runs_of(mdp, learner, n):
    point = work.Point("", mdp, learner, sr.EpsilonGreedy(0.1), sr.PowerStep(0.6), {})
    return [work.Run("", point, seed) for seed in range(n)]


def same(grid, learner):
    """How many of 1,000 runs have the CPU's policy, how many have the same bits, and the largest difference in Q."""
    mdp = GRIDS[grid]
    there = engine.learn_there(runs_of(mdp, learner, SAME), work.Terms(SAME_EPISODES, 1_000, (), 0)).Q
    here = sr.learn(mdp, learner, SAME_EPISODES, SAME, quiet=True).Q
    policies = (there.argmax(-1) == here.argmax(-1)).all(1).sum()
    bits = (there == here).all((1, 2)).sum()
    return [grid, learner.describe(), f"{policies:,}", f"{bits:,}", f"{np.abs(there - here).max():.1e}"]


def speed(grid, learner, episodes=MANY_EPISODES):
    """Updates per second of 100,000 runs: of the launches only, and with layout and transfers."""
    runs, terms = runs_of(GRIDS[grid], learner, MANY), work.Terms(episodes, 1_000, (), 0)
    engine.learn_there(runs[:1_000], work.Terms(10, 1_000, (), 0))  # compiles
    began = time.perf_counter()
    plan = engine.Layout.of(runs)
    there = engine.sent(plan, runs, terms, engine.PER_SM * cuda.get_current_device().MULTIPROCESSOR_COUNT)
    cuda.synchronize()
    launched = time.perf_counter()
    found = engine.drive(plan, terms, there)
    ended = time.perf_counter()
    updates = int(found.counts.sum(dtype=np.int64))
    rates = [f"{updates / (ended - start) / 1e9:.2f}·10⁹" for start in (launched, began)]
    return [grid, learner.describe(), f"{updates:.2e}", f"{ended - launched:.2f}", *rates]


def measure(out):
    tables = [
        {
            "title": f"{MANY:,} runs of {MANY_EPISODES:,} episodes",
            "said": "One thread per run, in float64. Compiled beforehand; the last column includes layout, seeding and transfers. "
            "On the cliff the worst-case learner ends up standing still, so its episodes last up to the limit of 1,000 steps.",
            "header": ["grid", "learner", "updates", "seconds", "updates per second", "with set-up"],
            "rows": [speed(grid, learner) for grid in GRIDS for learner in LEARNERS],
        },
        {
            "title": f"the CPU's runs: {SAME:,} seeds, {SAME_EPISODES:,} episodes",
            "said": "Runs with the CPU's policy, runs with all bits of its Q, and the largest difference in Q.",
            "header": ["grid", "learner", "same policy", "same bits", "largest difference"],
            "rows": [same(grid, learner) for grid in GRIDS for learner in LEARNERS],
        },
    ]
    name = cuda.get_current_device().name
    machine = f"{name.decode() if isinstance(name, bytes) else name}, {cuda.get_current_device().MULTIPROCESSOR_COUNT} multiprocessors"
    write(out, {"machine": machine, "tables": tables})


def threads(out, *counts):
    """Updates per second at several numbers of threads per multiprocessor, which share its registers."""
    rows = []
    for count in map(int, counts):
        engine.PER_SM = count
        engine.kernel_of.cache_clear()
        for grid in GRIDS:
            for learner in LEARNERS[:2]:
                *_, rate, _ = speed(grid, learner, SHORT)
                plan = engine.Layout.of(runs_of(GRIDS[grid], learner, 1))
                kernel = engine.kernel_of(plan.recipe, plan.sizes, plan.dense)
                taken = [
                    str(max(x.values())) for x in (kernel.get_regs_per_thread(), kernel.get_local_mem_per_thread())
                ]
                rows.append([str(count), grid, learner.describe(), rate, *taken])
    table = {
        "title": "threads per multiprocessor",
        "said": f"They share its registers. {MANY:,} runs of {SHORT:,} episodes, launches only. Local memory: what a thread cannot keep in its registers.",
        "header": ["threads", "grid", "learner", "updates per second", "registers", "bytes of local memory"],
        "rows": rows,
    }
    add(out, table)


def launch(grid, budget=4_000):
    """A launch that brings runs to their middle, then one for the profiler."""
    threads = engine.PER_SM * cuda.get_current_device().MULTIPROCESSOR_COUNT
    runs, terms = runs_of(GRIDS[grid], sr.ReplayQLearning(v=0.5), threads), work.Terms(1 << 40, 1_000, (), 0)
    plan = engine.Layout.of(runs)
    kernel = engine.kernel_of(plan.recipe, plan.sizes, plan.dense)
    there = engine.sent(plan, runs, terms, threads)
    with device.rounded_one_by_one():
        for iterations in (60_000, budget):
            kernel[threads // engine.BLOCK, engine.BLOCK](*there, GRIDS[grid].n_actions, 1_000, iterations)
            cuda.synchronize()


def profile(out, *named):
    columns = dict(item.split("=", 1) for item in named)
    details = {grid: Path(path).read_text() for grid, path in columns.items()}

    def value(text, metric):
        hit = re.search(rf"^\s*{re.escape(metric)}\s+(?:\S+\s+)?([\d.,]+)\s*$", text, re.M)
        return hit.group(1) if hit else "not measured"

    rows = [[metric, unit, *(value(text, metric) for text in details.values())] for metric, unit in METRICS.items()]
    table = {
        "title": "what limits it",
        "said": "Nsight Compute on one launch of 4,000 iterations of replay (v = 0.5), 384 threads per multiprocessor.",
        "header": ["metric", "", *details],
        "rows": rows,
    }
    add(out, table)


def add(out, table):
    """Add a table to the file, or replace it."""
    found = json.loads(Path(out).read_text())
    found["tables"] = [t for t in found["tables"] if t["title"] != table["title"]] + [table]
    write(out, found)


def write(out, found):
    Path(out).write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"measure": measure, "threads": threads, "launch": launch, "profile": profile}[command](*arguments)
