"""Disks and file systems that do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from grpo_doctor.hang.causes.blocked_io import is_terminal
from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.description import (
    in_phase,
    kernel_item,
    kernel_sleep,
    stack_item,
    standstill,
)
from grpo_doctor.hang.model.hosts import disks_of
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor.hang.wording import bytes_text, seconds_text
from grpo_doctor_probes.evidence import Disk

_FULL_SHARE = 0.002  # of a disk; less is full
_FULL_BYTES = 16 * 1024 * 1024
_SLOW_BYTES_PER_S = 4_000_000  # any disk of this century writes faster
FLUSH_S = 20.0
# Waits for a disk that takes its time as well as for one that never answers.
_WAITS_FOR_DISK = (
    *("folio_wait", "wait_on_page", "io_schedule", "submit_bio", "blk_", "blkdev_", "rq_qos_wait"),
    *("jbd2_", "xfs_log", "xlog_", "btrfs_", "balance_dirty"),
)
_WCHANS = ("nfs", "rpc_", "fuse", "lustre", "ll_", "ceph", "percpu_rwsem", "folio_wait", "io_sched")
_FIXES = (
    Fix("Repair or unmount the file system; write checkpoints and caches to a local disk."),
    Fix("Save less often, and only the weights.", "checkpoint.save_only_model"),
)
_FIFO_FIXES = (
    Fix("Start or fix the process that should open the FIFO's other end."),
    Fix("Open it with O_NONBLOCK, or pass a regular file or a socket with a timeout instead."),
)


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks in uninterruptible sleep, in a file's read, write or open, or with a full disk."""
    for proc in case.hosts:
        if proc.cannot_run or kernel_sleep(proc):
            continue
        activity = proc.activity
        in_kernel = _in_file_call(proc)
        bytes_per_s = activity.io_bytes / activity.seconds if activity.seconds else 0.0
        if in_kernel and not activity.progresses and activity.io_bytes == 0:
            yield _blocked(case.view, proc)
        elif in_kernel and bytes_per_s < _SLOW_BYTES_PER_S and activity.kind != "busy":
            yield _slow(case.view, proc)
        elif _writes(proc) and (full := _full_disk(case.view, proc)):
            yield _without_room(proc, full)


def _in_file_call(proc: Process) -> bool:
    """Whether it sleeps in the kernel for a file, by its state, its function or its call."""
    hold, blocking_thread = proc.hold, proc.blocking_thread
    if blocking_thread is not None and (
        blocking_thread.state == "D" or blocking_thread.wchan.startswith(_WCHANS)
    ):
        return True
    return hold is not None and hold.kind in ("file", "fifo-open") and not is_terminal(hold.target)


def _writes(proc: Process) -> bool:
    """Whether it may be writing: its code says a checkpoint, or it has a file in hand."""
    functions = [frame.function for frame in proc.place.frames]
    by_name = any("write" in function or "save" in function for function in functions)
    return proc.place.purpose == "checkpoint" or by_name


def _full_disk(view: JobView, proc: Process) -> Disk | None:
    for disk in disks_of(view.evidence, proc.pid):
        full = disk.free_bytes < min(_FULL_BYTES, _FULL_SHARE * disk.total_bytes)
        if disk.total_bytes and (full or disk.free_inodes == 0):
            return disk
    return None


def _without_room(proc: Process, disk: Disk) -> Candidate:
    room = bytes_text(disk.free_bytes) if disk.free_inodes else "no free inode"
    free_text = f"{disk.path} ({disk.kind}) has {room} left"
    return Candidate(
        cause="storage-blocked",
        reason=f"writes to a full disk: {free_text}{in_phase(proc)}",
        evidence=(Item("disk", proc.rank, free_text), stack_item(proc)),
        sink=Sink.HOLDER,
        liveness="computing" if proc.activity.progresses else "unseen",
        fixes=(
            Fix("Free disk space, and keep fewer checkpoints."),
            Fix("Save only the weights.", "checkpoint.save_only_model"),
        ),
        confirm=(f"df -h {disk.path}; df -i {disk.path}",),
    ).of(proc)


def _slow(view: JobView, proc: Process) -> Candidate:
    """The file system answers, and takes its time."""
    moved = f"{bytes_text(proc.activity.io_bytes)} in {seconds_text(proc.activity.seconds)}"
    return replace(
        _blocked(view, proc),
        cause="storage-blocked",
        reason=f"waits for a slow file system: {moved}{in_phase(proc)}",
        liveness="computing",
    )


def _blocked(view: JobView, proc: Process) -> Candidate:
    hold = proc.hold
    path = hold.target if hold is not None else ""
    fifo = hold is not None and hold.kind == "fifo-open"
    wait = (
        "opens a FIFO that no process has open at the other end"
        if fifo
        else "waits for the file system"
    )
    uninterruptible = _uninterruptible(proc)
    dataload = proc.phase == "dataload" and not uninterruptible
    never = fifo or (uninterruptible and not _may_flush(proc))
    return Candidate(
        cause="dataload-blocked" if dataload else "storage-blocked",
        reason=f"{wait}{f' ({path})' if path else ''}{in_phase(proc)}",
        evidence=(
            kernel_item(proc),
            *_held_items(proc),
            *_silent_disks(view, proc),
            *standstill(proc),
        ),
        sink=Sink.HELPER,
        liveness="never-wakes" if never else "unseen",
        fixes=_FIFO_FIXES if fifo else _FIXES,
        confirm=(
            f"fuser -v {quote(path)}  # shows no other process"
            if fifo
            else f"timeout 5 ls {quote(path.rpartition('/')[0] or '/')}  # hangs as well",
        ),
    ).of(proc)


def _uninterruptible(proc: Process) -> bool:
    """In state D without waking: a moment of it is ordinary for a process that writes."""
    sleeps = proc.blocking_thread is not None and proc.blocking_thread.state == "D"
    return sleeps and proc.activity.wakes == 0 and proc.activity.io_bytes == 0


def _may_flush(proc: Process) -> bool:
    """Whether this may be an fsync, of a checkpoint or of a log: one sleep in D until the disk has
    it all.
    """
    blocking_thread, still_s = proc.blocking_thread, proc.activity.still_s
    for_disk = blocking_thread is not None and blocking_thread.wchan.startswith(_WAITS_FOR_DISK)
    return (for_disk or proc.long_work is not None) and still_s is not None and still_s < FLUSH_S


def _held_items(proc: Process) -> tuple[Item, ...]:
    hold = proc.hold
    if hold is None:
        return ()
    note = f"; {hold.note}" if hold.note else ""
    return (Item("fd", proc.rank, f"{hold.kind} {hold.target}{note}"),)


def _silent_disks(view: JobView, proc: Process) -> Iterator[Item]:
    for disk in disks_of(view.evidence, proc.pid):
        if disk.error:
            yield Item("disk", proc.rank, f"{disk.path} ({disk.kind}): {disk.error}")
