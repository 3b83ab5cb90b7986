"""The machine of the measurements."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine() -> dict[str, str]:
    """What the measurements depend on: processor, cores, load, and the versions of Python, numba and numpy."""
    return {
        "cpu": _cpu_name(),
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.2f}" if hasattr(os, "getloadavg") else "unknown",
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("numba", "numpy", "safereplay")},
    }


def in_words(facts: dict[str, str]) -> str:
    """The machine as a sentence."""
    versions = ", ".join(f"{name} {facts[name]}" for name in ("numba", "numpy", "safereplay"))
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['system']}; Python {facts['python']}, {versions}. "
        f"Load at the start: {facts['load']}."
    )


def _cpu_name() -> str:
    """The processor's name, or its family and model number if there is no name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if "model name" not in told:
        return platform.processor() or "unknown"
    return f"{told['model name']} (family {told.get('cpu family', '?')}, model {told.get('model', '?')})"
