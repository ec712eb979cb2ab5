"""A wait in C++ under the user's own line: no plain lock, and told by its native stack."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.wants import wants_native
from grpo_doctor_probes.evidence import Evidence, Frame, PythonThread, Stack
from tests.evidence import FIRST_NS, EvidenceBuilder, frames

PASS_ON = frames("pass_on /home/me/train.py:31", "main /home/me/train.py:9")
RECEIVES = ("c10d::ProcessGroupGloo::RecvWork::wait", "gloo::transport::tcp::Buffer::waitRecv")


def unexplained(evidence: Evidence) -> list[int | None]:
    """Which processes have to be stopped to know what they wait for."""
    return [request.pid for request in wants_native(evidence)]


def asleep_in_c(*ranks: int, limit: int = 0x7FFD8D8FA610, at_work: int | None = None) -> Evidence:
    """They sleep in a futex right under a line of their own, with a limit on the stack."""
    build = EvidenceBuilder()
    if at_work is not None:
        build.elsewhere(at_work, ()).works(frames("compute /home/me/train.py:50"))
    for rank in ranks:
        build.elsewhere(rank, PASS_ON).blocks("futex")
        build.rank(rank).arguments = (1, 393, 0, limit, 0, 0)
    return build.build()


def looked_into(evidence: Evidence, rank: int, functions: tuple[str, ...]) -> Evidence:
    """The same with the native stack of one rank."""
    cpp_frames = (*(Frame(name, "libtorch_cpu.so", 0) for name in functions), *PASS_ON)
    thread = PythonThread(100 + rank, "MainThread", cpp_frames)
    stack = Stack(100 + rank, FIRST_NS, (thread,), native=True)
    return replace(evidence, stacks=(evidence.stacks[0], (*evidence.stacks[1], stack)))


def test_a_wait_with_a_limit_is_no_lock_and_is_looked_into() -> None:
    evidence = asleep_in_c(0, 3)
    assert diagnose(evidence).verdict.cause == "user-code-blocked"
    assert unexplained(evidence) == [100, 103]


def test_a_plain_lock_is_known_without_stopping_the_rank() -> None:
    evidence = asleep_in_c(0, limit=0)
    assert diagnose(evidence).verdict.cause == "lock-held"
    assert unexplained(evidence) == []


@pytest.mark.parametrize("looked_at", [0, 3])
def test_two_ranks_at_one_line_both_wait_for_what_nobody_sends(looked_at: int) -> None:
    evidence = looked_into(asleep_in_c(0, 3), looked_at, RECEIVES)
    verdict = diagnose(evidence).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == ("stuck", "p2p-unmatched", (0, 3))
    assert unexplained(evidence) == []
