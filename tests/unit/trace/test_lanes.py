"""What tracks are called."""

from __future__ import annotations

from grpo_doctor.trace import events


def test_titles_at_the_edges_of_ranges() -> None:
    titles = {
        events.THREADS: "thread 0",
        events.THREAD_COLLECTIVES - 1: "thread 189",
        events.THREAD_COLLECTIVES: "thread 0 collectives",
        events.THREAD_GPU_TIME - 1: "thread 99 collectives",
        events.THREAD_GPU_TIME: "thread 0 GPU time",
        events.GPU_TIME: "GPU time",
        events.OVERFLOW + events.THREADS: "thread 0 (overlapping 1)",
    }
    assert {lane: events.title(lane) for lane in titles} == titles
