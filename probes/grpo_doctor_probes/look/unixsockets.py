"""Unix sockets and their other ends, which /proc does not tell: asked from sock_diag(7)."""

from __future__ import annotations

import os
import socket
import struct
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_DUMP_REQUEST = struct.Struct("=IHHII BBHIII II")
_NETLINK_HEADER = struct.Struct("=IHHII")
_UNIX_MESSAGE = struct.Struct("=BBBBIII")
_ATTRIBUTE = struct.Struct("=HH")
_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _DUMP_FLAGS = 4, 20, 0x301
_SHOW = 0x1 | 0x4 | 0x10  # UDIAG_SHOW_NAME, _PEER, _RQLEN
_NAME, _PEER, _QUEUE = 0, 2, 4
_DONE, _ERROR, _TCP_LISTEN = 3, 2, 10
_ANSWER_S = 1.0


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
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asking:
            asking.settimeout(_ANSWER_S)
            size = _DUMP_REQUEST.size
            header = (size, _SOCK_DIAG_BY_FAMILY, _DUMP_FLAGS, 1, 0)
            request = (socket.AF_UNIX, 0, 0, 0xFFFFFFFF, 0, _SHOW, 0xFFFFFFFF, 0xFFFFFFFF)
            asking.sendto(_DUMP_REQUEST.pack(*header, *request), (0, 0))
            return {one.inode: one for one in _answers(asking)}
    except OSError:  # no AF_NETLINK in this sandbox, or no CONFIG_UNIX_DIAG
        return {}


def _answers(asking: socket.socket) -> Iterator[Unix]:
    while data := asking.recv(1 << 18):
        offset = 0
        while offset + _NETLINK_HEADER.size <= len(data):
            size, kind, *_ = _NETLINK_HEADER.unpack_from(data, offset)
            if kind in {_DONE, _ERROR} or size < _NETLINK_HEADER.size:
                return
            yield parse_unix(data[offset + _NETLINK_HEADER.size : offset + size])
            offset += (size + 3) & ~3


def parse_unix(message: bytes) -> Unix:
    """A `unix_diag_msg` with its attributes."""
    _, _, state, _, inode, _, _ = _UNIX_MESSAGE.unpack_from(message)
    found: dict[int, bytes] = {}
    offset = _UNIX_MESSAGE.size
    while offset + _ATTRIBUTE.size <= len(message):
        size, kind = _ATTRIBUTE.unpack_from(message, offset)
        if size < _ATTRIBUTE.size:
            break
        found[kind] = message[offset + _ATTRIBUTE.size : offset + size]
        offset += (size + 3) & ~3
    name = found.get(_NAME, b"")
    return Unix(
        inode=inode,
        peer=int.from_bytes(found.get(_PEER, b"")[:4], sys.byteorder),
        name=os.fsdecode(name.lstrip(b"\0").partition(b"\0")[0]),
        unread=int.from_bytes(found.get(_QUEUE, b"")[:4], sys.byteorder),
        listening=state == _TCP_LISTEN,
    )
