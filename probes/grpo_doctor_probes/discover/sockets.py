"""Which processes of this host talk to each other over TCP, and which of them serve a job.

Servers that no command gives away are those that its ranks are connected to. Format:
proc_pid_net(5) joined with proc_pid_fd(5).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grpo_doctor_probes.discover.scan import Tree
from grpo_doctor_probes.procs.procfs import link
from grpo_doctor_probes.procs.tcp import (
    ESTABLISHED,
    Tcp,
    TcpTable,
    open_sockets,
    port_of,
    tcp_table,
)

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


class Sockets:
    """The connections among processes. What may not be read is missing, never an error."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._tables: dict[str, TcpTable] = {}
        self._space: dict[int, str] = {}
        self._owners: dict[tuple[str, str], int] = {}
        self._inodes: dict[int, list[str]] = {}

    def add(self, pids: Iterable[int]) -> None:
        """Read the sockets of these processes, those already known left out.

        A forked process has its parent's descriptors too: of several holders the first named
        counts, so name parents first.
        """
        for pid in pids:
            if pid in self._inodes:
                continue
            inodes = self._inodes[pid] = open_sockets(self._proc, pid)
            space = self._space[pid] = link(f"{self._proc}/{pid}/ns/net")
            if inodes and space not in self._tables:
                self._tables[space] = tcp_table(self._proc, pid)
            for inode in inodes:
                self._owners.setdefault((space, inode), pid)

    def connections(self, pid: int) -> Iterator[Connection]:
        """Those of `pid` with another known process, or with itself, in which `pid` is the client.

        A connection of which neither end listens any more counts in both directions.
        """
        for socket, space, table in self._established(pid):
            port = port_of(socket.remote_end)
            listeners = table.listeners(port)
            if table.listeners(socket.local_port) and not listeners:
                continue
            if (far_end := _other_end(table, socket)) is None:
                continue
            # One that is not accepted yet has no inode: then it is the listener's.
            owner = self._owner(space, far_end)
            if owner is None and listeners:
                owner = self._owner(space, listeners[-1])
            if owner is not None:
                host = socket.remote_end.partition(b":")[0]
                yield Connection(pid, owner, port, host in _LOOPBACK)

    def has_unknown_servers(self, pid: int) -> bool:
        """Whether `pid` is connected to a listening process of this host that was not added."""
        return any(
            listeners
            and self._owner(space, listeners[-1]) is None
            and _other_end(table, socket) is not None
            for socket, space, table in self._established(pid)
            for listeners in [table.listeners(port_of(socket.remote_end))]
        )

    def space(self, pid: int) -> str:
        """The network name space of a process that was added; empty where that is refused."""
        return self._space.get(pid, "")

    def _established(self, pid: int) -> Iterator[tuple[Tcp, str, TcpTable]]:
        space = self._space.get(pid, "")
        table = self._tables.get(space)
        if table is not None:
            for inode in self._inodes[pid]:
                socket = table.of(inode)
                if socket is not None and socket.state_code == ESTABLISHED:
                    yield socket, space, table

    def _owner(self, space: str, socket: Tcp) -> int | None:
        return self._owners.get((space, socket.inode_digits.decode()))


def _other_end(table: TcpTable, socket: Tcp) -> Tcp | None:
    end = table.other_end(socket)
    return end if end is not None and end.state_code == ESTABLISHED else None


def find_servers(
    ranks: Iterable[int], core: set[int], tree: Tree, left_out: frozenset[int], sockets: Sockets
) -> dict[int, set[int]]:
    """Processes that are none of `core` and listen where ranks are connected: pid to its clients.

    All other processes' descriptors are read only when some rank has such a connection. Servers of
    another user are left alone: they serve the host, not the job.
    """
    ranks = list(filter(sockets.has_unknown_servers, ranks))
    if not ranks:
        return {}
    users = {tree.processes[pid].uid for pid in ranks}
    sockets.add(
        pid
        for pid, process in sorted(tree.processes.items())
        if not process.kernel and not process.dead and process.uid in users and pid not in left_out
    )
    clients: dict[int, set[int]] = {}
    for rank in ranks:
        for connection in sockets.connections(rank):
            server = connection.server
            if server not in core and tree.nearest(server, core) is None:
                clients.setdefault(server, set()).add(rank)
    return clients


def meeting_point(ranks: Mapping[int, object], members: frozenset[int], sockets: Sockets) -> str:
    """`127.0.0.1:port` of the store where ranks meet, or empty: seen from its connections.

    The store is the only listener with which its owner, a rank or the launcher, talks itself.
    """
    clients: Counter[tuple[int, int]] = Counter()
    own: set[tuple[int, int]] = set()
    for pid in ranks:
        listeners = {
            (connection.server, connection.port)
            for connection in sockets.connections(pid)
            if connection.loopback and connection.server in members
        }
        clients.update(listeners)
        own |= {key for key in listeners if key[0] == pid or key[0] not in ranks}
    stores = [(-count, port) for (server, port), count in clients.items() if (server, port) in own]
    if not stores or -min(stores)[0] < _FEWEST_CLIENTS:
        return ""
    return f"127.0.0.1:{min(stores)[1]}"
