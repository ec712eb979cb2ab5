"""Python and native stacks, and the pauses that reading them costs."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from grpo_doctor_probes import look
from grpo_doctor_probes.evidence import Look, ProcessLook, PythonThread, Stack, Thread
from grpo_doctor_probes.look import stackreading
from tests.unit.probes.conftest import until
from tests.unit.probes.look.stage import NEEDS_PYSPY, SERVING, Stage, asleep_in, process_look


@NEEDS_PYSPY
def test_stacks_have_the_main_thread_first_and_no_control_characters(stage: Stage) -> None:
    pids = [stage.start(SERVING) for _ in range(3)]
    for pid in pids:
        asleep_in(pid, "nanosleep")
    read = look.stacks(pids, at_most_s=20)
    assert [stack.pid for stack in read] == pids
    for stack in read:
        assert (stack.problem, stack.pause_ms, stack.native) == ("", 0.0, False)
        main, helper = stack.threads
        assert main.tid == stack.pid
        names = [frame.function.rpartition(".")[2] for frame in main.frames]
        assert names == ["score", "outer", "<module>"]
        assert main.frames[0].line == 6
        assert helper.name == "he?[31mllo?"


@NEEDS_PYSPY
def test_native_stacks_measure_their_pause(stage: Stage) -> None:
    pid = stage.start(SERVING)
    asleep_in(pid, "nanosleep")
    (stack,) = look.native_stacks([pid], at_most_s=30)
    if "right" in stack.problem:
        pytest.skip(stack.problem)
    assert stack.problem == ""
    assert stack.native
    assert any("sleep" in frame.function for frame in stack.threads[0].frames)
    assert 0 < stack.pause_ms < 30_000
    until(lambda: process_look(pid).state == "S")


@NEEDS_PYSPY
def test_a_stopped_process_is_read_but_never_traced(stage: Stage) -> None:
    pid = stage.start(SERVING)
    asleep_in(pid, "nanosleep")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: process_look(pid).state == "T")
    assert look.stacks([pid], at_most_s=20)[0].threads
    (stack,) = look.native_stacks([pid], at_most_s=20)
    assert (stack.threads, stack.problem) == ((), "it is stopped or traced by somebody else")
    assert process_look(pid).state == "T"


SLEEPS = Thread(10, "python", "S", cpu_ticks=5, voluntary=3)


@pytest.mark.parametrize(
    ("then", "now", "again"),
    [
        ([SLEEPS], [SLEEPS], False),
        ([SLEEPS], [replace(SLEEPS, voluntary=4)], True),
        ([SLEEPS], [replace(SLEEPS, involuntary=1)], True),
        ([SLEEPS], [replace(SLEEPS, cpu_ticks=6)], True),
        ([SLEEPS], [replace(SLEEPS, state="D")], True),
        ([replace(SLEEPS, state="R")], [replace(SLEEPS, state="R")], True),
        ([replace(SLEEPS, voluntary=0)], [replace(SLEEPS, voluntary=0)], True),
        ([SLEEPS], [SLEEPS, replace(SLEEPS, tid=11)], True),
        ([SLEEPS, replace(SLEEPS, tid=11)], [SLEEPS], False),
        ([SLEEPS], [], True),
        (None, [SLEEPS], True),
        ([SLEEPS], None, True),
    ],
)
def test_which_processes_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
    then: list[Thread] | None,
    now: list[Thread] | None,
    again: bool,
) -> None:
    read_again = Stack(10, 9, (PythonThread(10, "read_again", ()),))
    monkeypatch.setattr(
        stackreading, "stacks", lambda pids, at_most_s: [read_again] if pids else []
    )
    before, after = (
        Look(at, () if threads is None else (ProcessLook(10, at, "S", threads=tuple(threads)),))
        for at, threads in ((1, then), (5, now))
    )
    earlier = Stack(10, 2, (PythonThread(10, "python", ()),))
    unchanged = replace(earlier, at_ns=5)
    expected = (read_again,) if again else (unchanged,)
    assert look.stacks_again([earlier], before, after, at_most_s=1) == expected
