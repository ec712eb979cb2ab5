"""Python stacks of many processes through py-spy, in parallel and within a time limit."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

from grpo_doctor_probes.evidence import Look, ProcessLook, Stack, Thread
from grpo_doctor_probes.look import pyspy
from grpo_doctor_probes.look.limits import frozen
from grpo_doctor_probes.procs.procfs import numbers, status
from grpo_doctor_probes.procs.procstat import state_of
from grpo_doctor_probes.procs.stoppable import why_not_process

_TRACED = "t"
_STOPPED = "T"
_PERIOD_S = 0.001
_SETTLES_S = 0.5
_GONE = ("Z", "X", "")
_ONE_AT_MOST_S = 5.0


def leave_running(pid: int) -> None:
    """Continue a process that a killed tracer left stopped: attaching works by a stop signal, which
    can still be under way when the tracer ends. Call only for one that ran before.
    """
    folder, deadline = f"/proc/{pid}", time.monotonic() + _SETTLES_S
    while state_of(folder) == _TRACED and time.monotonic() < deadline:
        time.sleep(_PERIOD_S)
    if state_of(folder) == _STOPPED:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def stacks(pids: Sequence[int], *, at_most_s: float) -> tuple[Stack, ...]:
    """Return stacks of these processes, in this order, without stopping any of them.

    Reading a process that runs can fail half-way, so it is tried twice.
    """
    return pyspy.in_parallel(_stack, pids, at_most_s)


def stacks_again(
    earlier: Sequence[Stack], before: Look, after: Look, *, at_most_s: float
) -> tuple[Stack, ...]:
    """Stacks of the same processes at `after`. Those of processes in which no Python thread has run
    since `before`, which was taken before `earlier`, are the same and cost nothing.
    """
    changed = [
        stack.pid
        for stack in earlier
        if not _is_same(stack, before.of(stack.pid), after.of(stack.pid))
    ]
    latest = {stack.pid: stack for stack in stacks(changed, at_most_s=at_most_s)}
    return tuple(latest.get(stack.pid) or replace(stack, at_ns=after.at_ns) for stack in earlier)


def _is_same(stack: Stack, before: ProcessLook | None, after: ProcessLook | None) -> bool:
    """Return a thread that has run was switched to, and away from when it slept again."""
    if stack.problem or not stack.threads or before is None or after is None:
        return False
    then, now = ({thread.tid: thread for thread in look.threads} for look in (before, after))
    if now.keys() - then.keys():  # a new thread may be Python's
        return False
    return all(
        thread.tid in then and thread.tid in now and _has_slept(then[thread.tid], now[thread.tid])
        for thread in stack.threads
    )


def _has_slept(then: Thread, now: Thread) -> bool:
    was, is_now = (
        (thread.voluntary, thread.involuntary, thread.cpu_ticks) for thread in (then, now)
    )
    counted = now.voluntary + now.involuntary > 0  # by this kernel
    return counted and was == is_now and then.state == now.state != "R"


def native_stacks(pids: Sequence[int], *, at_most_s: float) -> tuple[Stack, ...]:
    """Stacks with C and C++ frames. Stops each process, typically for 0.5 to 1.5 s; `pause_ms` is
    for how long py-spy ran, so it was stopped for no longer.

    A process with a thread in uninterruptible sleep or inside a call of a GPU's driver, a stopped
    one and a frozen one are refused: a tracer would hang on them, or break into the driver.
    """
    return pyspy.in_parallel(_native_stack, pids, at_most_s)


def _stack(pid: int, deadline: float) -> Stack:
    at_ns = time.monotonic_ns()
    problem = ""
    for _ in range(2):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            problem = problem or "no time was left to read its stack"
            break
        if state_of(f"/proc/{pid}") in _GONE:
            return Stack(pid, at_ns, problem="it has ended")
        try:
            threads = pyspy.dump(pid, "--nonblocking", at_most_s=min(left_s, _ONE_AT_MOST_S))
        except pyspy.PySpyError as error:
            problem = str(error)
            continue
        return Stack(pid, at_ns, pyspy.python_threads(threads, pid))
    return Stack(pid, at_ns, problem=problem)


def _native_stack(pid: int, deadline: float) -> Stack:
    at_ns = time.monotonic_ns()
    left_s = deadline - time.monotonic()
    problem = "no time was left to read its native stack" if left_s <= 0 else refusal(pid)
    if problem:
        return Stack(pid, at_ns, native=True, problem=problem)
    try:
        threads = pyspy.dump(pid, "--native", at_most_s=left_s)
    except pyspy.PySpyError as error:
        leave_running(pid)
        threads, problem = [], str(error)
    at_most_ms = (time.monotonic_ns() - at_ns) / 1e6
    return Stack(pid, at_ns, pyspy.python_threads(threads, pid), True, at_most_ms, problem)


def refusal(pid: int) -> str:
    """Return why this process must not be traced now; empty where it may be."""
    states: set[str] = set()
    with contextlib.suppress(OSError):
        states = {state_of(f"/proc/{pid}/task/{tid}") for tid in numbers(f"/proc/{pid}/task")}
    if states <= set(_GONE):
        return "it has ended"
    if "D" in states:
        return "a thread of it is in uninterruptible sleep: a tracer would hang on it"
    # A thread can have one tracer only.
    if {"T", "t"} & states or status(f"/proc/{pid}").get("TracerPid", "0") != "0":
        return "it is stopped or traced by somebody else"
    if frozen(pid):
        return "its control group is frozen: a tracer would hang on it"
    return why_not_process(pid)
