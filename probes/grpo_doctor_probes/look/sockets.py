"""TCP sockets of a network namespace: state, queues, and which socket is the other end."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_doctor_probes.tcprows import port_of, tcp_rows, tcp_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STATES = (
    *("", "ESTABLISHED", "SYN_SENT", "SYN_RECV", "FIN_WAIT1", "FIN_WAIT2", "TIME_WAIT", "CLOSE"),
    *("CLOSE_WAIT", "LAST_ACK", "LISTEN", "CLOSING", "NEW_SYN_RECV"),
)
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Tcp:
    """A TCP socket. `unsent`: bytes that the other host has not confirmed; `unread`: bytes that
    the program has not read, or of a listening socket the connections it has not accepted.
    """

    local: Address
    remote: Address
    state: str
    unsent: int
    unread: int
    retransmits: int
    inode: int

    def text(self) -> str:
        """`127.0.0.1:4000 -> 127.0.0.1:5000`."""
        local = f"{_host(self.local[0])}:{self.local[1]}"
        if self.state == "LISTEN":
            return f"{local} (listening)"
        return f"{local} -> {_host(self.remote[0])}:{self.remote[1]}"


class TcpTable:
    """All TCP sockets that one process sees."""

    def __init__(self, proc: Path, pid: int) -> None:
        self.readable = False
        self._by_inode: dict[int, Tcp] = {}
        self._by_ends: dict[tuple[Address, Address], Tcp] = {}
        self._listening: dict[int, list[Tcp]] = {}
        self._hosts: set[str] = set()
        for table in tcp_tables(proc, pid):
            self._add(table)
            self.readable = True

    def of(self, inode: int) -> Tcp | None:
        """The socket of this inode."""
        return self._by_inode.get(inode)

    def other_end(self, one: Tcp) -> Tcp | None:
        """The other end of a connection, where it is in the same namespace."""
        return self._by_ends.get((one.remote, one.local))

    def listeners(self, port: int) -> list[Tcp]:
        """Sockets that accept connections on `port`."""
        return self._listening.get(port, [])

    def is_here(self, host: str) -> bool:
        """Whether the address is one of this namespace."""
        return ipaddress.ip_address(host).is_loopback or host in self._hosts

    def _add(self, table: bytes) -> None:
        for one in parse_tcp(table):
            if one.inode:
                self._by_inode[one.inode] = one
            if one.state == "LISTEN":
                self._listening.setdefault(one.local[1], []).append(one)
            else:
                self._by_ends[one.local, one.remote] = one
                self._hosts.add(one.local[0])


def parse_tcp(table: bytes) -> Iterator[Tcp]:
    """The rows of /proc/net/tcp or tcp6."""
    for row in tcp_rows(table):
        unsent, _, unread = row.queues.partition(b":")
        state = int(row.state, 16)
        yield Tcp(
            local=_address(row.local),
            remote=_address(row.remote),
            state=_STATES[state] if state < len(_STATES) else str(state),
            unsent=int(unsent, 16),
            unread=int(unread, 16),
            retransmits=int(row.retransmits, 16),
            inode=int(row.inode),
        )


def _address(text: bytes) -> Address:
    host, _, _ = text.partition(b":")
    packed = b"".join(struct.pack("=I", int(host[i : i + 8], 16)) for i in range(0, len(host), 8))
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address), port_of(text)


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
