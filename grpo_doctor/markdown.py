"""Wrap long lines of Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

WIDTH: Final = 120  # columns
# A piece of code or a link stays on one line: a command can be copied, a link can be clicked.
_UNIT: Final = re.compile(r"(?:`[^`]*`|(?<!!)\[[^\]]*\]\([^)\s]*\)|\S)+")
_ITEM: Final = re.compile(r"\s*(?:(?:[-*+]|\d+\.)\s+)?")
_MARK: Final = re.compile(
    r"[-=]+|[+*]|#+|[>|].*|\d+[.)]"
)  # at the start of a line it would be no text


def wrapped(markdown: str) -> str:
    """Return the text with long lines of prose broken; tables, code and headings stay."""
    return "\n".join(line for old in _with_code_marked(markdown) for line in _lines(*old))


def filled(page: str, source: str, made: str) -> str:
    """Return a page with the text between the marks of what is made from `source` replaced.

    Raises:
        ValueError: it has no such marks.
    """
    begin, end = f"<!-- Made from {source}. -->\n", "<!-- End of what is made. -->\n"
    before, found, tail = page.partition(begin)
    _, closed, after = tail.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no marks for what is made from {source}")
    section = wrapped("\n" + made.strip() + "\n\n")
    return f"{before}{begin}{section}{end}{after}"


def _with_code_marked(markdown: str) -> Iterator[tuple[str, bool]]:
    code = False
    for line in markdown.split("\n"):
        fence = line.lstrip().startswith("```")
        code ^= fence
        yield line, code or fence


def _lines(line: str, code: bool) -> Iterator[str]:
    if code or len(line) <= WIDTH or line.lstrip().startswith(("|", "#", "<")):
        yield line
        return
    item = _ITEM.match(line)
    start = item.group() if item else ""
    indent = " " * len(start)
    text = ""
    for unit in _units(line[len(start) :]):
        longer = f"{text} {unit}" if text else f"{start}{unit}"
        if text and len(longer) > WIDTH and not _MARK.fullmatch(unit):
            yield text
            longer = f"{indent}{unit}"
        text = longer
    yield text


def _units(prose: str) -> Iterator[str]:
    for unit in _UNIT.findall(prose):
        yield from unit.split() if len(unit) > WIDTH else (unit,)
