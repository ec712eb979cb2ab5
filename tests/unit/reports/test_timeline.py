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
    assert steps.phase_seconds == {"train": [9.0, 2.0, 3.0]}
    assert steps.start_s == [0.0, 9.0, 13.0]
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


def test_steps_that_share_a_bar_are_said() -> None:
    steps = [{"number": 2, "start_s": 9.0, "end_s": 13.0, "seconds": 2.5, "kind": "steady"}]
    buckets = {**BUCKETS, "seconds": [9.0, 2.0, 3.0], "median_seconds": 2.5}
    chart = steps_chart(report(steps=steps, step_buckets=buckets), NumberPool())
    assert chart is not None
    assert chart.summary.startswith("Slowest of 4 steps: step 2, 2.50 s")
    assert chart.note.endswith("Even zoomed in, up to 2 steps share one.")


def test_a_run_ends_with_the_last_that_was_recorded() -> None:
    lane = {"name": [0], "depth": [0], "start_s": [1.0], "end_s": [7.0], "meeting": [-1]}
    exact = {"names": ["train"], "lanes": [lane]}
    track = {"name": "gpu.util", "t_s": [1.0, None, 8.0], "v": [1.0, 2.0, 3.0]}
    assert report(timeline={"end_s": 5.0}).timeline.end_s == 5.0
    assert report(timeline={"end_s": 5.0, "exact": exact}).timeline.end_s == 7.0
    view = report(timeline={"end_s": 5.0, "exact": exact, "tracks": [track]}).timeline
    assert view.end_s == 8.0
    assert report(timeline={"end_s": -1.0, "tracks_left_out": -3}).timeline.end_s == 0.0
    assert report(timeline={"tracks_left_out": -3}).timeline.tracks_left_out == 0


def test_a_track_is_as_long_as_both_of_its_lists() -> None:
    for times, values in (([1.0, 2.0], [1.0]), ([1.0], [1.0, 2.0])):
        (track,) = report(timeline={"tracks": [{"t_s": times, "v": values}]}).timeline.tracks
        assert (track.t_s, track.v) == ([1.0], [1.0])


def test_buckets_have_a_kind_a_length_and_times_whatever_is_missing() -> None:
    buckets = {"first": [1, 2, 3], "last": [1, 2], "steps": [0, 5], "used": [True, True],
               "kind": ["", "eval"], "start_s": [None, 4.0], "end_s": [None, None]}  # fmt: skip
    read = report(step_buckets=buckets).step_buckets
    assert (read.first, read.last, read.used) == ([1, 2], [1, 2], [True, True])
    assert (read.steps, read.kind) == ([1, 5], ["steady", "eval"])
    assert (read.start_s, read.end_s) == ([0.0, 4.0], [0.0, 4.0])


def test_the_worst_of_a_bucket_is_as_far_known_as_it_was_said() -> None:
    worst = {"worst_seconds": [9.0], "worst_step": [7], "worst_rank": [None, 4]}
    steps = report(step_buckets={**BUCKETS, **worst, "median_seconds": -1.0}).step_buckets
    assert steps.worst_seconds == [9.0, None, None]
    assert (steps.worst_step, steps.worst_rank) == ([7, 0, 0], [None, 4, None])
    assert steps.median_seconds == 0.0


def test_windows_without_length_and_lanes_without_names_are_left_out() -> None:
    windows = [{"why": "worst", "start_s": 1.0, "end_s": end} for end in (1.0, 2.0, 0.5)]
    spans = {"depth": [0], "start_s": [1.0], "end_s": [2.0], "meeting": [-1]}
    lanes = [{"rank": 0, "name": [0], **spans}, {"rank": 1}, {"rank": 2, "name": [], **spans}]
    exact = {"windows": windows, "names": ["train"], "lanes": lanes, "spans_left_out": -1,
             "longest_left_out_s": -1.0}  # fmt: skip
    buckets = report(timeline={"exact": exact}).timeline.exact
    assert [window.end_s for window in buckets.windows] == [2.0]
    assert [lane.rank for lane in buckets.lanes] == [0, 1, 2]
    assert (buckets.spans_left_out, buckets.longest_left_out_s) == (0, 0.0)
    unnamed = report(timeline={"exact": {**exact, "names": []}}).timeline.exact
    assert [lane.rank for lane in unnamed.lanes] == [1, 2]


def test_what_a_lane_marks_is_within_it() -> None:
    lane = {"rank": 0, "name": [1, -1, 2], "depth": [0, -2, 1], "start_s": [0.0, 1.0, 2.0],
            "end_s": [9.0, 2.0, 3.0], "meeting": [-1, 3, -1], "open": [-1, 0, 2, 3],
            "wait_s": [1.0, 2.0, 3.0]}  # fmt: skip
    exact = {"names": ["train", "rollout"], "lanes": [lane]}
    (buckets,) = report(timeline={"exact": exact}).timeline.exact.lanes
    assert (buckets.name, buckets.depth) == ([1, 0, 0], [0, 0, 1])
    assert (buckets.open, buckets.wait_s) == ([0, 2], [1.0, 2.0])
