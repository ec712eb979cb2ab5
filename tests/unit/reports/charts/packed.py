"""Documents with nothing but views, and numbers as the page's script unpacks them."""

from __future__ import annotations

from grpo_doctor_reports.packing import NumberPool
from grpo_doctor_reports.schema.report import ReportDocument, read_report
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


def report(**views: object) -> ReportDocument:
    """A document with these views; columns of buckets that are not given have no values."""
    drawn = with_drawn(views)
    if buckets := drawn.get("step_buckets"):
        count = len(buckets["first"])
        empty = {key: [None] * count for key in ("seconds", "worst_seconds", "worst_rank")}
        columns: dict[str, object] = {**empty, "worst_step": [0] * count}
        drawn["step_buckets"] = {**columns, **buckets}
    return read_report({"schema": 1, "views": drawn})
