"""Locks on files and paths that nobody opens or serves, of processes made of files."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import Blocked
from grpo_doctor_probes.look import lock_file
from tests.unit.probes.look.scene import OTHER as HOLDER
from tests.unit.probes.look.scene import RANK, Scene
from tests.unit.probes.look.scene import THIRD as HEIR

AT_CWD = 0xFFFFFFFF_FFFFFF9C
F_OFD_SETLKW = 38


def number_of(path: Path) -> str:
    """A file as /proc/locks names it."""
    facts = path.stat()
    return f"{os.major(facts.st_dev):02x}:{os.minor(facts.st_dev):02x}:{facts.st_ino}"


@pytest.fixture
def file(rank: Scene) -> Path:
    """A file that the rank has open."""
    path = rank.root / "cache.lock"
    path.touch()
    rank.opened(RANK, 3, path)
    return path


def the_row(scene: Scene) -> Blocked:
    (row,) = scene.rows(RANK)
    return row


# --- who has the lock that a call waits for


@pytest.mark.parametrize(
    ("kind", "taken_by", "has_it_open", "holders"),
    [
        ("FLOCK", HOLDER, (), (HOLDER,)),
        ("FLOCK", HOLDER, (HOLDER,), (HOLDER,)),
        ("FLOCK", HOLDER, (HEIR,), (HEIR,)),  # the open file was inherited, and closed by its heir
        ("FLOCK", 4711, (HEIR,), (HEIR,)),
        ("FLOCK", HOLDER, (RANK, HEIR), (HEIR,)),
        ("FLOCK", RANK, (RANK,), (RANK,)),  # by another descriptor of its own
        ("FLOCK", 4711, (), ()),
        ("POSIX", HOLDER, (), (HOLDER,)),
        ("POSIX", HOLDER, (HEIR,), (HOLDER, HEIR)),
        ("OFDLCK", -1, (HEIR,), (HEIR,)),
    ],
)
def test_who_holds_a_lock_that_a_call_waits_for(
    rank: Scene, kind: str, taken_by: int, has_it_open: tuple[int, ...], holders: tuple[int, ...]
) -> None:
    path = rank.root / "cache.lock"
    path.touch()
    rank.opened(RANK, 3, path)
    line = f"lock:\t1: {kind}  ADVISORY  WRITE {taken_by} {number_of(path)} 0 EOF\n"
    for pid in has_it_open:
        rank.opened(pid, 4, path, info=line)
    lock = f"{kind} {taken_by} {number_of(path)}"
    rank.locked(f"1: {lock}", f"1: -> {kind} {RANK} {number_of(path)}")
    rank.waits(RANK, "flock", 3)
    row = the_row(rank)
    assert (row.kind, row.fd, row.target) == ("file-lock", 3, str(path))
    assert (row.peers, row.peers_known) == (holders, bool(holders))
    listed = ", ".join(f"{pid} (python, sleeping)" for pid in holders)
    assert row.note.startswith(f"held by {listed or 'a process without read permission'}")


@pytest.mark.parametrize(
    ("command", "is_told"),
    [
        (fcntl.F_SETLKW, True),
        (F_OFD_SETLKW, True),
        (0xFFFFFFFF_00000000 | fcntl.F_SETLKW, True),
        (fcntl.F_SETLK, False),
    ],
)
@pytest.mark.usefixtures("file")
def test_which_commands_of_fcntl_wait_for_a_lock(
    rank: Scene, command: int, *, is_told: bool
) -> None:
    rank.waits(RANK, "fcntl", 3, command)
    assert [row.kind for row in rank.rows(RANK)] == ["file-lock"] * is_told


# --- a lock that is tried again and again, with sleeps in between


@pytest.mark.parametrize(
    ("locks", "flags", "is_told"),
    [
        (["1: POSIX 90 FILE"], os.O_RDWR, True),
        (["1: POSIX 90 FILE"], os.O_WRONLY, True),
        (["1: POSIX 90 FILE"], os.O_RDONLY, False),  # who reads wants no lock
        (["1: POSIX 90 08:01:9"], os.O_RDWR, False),
        (["1: POSIX 70 FILE"], os.O_RDWR, False),
        (["1: POSIX 90 FILE", "2: POSIX 70 FILE"], os.O_RDWR, False),  # it has a part of it
        (["1: OFDLCK -1 FILE"], os.O_RDWR, False),
        (["1: -> POSIX 90 FILE"], os.O_RDWR, False),  # that one waits as well
        ([], os.O_RDWR, False),
    ],
)
def test_a_sleeping_process_waits_for_a_lock_of_another_on_a_file_that_it_writes(
    rank: Scene, locks: list[str], flags: int, *, is_told: bool
) -> None:
    path = rank.root / "rewards.db"
    path.touch()
    rank.opened(RANK, 3, "socket:[1]")
    rank.opened(RANK, 4, path, flags)
    rank.locked(*(line.replace("FILE", number_of(path)) for line in locks))
    rank.waits(RANK, "clock_nanosleep")
    rows = [row for row in rank.rows(RANK) if row.kind == "file-lock"]
    assert [(row.fd, row.target, row.peers, row.peers_known) for row in rows] == [
        (4, str(path), (HOLDER,), True)
    ] * is_told
    assert all(
        row.note == "has it open and sleeps, while it is locked by 90 (python, sleeping)"
        for row in rows
    )


# --- who has a file that is a lock


def test_who_has_a_file_that_is_a_lock(rank: Scene, tmp_path: Path) -> None:
    path = tmp_path / "hub.lock"
    path.touch()
    number = number_of(path)
    gone = lock_file(RANK, str(tmp_path / "none.lock"), rank.root)
    assert (gone.peers, gone.note) == ((), "the file does not exist, or is not visible from here")
    info = f"lock:\t1: FLOCK  ADVISORY  WRITE 4711 {number} 0 EOF\n"
    left_behind = "no process holds a lock on it: if its existence is the lock, it was left behind"
    kinds = ("FLOCK", "POSIX")
    both = "held by 90 (python, sleeping), 91 (python, sleeping)"
    for locks, heir, holders, note in (
        ([], False, (), left_behind),
        ([f"1: FLOCK {HOLDER} {number}"], False, (HOLDER,), "held by 90 (python, sleeping)"),
        ([f"1: FLOCK {RANK} {number}"], False, (), left_behind),
        ([f"1: FLOCK {HOLDER} 08:01:9"], False, (), left_behind),
        ([f"1: -> FLOCK {HOLDER} {number}"], False, (), left_behind),
        ([f"1: FLOCK 4711 {number}"], False, (), left_behind),
        ([f"1: FLOCK 4711 {number}"], True, (HEIR,), "held by 91 (python, sleeping)"),
        ([f"1: {kind} {HOLDER} {number}" for kind in kinds], True, (HOLDER, HEIR), both),
    ):
        rank.locked(*locks)
        if heir and not (rank.root / str(HEIR) / "fd" / "4").is_symlink():
            rank.opened(HEIR, 4, path, info=info)
        row = lock_file(RANK, str(path), rank.root)
        assert (row.pid, row.tid, row.kind, row.target) == (RANK, RANK, "file-lock", str(path))
        assert (row.peers, row.peers_known, row.note) == (holders, bool(holders), note)


@pytest.mark.parametrize(
    ("name", "before_s", "opener", "holders", "known"),
    [
        ("lock", 10_000, 0, (), True),
        ("lock", 100, 0, (), False),  # another host may build
        ("lock", 10_000, HOLDER, (HOLDER,), True),
        ("hub.lock", 10_000, HOLDER, (), False),  # it may be about to ask for the lock
    ],
)
def test_who_has_a_lock_that_is_the_existence_of_a_file(
    rank: Scene, name: str, before_s: float, opener: int, holders: tuple[int, ...], known: bool
) -> None:
    path = rank.root / name
    path.touch()
    booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)  # as these processes started
    os.utime(path, times=(booted_s - before_s, booted_s - before_s))
    if opener:
        rank.opened(opener, 4, path)
    row = lock_file(RANK, str(path), rank.root)
    assert (row.peers, row.peers_known) == (holders, known)


# --- paths


@pytest.mark.parametrize(
    ("call", "folder", "text", "path"),
    [
        ("stat", None, "/data/x", "/data/x"),
        ("stat", None, "x", "/srv/x"),
        ("statx", AT_CWD, "x", "/srv/x"),
        ("statx", 5, "x", "/models/x"),
        ("statx", 0xFFFFFFFF_00000005, "x", "/models/x"),
        ("statx", 6, "x", "x"),  # of a folder that is closed by now
    ],
)
def test_which_path_a_call_is_about(
    rank: Scene, call: str, folder: int | None, text: str, path: str
) -> None:
    (rank.root / str(RANK) / "cwd").symlink_to("/srv")
    rank.opened(RANK, 5, "/models", os.O_RDONLY)
    address = rank.remembers(RANK, 64, text.encode() + b"\0more")
    rank.waits(RANK, call, *(() if folder is None else (folder,)), address)
    row = the_row(rank)
    assert (row.kind, row.target, row.note) == ("file", path, call)


@pytest.mark.parametrize(
    ("call", "flags", "lacks"),
    [
        ("open", os.O_RDONLY, "writing"),
        ("open", os.O_WRONLY, "reading"),
        ("openat", os.O_RDONLY, "writing"),
        ("openat", os.O_WRONLY, "reading"),
        ("openat2", os.O_WRONLY, "writing"),  # a pointer stands where others have their flags
    ],
)
def test_a_fifo_lacks_the_other_way_of_that_in_which_it_is_opened(
    rank: Scene, call: str, flags: int, lacks: str
) -> None:
    address = rank.remembers(RANK, 64, b"/a/fifo\0")
    arguments = (address, flags) if call == "open" else (AT_CWD, address, flags)
    rank.opened(RANK, 9, "/a/fifo")
    rank.waits(RANK, call, *arguments, wchan="wait_for_partner")
    row = the_row(rank)
    assert (row.kind, row.target) == ("fifo-open", "/a/fifo")
    assert (row.peers, row.peers_known) == ((), True)
    assert row.note == f"waits until a process opens it for {lacks}"


@pytest.mark.parametrize(
    ("call", "state", "make", "kind"),
    [
        ("openat", "S", "fifo", "fifo-open"),
        ("openat", "S", "file", "file"),
        ("openat", "S", "", "file"),
        ("openat", "D", "fifo", "file"),  # to look at it could hang as well
        ("statx", "S", "fifo", "file"),
    ],
)
def test_what_is_a_fifo_is_told_by_looking_at_it(
    rank: Scene, tmp_path: Path, call: str, state: str, make: str, kind: str
) -> None:
    path = tmp_path / "it"
    if make:
        os.mknod(path, 0o600 | (stat.S_IFIFO if make == "fifo" else stat.S_IFREG))
    address = rank.remembers(RANK, 64, os.fsencode(path) + b"\0")
    rank.waits(RANK, call, AT_CWD, address, state=state, wchan="do_open")
    row = the_row(rank)
    assert (row.kind, row.target) == (kind, str(path))
