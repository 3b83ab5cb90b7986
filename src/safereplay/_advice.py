"""What is said once, in a line: what shaped replay does, and settings under which it cannot do what was asked of it."""

import logging
import warnings

LOG = logging.getLogger("safereplay")


class ShapingWarning(UserWarning):
    """Shaped replay is set up so that it does less than one would expect."""


class Once:
    """Says each topic once."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def note(self, topic: str, text: str) -> None:
        """A fact, to the log ``safereplay``; shown on standard error unless logging is set up otherwise."""
        if topic not in self.said:
            self.said.add(topic)
            LOG.warning(text)

    def advise(self, topic: str, text: str | None) -> None:
        """Something to change, as a warning; None is nothing to say."""
        if text is not None and topic not in self.said:
            self.said.add(topic)
            warnings.warn(text, ShapingWarning, stacklevel=4)
