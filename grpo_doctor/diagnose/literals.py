"""Which letters a regular expression can't match without, so that most need not be tried."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Any

_DIGITS = b"0123456789"


def letters(text: str) -> str:
    """Return each different line once, without digits and in lower case: of a log a small part."""
    bare = text.encode("utf-8", "replace").translate(None, _DIGITS)
    return b"\n".join(set(bare.split(b"\n"))).decode("utf-8", "replace").lower()


def may_match(pattern: str, of_text: str) -> bool:
    """Return whether the letters of a text have what the pattern needs."""
    needed = _needed(pattern)
    return not needed or any(each in of_text for each in needed)


@cache
def _needed(pattern: str) -> tuple[str, ...]:
    """Return strings of which each match has one; none where the pattern names no such."""
    parser = "re._parser" if sys.version_info >= (3, 11) else "sre_parse"
    tree = import_module(parser).parse(pattern)
    return _of(tree)


def _of(tree: Any) -> tuple[str, ...]:
    """Return the best of the parts in a row: its shortest string is the longest."""
    parts: list[tuple[str, ...]] = []
    run = ""
    for operator, argument in [*tree, (None, None)]:
        name = str(operator)
        if name == "LITERAL" and argument != ord("\n"):
            run += "" if argument in _DIGITS else chr(argument).lower()
            continue
        parts, run = [*parts, (run,)], ""
        if name == "SUBPATTERN":
            parts.append(_of(argument[3]))
        elif name == "BRANCH":
            of_each = [_of(branch) for branch in argument[1]]
            parts.append(sum(of_each, ()) if all(of_each) else ())
        elif name.endswith("REPEAT") and argument[0]:
            parts.append(_of(argument[2]))
    best = max(parts, key=lambda part: min(map(len, part), default=0))
    return best if all(best) else ()
