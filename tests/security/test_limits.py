"""SECURITY.md states the limits that the readers have."""

from __future__ import annotations

from pathlib import Path

from grpo_doctor.bounded import BOUNDS, Bound

_PAGE = Path(__file__).parents[2] / "SECURITY.md"


def test_the_page_has_each_limit() -> None:
    table = _PAGE.read_text().partition("| input |")[2].partition("\n\n")[0]
    rows = table.splitlines()[2:]
    assert rows == list(map(_row, BOUNDS))


def _row(bound: Bound) -> str:
    cells = [bound.name, _size(bound.bytes), _count(bound.items), _count(bound.depth)]
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _size(count: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if count >= 1 << shift:
            return f"{count >> shift} {unit}"
    return ""


def _count(count: int) -> str:
    return f"{count:,}" if count else ""
