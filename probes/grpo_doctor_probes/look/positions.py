"""In which library threads are that use a core: whether a host computes, or spins for its GPU.

A Python stack ends at the line that called into C, and `loss.item()` looks the same in both cases.
So such a thread is stopped for some 50 us, three times, its instruction pointer and the top of its
C stack are read, and both are looked up in what the process has mapped.

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
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo_doctor_probes.evidence import Look, Position, ProcessLook
from grpo_doctor_probes.look.limits import frozen
from grpo_doctor_probes.memory.access import Mapping, Memory, mapped
from grpo_doctor_probes.procs.stoppable import why_not_thread

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


# Drivers and collective libraries that a host may spin in, of NVIDIA and AMD.
_DEVICE_LIBRARIES = ("libcuda.so", "libcudart", "libnccl", "libamdhip64", "librccl", "libhsa-")
# What anything else spins through: it says nothing of who does.
_OF_THE_SYSTEM = ("libc.so", "libc-", "libpthread", "ld-linux", "ld-musl", "librt", "[vdso]")
_BUSY_SHARE = 0.3  # of one core
_TICKS_PER_S = 100.0
_SAMPLES = 3
_BETWEEN_S = 0.013  # no multiple of anything that a program does by the clock
_MOST_BESIDE = 3  # threads of one process, the busiest ones
_STACK_BYTES = 2048


def positions(before: Look, after: Look, *, at_most_s: float) -> tuple[Position, ...]:
    """Of threads without sleep between two samples, in processes that have a GPU's driver mapped.

    A process with a thread that must not be stopped (`stoppable`) is left alone. Never raises.
    """
    if platform.machine() not in _NUMBERS:
        return ()
    deadline = time.monotonic() + at_most_s
    sampled: list[Position] = []
    for process in after.processes:
        tids = _busy(before.of(process.pid), process)
        left_s = deadline - time.monotonic()
        if tids and left_s > 0:
            # The kernel lets go of whatever a thread of ours has traced when that ends. Who reads
            # the maps of a process may wait for a lock that a thread hanging in the kernel has.
            arguments = (process.pid, tids, sampled.append)
            sampler = threading.Thread(target=_sample, args=arguments, daemon=True)
            sampler.start()
            sampler.join(left_s)
    return tuple(sampled)


def _busy(before: ProcessLook | None, after: ProcessLook) -> list[int]:
    """Return the main thread if it uses a core, and the busiest others that do."""
    if before is None or not before.threads or not after.threads or after.state in "TtZX":
        return []
    ticks = {thread.tid: thread.cpu_ticks for thread in before.threads}
    seconds = max((after.at_ns - before.at_ns) / 1e9, 1e-3)

    def share(thread_ticks: int, tid: int) -> float:
        return (thread_ticks - ticks.get(tid, thread_ticks)) / _TICKS_PER_S / seconds

    main, *helpers = after.threads
    # Beside many others a thread may be ready to run for long before it gets a core.
    chosen = [main.tid] if main.state == "R" or share(main.cpu_ticks, main.tid) > 0.1 else []
    shares = sorted(
        ((share(thread.cpu_ticks, thread.tid), thread.tid) for thread in helpers), reverse=True
    )
    return chosen + [tid for used, tid in shares[:_MOST_BESIDE] if used >= _BUSY_SHARE]


def _sample(pid: int, tids: Sequence[int], tell: Callable[[Position], None]) -> None:
    try:
        maps = mapped(pid)
        if not any(mapping.name.startswith(_DEVICE_LIBRARIES) for mapping in maps) or frozen(pid):
            return
        with Memory(pid) as memory:
            code = [mapping for mapping in maps if "x" in mapping.rights]
            for count in range(_SAMPLES):
                if count:
                    time.sleep(_BETWEEN_S)
                for tid in tids:
                    position = _position(pid, tid, code, memory)
                    tell(position)
                    if position.problem:
                        return  # one that has not stopped yet is let go of at the end of this
    except OSError as error:
        tell(Position(pid, tids[0], time.monotonic_ns(), problem=error.strerror or str(error)))


def _position(pid: int, tid: int, code: Sequence[Mapping], memory: Memory) -> Position:
    at_ns = time.monotonic_ns()
    problem = why_not_thread(pid, tid)
    if problem:
        return Position(pid, tid, at_ns, problem=f"it {problem}")
    try:
        place = place_of(tid)
    except OSError as error:
        return Position(pid, tid, at_ns, problem=error.strerror or str(error))
    if place is None:
        return Position(pid, tid, at_ns, problem="it did not stop in time")
    library = _library(code, place.instruction)
    returns = [place.instruction, *_returns(place, memory)]
    callers = (name for word in returns if (name := _library(code, word)))
    caller = next((name for name in callers if not name.startswith(_OF_THE_SYSTEM)), "")
    return Position(pid, tid, at_ns, library or "", caller, round(place.pause_ms, 3))


def _returns(place: Place, memory: Memory) -> tuple[int, ...]:
    """Return what may be return addresses: the words at the top of its stack, innermost first."""
    link = () if place.link is None else (place.link,)
    for size in (_STACK_BYTES, 128):
        with contextlib.suppress(OSError):
            words = memory.read(place.stack, size)
            return (*link, *struct.unpack(f"<{size // 8}Q", words))
    return link


def _library(code: Sequence[Mapping], address: int) -> str | None:
    """Return the file that the instruction at `address` is of; None where there is no code."""
    return next((mapping.name for mapping in code if mapping.start <= address < mapping.end), None)
