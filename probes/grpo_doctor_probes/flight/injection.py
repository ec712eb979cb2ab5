"""A dump of the flight recorder out of a process that was not prepared for it.

One sleeping thread is borrowed for one call (`borrow`). The caller decides that the job is stuck;
here is decided only whether the call is safe. What it can't do is refused, with the reason. NCCL's
recorder is read out of memory where that can be done (`ring`), which stops nothing. Else it is
asked for its groups and counters only (`recorders`), while nobody has its mutex, and such a call is
never ended by force.
"""

from __future__ import annotations

import platform
import struct
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor_probes.bounded import within
from grpo_doctor_probes.discover.permission import why_refused
from grpo_doctor_probes.evidence import FlightDump, Member, ProcessLook
from grpo_doctor_probes.flight import recorders, ring
from grpo_doctor_probes.flight.aarch64 import Aarch64
from grpo_doctor_probes.flight.borrow import Borrowed, NotBorrowedError, TargetProcess
from grpo_doctor_probes.flight.machine import Machine
from grpo_doctor_probes.flight.recorders import Recorder
from grpo_doctor_probes.flight.sleepers import choose, find_sleepers, tracer_of, why_none
from grpo_doctor_probes.flight.x86_64 import X8664
from grpo_doctor_probes.memory.access import Mapping, Memory, WritableMemory, mapped
from grpo_doctor_probes.memory.elf import MACHINE_NAMES, ElfError, library
from grpo_doctor_probes.procfs import status
from grpo_doctor_probes.procstat import read_stat

_FINI_BYTES = 32
MACHINES: dict[str, Machine] = {"x86_64": X8664(), "aarch64": Aarch64()}
_PROC = Path("/proc")
_TRIES = 4  # threads at a time, and times that none can be borrowed
_AGAIN_S = 0.05
_MAX_RETURN_LIBRARY_BYTES = 8 << 20
_READS_WITHIN_S = 3.0  # milliseconds, unless a hanging thread holds the memory lock of the process


def find_bare_return(machine: Machine, maps: Sequence[Mapping], memory: Memory) -> int:
    """The address of a `bare_return`, 0 where none is found: there an exception of the call ends.

    The signal return can be unwound, so an exception would go on to what the thread was in, and be
    caught there: a failed call would become an error of the job's own. So the call returns by an
    address without unwinding information. C++ ends a thread whose exception gets there (`abort`),
    and that is taken back.

    Such an address is the end of `_fini`, which every library has from the C compiler's own files.
    Where there is none, as with processors that sign return addresses, all is as without.
    """
    for mapping in maps:
        if mapping.offset or not mapping.path.startswith("/"):
            continue
        try:
            last = library(memory.read, mapping.start).last
            at = memory.read(last, _FINI_BYTES).find(machine.bare_return) if last else -1
        except (ElfError, OSError, struct.error):  # a file that is no library
            continue
        if at >= 0:
            return last + at
    return 0


class RefusedError(Exception):
    """The call is not made; the message says why, and what would help."""


@dataclass(frozen=True)
class Target:
    """A process that can be asked, and by which functions."""

    process: TargetProcess
    maps: tuple[Mapping, ...]
    recorders: tuple[Recorder, ...]


def inject(member: Member, look: ProcessLook, *, at_most_s: float = 2.0) -> FlightDump:
    """The dump of NCCL's recorder if it has entries, else that of the other. Never raises OSError.

    `look` is a recent look at the process: threads that slept then and since are preferred.
    The process loses one helper thread for `pause_ms`, and the memory of the text.
    """
    dumps = inject_all(member, look, at_most_s=at_most_s)
    return max(dumps, key=lambda d: (b'"entries"' in d.data, bool(d.data), d.backend == "nccl"))


def inject_all(
    member: Member, look: ProcessLook, *, at_most_s: float = 2.0
) -> tuple[FlightDump, ...]:
    """The dump of each recorder that the process has, or one that says why there is none."""
    # In a thread of its own: Ctrl-C does not come in the midst of a call, and whatever is still
    # traced when it ends is let go of by the kernel.
    with ThreadPoolExecutor(1) as tracer:
        return tracer.submit(_inject_all, member, look, at_most_s).result()


def _inject_all(member: Member, look: ProcessLook, at_most_s: float) -> tuple[FlightDump, ...]:
    start = time.monotonic()
    try:
        _check(member)
        with WritableMemory(member.pid) as memory:
            target = within(_READS_WITHIN_S, lambda: find_target(member, memory))
            share = at_most_s / len(target.recorders)
            return tuple(
                _dump(target, recorder, member, look, start + share * number)
                for number, recorder in enumerate(target.recorders, 1)
            )
    except RefusedError as error:  # without torch: so is one that has given back its memory
        return (_empty(member, "", _why_ended(member) or str(error)),)
    except (FileNotFoundError, ProcessLookupError):
        return (_empty(member, "", "the process ended"),)
    except PermissionError:
        return (_empty(member, "", _why_ended(member) or why_refused(member.pid)),)
    except (ElfError, OSError) as error:
        reason = _why_ended(member) or f"its libraries can't be read: {error}"
        return (_empty(member, "", reason),)


def _why_ended(member: Member) -> str:
    """That the process has ended, where it has: while it dies all is refused and its memory empty.

    "" where it is still there.
    """
    try:
        _check(member)
    except RefusedError as reason:
        return str(reason)
    except OSError:
        return "the process ended"
    return ""


def _check(member: Member) -> None:
    """Refuses what is not the process that was found, or can't be called into at all."""
    folder = _PROC / str(member.pid)
    stat = read_stat(folder)
    if member.started_ticks and stat.started_ticks != member.started_ticks:
        raise RefusedError("the process ended, and another one has its number")
    if stat.dead or not stat.virtual_bytes:
        raise RefusedError("the process is dead, its parent has not collected it yet")
    if not all(_is_text(name) for name in folder.glob("task/*/comm")):
        # The recorder writes the names into JSON, and throws where one is cut within a character.
        raise RefusedError("a thread's name is no UTF-8, which its recorder can't write")
    if "shstk" in status(folder).get("x86_Thread_features", ""):
        raise RefusedError("it runs with shadow stacks, which refuse calls from outside")


def _is_text(file: Path) -> bool:
    try:
        file.read_text("utf-8")
    except UnicodeDecodeError:
        return False
    except OSError:  # the thread has ended
        return True
    return True


def find_target(member: Member, memory: WritableMemory) -> Target:
    """What to call in the process, and how. Raises RefusedError, ElfError, OSError."""
    maps = mapped(member.pid)
    torch = recorders.loaded(maps, recorders.CPU_LIBRARY)
    if torch is None:
        raise RefusedError("it has not loaded torch")
    number = library(memory.read, torch.start).machine
    name = MACHINE_NAMES.get(number, f"ELF machine {number}")
    if name not in MACHINES or name != platform.machine():
        raise RefusedError(f"it is built for {name}, and this is {platform.machine()}")
    machine = MACHINES[name]
    callable_recorders = recorders.recorders(maps, memory)
    if not callable_recorders:
        version = f"torch {member.torch}" if member.torch else "its torch"
        raise RefusedError(f"{version} has no function that dumps the recorder; 2.8 and newer do")
    return_to = find_return_code(machine, maps, memory)
    by = find_bare_return(machine, maps, memory)
    process = TargetProcess(member.pid, machine, memory, return_to, by)
    return Target(process, maps, callable_recorders)


def find_return_code(machine: Machine, maps: tuple[Mapping, ...], memory: Memory) -> int:
    """The address of the instructions that end a signal handler."""
    for mapping in maps:
        if mapping.name == machine.return_library and "x" in mapping.rights:
            size = min(mapping.end - mapping.start, _MAX_RETURN_LIBRARY_BYTES)
            at = memory.read(mapping.start, size).find(machine.return_code)
            if at >= 0:
                return mapping.start + at
    raise RefusedError(f"its C library is not glibc: no way back found in {machine.return_library}")


def _dump(
    target: Target, recorder: Recorder, member: Member, look: ProcessLook, deadline: float
) -> FlightDump:
    """Asks one recorder, by one thread after another until one can be borrowed."""
    if answer := ring.dump_from_memory(target.process, recorder, member, deadline):
        return answer
    reason, failures = "there was no time left to ask it", 0
    while failures < _TRIES:
        sleepers = find_sleepers(member.pid)
        asleep_in = target.process.machine.asleep_in
        chosen = choose(sleepers, member.pid, look.threads, target.maps, asleep_in)
        if not chosen:
            failures += 1
            reason = f"no thread can be borrowed: {why_none(sleepers, target.maps, asleep_in)}"
        for sleeper in chosen[:_TRIES]:
            if time.monotonic() >= deadline:  # a call would be taken back as soon as it began
                break
            try:
                return _ask(target.process, sleeper.tid, recorder, member, deadline)
            except NotBorrowedError as error:
                reason = f"no thread can be borrowed: the last one tried {error}"
            except PermissionError:  # somebody else traces the thread, or it ends
                tracer = tracer_of(member.pid)
                traced = f"{tracer} is tracing it; try again" if tracer else ""
                reason = _why_ended(member) or traced or why_refused(member.pid)
            except ProcessLookupError:
                reason = "the thread ended"
        if time.monotonic() + _AGAIN_S >= deadline:
            break
        time.sleep(_AGAIN_S)
    return _empty(member, recorder.backend, reason)


def _ask(
    process: TargetProcess, tid: int, recorder: Recorder, member: Member, deadline: float
) -> FlightDump:
    """Asks a recorder by thread `tid`."""
    data, problem = b"", ""
    borrowed = Borrowed(process, tid, take_back=not recorder.has_events)
    with borrowed as thread:
        ending = thread.call(recorder.call(thread.scratch), deadline)
        if ending == "returned":
            try:
                data = recorders.result(process.memory, thread.scratch)
            except (OSError, ValueError) as error:
                problem = f"its answer can't be read: {error}"
    if ending != "returned":
        problem = _words(borrowed)
    empty = _empty(member, recorder.backend, problem)
    return replace(empty, data=data, pause_ms=round(borrowed.stopped_ms, 3))


def _words(borrowed: Borrowed) -> str:
    """What a call that did not return means."""
    if borrowed.left_alone:
        return "the recorder did not answer in time; the thread goes on by itself when it does"
    if borrowed.ending == "gone":
        return "the process ended meanwhile"
    if borrowed.ending == "crashed":
        return "the call faulted; the thread was put back as it was"
    if borrowed.ending == "returned":
        return "the recorder answered too late"
    return "the recorder is locked by another thread; the call was taken back"


def _empty(member: Member, backend: str, problem: str) -> FlightDump:
    return FlightDump("ptrace", member.rank, member.pid, backend, time.time_ns(), problem=problem)
