"""Locks that are files: held, left behind, or kept by a rank that waits for the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor.hang.causes.candidate import Candidate, Case, Liveness, Sink
from grpo_doctor.hang.causes.description import (
    in_phase,
    peers_seen,
    process_item,
    standstill,
    title,
)
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.wakeups import only_by_signals
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor_probes.evidence import Blocked

_LOCKS = (".lock", ".lck")
_LET_IT_END = Fix("Let the running process finish: it may hold the lock.")
_LEFT_BEHIND = Fix(
    "End the process that holds it. If no process holds it, the lock file is stale: check it."
)


def propose(case: Case) -> Iterator[Candidate]:
    """Who has the file that a rank wants the lock of."""
    for proc in case.idle:
        hold = proc.hold
        if hold is not None and hold.kind == "file-lock":
            yield _file_lock(case.view, proc, hold)
        elif proc.place.call == "file-lock":
            yield _polled(case.view, proc)


def _file_lock(view: JobView, proc: Process, hold: Blocked) -> Candidate:
    holders = peers_seen(view, hold)
    strangers = [pid for pid in hold.peers if pid not in view.by_pid]
    names = ", ".join([*map(title, holders), *(f"pid {pid}" for pid in strangers)])
    ranks = tuple(
        sorted({holder.rank for holder in holders if holder.rank is not None and holder.waits})
    )
    # A holder that merely stands may be in a download, whose next bytes are late.
    asleep = all(
        holder.cannot_run or holder.waits or _sleeps_on(view, holder) for holder in holders
    )
    maybe = () if hold.peers else _may_have_it(view, proc)
    held_by = f", held by {names}" if names else ""
    liveness: Liveness = "computing" if maybe else "unseen"
    fact = f"flock on {hold.target}; held by {names or 'no visible process'}"
    candidate = Candidate(
        cause="lock-held",
        reason=f"waits for the file lock {hold.target}{held_by},{in_phase(proc)}".rstrip(","),
        evidence=(Item("fd", proc.rank, fact), *map(process_item, maybe[:1]), *standstill(proc)),
        sink=Sink.HOLDER,
        liveness="never-wakes" if holders and asleep and not strangers else liveness,
        fixes=(_release(hold.target), Fix("Take the lock with a timeout, and on one rank only.")),
        confirm=(f"lsof {hold.target}  # who holds the lock",),
    ).of(proc)
    if not ranks:
        return candidate
    keeps = f"holds the lock {hold.target} while it waits in {holders[0].place.operation}"
    return replace(candidate, culprits=ranks, reason=keeps)


def _release(path: str) -> Fix:
    """A file that is nothing but a lock may be deleted; a database would lose its data."""
    if path.endswith(_LOCKS):
        return Fix(f"End the process that holds {path}; if no process holds it, delete that file.")
    return Fix(f"End the process that holds {path}, or let it finish; keep the file.")


def _sleeps_on(view: JobView, holder: Process) -> bool:
    """Return whether it sleeps until a signal arrives and no running process may send one."""
    free = (proc for proc in view.procs if not proc.waits)
    return only_by_signals(holder) and not any(proc.activity.progresses for proc in free)


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
    candidate = Candidate(
        cause="lock-held",
        reason=f"waits for a lock file that another process{owner}{in_phase(proc)}",
        evidence=(*map(process_item, maybe[:1]), *standstill(proc)),
        sink=Sink.HELPER,
        liveness="computing" if maybe else "unseen",
        fixes=(
            _LET_IT_END if maybe else _LEFT_BEHIND,
            Fix("Take such a lock on only one rank per host, and with a timeout."),
        ),
        confirm=(f"py-spy dump --locals --pid {proc.pid}  # the path of the lock file",),
    ).of(proc)
    # Who polls has just run, however long it has been at it.
    return candidate if proc.activity.kind == "still" else replace(candidate, still_s=None)
