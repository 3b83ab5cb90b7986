"""The exceptions and warnings of safereplay.

:mod:`safereplay._checks` has the wording of messages about arguments. Ctrl-C is not an error (:class:`Stopped`).
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SafeReplayError(Exception):
    """The base class of every error that safereplay raises on purpose, so that a caller can catch only these."""


class BadInput(SafeReplayError, ValueError):
    """An argument does not meet its condition: '<argument> must <condition>, got <value>'."""


class BadFile(BadInput):
    """A saved file that cannot be read: truncated, of another kind, or from a newer version."""


class CannotWrite(BadInput, OSError):
    """A path that cannot be written to. No partial file is left."""


class Unreachable(BadInput):
    """No replay gives the policy, or keeps the limit, that was asked for."""


class MissingExtra(SafeReplayError, ImportError):
    """An optional dependency is not installed; the message names the pip command that installs it."""


class Stopped(KeyboardInterrupt):
    """Ctrl-C, with one line on what is finished."""


@contextmanager
def stopping(finished: Callable[[], str]) -> Iterator[None]:
    """Raise :class:`Stopped` for a Ctrl-C within the block, with the message ``finished()``.

    >>> try:
    ...     with stopping(lambda: "2 of 8 seeds are finished"):
    ...         raise KeyboardInterrupt
    ... except Stopped as stopped:
    ...     print(stopped)
    2 of 8 seeds are finished
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(finished()) from None


LOG = logging.getLogger("safereplay")


class ShapingWarning(UserWarning):
    """Shaped replay is configured so that it has less effect than expected."""


class Once:
    """Shows each topic once."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def note(self, topic: str, text: str) -> None:
        """Log a fact to the logger ``safereplay``; by default it appears on standard error."""
        if topic not in self.said:
            self.said.add(topic)
            LOG.warning(text)

    def advise(self, topic: str, text: str | None) -> None:
        """Warn about a setting to change; None shows nothing."""
        if text is not None and topic not in self.said:
            self.said.add(topic)
            warnings.warn(text, ShapingWarning, stacklevel=4)
