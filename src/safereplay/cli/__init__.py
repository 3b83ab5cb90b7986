"""The command line: it parses arguments, calls the library, and shows results."""

from . import designing, learning, project
from .common import app, main, run

__all__ = ["app", "designing", "learning", "main", "project", "run"]
