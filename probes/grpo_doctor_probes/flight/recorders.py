"""Torch's flight recorders of a process, read out of its memory: no thread stops, none is called.

There are two: NCCL's, and that of gloo, the CPU and hooked backends. Each hangs on a pointer that
is static in a function of torch's and that no library exports. The code of an exported function
leads to it (`memory.statics`), and `ring` reads what is there.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.discover.permission import why_refused
from grpo_doctor_probes.evidence import FlightDump, Member
from grpo_doctor_probes.flight.ring import (
    LAYOUTS,
    RecordedMeanwhileError,
    UnknownRecorderError,
    is_on,
    read_ring,
)
from grpo_doctor_probes.memory.access import Mapping, Memory, mapped
from grpo_doctor_probes.memory.elf import MACHINE_NAMES, ElfError, library
from grpo_doctor_probes.memory.statics import static_pointer
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.procstat import read_stat

CPU_LIBRARY = "libtorch_cpu.so"
GPU_LIBRARY = "libtorch_cuda.so"
_STRING = "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"  # const std::string&
# Backend, library, and an exported function whose code reads the recorder's pointer.
ANCHORS = (
    ("fr", CPU_LIBRARY, "_ZN4c10d18dump_fr_trace_jsonB5cxx11Ebb"),  # torch 2.8 to 2.14
    ("fr", CPU_LIBRARY, "_ZN4c10d17getFlightRecorderE" + _STRING),  # 2.15
    ("nccl", GPU_LIBRARY, "_ZN4c10d20dump_nccl_trace_jsonB5cxx11Ebb"),
)
_OFF = "its flight recorder is off; start the job with TORCH_FR_BUFFER_SIZE=2000 to have it"
_PIPE = (
    "start the job with TORCH_NCCL_DEBUG_INFO_PIPE_FILE=PREFIX; then `echo 1 > PREFIX<rank>.pipe` "
    "makes a rank write its dump, and attach finds it"
)
_TOO_OLD = (
    "no flight recorder of its torch can be read from outside, only of 2.8 and newer; start with "
    "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 to get dump files"
)


@dataclass(frozen=True)
class Recorder:
    """A recorder of a process. `anchor` is the address of the function whose code leads to it."""

    backend: str
    machine: str
    anchor: int


class NoRecorderError(Exception):
    """There is nothing to read; the message says why, and what would help."""


def read_recorders(member: Member, *, at_most_s: float = 2.0) -> tuple[FlightDump, ...]:
    """Return the dump of each recorder that the process has, or one that says why there is none.

    It takes 0.1 s for 2,000 entries. Who reads the memory of a process may have to wait for a lock
    that a thread hanging in the kernel has: that is given up after `at_most_s`. Never raises
    OSError.
    """
    try:
        return within(at_most_s, lambda: _read(member))
    except TimeoutError:
        return (_dump(member, problem="its memory gave no answer in time"),)
    except NoRecorderError as error:  # without torch: so is one that has given back its memory
        return (_dump(member, problem=_why_ended(member) or str(error)),)
    except (FileNotFoundError, ProcessLookupError):
        return (_dump(member, problem="the process ended"),)
    except PermissionError:
        return (_dump(member, problem=_why_ended(member) or why_refused(member.pid)),)
    except (ElfError, OSError) as error:
        reason = _why_ended(member) or f"its libraries can't be read: {error}"
        return (_dump(member, problem=reason),)


def _read(member: Member) -> tuple[FlightDump, ...]:
    reason = _why_ended(member)
    if reason:
        raise NoRecorderError(reason)
    with Memory(member.pid) as memory:
        maps = mapped(member.pid)
        recorders = find_recorders(maps, memory)
        if not recorders:
            raise NoRecorderError(_TOO_OLD)
        dumps = tuple(_dump_of(member, memory, recorder) for recorder in recorders)
    made = tuple(dump for dump in dumps if dump.data or dump.problem)
    return made or (_dump(member, problem="no process group was made yet"),)


def find_recorders(maps: Sequence[Mapping], memory: Memory) -> tuple[Recorder, ...]:
    """The recorders that its libraries have, that of gloo and CPU first; () where torch is too old.

    Raises:
        NoRecorderError: torch is not loaded, or is built for an unknown processor.
        ElfError, OSError: a library's symbols can't be read.
    """
    starts = {mapping.name: mapping.start for mapping in reversed(maps) if mapping.offset == 0}
    if CPU_LIBRARY not in starts:
        raise NoRecorderError("it has not loaded torch")
    number = library(memory.read, starts[CPU_LIBRARY]).machine
    machine = MACHINE_NAMES.get(number, f"ELF machine {number}")
    if machine not in LAYOUTS:
        raise NoRecorderError(f"its torch is built for {machine}, of which no layout is known")
    return tuple(
        Recorder(backend, machine, address)
        for backend, name, function in ANCHORS
        if name in starts and (address := library(memory.read, starts[name]).address_of(function))
    )


def _dump_of(member: Member, memory: Memory, recorder: Recorder) -> FlightDump:
    """Return what a recorder has, or why that is unknown; neither where it was not made yet."""
    data, problem, recorded = b"", "", False
    try:
        at = recorder_at(memory, recorder)
        if at is not None and is_on(memory, recorder.machine, at):
            data = read_ring(memory, recorder.machine, at)
        elif at is not None:
            problem = _OFF
    except UnknownRecorderError as error:
        help_ = f"; {_PIPE}" if recorder.backend == "nccl" else ""
        problem = f"its flight recorder can't be read: {error}{help_}"
        recorded = isinstance(error, RecordedMeanwhileError)
    return _dump(member, recorder.backend, data, problem, recorded=recorded)


def recorder_at(memory: Memory, recorder: Recorder) -> int | None:
    """Return the address of a recorder; None where the process has made none yet.

    Raises:
        UnknownRecorderError: it is unknown.
        OSError: the memory can't be read.
    """
    guard = static_pointer(memory, recorder.anchor, recorder.machine)
    if guard is None:
        raise UnknownRecorderError("torch's code has another form than in torch 2.8 to 2.15")
    made, address = struct.unpack("<BxxxxxxxQ", memory.read(guard, 16))
    return address if made and address else None


def _why_ended(member: Member) -> str:
    """That the process has ended, where it has: while it dies all is refused and its memory empty.

    "" where it is still there.
    """
    try:
        stat = read_stat(Path(f"/proc/{member.pid}"))
    except OSError:
        return "the process ended"
    if member.started_ticks and stat.started_ticks != member.started_ticks:
        return "the process ended, and another one has its number"
    if stat.dead or not stat.virtual_bytes:
        return "the process is dead, its parent has not collected it yet"
    return ""


def _dump(
    member: Member,
    backend: str = "",
    data: bytes = b"",
    problem: str = "",
    *,
    recorded: bool = False,
) -> FlightDump:
    now, pid = time.time_ns(), member.pid
    return FlightDump("memory", member.rank, pid, backend, now, data, problem, recorded)
