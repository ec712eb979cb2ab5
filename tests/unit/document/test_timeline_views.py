from __future__ import annotations

import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.document.views.steps import heatmap, rank_buckets, step_buckets
from grpo_doctor.document.views.timeline import MAX_SPANS, exact, exact_windows
from grpo_doctor.trace.model import Kind
from tests.build import TraceBuilder
from tests.large_runs import large_run, slow_rank


@pytest.fixture(scope="module")
def long() -> Analysis:
    return analyse(large_run(4, 1_500))


def hanging(steps: int = 3) -> TraceBuilder:
    """Two ranks; the last step never ends, rank 1 stays in its rollout."""
    build, now = TraceBuilder(ranks=2), 5.0
    for rank in (0, 1):
        build.span(rank, "init", 0.0, 4.0)
    for number in range(steps):
        for rank in (0, 1):
            build.step(rank, number, now, {"rollout": 4.0 + rank, "train": 5.0 - rank})
            build.span(rank, "rollout/generate", now + 1, now + 2, depth=2)
            build.collective(rank, number, now + 6 + rank, now + 8)
        now += 10
    for rank in (0, 1):
        build.row(Kind.STEP, rank, "step", now, now + 30, depth=0, value=steps, open=True)
        build.open(rank, "rollout", now, now + 30)
    return build


def test_a_short_run_is_one_window_with_spans_in_spans() -> None:
    analysis = analyse(hanging().build())
    spans = exact(analysis, exact_windows(analysis))
    assert [(window.why, window.start_s, window.end_s) for window in spans.windows] == [
        ("whole", 0.0, 65.0)
    ]
    first, second = spans.lanes
    names = [spans.names[name] for name in first.name]
    assert names[:4] == ["init", "rollout", "rollout/generate", "train"]
    assert first.depth[:5] == [0, 0, 1, 0, 1]
    assert [spans.names[first.name[at]] for at in first.open] == ["rollout"]
    assert [m for m in first.meeting if m >= 0] == [m for m in second.meeting if m >= 0]
    assert first.wait_s == [11.0, 12.0, 21.0, 22.0, 31.0, 32.0]
    assert second.wait_s == []


def test_a_step_that_never_ended_has_a_bucket_without_phases_and_is_in_no_mean() -> None:
    buckets = step_buckets(analyse(hanging().build()))
    assert buckets.used == [True, True, True, False]
    assert buckets.kind == ["steady", "steady", "steady", "open"]
    assert buckets.seconds == [9.0, 9.0, 9.0, None]
    assert buckets.phase_seconds["rollout"][-1] is None
    assert buckets.median_seconds == 9.0


def test_what_never_ended_comes_before_the_median_and_the_worst_step() -> None:
    build = hanging(steps=2_200)
    windows = exact_windows(analyse(build.build()))
    why = {window.why for window in windows}
    assert {"open", "median", "worst", "start"} <= why
    assert [window.start_ns for window in windows] == sorted(w.start_ns for w in windows)


def test_steps_that_findings_name_are_drawn_exactly(long: Analysis) -> None:
    steps = [window.step for window in exact_windows(long, [[7, 9, 11], [20]])
             if window.why == "named"]  # fmt: skip
    assert len(steps) == 3
    assert set(steps) <= {7, 9, 11, 20}
    assert 11 in steps  # of one finding the longest
    assert 20 in steps


def test_of_too_many_spans_the_shortest_are_counted_and_left_out() -> None:
    build = TraceBuilder()
    build.span(0, "train", 0.0, 100.0)
    count = MAX_SPANS + 500
    for at in range(count):
        build.span(0, "train/layer", at * 1e-3, at * 1e-3 + (2 if at % 2 else 1) * 1e-4, depth=2)
    analysis = analyse(build.build())
    spans = exact(analysis, exact_windows(analysis))
    assert spans.spans_left_out == count // 2
    assert spans.longest_left_out_s == 1e-4
    assert len(spans.lanes[0].name) == count + 1 - count // 2


def test_no_bucket_mixes_steps_that_the_summary_leaves_out(long: Analysis) -> None:
    buckets = step_buckets(long)
    assert sum(buckets.steps) == 1_500
    assert buckets.used[0] is False
    assert buckets.steps[0] == 1
    assert all(buckets.used[1:])
    assert max(buckets.steps) == 2


def test_lanes_of_many_ranks_share_what_the_page_can_hold(long: Analysis) -> None:
    lanes = rank_buckets(long)
    assert lanes.ranks == [0, 1, 2, 3]
    assert len(lanes.steps) <= 501
    assert set(lanes.wait_seconds) == {"train"}


def test_without_steps_or_spans_there_is_nothing_and_no_error() -> None:
    for build in (TraceBuilder(ranks=0), TraceBuilder(), TraceBuilder().span(0, "mine", 0, 1)):
        analysis = analyse(build.build())
        assert step_buckets(analysis).steps == []
        assert rank_buckets(analysis).ranks == []
        exact(analysis, exact_windows(analysis))


def test_the_heatmap_has_the_rank_that_works_longest_of_many() -> None:
    cells = heatmap(analyse(large_run(130, 6, sub_spans=False)))
    assert len(cells.ranks) == 64
    assert len(cells.means.ranks) == 130
    assert slow_rank(130) in cells.ranks
    assert cells.phase_wait_seconds.keys() == {"train"}
