"""Whether a process moved between two looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.model.process.observations import index
from grpo_doctor.hang.model.process.progress import Motion, motion
from grpo_doctor_probes.evidence import ProcessLook, PythonThread, Thread
from tests.evidence import EvidenceBuilder, frames

LOOP = frames("step /home/me/train.py:5", "main /home/me/train.py:9")


def motion_of(build: EvidenceBuilder) -> Motion:
    return index(build.build())[100].motion


def kind(build: EvidenceBuilder) -> str:
    return motion_of(build).kind


@pytest.mark.parametrize(
    ("state", "expected"), [("Z", "gone"), ("X", "gone"), ("T", "stopped"), ("t", "stopped")]
)
def test_states(state: str, expected: str) -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).state = state
    assert kind(build) == expected


def test_a_blocked_rank_is_still() -> None:
    build = EvidenceBuilder(ranks=1)
    assert kind(build) == "still"
    assert motion_of(build).still_s == pytest.approx(10.0)


def test_a_heartbeat_thread_does_not_make_a_rank_move() -> None:
    build = EvidenceBuilder(ranks=1)
    beat = frames("beat /home/me/wandb.py:5")
    build.rank(0).threads = [
        (PythonThread(900, "heartbeat", beat), Thread(900, "heartbeat", "S", cpu_ticks=90))
    ]
    assert kind(build) == "still"


def test_a_loop_that_sleeps_polls() -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).wakes = 100
    assert kind(build) == "polling"


def test_a_core_in_use_at_one_place_is_busy() -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).works(LOOP, moves=False)
    assert kind(build) == "busy"


def test_a_rank_that_waits_for_a_core_is_not_still() -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).delay_share = 0.9
    assert kind(build) == "busy"


def test_other_lines_of_its_callers_are_work() -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).works(LOOP)
    assert kind(build) == "working"


def test_another_line_of_the_innermost_function_alone_is_not() -> None:
    build = EvidenceBuilder(ranks=1)
    process = build.rank(0)
    process.works(LOOP, moves=False)
    process.later_stack = frames("step /home/me/train.py:6", "main /home/me/train.py:9")
    assert kind(build) == "busy"


def test_bytes_written_are_work() -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).written_bytes = 10_000_000
    assert kind(build) == "working"


def between(before: ProcessLook, after: ProcessLook) -> Motion:
    """Of two looks 10 s apart; the main thread has the process's numbers."""
    return motion(_with_thread(before), _with_thread(after), [None, None])


def _with_thread(look: ProcessLook) -> ProcessLook:
    main = Thread(
        look.pid, "python", look.state, cpu_ticks=look.cpu_ticks, voluntary=look.voluntary,
        involuntary=look.involuntary,
    )  # fmt: skip
    return replace(look, threads=(main,))


EARLIER = ProcessLook(
    7, 10**9, "S", cpu_ticks=500, voluntary=40, involuntary=4, read_bytes=9000, written_bytes=800
)


@pytest.mark.parametrize(
    ("ticks", "slept", "preempted", "bytes_read", "bytes_written", "expected"),
    [
        (0, 0, 0, 0, 0, "still"),
        (299, 0, 0, 0, 0, "still"),  # of one core, 0.3 is the least that is busy
        (300, 0, 0, 0, 0, "busy"),
        (0, 2, 0, 0, 0, "still"),  # a call that times out once
        (0, 2, 1, 0, 0, "polling"),
        (0, 3, 0, 0, 0, "polling"),
        (300, 3, 0, 0, 0, "busy"),
        (0, 0, 0, 256 * 1024 - 1, 0, "still"),
        (0, 0, 0, 256 * 1024, 0, "working"),
        (0, 0, 0, 128 * 1024, 128 * 1024, "working"),
        (0, 0, 0, 128 * 1024, 128 * 1024 - 1, "still"),
    ],
)
def test_how_much_is_how_much(
    ticks: int, slept: int, preempted: int, bytes_read: int, bytes_written: int, expected: str
) -> None:
    later = replace(
        EARLIER, at_ns=11 * 10**9, cpu_ticks=500 + ticks, voluntary=40 + slept,
        involuntary=4 + preempted, read_bytes=9000 + bytes_read, written_bytes=800 + bytes_written,
    )  # fmt: skip
    moved = between(EARLIER, later)
    assert moved.kind == expected
    assert moved.seconds == 10.0
    assert moved.cpu_share == moved.whole_share == pytest.approx(ticks / 1000)
    assert moved.wakes == slept + preempted
    assert moved.io_bytes == bytes_read + bytes_written


@pytest.mark.parametrize(("wakes", "expected"), [(2, "stopped"), (3, "still")])
def test_who_is_stopped_and_continued_all_the_time_gets_on(wakes: int, expected: str) -> None:
    later = replace(EARLIER, at_ns=11 * 10**9, state="T", voluntary=40 + wakes)
    assert (between(EARLIER, later).kind == "stopped") == (expected == "stopped")


@pytest.mark.parametrize("state", ["Z", "X"])
def test_what_had_gone_already_or_has_no_thread_is_not_known(state: str) -> None:
    later = replace(EARLIER, at_ns=11 * 10**9)
    assert between(replace(EARLIER, state=state), later).kind == "unknown"
    assert motion(None, _with_thread(later), []).kind == "unknown"
    assert motion(EARLIER, _with_thread(later), []).kind == "unknown"
    assert motion(_with_thread(EARLIER), later, []).kind == "unknown"


@pytest.mark.parametrize(
    ("motion", "only_ticks", "stirs", "works_beneath"),
    [
        (Motion("polling", whole_share=0.019), True, False, False),
        (Motion("polling", whole_share=0.02), False, True, False),
        (Motion("polling", io_bytes=1), False, True, False),
        (Motion("still"), False, False, False),
        (Motion("busy"), False, True, False),
        (Motion("working"), False, True, False),
        (Motion("spinning"), False, False, False),
        (Motion("still", native_share=0.3), False, False, True),
        (Motion("still", native_share=0.29), False, False, False),
        (Motion("polling", native_delay_share=0.3), True, False, True),
        (Motion("still", native_share=0.2, native_delay_share=0.1), False, False, True),
        (Motion("busy", native_share=0.9), False, True, False),
    ],
)
def test_what_counts_as_progress(
    motion: Motion, only_ticks: bool, stirs: bool, works_beneath: bool
) -> None:
    assert motion.only_ticks is only_ticks
    assert motion.stirs is stirs
    assert motion.works_beneath is works_beneath
