"""What blocked calls wait for: pipes, files, locks, children."""

from __future__ import annotations

import os

from tests.unit.probes.look.stage import (
    READY,
    Stage,
    asleep_in,
    main_rows,
    process_look,
    until,
)


def test_a_full_pipe_names_its_reader(stage: Stage) -> None:
    pid = stage.start(
        """
        import subprocess, sys
        reader = subprocess.Popen(["sleep", "60"], stdin=subprocess.PIPE)
        print(reader.pid, flush=True)
        while True:
            reader.stdin.write(b"x" * 65536)
        """
    )
    (row,) = main_rows(pid, "pipe_write")
    assert (row.kind, row.peers_known) == ("pipe-write", True)
    assert row.target.startswith("pipe:[")
    (reader,) = row.peers
    asleep_in(reader, "nanosleep")  # the pipe may fill up before the reader has started
    (row,) = main_rows(pid, "pipe_write")
    assert f"held by {reader} (sleep, sleeping)" in row.note


def test_a_fifo_that_nobody_opens(stage: Stage) -> None:
    path = stage.folder / "a fifo\n\x1b[31m"
    os.mkfifo(path)
    pid = stage.start(READY + "open(sys.argv[1])", str(path))
    (row,) = main_rows(pid, "wait_for_partner")
    assert (row.kind, row.peers, row.peers_known) == ("fifo-open", (), True)
    assert row.target == str(stage.folder) + "/a fifo?[31m"
    assert row.note == "waits until a process opens it for writing"


def test_a_lock_that_a_dead_process_left_to_its_child(stage: Stage) -> None:
    path = str(stage.folder / "hub.lock")
    parent = stage.start(
        """
        import fcntl, os, sys, time
        file = open(sys.argv[1], "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fork():
            print("ready", flush=True)
            os._exit(0)
        time.sleep(60)
        """,
        path,
    )
    until(lambda: process_look(parent).state in "ZX")
    stage.started[-1].wait(20)
    waiter = stage.start(
        READY + "import fcntl; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX)", path
    )
    (row,) = main_rows(waiter, "locks_lock", "flock")
    assert len(row.peers) == 1
    assert row.peers[0] not in {parent, waiter}
    assert f"taken by process {parent}, which has ended" in row.note
