"""The run over time: bands of all ranks, and what was left out of them."""

from __future__ import annotations

import importlib

import pytest

from grpo_doctor.analysis import Analysis, analyse
from grpo_doctor.document.views import exact
from grpo_doctor.document.views.timeline import timeline
from grpo_doctor.document.views.tracks import MAX_TRACKS
from tests.build import TraceBuilder

MODULE = importlib.import_module("grpo_doctor.document.views.timeline")  # its function has its name


def steps() -> TraceBuilder:
    """Two bands a step, and one that never ended."""
    build = TraceBuilder()
    for number in range(5):
        build.step(0, number, 10.0 * number, {"rollout": 4.0, "train": 1.0 + number})
    return build.open(0, "rollout", 50.0, 59.0)


def bands(analysis: Analysis) -> list[tuple[str, float | None, bool]]:
    return [(band.phase, band.start_s, band.open) for band in timeline(analysis).bands]


@pytest.mark.parametrize(("limit", "thinned"), [(11, False), (10, True)])
def test_all_bands_are_drawn_where_they_fit(
    limit: int, thinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MODULE, "MAX_BANDS", limit)
    drawn = timeline(analyse(steps().build()))
    assert drawn.thinned is thinned
    assert (len(drawn.bands) == 11) is not thinned
    assert drawn.end_s == 59.0


def test_else_those_of_windows_as_long_as_they_fit_and_what_never_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    analysis = analyse(steps().build())
    monkeypatch.setattr(exact, "MAX_SPANS", 0)  # the median and the worst step alone
    counts = {}
    for limit in (2, 3, 5):
        monkeypatch.setattr(MODULE, "MAX_BANDS", limit)
        counts[limit] = bands(analysis)
    never_ended = ("rollout", 50.0, True)
    median = [("rollout", 20.0, False), ("train", 24.0, False)]
    worst = [("rollout", 40.0, False), ("train", 44.0, False)]
    assert counts == {
        2: [never_ended],
        3: [*median, never_ended],
        5: [*median, *worst, never_ended],
    }


@pytest.mark.parametrize(("count", "thinned"), [(MAX_TRACKS, False), (MAX_TRACKS + 1, True)])
def test_curves_that_are_left_out_thin_a_timeline_too(count: int, thinned: bool) -> None:
    build = steps()
    for number in range(count):
        build.series(f"s{number}", "%", [0, 1], [1, 2])
    drawn = timeline(analyse(build.build()))
    assert (drawn.thinned, drawn.tracks_left_out) == (thinned, int(thinned))


def test_a_run_without_spans_is_as_long_as_it_was() -> None:
    drawn = timeline(analyse(TraceBuilder().build()))
    assert (drawn.end_s, drawn.bands, drawn.thinned) == (0.0, [], False)
