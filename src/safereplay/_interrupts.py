"""Delays Ctrl-C until the end of a block.

Python raises KeyboardInterrupt between any two lines of the main thread. Inside code that takes and releases a lock,
such as starting and joining threads, this leads to 'release unlocked lock'.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ctrl_c_afterwards() -> Iterator[None]:
    """Ctrl-C during the block raises KeyboardInterrupt when the block ends. Blocks should be short."""
    usual = signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not usual:
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if came:
            raise KeyboardInterrupt
