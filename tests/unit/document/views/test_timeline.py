"""The run over time: how long it is, and what is left out."""

from __future__ import annotations

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document.views.timeline import MAX_TRACKS, timeline_view
from tests.build import TraceBuilder


def steps() -> TraceBuilder:
    """Two phases a step, and one that never ended."""
    build = TraceBuilder()
    for number in range(5):
        build.step(0, number, 10.0 * number, {"rollout": 4.0, "train": 1.0 + number})
    return build.open(0, "rollout", 50.0, 59.0)


@pytest.mark.parametrize("more", [0, 1])
def test_curves_that_are_left_out_are_counted(more: int) -> None:
    build = steps()
    for number in range(MAX_TRACKS + more):
        build.series(f"s{number}", "%", [0, 1], [1, 2])
    drawn = timeline_view(analyse(build.build()))
    assert (drawn.end_s, drawn.tracks_left_out) == (59.0, more)


def test_a_run_without_spans_is_as_long_as_it_was() -> None:
    drawn = timeline_view(analyse(TraceBuilder().build()))
    assert (drawn.end_s, drawn.exact.windows) == (0.0, [])
