"""What spans say of all trajectories: steps, syncs, when the engine stands still; their rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from grpo_doctor.trace.intervals import Intervals
from grpo_doctor.trace.spanfile import RECORD
from grpo_doctor.trace.trajectories.around import surroundings
from grpo_doctor.trace.trajectories.table import table_of
from grpo_doctor_probes.record import layout
from tests.build import SECOND, TraceBuilder


def seconds(windows: Intervals) -> list[tuple[float, float]]:
    pairs = zip(windows.start_ns.tolist(), windows.end_ns.tolist(), strict=True)
    return [(start / SECOND, end / SECOND) for start, end in pairs]


def seen(**resumes: Any) -> Any:
    build = TraceBuilder(ranks=2)
    for rank, shift in ((0, 0.0), (1, 0.25)):
        for number, at in ((4, 0.0), (5, 10.0)):
            build.step(rank, number, at + shift, {"train": 5.0}, end_s=at + 9)
        build.span(rank, "sync", 5 + shift, 9)
        build.span(rank, "sync/pause", 5 + shift, 6)
        build.span(rank, "sync/send", 6 + shift, 8)
        for at in resumes.get("at", (8.0,)):
            build.span(rank, "sync/resume", at + shift, at + 0.5)
    trace = build.build()
    return surroundings(trace.spans, trace.names, {0})


def test_steps_and_syncs_are_those_of_the_processes_that_carry_steps() -> None:
    found = seen()
    assert found.steps.tolist() == [4, 5]
    assert (found.step_starts_ns / SECOND).tolist() == [0.0, 10.0]
    parts = [seconds(each) for each in (found.syncs, found.pausing, found.sending, found.resuming)]
    assert parts == [[(5, 9)], [(5, 6)], [(6, 8)], [(8, 8.5)]]


def test_the_engine_stands_still_from_the_end_of_a_pause_until_it_resumes() -> None:
    assert seconds(seen().paused) == [(6, 8)]
    assert seconds(seen(at=(6.0, 8.0)).paused) == []  # at once
    assert seconds(seen(at=(4.0,)).paused) == []  # never seen to resume
    assert seconds(seen(at=()).paused) == []


def test_trajectories_of_several_processes_have_numbers_of_their_own() -> None:
    rows = np.zeros(3, dtype=RECORD)
    rows["thread"], rows["depth"], rows["kind"] = [0, 7, 7], [0, 0, 1], layout.FACT
    content: Any = SimpleNamespace(records=rows, header=SimpleNamespace(names=("a",)))
    table = table_of([(content, 0, 0), (content, 5, 0)])
    assert table.of.tolist() == [0, 7, 7 + (1 << 16), 0, 7 + (1 << 24), 7 + (1 << 16) + (1 << 24)]
    assert table.start_ns.tolist() == [0, 0, 0, 5, 5, 5]
