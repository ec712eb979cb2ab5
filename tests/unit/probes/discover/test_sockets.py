from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from grpo_doctor_probes.discover.sockets import Sockets, meeting_point
from tests.unit.probes.discover.fakeproc import LOOPBACK, FakeProc


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
                matches = [link for link in sockets.connections(own) if link.port == port]
        assert [(link.client, link.server, link.loopback) for link in matches] == [(own, own, True)]


def of(host: FakeProc, *pids: int) -> Sockets:
    sockets = Sockets(host.root)
    sockets.add(pids)
    return sockets


@pytest.mark.parametrize(
    ("state", "is_shown"), [("01", True), ("08", False)], ids=["open", "closing"]
)
def test_a_connection_counts_while_both_ends_are_open(
    host: FakeProc, state: str, is_shown: bool
) -> None:
    for pid in (100, 101):
        host.add(pid, 1, "python t.py")
    host.listens(101, 8000)
    host.connects(100, 101, 8000, state=state)
    assert bool(list(of(host, 100, 101).connections(100))) is is_shown
    assert of(host, 100).has_unknown_servers(100) is is_shown
    assert not list(of(host, 100, 101).connections(101))


@pytest.mark.parametrize(("taker", "server"), [(102, 102), (None, 101)])
def test_a_connection_is_of_who_has_accepted_it_or_else_of_who_listens(
    host: FakeProc, taker: int | None, server: int
) -> None:
    for pid in (100, 101, 102):
        host.add(pid, 1, "python t.py")
    host.listens(101, 8000)
    host._row(100, f"{LOOPBACK}:9C40", f"{LOOPBACK}:1F40", "01")
    host._row(taker or 102, f"{LOOPBACK}:1F40", f"{LOOPBACK}:9C40", "01")
    if taker is None:
        (host.root / "102" / "fd" / "3").unlink()  # nobody has it yet
    assert [link.server for link in of(host, 100, 101, 102).connections(100)] == [server]


def store(host: FakeProc, *clients: tuple[int, int, int]) -> str:
    """Where ranks 100 and 101 meet, whose launcher is 90; clients, servers and ports."""
    for pid in (90, 100, 101, 300):
        host.add(pid, 1, "python t.py")
    for server, port in dict.fromkeys((server, port) for _, server, port in clients):
        host.listens(server, port)
    for client, server, port in clients:
        host.connects(client, server, port)
    ranks = dict.fromkeys((100, 101))
    return meeting_point(ranks, frozenset({90, 100, 101}), of(host, 90, 100, 101, 300))


@pytest.mark.parametrize(
    ("clients", "port"),
    [
        ([(100, 100, 7000), (101, 100, 7000)], 7000),
        ([(101, 101, 7000), (100, 101, 7000)], 7000),
        ([(100, 90, 7000), (101, 90, 7000)], 7000),  # the launcher has it
        ([(101, 100, 7000)], None),  # its owner does not talk to itself
        ([(100, 100, 7000)], None),  # nobody else does
        ([(100, 300, 7000), (101, 300, 7000)], None),  # a server of another job
        # Pairs of ranks exchange data over listeners of their own.
        ([(101, 100, 6000), (100, 100, 7000), (101, 100, 7000), (100, 101, 6001)], 7000),
        ([(100, 100, 7000), (101, 100, 7000), (100, 90, 6000)], 7000),  # the most clients
        ([(100, 90, 7001), (101, 90, 7001), (100, 90, 7000), (101, 90, 7000)], 7000),
        ([], None),
    ],
)
def test_ranks_meet_where_the_owner_talks_with_itself(
    host: FakeProc, clients: list[tuple[int, int, int]], port: int | None
) -> None:
    assert store(host, *clients) == ("" if port is None else f"127.0.0.1:{port}")
