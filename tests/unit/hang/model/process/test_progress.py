"""Whether a process moved between two looks."""

from __future__ import annotations

import pytest

from grpo_doctor.hang.model.process.observations import index
from grpo_doctor.hang.model.process.progress import Motion
from grpo_doctor_probes.evidence import PythonThread, Thread
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
