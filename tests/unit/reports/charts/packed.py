"""Documents with nothing but views, and numbers as the page's script unpacks them."""

from __future__ import annotations

from grpo_doctor_reports.document import read_document
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.packing import NumberPool
from tests.demo_reports.drawn import with_drawn


def unpacked(pool: NumberPool, index: int) -> list[float | None]:
    """What the page's script makes of an array."""
    decimals, *differences = pool.arrays[index]
    assert decimals is not None
    total = 0
    values: list[float | None] = []
    for difference in differences:
        total += difference or 0
        values.append(None if difference is None else total / 10**decimals)
    return values


def report(**views: object) -> Report:
    """A document with these views."""
    return read_document({"schema": 1, "views": with_drawn(views)})
