"""ptrace of one thread, as far as a call into it needs.

A thread is SEIZEd, never attached: no signal is sent to it, and if we die the kernel lets go of it
without stopping it. All requests for a thread must come from the thread of ours that seized it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from dataclasses import dataclass
from typing import Literal

_SEIZE, _INTERRUPT, _CONT, _DETACH = 0x4206, 0x4207, 7, 17
_GETREGSET, _SETREGSET, _GETSIGINFO = 0x4204, 0x4205, 0x4202
_GETSIGMASK, _SETSIGMASK = 0x420A, 0x420B
_EVENT_STOP = 128
_SENT_TO_THREAD = -6  # SI_TKILL: what abort() does to its own thread
_WALL = 0x40000000  # wait for threads that are not our children
_FIRST_NAP_S, _LONGEST_NAP_S = 20e-6, 1e-3

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.syscall.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class _Span(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


@dataclass(frozen=True)
class Stop:
    """What a traced thread did: `event` is our interrupt or a stop of its whole process."""

    kind: Literal["event", "signal", "gone"]
    signal: int = 0


def stop_of(status: int) -> Stop:
    """What a wait status says."""
    if not os.WIFSTOPPED(status):
        return Stop("gone")
    number = os.WSTOPSIG(status)
    if status >> 16 == _EVENT_STOP:
        return Stop("event", number)
    return Stop("signal", number)


class Tracee:
    """A thread that this thread traces. Every method may raise OSError; ESRCH: it is gone."""

    def __init__(self, tid: int) -> None:
        """Begins tracing thread `tid`, which goes on running."""
        self.tid = tid
        self._request(_SEIZE)

    def interrupt(self) -> None:
        """Asks it to stop; `wait` tells when it has."""
        self._request(_INTERRUPT)

    def wait(self, deadline: float) -> Stop | None:
        """Its next stop, None if there is none until `deadline` (time.monotonic)."""
        nap = _FIRST_NAP_S
        while True:
            try:
                tid, status = os.waitpid(self.tid, os.WNOHANG | _WALL)
            except ChildProcessError:
                return Stop("gone")
            if tid:
                return stop_of(status)
            if time.monotonic() >= deadline:
                return None
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP_S)

    def resume(self, number: int = 0) -> None:
        """Lets it run, with signal `number` delivered if it stopped for one."""
        self._request(_CONT, 0, number)

    def detach(self, number: int = 0) -> None:
        """Lets go of it, and it runs, or stays stopped if its process is.

        `number` is the signal that it stopped for, if it did: without it that would be lost.
        """
        self._request(_DETACH, 0, number)

    def register_set(self, number: int, at_most: int = 1 << 16) -> bytes:
        """The bytes of one set of its registers."""
        buffer = ctypes.create_string_buffer(at_most)
        span = _Span(ctypes.addressof(buffer), at_most)
        self._request(_GETREGSET, number, ctypes.addressof(span))
        return buffer.raw[: span.size]

    def set_register_set(self, number: int, data: bytes) -> None:
        """Replaces one set of its registers."""
        buffer = ctypes.create_string_buffer(data, len(data))
        span = _Span(ctypes.addressof(buffer), len(data))
        self._request(_SETREGSET, number, ctypes.addressof(span))

    def blocked_signals(self) -> int:
        """Its signal mask: bit n-1 for signal n."""
        mask = ctypes.c_uint64()
        self._request(_GETSIGMASK, 8, ctypes.addressof(mask))
        return mask.value

    def block_signals(self, mask: int) -> None:
        """Replaces its signal mask."""
        value = ctypes.c_uint64(mask)
        self._request(_SETSIGMASK, 8, ctypes.addressof(value))

    def raised_by_itself(self) -> bool:
        """Whether the signal it stopped for is a fault of its own, or its own abort()."""
        info = (ctypes.c_int * 32)()  # siginfo_t: si_signo, si_errno, si_code, ...
        self._request(_GETSIGINFO, 0, ctypes.addressof(info))
        number, _, code = info[:3]
        return code > 0 or (number == signal.SIGABRT and code == _SENT_TO_THREAD)

    def send(self, pid: int, number: int, tgkill: int) -> None:
        """Sends signal `number` to this thread of process `pid`; `tgkill` is that system call."""
        if _libc.syscall(tgkill, pid, self.tid, number) < 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{os.strerror(error)} (signal to thread {self.tid})")

    def _request(self, request: int, address: int = 0, data: int = 0) -> None:
        if _libc.ptrace(request, self.tid, address, data) < 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{os.strerror(error)} (ptrace of thread {self.tid})")
