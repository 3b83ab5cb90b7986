"""The command line: parse, call, show."""

from . import comparing, exact, learning, playing, project, showing, sweeping
from .common import app, main, run

__all__ = ["app", "comparing", "exact", "learning", "main", "playing", "project", "run", "showing", "sweeping"]
