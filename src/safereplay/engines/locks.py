"""The right to write to a folder: held by one process at a time, and freed by the system however that process ends.

    FOLDER/.lock      held by the process whose line is in it
    FOLDER/.locking   held while a process takes the lock and writes its line, or reads whose line is there

Without the second one, a process could find the lock taken, and in it no line yet, or that of an earlier process.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from ..errors import BadInput, CannotWrite


class Lock:
    """The right to write to a folder; a second one who wants it is told who has it."""

    def __init__(self, folder: Path) -> None:
        try:
            with (folder / ".locking").open("a") as turn:
                _take(turn.fileno(), True)
                self._file = (folder / ".lock").open("a+")
                try:
                    self._own(folder)
                except BaseException:
                    self._file.close()
                    raise
        except OSError as error:
            place = f"{folder} must be a folder that can be written to and locked"
            raise CannotWrite(f"{place}, got '{error.strerror}'") from None

    def _own(self, folder: Path) -> None:
        """Take the lock and sign it, or say who has it."""
        try:
            _take(self._file.fileno(), False)
        except (BlockingIOError, PermissionError):
            self._file.seek(0)
            owner = self._file.read().strip() or "unknown"
            raise BadInput(
                f"{folder} must be free, got a sweep at work in it ({owner}); wait, or choose another folder"
            ) from None
        self._sign()

    def _sign(self) -> None:
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        self._file.flush()

    def release(self) -> None:
        """Let others write."""
        self._file.close()


if sys.platform == "win32":
    import msvcrt

    def _take(handle: int, wait: bool) -> None:
        os.lseek(handle, 1 << 20, os.SEEK_SET)  # beyond what is written, so that others can read it
        msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(handle: int, wait: bool) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
