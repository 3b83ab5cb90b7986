"""Files that are either whole or absent, and arrays in them without pickle.

A saved object is one ``.npz`` archive: its arrays, and a JSON header that names its kind and format version.
Loading never unpickles. Writing goes to a temporary neighbour that replaces the target in one step, so a
reader never meets half a file, and a failed write leaves what was there before.
"""

import json
import os
import tempfile
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ._types import AnyArray
from .errors import BadFile, CannotWrite

HEADER = "header"
#: What reading a damaged archive can raise.
BROKEN = (
    OSError,
    ValueError,
    KeyError,
    EOFError,
    TypeError,
    RuntimeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
)


def write_atomic(path: str | Path, data: bytes | str, durable: bool = False) -> Path:
    """Put ``data`` at ``path`` in one step, or leave everything as it was; ``durable`` waits until the disk has it."""
    target = Path(path)
    payload = data.encode() if isinstance(data, str) else data
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(payload)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
        if durable:
            sync_folder(target.parent)
    except OSError as error:
        raise CannotWrite(f"{target} must be writable, got '{error.strerror}'") from None
    finally:  # Ctrl-C as well: nothing half-written stays
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
    return target


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the folder's names, where a folder can be opened for that."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def make_folder(path: str | Path) -> Path:
    """A folder that exists and can be written to."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise CannotWrite(f"{folder} must be a folder that can be written to, got '{error.strerror}'") from None
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
    if not source.is_file():
        raise BadFile(f"{source} must be a saved {kind}, got no such file")
    try:
        with source.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop(HEADER).tobytes())
        found, stamp, meta = header["kind"], header["version"], header["meta"]
        version_found = int(stamp)
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
    """What :func:`save_state` wrote."""
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
    """The plain values of a nested dict; its arrays go to ``arrays``, named by their path."""
    plain = {}
    for name, value in state.items():
        if isinstance(value, np.ndarray):
            arrays[above + name] = value
        else:
            plain[name] = _taken_apart(value, f"{above}{name}/", arrays) if isinstance(value, dict) else value
    return plain
