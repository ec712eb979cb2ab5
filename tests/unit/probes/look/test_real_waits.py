"""What real blocked calls wait for, and which process is at the other end."""

from __future__ import annotations

import pytest

from grpo_doctor_probes import look
from tests.unit.probes.conftest import until
from tests.unit.probes.look.stage import (
    READY,
    Stage,
    asleep_in,
    job_of,
    listening_port,
    main_rows,
    process_look,
)

SERVES = "import socket; s = socket.create_server(({!r}, 0){}); " + READY
SERVES += "kept = s.accept(); time.sleep(60)"
IP4, IP6 = SERVES.format("127.0.0.1", ""), SERVES.format("::1", ", family=socket.AF_INET6")
CONNECTS = READY + "import socket; c = socket.create_connection(({!r}, int(sys.argv[1]))); "
LOCKS = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); " + READY
LOCKS += "time.sleep(60)"
TRIES = """
import fcntl, sys, time
f = open(sys.argv[1], "a")
def acquire(lock_filename):
    print("tries", flush=True)
    while True:
        try:
            fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(0.05)
acquire(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("holds", "waits", "wchans", "kind", "note"),
    [
        (
            IP4, CONNECTS.format("127.0.0.1") + "c.sendall(b'hello'); c.recv(1)",
            ("wait_woken", "sk_wait", "tcp_recv"), "socket-receive", "5 bytes that it has not read",
        ),
        (
            IP6, CONNECTS.format("::1") + "c.sendall(bytes(1 << 26))",
            ("wait_memory", "sk_stream", "wait_woken"), "socket-send", "bytes are not confirmed",
        ),
        (
            LOCKS, READY + "import fcntl; fcntl.lockf(open(sys.argv[1], 'a'), fcntl.LOCK_EX)",
            ("lock", "fcntl", "setlk"), "file-lock", "held by",
        ),
        (LOCKS, TRIES, ("nanosleep",), "file-lock", "has it open and sleeps, while it is lock"),
    ],
    ids=["unread", "unconfirmed", "locked", "tried again"],
)  # fmt: skip
def test_the_process_at_the_other_end(
    stage: Stage, holds: str, waits: str, wchans: tuple[str, ...], kind: str, note: str
) -> None:
    path = str(stage.folder / "rewards.db")
    holder = stage.start(holds, path)
    place = path if holds == LOCKS else str(listening_port(holder))
    waiter = stage.start(waits, place)
    row = main_rows(waiter, *wchans)[0]
    assert (row.kind, row.peers, row.peers_known) == (kind, (holder,), True)
    assert row.target.endswith(place)
    assert note in row.note
    if waits == TRIES:
        assert look.arguments(waiter, frozenset({"acquire"})) == {"acquire": {"path": path}}


FORKS = "import multiprocessing; c = multiprocessing.get_context('fork'); here, there = c.Pipe(); "
FORKS += "p = c.Process(target=__import__('time').sleep, args=(60,), daemon=True); p.start(); "
PAIR = "import select, socket; here, there = socket.socketpair(); "


@pytest.mark.parametrize(
    ("program", "wchans", "is_own"),
    [
        (FORKS + "there.close(); " + READY + "here.recv()", ("wait_woken", "unix_stream"), False),
        (PAIR + READY + "select.select([here], [], [])", ("poll_schedule", "do_select"), True),
        (
            PAIR + "e = select.epoll(); e.register(here, select.EPOLLIN); " + READY + "e.poll()",
            ("ep_poll", "do_epoll_wait"), True,
        ),
    ],
    ids=["recv", "select", "epoll"],
)  # fmt: skip
def test_the_other_end_of_a_socket_pair(
    stage: Stage, program: str, wchans: tuple[str, ...], *, is_own: bool
) -> None:
    pid = stage.start(program)
    (row,) = main_rows(pid, *wchans, "schedule_timeout")
    assert row.kind == "socket-receive"
    assert row.target.startswith("unix socket")
    assert len(row.peers) == 1
    assert (row.peers[0] == pid) is is_own


def test_a_full_pipe_names_its_reader_and_what_that_waits_for(stage: Stage) -> None:
    pid = stage.start(
        "import subprocess; r = subprocess.Popen(['sleep', '60'], stdin=subprocess.PIPE)\n"
        + READY
        + "while True: r.stdin.write(bytes(65536))"
    )
    (row,) = main_rows(pid, "pipe_write")
    (reader,) = row.peers
    asleep_in(reader, "nanosleep")  # the pipe may fill up before the reader has started
    (row,) = main_rows(pid, "pipe_write")
    assert (row.kind, row.peers_known) == ("pipe-write", True)
    assert f"held by {reader} (sleep, sleeping)" in row.note
    of_both = look.blocked(job_of(pid), look.processes(job_of(pid)))
    assert {(each.pid, each.kind) for each in of_both} == {(pid, "pipe-write"), (reader, "sleep")}


def test_a_lock_that_a_dead_process_left_to_its_child(stage: Stage) -> None:
    path = str(stage.folder / "hub.lock")
    locks = "import fcntl; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); "
    parent = stage.start(
        f"import os, sys, time; {locks}\n"
        "if os.fork(): print('ready', flush=True); os._exit(0)\n"
        "time.sleep(60)",
        path,
    )
    until(lambda: process_look(parent).state in "ZX")
    stage.started[-1].wait(20)
    waiter = stage.start(READY + locks, path)
    (row,) = main_rows(waiter, "locks_lock", "flock")
    assert len(row.peers) == 1
    assert row.peers[0] not in {parent, waiter}
    assert f"taken by process {parent}, which has ended" in row.note
