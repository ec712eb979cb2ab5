"""Unix sockets as the kernel tells them."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from grpo_doctor_probes.look.hostview import parse_unix, unix_sockets


def test_the_kernel_tells_peers_of_unix_sockets() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.send(b"12345")
        found = unix_sockets()
        if not found:
            pytest.skip("this kernel or sandbox answers no sock_diag")
        inodes = [Path(f"/proc/self/fd/{one.fileno()}").stat().st_ino for one in (here, there)]
        assert found[inodes[0]].peer == inodes[1]
        assert found[inodes[1]].peer == inodes[0]
        assert found[inodes[0]].unread == 5
        assert not found[inodes[0]].listening


def test_a_damaged_message_has_no_peer() -> None:
    head = bytes([1, 1, 1, 0]) + (77).to_bytes(4, "little") + bytes(8)
    assert parse_unix(head + b"\x01\x00\x02\x00").peer == 0
    assert parse_unix(head).inode == 77
