"""Tracks and threads, both ways."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grpo_doctor.trace import lanes
from grpo_doctor.trace.model import Kind


@given(
    st.lists(
        st.tuples(st.sampled_from(list(Kind)), st.integers(0, 63), st.integers(0, 255)), min_size=1
    )
)
def test_a_thread_is_read_back_from_its_lane(rows: list[tuple[Kind, int, int]]) -> None:
    kinds, threads, overflow = (np.array(column) for column in zip(*rows))
    lane = lanes.lanes_of(kinds.astype(np.uint8), threads.astype(np.int32))
    assert np.all(lane > 0)
    lane = lane + (overflow * lanes.OVERFLOW).astype(np.int32)
    assert lanes.threads_of(lane).tolist() == threads.tolist()
    assert all(lanes.title(int(number)) for number in lane)


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


def test_the_first_thread_of_each_range_is_thread_0() -> None:
    firsts = [lanes.THREADS, lanes.THREAD_COLLECTIVES, lanes.THREAD_GPU_TIME]
    assert lanes.threads_of(np.array(firsts, dtype=np.int32)).tolist() == [0, 0, 0]
    nexts = np.array([first + 1 for first in firsts], dtype=np.int32)
    assert lanes.threads_of(nexts).tolist() == [1, 1, 1]
