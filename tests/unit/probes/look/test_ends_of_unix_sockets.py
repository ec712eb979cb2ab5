"""Who is at the other end of a Unix socket, on a host made of files."""

from __future__ import annotations

import sys

import pytest

from grpo_doctor_probes.look.hostview import Unix
from grpo_doctor_probes.look.other_ends import Direction
from tests.unit.probes.look.ends import OTHER, RANK, described, end, hide
from tests.unit.probes.look.scene import Scene

pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the tables are little-endian")


def unix(
    inode: int, peer: int = 0, name: str = "", unread: int = 0, *, listens: bool = False
) -> Unix:
    return Unix(inode, peer, name, unread, listens)


@pytest.mark.parametrize(
    ("holders", "peers", "listing"),
    [
        ((OTHER,), (OTHER,), f"the other end is held by {described(OTHER)}"),
        ((RANK, OTHER), (OTHER,), f"the other end is held by {described(OTHER)}"),
        ((RANK,), (RANK,), f"the other end is held by {described(RANK)}"),
        ((), (), "no process holds the other end"),
    ],
)
def test_the_other_end_of_a_unix_socket(
    rank: Scene, holders: tuple[int, ...], peers: tuple[int, ...], listing: str
) -> None:
    rank.unix.update({8: unix(8, 9, "/run/a.sock"), 9: unix(9, 8, unread=12)})
    rank.opened(RANK, 3, "socket:[8]")
    for pid in holders:
        rank.opened(pid, 4, "socket:[9]")
    row = end(rank)
    assert (row.kind, row.target) == ("socket-receive", "unix socket /run/a.sock [8]")
    assert (row.peers, row.peers_known, row.peer_unread_bytes) == (peers, True, 12)
    assert row.note == f"{listing}; it has 12 bytes that it has not read"


@pytest.mark.parametrize("hidden", [False, True])
def test_a_unix_socket_without_another_end(
    rank: Scene, monkeypatch: pytest.MonkeyPatch, *, hidden: bool
) -> None:
    rank.unix[8] = unix(8)
    rank.opened(RANK, 3, "socket:[8]")
    rank.opened(OTHER, 3, "socket:[0]")
    if hidden:
        rank.add(95, 1, "python secret.py", group=RANK)
        hide(monkeypatch, 95)
    row = end(rank, "out")
    assert (row.kind, row.target, row.peers) == ("socket-send", "unix socket [8]", ())
    assert (row.peers_known, row.peer_unread_bytes) == (not hidden, 0)
    assert row.note == "no process holds the other end"


@pytest.mark.parametrize(
    ("direction", "listens", "kind"),
    [
        ("accept", True, "socket-accept"),
        ("accept", False, "socket-accept"),
        ("in", True, "socket-accept"),  # polled
        ("in", False, "socket-receive"),
    ],
)
def test_a_unix_socket_that_accepts(
    rank: Scene, direction: Direction, kind: str, *, listens: bool
) -> None:
    rank.unix[8] = unix(8, 0, "/run/a.sock", unread=2, listens=listens)
    rank.opened(RANK, 3, "socket:[8]")
    row = end(rank, direction)
    assert row.kind == kind
    if kind == "socket-accept":
        assert (row.target, row.peers_known) == ("/run/a.sock", True)
        assert row.note == "2 connections wait to be accepted"
