"""Make docs/compare.md: ``python docs/comparison.py FOLDER``, of a folder that ``compare --preset paper`` wrote, or goes on with."""

import sys
from pathlib import Path

from safereplay.arena.report import compare, planned, write_docs

if __name__ == "__main__":
    found, _ = compare(planned(base="paper"), sys.argv[1])
    write_docs(found, Path(__file__).parent)
