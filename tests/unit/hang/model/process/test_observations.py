"""What a visit itself does to a process is no motion of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.model.process.observations import index, native_calls
from grpo_doctor.hang.model.process.progress import Motion
from grpo_doctor_probes.evidence import (
    Evidence,
    FlightDump,
    Frame,
    Limits,
    Look,
    ProcessLook,
    PythonThread,
    Stack,
)
from tests.evidence import FIRST_NS, SECOND, EvidenceBuilder
from tests.verdicts import REWARD


def third_look(
    build: EvidenceBuilder, *, wakes: int, dump: FlightDump | None, threads: int = 1
) -> Evidence:
    """Rank 0, and a look 1.3 s after its recorder was asked: so many threads woke so often since,
    and slept before.
    """
    evidence = build.build()
    evidence = replace(
        evidence, looks=tuple(_with_threads(look, threads) for look in evidence.looks)
    )
    last = evidence.looks[-1]
    at_ns = last.at_ns + int(1.5 * SECOND)
    woken = last.processes[0].threads
    if wakes:
        ran_ns = last.at_ns + int(0.2 * SECOND)
        woken = tuple(
            replace(thread, voluntary=thread.voluntary + wakes, last_ran_ns=ran_ns)
            for thread in woken
        )
    look = replace(last.processes[0], at_ns=at_ns, threads=woken)
    return replace(
        evidence,
        looks=(*evidence.looks, Look(at_ns, (look,))),
        stacks=(*evidence.stacks, evidence.stacks[-1]),
        dumps=(dump,) if dump is not None else (),
    )


def _with_threads(look: Look, count: int) -> Look:
    process = look.processes[0]
    main = process.threads[0]
    more = tuple(replace(main, tid=main.tid + number) for number in range(1, count))
    return replace(look, processes=(replace(process, threads=(main, *more)),))


def motion(evidence: Evidence) -> Motion:
    return index(evidence)[100].motion


ASKED = FlightDump("ptrace", 0, 100, "fr", data=b"{}")


@pytest.mark.parametrize("wakes", [0, 1, 3, 6])
def test_a_thread_that_was_borrowed_for_a_call_slept_all_the_time(wakes: int) -> None:
    movement = motion(third_look(EvidenceBuilder(ranks=1), wakes=wakes, dump=ASKED))
    assert (movement.kind, movement.wakes) == ("still", 0)
    # Whether it slept on after the call nobody knows; until the look before it did.
    assert movement.still_s == pytest.approx(10.0 if wakes else 11.5)


@pytest.mark.parametrize(
    "dump", [None, replace(ASKED, source="file:/d/0"), replace(ASKED, data=b"", problem="spared")]
)
def test_who_wakes_without_a_call_polls(dump: FlightDump | None) -> None:
    movement = motion(third_look(EvidenceBuilder(ranks=1), wakes=3, dump=dump))
    assert movement.kind == "polling"
    assert movement.still_s == pytest.approx(1.3)


def test_a_call_that_failed_woke_its_thread_as_well() -> None:
    failed = replace(ASKED, data=b"", problem="the recorder was locked", pause_ms=6.0)
    assert motion(third_look(EvidenceBuilder(ranks=1), wakes=3, dump=failed)).kind == "still"


def test_more_than_calls_explain_is_motion() -> None:
    assert motion(third_look(EvidenceBuilder(ranks=1), wakes=40, dump=ASKED)).kind == "polling"


def test_who_woke_before_the_call_as_well_polls() -> None:
    build = EvidenceBuilder(ranks=1)
    build.rank(0).wakes = 5
    assert motion(third_look(build, wakes=5, dump=ASKED)).kind == "polling"


def test_what_wakes_two_threads_came_from_the_others() -> None:
    movement = motion(third_look(EvidenceBuilder(ranks=1), wakes=3, dump=ASKED, threads=2))
    assert movement.kind == "polling"
    assert movement.still_s == pytest.approx(1.3)


def test_of_one_that_woke_eight_times_calls_may_be_the_reason() -> None:
    for wakes, kind in ((8, "still"), (9, "polling")):
        movement = motion(third_look(EvidenceBuilder(ranks=1), wakes=wakes, dump=ASKED))
        assert movement.kind == kind


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_process_that_a_look_did_not_find_has_nothing_to_be_held_against(missing: int) -> None:
    evidence = third_look(EvidenceBuilder(ranks=1), wakes=3, dump=ASKED)
    looks = tuple(
        replace(look, processes=()) if number == missing else look
        for number, look in enumerate(evidence.looks)
    )
    kinds = ("unknown", "polling", "gone")
    assert motion(replace(evidence, looks=looks)).kind == kinds[missing]


def test_a_thread_that_was_not_there_at_first_was_not_borrowed() -> None:
    """Of two that woke one is new: the other was borrowed for the call."""
    evidence = third_look(EvidenceBuilder(ranks=1), wakes=3, dump=ASKED, threads=2)
    first = evidence.looks[0]
    (process,) = first.processes
    alone = replace(first, processes=(replace(process, threads=process.threads[:1]),))
    assert motion(replace(evidence, looks=(alone, *evidence.looks[1:]))).kind == "still"


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
