"""What generates beside the ranks has a curve of its own on the timeline."""

from __future__ import annotations

from grpo_doctor.document.views.timeline import MAX_PROCESSES, role_tracks
from tests.build import TraceBuilder


def test_an_engine_is_busy_where_it_works_and_not_where_it_is_paused() -> None:
    build = TraceBuilder(ranks=2)
    build.roles[1] = "engine"
    build.step(0, 1, 0.0, {"train": 10.0})
    build.span(1, "rollout/generate", 2.0, 4.0)
    build.span(1, "sync/pause", 5.0, 9.0)
    (track,) = role_tracks(build.build())
    assert (track.name, track.unit, track.group) == ("engine.busy", "%", "rank")
    assert "engine of host-a" in track.label
    busy = {t for t, v in zip(track.t_s, track.v) if t is not None and v == 100}
    assert (min(busy), max(busy)) == (2.0, 3.9)
    assert sum(v == 100 for v in track.v) == 20
    assert all(v == 0 for t, v in zip(track.t_s, track.v) if t not in busy)


def test_ranks_and_idle_helpers_have_none_and_many_engines_some() -> None:
    build = TraceBuilder(ranks=2 + 2 * MAX_PROCESSES)
    build.roles[1] = "rollout"
    build.step(0, 1, 0.0, {"train": 10.0})
    assert role_tracks(build.build()) == []
    for process in range(2, 2 + 2 * MAX_PROCESSES):
        build.roles[process] = "engine"
        build.span(process, "rollout/generate", 0.0, 5.0)
    assert len(role_tracks(build.build())) < MAX_PROCESSES + 1
