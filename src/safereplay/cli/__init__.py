"""The command line: parse, call, show."""

from . import exact, learning, playing, project, showing, sweeping
from .common import app, main, run

__all__ = ["app", "exact", "learning", "main", "playing", "project", "run", "showing", "sweeping"]
