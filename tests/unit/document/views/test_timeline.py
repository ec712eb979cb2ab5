"""The run over time: how long it is, and whether it is thinned."""

from __future__ import annotations

import importlib

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.document.views.timeline import MAX_TRACKS, timeline_view
from tests.build import TraceBuilder

MODULE = importlib.import_module("grpo_doctor.document.views.timeline")  # its function has its name


def steps() -> TraceBuilder:
    """Two phases a step, and one that never ended."""
    build = TraceBuilder()
    for number in range(5):
        build.step(0, number, 10.0 * number, {"rollout": 4.0, "train": 1.0 + number})
    return build.open(0, "rollout", 50.0, 59.0)


@pytest.mark.parametrize(("limit", "thinned"), [(11, False), (10, True)])
def test_a_run_of_many_stretches_is_long(
    limit: int, thinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "_LONG", limit)
    drawn = timeline_view(analyse(steps().build()))
    assert drawn.thinned is thinned
    assert drawn.end_s == 59.0


@pytest.mark.parametrize(("count", "thinned"), [(MAX_TRACKS, False), (MAX_TRACKS + 1, True)])
def test_curves_that_are_left_out_thin_a_timeline_too(count: int, thinned: bool) -> None:
    build = steps()
    for number in range(count):
        build.series(f"s{number}", "%", [0, 1], [1, 2])
    drawn = timeline_view(analyse(build.build()))
    assert (drawn.thinned, drawn.tracks_left_out) == (thinned, int(thinned))


def test_a_run_without_spans_is_as_long_as_it_was() -> None:
    drawn = timeline_view(analyse(TraceBuilder().build()))
    assert (drawn.end_s, drawn.exact.windows, drawn.thinned) == (0.0, [], False)
