"""Borrowing a sleeping thread for one call, and giving it back as it was.

Three things can go wrong in a call, and none may hurt the job:

* We die. The call returns into a signal return that puts the thread back (`x86_64`).
* It takes too long. Registers are put back by force only where the thread waits for a lock that is
  no memory allocator's, in a call that takes one lock only: then it holds none itself. Otherwise,
  in the midst of work, or in a call that nothing is known of (`take_back` is false), it is left to
  end the call and put itself back, as a lock that it holds would be locked for ever.
* It faults, or aborts, as C++ does with an exception, which nobody catches (`exceptions`). The
  registers are put back and that is ours to report; the job never sees it.

The system call that the thread was in is made anew: only its time limit, if any, begins again.
Below the stack pointer (and red zone) nothing is alive in a thread inside a system call: a signal
may overwrite it at any time. So the stack needs no restoring.
"""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, replace
from typing import Literal

from grpo_doctor_probes.flight.machine import NT_PRSTATUS, Call, Machine, Saved
from grpo_doctor_probes.flight.ptrace import Stop, Tracee
from grpo_doctor_probes.memory.access import WritableMemory, mapped
from grpo_doctor_probes.stoppable import why_not_thread

# Blocking them would make the kernel forget the job's own handlers when one happens.
_FAULTS = (
    signal.SIGILL, signal.SIGTRAP, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV, signal.SIGSYS,
    signal.SIGABRT,
)  # fmt: skip
_BLOCKED_MEANWHILE = ((1 << 64) - 1) & ~sum(1 << (number - 1) for number in _FAULTS)
# How we learn that the call has ended: this signal is pending, blocked, all along, and the signal
# return unblocks it. One stop, where watching for system calls took thirty (of malloc). If we are
# gone by then it is ignored, as nearly every program does with it.
_MARK = signal.SIGURG
_MARK_BIT = 1 << (_MARK - 1)
_STOPS_WITHIN_S = 0.5  # microseconds, but for a machine with far more threads than cores
_GIVES_BACK_WITHIN_S = 0.5
_ARENA_BYTES = 64 << 20  # glibc's heaps are aligned to it, with their lock in the first page
_PAGE_BYTES = 4096

Ending = Literal["returned", "late", "crashed", "gone"]


class NotBorrowedError(Exception):
    """The thread can't be used now; the message says why. It is as it was."""


@dataclass(frozen=True)
class TargetProcess:
    """Where threads are borrowed. At `return_to` is the return code, at `by` a bare return or 0."""

    pid: int
    machine: Machine
    memory: WritableMemory
    return_to: int
    by: int = 0


class Borrowed:
    """A stopped thread. Leaving the context gives it back, whatever happened within.

    Raises NotBorrowedError on entering if the thread does not stop asleep in a system call or must
    not be stopped at all, and OSError if it may not be traced. `stopped_ms` is how long it was
    kept, after leaving.

    A thread that can't be stopped when it should be given back is let go of by the kernel when the
    thread of ours that borrowed it ends: use a short-lived one.
    """

    def __init__(self, process: TargetProcess, tid: int, *, take_back: bool = True) -> None:
        """Thread `tid` of the process. `take_back`: whether a late call may be ended."""
        self._process, self._tid, self._take_back = process, tid, take_back
        self._changed = False
        self._owed: list[int] = []  # signals that came meanwhile
        self.ending: Ending | None = None
        self._has_ended = False
        self._stopped_at = 0.0
        self.stopped_ms = 0.0
        self.left_alone = False  # it puts itself back when the call ends

    def __enter__(self) -> Borrowed:
        """Stops the thread."""
        reason = why_not_thread(self._process.pid, self._tid)
        if reason:
            raise NotBorrowedError(reason)
        self._tracee = Tracee(self._tid)
        self._tracee.interrupt()
        stop = self._tracee.wait(time.monotonic() + _STOPS_WITHIN_S)
        self._stopped_at = time.monotonic()
        try:
            self._inspect(stop)
        except BaseException:
            if stop is not None and stop.kind != "gone":
                self._tracee.detach(stop.signal if stop.kind == "signal" else 0)
            raise
        return self

    def _inspect(self, stop: Stop | None) -> None:
        """Saves the registers if the thread is where one may be borrowed."""
        if stop is None:
            raise NotBorrowedError("did not stop")
        if stop.kind != "event":
            raise NotBorrowedError("ended" if stop.kind == "gone" else "was getting a signal")
        machine = self._process.machine
        registers = self._registers()
        if self._system_call(registers) not in machine.asleep_in:
            raise NotBorrowedError("woke up")
        floats = self._tracee.register_set(machine.floats)
        self._saved = Saved(machine.again(registers), floats, self._tracee.blocked_signals())

    @property
    def scratch(self) -> int:
        """The address at which a call's scratch will be."""
        return self._process.machine.scratch(self._saved.registers)

    def call(self, call: Call, deadline: float) -> Ending:
        """Makes the call. Once `returned`, its result can be read until the context is left."""
        saved = replace(self._saved, blocked=self._saved.blocked & ~_MARK_BIT)
        frame = self._process.machine.frame(saved, call, self._process.return_to, self._process.by)
        self._process.memory.write(frame.address, frame.data)
        self._changed = True
        # First: from here on the call is made, and puts all back whenever we die.
        self._tracee.set_register_set(NT_PRSTATUS, frame.registers)
        self._tracee.block_signals(_BLOCKED_MEANWHILE)
        self._tracee.send(self._process.pid, _MARK, self._process.machine.tgkill)
        self.ending = "late"  # also if we are interrupted from here on
        self._tracee.resume()
        self.ending = self._run_on(deadline)
        return self.ending

    def _run_on(self, deadline: float) -> Ending:
        """Lets the call run until it ends or `deadline` has passed."""
        while stop := self._tracee.wait(deadline):
            ending = self._ending_at(stop)
            if ending:
                return ending
            self._tracee.resume(self._passed_on(stop))
        return "late"

    def _ending_at(self, stop: Stop) -> Ending | None:
        """What a stop during the call means, None if the call goes on."""
        if stop.kind == "gone":
            self._has_ended = True
            return "gone"
        if stop.kind == "signal" and stop.signal == _MARK:
            return "returned"
        if stop.kind == "signal" and stop.signal in _FAULTS and self._tracee.raised_by_itself():
            return "crashed"
        return None

    def _passed_on(self, stop: Stop) -> int:
        """The signal to deliver at a stop within the call: 0 for one to be sent again later.

        SIGSTOP can't be blocked. It takes effect at once, and we run on through the stop.
        """
        if stop.kind != "signal" or stop.signal == signal.SIGSTOP:
            return stop.signal if stop.kind == "signal" else 0
        self._owed.append(stop.signal)
        return 0

    def _registers(self) -> bytes:
        return self._tracee.register_set(NT_PRSTATUS)

    def __exit__(self, *error: object) -> None:
        """Gives the thread back."""
        try:
            if not self._has_ended:
                self._give_back()
        except ProcessLookupError:
            self._has_ended = True  # killed while we held it
        finally:
            self.stopped_ms = 1e3 * (time.monotonic() - self._stopped_at)

    def _give_back(self) -> None:
        if self.ending == "late":
            self.ending = self._stop_late_call()
        if self._has_ended:
            return
        if not self.left_alone:
            if self._changed:
                self._restore()
                if self.ending != "returned":
                    self._take_mark_back()
            self._tracee.detach()
        for number in self._owed:
            self._tracee.send(self._process.pid, number, self._process.machine.tgkill)

    def _stop_late_call(self) -> Ending:
        """Stops a call that takes too long, or detaches where stopping it could do harm.

        What must not be taken back is not even interrupted: it may be in a driver by now.
        """
        if not self._take_back:
            self.left_alone = True
            return "late"
        deadline = time.monotonic() + _GIVES_BACK_WITHIN_S
        self._tracee.interrupt()
        while stop := self._tracee.wait(deadline):
            ending = self._ending_at(stop)
            if ending:
                return ending
            if stop.kind == "event":
                if not self._waits_for_a_lock_only():
                    self.left_alone = True
                    self._tracee.detach()
                return "late"
            self._tracee.interrupt()
            self._tracee.resume(self._passed_on(stop))
        self.left_alone = True  # it can't be stopped now
        return "late"

    def _waits_for_a_lock_only(self) -> bool:
        """Whether the stopped call waits for a lock that is no memory allocator's."""
        machine = self._process.machine
        registers = self._registers()
        if self._system_call(registers) != machine.futex:
            return False
        lock = machine.first_argument(registers)
        in_arena = lock % _ARENA_BYTES < _PAGE_BYTES
        return not in_arena and not any(
            mapping.start <= lock < mapping.end
            for mapping in mapped(self._process.pid)
            if mapping.path.startswith("/")  # the first arena's lock is in the C library's data
        )

    def _system_call(self, registers: bytes) -> int | None:
        machine = self._process.machine
        code = self._process.memory.read(machine.position(registers) - 4, 8)
        return machine.system_call(registers, code)

    def _take_mark_back(self) -> None:
        """Lets the pending mark stop the thread, which executes nothing before, and drops it."""
        self._tracee.block_signals(self._saved.blocked & ~_MARK_BIT)
        deadline = time.monotonic() + _GIVES_BACK_WITHIN_S
        self._tracee.resume()
        while (stop := self._tracee.wait(deadline)) and stop.kind != "gone":
            if stop.kind == "signal" and stop.signal == _MARK:
                break
            self._tracee.resume(self._passed_on(stop))
        self._restore()

    def _restore(self) -> None:
        """The registers last: if we die before, the call goes on and puts all of it back."""
        self._tracee.block_signals(self._saved.blocked)
        self._tracee.set_register_set(self._process.machine.floats, self._saved.floats)
        self._tracee.set_register_set(NT_PRSTATUS, self._saved.registers)
