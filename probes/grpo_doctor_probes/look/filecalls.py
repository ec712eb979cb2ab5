"""Calls that wait for a file: locks, and paths that something has to open or to serve."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from grpo_doctor_probes.evidence import Blocked
from grpo_doctor_probes.flight.dump_locations import started_unix_s
from grpo_doctor_probes.look import syscalls
from grpo_doctor_probes.look.hostview import (
    HostView,
    Lock,
    blocker_of,
    holding_descriptors,
    target_of,
    written_files,
)
from grpo_doctor_probes.look.other_ends import Waiting, file_peers
from grpo_doctor_probes.look.syscalls import Call
from grpo_doctor_probes.procs.bounded import within
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.procs.procfs import link

_STAT_AT_MOST_S = 1.0
_BUILD_AT_MOST_S = 900.0  # also of another host's job, which shares the folder
_AT_CWD = 0xFFFFFF9C  # AT_FDCWD as an unsigned 32-bit number
_OPENING = ("open", "openat", "openat2")
_LOCKING = frozenset({fcntl.F_SETLKW, 38})  # and F_OFD_SETLKW


def wait_for_flock(waiting: Waiting, call: Call) -> Iterator[Blocked]:
    """Yield a lock on a whole file or a part of it."""
    view, fd = waiting.view, waiting.descriptor(call.at)
    path = target_of(view.proc, waiting.pid, fd)
    holders: tuple[int, ...] = ()
    notes = []
    lock = blocker_of(view.locks, waiting.pid)
    if lock is not None:
        holders = _holders(waiting, lock, path)
        listed = ", ".join(map(view.describe, holders))
        notes.append(f"held by {listed or 'a process without read permission'}")
        if lock.pid > 0 and lock.pid not in view.processes:
            notes.append(f"taken by process {lock.pid}, which has ended; who inherited it holds it")
    notes.append(file_peers(view, waiting.pid, path)[1])
    yield _lock_row(waiting, fd, path, holders, "; ".join(filter(None, notes)))


def _lock_row(waiting: Waiting, fd: int, path: str, holders: tuple[int, ...], note: str) -> Blocked:
    shown = printable(path, 300)
    known = bool(holders)
    return waiting.row("file-lock", note, fd=fd, target=shown, peers=holders, peers_known=known)


def _holders(waiting: Waiting, lock: Lock, path: str) -> tuple[int, ...]:
    """Who holds `lock`: every process with that open file, else who took it, if it is alive."""
    view = waiting.view
    holders = set(holding_descriptors(view.proc, view.holders.of(path), lock))
    if lock.pid in view.processes and (lock.kind == "POSIX" or not holders):
        holders.add(lock.pid)
    return tuple(sorted(holders - {waiting.pid} or holders))


def wait_between_tries(waiting: Waiting) -> Iterator[Blocked]:
    """Yield a file that a sleeping process has open for writing and another one has locked."""
    view, pid = waiting.view, waiting.pid
    locks = {lock.file: lock for lock in view.locks if not lock.waits and lock.pid not in (pid, -1)}
    if not locks:
        return
    mine = {lock.file for lock in view.locks if lock.pid == pid}
    for fd, path in written_files(view.proc, pid):
        lock = locks.get(_number(_status(f"{view.proc}/{pid}/fd/{fd}")))
        if lock is None or lock.file in mine:
            continue
        holders = tuple(holder for holder in _holders(waiting, lock, path) if holder != pid)
        if holders:
            listed = ", ".join(map(view.describe, holders))
            note = f"has it open and sleeps, while it is locked by {listed}"
            yield _lock_row(waiting, fd, path, holders, note)
            return


def _status(inside: str) -> os.stat_result | None:
    """What the file system says of a file; None where it is not to be seen."""
    try:
        return within(_STAT_AT_MOST_S, lambda: os.stat(inside))  # noqa: PTH116
    except (OSError, ValueError):  # TimeoutError is an OSError: its file system does not answer
        return None


def _number(status: os.stat_result | None) -> str:
    """Device and inode of a file, as /proc/locks writes them; empty for None."""
    if status is None:
        return ""
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"


def wait_for_fcntl(waiting: Waiting, call: Call) -> Iterator[Blocked]:
    """Yield the locking ones of its many commands."""
    if waiting.argument(1) & 0xFFFFFFFF in _LOCKING:
        yield from wait_for_flock(waiting, call)


def wait_for_path(waiting: Waiting, call: Call) -> Iterator[Blocked]:
    """Yield a path: a FIFO without its other end, or a file system that does not answer."""
    view = waiting.view
    path = _path_argument(waiting, call.at)
    if not path:
        yield waiting.row("file", f"{call.name} of a path that cannot be read")
        return
    if call.name in _OPENING and _is_fifo(waiting, path):
        # openat2 has its flags elsewhere; nobody opens FIFOs with it.
        writes = waiting.argument(call.at + 1) & os.O_ACCMODE == os.O_WRONLY
        lacks = "reading" if writes and call.name != "openat2" else "writing"
        peers = tuple(pid for pid in view.holders.pids(path) if pid != waiting.pid)
        yield waiting.row(
            "fifo-open",
            f"waits until a process opens it for {lacks}",
            target=printable(path, 300),
            peers=peers,
            peers_known=view.is_complete_for(waiting.pid),
        )
        return
    servers, note = file_peers(view, waiting.pid, path)
    words = f"{call.name} {note}".strip()
    yield waiting.row("file", words, target=printable(path, 300), peers=servers)


def _path_argument(waiting: Waiting, at: int) -> str:
    proc, pid = waiting.view.proc, waiting.pid
    address = waiting.argument(at)
    path = os.fsdecode(waiting.in_memory(lambda: syscalls.path_at(proc, pid, address), b""))
    if path.startswith("/") or not path:
        return path
    folder = waiting.descriptor(at - 1) if at else _AT_CWD
    base = link(f"{proc}/{pid}/cwd") if folder == _AT_CWD else target_of(proc, pid, folder)
    return f"{base}/{path}" if base else path


def _is_fifo(waiting: Waiting, path: str) -> bool:
    """By where it sleeps, or by looking: only in S state, where no file server holds the path."""
    if waiting.thread.wchan == "wait_for_partner":
        return True
    if waiting.thread.state != "S":
        return False
    status = _status(f"{waiting.view.proc}/{waiting.pid}/root{path}")
    return status is not None and stat.S_ISFIFO(status.st_mode)


def lock_file(pid: int, path: str, proc: Path = Path("/proc")) -> Blocked:
    """Return what the main thread of `pid` waits for, that wants the lock on `path`: who has it.

    The existence of a file `lock` is torch's lock on a build (FileBaton); its owner has it open.
    If the file is older than the process by more than a build takes, no process has the lock
    (`peers_known`).
    """
    view = HostView(proc)
    is_build = path.endswith("/lock")
    status = _status(f"{proc}/{pid}/root{path}")
    number = _number(status)
    locks = [lock for lock in view.locks if not lock.waits and lock.file == number and number]
    holders = set(view.holders.pids(path)) if is_build else set()
    for lock in locks:
        inherited = holding_descriptors(proc, view.holders.of(path), lock)
        holders |= set(inherited) or {lock.pid} & view.processes.keys()
    holders -= {pid}
    asks = view.processes.get(pid)
    abandoned = (
        is_build and not holders and status is not None and asks is not None
        and status.st_mtime < started_unix_s(asks) - _BUILD_AT_MOST_S
    )  # fmt: skip
    if not number:
        note = "the file does not exist, or is not visible from here"
    elif holders:
        note = f"held by {', '.join(map(view.describe, sorted(holders)))}"
    elif abandoned:
        note = "older than this job, and no process has it open: an earlier run left it behind"
    else:
        note = "no process holds a lock on it: if its existence is the lock, it was left behind"
    return Blocked(
        pid,
        pid,
        "file-lock",
        target=printable(path, 300),
        peers=tuple(sorted(holders)),
        peers_known=bool(holders) or abandoned,
        note=note,
    )
