"""Atomic writes of files, and archives of arrays without pickle.

A saved object is one ``.npz`` archive: its arrays, and a JSON header that names its kind and format version.
Loading never unpickles. A write goes to a temporary file in the same folder, which then replaces the target in one
step. So a reader never sees a partial file, and a failed write leaves the old file unchanged.

Only regular files are read and written. A link is followed: it stays a link, and its target is replaced. Devices, FIFOs,
sockets and folders are refused without being opened. Text has at most ``MOST_TEXT`` bytes, an archive at most
``MOST_ARRAYS`` bytes after unpacking.
"""

import json
import os
import socket
import stat
import sys
import tempfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import BadZipFile, LargeZipFile

import numpy as np

from ._checks import AnyArray
from .errors import BadFile, BadInput, CannotWrite

HEADER = "header"
MOST_TEXT = 64 << 20  # bytes of a map, a spec, a JSON file
MOST_ARRAYS = 16 << 30  # bytes of a saved object, unpacked
#: Exceptions that reading a damaged archive can raise.
BROKEN = (OSError, ValueError, KeyError, EOFError, TypeError, RuntimeError, BadZipFile, LargeZipFile, zlib.error)


def write_atomic(path: str | Path, data: bytes | str, durable: bool = False) -> Path:
    """Write ``data`` to ``path`` in one step, or change nothing; ``durable`` waits until it is on the disk."""
    payload = data.encode() if isinstance(data, str) else data
    temporary: str | None = None
    try:
        mode = _mode(path)
        target = Path(os.path.realpath(path))
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if mode is None:
            umask = os.umask(0)  # it can only be read by setting it
            os.umask(umask)
            mode = 0o666 & ~umask
        os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, target)
        if durable:
            sync_folder(target.parent)
    except CannotWrite:
        raise
    except OSError as error:
        raise CannotWrite(f"{path} must be writable, got '{error.strerror}'") from None
    finally:  # also on Ctrl-C: no partial file is left
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
    return Path(path)


def _mode(path: str | Path) -> int | None:
    """The mode of the existing regular file, links followed; None if no file exists."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise CannotWrite(f"{path} must be a regular file or a new one, got {_kind(mode)}")
    return mode


def _kind(mode: int) -> str:
    """The kind of a file that is not regular."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def opened(path: str | Path) -> BinaryIO:
    """Open a regular file for reading; others are refused unopened, since opening may block or have side effects."""
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise BadFile(f"{path} must be a regular file, got {_kind(mode)}")
    return Path(path).open("rb")


def read_text(path: str | Path) -> str:
    """The text of a regular file of at most ``MOST_TEXT`` bytes. OSError and UnicodeDecodeError are passed on."""
    with opened(path) as stream:
        data = stream.read(MOST_TEXT + 1)
    if len(data) > MOST_TEXT:
        raise BadFile(f"{path} must have at most {MOST_TEXT >> 20} MiB, got more")
    return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")


def read_json(argument: str, path: str | Path) -> Any:
    """The content of a JSON file; ``argument`` is its name in errors."""
    try:
        return json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadInput(f"{argument} must be a .json file that can be read, got '{path}'; {reason}") from None


def sync_folder(folder: Path) -> None:
    """Flush the folder's entries to the disk, on systems where a folder can be opened."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_folder(path: str | Path, *names: str) -> Path:
    """Create a folder and check that it, and the files of these names in it, can be written to."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CannotWrite(f"{folder} must be a folder that can be written to, got '{error.strerror}'") from None
    for name in names:
        _mode(folder / name)
    return folder


def save_arrays(path: str | Path, kind: str, version: int, meta: dict[str, Any], arrays: dict[str, AnyArray]) -> Path:
    """Save named arrays and a JSON header as one archive."""
    header = json.dumps({"kind": kind, "version": version, "meta": meta}).encode()
    buffer = BytesIO()
    columns: dict[str, Any] = {HEADER: np.frombuffer(header, dtype=np.uint8), **arrays}
    np.savez_compressed(buffer, **columns)
    return write_atomic(path, buffer.getvalue())


def load_arrays(path: str | Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, AnyArray]]:
    """The header's meta data and the arrays of a file that :func:`save_arrays` wrote."""
    source = Path(path)
    try:
        with opened(source) as stream, np.load(stream, allow_pickle=False) as archive:
            size = sum(member.file_size for member in archive.zip.infolist())
            if size > MOST_ARRAYS:
                raise BadFile(f"{source} must unpack to at most {MOST_ARRAYS >> 30} GiB, got {size / 2**30:.3g} GiB")
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop(HEADER).tobytes())
        found, version_found, meta = header["kind"], int(header["version"]), header["meta"]
    except BadFile:
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise BadFile(f"{source} must be a saved {kind}, got no such file") from None
    except PermissionError as error:
        raise BadFile(f"{source} must be a saved {kind} that can be read, got '{error.strerror}'") from None
    except MemoryError:
        raise BadFile(f"{source} must be a saved {kind} that fits into memory, got a larger one") from None
    except BROKEN:
        raise BadFile(f"{source} must be a saved {kind}, got a file that is truncated or not one of ours") from None
    if found != kind:
        raise BadFile(f"{source} must be a saved {kind}, got a saved {found}")
    if version_found > version:
        raise BadFile(
            f"{source} must be of format {version} or older, got format {version_found}; "
            "it is from a newer safereplay: pip install --upgrade safereplay"
        )
    return meta, arrays


def save_state(path: str | Path, kind: str, version: int, state: dict[str, Any]) -> Path:
    """Save a nested dict of arrays and plain values; its keys are strings without a slash."""
    arrays: dict[str, AnyArray] = {}
    meta = _taken_apart(state, "", arrays)
    return save_arrays(path, kind, version, meta, arrays)


def load_state(path: str | Path, kind: str, version: int) -> dict[str, Any]:
    """The state that :func:`save_state` wrote."""
    meta, arrays = load_arrays(path, kind, version)
    if not isinstance(meta, dict):
        raise BadFile(f"{path} must be a saved {kind}, got a header that is not one of ours")
    for name, array in arrays.items():
        place = meta
        *above, last = name.split("/")
        for step in above:
            place = place.setdefault(step, {})
            if not isinstance(place, dict):
                raise BadFile(f"{path} must be a saved {kind}, got an array inside a value: {name}")
        place[last] = array
    return meta


def _taken_apart(state: dict[str, Any], above: str, arrays: dict[str, AnyArray]) -> dict[str, Any]:
    """The plain values of a nested dict; its arrays are moved to ``arrays``, named by their path."""
    plain = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            arrays[above + name] = value
        else:
            plain[name] = _taken_apart(value, f"{above}{name}/", arrays) if isinstance(value, dict) else value
    return plain


class Lock:
    """An exclusive lock for writing to a folder. A second process that asks for it gets an error that names the first.

    The lock is released when its process ends, however it ends. (filelock does not report the owner of a lock, and on file
    systems without locks it leaves files behind after a kill.)
    """

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
        """Take the lock and write the owner into it; raise an error that names the owner if it is taken."""
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
        """Release the lock."""
        self._file.close()


if sys.platform == "win32":
    import msvcrt

    def _take(handle: int, wait: bool) -> None:
        os.lseek(handle, 1 << 20, os.SEEK_SET)  # beyond the text, so that other processes can read it
        msvcrt.locking(handle, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(handle: int, wait: bool) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
