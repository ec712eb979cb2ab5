"""Counters, states and stacks of processes at one moment, and what a blocked call waits for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Blocking = Literal[
    "pipe-read",
    "pipe-write",
    "fifo-open",
    "socket-receive",
    "socket-send",
    "socket-connect",
    "socket-accept",
    "file",
    "file-lock",
    "child",
    "futex",
    "poll",
    "sleep",
    "other",
]


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of a process. `last_ran_ns` is CLOCK_MONOTONIC when it last had a core, from
    `se.exec_start` of /proc/PID/task/TID/sched; 0 where the kernel does not say.

    `syscall` is the number of the call it is in, -1 unknown, with its first six arguments.
    """

    tid: int
    name: str
    state: str
    wchan: str = ""
    syscall: int = -1
    arguments: tuple[int, ...] = ()
    cpu_ticks: int = 0
    voluntary: int = 0
    involuntary: int = 0
    run_delay_ns: int = 0
    last_ran_ns: int = 0


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """A process at `at_ns` (CLOCK_MONOTONIC). `state` is the letter of its main thread as in
    /proc/PID/stat; `X` when it has gone. `exit_code` is a wait status, of zombies only, where the
    kernel lets us read it. `threads[0]` is the main thread. Counters grow over its whole life.
    """

    pid: int
    at_ns: int
    state: str
    cpu_ticks: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    major_faults: int = 0
    rss_bytes: int = 0
    swap_bytes: int = 0
    exit_code: int | None = None
    threads: tuple[Thread, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """All processes of the job within a few milliseconds. `at_ns` is CLOCK_MONOTONIC."""

    at_ns: int
    processes: tuple[ProcessLook, ...]

    def of(self, pid: int) -> ProcessLook | None:
        """Return the look at one process."""
        return next((p for p in self.processes if p.pid == pid), None)


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a stack. `line` is 0 where unknown (native frames)."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class PythonThread:
    """A thread with Python frames, innermost first."""

    tid: int
    name: str
    frames: tuple[Frame, ...]
    owns_gil: bool = False


@dataclass(frozen=True, slots=True)
class Stack:
    """The Python threads of a process; `problem` says why there are none. Main thread first.

    `pause_ms` is for how long the process was stopped: 0 for nonblocking stacks.
    """

    pid: int
    at_ns: int
    threads: tuple[PythonThread, ...] = ()
    native: bool = False
    pause_ms: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """In which library a thread that uses a core was at one moment, by its instruction pointer.

    Both are file names. `caller` is the innermost library on its C stack that is not the C library
    itself, so that a spin through `sched_yield` is distinguished from other work. `pause_ms` is
    for how long the thread was stopped.
    """

    pid: int
    tid: int
    at_ns: int
    library: str = ""
    caller: str = ""
    pause_ms: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Locals:
    """A digest of all local variables on the main thread's Python stack. Where two of one process
    differ, its Python has run in between, wherever it stands. Empty with a `problem`.
    """

    pid: int
    at_ns: int
    digest: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Blocked:
    """What a thread's blocking call waits for. `target` is a path, an address or `pipe:[inode]`.

    `peers` are processes at the other end (whether or not of the job); `peers_known` is False
    where we could not look everywhere, so that an empty `peers` does not mean "no process". Of a
    connection: bytes that the other end has not confirmed, how often they were sent again, and what
    has arrived there and its program has not read. `stopped_peers` are those of `peers` that may
    not run. `note` says the rest in words, for people.
    """

    pid: int
    tid: int
    kind: Blocking
    fd: int = -1
    target: str = ""
    peers: tuple[int, ...] = ()
    peers_known: bool = False
    note: str = ""
    unconfirmed_bytes: int = 0
    retransmits: int = 0
    peer_unread_bytes: int = 0
    stopped_peers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Await:
    """Where coroutines of an event loop wait: suspended frames, innermost first, with those of the
    tasks that wait for them. `what` is `connection` (`fd`: -1 unknown), `thread` (another one sets
    the future), `ray` (a task's result), `future`, or a class of asyncio. `tid` is the loop's
    thread; `count` of its coroutines are at the same place.
    """

    pid: int
    tid: int
    frames: tuple[Frame, ...]
    what: str
    fd: int = -1
    count: int = 1


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Arguments of a function on the main thread's stack, as short texts: `{"src": "3"}`."""

    pid: int
    function: str
    values: dict[str, str]
