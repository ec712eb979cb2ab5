"""What every blocked thread of a job waits for, and who could end the wait: one function for each
way to wait.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from grpo_doctor_probes.evidence import Blocked, Blocking, Job, Look, ProcessLook, Thread
from grpo_doctor_probes.look import syscalls
from grpo_doctor_probes.look.filecalls import (
    wait_between_tries,
    wait_for_fcntl,
    wait_for_flock,
    wait_for_path,
)
from grpo_doctor_probes.look.hostview import HostView, watched_by_epoll
from grpo_doctor_probes.look.other_ends import Direction, Waiting, is_in_trouble
from grpo_doctor_probes.look.processes import SchedulerClock, look_at
from grpo_doctor_probes.look.syscalls import Call, Waits, call

_ASLEEP = frozenset("SD")
_MOST_ROWS = 32  # of one process
_MOST_DESCENDANTS = 512

Polled = list[tuple[int, bool, bool]]

_MOST_POLLED = 8


def _descriptor(direction: Direction) -> Callable[[Waiting, Call], Iterator[Blocked]]:
    def wait(waiting: Waiting, call: Call) -> Iterator[Blocked]:
        yield waiting.end(waiting.descriptor(call.at), direction)

    return wait


def _poll(waiting: Waiting, _: Call) -> Iterator[Blocked]:
    proc, pid, address, count = waiting.view.proc, waiting.pid, *map(waiting.argument, (0, 1))
    polled: Polled = waiting.in_memory(lambda: syscalls.polled(proc, pid, address, count), [])
    yield from _any_of(waiting, polled)


def _select(waiting: Waiting, _: Call) -> Iterator[Blocked]:
    proc, pid, count = waiting.view.proc, waiting.pid, waiting.argument(0)
    sets = (waiting.argument(1), waiting.argument(2))
    selected: Polled = waiting.in_memory(lambda: syscalls.selected(proc, pid, count, sets), [])
    yield from _any_of(waiting, selected)


def _epoll(waiting: Waiting, call: Call) -> Iterator[Blocked]:
    watched = watched_by_epoll(waiting.view.proc, waiting.pid, waiting.descriptor(call.at))
    yield from _any_of(waiting, watched)


def _any_of(waiting: Waiting, polled: Polled) -> Iterator[Blocked]:
    """Rows of a thread that waits for any of several. Of a helper thread's event loop only the
    connections in trouble are reported: to wait for the next event is its work."""
    view, pid = waiting.view, waiting.pid
    if not waiting.is_main or len(polled) > _MOST_POLLED:
        polled = [watched for watched in polled if is_in_trouble(view, pid, watched[0])]
    rows = [
        waiting.end(fd, "out" if writing and not reading else "in")
        for fd, reading, writing in polled[:_MOST_POLLED]
    ]
    rows = [row for row in rows if row.kind != "other"]  # wake-up descriptors of event loops
    yield from rows or ([waiting.row("poll")] if waiting.is_main else [])


def _child(waiting: Waiting, call: Call) -> Iterator[Blocked]:
    pid = waiting.argument(0)
    if call.waits == "child-id":
        pid = waiting.argument(1) if pid == os.P_PID else 0
    children = waiting.view.tree.children(waiting.pid)
    matches = [child for child in children if child.pid == pid & 0xFFFFFFFF]
    peers = tuple(child.pid for child in matches or children)
    subject = "child" if matches else "any child"
    listed = ", ".join(map(waiting.view.describe, peers[:_MOST_POLLED]))
    yield waiting.row(
        "child", f"waits for {subject}: {listed or 'none is left'}", peers=peers, peers_known=True
    )


def _only_main(kind: Blocking) -> Callable[[Waiting, Call], Iterator[Blocked]]:
    def wait(waiting: Waiting, _: Call) -> Iterator[Blocked]:
        if waiting.is_main:
            yield waiting.row(kind)

    return wait


def _sleep(waiting: Waiting, _: Call) -> Iterator[Blocked]:
    """Between two tries for a lock, as databases do, a process sleeps with the file open."""
    if waiting.is_main:
        yield from wait_between_tries(waiting)
        yield waiting.row("sleep")


def _restarted(waiting: Waiting, call: Call) -> Iterator[Blocked]:
    """After SIGCONT or a thaw the kernel shows `restart_syscall` in place of the call."""
    wchan = waiting.thread.wchan
    kind: Blocking = "sleep" if "nanosleep" in wchan else "futex" if "futex" in wchan else "poll"
    yield from _only_main(kind)(waiting, call)


def _unusual(waiting: Waiting, call: Call) -> Iterator[Blocked]:
    if waiting.thread.state == "D" or waiting.is_main:
        yield waiting.row("other", call.name)


WAITS: dict[Waits, Callable[[Waiting, Call], Iterator[Blocked]]] = {
    "read": _descriptor("in"),
    "write": _descriptor("out"),
    "receive": _descriptor("in"),
    "send": _descriptor("out"),
    "connect": _descriptor("connect"),
    "accept": _descriptor("accept"),
    "file": _descriptor("in"),
    "flock": wait_for_flock,
    "fcntl": wait_for_fcntl,
    "path": wait_for_path,
    "poll": _poll,
    "select": _select,
    "epoll": _epoll,
    "child": _child,
    "child-id": _child,
    "futex": _only_main("futex"),
    "sleep": _sleep,
    "restarted": _restarted,
    "other": _unusual,
}


def blocked(job: Job, look: Look, proc: Path = Path("/proc")) -> tuple[Blocked, ...]:
    """Return rows for the blocked threads of the job's processes and of all processes below them.

    Of helper threads only calls on descriptors, children and locks are reported: they idle in futex
    and sleep by nature. One thread has several rows where it polls several descriptors.
    """
    pids = tuple(member.pid for member in job.members)
    view = HostView(proc, pids)
    clock = SchedulerClock(proc)
    descendants = set[int]().union(*map(view.tree.descendants, pids)).difference(pids)
    below = (look_at(pid, 0, clock, proc) for pid in sorted(descendants)[:_MOST_DESCENDANTS])
    rows: list[Blocked] = []
    for process in (*look.processes, *below):
        rows += list(_of_process(view, process))[:_MOST_ROWS]
    return tuple(rows)


def _of_process(view: HostView, process: ProcessLook) -> Iterator[Blocked]:
    if process.state in "Tt":
        return
    for thread in process.threads:
        if thread.state in _ASLEEP:
            yield from _of_thread(view, process, thread)


def _of_thread(view: HostView, process: ProcessLook, thread: Thread) -> Iterator[Blocked]:
    waiting = Waiting(view, process.pid, thread, is_main=thread.tid == process.pid)
    if (wait := call(thread.syscall)) is not None:
        for row in WAITS[wait.waits](waiting, wait):
            yield row if row.note else replace(row, note=wait.name)
    elif thread.state == "D":
        where = f"in the kernel function {thread.wchan}" if thread.wchan else "in the kernel"
        yield waiting.row("other", note=f"uninterruptible sleep {where}")
