"""Runs notebooks top to bottom, and keeps what a reader needs: text, code and output."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
LONGEST = 300  # seconds per cell, including compilation on the first run


def run(file: Path) -> Any:
    """The notebook after a run in a fresh kernel and an empty folder."""
    notebook = nbformat.read(file, as_version=4)
    with TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        quiet = ["--log-level=ERROR"]  # the kernel listens on 127.0.0.1 alone, which it need not warn of
        client = NotebookClient(
            notebook,
            timeout=LONGEST,
            kernel_name="python3",
            resources=where,
            extra_arguments=quiet,
            coalesce_streams=True,
        )
        client.execute()
    return notebook


def save(notebook: Any, file: Path) -> None:
    """Write it without the parts that differ between runs."""
    notebook.metadata = nbformat.from_dict(KERNEL)
    for k, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{k}", nbformat.from_dict({})
        if cell.cell_type == "code":
            cell.execution_count = None
            for output in cell.outputs:
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output.execution_count = None
    nbformat.validate(notebook)
    file.write_text(nbformat.writes(notebook) + "\n")


def shown(notebook: Any) -> list[str]:
    """The output of a run, cell by cell: text unchanged; for a picture, only that there is one."""
    seen = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            seen.append(
                "a picture" if "image/png" in data else output.get("text") or data.get("text/plain", output.output_type)
            )
    return seen
