"""The command line: it parses arguments, calls the library, and shows results."""

from . import learning, project
from .common import app, main, run

__all__ = ["app", "learning", "main", "project", "run"]
