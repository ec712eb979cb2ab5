"""Documents with nothing but views, and what the figures of them hold."""

from __future__ import annotations

from typing import Any

from grpo_doctor_reports.charts.figure import Column, Figure
from grpo_doctor_reports.schema.report import ReportDocument, read_report
from tests.demo_reports.drawn import with_drawn

Box = tuple[float | None, ...]


def report(**views: object) -> ReportDocument:
    """A document with these views; columns of buckets that are not given have no values."""
    drawn = with_drawn(views)
    if buckets := drawn.get("step_buckets"):
        count = len(buckets["first"])
        empty = {key: [None] * count for key in ("seconds", "worst_seconds", "worst_rank")}
        columns: dict[str, object] = {**empty, "worst_step": [0] * count}
        drawn["step_buckets"] = {**columns, **buckets}
    return read_report({"schema": 1, "views": drawn})


def traces(figure: Figure, **meta: object) -> list[Figure]:
    """The traces that are about this."""
    found = (t for t in figure["data"] if isinstance(t.get("meta"), dict))
    return [t for t in found if all(t["meta"].get(key) == of for key, of in meta.items())]


def boxes(trace: Figure) -> list[Box]:
    """The boxes of a trace: x0, x1, y0, y1 of each."""
    return list(zip(*(edge.values for edge in trace["boxes"]), strict=True))


def numbers(column: Any) -> list[float | None]:
    """What the page gets of a column, after its rounding."""
    assert isinstance(column, Column)
    decimals, *differences = column.packed()
    total, values = 0, []
    for difference in differences:
        total += difference or 0
        values.append(None if difference is None else total / 10.0 ** (decimals or 0))
    return values
