"""Notes and warnings about shaped replay, each shown once."""

import logging
import warnings

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
