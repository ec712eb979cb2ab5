from __future__ import annotations

import os
import socket
from pathlib import Path

from grpo_doctor_probes.discover.sockets import Sockets
from grpo_doctor_probes.tcp import TcpTable
from tests.unit.probes.discover.fakeproc import FakeProc


def test_both_ends_of_a_real_connection_are_found() -> None:
    own = os.getpid()
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with socket.socket(family) as listener:
            listener.bind((host, 0))
            listener.listen()
            port = listener.getsockname()[1]
            with socket.create_connection((host, port)):  # nobody accepts it
                sockets = Sockets(Path("/proc"))
                sockets.add([own])
                found = [one for one in sockets.connections(own) if one.port == port]
        assert [(one.client, one.server, one.loopback) for one in found] == [(own, own, True)]


def test_an_ipv4_client_of_an_ipv6_listener() -> None:
    mapped = b"0000000000000000FFFF00000100007F"
    tables = (
        b"sl\n 0: 0100007F:9000 0100007F:1F40 01 0:0 0:0 0 0 0 11 1\n",
        b"sl\n 0: " + mapped + b":1F40 " + mapped + b":9000 01 0:0 0:0 0 0 0 12 1\nbroken\n",
    )
    table = TcpTable(tables)
    client = table.of(11)
    assert client is not None
    assert table.other_end(client) == table.of(12)


def test_name_spaces_are_worlds_of_their_own(host: FakeProc) -> None:
    for pid, space in ((100, "net:[1]"), (101, "net:[2]"), (102, "net:[2]")):
        host.add(pid, 1, "python t.py", space=space)
    host.listens(101, 8000)
    host.connects(102, 101, 8000)
    sockets = Sockets(host.root)
    sockets.add([100, 101, 102])
    assert [one.server for one in sockets.connections(102)] == [101]
    assert list(sockets.connections(100)) == []
    assert list(sockets.connections(101)) == []


def test_a_server_that_was_not_added_is_noticed(host: FakeProc) -> None:
    for pid in (100, 101):
        host.add(pid, 1, "python t.py")
    host.listens(101, 8000)
    host.connects(100, 101, 8000)
    sockets = Sockets(host.root)
    sockets.add([100])
    assert sockets.has_unknown_servers(100)
    sockets.add([101])
    assert not sockets.has_unknown_servers(100)
