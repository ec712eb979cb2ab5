"""The rows of /proc/net/tcp, as bytes: a host may have tens of thousands.

Format: proc_net_tcp.rst of the kernel.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from grpo_doctor_probes.procfs import read

ESTABLISHED, LISTENING = b"01", b"0A"
_LONGEST_TABLE_BYTES = 64 << 20
_LAST_FIELD = 10


class TcpRow(NamedTuple):
    """A socket. Its ends are `ADDRESS:PORT` in hexadecimal digits, `queues` is `UNSENT:UNREAD`.

    The kernel prints each 32-bit word of an address in the byte order of the machine.
    """

    local: bytes
    remote: bytes
    state: bytes
    queues: bytes
    retransmits: bytes
    inode: bytes


def tcp_tables(proc: str | os.PathLike[str], pid: int) -> Iterator[bytes]:
    """Those of IPv4 and IPv6 that a process sees, as far as they can be read."""
    for name in ("tcp", "tcp6"):
        try:
            yield read(f"{proc}/{pid}/net/{name}", _LONGEST_TABLE_BYTES)
        except OSError:
            continue


def tcp_rows(table: bytes) -> Iterator[TcpRow]:
    """All sockets in the text of such a table."""
    for line in table.splitlines()[1:]:
        words = line.split(None, _LAST_FIELD)
        if len(words) >= _LAST_FIELD:
            yield TcpRow(words[1], words[2], words[3], words[4], words[6], words[9])


def port_of(end: bytes) -> int:
    """The port of an end."""
    return int(end.rpartition(b":")[2], 16)
