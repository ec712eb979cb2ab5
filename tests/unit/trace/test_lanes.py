"""What tracks are called."""

from __future__ import annotations

from grpo_doctor.trace import lanes


def test_titles() -> None:
    assert lanes.title(lanes.PHASES) == "steps and phases"
    assert lanes.title(2 * lanes.OVERFLOW + lanes.COLLECTIVES) == "collectives (overlapping 2)"
    assert lanes.title(lanes.THREADS + 4) == "thread 4"
    assert lanes.title(lanes.THREAD_GPU_TIME + 4) == "thread 4 GPU time"


def test_titles_at_the_edges_of_ranges() -> None:
    titles = {
        lanes.THREADS: "thread 0",
        lanes.THREAD_COLLECTIVES - 1: "thread 189",
        lanes.THREAD_COLLECTIVES: "thread 0 collectives",
        lanes.THREAD_GPU_TIME - 1: "thread 99 collectives",
        lanes.THREAD_GPU_TIME: "thread 0 GPU time",
        lanes.GPU_TIME: "GPU time",
        lanes.OVERFLOW + lanes.THREADS: "thread 0 (overlapping 1)",
    }
    assert {lane: lanes.title(lane) for lane in titles} == titles
