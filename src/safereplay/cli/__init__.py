"""The command line: it parses arguments, calls the library, and shows results."""

from . import exact, learning, project, showing
from .common import app, main, run

__all__ = ["app", "exact", "learning", "main", "project", "run", "showing"]
