"""Ranks that cannot run (stopped, frozen, dead), and ranks without a process."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.candidate import (
    Candidate,
    Case,
    Sink,
    at_frame,
    in_phase,
    ranks_of,
    since_start_s,
    stack_item,
    standstill,
    still_item,
)
from grpo_doctor.hang.causes.host import (
    LIST_KILLS,
    oom_items,
    out_of_memory,
    recent_oom,
    unassigned_kills,
)
from grpo_doctor.hang.model.hosts import command, hosts_of
from grpo_doctor.hang.model.process.progress import TICKS_PER_SECOND
from grpo_doctor.hang.model.process.stacks import is_library, short
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.multihost.visits import is_old
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import hosts_text, ranks_text, verb
from grpo_doctor_probes.evidence import Placement

_AT_EXIT = ("_shutdown", "_exit_function", "_python_exit", "_run_exitfuncs", "shutdown")


def unable_to_run(case: Case) -> Iterator[Candidate]:
    """Ranks by the state of their process."""
    for proc in case.view.by_rank.values():
        if proc.activity.kind == "stopped":
            yield _stopped(proc)
        elif proc.activity.kind == "frozen":
            yield _frozen(proc)
        elif proc.activity.kind == "gone":
            if _missed(case.view, proc):
                yield _exited(case.view, proc)
        elif _leaves(proc) and _missed(case.view, proc):
            yield _leaving(case.view, proc)


def _stopped(proc: Process) -> Candidate:
    traced = proc.look is not None and proc.look.state == "t"
    how = "stopped by a debugger" if traced else "stopped by a signal"
    candidate = Candidate(
        cause="rank-stopped",
        reason=f"is {how}{in_phase(proc)}",
        evidence=standstill(proc),
        sink=Sink.PROCESS,
        liveness="never-wakes",
        fixes=advice("terminal"),
    )
    stopped = candidate.of(proc).continued(proc, "the job must resume immediately")
    return replace(stopped, fixes=advice("debugger", "terminal")) if traced else stopped


def _frozen(proc: Process) -> Candidate:
    file = next((limits.freezer for limits in reversed(proc.limits) if limits.freezer), "")
    word = "0" if file.endswith("cgroup.freeze") else "THAWED"
    return Candidate(
        cause="rank-stopped",
        reason=f"is frozen by its control group{in_phase(proc)}",
        sink=Sink.PROCESS,
        liveness="never-wakes",
        evidence=(Item("cgroup", proc.rank, f"{file or 'the freezer'} reports frozen"),),
        fixes=advice("frozen"),
        confirm=(proc.shell(f"echo {word} > {file}  # the job must resume immediately"),)
        if file
        else (),
    ).of(proc)


def _missed(view: JobView, proc: Process) -> bool:
    """Return whether it failed, or others wait for it: at the end of a job ranks end one by one."""
    failed = bool(_exit_code(proc)) or _first_is_unknown(view)
    return failed or any(proc.waits for proc in view.by_rank.values())


def _first_is_unknown(view: JobView) -> bool:
    """Return whether one rank failed and another ended in an unknown way.

    A rank that fails because another one died ends soon after it.
    """
    ended_ranks = [proc for proc in view.by_rank.values() if proc.activity.kind == "gone"]
    codes = [_exit_code(proc) for proc in ended_ranks]
    return any(codes) and None in codes


def _exit_code(proc: Process) -> int | None:
    return proc.look.exit_code if proc.look is not None else None


def _exited(view: JobView, proc: Process) -> Candidate:
    code = _exit_code(proc)
    how = _exit_text(code)
    exit_item = Item("proc", proc.rank, f"{proc.name} has ended{f': {how}' if how else ''}")
    oom = oom_items(view, proc)
    if oom:
        return out_of_memory(ranks_of(proc), (exit_item, *oom))
    unclear = _first_is_unknown(view)
    reason = f"is dead{f' ({how})' if how else ''}"
    if unclear:
        reason = "is dead; which rank died first is unknown"
    elif code == 0:
        reason = "exited normally (exit code 0), but others still wait for it"
    sink = Sink.PROCESS if code or unclear else Sink.ENDED
    rank_dead = dead(ranks_of(proc), reason, (exit_item, *_last_words(view, proc)), sink)
    return replace(rank_dead, either=unclear)


def dead(ranks: tuple[int, ...], reason: str, evidence: tuple[Item, ...], sink: Sink) -> Candidate:
    """Ranks of which no process is left."""
    return Candidate(
        cause="rank-dead",
        culprits=ranks,
        reason=reason,
        evidence=evidence,
        sink=sink,
        liveness="dead",
        fixes=advice("traceback"),
    )


def _leaves(proc: Process) -> bool:
    """Whether its program has ended, by its end or an exception, and Python waits for what is left
    of it: threads, child processes, handlers of `atexit`.
    """
    outermost = proc.place.frames[-1] if proc.place.frames else None
    return (
        outermost is not None
        and is_library(outermost)
        and short(outermost.function) in _AT_EXIT
        and not proc.activity.progresses
    )


def _leaving(view: JobView, proc: Process) -> Candidate:
    thread = proc.blocking_place.user if proc.blocking_place is not proc.place else None
    wait = f" and waits for its thread{at_frame(thread)}" if thread is not None else ""
    return Candidate(
        cause="rank-dead",
        reason=(
            f"has left its main program, normally or by an exception,{wait or ' and cannot exit'}"
        ),
        sink=Sink.HOLDER,
        evidence=(*_last_words(view, proc), stack_item(proc), still_item(proc)),
        fixes=advice("traceback", "daemon threads"),
        confirm=(proc.shell("py-spy dump --pid {pid}  # no frame of the training loop is left"),),
    ).of(proc)


def _exit_text(code: int | None) -> str:
    if code is None:
        return ""
    number = code & 0x7F
    if number == 0:
        return f"exit code {code >> 8}"
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"


def _last_words(view: JobView, proc: Process) -> tuple[Item, ...]:
    lines = [line for log in view.evidence.logs if log.pid == proc.pid for line in log.lines]
    return tuple(Item("log", proc.rank, line) for line in lines[-3:])


JOINING_S = 120.0  # of a job over several hosts, which pull images and start one by one
JOINING_HERE_S = 5.0  # after the last process was started; and as much again as they took to start


def missing_ranks(case: Case) -> Iterator[Candidate]:
    """Missing ranks of this host, and of others, at the start of a job or in the middle of it."""
    view, missing = case.view, case.view.evidence.job.ranks_missing
    if not view.by_rank:
        return
    absent = tuple(rank for rank in missing if rank not in {*view.by_rank, *view.elsewhere})
    if absent:
        yield _absent(view, absent)
    joining = [
        proc for proc in view.by_rank.values() if proc.place.call == "store" or proc.at_store
    ]
    differing = tuple(_started_differently(view, joining)) if joining else ()
    yield from differing
    if view.elsewhere and not differing:  # else it is no wonder that ranks are missing
        yield _elsewhere(view, tuple(sorted(view.elsewhere)), joining)


def _absent(view: JobView, ranks: tuple[int, ...]) -> Candidate:
    size = view.evidence.job.world_size
    fact = Item("proc", None, f"{len(view.by_rank)} of {size} ranks are on this host")
    joining = [proc for proc in view.by_rank.values() if proc.place.call == "store"]
    if joining:
        never = joined_for_s(view) > _joining_s(view, ranks)
        absent = _not_joined(ranks, joining, "has not joined the rendezvous", fact, never=never)
        return replace(
            absent,
            sink=Sink.PROCESS,
            fixes=advice("missing here"),
            confirm=("pgrep -af python  # on every host: is the missing rank's process there?",),
        )
    reason = "is dead: its process is gone"
    if any(proc.waits for proc in view.by_rank.values()):
        oom = recent_oom(view)
        if oom:
            return out_of_memory(ranks, (fact, *oom))
        maybe = unassigned_kills(view)
        candidate = dead(ranks, reason, (fact, *maybe), Sink.ENDED)
        return replace(candidate, confirm=(LIST_KILLS,)) if maybe else candidate
    # A rank that nobody waits for may have ended in order.
    return replace(dead(ranks, reason, (fact,), Sink.NOTHING), liveness="unseen")


def joined_for_s(view: JobView) -> float:
    """Since the last of the ranks that are here was started, or for how long they have waited.

    Waiting at the store is done in slices of some seconds, after each of which the thread runs.
    """
    age_s = since_start_s(view, tuple(view.by_rank.values()))
    return max(view.wait_history.waited_s or 0.0, age_s)


def _joining_s(view: JobView, ranks: tuple[int, ...]) -> float:
    """For how long a rank may be missing. One launcher starts all of a host's ranks at once, in
    their order: one before the last that is here was started as well, and has ended.
    """
    job = view.evidence.job
    if job.local_ranks is None or job.local_ranks != job.world_size:
        return JOINING_S
    if max(ranks) < max(view.by_rank):
        return JOINING_HERE_S
    begun = [proc.member.started_ticks for proc in view.by_rank.values()]
    return JOINING_HERE_S + 3 * (max(begun) - min(begun)) / TICKS_PER_SECOND


def _not_joined(
    ranks: tuple[int, ...], joining: list[Process], reason: str, fact: Item, *, never: bool
) -> Candidate:
    return Candidate(
        cause="rank-missing",
        culprits=ranks,
        reason=reason,
        evidence=(fact, *(stack_item(proc) for proc in joining[:2])),
        sink=Sink.KILLED,
        liveness="never-wakes" if never else "unseen",
        phase="init",
        still_s=max((proc.activity.still_s or 0.0 for proc in joining), default=None),
    )


def _elsewhere(view: JobView, unseen: tuple[int, ...], joining: list[Process]) -> Candidate:
    """All ranks here wait: the rank that holds the job up is on a host that was not looked at."""
    looks = (command(view.evidence.job),)
    for_them = f"for {ranks_text(unseen)}, {_not_here(view, unseen)}"
    if any(proc.place.call == "store" for proc in joining):
        reason = "has not joined the rendezvous"
        never = joined_for_s(view) > JOINING_S
        return replace(
            _not_joined(unseen, joining, reason, _counted(view), never=never),
            whole=f"{_seen_ranks(view)} wait at the rendezvous {for_them}",
            fixes=advice("missing elsewhere", "one command"),
            confirm=looks,
        )
    waiting = any(proc.waits for proc in view.by_rank.values())
    calls = {proc.place.operation for proc in view.by_rank.values() if proc.waits} - {""}
    where = f" in {calls.pop()}" if len(calls) == 1 else ""
    wait = f"{'wait' if waiting else 'may wait'}{where}"
    return Candidate(
        cause="unknown",
        culprits=unseen,
        reason="is not on this host",
        whole=f"{_seen_ranks(view)} {wait} {for_them}",
        evidence=(_counted(view),),
        sink=Sink.NOTHING,
        liveness="computing",  # on its own host it may write a checkpoint: not seen here
        fixes=advice("one command"),
        confirm=looks,
    )


def _started_differently(view: JobView, joining: list[Process]) -> Iterator[Candidate]:
    """Hosts that were started with other world sizes, or as the same node."""
    job = view.evidence.job
    sizes: dict[int, list[Placement]] = {}
    for placement in job.placements:
        if placement.world_size:
            sizes.setdefault(placement.world_size, []).append(placement)
    if len(sizes) > 1:
        by_size = "; ".join(
            f"{size} on {hosts_text([placement.host for placement in placements])}"
            for size, placements in sorted(sizes.items())
        )
        fewest = min(sizes, key=lambda size: (len(sizes[size]), size))
        ranks = tuple(sorted({rank for placement in sizes[fewest] for rank in placement.ranks}))
        statement = f"the hosts were started with different world sizes: {by_size}"
        yield _wrongly_started(ranks, statement, f"WORLD_SIZE: {by_size}", joining)
    hosts, ranks = _claimed_twice(job.placements)
    if ranks:
        nowhere = (
            f"; {ranks_text(job.ranks_missing)} {verb(job.ranks_missing, 'was')} not started"
            if job.ranks_missing
            else ""
        )
        twice = f"{ranks_text(ranks)} {verb(ranks, 'was')} started twice"
        statement = f"{twice}, on {hosts_text(hosts)}{nowhere}"
        fact = f"{ranks_text(ranks)}: processes on {hosts_text(hosts)} at the same time"
        yield _wrongly_started(tuple(job.ranks_missing) or ranks, statement, fact, joining)


def _wrongly_started(
    ranks: tuple[int, ...], statement: str, fact: str, joining: list[Process]
) -> Candidate:
    reason, item = "was started differently from the others", Item("environment", None, fact)
    absent = _not_joined(ranks, joining, reason, item, never=True)
    return replace(absent, whole=statement, fixes=advice("started differently"))


def _claimed_twice(placements: Sequence[Placement]) -> tuple[list[str], tuple[int, ...]]:
    claims: dict[int, list[Placement]] = {}
    for placement in placements:
        for rank in placement.ranks:
            claims.setdefault(rank, []).append(placement)
    twice = {
        rank: claim
        for rank, claim in claims.items()
        if len(claim) > 1
        and not is_old(min(p.taken_unix_ns for p in claim), max(p.taken_unix_ns for p in claim))
    }
    hosts = sorted({placement.host for claim in twice.values() for placement in claim})
    return hosts, tuple(sorted(twice))


def _seen_ranks(view: JobView) -> str:
    several = len(view.evidence.job.placements) > 1
    return "the inspected ranks" if several else "the ranks of this host"


def _not_here(view: JobView, unseen: tuple[int, ...]) -> str:
    """`which are not on this host (probably on node2)`."""
    several = len(view.evidence.job.placements) > 1
    where = "not on any inspected host" if several else "not on this host"
    hosts = hosts_of(view.evidence.job, unseen)
    probably = f" (probably on {hosts_text(hosts)})" if hosts else ""
    return f"which {verb(unseen, 'is')} {where}{probably}"


def _counted(view: JobView) -> Item:
    job = view.evidence.job
    hosts = hosts_text([placement.host for placement in job.placements]) or job.host
    text = f"{len(view.by_rank)} of {job.world_size} ranks were seen, on {hosts}"
    return Item("proc", None, text)
