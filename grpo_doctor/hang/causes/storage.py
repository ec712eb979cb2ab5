"""Disks and file systems that do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.sleeps import sleep_of
from grpo_doctor.hang.causes.terminals import is_terminal
from grpo_doctor.hang.causes.wording import culprit, in_phase, stack_item, still_item
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


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks in uninterruptible sleep, in a file's read, write or open, or with a full disk."""
    for actor in case.hosts:
        if actor.held or sleep_of(actor):
            continue
        on_file = _on_file(actor)
        in_kernel = _sleeps_in_disk(actor) or _in_file_system(actor) or on_file
        if in_kernel and not actor.motion.progresses and actor.motion.io_bytes == 0:
            yield _candidate(case.scene, actor)
        elif in_kernel and _rate(actor) < _SLOW_BYTES_PER_S and actor.motion.kind != "busy":
            yield _slow(case.scene, actor)
        elif _writes(actor) and (full := _full(case.scene, actor)):
            yield _without_room(actor, full)


def _on_file(actor: Actor) -> bool:
    hold = actor.hold
    return hold is not None and hold.kind in ("file", "fifo-open") and not is_terminal(hold.target)


def _rate(actor: Actor) -> float:
    return actor.motion.io_bytes / actor.motion.seconds if actor.motion.seconds else 0.0


def _writes(actor: Actor) -> bool:
    """Whether it may be writing: its code says a checkpoint, or it has a file in hand."""
    named = any("write" in one.function or "save" in one.function for one in actor.place.frames)
    return actor.place.purpose == "checkpoint" or named


def _full(scene: Scene, actor: Actor) -> Disk | None:
    for disk in disks_of(scene.evidence, actor.pid):
        if disk.total_bytes and disk.free_bytes < min(_FULL_BYTES, _FULL_SHARE * disk.total_bytes):
            return disk
    return None


def _slow(scene: Scene, actor: Actor) -> Candidate:
    """The file system answers, and takes its time."""
    seconds = seconds_text(actor.motion.seconds)
    moved = f"{bytes_text(actor.motion.io_bytes)} in {seconds}"
    return replace(
        _candidate(scene, actor),
        cause="storage-blocked",
        reason=f"waits for a slow file system: {moved}{in_phase(actor)}",
        liveness="computing",
    )


def _without_room(actor: Actor, disk: Disk) -> Candidate:
    left = f"{disk.path} ({disk.kind}) has {bytes_text(disk.free_bytes)} left"
    return Candidate(
        cause="storage-blocked",
        culprits=culprit(actor),
        reason=f"writes to a disk that is full: {left}{in_phase(actor)}",
        evidence=(Item("disk", actor.rank, left), stack_item(actor)),
        sink=Sink.HOLDER,
        liveness="computing" if actor.motion.progresses else "unseen",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=(
            Fix("Make room, and keep fewer checkpoints."),
            Fix("Save only the weights.", "checkpoint.save_only_model"),
        ),
        confirm=(f"df -h {disk.path}",),
    )


def _sleeps_in_disk(actor: Actor) -> bool:
    return actor.doer is not None and actor.doer.state == "D"


def _uninterruptible(actor: Actor) -> bool:
    """In state D without waking: a moment of it is ordinary for a process that writes."""
    return _sleeps_in_disk(actor) and actor.motion.wakes == 0 and actor.motion.io_bytes == 0


def _may_flush(actor: Actor) -> bool:
    """Whether this may be an fsync, of a checkpoint or of a log: one sleep in D until the disk has
    it all.
    """
    main, still_s = actor.doer, actor.motion.still_s
    for_disk = main is not None and main.wchan.startswith(_WAITS_FOR_DISK)
    return (for_disk or actor.long_work is not None) and still_s is not None and still_s < FLUSH_S


def _in_file_system(actor: Actor) -> bool:
    main = actor.doer
    return main is not None and any(main.wchan.startswith(name) for name in _WCHANS)


def _candidate(scene: Scene, actor: Actor) -> Candidate:
    uninterruptible = _uninterruptible(actor)
    hold = actor.hold
    path = hold.target if hold is not None else ""
    fifo = hold is not None and hold.kind == "fifo-open"
    main = actor.doer
    wchan = main.wchan if main is not None else ""
    what = "opens a FIFO that nobody has at the other end" if fifo else "waits for the file system"
    dataload = actor.phase == "dataload" and not uninterruptible
    return Candidate(
        cause="dataload-blocked" if dataload else "storage-blocked",
        culprits=culprit(actor),
        reason=f"{what}{f' ({path})' if path else ''}{in_phase(actor)}",
        evidence=(
            Item(
                "proc",
                actor.rank,
                f"state {main.state if main else '?'} in {wchan or 'the kernel'}",
            ),
            *_held_items(actor),
            *_disks(scene, actor),
            still_item(actor),
            stack_item(actor),
        ),
        sink=Sink.HELPER,
        liveness="never-wakes" if fifo or (uninterruptible and not _may_flush(actor)) else "unseen",
        phase=actor.phase,
        still_s=actor.motion.still_s,
        fixes=_FIFO_FIXES if fifo else _FIXES,
        confirm=(_confirm_fifo(path) if fifo else _confirm(path),),
    )


_FIXES = (
    Fix("Mend or unmount the file system; write checkpoints and caches to a local disk."),
    Fix("Save less often and only the weights.", "checkpoint.save_only_model"),
)
_FIFO_FIXES = (
    Fix("Start or mend the process that should open the FIFO's other end."),
    Fix("Open it with O_NONBLOCK, or pass a regular file or a socket with a time limit instead."),
)


def _confirm(path: str) -> str:
    return f"timeout 5 ls {quote(path.rpartition('/')[0] or '/')}  # hangs as well"


def _confirm_fifo(path: str) -> str:
    return f"fuser -v {quote(path)}  # who has it open: nobody else"


def _held_items(actor: Actor) -> tuple[Item, ...]:
    hold = actor.hold
    if hold is None:
        return ()
    note = f"; {hold.note}" if hold.note else ""
    return (Item("fd", actor.rank, f"{hold.kind} {hold.target}{note}"),)


def _disks(scene: Scene, actor: Actor) -> Iterator[Item]:
    for disk in disks_of(scene.evidence, actor.pid):
        if disk.error:
            yield Item("disk", actor.rank, f"{disk.path} ({disk.kind}): {disk.error}")
