# ruff: noqa: RUF001 (the en dash is what a report prints)
from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor_reports import time_words
from grpo_doctor_reports.schema.report import ReportDocument, read_report
from grpo_doctor_reports.schema.views import CriticalPath, PathSegment, WaterfallEntry
from grpo_doctor_reports.time_words import kind_shares, with_bounded_kinds


def read(**parts: Any) -> ReportDocument:
    return read_report({"schema": 1, **parts})


def test_a_phases_kinds_never_exceed_its_seconds() -> None:
    row = {"seconds": 10.0, "wait_seconds": 4.0, "transfer_seconds": 3.0, "idle_seconds": 9.0}
    phase = with_bounded_kinds(read(summary={"phases": {"train": row}}).summary.phases["train"])
    kinds = (phase.work_seconds, phase.wait_seconds, phase.transfer_seconds, phase.idle_seconds)
    assert kinds == (0.0, 4.0, 3.0, 3.0)


def test_shares_come_in_one_order_and_set_apart_steps_are_said() -> None:
    summary = {
        "accounting": {"idle": 0.1, "work": 0.7, "made_up": 1.0, "wait": 0.2, "transfer": None},
        "set_apart": {"checkpoint": [50, 25], "eval": [], "warmup": [1]},
        "left_out": {"warm-up": [1], "unfinished": [60, 61]},
        "steady": {"first_step": 3, "reason": "compiled"},
        "gpu_busy_pct": 97.0, "gpu_truly_busy_pct": 41.0, "gpu_busy_by": "sm_active",
    }  # fmt: skip
    report = read(summary=summary)
    assert kind_shares(report.summary) == [("work", 0.7), ("wait", 0.2), ("idle", 0.1)]
    assert time_words.time_notes(report) == [
        ("GPU", "Effective utilization 41% (by sm active). The GPU driver reports 97%."),
        ("Steady", "from step 3: compiled"),
        ("Excluded", "from all averages: warm-up step 1, unfinished steps 60–61."),
        ("Included", "in all averages: checkpoint steps 25, 50."),
    ]


def test_a_critical_path_begins_at_nought_and_names_its_lanes() -> None:
    segments = [
        {"lane": "rank", "rank": 5, "phase": "train", "start_s": 102.0, "end_s": 104.0},
        {"lane": "engine", "phase": "rollout", "start_s": 100.0, "end_s": 102.0, "kind": "x"},
        {"lane": "rank", "rank": 5, "phase": "sync", "start_s": 104.0, "end_s": 105.0,
         "kind": "transfer"},
    ]  # fmt: skip
    path = read(views={"critical_path": {"step": 7, "segments": segments}}).views.critical_path
    assert path is not None
    assert time_words.path_length(path) == 5.0
    lanes = [(lane, [part.start_s for part in parts]) for lane, parts in time_words.lanes_of(path)]
    assert lanes == [("rank 5", [2.0, 4.0]), ("engine", [0.0])]
    assert time_words.path_sentence(path) == (
        "Critical path: train 2 s, rollout 2 s, sync 1 s, across 2 ranks and engines; "
        "includes transfer 1 s."
    )


def leg(start_s: float, end_s: float, **lane: Any) -> PathSegment:
    return PathSegment(**{"lane": "rank", "rank": 0, "start_s": start_s, "end_s": end_s, **lane})


def test_one_lane_is_said_in_the_singular() -> None:
    alone = CriticalPath(seconds=1.0, segments=[leg(0.0, 1.0, phase="train")])
    assert time_words.path_sentence(alone).endswith("train 1 s, across 1 rank or engine.")


def test_pieces_without_length_are_left_out() -> None:
    path = CriticalPath(segments=[leg(10.0, 10.0), leg(11.0, 12.0), leg(12.0, 11.0)])
    ((_, parts),) = time_words.lanes_of(path)
    assert [(part.start_s, part.end_s) for part in parts] == [(1.0, 2.0)]
    assert time_words.lanes_of(CriticalPath(segments=[leg(1.0, 1.0)])) == []


def test_a_path_is_as_long_as_its_step_or_its_last_piece() -> None:
    legs = [leg(2.0, 4.0), leg(5.0, 6.0)]
    assert time_words.path_length(CriticalPath(segments=legs, seconds=3.0)) == 4.0
    assert time_words.path_length(CriticalPath(segments=legs, seconds=9.0)) == 9.0


def test_lanes_are_ranks_engines_or_unknown() -> None:
    legs = [leg(0.0, 1.0, rank=5), leg(0.0, 1.0, lane="engine", rank=None),
            leg(0.0, 1.0, lane="", rank=7), leg(0.0, 1.0, lane="", rank=None)]  # fmt: skip
    lanes = [lane for lane, _ in time_words.lanes_of(CriticalPath(segments=legs))]
    assert lanes == ["rank 5", "engine", "7", "unknown"]


def test_kinds_share_a_phases_seconds_in_this_order() -> None:
    row = {"seconds": -1.0, "wait_seconds": 1.0}
    phase = with_bounded_kinds(read(summary={"phases": {"train": row}}).summary.phases["train"])
    assert (phase.seconds, phase.work_seconds, phase.wait_seconds) == (0.0, 0.0, 0.0)
    row = {"seconds": 10.0, "wait_seconds": -4.0, "transfer_seconds": 3.0}
    phase = with_bounded_kinds(read(summary={"phases": {"train": row}}).summary.phases["train"])
    kinds = (phase.work_seconds, phase.wait_seconds, phase.transfer_seconds)
    assert kinds == (7.0, 0.0, 3.0)


@pytest.mark.parametrize(
    ("summary", "notes"),
    [
        ({"gpu_truly_busy_pct": 41.0}, [("GPU", "Effective utilization 41%.")]),
        ({"gpu_busy_pct": 97.0}, []),
        ({"gpu_truly_busy_pct": 41.0, "gpu_busy_by": "power"},
         [("GPU", "Effective utilization 41% (by power).")]),
        ({"steady": {"first_step": 0}}, [("Steady", "from step 0")]),
        ({"set_apart": {"eval": [3], "warmup": [1, 2]}, "left_out": {"warm-up": [1, 2]}},
         [("Excluded", "from all averages: warm-up steps 1–2."),
          ("Included", "in all averages: eval step 3.")]),
    ],
)  # fmt: skip
def test_only_what_is_known_bears_on_the_numbers(
    summary: dict[str, Any], notes: list[tuple[str, str]]
) -> None:
    assert time_words.time_notes(read(summary=summary)) == notes


def test_clocks_are_spoken_of_where_the_document_does() -> None:
    assert time_words.time_notes(read(run={"clock": {"text": "one clock"}})) == [
        ("Clocks", "one clock")
    ]
    assert time_words.clock_sentence(read()) == ""


def test_shares_are_one_sentence() -> None:
    shares = kind_shares(read(summary={"accounting": {"wait": 0.25, "work": 0.75}}).summary)
    assert time_words.accounting_sentence(shares) == "work 75%, wait 25%"


@pytest.mark.parametrize(
    ("bar", "words"),
    [
        ({"seconds": 2.0, "p10_s": 0.0, "p90_s": 0.0, "steps": 1}, "in 1 of 29 steps"),
        ({"seconds": 2.0, "p10_s": 1.0, "p90_s": 3.0, "steps": 29}, ""),
        ({"seconds": 4.0, "p10_s": 1.0, "p90_s": 3.0}, "mean above p90: a few long steps"),
        ({"seconds": 0.5, "p10_s": 1.0, "p90_s": 3.0}, "mean below p10"),
        ({"seconds": 0.5}, ""),
    ],
)
def test_a_mean_of_few_steps_says_so(bar: dict[str, Any], words: str) -> None:
    assert time_words.seldom_words(WaterfallEntry(phase="eval", **bar), 29) == words
