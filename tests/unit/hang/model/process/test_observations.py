"""What a visit itself does to a process is no motion of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.model.process.proc import index, native_calls
from grpo_doctor_probes.evidence import (
    Evidence,
    Frame,
    Limits,
    Look,
    ProcessLook,
    PythonThread,
    Stack,
)
from tests.evidence import FIRST_NS, EvidenceBuilder
from tests.verdicts import REWARD


@pytest.mark.parametrize(
    ("states", "ended"),
    [
        ("SZ", True),
        ("SX", True),
        ("S-", True),
        ("SS", False),
        ("ZZ", False),
        ("-Z", False),
        ("ZS", False),
        ("Z", False),
        ("SSZ", True),
        ("SZS", False),
    ],
)
def test_who_was_alive_at_the_first_look_and_not_at_the_last_has_ended_meanwhile(
    states: str, ended: bool
) -> None:
    """A dash: that look did not find it."""
    evidence = EvidenceBuilder(ranks=1).build()
    looks = tuple(
        Look(number, tuple(ProcessLook(100, number, state) for state in letter if state != "-"))
        for number, letter in enumerate(states)
    )
    assert index(replace(evidence, looks=looks))[100].ended_meanwhile is ended


def test_limits_are_those_of_the_looks_that_have_them() -> None:
    evidence = EvidenceBuilder(ranks=2).build()
    rows = ((Limits(100, nice=1),), (Limits(101, frozen=True), Limits(100, nice=2)), (Limits(101),))
    by_pid = index(replace(evidence, limits=rows))
    assert [row.nice for row in by_pid[100].limits] == [1, 2]
    assert [row.frozen for row in by_pid[101].limits] == [True, False]
    assert [by_pid[pid].frozen for pid in (100, 101)] == [False, False]
    by_pid = index(replace(evidence, limits=rows[:2]))
    assert [by_pid[pid].frozen for pid in (100, 101)] == [False, True]


def with_native(python: tuple[Frame, ...] | None, *functions: str) -> Evidence:
    """Rank 0 with a native stack of these functions; without Python frames where None."""
    evidence = EvidenceBuilder(ranks=1).build()
    frames = tuple(Frame(name, "libtorch_cpu.so", 0) for name in functions)
    native = Stack(100, FIRST_NS, (PythonThread(100, "MainThread", frames),), native=True)
    threads = () if python is None else (PythonThread(100, "MainThread", python),)
    return replace(evidence, stacks=((Stack(100, FIRST_NS, threads), native),))


@pytest.mark.parametrize(
    ("python", "functions", "calls"),
    [
        (REWARD, ("c10d::Work::wait",), {REWARD: "collective"}),
        (REWARD, ("epoll_wait", "c10d::ProcessGroupGloo::RecvWork::wait"), {REWARD: "p2p"}),
        (REWARD, ("epoll_wait",), {}),
        (REWARD, (), {}),
        (None, ("c10d::Work::wait",), {}),
        (None, (), {}),
    ],
)
def test_calls_to_other_ranks_that_only_native_stacks_tell(
    python: tuple[Frame, ...] | None, functions: tuple[str, ...], calls: dict[object, str]
) -> None:
    assert native_calls(index(with_native(python, *functions)).values()) == calls
