from __future__ import annotations

from typing import Any

from grpo_doctor_reports.charts.lanes import lanes_chart
from grpo_doctor_reports.charts.steps import steps_chart
from grpo_doctor_reports.document import read_document
from grpo_doctor_reports.model import Report
from grpo_doctor_reports.packing import NumberPool


def report(**views: Any) -> Report:
    return read_document({"schema": 1, "views": views})


BUCKETS: dict[str, Any] = {
    "first": [0, 1, 3], "last": [0, 2, 4], "steps": [1, 2, 2], "used": [False, True, True],
    "kind": ["warmup", "steady", "steady"], "start_s": [0.0, 9.0, 13.0],
    "end_s": [9.0, 13.0, 19.0],
}  # fmt: skip


def test_lists_of_a_damaged_document_are_made_equally_long() -> None:
    damaged = {**BUCKETS, "start_s": [None, 9.0, 13.0], "seconds": [9.0],
               "phase_seconds": {"train": [9.0, 2.0, 3.0, 4.0, 5.0]}}  # fmt: skip
    lane = {"rank": 3, "name": [0, 7, 0], "depth": [0, -1], "start_s": [1.0, 2.0],
            "end_s": [2.0, 3.0], "meeting": [-1, -1], "open": [9], "wait_s": [1.0]}  # fmt: skip
    exact = {"windows": [{"why": "odd", "start_s": 1.0, "end_s": 9.0}], "names": ["train"],
             "lanes": [lane]}  # fmt: skip
    read = report(step_buckets=damaged, timeline={"end_s": 19.0, "exact": exact})
    steps = read.step_buckets
    assert steps.seconds == [9.0, None, None]
    assert steps.phases_s == {"train": [9.0, 2.0, 3.0]}
    assert [bucket.start_s for bucket in steps.buckets] == [0.0, 9.0, 13.0]
    (drawn,) = read.timeline.exact.lanes
    assert (drawn.name, drawn.depth, drawn.open, drawn.wait_s) == ([0, 0], [0, 0], [], [])
    assert lanes_chart(read, NumberPool()) is not None


def test_captions_are_over_the_steps_that_the_summary_is_over() -> None:
    buckets = {**BUCKETS, "seconds": [9.0, 2.0, 3.0], "worst_seconds": [9.0, 2.5, 3.5],
               "worst_step": [0, 2, 4], "worst_rank": [0, 1, None], "median_seconds": 2.5,
               "phase_seconds": {"train": [8.0, 1.0, 2.5], "rollout": [1.0, 1.0, 0.5]},
               "wait_seconds": {"train": [0.0, 0.5, 0.5]}}  # fmt: skip
    ranks = {**BUCKETS, "ranks": [0], "phase_seconds": {"train": [[8.0, 1.0, 2.5]]}}
    read = report(step_buckets=buckets, timeline={"end_s": 19.0, "ranks": ranks})
    chart = lanes_chart(read, NumberPool())
    assert chart is not None
    assert chart.summary == ("Mean of 1 rank over 4 steps: train 70% (20% waiting), rollout 30%.")
    assert "A column of a lane is the mean of up to 2 steps" in chart.note


def test_of_more_bands_than_fit_the_shortest_are_counted() -> None:
    bands = [
        {"rank": 0, "phase": "train", "start_s": float(at), "end_s": at + 0.5 + 0.25 * (at % 2)}
        for at in range(20_000)
    ]
    read = report(timeline={"end_s": 20_000.0, "bands": bands})
    assert len(read.timeline.exact.lanes[0].name) == 15_000
    chart = lanes_chart(read, NumberPool())
    assert chart is not None
    assert chart.note == "5,000 spans of at most 500 ms are not drawn."


def test_steps_that_share_a_bar_are_said() -> None:
    steps = [{"number": 2, "start_s": 9.0, "end_s": 13.0, "seconds": 2.5, "kind": "steady"}]
    buckets = {**BUCKETS, "seconds": [9.0, 2.0, 3.0], "median_seconds": 2.5}
    chart = steps_chart(report(steps=steps, step_buckets=buckets), NumberPool())
    assert chart is not None
    assert chart.summary.startswith("Of 4 steps, step 2 is the longest with 2.50 s")
    assert chart.note.endswith("even closest, up to 2 steps share one.")
