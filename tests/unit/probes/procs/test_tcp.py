"""Socket tables as the kernel prints them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from grpo_doctor_probes.procs.tcp import TcpTable, parse_tcp, tcp_table

HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid inode\n"
TAIL = b"     0        0 %d 1 0000000000000000 20 4 30 10 -1\n"


def row(
    local: bytes, remote: bytes, state: bytes, queues: bytes, again: bytes, inode: int
) -> bytes:
    """A line of /proc/net/tcp."""
    start = b"   0: %s %s %s %s 01:00000019 %s" % (local, remote, state, queues, again)
    return start + TAIL % inode


HERE, THERE, FAR = b"0100007F:0FA0", b"0100007F:1388", b"0201A8C0:1388"
MAPPED = b"0000000000000000FFFF00000100007F:1388"
pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the tables are little-endian")


def table(tmp_path: Path, tcp: bytes, tcp6: bytes = b"") -> TcpTable:
    net = tmp_path / "7" / "net"
    net.mkdir(parents=True)
    (net / "tcp").write_bytes(HEAD + tcp)
    (net / "tcp6").write_bytes(HEAD + tcp6)
    return tcp_table(tmp_path, 7)


def test_a_connection_with_everything_in_its_queues() -> None:
    (socket,) = parse_tcp(HEAD + row(HERE, FAR, b"01", b"00000010:00000020", b"00000003", 55))
    assert socket.text() == "127.0.0.1:4000 -> 192.168.1.2:5000"
    six = b"00000000000000000000000001000000:1388"
    (in_brackets,) = parse_tcp(HEAD + row(six, six, b"01", b"0:0", b"0", 55))
    assert in_brackets.text() == "[::1]:5000 -> [::1]:5000"
    assert (socket.state, socket.inode) == ("ESTABLISHED", 55)
    assert (socket.unsent, socket.unread, socket.retransmits) == (16, 32, 3)


def test_both_ends_find_each_other_across_the_two_tables(tmp_path: Path) -> None:
    mapped_here = b"0000000000000000FFFF00000100007F:0FA0"
    result = table(
        tmp_path,
        row(HERE, THERE, b"01", b"0:0", b"0", 55),
        row(MAPPED, mapped_here, b"08", b"0:0", b"0", 56),
    )
    socket, peer = result.of(55), result.of(56)
    assert socket is not None
    assert result.other_end(socket) == peer
    assert peer is not None
    assert peer.state == "CLOSE_WAIT"


def test_listeners_and_damaged_lines(tmp_path: Path) -> None:
    result = table(
        tmp_path, row(THERE, b"00000000:0000", b"0A", b"0:2", b"0", 60) + b"  1: broken\n"
    )
    (socket,) = result.listeners(5000)
    assert (socket.unread, socket.text()) == (2, "127.0.0.1:5000 (listening)")
    assert result.listeners(1) == []


@pytest.mark.parametrize(("words", "count"), [(9, 0), (10, 1), (11, 1), (12, 1)])
def test_a_row_goes_up_to_its_inode(words: int, count: int) -> None:
    fields = row(HERE, FAR, b"01", b"0:0", b"0", 55).split()
    assert fields[9] == b"55"
    result = list(parse_tcp(HEAD + b" ".join(fields[:words]) + b"\n"))
    assert [socket.inode for socket in result] == [55] * count


def test_a_state_that_nobody_knows_is_its_number() -> None:
    states = [b"0C", b"0D"]
    sockets = [next(parse_tcp(HEAD + row(HERE, FAR, code, b"0:0", b"0", 5))) for code in states]
    assert [socket.state for socket in sockets] == ["NEW_SYN_RECV", "13"]
