"""Waiting for an event, never for a length of time; and an event loop whose clock the test holds.

A test that sleeps, or that compares seconds, fails where the machine is faster, slower or busier than expected. So tests
wait here only (tests/test_clocks.py sees to it). :data:`END` ends what hangs, and nothing else.
"""

import asyncio
import time

END = 600.0  # seconds
HOUR = 3600.0  # seconds: a time limit that no test reaches, unless it moves the clock


def wait_until(condition):
    """Wait until a condition is true; its value."""
    end = time.monotonic() + END
    while not (found := condition()):
        assert time.monotonic() < end, "what the test waits for does not happen"
        time.sleep(0.01)
    return found


async def happens(condition):
    """:func:`wait_until` in an event loop, which goes on meanwhile."""
    return await asyncio.to_thread(wait_until, condition)


class HeldLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still until :meth:`skip` moves it."""

    skipped = 0.0

    def time(self):
        return self.skipped

    def skip(self, seconds):
        self.skipped += seconds

    async def pass_by(self, seconds):
        """Move the clock, and let everything happen that is due by then."""
        self.skip(seconds)
        for _ in range(10):
            await asyncio.sleep(0)


class SkippingLoop(HeldLoop):
    """An event loop whose clock goes on as usual, and can be moved ahead."""

    def time(self):
        return self.skipped + super(HeldLoop, self).time()


def run_held(work):
    """``asyncio.run`` with a clock that stands still; ``work()`` makes the coroutine."""
    with asyncio.Runner(loop_factory=HeldLoop) as runner:
        return runner.run(work)
