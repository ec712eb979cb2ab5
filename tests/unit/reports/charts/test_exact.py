"""Spans of the exact windows, lane after lane in a few arrays."""

from __future__ import annotations

from typing import Any

from grpo_doctor_reports.charts.lanes import exact_data, phases_of_spans
from grpo_doctor_reports.packing import NumberPool
from tests.unit.reports.charts.packed import report, unpacked

FINE = 10.00001  # to 1/100,000 of a window of 2 s
EXACT: dict[str, Any] = {
    "windows": [
        {"why": "median", "step": 3, "start_s": 10.0, "end_s": 12.0},
        {"why": "worst", "step": 5, "start_s": 20.0, "end_s": 26.0},
        {"why": "end", "start_s": 30.0, "end_s": 32.0},
    ],
    "names": ["train", "train/forward", "all_reduce", "odd"],
    "collectives": ["all_reduce"],
    "lanes": [
        {"rank": 1, "name": [0, 2], "depth": [0, 1], "start_s": [FINE, 10.5], "end_s": [12.0, 11.0],
         "meeting": [-1, 4], "open": [1], "wait_s": [10.5, 10.75]},
        {"rank": 3, "name": [0, 1, 3], "depth": [0, 1, 0], "start_s": [20.0, 21.0, 25.0],
         "end_s": [25.0, 22.0, 26.0], "meeting": [-1, -1, -1], "open": [0, 2],
         "wait_s": [20.0, 20.5, 21.0, 21.5]},
    ],
}  # fmt: skip


def test_lanes_follow_each_other_in_each_array() -> None:
    pool = NumberPool()
    exact = report(timeline={"exact": EXACT}).views.timeline.exact
    data = exact_data(exact, ["rollout", "train"], pool)
    assert data.pop("windows") == [
        {"why": "median", "step": 3, "start": 10.0, "end": 12.0},
        {"why": "worst", "step": 5, "start": 20.0, "end": 26.0},
        {"why": "end", "step": None, "start": 30.0, "end": 32.0},
    ]
    assert data.pop("names") == [
        {"name": "train", "phase": 1, "call": False},
        {"name": "train/forward", "phase": 1, "call": False},
        {"name": "all_reduce", "phase": -1, "call": True},
        {"name": "odd", "phase": -1, "call": False},
    ]
    assert {name: unpacked(pool, at) for name, at in data.items()} == {
        "ranks": [1, 3],
        "counts": [2, 3],
        "name": [0, 2, 0, 1, 3],
        "depth": [0, 1, 0, 1, 0],
        "start": [FINE, 10.5, 20.0, 21.0, 25.0],
        "length": [1.99999, 0.5, 5.0, 1.0, 1.0],
        "meeting": [-1, 4, -1, -1, -1],
        "open": [1, 2, 4],
        "waitCounts": [1, 2],
        "waitStart": [10.5, 20.0, 21.0],
        "waitLength": [0.25, 0.5, 0.5],
    }


def test_calls_of_collectives_are_no_phases() -> None:
    assert phases_of_spans(report(timeline={"exact": EXACT}).views.timeline.exact) == {
        "train",
        "odd",
    }
