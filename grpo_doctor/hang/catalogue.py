"""The classes of a verdict and the advice of causes, from `classes.md`; docs/hang.md contains it.

A chapter but the first is a class. Its list has a row for each fix: its name, the sentence, and a
setting if any.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from grpo_doctor_reports.schema.attach import Fix

TEXT: Final = Path(__file__).with_name("classes.md").read_text(encoding="utf-8")
_ROW = re.compile(r"^- \*(.+?)\*: ((?:.+\n)(?:  .+\n)*)", re.MULTILINE)
_SETTING = re.compile(r" \(`([\w.]+)`\)$")


@dataclass(frozen=True, slots=True)
class Class:
    """A class of verdict. All but `name` are sentences for the user."""

    name: str
    means: str
    looks_like: str
    what_to_do: str
    can_go_on: str  # whether the running job can be saved, and by what


def _class(chapter: str) -> Class:
    name, means, *titled = (" ".join(part.split()) for part in chapter.split("\n\n")[:5])
    return Class(name, means, *(paragraph.partition("** ")[2] for paragraph in titled))


def _fixes() -> dict[str, tuple[Fix, ...]]:
    by_name: defaultdict[str, tuple[Fix, ...]] = defaultdict(tuple)
    for name, lines in _ROW.findall(TEXT):
        text, *setting = _SETTING.split(" ".join(lines.split()))
        by_name[name] += (Fix(text, *setting[:1]),)
    return dict(by_name)


CLASSES: Final = tuple(map(_class, TEXT.split("\n### ")[2:]))
BY_NAME: Final = {entry.name: entry for entry in CLASSES}
FIXES: Final = _fixes()


def advice(*names: str, **values: str) -> tuple[Fix, ...]:
    """Return the fixes of these rows, in this order, with `values` for what is in braces."""
    rows = (fix for name in names for fix in FIXES[name])
    return tuple(msgspec.structs.replace(fix, text=fix.text.format(**values)) for fix in rows)
