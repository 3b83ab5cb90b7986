"""Write the recorded answers (:mod:`safereplay.web.recorded`): ``python -m safereplay.web.recording``."""

from __future__ import annotations

import gzip
import json
import sys
from typing import Any

from .._files import write_atomic
from .answers import JOBS
from .recorded import FILE, key_of, page_links, questions, read_link
from .state import WorldLink


def answers() -> dict[str, dict[str, Any]]:
    """The answers to record, by the name of their job and by key."""
    found: dict[str, dict[str, Any]] = {"solve": {}, "model": {}}
    for query in page_links():
        for link in questions(read_link(query)):
            world = WorldLink(**{name: getattr(link, name) for name in WorldLink.model_fields})
            for name, asked in (("solve", link), ("model", world)):
                key = key_of(asked)
                if key not in found[name]:
                    found[name][key] = JOBS[name](asked.model_dump())
    return found


def packed(found: dict[str, dict[str, Any]]) -> bytes:
    """The content of the file; the same answers give the same bytes."""
    text = json.dumps(found, separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), mtime=0)


if __name__ == "__main__":
    content = packed(answers())
    sys.stdout.write(f"{write_atomic(FILE, content)}: {len(content):,} bytes\n")
