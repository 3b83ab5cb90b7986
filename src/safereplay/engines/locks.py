"""The right to write to a folder: held by one process at a time, and freed by the system however that process ends."""

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
            self._file = (folder / ".lock").open("a+")
        except OSError as error:
            raise CannotWrite(f"{folder} must be a folder that can be written to, got '{error.strerror}'") from None
        try:
            _take(self._file.fileno())
        except (BlockingIOError, PermissionError):
            self._file.seek(0)
            owner = self._file.read().strip() or "unknown"
            self._file.close()
            raise BadInput(
                f"{folder} must be free, got a sweep at work in it ({owner}); wait, or choose another folder"
            ) from None
        except OSError as error:
            self._file.close()
            raise CannotWrite(f"{folder} must be a folder that can be locked, got '{error.strerror}'") from None
        self._sign(folder)

    def _sign(self, folder: Path) -> None:
        try:
            self._file.truncate(0)
            self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            self._file.flush()
        except OSError as error:
            raise CannotWrite(f"{folder} must be writable, got '{error.strerror}'") from None

    def release(self) -> None:
        """Let others write."""
        self._file.close()


if sys.platform == "win32":
    import msvcrt

    def _take(handle: int) -> None:
        os.lseek(handle, 1 << 20, os.SEEK_SET)  # beyond what is written, so that others can read it
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
