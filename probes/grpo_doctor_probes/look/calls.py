"""One function for each way to wait: from a blocked call to what it waits for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from grpo_doctor_probes.look import pointers
from grpo_doctor_probes.look.descriptors import watched_by_epoll
from grpo_doctor_probes.look.ends import is_in_trouble
from grpo_doctor_probes.look.filecalls import (
    wait_between_tries,
    wait_for_fcntl,
    wait_for_flock,
    wait_for_path,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from grpo_doctor_probes.evidence import Blocked
    from grpo_doctor_probes.evidence.looks import Blocking
    from grpo_doctor_probes.look.ends import Way
    from grpo_doctor_probes.look.syscalls import Call, Waits
    from grpo_doctor_probes.look.waiting import Waiting

    Polled = list[tuple[int, bool, bool]]

_MOST_POLLED = 8


def _descriptor(way: Way) -> Callable[[Waiting, Call], Iterator[Blocked]]:
    def wait(waiting: Waiting, call: Call) -> Iterator[Blocked]:
        yield waiting.end(waiting.descriptor(call.at), way)

    return wait


def _poll(waiting: Waiting, _: Call) -> Iterator[Blocked]:
    proc, pid, address, count = waiting.view.proc, waiting.pid, *map(waiting.argument, (0, 1))
    found: Polled = waiting.in_memory(lambda: pointers.polled(proc, pid, address, count), [])
    yield from _any_of(waiting, found)


def _select(waiting: Waiting, _: Call) -> Iterator[Blocked]:
    proc, pid, count = waiting.view.proc, waiting.pid, waiting.argument(0)
    sets = (waiting.argument(1), waiting.argument(2))
    found: Polled = waiting.in_memory(lambda: pointers.selected(proc, pid, count, sets), [])
    yield from _any_of(waiting, found)


def _epoll(waiting: Waiting, call: Call) -> Iterator[Blocked]:
    watched = watched_by_epoll(waiting.view.proc, waiting.pid, waiting.descriptor(call.at))
    yield from _any_of(waiting, watched)


def _any_of(waiting: Waiting, polled: Polled) -> Iterator[Blocked]:
    """Rows of a thread that waits for any of several. Of a helper thread's event loop only the
    connections in trouble are told: to wait for the next event is its work."""
    view, pid = waiting.view, waiting.pid
    if not waiting.is_main or len(polled) > _MOST_POLLED:
        polled = [one for one in polled if is_in_trouble(view, pid, one[0])]
    rows = [
        waiting.end(fd, "out" if writing and not reading else "in")
        for fd, reading, writing in polled[:_MOST_POLLED]
    ]
    rows = [row for row in rows if row.kind != "other"]  # wake-up descriptors of event loops
    if not rows and waiting.is_main:
        rows = [waiting.row("poll")]
    yield from rows


def _child(waiting: Waiting, call: Call) -> Iterator[Blocked]:
    wanted = waiting.argument(0)
    if call.waits == "child-id":
        kind, number = waiting.argument(0), waiting.argument(1)
        wanted = number if kind == os.P_PID else 0
    children = waiting.view.children.get(waiting.pid, [])
    named = [one for one in children if one.pid == wanted & 0xFFFFFFFF]
    peers = tuple(one.pid for one in named or children)
    which = "child" if named else "any child"
    listed = ", ".join(waiting.view.describe(pid) for pid in peers[:_MOST_POLLED])
    yield waiting.row(
        "child", f"waits for {which}: {listed or 'none is left'}", peers=peers, peers_known=True
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


def _other(waiting: Waiting, call: Call) -> Iterator[Blocked]:
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
    "other": _other,
}
