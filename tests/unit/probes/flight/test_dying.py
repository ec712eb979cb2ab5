"""We are killed with a thread of the job in our hands: between any two things that we do to it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from grpo_doctor_probes.flight.borrow import Borrowed
from grpo_doctor_probes.flight.machine import Call
from grpo_doctor_probes.flight.ptrace import Tracee
from tests.unit.probes.flight.sleeper import MACHINE, Target, until

MOST_STEPS = 100


def dies_before(step: int) -> None:
    """Lets this process be killed when it is about to ask the kernel for that step."""
    left = step

    def count() -> None:
        nonlocal left
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    make_request, send = Tracee._request, Tracee.send

    def counted_request(self: Tracee, request: int, address: int = 0, data: int = 0) -> None:
        count()
        make_request(self, request, address, data)

    def counted_send(self: Tracee, pid: int, number: int, tgkill: int) -> None:
        count()
        send(self, pid, number, tgkill)

    Tracee._request, Tracee.send = counted_request, counted_send  # type: ignore[method-assign]


def borrow(target: Target, name: str, step: int) -> bool:
    """Borrows the helper in a process that is killed at that step. False: it had fewer."""
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            dies_before(step)
            with target.lender() as lender, Borrowed(lender, target.helper) as thread:
                call = Call(target.function(name), (target.locked,))
                ending = thread.call(call, time.monotonic() + 0.05)
            os._exit(0 if ending == {"getpid": "returned"}.get(name, "late") else 1)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


def masks(target: Target) -> list[str]:
    lines = Path(f"/proc/{target.pid}/task/{target.helper}/status").read_text().split("\n")
    return [line for line in lines if line.startswith(("SigPnd", "SigBlk"))]


def waits_for_the_lock(target: Target) -> bool:
    text = Path(f"/proc/{target.pid}/task/{target.helper}/syscall").read_text()
    return text.split()[:2] == [str(MACHINE.futex), hex(target.locked)]


def asleep(target: Target) -> bool:
    return target.system_call() == str(MACHINE.futex)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["getpid", "pthread_mutex_lock"], ids=["returned", "taken back"])
def test_the_thread_is_as_it_was_whenever_we_are_killed(target: Target, name: str) -> None:
    before = masks(target)
    for step in range(MOST_STEPS):
        died = borrow(target, name, step)
        until(lambda: asleep(target))
        if waits_for_the_lock(target):  # the call goes on: who has the lock gives it
            target.say("unlock")
            until(lambda: not waits_for_the_lock(target) and asleep(target))
        until(lambda: masks(target) == before)
        if not died:
            break
    else:
        pytest.fail("it never came to its end")
    assert step > 10
    assert target.ask("hello") == "awake hello"
