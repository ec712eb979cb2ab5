"""Which thread is borrowed, and the words when none can be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import Thread
from grpo_doctor_probes.flight.sleepers import (
    STACK_BYTES,
    Sleeper,
    choose,
    find_sleepers,
    parse_system_call,
    tracer_of,
    why_none,
    why_not,
)
from grpo_doctor_probes.memory.access import Mapping
from tests.unit.probes.flight.sleeper import Target

PID = 100
FUTEX, EPOLL, WRITE = 202, 232, 1
CALLS = {FUTEX: "futex", EPOLL: "epoll_wait"}
STACKS = (
    Mapping(0x10000, 0x10000 + 2 * STACK_BYTES, "rw-p", 0, 0, ""),
    Mapping(0x90000, 0x91000, "rw-p", 0, 0, ""),
    Mapping(0xF0000, 0xF1000, "rw-p", 0, 0, "[stack]"),
)
GOOD = Sleeper(101, "worker", "S", FUTEX, 0x10000 + STACK_BYTES + 64, "futex_do_wait", 5)


def order(*candidates: Sleeper, earlier: tuple[Thread, ...] = ()) -> list[int]:
    return [s.tid for s in choose(candidates, PID, earlier, STACKS, CALLS)]


def test_helpers_come_first_and_the_main_thread_last() -> None:
    main = replace(GOOD, tid=PID, name="python")
    unknown = replace(GOOD, tid=102)
    gloo = replace(GOOD, tid=103, name="pt_gloo_runloop")
    watchdog = replace(GOOD, tid=104, name="pt_nccl_watchdg")
    assert order(main, watchdog, unknown, gloo) == [103, 102, 104, PID]


def test_of_equals_the_one_that_slept_all_the_time_comes_first() -> None:
    woke, slept = replace(GOOD, tid=102, switches=9), replace(GOOD, tid=103)
    earlier = tuple(Thread(tid, "worker", "S", voluntary=5) for tid in (102, 103))
    assert order(woke, slept, earlier=earlier) == [103, 102]


def test_of_equals_the_one_whose_call_is_resumed_comes_first() -> None:
    assert order(replace(GOOD, tid=102, system_call=EPOLL), replace(GOOD, tid=103)) == [103, 102]


def test_of_equals_the_one_whose_call_is_known_comes_first() -> None:
    """A stopped process shows no number on ARM."""
    unknown = replace(GOOD, tid=102, state="T", system_call=-1)
    assert order(unknown, replace(GOOD, tid=103, state="T")) == [103, 102]
    assert order(unknown, replace(GOOD, tid=103, system_call=EPOLL)) == [102, 103]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"state": "R"}, "running"),
        ({"state": "D"}, "in uninterruptible sleep"),
        ({"state": "t"}, "held by another tracer"),
        ({"state": "Z"}, "dead"),
        ({"wait": "do_freezer_trap"}, "in a frozen control group"),
        ({"system_call": WRITE}, "in other system calls"),
        ({"system_call": -1}, "in other system calls"),
        ({"state": "T", "system_call": WRITE}, "in other system calls"),
        ({"state": "T", "system_call": -1, "stack": 0}, "in other system calls"),
        ({"stack": 0x10000 + STACK_BYTES - 1}, "on a stack that is too small"),
        ({"stack": 0x90800}, "on a stack that is too small"),
        ({"stack": 0x10}, "on a stack that is too small"),
    ],
)
def test_what_is_not_borrowed(change: dict[str, int | str], reason: str) -> None:
    sleeper = replace(GOOD, **change)  # type: ignore[arg-type]
    assert why_not(sleeper, STACKS, CALLS) == reason
    assert order(sleeper) == []
    assert why_none((sleeper, sleeper), STACKS, CALLS) == f"2 {reason}"


def test_what_is_borrowed() -> None:
    for change in ({}, {"stack": 0xF0010}, {"state": "T"}, {"state": "T", "system_call": -1}):
        assert why_not(replace(GOOD, **change), STACKS, CALLS) is None
    assert why_not(replace(GOOD, stack=0x10000 + STACK_BYTES), STACKS, CALLS) is None


def test_reasons_are_counted_the_most_frequent_first() -> None:
    runs = replace(GOOD, state="R")
    assert why_none((GOOD, runs, runs), STACKS, CALLS) == "2 running, 1 usable"
    assert why_none((), STACKS, CALLS) == ""


def test_a_tracer_is_named_without_its_tricks(tmp_path: Path) -> None:
    (tmp_path / "7" / "task" / "8").mkdir(parents=True)
    (tmp_path / "7" / "task" / "8" / "status").write_text("Name:\tx\nTracerPid:\t99\n")
    (tmp_path / "99").mkdir()
    (tmp_path / "99" / "status").write_text("Name:\t\x1b[31mgdb\n")
    assert tracer_of(7, tmp_path) == "process 99 (?[31mgdb)"
    assert tracer_of(99, tmp_path) == ""


def test_the_system_call_of_a_thread() -> None:
    assert parse_system_call("running\n") == (-1, 0)
    assert parse_system_call("-1 0x7ffc 0x7f01\n") == (-1, 0x7FFC)
    assert parse_system_call("202 0x1 0x0 0x0 0x0 0x0 0x0 0x7ffc 0x7f01\n") == (202, 0x7FFC)


def test_threads_of_a_process_are_seen_as_they_are(target: Target) -> None:
    candidates = {s.tid: s for s in find_sleepers(target.pid)}
    helper = candidates[target.helper]
    assert set(candidates) == {target.pid, target.helper}
    assert helper.state == "S"
    assert str(helper.system_call) == target.system_call()
    assert helper.switches > 0
    assert helper.stack > 0
