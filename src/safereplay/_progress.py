"""Progress on standard error, for work that takes longer than two seconds; and Ctrl-C at the end of a block.

On a terminal it is a bar. Elsewhere, the command line writes one line per tenth of the work, and the library writes
nothing. The command line also reports when numba compiles. That happens once; later processes load the compiled code.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from time import monotonic
from typing import Any, Self, TypeVar

DELAY = 2.0  # seconds before the first output, and at least between two lines
EVERY = 60.0  # seconds after which the next line is written even if less than a tenth was done
WIDE = 80  # columns of a full bar
from_command = False  #: set by the command line: write lines where there is no terminal, and report compilation


def write_line(done: float, label: str) -> None:
    """Write one line to standard error: the finished share, and the label."""
    sys.stderr.write(f"{done:4.0%}  {label}\n")
    sys.stderr.flush()


class Bar:
    """Progress of one task: on a terminal a bar with the time left, elsewhere lines or nothing."""

    def __init__(self, label: str, total: float, quiet: bool = False) -> None:
        self._label, self._total = label, total
        self._began = monotonic()
        self.reached = 0.0  #: the share that :func:`tell` has reached
        self._terminal = sys.stderr.isatty()
        self._quiet = quiet or not (self._terminal or from_command)
        self._line: tuple[float, int] | None = None  # time of the last line, and the tenths done by then
        self._shown: Any = None
        self._task: Any = None

    def update(self, done: float, label: str | None = None) -> None:
        """Set how much of the total is done."""
        self._label = label or self._label
        now = monotonic()
        if self._quiet or now - self._began < DELAY:
            return
        if not self._terminal:
            self._write_line(done / self._total if self._total else 1.0, now)
            return
        if self._shown is None:
            self._show()
        label = f"{self._label}: compiling" if compiling.depth else self._label
        self._shown.update(self._task, completed=done, description=label)

    def _write_line(self, share: float, now: float) -> None:
        tenths = int(10 * share)
        if self._line is not None:
            passed, more = now - self._line[0], tenths > self._line[1]
            if passed < DELAY or (passed < EVERY and not more):
                return
        write_line(share, self._label)
        self._line = now, tenths

    def _show(self) -> None:
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        share, left = progress.TaskProgressColumn(), progress.TimeRemainingColumn()
        columns: list[str | progress.ProgressColumn] = ["{task.description}", share, left]
        if console.width >= WIDE:
            elapsed = progress.TimeElapsedColumn()
            columns = ["{task.description:<40}", progress.BarColumn(), share, elapsed, "left", left]
        self._shown = progress.Progress(*columns, console=console, transient=True)
        self._task = self._shown.add_task(self._label, total=self._total)
        compiling.give_way(True)
        self._shown.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown.stop()
            compiling.give_way(False)


_current: ContextVar[Bar | None] = ContextVar("bar", default=None)
T = TypeVar("T")


@contextmanager
def shown(label: str, quiet: bool = False) -> Iterator[None]:
    """Show one bar for the block, moved by :func:`tell` in any function called there; do nothing inside another block."""
    if quiet or _current.get() is not None:
        yield
        return
    with Bar(label, 1.0) as bar, _moving(bar):
        yield


@contextmanager
def _moving(bar: Bar | None) -> Iterator[None]:
    token = _current.set(bar)
    try:
        yield
    finally:
        _current.reset(token)


def unmoved() -> Any:
    """A block in which :func:`tell` does nothing: for parts of work whose share of the whole is not known."""
    return _moving(None)


def tell(share: float | None = None, label: str | None = None) -> None:
    """Move the bar of the block to a share of its work, never back; without a share, only refresh it."""
    bar = _current.get()
    if bar is not None:
        bar.reached = bar.reached if share is None else max(bar.reached, min(share, 1.0))
        bar.update(bar.reached, label)


def attended(work: Callable[[], T]) -> T:
    """Do work that is one long call into compiled code, and refresh the bar meanwhile. Ctrl-C ends the wait at once.

    The work is done in another thread. After Ctrl-C it goes on there, unused; a process that exits waits for its end.
    """
    found: list[T] = []
    errors: list[BaseException] = []

    def do() -> None:
        try:
            found.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=do)
    with ctrl_c_afterwards():
        thread.start()
    while thread.is_alive():
        with ctrl_c_afterwards():
            thread.join(0.2)
        tell()
    if errors:
        raise errors[0]
    return found[0]


class Compiling:
    """Whether numba is compiling; shown in place on a terminal unless a bar is shown, elsewhere in one line."""

    def __init__(self) -> None:
        self.depth = 0  #: nesting depth of the functions being compiled
        self._lock = threading.Lock()
        self._bar = self._in_place = self._said = False

    def begin(self) -> None:
        """Compilation of a function has started."""
        with self._lock:
            self.depth += 1
            if self.depth > 1 or self._bar:
                return
            if sys.stderr.isatty():
                self._in_place = True
                sys.stderr.write("compiling…")
            elif not self._said:
                sys.stderr.write("compiling: this is done once, and may take a minute\n")
            self._said = True
            sys.stderr.flush()

    def end(self) -> None:
        """Compilation of a function has ended."""
        with self._lock:
            self.depth -= 1
            if not self.depth:
                self._clear()

    def give_way(self, bar: bool) -> None:
        """Hide the note while a bar is shown, or show it again."""
        with self._lock:
            self._bar = bar
            self._clear()

    def _clear(self) -> None:
        if self._in_place:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
        self._in_place = False


compiling = Compiling()


def on_compiling(begin: Callable[[], object], end: Callable[[], object]) -> None:
    """Call ``begin`` and ``end`` when numba begins and has ended to compile; not if it loads code from its cache.

    Functions that are compiled within others are not reported. Imports numba.
    """
    from numba.core import event

    class Listener(event.Listener):
        depth, lock = 0, threading.Lock()

        def on_start(self, _: Any) -> None:
            with self.lock:
                self.depth += 1
                if self.depth == 1:
                    begin()

        def on_end(self, _: Any) -> None:
            with self.lock:
                self.depth -= 1
                if self.depth == 0:
                    end()

    event.register("numba:compile", Listener())  # type: ignore[no-untyped-call]


@cache
def announce_compiling() -> None:
    """Report compilation by numba from now on. Imports numba."""
    on_compiling(compiling.begin, compiling.end)


@contextmanager
def ctrl_c_afterwards() -> Iterator[None]:
    """Ctrl-C during the block raises KeyboardInterrupt when the block ends. Blocks should be short.

    Python raises KeyboardInterrupt between any two lines of the main thread. Inside code that takes and releases a lock,
    such as starting and joining threads, this leads to 'release unlocked lock'.
    """
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
