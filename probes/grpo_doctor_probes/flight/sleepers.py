"""Which thread of a process to borrow: one that sleeps in a system call, and least in the way.

A thread asleep in one of `Machine.asleep_in` is not within malloc: the allocator enters the kernel
only for memory and for its locks, and who waits for those holds none. What it may hold is the
recorder's lock, if a GPU call sleeps under it; hence the order of preference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.evidence import Thread
from grpo_doctor_probes.memory.access import Mapping
from grpo_doctor_probes.printable import printable
from grpo_doctor_probes.procfs import status
from grpo_doctor_probes.procstat import read_stat

STACK_BYTES = 64 * 1024  # a dump needs a tenth; coroutines' stacks may have less
_MAX_THREADS = 4096
# Helpers that wait for the next piece of work, then unknown ones, then those that may be in the
# midst of a GPU call, then the thread whose system calls the user's code sees interrupted.
_HELPERS = ("gloo_tcp", "pt_gloo", "pt_nccl_heartbt", "pt_autograd", "pin_memory", "QueueFeeder")
_LAST = ("pt_nccl_watchdg", "cuda-EvtHandlr", "NCCL ", "cuda")
_GIVE_EINTR = ("epoll_wait", "epoll_pwait", "epoll_pwait2")  # never resumed, whatever interrupts
_FREEZER_WAITS = ("do_freezer_trap", "__refrigerator")


@dataclass(frozen=True)
class Sleeper:
    """A thread as it is now. `system_call` is -1 outside of one; `stack` is its stack pointer;
    `switches` is how often it went to sleep by itself, -1 unknown."""

    tid: int
    name: str
    state: str
    system_call: int
    stack: int
    wait: str
    switches: int = -1


def parse_system_call(text: str) -> tuple[int, int]:
    """Number and stack pointer in the text of a /proc syscall file; -1, 0 while it runs."""
    fields = text.split()
    if len(fields) < 3:
        return -1, 0
    return int(fields[0]), int(fields[-2], 16)


def find_sleepers(pid: int, proc: Path = Path("/proc")) -> tuple[Sleeper, ...]:
    """All threads of process `pid` now. Raises OSError where it is gone or may not be read."""
    sleepers = []
    for folder in sorted((proc / str(pid) / "task").iterdir(), key=lambda p: int(p.name)):
        try:
            sleepers.append(_sleeper(folder))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended meanwhile
        if len(sleepers) == _MAX_THREADS:
            break
    return tuple(sleepers)


def _sleeper(folder: Path) -> Sleeper:
    stat = read_stat(folder)
    number, stack = parse_system_call((folder / "syscall").read_text())
    try:
        wait = (folder / "wchan").read_text()
    except FileNotFoundError:  # a kernel built without it
        wait = ""
    name = stat.name.decode("utf-8", "replace")
    switches = int(status(folder).get("voluntary_ctxt_switches", -1))
    return Sleeper(int(folder.name), name, stat.state, number, stack, wait, switches)


def tracer_of(pid: int, proc: Path = Path("/proc")) -> str:
    """Who traces a thread of `pid`, in words; "" if nobody does."""
    for task in (proc / str(pid) / "task").glob("*"):
        tracer = status(task).get("TracerPid", "0")
        if tracer != "0":
            return f"process {tracer} ({printable(status(proc / tracer).get('Name', 'unknown'))})"
    return ""


def choose(
    sleepers: Sequence[Sleeper],
    pid: int,
    earlier: Sequence[Thread],
    maps: Sequence[Mapping],
    asleep_in: Dictionary[int, str],
) -> tuple[Sleeper, ...]:
    """The threads that may be borrowed, the best first. `earlier` is how they were before."""
    before = {thread.tid: thread.voluntary for thread in earlier}

    def preference(sleeper: Sleeper) -> tuple[bool, int, bool, bool, int]:
        woke = before.get(sleeper.tid) != sleeper.switches
        call = asleep_in.get(sleeper.system_call, "")
        kind = _kind(sleeper, pid)
        return kind == 3, kind, woke, call in _GIVE_EINTR or not call, sleeper.tid

    usable = [s for s in sleepers if why_not(s, maps, asleep_in) is None]
    return tuple(sorted(usable, key=preference))


def _kind(sleeper: Sleeper, pid: int) -> int:
    if sleeper.tid == pid:
        return 3
    if sleeper.name.startswith(_LAST):
        return 2
    return 0 if sleeper.name.startswith(_HELPERS) else 1


def why_not(
    sleeper: Sleeper, maps: Sequence[Mapping], asleep_in: Dictionary[int, str]
) -> str | None:
    """Why a thread may not be borrowed, None if it may."""
    reasons = {
        "R": "running",
        "D": "in uninterruptible sleep",
        "t": "held by another tracer",
        "Z": "dead",
        "X": "dead",
    }
    if sleeper.state in reasons:
        return reasons[sleeper.state]
    if sleeper.wait in _FREEZER_WAITS:
        return "in a frozen control group"
    # A stopped process shows no number on ARM; what its thread is in is looked at once it is held.
    if sleeper.system_call not in asleep_in and not (
        sleeper.state == "T" and sleeper.system_call == -1 and sleeper.stack
    ):
        return "in other system calls"
    stack = next((m for m in maps if m.start <= sleeper.stack < m.end), None)
    if stack is None or (sleeper.stack - stack.start < STACK_BYTES and stack.path != "[stack]"):
        return "on a stack that is too small"
    return None


def why_none(
    sleepers: Sequence[Sleeper], maps: Sequence[Mapping], asleep_in: Dictionary[int, str]
) -> str:
    """Why none of the threads may be borrowed, in words."""
    counts = Counter(why_not(sleeper, maps, asleep_in) or "usable" for sleeper in sleepers)
    return ", ".join(f"{count} {reason}" for reason, count in counts.most_common())
