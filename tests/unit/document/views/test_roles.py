"""How busy processes beside the ranks were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.document.views.timeline import MAX_PROCESSES, role_tracks
from grpo_doctor.trace.model import Kind
from tests.build import TraceBuilder


def helped(role: str = "engine") -> TraceBuilder:
    """A rank that trains for ten seconds, and a process beside it."""
    build = TraceBuilder(ranks=2)
    build.roles[1] = role
    return build.step(0, 1, 0.0, {"train": 10.0})


@pytest.mark.parametrize("role", ["rollout", "engine", "rollout-loop"])
def test_what_generates_has_a_curve(role: str) -> None:
    build = helped(role).span(1, "rollout/generate", 0.0, 10.0)
    (track,) = role_tracks(build.build())
    assert (track.name, track.label) == (f"{role}.busy", f"{role} of host-a, pid 4001: busy")
    assert track.v == [100.0] * 100  # a tenth of a second each
    assert track.t_s[:3] == [0.0, 0.1, 0.2]


def test_others_have_none() -> None:
    assert role_tracks(helped("actor").span(1, "train", 0.0, 10.0).build()) == []
    assert role_tracks(helped().build()) == []
    trace = helped().span(1, "rollout/generate", 0.0, 10.0).build()
    for duration_ns in (0, -1):
        assert role_tracks(replace(trace, run=replace(trace.run, duration_ns=duration_ns))) == []


def test_a_share_is_of_its_own_stretch_of_time() -> None:
    build = helped().span(1, "rollout/generate", 0.05, 0.1).span(1, "rollout/generate", 9.9, 9.925)
    (track,) = role_tracks(build.build())
    assert (track.v[0], track.v[1], track.v[99]) == (50.0, 0.0, 25.0)


@pytest.mark.parametrize("wait", ["rollout/wait", "rollout/queue", "sync/pause"])
def test_waiting_and_what_is_no_span_is_not_busy(wait: str) -> None:
    build = helped().span(1, "rollout/generate", 0.0, 1.0).span(1, wait, 1.0, 9.0)
    build.row(Kind.COLLECTIVE, 1, "all_reduce", 2.0, 9.0)
    (track,) = role_tracks(build.build())
    assert sum(value or 0.0 for value in track.v) == 1000.0


@pytest.mark.parametrize(
    ("seconds", "points"), [(0.05, 1), (0.2, 2), (19.9, 199), (20.0, 200), (90.0, 200)]
)
def test_a_curve_has_a_point_for_each_tenth_of_a_second_or_two_hundred(
    seconds: float, points: int
) -> None:
    build = TraceBuilder(ranks=2)
    build.roles[1] = "engine"
    build.span(1, "rollout/generate", 0.0, seconds)
    (track,) = role_tracks(build.build())
    assert len(track.v) == len(track.t_s) == points
    assert set(track.v) == {100.0}


def test_of_many_processes_the_first_are_drawn() -> None:
    build = TraceBuilder(ranks=2 + MAX_PROCESSES).step(0, 1, 0.0, {"train": 10.0})
    for process in range(1, 2 + MAX_PROCESSES):
        build.roles[process] = "engine"
        build.span(process, "rollout/generate", 0.0, 5.0)
    tracks = role_tracks(build.build())
    assert [track.label for track in tracks] == [
        f"engine of host-a, pid {4001 + number}: busy" for number in range(MAX_PROCESSES)
    ]
