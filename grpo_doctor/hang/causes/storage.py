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
from grpo_doctor.hang.model.scene import Actor, Scene
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
    for actor in case.hosts:
        if actor.held or kernel_sleep(actor):
            continue
        motion = actor.motion
        in_kernel = _in_file_call(actor)
        bytes_per_s = motion.io_bytes / motion.seconds if motion.seconds else 0.0
        if in_kernel and not motion.progresses and motion.io_bytes == 0:
            yield _blocked(case.scene, actor)
        elif in_kernel and bytes_per_s < _SLOW_BYTES_PER_S and motion.kind != "busy":
            yield _slow(case.scene, actor)
        elif _writes(actor) and (full := _full_disk(case.scene, actor)):
            yield _without_room(actor, full)


def _in_file_call(actor: Actor) -> bool:
    """Whether it sleeps in the kernel for a file, by its state, its function or its call."""
    hold, doer = actor.hold, actor.doer
    if doer is not None and (doer.state == "D" or doer.wchan.startswith(_WCHANS)):
        return True
    return hold is not None and hold.kind in ("file", "fifo-open") and not is_terminal(hold.target)


def _writes(actor: Actor) -> bool:
    """Whether it may be writing: its code says a checkpoint, or it has a file in hand."""
    functions = [frame.function for frame in actor.place.frames]
    by_name = any("write" in function or "save" in function for function in functions)
    return actor.place.purpose == "checkpoint" or by_name


def _full_disk(scene: Scene, actor: Actor) -> Disk | None:
    for disk in disks_of(scene.evidence, actor.pid):
        full = disk.free_bytes < min(_FULL_BYTES, _FULL_SHARE * disk.total_bytes)
        if disk.total_bytes and (full or disk.free_inodes == 0):
            return disk
    return None


def _without_room(actor: Actor, disk: Disk) -> Candidate:
    room = bytes_text(disk.free_bytes) if disk.free_inodes else "no free inode"
    free_text = f"{disk.path} ({disk.kind}) has {room} left"
    return Candidate(
        cause="storage-blocked",
        reason=f"writes to a full disk: {free_text}{in_phase(actor)}",
        evidence=(Item("disk", actor.rank, free_text), stack_item(actor)),
        sink=Sink.HOLDER,
        liveness="computing" if actor.motion.progresses else "unseen",
        fixes=(
            Fix("Free disk space, and keep fewer checkpoints."),
            Fix("Save only the weights.", "checkpoint.save_only_model"),
        ),
        confirm=(f"df -h {disk.path}; df -i {disk.path}",),
    ).of(actor)


def _slow(scene: Scene, actor: Actor) -> Candidate:
    """The file system answers, and takes its time."""
    moved = f"{bytes_text(actor.motion.io_bytes)} in {seconds_text(actor.motion.seconds)}"
    return replace(
        _blocked(scene, actor),
        cause="storage-blocked",
        reason=f"waits for a slow file system: {moved}{in_phase(actor)}",
        liveness="computing",
    )


def _blocked(scene: Scene, actor: Actor) -> Candidate:
    hold = actor.hold
    path = hold.target if hold is not None else ""
    fifo = hold is not None and hold.kind == "fifo-open"
    wait = (
        "opens a FIFO that no process has open at the other end"
        if fifo
        else "waits for the file system"
    )
    uninterruptible = _uninterruptible(actor)
    dataload = actor.phase == "dataload" and not uninterruptible
    never = fifo or (uninterruptible and not _may_flush(actor))
    return Candidate(
        cause="dataload-blocked" if dataload else "storage-blocked",
        reason=f"{wait}{f' ({path})' if path else ''}{in_phase(actor)}",
        evidence=(
            kernel_item(actor),
            *_held_items(actor),
            *_silent_disks(scene, actor),
            *standstill(actor),
        ),
        sink=Sink.HELPER,
        liveness="never-wakes" if never else "unseen",
        fixes=_FIFO_FIXES if fifo else _FIXES,
        confirm=(
            f"fuser -v {quote(path)}  # shows no other process"
            if fifo
            else f"timeout 5 ls {quote(path.rpartition('/')[0] or '/')}  # hangs as well",
        ),
    ).of(actor)


def _uninterruptible(actor: Actor) -> bool:
    """In state D without waking: a moment of it is ordinary for a process that writes."""
    sleeps = actor.doer is not None and actor.doer.state == "D"
    return sleeps and actor.motion.wakes == 0 and actor.motion.io_bytes == 0


def _may_flush(actor: Actor) -> bool:
    """Whether this may be an fsync, of a checkpoint or of a log: one sleep in D until the disk has
    it all.
    """
    doer, still_s = actor.doer, actor.motion.still_s
    for_disk = doer is not None and doer.wchan.startswith(_WAITS_FOR_DISK)
    return (for_disk or actor.long_work is not None) and still_s is not None and still_s < FLUSH_S


def _held_items(actor: Actor) -> tuple[Item, ...]:
    hold = actor.hold
    if hold is None:
        return ()
    note = f"; {hold.note}" if hold.note else ""
    return (Item("fd", actor.rank, f"{hold.kind} {hold.target}{note}"),)


def _silent_disks(scene: Scene, actor: Actor) -> Iterator[Item]:
    for disk in disks_of(scene.evidence, actor.pid):
        if disk.error:
            yield Item("disk", actor.rank, f"{disk.path} ({disk.kind}): {disk.error}")
