"""Which processes of this host talk to each other over TCP, and which of them serve a job.

Servers that no command gives away are those that its ranks are connected to. Format:
proc_pid_net(5) joined with proc_pid_fd(5).
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from grpo_doctor_probes.discover.scan import Tree
from grpo_doctor_probes.procfs import descriptors, socket_inodes
from grpo_doctor_probes.tcprows import ESTABLISHED, LISTENING, port_of, tcp_rows, tcp_tables

_MAPPED_V4 = b"0000000000000000FFFF0000"
_LOOPBACK = (b"0100007F", b"00000000000000000000000001000000", b"0101007F")
_FEWEST_CLIENTS = 2


@dataclass(frozen=True, slots=True)
class Connection:
    """An established connection between two processes, the accepting end second.

    `port` is where `server` listens, `loopback` whether no other host could use that address.
    """

    client: int
    server: int
    port: int
    loopback: bool


@dataclass(slots=True)
class Table:
    """The sockets of one network name space, by inode and by both addresses."""

    established: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)
    by_ends: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)
    listening: dict[int, bytes] = field(default_factory=dict)

    def add(self, lines: bytes) -> None:
        """Read the text of /proc/PID/net/tcp or tcp6."""
        for row in tcp_rows(lines):
            if row.state == ESTABLISHED:
                ends = _plain(row.local), _plain(row.remote)
                self.established[row.inode] = ends
                self.by_ends[ends] = row.inode
            elif row.state == LISTENING:
                self.listening[port_of(row.local)] = row.inode


def _plain(end: bytes) -> bytes:
    """An IPv4 address in IPv6 clothes is the same address."""
    return end.removeprefix(_MAPPED_V4)


class Sockets:
    """The connections among processes. What may not be read is missing, never an error."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._tables: dict[str, Table] = {}
        self._space: dict[int, str] = {}
        self._owners: dict[tuple[str, bytes], int] = {}
        self._of: dict[int, list[bytes]] = {}

    def add(self, pids: Iterable[int]) -> None:
        """Read the sockets of these processes, those already known left out.

        A forked process has its parent's descriptors too: of several holders the first named
        counts, so name parents first.
        """
        for pid in pids:
            if pid in self._of:
                continue
            inodes = self._of[pid] = list(_inodes(self._proc, pid))
            space = self._space[pid] = self._space_of(pid)
            if inodes and space not in self._tables:
                self._tables[space] = self._read_table(pid)
            for inode in inodes:
                self._owners.setdefault((space, inode), pid)

    def connections(self, pid: int) -> Iterator[Connection]:
        """Those of `pid` with another known process, or with itself, in which `pid` is the client.

        A connection of which neither end listens any more counts in both directions.
        """
        for local, remote, space, table in self._established(pid):
            if port_of(local) in table.listening and port_of(remote) not in table.listening:
                continue
            # One that is not accepted yet has no inode: then it is the listener's.
            owner = self._owner(space, table.by_ends.get((remote, local)))
            if owner is None:
                owner = self._owner(space, table.listening.get(port_of(remote)))
            if owner is not None and (remote, local) in table.by_ends:
                loopback = remote.partition(b":")[0] in _LOOPBACK
                yield Connection(pid, owner, port_of(remote), loopback)

    def has_unknown_servers(self, pid: int) -> bool:
        """Whether `pid` is connected to a listening process of this host that was not added."""
        return any(
            (remote, local) in table.by_ends
            and (inode := table.listening.get(port_of(remote))) is not None
            and self._owner(space, inode) is None
            for local, remote, space, table in self._established(pid)
        )

    def space(self, pid: int) -> str:
        """The network name space of a process that was added; empty where that is refused."""
        return self._space.get(pid, "")

    def _established(self, pid: int) -> Iterator[tuple[bytes, bytes, str, Table]]:
        space = self._space.get(pid, "")
        table = self._tables.get(space)
        if table is not None:
            for inode in self._of[pid]:
                if (ends := table.established.get(inode)) is not None:
                    yield *ends, space, table

    def _owner(self, space: str, inode: bytes | None) -> int | None:
        return None if inode is None else self._owners.get((space, inode))

    def _space_of(self, pid: int) -> str:
        try:
            return os.readlink(f"{self._proc}/{pid}/ns/net")  # noqa: PTH115 - one call for each rank
        except OSError:
            return ""

    def _read_table(self, pid: int) -> Table:
        table = Table()
        for text in tcp_tables(self._proc, pid):
            table.add(text)
        return table


def _inodes(proc: Path, pid: int) -> Iterator[bytes]:
    """The sockets among the descriptors of a process."""
    with contextlib.suppress(OSError):
        for inode in socket_inodes(target for _, target in descriptors(proc, pid)):
            yield inode.encode()


def find_servers(
    ranks: Iterable[int], core: set[int], tree: Tree, left_out: frozenset[int], sockets: Sockets
) -> dict[int, set[int]]:
    """Processes that are none of `core` and listen where ranks are connected: pid to its clients.

    All other processes' descriptors are read only when some rank has such a connection. Servers of
    another user are left alone: they serve the host, not the job.
    """
    ranks = [pid for pid in ranks if sockets.has_unknown_servers(pid)]
    if not ranks:
        return {}
    users = {tree.processes[pid].uid for pid in ranks}
    sockets.add(
        pid
        for pid, process in sorted(tree.processes.items())
        if not process.kernel and not process.dead and process.uid in users and pid not in left_out
    )
    found: dict[int, set[int]] = {}
    for rank in ranks:
        for connection in sockets.connections(rank):
            server = connection.server
            if server not in core and tree.nearest(server, core) is None:
                found.setdefault(server, set()).add(rank)
    return found


def meeting_point(ranks: Mapping[int, object], members: frozenset[int], sockets: Sockets) -> str:
    """`127.0.0.1:port` of the store where ranks meet, or empty: seen from its connections.

    The store is the only listener with which its owner, a rank or the launcher, talks itself.
    """
    clients: Counter[tuple[int, int]] = Counter()
    own: set[tuple[int, int]] = set()
    for pid in ranks:
        seen = {
            (one.server, one.port)
            for one in sockets.connections(pid)
            if one.loopback and one.server in members
        }
        clients.update(seen)
        own |= {key for key in seen if key[0] == pid or key[0] not in ranks}
    stores = [(-count, port) for (server, port), count in clients.items() if (server, port) in own]
    if not stores or -min(stores)[0] < _FEWEST_CLIENTS:
        return ""
    return f"127.0.0.1:{min(stores)[1]}"
