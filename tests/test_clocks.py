"""No test depends on how fast or busy the machine is: waiting is for an event, and time limits have a clock that is held.

What may wait, and what may move a clock, is in tests/helpers/waiting.py. Measurements of speed are marked slow.
"""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
#: What makes a test depend on time, and what to write instead.
TIMED = {
    r"\btime\.(sleep|monotonic|perf_counter|process_time|time)(_ns)?\(|from time import": "wait_until, or count the work",
    r"asyncio\.sleep\((?!0\))|wait_for_timeout|\bTimer\(": "wait_until or happens",
    r"\btimeout(_s)?=(?!\w*END\b)|\.(wait|join|result|communicate|acquire)\([\d.]+\)": "END, which only ends a hang",
    r"httpx\.(get|request|stream|Client)\((?!.*timeout=END)": "timeout=END",
    r"\bdeadline=(?!None)": "no deadline",
}
#: What is right all the same: a short rest of something that is done again and again, until it is seen.
KNOWN = {
    ("test_stepping.py", "while not stop.wait(0.001):"),
    ("docs/test_site.py", 'return answer.wait_for(state="attached", timeout=3_000)'),
}
FILES = [f for f in sorted(TESTS.rglob("*.py")) if f != Path(__file__) and f.name != "waiting.py"]


def slow_lines(tree):
    """The lines of functions that are marked slow."""
    marked = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    marked = [node for node in marked if any("mark.slow" in ast.unparse(mark) for mark in node.decorator_list)]
    return {line for node in marked for line in range(node.lineno, node.end_lineno + 1)}


def timed(text, name=""):
    """What in a file depends on time: [(line, text, what to write instead), ...]."""
    slow, found = slow_lines(ast.parse(text)), []
    for number, line in enumerate(text.splitlines(), start=1):
        for pattern, instead in TIMED.items():
            if re.search(pattern, line) and number not in slow and (name, line.strip()) not in KNOWN:
                found.append((number, line.strip(), instead))
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(TESTS)))
def test_no_test_waits_for_a_length_of_time_or_compares_seconds(file):
    name = str(file.relative_to(TESTS))
    assert timed(file.read_text(), name) == []


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(1)",
        "began = time.monotonic()",
        "await asyncio.sleep(0.1)",
        "page.wait_for_timeout(300)",
        "threading.Timer(0.5, stop)",
        "process.communicate(timeout=60)",
        "thread.join(10)",
        "httpx.get(url)",
        "settings(deadline=200)",
    ],
)
def test_what_depends_on_time_is_found_unless_it_is_marked_slow(line):
    assert len(timed(f"async def test():\n    {line}\n")) == 1
    assert timed(f"@pytest.mark.slow\nasync def test():\n    {line}\n") == []


def test_examples_have_no_deadline():
    assert settings.default.deadline is None
