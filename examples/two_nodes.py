"""A sweep of a large world on two nodes of a Ray cluster, both on this machine.

    python examples/two_nodes.py --side 1000 --episodes 300 --seeds 4 --out million

The world is a slippery square map of side² cells with four actions. It is sent once to each node, whose workers share it. On
a real cluster, start the nodes with ``ray start`` and pass ``address`` to the sweep (docs/cluster.md); the rest is the same.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safereplay as sr

QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_USAGE_STATS_ENABLED": "0"}
CURRENT = Path("/tmp/ray/ray_current_cluster")  # noqa: S108 - where Ray notes its latest cluster


@contextlib.contextmanager
def two_nodes(store: int, cpus: int = 1) -> Iterator[Any]:
    """Two nodes with so many CPUs each, and an object store of so many bytes; both end with the block."""
    os.environ |= QUIET
    from ray.cluster_utils import Cluster

    was_there = CURRENT.exists()
    CURRENT.parent.mkdir(exist_ok=True)
    node = {"num_cpus": cpus, "object_store_memory": store}
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False, "temp_dir": folder})
        try:
            cluster.add_node(**node)
            yield cluster
        finally:
            cluster.shutdown()
    if not was_there:
        CURRENT.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            CURRENT.parent.rmdir()


def own_memory() -> dict[int, int]:
    """The memory of each of Ray's workers on this machine that it does not share, in bytes (Linux)."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, StopIteration):
            if (entry / "cmdline").read_text().startswith("ray::"):
                lines = (entry / "status").read_text().splitlines()
                found[int(entry.name)] = next(1024 * int(x.split()[1]) for x in lines if x.startswith("RssAnon"))
    return found


def main() -> None:
    """Run the sweep, and print its time and memory."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("side", 300), ("episodes", 300), ("seeds", 4)):
        options.add_argument(f"--{name}", type=int, default=usual)
    options.add_argument("--out", default="large-world")
    given = options.parse_args()
    side = given.side
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder) / "world.txt"
        rows = ["S" + "." * (side - 1), *["." * side] * (side - 2), "." * (side - 2) + "XG"]
        world.write_text("\n".join(rows) + "\n")
        spec = {
            "episodes": given.episodes,
            "seeds": given.seeds,
            "keep": ["policy"],
            "models": {"world": {"source": str(world), "slip": 0.1, "gamma": 0.99}},
            "learners": {"q": {}, "replay": {"v": [0.5]}},
        }
        peaks: dict[int, int] = {}
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.5):
                for worker, held in own_memory().items():
                    peaks[worker] = max(held, peaks.get(worker, 0))

        with two_nodes(store=max(1 << 27, 1_000 * side**2)) as cluster:
            threading.Thread(target=watch, daemon=True).start()
            began = time.perf_counter()
            done = sr.sweep(spec, given.out, engine="ray", address=cluster.address)
            seconds = time.perf_counter() - began
            ended.set()
    print(f"{side**2:,} states, {done.done} runs of {given.episodes} episodes on two nodes: {seconds:.0f} s")
    print(f"memory that a worker does not share: at most {max(peaks.values(), default=0) / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
