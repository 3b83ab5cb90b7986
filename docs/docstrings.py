"""Docstrings as Markdown: for the pages that are made from them, and for the API reference (a griffe extension)."""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe

ROLE = re.compile(r":[a-z]+:`~?\.?([^`]+)`")
STAR = re.compile(r"(?<![\w*])(\w)\*(?=[\s(.,;:)−+])")
LEAD = re.compile(r"^((?:When it fails|Its limit|Limit|Source|Sources|Settles|Ref)[^.:\n]{0,40}[.:])", re.MULTILINE)


def to_markdown(text: str) -> str:
    """Equations and doctests become blocks, roles become code; the rest is Markdown already."""
    done: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text or "")):
        lines = block.splitlines()
        if not lines:
            continue
        if lines[0].startswith(">>>"):
            if done and done[-1].startswith("```python-console"):
                done[-1] = f"{done[-1][:-4]}\n\n{block}\n```"
            else:
                done.append(f"```python-console\n{block}\n```")
        elif len(lines) > 1 and set(lines[1]) == {"-"}:
            done.append(_section(lines[0], lines[2:]))
        elif all(line.startswith("  ") for line in lines):
            inside = inspect.cleandoc("\n" + block)
            if done and done[-1].startswith("```text"):
                done[-1] = f"{done[-1][:-4]}\n\n{inside}\n```"
            else:
                done.append(f"```text\n{inside}\n```")
        elif len(lines) > 1 and set(lines[1]) == {"-"}:
            done.append(_section(lines[0], lines[2:]))
        else:
            done.append(_prose(block))
    return "\n\n".join(done)


def _section(title: str, lines: list[str]) -> str:
    """A section of numpydoc as a list with an item per entry. Indented lines describe the item before."""
    items: list[str] = []
    for block in re.split(r"\n(?=\S)", "\n".join(lines)):
        head, *more = block.splitlines()
        name, colon, kind = head.partition(" : ")
        rest = " ".join(line.strip() for line in more)
        about = (". " if rest[:1].isupper() else " ").join(filter(None, [kind, rest]))
        items.append(f"`{name}`: {about}" if colon or more else head)
    return "\n".join([f"**{title}**", "", *(f"- {_prose(item)}" for item in items)])


def _prose(block: str) -> str:
    block = ROLE.sub(lambda role: f"`{role[1]}`", block)
    block = STAR.sub(r"\1\\*", block)
    block = re.sub(r"(`+[^`]+`+)|\]\[", lambda found: found[1] or r"]\[", block)  # P[s][a] is no link
    block = re.sub(r"(\S:)\n((?:[-*] ))", r"\1\n\n\2", block)  # a list needs an empty line before it
    block = re.sub(r"\n(?=Ref: )", "\n\n", block)
    return LEAD.sub(r"**\1**", block)


def first_sentence(text: str) -> str:
    """What a docstring opens with, on one line and without its full stop."""
    return ROLE.sub(r"`\1`", " ".join(text.strip().split("\n\n")[0].split())).rstrip(".")


class Docstrings(griffe.Extension):
    """Shows the docstrings of the package as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Each class, function, module and attribute as it is read."""
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value)
