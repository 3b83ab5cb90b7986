"""The command line: parse, call, show."""

from . import exact, learning, project, showing
from . import learning as comparing
from . import learning as sweeping
from . import project as playing
from .common import app, main, run

__all__ = ["app", "comparing", "exact", "learning", "main", "playing", "project", "run", "showing", "sweeping"]
