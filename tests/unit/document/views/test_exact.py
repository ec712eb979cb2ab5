"""Which stretches of a run are drawn exactly, and which spans are in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.document.views import timeline as module
from grpo_doctor.document.views.timeline import Window, exact, exact_windows
from grpo_doctor.trace.model import Kind
from grpo_doctor_reports.schema.views import Exact
from tests.build import SECOND, TraceBuilder

LENGTHS = (5.0, 9.0, 6.0, 7.0, 8.0)


def steps(*seconds: float, begin_s: float = 0.0) -> TraceBuilder:
    """Steps of a phase and a span in it, one every 10 s."""
    build = TraceBuilder()
    for number, length in enumerate(seconds):
        at = begin_s + 10.0 * number
        build.step(0, number, at, {"train": length})
        build.span(0, "train/layer", at + 1, at + 2, depth=2)
    return build


def why(analysis: Analysis, *cited_steps: list[int]) -> list[tuple[str, int | None]]:
    return [(window.why, window.step) for window in exact_windows(analysis, cited_steps)]


def drawn(drawing: Exact) -> list[tuple[str, float | None, float | None]]:
    (lane,) = drawing.lanes
    return [
        (drawing.names[name], start, end)
        for name, start, end in zip(lane.name, lane.start_s, lane.end_s, strict=True)
    ]


@pytest.mark.parametrize(("limit", "is_whole"), [(10, True), (9, False)])
def test_a_run_of_as_many_spans_as_a_page_holds_is_drawn_whole(
    limit: int, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SPANS", limit)
    analysis = analyse(steps(*LENGTHS).build())
    assert (why(analysis) == [("whole", None)]) is is_whole


def test_without_spans_there_is_no_window() -> None:
    assert why(analyse(TraceBuilder().build())) == []
    assert exact(analyse(TraceBuilder().build()), []).lanes[0].name == []


def test_median_worst_named_and_slow_steps_are_drawn_as_long_as_they_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    analysis = analyse(steps(*LENGTHS).build())
    windows = {}
    for limit in (1, 5, 6, 8, 9):
        monkeypatch.setattr(module, "MAX_SPANS", limit)
        windows[limit] = why(analysis, [0, 4])
    median, worst = ("median", 3), ("worst", 1)
    assert windows[1] == [worst, median]  # always
    # Of the two that a finding names the longer one comes first; each has two spans.
    assert windows[5] == [worst, median]
    assert windows[6] == [worst, median, ("named", 4)]
    assert windows[8] == [("named", 0), worst, median, ("named", 4)]
    assert windows[9] == windows[8]
    assert why(analysis) == [worst, ("slow", 2), median, ("slow", 4)]


def test_no_more_windows_are_drawn_than_one_steps_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SPANS", 9)
    analysis = analyse(steps(*LENGTHS).build())
    for limit, drawing in ((1, [("median", 3)]), (2, [("worst", 1), ("median", 3)])):
        monkeypatch.setattr(module, "MAX_WINDOWS", limit)
        assert why(analysis) == drawing


def test_what_lies_before_and_after_all_steps_is_drawn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SPANS", 11)
    build = steps(*LENGTHS, begin_s=30.0).span(0, "init", 0.0, 25.0).span(0, "eval", 80.0, 90.0)
    windows = exact_windows(analyse(build.build()))
    assert [w for w in windows if w.step is None] == [
        Window("start", None, 0, 30 * SECOND),
        Window("end", None, 78 * SECOND, 90 * SECOND),
    ]
    # A step that begins the recording, and one that ends it, leave nothing before and after.
    bare = exact_windows(analyse(steps(*LENGTHS).build()))
    monkeypatch.setattr(module, "MAX_SPANS", 9)
    assert [w.why for w in exact_windows(analyse(steps(*LENGTHS).build())) if w.step is None] == []
    assert [w.why for w in bare] == ["whole"]


def test_a_step_that_never_ended_is_drawn_also_where_the_recording_begins_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_SPANS", 0)
    build = TraceBuilder().row(Kind.STEP, 0, "step", 0, 9, depth=0, value=4, open=True)
    build.open(0, "train", 0, 9)
    assert why(analyse(build.build())) == [("open", 4)]
    without = TraceBuilder().span(0, "train", 0, 9)
    assert why(analyse(without.build())) == [("whole", None)]


def window(begin_s: float, end_s: float) -> Window:
    return Window("slow", 1, round(begin_s * SECOND), round(end_s * SECOND))


def test_what_shares_time_with_a_window_is_drawn_and_what_only_touches_it_is_not() -> None:
    build = (
        TraceBuilder()
        .span(0, "train/before", 0, 2)
        .span(0, "train/into", 1, 3)
        .span(0, "train/at", 2, 2)
    )
    build.span(0, "train/within", 3, 4).span(0, "train/last", 5, 5).span(0, "train/after", 6, 7)
    drawing = exact(analyse(build.build()), [window(2, 6)])
    names = [name.removeprefix("train/") for name, *_ in drawn(drawing)]
    assert names == ["into", "at", "within", "last"]
    (drawn_window,) = drawing.windows
    assert (drawn_window.why, drawn_window.start_s, drawn_window.end_s) == ("slow", 2.0, 6.0)


@pytest.mark.parametrize(
    ("limit", "left_out", "longest"), [(4, 0, 0.0), (3, 2, 1.0), (2, 2, 1.0), (1, 3, 3.0)]
)
def test_of_too_many_spans_the_longest_are_drawn_and_no_length_in_part(
    limit: int, left_out: int, longest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_SPANS", limit)
    build = (
        TraceBuilder()
        .span(0, "train/a", 10, 11)
        .span(0, "train/b", 20, 21)
        .span(0, "train/c", 30, 33)
    )
    drawing = exact(analyse(build.span(0, "train/d", 40, 45).build()), [window(0, 50)])
    assert (drawing.spans_left_out, drawing.longest_left_out_s) == (left_out, longest)
    assert len(drawing.lanes[0].name) == 4 - left_out


def test_depth_is_how_many_spans_lie_around() -> None:
    build = (
        TraceBuilder().span(0, "train/a", 0, 10).span(0, "train/b", 0, 4).span(0, "train/c", 4, 6)
    )
    build.span(0, "train/d", 5, 9).span(0, "train/e", 10, 11)
    (lane,) = exact(analyse(build.build()), [window(0, 20)]).lanes
    assert lane.depth == [0, 1, 1, 2, 0]


def test_meetings_are_numbered_and_calls_of_one_rank_are_none() -> None:
    build = TraceBuilder(ranks=2)
    for rank in (0, 1):
        build.collective(rank, 2, 5.0 + rank, 8.0, name="gather").span(rank, "train", 0.0, 4.0)
        build.collective(rank, 1, 2.0 + rank, 4.0)
    build.collective(0, 3, 9.0, 9.5, name="alone")
    drawing = exact(analyse(build.build()), [window(0, 20)])
    first, second = drawing.lanes
    assert (first.meeting, second.meeting) == ([-1, 0, 1, -1], [-1, 0, 1])
    assert drawing.collectives == ["all_reduce", "alone", "gather"]
    assert (first.rank, first.wait_s, second.wait_s) == (0, [2.0, 3.0, 5.0, 6.0], [])
    narrow = exact(analyse(build.build()), [window(4, 5.5)])
    assert narrow.lanes[0].wait_s == [5.0, 5.5]


def test_what_never_ended_is_marked() -> None:
    build = TraceBuilder().span(0, "train", 0.0, 4.0).open(0, "rollout", 5.0, 9.0)
    trace = build.build()
    (lane,) = exact(analyse(replace(trace)), [window(0, 20)]).lanes
    assert lane.open == [1]
