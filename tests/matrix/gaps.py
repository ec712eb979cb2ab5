"""Cells that are not run, each with its reason, and what is run elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.matrix.cells import Cell


@dataclass(frozen=True)
class Gap:
    """Cells that cannot be run without a GPU."""

    what: str
    why: str
    covers: Callable[[Cell], bool]


GAPS: tuple[Gap, ...] = ()

ELSEWHERE: tuple[tuple[str, str], ...] = (
    ("exact resuming for every engine", "tests/integration/test_trainer_resume.py"),
)


def gap_of(cell: Cell) -> Gap | None:
    return next((gap for gap in GAPS if gap.covers(cell)), None)
