"""What can go wrong, as one small tree of exceptions.

Everything that safereplay raises on purpose is a :class:`SafeReplayError`, so a caller can catch the
library's own errors and nothing else. What is said of arguments is worded in :mod:`safereplay._checks`.
"""


class SafeReplayError(Exception):
    """The root of every error that safereplay raises on purpose."""


class BadInput(SafeReplayError, ValueError):
    """An argument does not meet its condition: '<argument> must <condition>, got <value>'."""


class BadFile(BadInput):
    """A saved file that cannot be read: truncated, of another kind, or from a newer version."""


class CannotWrite(BadInput, OSError):
    """A place that cannot be written to. Nothing was half-written."""


class MissingExtra(SafeReplayError, ImportError):
    """An optional dependency is not installed; the message names the pip command that installs it."""
