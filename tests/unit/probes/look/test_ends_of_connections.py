"""Who is at the other end of a TCP connection, on a host made of files."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from grpo_doctor_probes.look.other_ends import is_in_trouble
from tests.unit.probes.look.ends import CONTAINER, FAR, HERE, OTHER, RANK, described, end
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


@pytest.mark.parametrize(
    ("job", "inode", "peers", "complete", "words"),
    [
        ((RANK, 77), None, (77,), True, "the other end is held by 77 (python, sleeping)"),
        ((RANK,), None, (), False, "the other end is on 10.0.0.2 port 5000"),
        ((RANK, 77), 0, (), True, "no process holds the other end"),
    ],
    ids=["of the job", "a stranger's", "of the job, closed"],
)
def test_the_other_end_in_the_network_of_a_container(
    rank: Scene,
    job: tuple[int, ...],
    inode: int | None,
    peers: tuple[int, ...],
    words: str,
    *,
    complete: bool,
) -> None:
    rank.add(77, 1, "python other.py", space="net:[2]")
    rank.socket(RANK, 3, 4000, 5000, hosts=(HERE, CONTAINER))
    rank.socket(77, 3, 5000, 4000, "FIN_WAIT1" if inode == 0 else "ESTABLISHED",
                hosts=(CONTAINER, HERE), inode=inode)  # fmt: skip
    row = end(rank, job=job)
    assert (row.peers, row.peers_known, row.note) == (peers, complete, f"ESTABLISHED; {words}")


@pytest.mark.parametrize(
    ("mine", "theirs", "trouble"),
    [
        ({}, {}, False),
        ({"unread": 9}, {}, False),  # it is about to read that
        ({"unsent": 1}, {}, True),
        ({"resent": 1}, {}, True),
        ({"state": "CLOSE_WAIT"}, {}, True),
        ({}, {"unread": 1}, True),
        ({}, None, False),  # of another host
        ({"state": "LISTEN", "unread": 1}, None, False),
    ],
)
def test_which_connections_are_in_trouble(
    rank: Scene,
    mine: dict[str, Any],
    theirs: dict[str, Any] | None,
    *,
    trouble: bool,
) -> None:
    rank.socket(RANK, 3, 4000, 5000, **mine)
    if theirs is not None:
        rank.socket(OTHER, 3, 5000, 4000, **theirs)
    assert is_in_trouble(rank.view(), RANK, 3) is trouble
