"""Who is at the other end of a pipe, file, socket or connection, on a host made of files."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from grpo_doctor_probes.evidence import Blocked, Thread
from grpo_doctor_probes.look.hostview import HostView, Unix
from grpo_doctor_probes.look.other_ends import Direction, Waiting, end_of
from grpo_doctor_probes.procs.procfs import descriptors
from tests.unit.probes.look.scene import LOOPBACK, OTHER, RANK, THIRD, Scene

pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the tables are little-endian")
NOBODY = "no process holds the other end"
BOTH = (OTHER, THIRD)
SERVED = "on fuse (s3) at /data, served by"
UNKNOWN = "no process that can be inspected serves it"
FAR = "0201A8C0"


def end(scene: Scene, direction: Direction = "in") -> Blocked:
    return end_of(scene.view(), RANK, RANK, 3, direction)


def described(*pids: int) -> str:
    return ", ".join(f"{pid} (python, sleeping)" for pid in pids)


def hide(monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
    """Another user's process: its descriptors are not for us."""

    def of_ours(proc: str | os.PathLike[str], target_pid: int) -> object:
        if target_pid == pid:
            raise PermissionError
        return descriptors(proc, target_pid)

    monkeypatch.setattr("grpo_doctor_probes.look.hostview.descriptors", of_ours)


# --- pipes


@pytest.mark.parametrize(
    ("direction", "kind", "theirs", "role"),
    [
        ("in", "pipe-read", os.O_WRONLY, "writes into"),
        ("out", "pipe-write", os.O_RDONLY, "reads from"),
    ],
)
def test_the_other_end_of_a_pipe(
    rank: Scene, direction: Direction, kind: str, theirs: int, role: str
) -> None:
    mine = os.O_WRONLY - theirs
    rank.opened(RANK, 3, "pipe:[9]", mine)
    rank.opened(OTHER, 3, "pipe:[9]", mine)  # has the same end
    assert end(rank, direction).note == NOBODY
    rank.opened(RANK, 4, "pipe:[9]", theirs)
    itself = end(rank, direction)
    assert (itself.kind, itself.peers, itself.peers_known) == (kind, (RANK,), True)
    assert itself.note == f"only this process itself holds the end that {role} the pipe"
    rank.opened(THIRD, 3, "pipe:[9]", theirs)
    third = end(rank, direction)
    assert (third.kind, third.fd, third.target) == (kind, 3, "pipe:[9]")
    assert (third.peers, third.stopped_peers) == ((THIRD,), ())
    assert third.note == f"the other end is held by {described(THIRD)}"


@pytest.mark.parametrize(("session", "complete"), [(RANK, False), (5, True)])
def test_a_hidden_process_of_the_same_session_could_hold_a_pipe(
    rank: Scene, monkeypatch: pytest.MonkeyPatch, session: int, *, complete: bool
) -> None:
    rank.opened(RANK, 3, "pipe:[9]", os.O_RDONLY)
    rank.add(95, 1, "python secret.py", group=session)
    hide(monkeypatch, 95)
    row = end(rank)
    assert (row.peers, row.peers_known) == ((), complete)
    nobody, not_seen = "no process holds", "no process that can be inspected holds"
    assert row.note == f"{nobody if complete else not_seen} the other end"


# --- files


@pytest.mark.parametrize(
    ("target", "wchan", "kind"),
    [
        ("/data/x", "do_read", "file"),
        ("/data/x", "pipe_read", "pipe-read"),  # a FIFO, by where its reader sleeps
        ("/dev/pts/0", "pipe_read", "file"),
        ("/dev/tty", "pipe_read", "file"),
        ("anon_inode:[eventfd]", "do_read", "other"),
    ],
)
def test_what_a_descriptor_is(rank: Scene, target: str, wchan: str, kind: str) -> None:
    rank.opened(RANK, 3, target)
    rank.waits(RANK, "read", 3, wchan=wchan)
    row = end(rank)
    assert (row.kind, row.target) == (kind, target)


@pytest.mark.parametrize(
    ("kind", "servers", "peers", "note"),
    [
        ("ext4", (OTHER,), (), "on ext4 (s3) at /data"),
        ("fuse.s3fs", (), (), f"on fuse.s3fs (s3) at /data; {UNKNOWN}"),
        ("fuse", (OTHER,), (OTHER,), f"{SERVED} {described(OTHER)}"),
        ("fuse", (RANK,), (), f"on fuse (s3) at /data; {UNKNOWN}"),
        ("fuse", (RANK, *BOTH), BOTH, f"{SERVED} one of {described(*BOTH)}"),
    ],
)
def test_who_serves_the_file_system_of_a_file(
    rank: Scene, kind: str, servers: tuple[int, ...], peers: tuple[int, ...], note: str
) -> None:
    rank.opened(RANK, 3, "/data/x")
    rank.mounted(RANK, ("/data", kind, "s3"))
    for pid in servers:
        rank.opened(pid, 7, "/dev/fuse")
    row = end(rank)
    assert (row.kind, row.peers, row.note) == ("file", peers, note)


# --- arguments and memory of the call


def test_memory_that_did_not_answer_in_time_is_not_asked_again(rank: Scene) -> None:
    view, questions = HostView(rank.root), []

    def never() -> int:
        questions.append(1)
        raise TimeoutError

    def refuse() -> int:
        raise PermissionError

    waiting, helper = (
        Waiting(view, pid, Thread(pid, "x", "S"), is_main=True) for pid in (RANK, OTHER)
    )
    assert (waiting.in_memory(refuse, 3), waiting.in_memory(lambda: 4, 3)) == (3, 4)
    assert [waiting.in_memory(never, 3) for _ in range(3)] == [3, 3, 3]
    assert questions == [1]
    assert helper.in_memory(lambda: 4, 3) == 4


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
        ((), (), NOBODY),
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
    assert row.note == NOBODY


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


UNREAD, ARRIVED = "it has 5 bytes that it has not read", "4 bytes to read have arrived"
UNCONFIRMED = "9 bytes are not confirmed by the other end; sent again 3 times"
CLOSING = "the other end is CLOSE_WAIT"
ACCEPTED = f"accepted by the kernel but not yet by {described(OTHER)}"
HELD = f"the other end is held by {described(OTHER)}"


@pytest.mark.parametrize(
    ("mine", "theirs", "note"),
    [
        ({}, {}, f"ESTABLISHED; {HELD}"),
        ({"unread": 4}, {"unread": 5}, f"ESTABLISHED; {ARRIVED}; {HELD}; {UNREAD}"),
        ({"unsent": 9, "resent": 3}, {}, f"ESTABLISHED; {UNCONFIRMED}; {HELD}"),
        ({"state": "FIN_WAIT1"}, {"state": "CLOSE_WAIT"}, f"FIN_WAIT1; {HELD}; {CLOSING}"),
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
        *((state, True, (OTHER,), ACCEPTED) for state in ("ESTABLISHED", "SYN_RECV", "CLOSE_WAIT")),
        ("ESTABLISHED", False, (), NOBODY),
        ("FIN_WAIT1", True, (), NOBODY),  # its program has closed it
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
    ("state", "host", "listens", "peers", "known", "words"),
    [
        ("SYN_SENT", LOOPBACK, True, (OTHER,), True, f"not yet accepted by {described(OTHER)}"),
        ("SYN_SENT", LOOPBACK, False, (), True, NOBODY),
        ("ESTABLISHED", LOOPBACK, True, (), True, NOBODY),
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
    listens: bool,
    known: bool,
) -> None:
    rank.socket(RANK, 3, 4000, 5000, state, hosts=(LOOPBACK, host))
    if listens:
        rank.socket(OTHER, 3, 5000, state="LISTEN")
    row = end(rank, "connect")
    assert (row.kind, row.peers, row.peers_known) == ("socket-connect", peers, known)
    assert row.note == f"{state}; {words}"
