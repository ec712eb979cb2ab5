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
    """Stop the thread for as long as it takes to read them; None if it does not stop in time.

    Raises OSError; ESRCH: it is gone.
    """
    _request(_SEIZE, tid)
    _request(_INTERRUPT, tid)
    signal = _stop_of(tid, time.monotonic() + _STOPS_WITHIN_S)
    if signal is None:
        return None
    stopped = time.monotonic()
    try:
        raw = _registers(tid)
    finally:
        # The signal that it stopped for would be lost without this.
        with contextlib.suppress(OSError):
            _request(_DETACH, tid, 0, signal)
    pause_ms = (time.monotonic() - stopped) * 1e3
    words = struct.unpack(f"<{len(raw) // 8}Q", raw)
    instruction, stack, link = _NUMBERS[platform.machine()]
    return Place(words[instruction], words[stack], None if link is None else words[link], pause_ms)


def _stop_of(tid: int, deadline: float) -> int | None:
    """Return the signal that it stopped for, 0 for our interrupt or a stop of its whole process.

    None if it is gone, or has not stopped until `deadline` (time.monotonic).
    """
    nap = _FIRST_NAP_S
    while True:
        try:
            stopped, status = os.waitpid(tid, os.WNOHANG | _WALL)
        except ChildProcessError:
            return None
        if stopped and not os.WIFSTOPPED(status):
            return None
        if stopped:
            return 0 if status >> 16 == _EVENT_STOP else os.WSTOPSIG(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP_S)


def _registers(tid: int) -> bytes:
    """Return the general registers of a stopped thread."""
    buffer = ctypes.create_string_buffer(_SET_BYTES)
    span = _Span(ctypes.addressof(buffer), _SET_BYTES)
    _request(_GETREGSET, tid, _GENERAL, ctypes.addressof(span))
    return buffer.raw[: span.size]


def _request(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, tid, address, data) < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{os.strerror(error)} (ptrace of thread {tid})")
