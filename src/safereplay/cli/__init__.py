"""The command line: parse, call, show."""

from . import exact, learning, project, showing
from .common import app, main, run

__all__ = ["app", "exact", "learning", "main", "project", "run", "showing"]
