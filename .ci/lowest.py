"""Writes the lowest versions that pyproject.toml allows, as constraints for pip: of the package, and of extras by name."""

import re
import sys
import tomllib
from pathlib import Path

LOWER = re.compile(r"^([\w.-]+)(?:\[.*\])?>=([\w.]+)$")

project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
for asked in [
    *project["dependencies"],
    *(one for name in sys.argv[1:] for one in project["optional-dependencies"][name]),
]:
    bound = LOWER.match(asked)
    if bound is None:
        sys.exit(f"dependencies must each have one lower bound, got {asked!r}")
    sys.stdout.write(f"{bound[1]}=={bound[2]}\n")
