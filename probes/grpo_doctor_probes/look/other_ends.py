"""The other end of what a blocked call waits on: a pipe, a socket, a file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeVar

from grpo_doctor_probes.evidence import Blocked
from grpo_doctor_probes.look.descriptors import target_of
from grpo_doctor_probes.look.host import mount_of
from grpo_doctor_probes.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from grpo_doctor_probes.evidence import Thread
    from grpo_doctor_probes.evidence.looks import Blocking
    from grpo_doctor_probes.look.hostview import HostView
    from grpo_doctor_probes.tcp import Tcp, TcpTable

Value = TypeVar("Value")
Way = Literal["in", "out", "connect", "accept"]
_INODE = re.compile(r"^(pipe|socket):\[(\d+)\]$")
_PATH_LENGTH = 300
_SOCKET_KINDS: dict[Way, Blocking] = {
    "in": "socket-receive",
    "out": "socket-send",
    "connect": "socket-connect",
    "accept": "socket-accept",
}
NOBODY = "nobody holds the other end"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A thread in a blocking call."""

    view: HostView
    pid: int
    thread: Thread
    is_main: bool

    def argument(self, at: int) -> int:
        """An argument of the call, 0 where the kernel did not tell."""
        return self.thread.arguments[at] if at < len(self.thread.arguments) else 0

    def descriptor(self, at: int = 0) -> int:
        """An argument that is a descriptor: an int, whatever is above it in the register."""
        return self.argument(at) & 0xFFFFFFFF

    def in_memory(self, read: Callable[[], Value], otherwise: Value) -> Value:
        """What `read` finds in the memory of the process, `otherwise` where it can't.

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
        """A row of this thread."""
        return Blocked(self.pid, self.thread.tid, kind, note=note, **values)  # type: ignore[arg-type]

    def end(self, fd: int, way: Way) -> Blocked:
        """The row of a descriptor that it reads or writes."""
        return end_of(self.view, self.pid, self.thread.tid, fd, way)


def end_of(view: HostView, pid: int, tid: int, fd: int, way: Way) -> Blocked:
    """What thread `tid` of `pid` waits for, that reads from or writes to `fd`."""
    target = target_of(view.proc, pid, fd)
    if not target:
        return Blocked(pid, tid, "other", fd, note="its descriptor is closed by now, or hidden")
    match = _INODE.match(target)
    if match is None:
        return _file(view, Blocked(pid, tid, "file", fd, target), way)
    if match[1] == "pipe":
        return pipe_end(view, Blocked(pid, tid, "pipe-read", fd, target), way)
    return _socket(view, Blocked(pid, tid, _SOCKET_KINDS[way], fd, target), int(match[2]))


def pipe_end(view: HostView, seen: Blocked, way: Way) -> Blocked:
    """`seen` with the processes at the other end of its pipe or FIFO `target`."""
    wanted = os.O_WRONLY if way == "in" else os.O_RDONLY
    others = view.holders.pids(seen.target, wanted=wanted)
    role = "writes into" if way == "in" else "reads from"
    peers = tuple(pid for pid in others if pid != seen.pid)
    complete = view.is_complete_for(seen.pid)
    if peers:
        note = f"the other end is held by {_listed(view, peers)}"
    elif others:
        note = f"only this process itself holds the end that {role} the pipe"
        peers = (seen.pid,)
    else:
        note = NOBODY if complete else "no process that we may look into holds the other end"
    return replace(
        seen,
        kind="pipe-read" if way == "in" else "pipe-write",
        target=printable(seen.target, _PATH_LENGTH),
        peers=peers,
        peers_known=complete,
        note=note,
        stopped_peers=tuple(pid for pid in peers if view.is_stopped(pid)),
    )


def _file(view: HostView, seen: Blocked, way: Way) -> Blocked:
    if seen.target.startswith("anon_inode:"):
        return replace(seen, kind="other", target=printable(seen.target, 80))
    if not seen.target.startswith(("/dev/pts/", "/dev/tty")) and _is_fifo(view, seen):
        return pipe_end(view, seen, way)
    peers, note = file_peers(view, seen.pid, seen.target)
    return replace(seen, target=printable(seen.target, _PATH_LENGTH), peers=peers, note=note)


def _is_fifo(view: HostView, seen: Blocked) -> bool:
    """A named pipe looks like a file in /proc; both of its ends are open on the same path, and its
    reader or writer sleeps in the kernel's pipe code."""
    try:
        with open(f"{view.proc}/{seen.pid}/task/{seen.tid}/wchan") as file:  # noqa: PTH123
            return "pipe" in file.read()
    except OSError:
        return False


def file_peers(view: HostView, pid: int, path: str) -> tuple[tuple[int, ...], str]:
    """Who serves the file system of `path`, and what it is, in words."""
    mount = mount_of(view.proc, pid, path)
    if mount is None:
        return (), ""
    note = f"on {mount.kind} ({printable(mount.source, 80)}) at {printable(mount.point, 80)}"
    if not mount.kind.startswith("fuse"):
        return (), note
    servers = tuple(server for server in view.holders.pids("/dev/fuse") if server != pid)
    if servers:
        one_of = "" if len(servers) == 1 else "one of "
        return servers, f"{note}, served by {one_of}{_listed(view, servers)}"
    return (), f"{note}; no process that we may look into serves it"


def _socket(view: HostView, seen: Blocked, inode: int) -> Blocked:
    table = view.tcp(seen.pid)
    tcp = table.of(inode)
    if tcp is not None:
        return _tcp(view, seen, table, tcp)
    unix = view.unix.get(inode)
    if unix is None:
        return seen
    name = printable(unix.name, 100)
    if seen.kind == "socket-accept" or unix.listening:
        waiting = f"{unix.unread} connections wait to be accepted"
        return replace(seen, kind="socket-accept", target=name, peers_known=True, note=waiting)
    holders = view.holders.pids(f"socket:[{unix.peer}]") if unix.peer else []
    peers = tuple(holder for holder in holders if holder != seen.pid) or tuple(holders)
    other = view.unix.get(unix.peer)
    notes = [f"the other end is held by {_listed(view, peers)}" if peers else NOBODY]
    if other is not None and other.unread:
        notes.append(f"it has {other.unread} bytes that it has not read")
    complete = bool(peers) or view.is_complete_for(seen.pid)
    target = f"unix socket {name}".strip() + f" [{inode}]"
    return replace(
        seen,
        target=target,
        peers=peers,
        peers_known=complete,
        note="; ".join(notes),
        peer_unread_bytes=other.unread if other is not None else 0,
    )


def _tcp(view: HostView, seen: Blocked, table: TcpTable, tcp: Tcp) -> Blocked:
    if tcp.state == "LISTEN":
        note = f"{tcp.unread} connections wait to be accepted"
        return replace(seen, kind="socket-accept", target=tcp.text(), peers_known=True, note=note)
    peers, known, words = _far_end(view, seen.pid, table, tcp)
    note = "; ".join([tcp.state, *_queues(tcp), *words])
    other = view.other_end(seen.pid, tcp)
    return replace(
        seen,
        target=tcp.text(),
        peers=peers,
        peers_known=known,
        note=note,
        unconfirmed_bytes=tcp.unsent,
        retransmits=tcp.retransmits,
        peer_unread_bytes=other.unread if other is not None and other.inode else 0,
    )


def _far_end(
    view: HostView, pid: int, table: TcpTable, tcp: Tcp
) -> tuple[tuple[int, ...], bool, list[str]]:
    """Who has the other end of a connection of `pid`, whether that is all, and words for it."""
    other, host = view.other_end(pid, tcp), tcp.remote[0]
    here = other is not None or table.is_here(host)
    if other is not None and other.inode:
        peers = _holders(view, [other])
        words = [f"the other end is held by {_listed(view, peers)}" if peers else NOBODY]
        words += [f"the other end is {other.state}"] if other.state != "ESTABLISHED" else []
        words += [f"it has {other.unread} bytes that it has not read"] if other.unread else []
        return peers, bool(peers) or view.is_complete_for(pid), words
    # Without an inode it belongs to no program: not yet, or, when it is closing, not any more.
    waits = other is not None and other.state in {"ESTABLISHED", "SYN_RECV", "CLOSE_WAIT"}
    listening = _holders(view, table.listeners(tcp.remote[1])) if here else ()
    if waits and listening:
        return (
            listening,
            True,
            [f"accepted by the kernel but not yet by {_listed(view, listening)}"],
        )
    if tcp.state == "SYN_SENT" and listening:
        return listening, True, [f"not yet accepted by {_listed(view, listening)}"]
    if here:
        return (), view.is_complete_for(pid), [NOBODY]
    return (), False, [f"the other end is on {host} port {tcp.remote[1]}"]


def _queues(tcp: Tcp) -> list[str]:
    notes = []
    if tcp.unread:
        notes.append(f"{tcp.unread} bytes to read have arrived")
    if tcp.unsent:
        notes.append(f"{tcp.unsent} bytes are not confirmed by the other end")
    if tcp.retransmits:
        notes.append(f"sent again {tcp.retransmits} times")
    return notes


def is_in_trouble(view: HostView, pid: int, fd: int) -> bool:
    """Whether a TCP connection waits for more than its program: data that is not confirmed, sent
    again, or not read by the other end, or an end that has closed."""
    match = _INODE.match(target_of(view.proc, pid, fd))
    table = view.tcp(pid)
    tcp = table.of(int(match[2])) if match and match[1] == "socket" else None
    if tcp is None or tcp.state == "LISTEN":
        return False
    other = view.other_end(pid, tcp)
    waits = tcp.unsent or tcp.retransmits or (other is not None and other.unread)
    return bool(waits) or tcp.state != "ESTABLISHED"


def _holders(view: HostView, sockets: list[Tcp]) -> tuple[int, ...]:
    names = [f"socket:[{socket.inode}]" for socket in sockets]
    return tuple(sorted({pid for name in names for pid in view.holders.pids(name)}))


def _listed(view: HostView, pids: tuple[int, ...], most: int = 4) -> str:
    text = ", ".join(view.describe(pid) for pid in pids[:most])
    return f"{text} and {len(pids) - most} more" if len(pids) > most else text
