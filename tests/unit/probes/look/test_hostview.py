"""Unix sockets as the kernel tells them."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from grpo_doctor_probes.look.hostview import Unix, parse_unix, unix_sockets


def test_the_kernel_tells_peers_of_unix_sockets() -> None:
    first, second = socket.socketpair()
    with first, second:
        second.send(b"12345")
        sockets = unix_sockets()
        if not sockets:
            pytest.skip("this kernel or sandbox answers no sock_diag")
        inodes = [Path(f"/proc/self/fd/{end.fileno()}").stat().st_ino for end in (first, second)]
        assert sockets[inodes[0]].peer == inodes[1]
        assert sockets[inodes[1]].peer == inodes[0]
        assert sockets[inodes[0]].unread == 5
        assert not sockets[inodes[0]].listening


def attribute(kind: int, data: bytes) -> bytes:
    """As netlink(7) has it: length, kind, data, filled up to four bytes."""
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def test_a_message_with_a_name_a_peer_and_a_queue_and_each_start_of_it() -> None:
    head = struct.pack("=BBBBIII", 1, 1, 10, 0, 77, 0, 0)
    name, peer = attribute(0, b"/run/a.sock\0"), attribute(2, struct.pack("=I", 78))
    message = head + name + peer + attribute(4, struct.pack("=II", 9, 1))
    assert parse_unix(message) == Unix(77, 78, "/run/a.sock", 9, listening=True)
    for length in range(len(head), len(message)):
        parsed = parse_unix(message[:length])
        assert "/run/a.sock".startswith(parsed.name)
        assert parsed.peer == 78 or length < len(head + name + peer)
    assert not parse_unix(struct.pack("=BBBBIII", 1, 1, 1, 0, 77, 0, 0)).listening
