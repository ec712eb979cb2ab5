"""Who is at the other end of a TCP connection, on a host made of files."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.unit.probes.look.ends import FAR, OTHER, RANK, described, end
from tests.unit.probes.look.scene import LOOPBACK, Scene

pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the tables are little-endian")
UNREAD = "it has 5 bytes that it has not read"
HELD = f"the other end is held by {described(OTHER)}"


@pytest.mark.parametrize(
    ("mine", "theirs", "note"),
    [
        ({}, {}, f"ESTABLISHED; {HELD}"),
        (
            {"unread": 4},
            {"unread": 5},
            f"ESTABLISHED; 4 bytes to read have arrived; {HELD}; {UNREAD}",
        ),
        (
            {"unsent": 9, "resent": 3},
            {},
            f"ESTABLISHED; 9 bytes are not confirmed by the other end; sent again 3 times; {HELD}",
        ),
        (
            {"state": "FIN_WAIT1"},
            {"state": "CLOSE_WAIT"},
            f"FIN_WAIT1; {HELD}; the other end is CLOSE_WAIT",
        ),
    ],
)
def test_both_ends_of_a_connection(
    rank: Scene, mine: dict[str, Any], theirs: dict[str, Any], note: str
) -> None:
    rank.socket(RANK, 3, 4000, 5000, **mine)
    rank.socket(OTHER, 3, 5000, 4000, **theirs)
    row = end(rank)
    assert (row.kind, row.target) == ("socket-receive", "127.0.0.1:4000 -> 127.0.0.1:5000")
    assert (row.peers, row.peers_known, row.note) == ((OTHER,), True, note)
    assert (row.unconfirmed_bytes, row.retransmits, row.peer_unread_bytes) == (
        mine.get("unsent", 0), mine.get("resent", 0), theirs.get("unread", 0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("theirs", "listens", "peers", "words"),
    [
        (
            "ESTABLISHED",
            True,
            (OTHER,),
            f"accepted by the kernel but not yet by {described(OTHER)}",
        ),
        ("SYN_RECV", True, (OTHER,), f"accepted by the kernel but not yet by {described(OTHER)}"),
        ("CLOSE_WAIT", True, (OTHER,), f"accepted by the kernel but not yet by {described(OTHER)}"),
        ("ESTABLISHED", False, (), "no process holds the other end"),
        ("FIN_WAIT1", True, (), "no process holds the other end"),  # its program has closed it
    ],
)
def test_an_end_that_belongs_to_no_program(
    rank: Scene, theirs: str, peers: tuple[int, ...], words: str, *, listens: bool
) -> None:
    rank.socket(RANK, 3, 4000, 5000)
    rank.socket(OTHER, None, 5000, 4000, theirs, inode=0, unread=7)
    if listens:
        rank.socket(OTHER, 3, 5000, state="LISTEN")
    row = end(rank)
    assert (row.peers, row.peers_known) == (peers, True)
    assert (row.note, row.peer_unread_bytes) == (f"ESTABLISHED; {words}", 0)


@pytest.mark.parametrize(
    ("state", "host", "listens", "peers", "complete", "words"),
    [
        ("SYN_SENT", LOOPBACK, True, (OTHER,), True, f"not yet accepted by {described(OTHER)}"),
        ("SYN_SENT", LOOPBACK, False, (), True, "no process holds the other end"),
        ("ESTABLISHED", LOOPBACK, True, (), True, "no process holds the other end"),
        ("SYN_SENT", FAR, True, (), False, "the other end is on 192.168.1.2 port 5000"),
        ("ESTABLISHED", FAR, False, (), False, "the other end is on 192.168.1.2 port 5000"),
    ],
)
def test_a_connection_whose_other_end_is_in_no_table(
    rank: Scene,
    state: str,
    host: str,
    peers: tuple[int, ...],
    words: str,
    *,
    listens: bool,
    complete: bool,
) -> None:
    rank.socket(RANK, 3, 4000, 5000, state, hosts=(LOOPBACK, host))
    if listens:
        rank.socket(OTHER, 3, 5000, state="LISTEN")
    row = end(rank, "connect")
    assert (row.kind, row.peers, row.peers_known) == ("socket-connect", peers, complete)
    assert row.note == f"{state}; {words}"
