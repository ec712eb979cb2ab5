"""What the coroutines of a process wait for: asyncio's tasks, read from memory.

A suspended coroutine is on no stack. But each task knows the coroutine that it runs, that one the
coroutine that it awaits, and so on to the innermost one, which waits for a future. Which tasks
complete that future is in their callbacks.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from grpo_doctor_probes.evidence import Await, Blocked, Frame
from grpo_doctor_probes.look.hostview import HostView
from grpo_doctor_probes.look.other_ends import end_of
from grpo_doctor_probes.memory.access import Memory, mapped
from grpo_doctor_probes.memory.elf import ElfError
from grpo_doctor_probes.memory.python import NoObjectError, Objects, Suspended, UnknownPythonError
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.printable import printable

_AT_MOST_S, _ALL_AT_MOST_S = 2.0, 6.0
_MOST_TASKS = 4096
_MOST_CHAINS = 1024
_MOST_FRAMES = 64
_MOST_LOOKED_AT = 64  # objects from one callback
_MOST_ROWS = 8
_TASK, _FUTURE = "_asyncio.Task", "_asyncio.Future"
_CALLBACK, _CALLBACKS = 1, 3  # words of a future behind its header
_COROUTINES = ("coroutine", "generator", "async_generator")
_OF_CYTHON = ".coroutine"  # without a frame that could be read, as Ray's around each method
_RUNS = re.compile(r"(^|\.)coroutine$|^generator$")
_WRAPPERS = ("coroutine_wrapper", "async_generator_asend", "anext_awaitable")
_FOLLOWED = (*_COROUTINES, *_WRAPPERS)
# What connects a callback of asyncio's own with the future that it completes.
_LEADS_ON = frozenset(
    {"function", "tuple", "cell", "method", "functools.partial", "list", "TaskGroup"}
    | {"_asyncio.Future", "_GatheringFuture"}
)
_FROM_OUTSIDE = frozenset({"_call_set_state", "_run_until_complete_cb"})
# Who waits for a lock may wait for a coroutine that waits for what comes from outside.
_NEAR_THE_END = {"connection": 0, "thread": 0, "future": 1, "ray": 2}
_CYTHON = "cython_function_or_method"  # as which uvloop has the second of these
_BY_THREAD = "_call_check_cancel"
_OF_RAY = "object_ref"  # what Ray adds to the future of an answer
_GONE = (NoObjectError, OSError)
# Whose methods wait for a connection: of asyncio and aiohttp, and of anyio, which httpx uses.
_STREAMS = frozenset({"StreamReader", "StreamWriter", "SocketStream", "ResponseHandler"})
_TO_SOCKET = re.compile(r"(Transport|Protocol|ResponseHandler)$")
_MOST_LAYERS = 4  # TLS has a transport and a protocol above those of the socket
_SOCKET_CALLS = frozenset(
    {"sock_recv", "sock_recv_into", "sock_sendall", "sock_connect", "sock_accept"}
)


def awaits(
    loops: Sequence[tuple[int, int]], proc: Path = Path("/proc")
) -> tuple[tuple[Await, ...], tuple[Blocked, ...]]:
    """Return what the coroutines in these event loops wait for, and their connections.

    Only those that other code than coroutines needs, where there are such. Stops nothing. Empty
    where a process has no tasks, or a Python that this can't read.

    Args:
        loops: process and thread of each.
        proc: /proc, or a stand-in.
    """
    view = HostView(proc, tuple(pid for pid, _ in loops))
    rows: list[Await] = []
    until = time.monotonic() + _ALL_AT_MOST_S
    for pid, tid in loops:
        left_s = min(_AT_MOST_S, until - time.monotonic())
        with contextlib.suppress(ElfError, UnknownPythonError, *_GONE):  # TimeoutError as well
            rows += within(left_s, lambda pid=pid, tid=tid: _read(pid, tid, proc))  # type: ignore[misc]
    ends = {(row.pid, row.fd): row.tid for row in rows if row.fd >= 0}
    return tuple(rows), tuple(end_of(view, pid, tid, fd, "in") for (pid, fd), tid in ends.items())


def _read(pid: int, tid: int, proc: Path) -> tuple[Await, ...]:
    with Memory(pid, proc) as memory:
        tasks = _Tasks(Objects(memory, mapped(pid, proc)))
        counts = Counter(replace(row, pid=pid, tid=tid) for row in tasks.awaits())
    ordered = sorted(counts, key=lambda row: (_NEAR_THE_END.get(row.what, 3), -counts[row]))
    return tuple(replace(row, count=counts[row]) for row in ordered[:_MOST_ROWS])


@dataclass(frozen=True, slots=True)
class _Task:
    """A task that has not ended: its coroutines, innermost first, and what is to be called."""

    coroutines: tuple[Suspended, ...]
    waiter: int
    callbacks: tuple[int, ...]


class _Tasks:
    """The tasks of a process, whose relations are in their futures."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._tasks: dict[int, _Task] = {}
        for address in self._listed():
            with contextlib.suppress(*_GONE):
                if (task := self._task(address)) is not None:
                    self._tasks[address] = task
        self._completed_by: dict[int, list[int]] = defaultdict(list)
        for address, task in self._tasks.items():
            for future in {future for each in task.callbacks for future in self._futures(each)}:
                self._completed_by[future].append(address)

    def awaits(self) -> Iterator[Await]:
        """Yield what the innermost coroutines wait for."""
        roots = [
            address
            for address, task in self._tasks.items()
            if any(
                self._code_name(callback) in _FROM_OUTSIDE or self._name(callback).endswith(_CYTHON)
                for callback in task.callbacks
            )
        ]
        paths: list[tuple[int, ...]] = [(root,) for root in roots or self._tasks]
        for _ in range(_MOST_CHAINS):
            if not paths:
                return
            path = paths.pop()
            waiter = self._tasks[path[-1]].waiter
            inner = [waiter] if waiter in self._tasks else self._completed_by.get(waiter, [])
            inner = [other for other in inner if other not in path]
            paths += [(*path, other) for other in inner]
            if not inner:
                with contextlib.suppress(*_GONE):
                    yield self._await([self._tasks[address] for address in reversed(path)])

    def _listed(self) -> Iterator[int]:
        objects = self._objects
        names = objects.module("asyncio.tasks")
        weak = names.get("_scheduled_tasks") or names.get("_all_tasks")
        if weak is not None:
            references = objects.members(objects.attributes(weak).get("data", 0))
            for reference in islice(references, _MOST_TASKS):
                yield objects.word(reference + 16)
        if (eager := names.get("_eager_tasks")) is not None:
            yield from objects.members(eager)

    def _task(self, address: int) -> _Task | None:
        objects = self._objects
        if not objects.is_a(address, _TASK):
            return None
        words = objects.contained(address)
        at = next((i for i, word in enumerate(words) if _RUNS.search(self._name(word))), 0)
        coroutines = tuple(self._coroutines(words[at])) if at else ()
        if not coroutines:
            return None
        return _Task(coroutines[::-1], words[at - 1], self._callbacks(address))

    def _callbacks(self, future: int) -> tuple[int, ...]:
        words = self._objects.contained(future) if self._name(future) else ()
        if len(words) <= _CALLBACKS:
            return ()
        several = self._name(words[_CALLBACKS]) == "list"
        return (words[_CALLBACK], *(self._inside(words[_CALLBACKS]) if several else ()))

    def _coroutines(self, coroutine: int) -> Iterator[Suspended]:
        """Yield the coroutine of a task, what that awaits, and so on."""
        objects = self._objects
        for _ in range(_MOST_FRAMES):
            name = self._name(coroutine)
            if name in _WRAPPERS:
                coroutine = objects.word(coroutine + 16)
                continue
            if name.endswith(_OF_CYTHON):
                inside = objects.contained(coroutine)
                followed = (each for each in inside if self._name(each) in _FOLLOWED)
                coroutine = next(followed, 0)
                continue
            suspended = objects.suspended(coroutine) if name in _COROUTINES else None
            if suspended is None:
                return
            yield suspended
            coroutine = suspended.awaits

    def _name(self, address: int) -> str:
        """Return the name of the type of an object; "" where it is none."""
        try:
            return self._objects.type_name(address) if address and not address & 7 else ""
        except _GONE:
            return ""

    def _inside(self, address: int) -> tuple[int, ...]:
        """Return objects that one of these connects; none of others."""
        name = self._name(address)
        try:
            if name == "TaskGroup":
                return tuple(self._objects.attributes(address).values())
            return self._objects.contained(address) if name in _LEADS_ON else ()
        except _GONE:
            return ()

    def _futures(self, callback: int) -> set[int]:
        """Return futures that a callback of asyncio's own knows."""
        found: set[int] = set()
        seen: set[int] = set()
        ahead = [callback]
        while ahead and len(seen) < _MOST_LOOKED_AT:
            address = ahead.pop(0)
            if address in seen:
                continue
            seen.add(address)
            ahead += self._inside(address)
            with contextlib.suppress(*_GONE):
                if self._name(address) and self._objects.is_a(address, _FUTURE):
                    found.add(address)
        return found

    def _code_name(self, callback: int) -> str:
        """Return the name of the code of a Python function; "" of others."""
        objects, inside = self._objects, self._inside(callback)
        code = next((word for word in inside if self._name(word) == "code"), 0)
        try:
            called = objects.text(objects.word(code + objects.layout.name)) if code else ""
        except _GONE:
            return ""
        return called.rpartition(".")[2]

    def _await(self, path: Sequence[_Task]) -> Await:
        """Return what a chain of tasks waits for, the innermost first."""
        coroutines = [coroutine for task in path for coroutine in task.coroutines]
        frames = (
            Frame(printable(each.function), printable(each.file, 300), each.line)
            for each in coroutines[:_MOST_FRAMES]
        )
        what, fd = self._what(path[0])
        return Await(0, 0, tuple(frames), printable(what, 80), fd)

    def _what(self, task: _Task) -> tuple[str, int]:
        """Return what the innermost coroutines wait for, and its descriptor or -1."""
        objects = self._objects
        for coroutine in task.coroutines:
            own = objects.local(coroutine, 0)
            if coroutine.function.rpartition(".")[2] in _SOCKET_CALLS:
                return "connection", self._descriptor(objects.local(coroutine, 1))
            if self._name(own) in _STREAMS:
                return "connection", self._of_stream(own)
        inner = task.coroutines[0]
        if inner.file.endswith(("/asyncio/locks.py", "/asyncio/queues.py")):
            return f"asyncio.{self._name(objects.local(inner, 0))}", -1
        if inner.file.endswith("/asyncio/tasks.py") and inner.function == "sleep":
            return "asyncio.sleep", -1
        return self._of_future(task.waiter), -1

    def _of_future(self, future: int) -> str:
        """Return who sets a future, where that is no coroutine."""
        for callback in self._callbacks(future):
            if self._code_name(callback) == _BY_THREAD:
                closure = (part for part in self._inside(callback) if self._name(part) == "tuple")
                cells = (cell for part in closure for cell in self._inside(part))
                sources = (each for cell in cells for each in self._inside(cell))
                named = (self._objects.attributes(s) for s in sources if self._name(s) == "Future")
                return "ray" if any(_OF_RAY in names for names in named) else "thread"
        return "future"

    def _of_stream(self, stream: int) -> int:
        """Return the descriptor of the socket below a stream; -1 where none was found."""
        objects, layer = self._objects, [stream]
        for _ in range(_MOST_LAYERS):
            below: list[int] = []
            for each in layer:
                with contextlib.suppress(*_GONE):
                    below += [*objects.attributes(each).values(), *objects.contained(each)]
            found = max(map(self._descriptor, below), default=-1)
            if found >= 0:
                return found
            layer = [each for each in below if _TO_SOCKET.search(self._name(each))]
        return -1

    def _descriptor(self, socket: int) -> int:
        is_socket = self._name(socket) and self._objects.is_a(socket, "_socket.socket")
        return self._objects.number(socket + 16) if is_socket else -1
