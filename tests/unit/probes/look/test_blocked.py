"""What each way to block is told as, of processes made of files."""

from __future__ import annotations

import os
import select
import sys

import pytest

from tests.unit.probes.look.scene import Scene

RANK, HELPER = 70, 79
READS, WRITES = select.POLLIN, select.POLLOUT
P_ALL, P_PID = os.P_ALL, os.P_PID
pytestmark = pytest.mark.skipif(sys.byteorder != "little", reason="the tables are little-endian")


@pytest.fixture
def rank(scene: Scene) -> Scene:
    """A rank with a pipe that it reads and one that it writes to, beside others' ends of them."""
    scene.add(RANK, 1, "python train.py")
    scene.add(90, 1, "python other.py")
    for pid, fd, pipe, flags in (
        (RANK, 3, 31, os.O_RDONLY), (RANK, 4, 41, os.O_WRONLY), (RANK, 5, 51, os.O_RDWR),
        (90, 3, 31, os.O_WRONLY), (90, 4, 41, os.O_RDONLY), (90, 5, 51, os.O_RDWR),
    ):  # fmt: skip
        scene.opened(pid, fd, f"pipe:[{pipe}]", flags)
    scene.opened(RANK, 6, "anon_inode:[eventfd]")
    return scene


def summary(scene: Scene) -> list[tuple[int, str, int]]:
    return [(row.tid, row.kind, row.fd) for row in scene.rows(RANK)]


@pytest.mark.parametrize(
    ("call", "arguments", "kind", "fd"),
    [
        ("read", (3,), "pipe-read", 3),
        ("write", (4,), "pipe-write", 4),
        ("read", (9,), "other", 9),  # closed by now
        ("read", (0xFFFFFFFF_00000003,), "pipe-read", 3),  # above an int the register has anything
        ("futex", (), "futex", -1),
        ("clock_nanosleep", (), "sleep", -1),
        ("ioctl", (6,), "other", -1),
    ],
)
def test_what_the_main_thread_waits_for(
    rank: Scene, call: str, arguments: tuple[int, ...], kind: str, fd: int
) -> None:
    rank.waits(RANK, call, *arguments)
    assert summary(rank) == [(RANK, kind, fd)]


@pytest.mark.parametrize(
    ("call", "arguments", "state", "kinds"),
    [
        ("read", (3,), "S", ["pipe-read"]),
        ("wait4", (-1,), "S", ["child"]),
        ("futex", (), "S", []),
        ("clock_nanosleep", (), "S", []),
        ("restart_syscall", (), "S", []),
        ("ioctl", (6,), "S", []),
        ("ioctl", (6,), "D", ["other"]),
        ("read", (3,), "R", []),
        ("read", (3,), "T", []),
    ],
)
def test_a_helper_thread_is_told_where_it_waits_for_others(
    rank: Scene, call: str, arguments: tuple[int, ...], state: str, kinds: list[str]
) -> None:
    rank.waits(RANK, None, state="R")
    rank.waits(RANK, call, *arguments, tid=HELPER, state=state)
    assert summary(rank) == [(HELPER, kind, 3 if kind == "pipe-read" else -1) for kind in kinds]


@pytest.mark.parametrize(
    ("wchan", "kind"),
    [("hrtimer_nanosleep", "sleep"), ("futex_wait_queue", "futex"), ("do_sys_poll", "poll")],
)
def test_a_call_that_a_stop_interrupted_is_known_by_where_it_sleeps(
    rank: Scene, wchan: str, kind: str
) -> None:
    rank.waits(RANK, "restart_syscall", wchan=wchan)
    assert summary(rank) == [(RANK, kind, -1)]


@pytest.mark.parametrize(
    ("state", "wchan", "notes"),
    [
        ("D", "nfs_wait", ["uninterruptible sleep in the kernel function nfs_wait"]),
        ("D", "0", ["uninterruptible sleep in the kernel"]),
        ("S", "nfs_wait", []),
    ],
)
def test_a_call_that_nobody_knows_is_told_where_nothing_can_interrupt_it(
    rank: Scene, state: str, wchan: str, notes: list[str]
) -> None:
    rank.waits(RANK, None, state=state, wchan=wchan)
    assert [row.note for row in rank.rows(RANK)] == notes


@pytest.mark.parametrize(
    ("polled", "rows"),
    [
        ([(3, READS)], [("pipe-read", 3)]),
        ([(5, READS | WRITES)], [("pipe-read", 5)]),
        ([(3, READS), (6, READS), (4, WRITES)], [("pipe-read", 3), ("pipe-write", 4)]),
        ([(6, READS)], [("poll", -1)]),
        ([], [("poll", -1)]),
    ],
)
def test_what_the_main_thread_polls(
    rank: Scene, polled: list[tuple[int, int]], rows: list[tuple[str, int]]
) -> None:
    rank.polls(RANK, *polled)
    assert summary(rank) == [(RANK, *row) for row in rows]


@pytest.mark.parametrize(
    ("count", "rows"), [(7, range(20, 27)), (8, range(20, 28)), (9, [28]), (30, [28])]
)
def test_of_many_polled_connections_those_in_trouble_alone(
    rank: Scene, count: int, rows: list[int]
) -> None:
    for at in range(count):
        rank.socket(RANK, 20 + at, 4000 + at, 5000, unsent=at == 8)
    rank.polls(RANK, *((20 + at, READS) for at in range(count)))
    assert summary(rank) == [(RANK, "socket-receive", fd) for fd in rows]


def test_of_a_helper_threads_event_loop_those_in_trouble_alone(rank: Scene) -> None:
    rank.socket(RANK, 20, 4000, 5000)
    rank.socket(RANK, 21, 4001, 5000, resent=2)
    rank.waits(RANK, None, state="R")
    rank.polls(RANK, (20, READS), (21, READS), (3, READS), tid=HELPER)
    assert summary(rank) == [(HELPER, "socket-receive", 21)]
    rank.polls(RANK, (20, READS), tid=HELPER)
    assert summary(rank) == []


def test_select_and_epoll_name_what_they_watch(rank: Scene) -> None:
    reading = rank.remembers(RANK, 64, bytes([0b1001000]))  # 3 and 6
    writing = rank.remembers(RANK, 128, bytes([0b0110000]))  # 4 and 5
    rank.waits(RANK, "select", 7, reading, writing)
    expected = [(RANK, "pipe-read", 3), (RANK, "pipe-write", 4), (RANK, "pipe-write", 5)]
    assert summary(rank) == expected
    watched = "".join(
        f"tfd: {fd:8} events: {events:8x} data: 0\n" for fd, events in ((3, 1), (4, 4))
    )
    rank.opened(RANK, 8, "anon_inode:[eventpoll]", info=watched)
    rank.waits(RANK, "epoll_wait", 8)
    assert summary(rank) == expected[:2]


@pytest.mark.parametrize(
    ("call", "arguments", "peers", "subject"),
    [
        ("wait4", (-1,), (71, 72), "any child"),
        ("wait4", (72,), (72,), "child"),
        ("wait4", (99,), (71, 72), "any child"),
        ("waitid", (P_PID, 71), (71,), "child"),
        ("waitid", (P_ALL, 71), (71, 72), "any child"),
    ],
)
def test_which_children_are_waited_for(
    rank: Scene, call: str, arguments: tuple[int, ...], peers: tuple[int, ...], subject: str
) -> None:
    for child in (71, 72):
        rank.add(child, RANK, "cat", name="cat")
    rank.waits(RANK, call, *arguments)
    (row,) = rank.rows(RANK)
    listed = ", ".join(f"{pid} (cat, sleeping)" for pid in peers)
    assert (row.kind, row.peers, row.peers_known) == ("child", peers, True)
    assert row.note == f"waits for {subject}: {listed}"
