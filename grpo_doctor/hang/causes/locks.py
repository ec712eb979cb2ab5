"""Storage, lock files, and locks of threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from shlex import quote

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.candidate import (
    Candidate,
    Case,
    Liveness,
    Sink,
    at_frame,
    frame_text,
    in_phase,
    kernel_item,
    kernel_sleep,
    peers_seen,
    process_item,
    stack_item,
    standstill,
    still_item,
    title,
)
from grpo_doctor.hang.causes.connections import is_terminal
from grpo_doctor.hang.model.hosts import disks_of
from grpo_doctor.hang.model.nodes import number_of
from grpo_doctor.hang.model.process.progress import has_time_limit
from grpo_doctor.hang.model.process.stacks import is_library, place_of, short
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.wakeups import only_by_signals
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import bytes_text, seconds_text
from grpo_doctor_probes.evidence import Blocked, Disk, PythonThread, Thread

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


def storage(case: Case) -> Iterator[Candidate]:
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
    """Return whether it sleeps in the kernel for a file, by its state, its function or its call."""
    hold, blocking_thread = proc.hold, proc.blocking_thread
    if blocking_thread is not None and (
        blocking_thread.state == "D" or blocking_thread.wchan.startswith(_WCHANS)
    ):
        return True
    return hold is not None and hold.kind in ("file", "fifo-open") and not is_terminal(hold.target)


def _writes(proc: Process) -> bool:
    """Return whether it may be writing: its code says a checkpoint, or it has a file in hand."""
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
        fixes=advice("full disk"),
        confirm=(f"df -h {disk.path}; df -i {disk.path}",),
    ).of(proc)


def _slow(view: JobView, proc: Process) -> Candidate:
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
    sleeps = proc.blocking_thread is not None and proc.blocking_thread.state == "D"
    # A moment of it is ordinary for a process that writes.
    uninterruptible = sleeps and proc.activity.wakes == 0 and proc.activity.io_bytes == 0
    dataload = proc.phase == "dataload" and not uninterruptible
    never = fifo or (uninterruptible and not _may_flush(proc))
    return Candidate(
        cause="dataload-blocked" if dataload else "storage-blocked",
        reason=f"{wait}{f' ({path})' if path else ''}{in_phase(proc)}",
        evidence=(
            kernel_item(proc),
            *_held_items(proc),
            *(
                Item("disk", proc.rank, f"{disk.path} ({disk.kind}): {disk.error}")
                for disk in disks_of(view.evidence, proc.pid)
                if disk.error
            ),
            *standstill(proc),
        ),
        sink=Sink.HELPER,
        liveness="never-wakes" if never else "unseen",
        fixes=advice("FIFO" if fifo else "file system"),
        confirm=(
            f"fuser -v {quote(path)}  # shows no other process"
            if fifo
            else f"timeout 5 ls {quote(path.rpartition('/')[0] or '/')}  # hangs as well",
        ),
    ).of(proc)


def _may_flush(proc: Process) -> bool:
    """Whether this may be an fsync, of a checkpoint or of a log: one sleep in D until the disk has
    it all.
    """
    blocking_thread, still_s = proc.blocking_thread, proc.activity.still_s
    for_disk = blocking_thread is not None and blocking_thread.wchan.startswith(_WAITS_FOR_DISK)
    return (
        (for_disk or proc.place.long_work is not None) and still_s is not None and still_s < FLUSH_S
    )


def _held_items(proc: Process) -> tuple[Item, ...]:
    hold = proc.hold
    if hold is None:
        return ()
    note = f"; {hold.note}" if hold.note else ""
    return (Item("fd", proc.rank, f"{hold.kind} {hold.target}{note}"),)


_LOCKS = (".lock", ".lck", "/lock")


def file_locks(case: Case) -> Iterator[Candidate]:
    """Who has the file that a rank wants the lock of."""
    for proc in case.idle:
        hold = proc.hold
        if hold is not None and hold.kind == "file-lock":
            candidate = _file_lock(case.view, proc, hold)
        elif proc.place.call == "file-lock":
            candidate = _polled(case.view, proc)
        else:
            continue
        # A process that polls has just run, however long it has polled.
        yield candidate if proc.activity.kind == "still" else replace(candidate, still_s=None)


def _file_lock(view: JobView, proc: Process, hold: Blocked) -> Candidate:
    holders = peers_seen(view, hold)
    strangers = [pid for pid in hold.peers if pid not in view.by_pid]
    names = ", ".join([*map(title, holders), *(map(proc.name_of, strangers))])
    ranks = tuple(
        sorted({holder.rank for holder in holders if holder.rank is not None and holder.waits})
    )
    # A holder that merely stands may be in a download, whose next bytes are late.
    others = any(proc.activity.progresses for proc in view.procs if not proc.waits)
    asleep = all(
        holder.cannot_run or holder.waits or (only_by_signals(holder) and not others)
        for holder in holders
    )
    maybe = () if hold.peers_known else _may_have_it(view, proc)
    abandoned = hold.peers_known and not hold.peers
    held_by = f", held by {names}" if names else ", which an earlier run left behind" * abandoned
    never = abandoned or (holders and asleep and not strangers)
    liveness: Liveness = "never-wakes" if never else "computing" if maybe else "unseen"
    # A file that is nothing but a lock may be deleted; a database would lose its data.
    kind = "lock file" if hold.target.endswith(_LOCKS) else "locked file"
    fact = f"lock on {hold.target}; held by {names or 'no visible process'}"
    look = f"lsof {hold.target}  # who holds the lock"
    if abandoned:
        kind, fact = "abandoned lock", f"{hold.target}: {hold.note}"
        look = f"ls -l {hold.target}  # from when it is"
    candidate = Candidate(
        cause="lock-held",
        reason=f"waits for the file lock {hold.target}{held_by},{in_phase(proc)}".rstrip(","),
        evidence=(Item("fd", proc.rank, fact), *map(process_item, maybe[:1]), *standstill(proc)),
        sink=Sink.PROCESS if abandoned else Sink.HOLDER,
        liveness=liveness,
        fixes=advice(kind, "lock on one rank", path=hold.target),
        confirm=(look,),
        can_go_on="Yes, as soon as the file is deleted." if abandoned else "",
    ).of(proc)
    if not ranks:
        return candidate
    keeps = f"holds the lock {hold.target} while it waits in {holders[0].place.operation}"
    return replace(candidate, culprits=ranks, reason=keeps)


def _may_have_it(view: JobView, proc: Process) -> tuple[Process, ...]:
    """Return the busy processes of its host, any of which may hold a lock file of unknown owner:
    the first rank that compiles an extension holds one for all others.
    """
    return tuple(
        peer
        for peer in view.procs
        if peer is not proc
        and peer.member.host == proc.member.host
        and peer.member.role != "launcher"
        and peer.activity.progresses
        and not peer.waits
    )


def _polled(view: JobView, proc: Process) -> Candidate:
    """Libraries look for a lock file again and again: no call shows which one, and whose."""
    maybe = _may_have_it(view, proc)
    owner = f", perhaps {title(maybe[0])}, holds" if maybe else " left behind or still holds"
    return Candidate(
        cause="lock-held",
        reason=f"waits for a lock file that another process{owner}{in_phase(proc)}",
        evidence=(*map(process_item, maybe[:1]), *standstill(proc)),
        sink=Sink.HELPER,
        liveness="computing" if maybe else "unseen",
        fixes=advice("running holder" if maybe else "left behind", "lock per host"),
        confirm=(proc.shell("py-spy dump --locals --pid {pid}  # the path of the lock file"),),
    ).of(proc)


# Library functions whose innermost frame is a plain lock's acquire.
_ACQUIRES = ("acquire", "__enter__", "_acquireLock", "handle")
_IDLE = ("_worker", "_run_event_loop", "_monitor", "serve_forever", "_bootstrap")
_RUNNING = "RD"
_AWAKE_SHARE = 0.05  # of a core
_ASKS_PER_S = 50  # 200 by default, fewer on a crowded machine; ordinary waits wake less often


def thread_locks(case: Case) -> Iterator[Candidate]:
    """What holds a rank that wants the lock of a thread, or whose threads want the global one."""
    for proc in case.view.by_rank.values():
        if not proc.cannot_run and proc.activity.kind != "working":
            yield from _global_lock(case.view, proc)
    for proc in case.idle:
        candidate = _thread_lock(case.view, proc)
        if candidate is not None:
            yield candidate


def _global_lock(view: JobView, proc: Process) -> Iterator[Candidate]:
    """A thread that has the GIL in every look and does not let go: a C call that keeps it."""
    for thread in proc.python_threads:
        task = proc.thread(thread.tid)
        if not thread.owns_gil or task is None or not _owned_always(view, proc, thread.tid):
            continue
        runs = task.state in _RUNNING
        keeps = _main_wants_gil(proc, thread) if runs else proc.activity.cpu_share <= _AWAKE_SHARE
        if keeps:
            yield _gil_held(proc, thread, task, runs=runs).of(proc)


def _gil_held(proc: Process, thread: PythonThread, task: Thread, *, runs: bool) -> Candidate:
    does = "computes" if runs else "sleeps"
    where = f", at {_line(thread)}" if thread.frames else ""
    owner = (
        f"thread {number_of(thread.tid)} {thread.name} owns the GIL in state {task.state} "
        f"({task.wchan or does}); no other thread can run Python"
    )
    return Candidate(
        cause="gil-held",
        reason=f"{does} in a C call that keeps the GIL{where}",
        evidence=(Item("stack", proc.rank, owner), *standstill(proc)),
        sink=Sink.HOLDER,
        liveness="computing" if runs else "never-wakes",
        fixes=advice("GIL"),
        confirm=(proc.shell("py-spy dump --native --pid {pid}  # the C function that holds it"),),
    )


def _main_wants_gil(proc: Process, owner: PythonThread) -> bool:
    """Whether the main thread asks for the GIL again and again, at one place: Python asks every 5
    ms, and a thread that runs Python gives it up then. Only one in C code does not.
    """
    activity = proc.activity
    if owner.tid == proc.pid or activity.moved or activity.seconds <= 0:
        return False
    return activity.wakes / activity.seconds >= _ASKS_PER_S


def _owned_always(view: JobView, proc: Process, tid: int) -> bool:
    """Return whether every look found the GIL with this thread: a timer's has it for a moment."""
    stacks = [s for look in view.evidence.stacks for s in look if s.pid == proc.pid]
    owners = [
        {t.tid for t in s.threads if t.owns_gil} for s in stacks if s.threads and not s.native
    ]
    return all(tid in owned for owned in owners)


def _wants_lock(proc: Process, thread: PythonThread) -> bool:
    """Return whether a thread is in the acquire of a plain lock: asleep in a futex without a
    limit, in the user's own code or a wrapper of acquire. Waits for events and queues are in
    `threading.wait`.
    """
    if not thread.frames:
        return False
    task = proc.thread(thread.tid)
    hold = next((call for call in proc.blocked if call.tid == thread.tid), None)
    if hold is not None and hold.kind != "futex":
        return False
    if task is not None and has_time_limit(task):
        return False
    asleep = hold is not None or (task is not None and task.state == "S" and "futex" in task.wchan)
    inner = thread.frames[0]
    is_acquire = short(inner.function) in _ACQUIRES and "multiprocessing" not in inner.file
    plain = not is_library(inner) or is_acquire
    return asleep and plain


def _thread_lock(view: JobView, proc: Process) -> Candidate | None:
    threads = proc.python_threads
    if not threads or any(thread.owns_gil for thread in threads):
        return None
    main, beside = threads[0], threads[1:]
    wanting = [thread for thread in beside if _wants_lock(proc, thread)]
    busy = [thread for thread in beside if thread.frames and not _idle(thread)]
    # One that is at work may have the lock, and give it back.
    deadlocked = bool(wanting) and all(thread in wanting for thread in busy)
    if not _wants_lock(proc, main):
        timed = proc.main is not None and has_time_limit(proc.main)
        if not deadlocked or timed or proc.place.call != "lock":
            return None
        # A thread that waits gives back no lock. No proof: what wakes it may be C++.
        waiter = wanting[0]
        reason = (
            f"waits at {_line(main)} for thread {_label(waiter)}, which wants a lock at "
            f"{_line(waiter)} that no other thread can release"
        )
        joins = _locked(proc, "thread-deadlock", reason, (main, *wanting))
        return replace(joins, sink=Sink.HOLDER, fixes=advice("join under a lock"))
    if deadlocked:
        lines = f"{_line(main)} and {_line(wanting[0])}"
        reason = f"has two threads that wait for each other's lock: {lines}"
        deadlock = _locked(proc, "thread-deadlock", reason, (main, *wanting))
        return replace(
            deadlock, liveness="never-wakes", sink=Sink.HOLDER, fixes=advice("two locks")
        )
    others_wait = {peer.waits for peer in view.by_rank.values() if peer is not proc} == {True}
    if len(busy) == 1 and place_of(busy[0]).communicates and others_wait:
        # Its thread waits for the others, who wait for its main one.
        reason = (
            f"waits for a lock at {_line(main)} while thread {_label(busy[0])} is in "
            f"{place_of(busy[0]).operation} at {_line(busy[0])}, which the others never reach"
        )
        ring = _locked(proc, "group-order-cycle", reason, (main, busy[0]))
        return replace(ring, sink=Sink.HOLDER, fixes=advice("collective under a lock"))
    user = place_of(busy[0]).user if busy else None  # of the one that probably has the lock
    holder = f", while thread {_label(busy[0])} is{at_frame(user)}" if user else ""
    reason = f"waits for a lock that is never released, at {_line(main)}{holder}"
    locked = _locked(proc, "lock-held", reason, (main, *wanting))
    return replace(locked, fixes=advice("never released"))


def _label(thread: PythonThread) -> str:
    return thread.name or str(number_of(thread.tid))


def _line(thread: PythonThread) -> str:
    return frame_text(place_of(thread).user or thread.frames[0])


def _idle(thread: PythonThread) -> bool:
    return any(short(frame.function) in _IDLE for frame in thread.frames[-3:]) and not any(
        not is_library(frame) for frame in thread.frames
    )


def _locked(proc: Process, cause: str, reason: str, threads: Sequence[PythonThread]) -> Candidate:
    """What these threads do, the main one first, is why nothing moves."""
    lines = (f"thread {number_of(thread.tid)} {thread.name}: {_line(thread)}" for thread in threads)
    return Candidate(
        cause=cause,
        reason=reason,
        evidence=(still_item(proc), *(Item("stack", proc.rank, line) for line in lines)),
        sink=Sink.HELPER,
        confirm=(proc.shell("py-spy dump --pid {pid}  # threads in acquire"),),
    ).of(proc)


def waits_in_fork(proc: Process) -> bool:
    """Return whether a child is in a lock's acquire and has no other thread to release it."""
    threads = proc.python_threads
    return len(threads) == 1 and _wants_lock(proc, threads[0])
