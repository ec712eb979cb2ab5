from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports.errors import DocumentError
from grpo_doctor_reports.schema.report import ReportDocument, read_report


def report(**views: Any) -> ReportDocument:
    return read_report({"schema": 1, "views": views})


BUCKETS: dict[str, Any] = {
    "first": [0, 1, 3], "last": [0, 2, 4], "steps": [1, 2, 2], "used": [False, True, True],
    "kind": ["warmup", "steady", "steady"], "start_s": [0.0, 9.0, 13.0],
    "end_s": [9.0, 13.0, 19.0],
}  # fmt: skip


STEPS: dict[str, Any] = {
    **BUCKETS, "seconds": [9.0, 2.0, 3.0], "worst_seconds": [9.0, 2.5, 3.5],
    "worst_step": [0, 2, 4], "worst_rank": [0, 1, None], "median_seconds": 2.5,
}  # fmt: skip
SPANS: dict[str, Any] = {
    "name": [0, 0], "depth": [0, 0], "start_s": [1.0, 2.0], "end_s": [2.0, 3.0],
    "meeting": [-1, -1],
}  # fmt: skip
HEATMAP: dict[str, Any] = {"ranks": [0, 1], "steps": [5]}


@pytest.mark.parametrize(("views", "place"), [
    ({"step_buckets": {**BUCKETS, "seconds": [9.0]}}, "step_buckets"),
    ({"step_buckets": {**BUCKETS, "used": [True]}}, "step_buckets"),
    ({"step_buckets": {**STEPS, "phase_seconds": {"train": [1.0]}}}, "step_buckets"),
    ({"timeline": {"ranks": {**BUCKETS, "kind": []}}}, "timeline.ranks"),
    ({"timeline": {"ranks": {**BUCKETS, "ranks": [0], "phase_seconds": {"train": []}}}},
        "timeline.ranks"),
    ({"timeline": {"tracks": [{"t_s": [1.0, 2.0], "v": [1.0]}]}}, "timeline.tracks"),
    ({"timeline": {"exact": {"lanes": [SPANS]}}}, "timeline.exact.lanes"),
    ({"timeline": {"exact": {"names": ["a"], "lanes": [{**SPANS, "depth": [0]}]}}},
        "timeline.exact.lanes"),
    ({"timeline": {"exact": {"names": ["a"], "lanes": [{**SPANS, "wait_s": [1.0]}]}}},
        "timeline.exact.lanes"),
    ({"timeline": {"exact": {"names": ["a"], "lanes": [{**SPANS, "name": [0, -1]}]}}},
        "timeline.exact.lanes"),
    ({"heatmap": {**HEATMAP, "step_seconds": [[1.0]]}}, "heatmap"),
    ({"heatmap": {**HEATMAP, "phase_seconds": {"a": [[1.0], [1.0, 2.0]]}}}, "heatmap"),
    ({"metrics": {"steps": [1], "series": {"loss": [1.0, 2.0]}}}, "metrics"),
    ({"evaluation": {"steps": [1], "values": []}}, "evaluation"),
])  # fmt: skip
def test_a_table_with_columns_of_several_lengths_is_refused(
    views: dict[str, Any], place: str
) -> None:
    with pytest.raises(DocumentError, match=rf"damaged: views\.{place}.*Write it again"):
        report(**views)
