"""Who is at the other end of a pipe, a connection or a file, on a host made of files."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from grpo_doctor_probes.evidence import Blocked, Thread
from grpo_doctor_probes.look.hostview import HostView, Unix
from grpo_doctor_probes.look.other_ends import Direction, Waiting, end_of, is_in_trouble
from grpo_doctor_probes.procfs import descriptors
from tests.unit.probes.look.scene import LOOPBACK, Scene

RANK, OTHER, THIRD = 70, 90, 91
UNKNOWN = "no process that we may look into serves it"
FAR, CONTAINER, HERE = "0201A8C0", "0200000A", "0100000A"
pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the tables are little-endian")


@pytest.fixture
def rank(scene: Scene) -> Scene:
    """A rank and two other processes."""
    scene.add(RANK, 1, "python train.py")
    for pid in (OTHER, THIRD):
        scene.add(pid, 1, "python other.py")
    return scene


def end(scene: Scene, direction: Direction = "in", job: tuple[int, ...] = ()) -> Blocked:
    return end_of(scene.view(*job), RANK, RANK, 3, direction)


def described(*pids: int) -> str:
    return ", ".join(f"{pid} (python, sleeping)" for pid in pids)


def hide(monkeypatch: pytest.MonkeyPatch, pid: int) -> None:
    """Another user's process: its descriptors are not for us."""

    def of_ours(proc: str | os.PathLike[str], target_pid: int) -> object:
        if target_pid == pid:
            raise PermissionError
        return descriptors(proc, target_pid)

    monkeypatch.setattr("grpo_doctor_probes.look.descriptors.descriptors", of_ours)


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
    assert end(rank, direction).note == "nobody holds the other end"
    rank.opened(RANK, 4, "pipe:[9]", theirs)
    itself = end(rank, direction)
    assert (itself.kind, itself.peers, itself.peers_known) == (kind, (RANK,), True)
    assert itself.note == f"only this process itself holds the end that {role} the pipe"
    rank.opened(THIRD, 3, "pipe:[9]", theirs)
    third = end(rank, direction)
    assert (third.kind, third.fd, third.target) == (kind, 3, "pipe:[9]")
    assert (third.peers, third.stopped_peers) == ((THIRD,), ())
    assert third.note == f"the other end is held by {described(THIRD)}"


@pytest.mark.parametrize(
    ("count", "listed"),
    [
        (1, described(100)),
        (4, described(100, 101, 102, 103)),
        (6, f"{described(100, 101, 102, 103)} and 2 more"),
    ],
)
def test_of_many_holders_four_are_named(rank: Scene, count: int, listed: str) -> None:
    rank.opened(RANK, 3, "pipe:[9]", os.O_RDONLY)
    for pid in range(100, 100 + count):
        rank.opened(rank.add(pid, RANK, "python x"), 1, "pipe:[9]", os.O_WRONLY)
    row = end(rank)
    assert row.peers == tuple(range(100, 100 + count))
    assert row.note == f"the other end is held by {listed}"


def test_holders_that_are_stopped(rank: Scene) -> None:
    rank.opened(RANK, 3, "pipe:[9]", os.O_RDONLY)
    rank.add(71, RANK, "cat", state="T", name="cat")
    for pid in (71, OTHER):
        rank.opened(pid, 3, "pipe:[9]", os.O_WRONLY)
    row = end(rank)
    assert (row.peers, row.stopped_peers) == ((71, OTHER), (71,))


@pytest.mark.parametrize(("session", "complete"), [(RANK, False), (5, True)])
def test_a_hidden_process_of_the_same_session_could_hold_a_pipe(
    rank: Scene, monkeypatch: pytest.MonkeyPatch, session: int, *, complete: bool
) -> None:
    rank.opened(RANK, 3, "pipe:[9]", os.O_RDONLY)
    rank.add(95, 1, "python secret.py", group=session)
    hide(monkeypatch, 95)
    row = end(rank)
    assert (row.peers, row.peers_known) == ((), complete)
    nobody, not_seen = "nobody holds", "no process that we may look into holds"
    assert row.note == f"{nobody if complete else not_seen} the other end"


def test_nobody_is_known_to_hold_a_pipe_of_a_process_that_has_gone(rank: Scene) -> None:
    rank.opened(RANK, 3, "pipe:[9]", os.O_RDONLY)
    (rank.root / str(RANK) / "stat").unlink()
    assert not end(rank).peers_known


def test_a_descriptor_that_is_closed_by_now(rank: Scene) -> None:
    row = end(rank)
    assert (row.kind, row.fd, row.target) == ("other", 3, "")
    assert row.note == "its descriptor is closed by now, or hidden"


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


@pytest.mark.parametrize("known_where", ["", "pipe_write"])
def test_a_thread_that_has_gone_reads_no_fifo(rank: Scene, known_where: str) -> None:
    rank.opened(RANK, 3, "/data/x")
    if known_where:
        rank.waits(RANK, "write", 3, wchan=known_where)
    assert end(rank, "out").kind == ("pipe-write" if known_where else "file")


@pytest.mark.parametrize(
    ("kind", "servers", "peers", "note"),
    [
        ("ext4", (OTHER,), (), "on ext4 (s3) at /data"),
        ("fuse.s3fs", (), (), f"on fuse.s3fs (s3) at /data; {UNKNOWN}"),
        ("fuse", (OTHER,), (OTHER,), f"on fuse (s3) at /data, served by {described(OTHER)}"),
        ("fuse", (RANK,), (), f"on fuse (s3) at /data; {UNKNOWN}"),
        (
            "fuse",
            (RANK, OTHER, THIRD),
            (OTHER, THIRD),
            f"on fuse (s3) at /data, served by one of {described(OTHER, THIRD)}",
        ),
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


def test_a_file_on_no_mount_that_is_known(rank: Scene) -> None:
    rank.opened(RANK, 3, "/data/x")
    rank.mounted(RANK, ("/runs", "ext4", "/dev/vda"))
    assert (end(rank).peers, end(rank).note) == ((), "")


# --- Unix sockets


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
        ((), (), "nobody holds the other end"),
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
    assert row.note == "nobody holds the other end"


def test_a_holder_of_a_unix_socket_is_known_whoever_hides(
    rank: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank.unix.update({8: unix(8, 9), 9: unix(9, 8)})
    rank.opened(RANK, 3, "socket:[8]")
    rank.opened(OTHER, 3, "socket:[9]")
    rank.add(95, 1, "python secret.py", group=RANK)
    hide(monkeypatch, 95)
    row = end(rank)
    assert (row.peers, row.peers_known) == ((OTHER,), True)
    assert row.note == f"the other end is held by {described(OTHER)}"


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


def test_a_socket_that_no_table_has(rank: Scene) -> None:
    rank.opened(RANK, 3, "socket:[8]")
    row = end(rank, "connect")
    assert (row.kind, row.target, row.peers, row.peers_known, row.note) == (
        "socket-connect", "socket:[8]", (), False, "",
    )  # fmt: skip


# --- TCP


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


@pytest.mark.parametrize("hidden", [False, True])
def test_an_end_that_no_process_has_open(
    rank: Scene, monkeypatch: pytest.MonkeyPatch, *, hidden: bool
) -> None:
    rank.socket(RANK, 3, 4000, 5000)
    rank.socket(OTHER, None, 5000, 4000, unread=7)
    if hidden:
        rank.add(95, 1, "python secret.py", group=RANK)
        hide(monkeypatch, 95)
    row = end(rank)
    assert (row.peers, row.peers_known, row.peer_unread_bytes) == ((), not hidden, 7)
    assert (
        row.note == "ESTABLISHED; nobody holds the other end; it has 7 bytes that it has not read"
    )


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
        ("ESTABLISHED", False, (), "nobody holds the other end"),
        ("FIN_WAIT1", True, (), "nobody holds the other end"),  # its program has closed it
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
        ("SYN_SENT", LOOPBACK, False, (), True, "nobody holds the other end"),
        ("ESTABLISHED", LOOPBACK, True, (), True, "nobody holds the other end"),
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


def test_a_listening_socket_waits_for_connections(rank: Scene) -> None:
    rank.socket(RANK, 3, 4000, state="LISTEN", unread=3)
    row = end(rank)
    assert (row.kind, row.target) == ("socket-accept", "127.0.0.1:4000 (listening)")
    assert (row.peers_known, row.note) == (True, "3 connections wait to be accepted")


@pytest.mark.parametrize(
    ("job", "inode", "peers", "complete", "words"),
    [
        ((RANK, 77), None, (77,), True, "the other end is held by 77 (python, sleeping)"),
        ((RANK,), None, (), False, "the other end is on 10.0.0.2 port 5000"),
        ((RANK, 77), 0, (), True, "nobody holds the other end"),
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


@pytest.mark.parametrize("target", ["pipe:[55]", "/data/x", "socket:[56]", ""])
def test_what_is_no_connection_is_in_no_trouble(rank: Scene, target: str) -> None:
    rank.socket(OTHER, 3, 4000, 5000, unsent=9, inode=55)
    if target:
        rank.opened(RANK, 3, target)
    assert not is_in_trouble(rank.view(), RANK, 3)


# --- arguments and memory of the call


def test_an_argument_that_the_kernel_did_not_tell_is_zero(rank: Scene) -> None:
    thread = Thread(RANK, "python", "S", arguments=(5, -1 & 0xFFFFFFFF_FFFFFFFF))
    waiting = Waiting(rank.view(), RANK, thread, is_main=True)
    assert [waiting.argument(at) for at in range(3)] == [5, 0xFFFFFFFF_FFFFFFFF, 0]
    assert [waiting.descriptor(at) for at in range(3)] == [5, 0xFFFFFFFF, 0]


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
