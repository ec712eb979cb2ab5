"""In which library threads are that use a core: whether a host computes, or spins for its GPU.

A Python stack ends at the line that called into C, and `loss.item()` looks the same in both cases.
So such a thread is stopped for some 50 us, three times, its instruction pointer and the top of its
C stack are read, and both are looked up in what the process has mapped.
"""

from __future__ import annotations

import contextlib
import platform
import struct
import threading
import time
from collections.abc import Callable, Sequence

from grpo_doctor_probes.evidence import Look, Position, ProcessLook
from grpo_doctor_probes.flight.aarch64 import Aarch64
from grpo_doctor_probes.flight.machine import NT_PRSTATUS, Machine
from grpo_doctor_probes.flight.ptrace import Tracee
from grpo_doctor_probes.flight.x86_64 import X8664
from grpo_doctor_probes.look.limits import frozen
from grpo_doctor_probes.memory.access import Mapping, Memory, mapped
from grpo_doctor_probes.stoppable import why_not_thread

_MACHINES: dict[str, Machine] = {"x86_64": X8664(), "aarch64": Aarch64()}
# Drivers and collective libraries that a host may spin in, of NVIDIA and AMD.
_DEVICE_LIBRARIES = ("libcuda.so", "libcudart", "libnccl", "libamdhip64", "librccl", "libhsa-")
# What anything else spins through: it says nothing of who does.
_OF_THE_SYSTEM = ("libc.so", "libc-", "libpthread", "ld-linux", "ld-musl", "librt", "[vdso]")
_BUSY_SHARE = 0.3  # of one core
_TICKS_PER_S = 100.0
_SAMPLES = 3
_BETWEEN_S = 0.013  # no multiple of anything that a program does by the clock
_STOPS_WITHIN_S = 0.5  # microseconds, but for a machine with far more threads than cores
_MOST_BESIDE = 3  # threads of one process, the busiest ones
_STACK_BYTES = 2048
_LINK_REGISTER = 30  # of aarch64: the return address of a function that calls none


def positions(before: Look, after: Look, *, at_most_s: float) -> tuple[Position, ...]:
    """Of threads without sleep between two looks, in processes that have a GPU's driver mapped.

    A process with a thread that must not be stopped (`stoppable`) is left alone. Never raises.
    """
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        return ()
    deadline = time.monotonic() + at_most_s
    sampled: list[Position] = []
    for process in after.processes:
        tids = _busy(before.of(process.pid), process)
        left_s = deadline - time.monotonic()
        if tids and left_s > 0:
            # The kernel lets go of whatever a thread of ours has traced when that ends. Who reads
            # the maps of a process may wait for a lock that a thread hanging in the kernel has.
            arguments = (machine, process.pid, tids, sampled.append)
            sampler = threading.Thread(target=_sample, args=arguments, daemon=True)
            sampler.start()
            sampler.join(left_s)
    return tuple(sampled)


def _busy(before: ProcessLook | None, after: ProcessLook) -> list[int]:
    """The main thread if it uses a core, and the busiest others that do."""
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


def _sample(
    machine: Machine, pid: int, tids: Sequence[int], tell: Callable[[Position], None]
) -> None:
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
                    position = _position(machine, pid, tid, code, memory)
                    tell(position)
                    if position.problem:
                        return  # one that has not stopped yet is let go of at the end of this
    except OSError as error:
        tell(Position(pid, tids[0], time.monotonic_ns(), problem=error.strerror or str(error)))


def _position(
    machine: Machine, pid: int, tid: int, code: Sequence[Mapping], memory: Memory
) -> Position:
    at_ns = time.monotonic_ns()
    problem = why_not_thread(pid, tid)
    if problem:
        return Position(pid, tid, at_ns, problem=f"it {problem}")
    try:
        reading = _registers(tid)
    except OSError as error:
        return Position(pid, tid, at_ns, problem=error.strerror or str(error))
    if reading is None:
        return Position(pid, tid, at_ns, problem="it did not stop in time")
    registers, pause_ms = reading
    at = machine.position(registers)
    library = _library(code, at)
    returns = [at, *_returns(machine, registers, memory)]
    callers = (name for word in returns if (name := _library(code, word)))
    caller = next((name for name in callers if not name.startswith(_OF_THE_SYSTEM)), "")
    return Position(pid, tid, at_ns, library or "", caller, round(pause_ms, 3))


def _registers(tid: int) -> tuple[bytes, float] | None:
    """Stops the thread for as long as it takes to read them, in ms; None if it does not in time."""
    tracee = Tracee(tid)
    tracee.interrupt()
    stop = tracee.wait(time.monotonic() + _STOPS_WITHIN_S)
    if stop is None or stop.kind == "gone":
        return None
    stopped = time.monotonic()
    try:
        registers = tracee.register_set(NT_PRSTATUS)
    finally:
        with contextlib.suppress(OSError):
            tracee.detach(stop.signal if stop.kind == "signal" else 0)
    return registers, (time.monotonic() - stopped) * 1e3


def _returns(machine: Machine, registers: bytes, memory: Memory) -> tuple[int, ...]:
    """What may be return addresses: the words at the top of its stack, innermost first."""
    link = ()
    if machine.name == "aarch64":
        link = struct.unpack_from("<Q", registers, 8 * _LINK_REGISTER)
    for size in (_STACK_BYTES, 128):
        with contextlib.suppress(OSError):
            words = memory.read(machine.stack(registers), size)
            return (*link, *struct.unpack(f"<{size // 8}Q", words))
    return link


def _library(code: Sequence[Mapping], address: int) -> str | None:
    """The file that the instruction at `address` is of; None where there is no code."""
    return next((mapping.name for mapping in code if mapping.start <= address < mapping.end), None)
