"""A dataset as a folder of Parquet parts: whole or absent, whatever happens while it is written.

    FOLDER/runs/*.parquet   one part per chunk, one row per run; the column ``id`` says which
    FOLDER/.lock            held by the process that is named in it; the system releases it when the process ends

No file of the folder is ever half written. A part is written under a hidden name, synced to disk, and renamed. A run is
done when its part is renamed, so readers see only whole parts. A part that is damaged later is set aside, and its runs are
done again. All parts have one schema, so that any reader can concatenate them.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from .. import _files
from ..errors import BadFile, CannotWrite
from .identity import DIGITS

TEMPORARY = re.compile(r"^\..+\.(parquet|json|toml)\.[a-z0-9_]{8}$")


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly the schema's columns, in its order and types; nulls where it has none."""
    here, n = set(table.column_names), table.num_rows
    columns = [table[f.name].cast(f.type) if f.name in here else pa.nulls(n, f.type) for f in schema]
    return pa.table(columns, schema=schema)


class Parts:
    """A folder of parts that is open for writing.

    ``tell`` is called with one line for each part that is set aside; ``about`` is written into each part. After :meth:`__enter__`
    the parts have one schema, and ``done`` has the ids of their runs, as bytes.
    """

    schema: pa.Schema

    def __init__(self, folder: str | Path, tell: Callable[[str], None], about: dict[str, str]) -> None:
        self.folder, self._tell, self._about = Path(folder), tell, about
        self.runs = self.folder / "runs"
        self.done: set[bytes] = set()

    def __enter__(self) -> Self:
        _files.make_folder(self.folder)
        self._lock = _files.Lock(self.folder)
        try:
            _files.make_folder(self.runs)
            for folder in (self.folder, self.runs, self.folder / "specs"):
                for file in folder.glob(".*"):
                    if TEMPORARY.match(file.name):  # left by a killed process: the lock keeps other writers out
                        file.unlink(missing_ok=True)
            self._settle()
            self.recount()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _settle(self) -> None:
        """Check that the folder is for this dataset, and set the schema."""

    def add(self, table: pa.Table) -> None:
        """Write the rows of a chunk as one part."""
        ids = "".join(table["id"].to_pylist())
        self._write(hashlib.blake2b(ids.encode(), digest_size=8).hexdigest() + ".parquet", table)
        self.done |= _split(ids)

    def _write(self, name: str, table: pa.Table) -> None:
        whole = conform(table, self.schema).replace_schema_metadata(self._about)
        buffer = BytesIO()
        rows = max(1, whole.num_rows)
        pq.write_table(whole, buffer, row_group_size=rows, compression="zstd", write_page_checksum=True)
        _files.write_atomic(self.runs / name, buffer.getvalue(), durable=True)

    def recount(self) -> None:
        """Collect the ids that are done; parts written before an extension get the new columns.

        Called after an interrupt too: a part may be renamed whose runs :meth:`add` has not recorded yet.
        """
        for part in sorted(self.runs.glob("*.parquet")):
            try:
                table, schema = _read(part, ["id"])
                if not schema.equals(self.schema):
                    self._write(part.name, _read(part)[0])
                self.done |= _split("".join(table["id"].to_pylist()))
            except (pa.ArrowException, OSError, ValueError, KeyError) as error:
                if isinstance(error, CannotWrite):
                    raise
                if isinstance(error, OSError) and error.errno is not None:
                    raise BadFile(f"{part} must be readable, got '{error.strerror}'") from None
                aside = _files.make_folder(self.folder / "damaged") / part.name  # some readers read all of runs/
                os.replace(part, aside)
                _files.sync_folder(self.runs)
                self._tell(f"{part} is damaged: set aside as {aside}, and its runs are done again")


def _read(file: Path, columns: list[str] | None = None) -> tuple[pa.Table, pa.Schema]:
    """The columns of a part, and its schema."""
    with _files.opened(file) as stream, pq.ParquetFile(stream, page_checksum_verification=True) as part:
        return part.read(columns=columns, use_threads=False), part.schema_arrow.remove_metadata()


def _split(ids: str) -> set[bytes]:
    """Concatenated hex ids as a set of bytes."""
    raw, size = bytes.fromhex(ids), DIGITS // 2
    return {raw[k : k + size] for k in range(0, len(raw), size)}
