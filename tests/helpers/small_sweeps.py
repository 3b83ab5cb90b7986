"""Small specs, and ways to look at the folder of a sweep."""

import json

import pyarrow.parquet as pq

from safereplay.engines.work import ThreadsEngine

SMALL = {
    "episodes": 200,
    "seeds": 6,
    "models": {"cliff": {"gamma": [0.9, 0.95]}, "volatile": {}},
    "learners": {"q": {}, "replay": {"v": [0.3, 0.6]}},
}


class Impatient(ThreadsEngine):
    """Threads with chunks so short that a small sweep has many parts."""

    seconds = 0.02

    def __init__(self, workers=2, most=3):
        super().__init__(workers)
        self.most = most


def parts(folder):
    return sorted((folder / "runs").glob("*.parquet"))


def ids(folder):
    return [x for part in parts(folder) for x in pq.read_table(part, columns=["id"])["id"].to_pylist()]


def stamps(folder):
    """What changes if a part is written again."""
    return {part.name: (part.stat().st_ino, part.stat().st_mtime_ns) for part in parts(folder)}


def everything(folder):
    """All files of a folder but the lock's, by name."""
    files = [f for f in folder.rglob("*") if f.is_file() and f.name not in (".lock", ".locking")]
    return sorted(str(f.relative_to(folder)) for f in files)


def note(folder):
    return json.loads((folder / "sweep.json").read_text())
