"""How much work something is, in lines of safereplay that are run: the same on every machine, as seconds are not."""

import sys
from pathlib import Path

import safereplay

HERE = str(Path(safereplay.__file__).parent)


def in_lines(most, work):
    """What ``work()`` gives; fails as soon as it has run more than ``most`` lines."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        count += event == "line"
        assert count <= most, f"more than {most:,} lines"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        return work()
    finally:
        sys.settrace(before)
