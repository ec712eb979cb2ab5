"""The other end of what a blocked call waits on: a pipe, a socket, a file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from grpo_doctor_probes.evidence import Blocked, Blocking, Thread
from grpo_doctor_probes.look.host import mounts, on_mount
from grpo_doctor_probes.look.hostview import HostView, target_of
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.procs.procfs import content
from grpo_doctor_probes.procs.tcp import Tcp, TcpTable

Value = TypeVar("Value")
Direction = Literal["in", "out", "connect", "accept"]
_INODE = re.compile(r"^(pipe|socket):\[(\d+)\]$")
_PATH_LENGTH = 300
_SOCKET_KINDS: dict[Direction, Blocking] = {
    "in": "socket-receive",
    "out": "socket-send",
    "connect": "socket-connect",
    "accept": "socket-accept",
}
NOBODY = "no process holds the other end"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A thread in a blocking call."""

    view: HostView
    pid: int
    thread: Thread
    is_main: bool

    def argument(self, at: int) -> int:
        """Return an argument of the call, 0 where the kernel did not report it."""
        return self.thread.arguments[at] if at < len(self.thread.arguments) else 0

    def descriptor(self, at: int = 0) -> int:
        """Return an argument that is a descriptor: an int, whatever is above it in the register."""
        return self.argument(at) & 0xFFFFFFFF

    def in_memory(self, read: Callable[[], Value], otherwise: Value) -> Value:
        """Return what `read` finds in the memory of the process, `otherwise` where it can't.

        One that did not answer in time is not asked again: each of its threads would cost a second.
        """
        if self.pid in self.view.mute:
            return otherwise
        try:
            return read()
        except TimeoutError:
            self.view.mute.add(self.pid)
        except (OSError, ValueError):
            pass
        return otherwise

    def row(self, kind: Blocking, note: str = "", **values: object) -> Blocked:
        """Return a row of this thread."""
        return Blocked(self.pid, self.thread.tid, kind, note=note, **values)  # type: ignore[arg-type]

    def end(self, fd: int, direction: Direction) -> Blocked:
        """Return the row of a descriptor that it reads or writes."""
        return end_of(self.view, self.pid, self.thread.tid, fd, direction)


def end_of(view: HostView, pid: int, tid: int, fd: int, direction: Direction) -> Blocked:
    """Return what thread `tid` of `pid` waits for, that reads from or writes to `fd`."""
    target = target_of(view.proc, pid, fd)
    if not target:
        return Blocked(pid, tid, "other", fd, note="its descriptor is closed by now, or hidden")
    match = _INODE.match(target)
    if match is None:
        return _file(view, Blocked(pid, tid, "file", fd, target), direction)
    if match[1] == "pipe":
        return pipe_end(view, Blocked(pid, tid, "pipe-read", fd, target), direction)
    return _socket(view, Blocked(pid, tid, _SOCKET_KINDS[direction], fd, target), int(match[2]))


def pipe_end(view: HostView, row: Blocked, direction: Direction) -> Blocked:
    """`row` with the processes at the other end of its pipe or FIFO `target`."""
    mode = os.O_WRONLY if direction == "in" else os.O_RDONLY
    holders = view.holders.pids(row.target, mode=mode)
    role = "writes into" if direction == "in" else "reads from"
    peers = tuple(pid for pid in holders if pid != row.pid)
    complete = view.is_complete_for(row.pid)
    if peers:
        note = f"the other end is held by {_listed(view, peers)}"
    elif holders:
        note = f"only this process itself holds the end that {role} the pipe"
        peers = (row.pid,)
    else:
        note = NOBODY if complete else "no process that can be inspected holds the other end"
    return replace(
        row,
        kind="pipe-read" if direction == "in" else "pipe-write",
        target=printable(row.target, _PATH_LENGTH),
        peers=peers,
        peers_known=complete,
        note=note,
        stopped_peers=tuple(pid for pid in peers if view.is_stopped(pid)),
    )


def _file(view: HostView, row: Blocked, direction: Direction) -> Blocked:
    if row.target.startswith("anon_inode:"):
        return replace(row, kind="other", target=printable(row.target, 80))
    if not row.target.startswith(("/dev/pts/", "/dev/tty")) and _is_fifo(view, row):
        return pipe_end(view, row, direction)
    peers, note = file_peers(view, row.pid, row.target)
    return replace(row, target=printable(row.target, _PATH_LENGTH), peers=peers, note=note)


def _is_fifo(view: HostView, row: Blocked) -> bool:
    """A named pipe looks like a file in /proc; both of its ends are open on the same path, and its
    reader or writer sleeps in the kernel's pipe code."""
    return b"pipe" in content(f"{view.proc}/{row.pid}/task/{row.tid}/wchan")


def file_peers(view: HostView, pid: int, path: str) -> tuple[tuple[int, ...], str]:
    """Who serves the file system of `path`, and what it is, in words."""
    mount = on_mount(mounts(view.proc, pid), path)
    if mount is None:
        return (), ""
    note = f"on {mount.kind} ({printable(mount.source, 80)}) at {printable(mount.point, 80)}"
    if not mount.kind.startswith("fuse"):
        return (), note
    servers = tuple(server for server in view.holders.pids("/dev/fuse") if server != pid)
    if servers:
        one_of = "" if len(servers) == 1 else "one of "
        return servers, f"{note}, served by {one_of}{_listed(view, servers)}"
    return (), f"{note}; no process that can be inspected serves it"


def _socket(view: HostView, row: Blocked, inode: int) -> Blocked:
    table = view.tcp(row.pid)
    tcp = table.of(inode)
    if tcp is not None:
        return _tcp(view, row, table, tcp)
    unix = view.unix.get(inode)
    if unix is None:
        return row
    name = printable(unix.name, 100)
    if row.kind == "socket-accept" or unix.listening:
        return _listener(row, name, unix.unread)
    holders = view.holders.pids(f"socket:[{unix.peer}]") if unix.peer else []
    peers = tuple(holder for holder in holders if holder != row.pid) or tuple(holders)
    far_end = view.unix.get(unix.peer)
    unread = far_end.unread if far_end is not None else 0
    notes = [f"the other end is held by {_listed(view, peers)}" if peers else NOBODY]
    if unread:
        notes.append(f"it has {unread} bytes that it has not read")
    return replace(
        row,
        target=f"unix socket {name}".strip() + f" [{inode}]",
        peers=peers,
        peers_known=bool(peers) or view.is_complete_for(row.pid),
        note="; ".join(notes),
        peer_unread_bytes=unread,
    )


def _listener(row: Blocked, target: str, unread: int) -> Blocked:
    note = f"{unread} connections wait to be accepted"
    return replace(row, kind="socket-accept", target=target, peers_known=True, note=note)


def _tcp(view: HostView, row: Blocked, table: TcpTable, tcp: Tcp) -> Blocked:
    if tcp.state == "LISTEN":
        return _listener(row, tcp.text(), tcp.unread)
    far_end = view.other_end(row.pid, tcp)
    peers, complete, words = _far_end(view, row.pid, table, tcp, far_end)
    return replace(
        row,
        target=tcp.text(),
        peers=peers,
        peers_known=complete,
        note="; ".join([tcp.state, *_queues(tcp), *words]),
        unconfirmed_bytes=tcp.unsent,
        retransmits=tcp.retransmits,
        peer_unread_bytes=far_end.unread if far_end is not None and far_end.inode else 0,
    )


def _far_end(
    view: HostView, pid: int, table: TcpTable, tcp: Tcp, far_end: Tcp | None
) -> tuple[tuple[int, ...], bool, list[str]]:
    """Who has the other end of a connection of `pid`, whether that is all, and words for it."""
    host, port = tcp.remote
    is_local = far_end is not None or table.is_here(host)
    if far_end is not None and far_end.inode:
        peers = _holders(view, [far_end])
        words = [f"the other end is held by {_listed(view, peers)}" if peers else NOBODY]
        words += [f"the other end is {far_end.state}"] if far_end.state != "ESTABLISHED" else []
        words += [f"it has {far_end.unread} bytes that it has not read"] if far_end.unread else []
        return peers, bool(peers) or view.is_complete_for(pid), words
    # Without an inode it belongs to no program: not yet, or, when it is closing, not any more.
    waits = far_end is not None and far_end.state in {"ESTABLISHED", "SYN_RECV", "CLOSE_WAIT"}
    listening = _holders(view, table.listeners(port)) if is_local else ()
    if waits and listening:
        words = [f"accepted by the kernel but not yet by {_listed(view, listening)}"]
        return listening, True, words
    if tcp.state == "SYN_SENT" and listening:
        return listening, True, [f"not yet accepted by {_listed(view, listening)}"]
    if is_local:
        return (), view.is_complete_for(pid), [NOBODY]
    return (), False, [f"the other end is on {host} port {port}"]


def _queues(tcp: Tcp) -> list[str]:
    notes = (
        (tcp.unread, f"{tcp.unread} bytes to read have arrived"),
        (tcp.unsent, f"{tcp.unsent} bytes are not confirmed by the other end"),
        (tcp.retransmits, f"sent again {tcp.retransmits} times"),
    )
    return [note for count, note in notes if count]


def is_in_trouble(view: HostView, pid: int, fd: int) -> bool:
    """Whether a TCP connection waits for more than its program: data that is not confirmed, sent
    again, or not read by the other end, or an end that has closed."""
    match = _INODE.match(target_of(view.proc, pid, fd))
    table = view.tcp(pid)
    tcp = table.of(int(match[2])) if match and match[1] == "socket" else None
    if tcp is None or tcp.state == "LISTEN":
        return False
    far_end = view.other_end(pid, tcp)
    waits = tcp.unsent or tcp.retransmits or (far_end is not None and far_end.unread)
    return bool(waits) or tcp.state != "ESTABLISHED"


def _holders(view: HostView, sockets: list[Tcp]) -> tuple[int, ...]:
    pids = (view.holders.pids(f"socket:[{socket.inode}]") for socket in sockets)
    return tuple(sorted(set().union(*pids)))


def _listed(view: HostView, pids: tuple[int, ...], limit: int = 4) -> str:
    text = ", ".join(map(view.describe, pids[:limit]))
    return f"{text} and {len(pids) - limit} more" if len(pids) > limit else text
