"""What is looked up at most once in a visit: who runs, who holds what, sockets, locks.

The other ends of Unix sockets are not in /proc: they are asked from sock_diag(7).
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from grpo_doctor_probes.discover.scan import Process, Tree, glance
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.procs.procfs import content, descriptors, link
from grpo_doctor_probes.procs.tcp import Tcp, TcpTable, tcp_table

_DUMP_REQUEST = struct.Struct("=IHHII BBHIII II")
_NETLINK_HEADER = struct.Struct("=IHHII")
_UNIX_MESSAGE = struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HH")
_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _DUMP_FLAGS = 4, 20, 0x301
_SHOW = 0x1 | 0x4 | 0x10  # UDIAG_SHOW_NAME, _PEER, _RQLEN
_NAME, _PEER, _QUEUE = 0, 2, 4
_DONE, _ERROR, _TCP_LISTEN = 3, 2, 10
_ANSWER_S = 1.0
_NAME_LENGTH = 32
_FLAGS = re.compile(rb"^flags:\s*([0-7]+)", re.MULTILINE)
_POLLED = re.compile(rb"^tfd:\s*(\d+)\s+events:\s*([0-9a-f]+)", re.MULTILINE)
_LOCK_LINE = re.compile(
    rb"^(?P<number>\d+): (?P<waits>-> )?(?P<kind>\w+)\s+\w+\s+\w+\s+(?P<pid>-?\d+)\s+"
    rb"(?P<file>[0-9a-f]+:[0-9a-f]+:\d+)",
    re.MULTILINE,
)


class Holders:
    """Every descriptor of every readable process, by what it points to (`pipe:[123]`, a path)."""

    def __init__(self, proc: Path, processes: Mapping[int, Process]) -> None:
        self._proc = proc
        self._by_target: dict[str, list[tuple[int, int]]] = {}
        # Sessions with a process that hides from us. Other users' daemons hold no pipe of a job.
        self.hidden: set[int] = set()
        for process in processes.values():
            if not process.kernel:
                self._scan(process)

    def of(self, target: str) -> list[tuple[int, int]]:
        """`(pid, descriptor)` of all that point to `target`."""
        return self._by_target.get(target, [])

    def pids(self, target: str, *, mode: int | None = None) -> list[int]:
        """Processes that hold `target`; with `mode` (O_RDONLY, O_WRONLY) open for that."""
        holders = self.of(target)
        if mode is not None:
            modes = {mode, os.O_RDWR}
            holders = [holder for holder in holders if access(self._proc, *holder) in modes]
        return sorted({pid for pid, _ in holders})

    def _scan(self, process: Process) -> None:
        try:
            for fd, target in descriptors(self._proc, process.pid):
                self._by_target.setdefault(target, []).append((process.pid, fd))
        except PermissionError:
            self.hidden.add(process.session)
        except OSError:  # it has gone
            pass


def target_of(proc: Path, pid: int, fd: int) -> str:
    """Return what a descriptor points to, raw; empty where it is closed or hidden."""
    return link(f"{proc}/{pid}/fd/{fd}")


def access(proc: Path, pid: int, fd: int) -> int | None:
    """O_RDONLY, O_WRONLY or O_RDWR; None where hidden."""
    flags = _FLAGS.search(content(f"{proc}/{pid}/fdinfo/{fd}"))
    return int(flags[1], 8) & os.O_ACCMODE if flags else None


def written_files(proc: Path, pid: int, at_most: int | None = None) -> Iterator[tuple[int, str]]:
    """Yield `(descriptor, path)` of what a process has open for writing, below /dev and /proc left
    out; nothing where that is hidden, or the process has gone."""
    with contextlib.suppress(OSError):
        for fd, path in descriptors(proc, pid, at_most):
            is_file = path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/memfd:"))
            if is_file and access(proc, pid, fd) in {os.O_WRONLY, os.O_RDWR}:
                yield fd, path


def watched_by_epoll(proc: Path, pid: int, fd: int) -> list[tuple[int, bool, bool]]:
    """`(descriptor, for reading, for writing)` of all that an epoll descriptor watches."""
    return [
        (int(watched), bool(int(events, 16) & 0x1), bool(int(events, 16) & 0x4))
        for watched, events in _POLLED.findall(content(f"{proc}/{pid}/fdinfo/{fd}"))
    ]


@dataclass(frozen=True, slots=True)
class Lock:
    """A line of /proc/locks. `pid` is who took it, -1 for locks of an open file (OFD)."""

    number: int
    waits: bool
    kind: str
    pid: int
    file: str


def parse_locks(text: bytes) -> list[Lock]:
    """Return the lines of /proc/locks; those that are not understood are left out."""
    return [
        Lock(
            int(lock["number"]),
            lock["waits"] is not None,
            lock["kind"].decode(),
            int(lock["pid"]),
            lock["file"].decode(),
        )
        for lock in _LOCK_LINE.finditer(text)
    ]


def blocker_of(locks: list[Lock], pid: int) -> Lock | None:
    """The lock that process `pid` waits for; None when it waits for none, or does not any more."""
    number = next((lock.number for lock in locks if lock.waits and lock.pid == pid), None)
    return next((lock for lock in locks if lock.number == number and not lock.waits), None)


def holding_descriptors(proc: Path, candidates: list[tuple[int, int]], lock: Lock) -> list[int]:
    """Processes with a descriptor on which `lock` is held, of `candidates` (pid, descriptor).

    A flock belongs to the open file, so it outlives who took it in every process that inherited
    that descriptor.
    """
    holders = set()
    for pid, fd in candidates:
        locks = parse_locks(content(f"{proc}/{pid}/fdinfo/{fd}").replace(b"lock:\t", b""))
        if (lock.file, lock.kind) in {(entry.file, entry.kind) for entry in locks}:
            holders.add(pid)
    return sorted(holders)


@dataclass(frozen=True, slots=True)
class Unix:
    """A Unix socket. `peer` is the inode of its other end, 0 without one."""

    inode: int
    peer: int
    name: str
    unread: int
    listening: bool


def unix_sockets() -> dict[int, Unix]:
    """All Unix sockets of our own namespace by inode; none where the kernel does not answer."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as connection:
            connection.settimeout(_ANSWER_S)
            size = _DUMP_REQUEST.size
            header = (size, _SOCK_DIAG_BY_FAMILY, _DUMP_FLAGS, 1, 0)
            request = (socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW, 0xFFFFFFFF, 0xFFFFFFFF)
            connection.sendto(_DUMP_REQUEST.pack(*header, *request), (0, 0))
            return {answer.inode: answer for answer in _answers(connection)}
    except OSError:  # no AF_NETLINK in this sandbox, or no CONFIG_UNIX_DIAG
        return {}


def _answers(connection: socket.socket) -> Iterator[Unix]:
    while data := connection.recv(1 << 18):
        offset = 0
        while offset + _NETLINK_HEADER.size <= len(data):
            size, kind, *_ = _NETLINK_HEADER.unpack_from(data, offset)
            if kind in {_DONE, _ERROR} or size < _NETLINK_HEADER.size:
                return
            yield parse_unix(data[offset + _NETLINK_HEADER.size : offset + size])
            offset += (size + 3) & ~3


def parse_unix(message: bytes) -> Unix:
    """Return a `unix_diag_msg` with its attributes."""
    _, _, state, _, inode, _, _ = _UNIX_MESSAGE.unpack_from(message)
    attributes: dict[int, bytes] = {}
    offset = _UNIX_MESSAGE.size
    while offset + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, offset)
        if size < _ATTRIBUTE.size:
            break
        attributes[kind] = message[offset + _ATTRIBUTE.size : offset + size]
        offset += (size + 3) & ~3
    name = attributes.get(_NAME, b"")
    return Unix(
        inode=inode,
        peer=int.from_bytes(attributes.get(_PEER, b"")[:4], sys.byteorder),
        name=os.fsdecode(name.lstrip(b"\0").partition(b"\0")[0]),
        unread=int.from_bytes(attributes.get(_QUEUE, b"")[:4], sys.byteorder),
        listening=state == _TCP_LISTEN,
    )


class HostView:
    """This host as the blocked calls of a job need it. Each part is read when first asked for."""

    def __init__(self, proc: Path, job: tuple[int, ...] = ()) -> None:
        self.proc = proc
        self._job = job  # processes whose network namespaces may have the other end of a connection
        self.mute: set[int] = set()  # processes whose memory did not answer in time
        self._tcp: dict[str, TcpTable] = {}

    @cached_property
    def tree(self) -> Tree:
        """All processes."""
        return Tree(glance(self.proc))

    @property
    def processes(self) -> Mapping[int, Process]:
        """All processes by number."""
        return self.tree.processes

    @cached_property
    def holders(self) -> Holders:
        """All descriptors."""
        return Holders(self.proc, self.processes)

    @cached_property
    def locks(self) -> list[Lock]:
        """All file locks."""
        return parse_locks(content(f"{self.proc}/locks"))

    @cached_property
    def unix(self) -> dict[int, Unix]:
        """All Unix sockets by inode."""
        return unix_sockets()

    def tcp(self, pid: int) -> TcpTable:
        """Return the TCP sockets of the network namespace of `pid`."""
        namespace = link(f"{self.proc}/{pid}/ns/net") or str(pid)
        if namespace not in self._tcp:
            self._tcp[namespace] = tcp_table(self.proc, pid)
        return self._tcp[namespace]

    def other_end(self, pid: int, tcp: Tcp) -> Tcp | None:
        """The other end of a connection of `pid`, also where a process of the job has it in another
        network namespace, as a container next to this one.
        """
        tables = {id(table): table for table in map(self.tcp, (pid, *self._job))}.values()
        ends = (table.other_end(tcp) for table in tables)
        return next((end for end in ends if end is not None), None)

    def is_complete_for(self, pid: int) -> bool:
        """Return whether any process with the other end of a pipe of `pid` would be seen."""
        process = self.processes.get(pid)
        return process is not None and process.session not in self.holders.hidden

    def is_stopped(self, pid: int) -> bool:
        """Return whether a signal or a debugger keeps it from running."""
        process = self.processes.get(pid)
        return process is not None and process.state in ("T", "t")

    def describe(self, pid: int) -> str:
        """`4711 (python, sleeping)`."""
        process = self.processes.get(pid)
        if process is None:
            return f"{pid} (gone)"
        state = _STATES.get(process.state, process.state)
        return f"{pid} ({printable(process.name, _NAME_LENGTH)}, {state})"


_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in uninterruptible sleep",
    "T": "stopped",
    "t": "traced",
    "Z": "ended, not yet waited for",
    "X": "gone",
    "I": "idle",
}
