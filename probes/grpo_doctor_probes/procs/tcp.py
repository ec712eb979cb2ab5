"""The TCP sockets of a network namespace: state, queues, and which socket is the other end.

Format: proc_net_tcp.rst of the kernel. A host may have tens of thousands, so a row stays as bytes
until somebody asks what is in it.
"""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from grpo_doctor_probes.procs.procfs import descriptors, read, socket_inodes

ESTABLISHED, LISTENING = b"01", b"0A"
_STATES = (
    *("", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE"),
    *("CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"),
)
_LONGEST_TABLE_BYTES = 64 << 20
_LAST_FIELD = 10
_MAPPED_V4 = b"0000000000000000FFFF0000"
_NO_INODE = b"0"
Address = tuple[str, int]


class Tcp(NamedTuple):
    """A TCP socket, as the kernel prints it. An end is `ADDRESS:PORT` in hexadecimal digits, each
    32-bit word of an address in the byte order of the machine; IPv4 in IPv6 clothes is IPv4.
    """

    local_end: bytes
    remote_end: bytes
    state_code: bytes
    queues: bytes  # `UNSENT:UNREAD`
    resent: bytes
    inode_digits: bytes

    @property
    def local(self) -> Address:
        """Host and port."""
        return _address(self.local_end)

    @property
    def remote(self) -> Address:
        """Host and port."""
        return _address(self.remote_end)

    @property
    def local_port(self) -> int:
        """Without asking for the host, which takes longer."""
        return port_of(self.local_end)

    @property
    def state(self) -> str:
        """`ESTABLISHED`, `LISTEN` ..."""
        state = int(self.state_code, 16)
        return _STATES[state] if state < len(_STATES) else str(state)

    @property
    def unsent(self) -> int:
        """Bytes that the other host has not confirmed."""
        return int(self.queues.partition(b":")[0], 16)

    @property
    def unread(self) -> int:
        """Bytes that the program has not read; connections that a listener has not accepted."""
        return int(self.queues.partition(b":")[2], 16)

    @property
    def retransmits(self) -> int:
        """How often it has sent the same again."""
        return int(self.resent, 16)

    @property
    def inode(self) -> int:
        """Its number among the descriptors of processes, 0 where no program has it."""
        return int(self.inode_digits)

    def text(self) -> str:
        """`127.0.0.1:4000 -> 127.0.0.1:5000`."""
        host, port = self.local
        local = f"{_bracketed(host)}:{port}"
        if self.state_code == LISTENING:
            return f"{local} (listening)"
        host, port = self.remote
        return f"{local} -> {_bracketed(host)}:{port}"


class TcpTable:
    """All TCP sockets of the given tables, by inode, by both ends, and by the port of listeners."""

    def __init__(self, tables: Iterable[bytes]) -> None:
        self._by_inode: dict[bytes, Tcp] = {}
        self._by_ends: dict[tuple[bytes, bytes], Tcp] = {}
        self._listening: dict[int, list[Tcp]] = {}
        for table in tables:
            self._add(table)

    def of(self, inode: int | str) -> Tcp | None:
        """Return the socket of this inode."""
        return self._by_inode.get(str(inode).encode())

    def other_end(self, socket: Tcp) -> Tcp | None:
        """Return the other end of a connection, where it is in the same namespace."""
        return self._by_ends.get((socket.remote_end, socket.local_end))

    def listeners(self, port: int) -> list[Tcp]:
        """Sockets that accept connections on `port`."""
        return self._listening.get(port, [])

    def is_here(self, host: str) -> bool:
        """Return whether the address is one of this namespace."""
        return ipaddress.ip_address(host).is_loopback or host in self._hosts

    @cached_property
    def _hosts(self) -> set[str]:
        return {_host(address) for address in {end.partition(b":")[0] for end, _ in self._by_ends}}

    def _add(self, table: bytes) -> None:
        for socket in parse_tcp(table):
            if socket.inode_digits != _NO_INODE:
                self._by_inode[socket.inode_digits] = socket
            if socket.state_code == LISTENING:
                self._listening.setdefault(socket.local_port, []).append(socket)
            else:
                self._by_ends[socket.local_end, socket.remote_end] = socket


def tcp_table(proc: str | os.PathLike[str], pid: int) -> TcpTable:
    """All TCP sockets that one process sees, of IPv4 and IPv6, as far as they can be read."""
    return TcpTable(_tables(proc, pid))


def open_sockets(proc: str | os.PathLike[str], pid: int) -> list[str]:
    """Return the inodes of the sockets that a process has open; none where that is refused."""
    try:
        return list(socket_inodes(target for _, target in descriptors(proc, pid)))
    except OSError:
        return []


def _tables(proc: str | os.PathLike[str], pid: int) -> Iterator[bytes]:
    for name in ("tcp", "tcp6"):
        try:
            yield read(f"{proc}/{pid}/net/{name}", _LONGEST_TABLE_BYTES)
        except OSError:
            continue


def parse_tcp(table: bytes) -> Iterator[Tcp]:
    """Yield the rows of /proc/net/tcp or tcp6; damaged lines are left out."""
    for line in table.splitlines()[1:]:
        words = line.split(None, _LAST_FIELD)
        if len(words) >= _LAST_FIELD:
            local, remote = words[1].removeprefix(_MAPPED_V4), words[2].removeprefix(_MAPPED_V4)
            yield Tcp(local, remote, words[3], words[4], words[6], words[9])


def port_of(end: bytes) -> int:
    """Return the port of an end."""
    return int(end.rpartition(b":")[2], 16)


def _address(end: bytes) -> Address:
    return _host(end.partition(b":")[0]), port_of(end)


def _host(digits: bytes) -> str:
    words = (int(digits[start : start + 8], 16) for start in range(0, len(digits), 8))
    return str(ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words)))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
