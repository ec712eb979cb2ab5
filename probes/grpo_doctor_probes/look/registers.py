"""Where a running thread is: its registers, for which it is stopped, some 50 us.

With ptrace, which is used to read alone. The thread is SEIZEd, never attached: no signal is sent to
it, and if we die the kernel lets go of it without stopping it. All requests for a thread must come
from the thread of ours that seized it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import time
from dataclasses import dataclass
from typing import Literal

_SEIZE, _INTERRUPT, _DETACH, _GETREGSET = 0x4206, 0x4207, 17, 0x4204
_GENERAL = 1  # NT_PRSTATUS: the set of general registers
_SET_BYTES = 1024
_EVENT_STOP = 128
_WALL = 0x40000000  # wait for threads that are not our children
_FIRST_NAP_S, _LONGEST_NAP_S = 20e-6, 1e-3
_STOPS_WITHIN_S = 0.5  # microseconds, but for a machine with far more threads than cores
# By processor, which of the 8-byte registers say it: next instruction, stack, return address of a
# function that calls none.
_NUMBERS: dict[str, tuple[int, int, int | None]] = {
    "x86_64": (16, 19, None),
    "aarch64": (32, 31, 30),
}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class _Span(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


@dataclass(frozen=True)
class Stop:
    """What a traced thread did: `event` is our interrupt or a stop of its whole process."""

    kind: Literal["event", "signal", "gone"]
    signal: int = 0


class Tracee:
    """A thread that this thread traces. Every method may raise OSError; ESRCH: it is gone."""

    def __init__(self, tid: int) -> None:
        """Begin tracing thread `tid`, which keeps running."""
        self.tid = tid
        self._request(_SEIZE)

    def interrupt(self) -> None:
        """Ask it to stop; `wait` returns when it has."""
        self._request(_INTERRUPT)

    def wait(self, deadline: float) -> Stop | None:
        """Return its next stop, None if there is none until `deadline` (time.monotonic)."""
        nap = _FIRST_NAP_S
        while True:
            try:
                tid, status = os.waitpid(self.tid, os.WNOHANG | _WALL)
            except ChildProcessError:
                return Stop("gone")
            if tid and not os.WIFSTOPPED(status):
                return Stop("gone")
            if tid:
                is_event = status >> 16 == _EVENT_STOP
                return Stop("event" if is_event else "signal", os.WSTOPSIG(status))
            if time.monotonic() >= deadline:
                return None
            time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP_S)

    def detach(self, number: int = 0) -> None:
        """Let go of it, and it runs, or stays stopped if its process is.

        `number` is the signal that it stopped for, if it did: without it that would be lost.
        """
        self._request(_DETACH, 0, number)

    def registers(self) -> bytes:
        """Return its general registers."""
        buffer = ctypes.create_string_buffer(_SET_BYTES)
        span = _Span(ctypes.addressof(buffer), _SET_BYTES)
        self._request(_GETREGSET, _GENERAL, ctypes.addressof(span))
        return buffer.raw[: span.size]

    def _request(self, request: int, address: int = 0, data: int = 0) -> None:
        if _libc.ptrace(request, self.tid, address, data) < 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{os.strerror(error)} (ptrace of thread {self.tid})")


@dataclass(frozen=True)
class Place:
    """Where a thread is: addresses. `link` is None where returns are on the stack alone.

    `pause_ms`: for how long it was stopped for that.
    """

    instruction: int
    stack: int
    link: int | None
    pause_ms: float


def is_known_processor() -> bool:
    """Return whether the registers of this machine are known."""
    return platform.machine() in _NUMBERS


def place_of(tid: int) -> Place | None:
    """Stop the thread for as long as it takes to read them; None if it does not stop in time."""
    tracee = Tracee(tid)
    tracee.interrupt()
    stop = tracee.wait(time.monotonic() + _STOPS_WITHIN_S)
    if stop is None or stop.kind == "gone":
        return None
    stopped = time.monotonic()
    try:
        raw = tracee.registers()
    finally:
        with contextlib.suppress(OSError):
            tracee.detach(stop.signal if stop.kind == "signal" else 0)
    pause_ms = (time.monotonic() - stopped) * 1e3
    words = struct.unpack(f"<{len(raw) // 8}Q", raw)
    instruction, stack, link = _NUMBERS[platform.machine()]
    return Place(words[instruction], words[stack], None if link is None else words[link], pause_ms)
