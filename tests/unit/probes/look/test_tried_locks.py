"""Locks that a process tries again and again, asleep between the tries: who has them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grpo_doctor_probes.evidence import Blocked, Job, Member, Thread
from grpo_doctor_probes.look import arguments, blocked, processes
from grpo_doctor_probes.look.filecalls import wait_between_tries
from grpo_doctor_probes.look.hostview import HostView, Lock
from grpo_doctor_probes.look.other_ends import Waiting

POSIX = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); "
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


@contextmanager
def process(code: str, path: Path) -> Iterator[int]:
    """A Python process that has said a line."""
    command = [sys.executable, "-S", "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        assert started.stdout.readline()
        try:
            yield started.pid
        finally:
            started.kill()


def rows(pid: int) -> list[Blocked]:
    job = Job("here", (Member(pid, os.getpid(), 0, "rank", "python", "python"),))
    return [row for row in blocked(job, processes(job)) if row.kind == "file-lock"]


def test_an_open_file_that_another_process_has_locked(tmp_path: Path) -> None:
    path = tmp_path / "rewards.db"
    with (
        process(f"{POSIX}print('held', flush=True); time.sleep(60)", path) as holder,
        process(TRIES, path) as waiter,
    ):
        deadline = time.monotonic() + 10
        while not (blocked := rows(waiter)) and time.monotonic() < deadline:
            time.sleep(0.02)  # it is awake between two sleeps now and then
    assert [(row.target, row.peers) for row in blocked] == [(str(path), (holder,))]


def test_the_path_is_among_the_locals_of_the_function_that_tries(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with process(TRIES, path) as waiter:
        calls = arguments(waiter, frozenset({"acquire"}))
    assert calls == {"acquire": {"path": str(path)}}


def test_a_process_that_ends_meanwhile_waits_for_nothing() -> None:
    ended = Waiting(HostView(Path("/proc")), 1 << 22, Thread(1 << 22, "python", "S"), is_main=True)
    ended.view.locks = [Lock(1, False, "POSIX", os.getpid(), "00:01:2")]
    assert list(wait_between_tries(ended)) == []
