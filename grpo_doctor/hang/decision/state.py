"""Whether the job stands, who may be the reason, and whether anything can still move it.

A wait is a deadlock at once where nothing is left that could end it. Else what may still run
decides: how long it has not run is held against what the steps of this job have shown. That the
others have waited long says nothing of a rank that asks, sleeps and asks again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.candidate import Sink, peers_seen
from grpo_doctor.hang.dumps import Recording
from grpo_doctor.hang.model.matching.model import CLASHES
from grpo_doctor.hang.model.nodes import ProcessNode, RankNode
from grpo_doctor.hang.model.view import FLOOR_S, LIMITS, JobView, Process, WaitKind, has_pending
from grpo_doctor.hang.model.waiting import tasks, wakeups
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor.hang.model.waiting.wakeups import asks_strangers, family
from grpo_doctor.hang.verdict import State, Verdict, at_most

# Who wants a lock, or an engine that has gone, tries again and again and never gets on.
_TRIED_IN_VAIN = frozenset({"lock-held", "rollout-engine-dead"})


def silence_s(view: JobView, root: Candidate, culprits: Sequence[Process]) -> float:
    """Of the process at the bottom of it, else of the rank that ran last; infinite where that does
    not matter.
    """
    if root.cause in _TRIED_IN_VAIN:
        return math.inf
    bottom = view.by_pid.get(root.node.pid) if isinstance(root.node, ProcessNode) else None
    if bottom is not None and bottom.cannot_run:
        return math.inf
    # Ray wakes an idle actor, or one that asks, by its own clock: that is no sign of progress.
    by_ray = [proc for proc in culprits if proc.is_idle or proc.asks]
    free = [p for p in culprits if not (p.cannot_run or p.waits or p in by_ray)]
    own = min((quiet_s(proc, proc.waker_tids) for proc in free), default=math.inf)
    if bottom is None:
        return own
    working = _at_work_s(view, bottom)
    if bottom.member.role != "server":
        return working
    # An event loop keeps connections open that it does not wait for.
    loops = any(proc.place.call == "asyncio" for proc in free)
    return own if loops else max(own, working)


def _at_work_s(view: JobView, bottom: Process) -> float:
    """Return the seconds since any thread ran that may serve this rank; for a server whose other
    threads only accept connections, its child processes count too.
    """
    of_ray = tasks.own_threads(view, bottom)
    if of_ray:
        return quiet_s(bottom, of_ray)
    hold = bottom.hold
    holders = peers_seen(view, hold) if hold is not None and hold.kind == "file-lock" else []
    if any(map(wakeups.has_timer, holders)):
        return 0.0
    process_s, threads = quiet_s(bottom, None), wakeups.serving(bottom)
    if threads is None or process_s >= FLOOR_S:
        return process_s
    below = (bottom, *family(view, view.children(bottom.pid)))
    if any(map(wakeups.has_timer, below)):
        return process_s
    return min(quiet_s(proc, wakeups.serving(proc)) for proc in below)


def nobody_is_at_it(view: JobView, proc: Process) -> bool:
    """Return whether an answer cannot be on its way: each process that could compute it is seen,
    is silent, and has set no timer.

    Those are the process at the other end and, as it may have forwarded the request, all other
    processes of the job that are no ranks. A process that waits for an answer from outside the job
    has forwarded the request to one that was not inspected.
    """
    hold = proc.hold
    ends = {view.by_pid.get(pid) for pid in hold.peers} if hold is not None else set()
    if proc.activity.kind != "still" or not ends:
        return False
    if any(process is None or process.member.role == "rank" for process in ends):
        return False
    beside = [process for process in view.procs if process.member.role not in ("rank", "launcher")]
    if any(asks_strangers(view, process) or process.activity.progresses for process in beside):
        return False
    if any(map(wakeups.has_timer, (proc, *beside))):
        return False
    return min(quiet_s(process, wakeups.serving(process)) for process in beside) >= FLOOR_S


def quiet_s(proc: Process, threads: frozenset[int] | None) -> float:
    """Since any of these threads ran, None for all; infinite where the kernel hides it."""
    if proc.look is None:
        return math.inf
    ages = [
        max(proc.look.at_ns - thread.last_ran_ns, 0) / 1e9
        for thread in proc.look.threads
        if thread.last_ran_ns and (threads is None or thread.tid in threads)
    ]
    return min(ages, default=math.inf)


_GOES_ON = 2  # calls of one rank in a group, while another waits forever
MOMENT_S = 2.0  # collectives of a healthy step may take that long


@dataclass(frozen=True, slots=True)
class Stall:
    """`stalled`: some rank has stood still for longer than a moment; of ranks that are Ray actors
    without a task, one of those with a task. `suspects` are the ranks that others may wait for,
    `working` those of them that make progress.
    """

    stalled: bool
    suspects: tuple[Process, ...]
    working: tuple[Process, ...]


_Wait = tuple[int, int]  # since when, and when that was read, in nanoseconds of Unix time


def stall_of(view: JobView) -> Stall:
    """Compare the activity of all ranks; without samples, recorded waits with earlier ones."""
    if not view.evidence.looks:
        clash = any(blame.reason in CLASHES for blame in view.matching.blame)
        return Stall(clash or view.wait_history.unusual(), (), ())
    ranks = tuple(view.by_rank.values())
    missing = {rank for status in view.matching.statuses for rank in status.missing}
    waiting = [proc for proc in ranks if proc.waits]
    idle = tasks.idle_ranks(view)
    free = (proc for proc in ranks if not proc.waits and proc not in idle)
    suspects = tuple(proc for proc in free if not _waits_for_unknown(view, proc))
    if not suspects and missing:
        # Their stacks say a collective, the recordings that it is not the one the others are in.
        suspects = tuple(
            proc for proc in waiting if proc.rank in missing and not _waits_for_ranks(view, proc)
        )
    still = [
        proc for proc in ranks if proc not in idle and (proc.cannot_run or _stands(view, proc))
    ]
    unanswered = len(idle) == len(ranks) and _unanswered(view)
    asked_in_vain = view.wait_history.unusual(tasks.asked_s(view) or 0.0, "polls")
    stands = bool(still) or view.all_spin or unanswered or asked_in_vain or _all_want_locks(view)
    return Stall(
        stalled=stands and not _moved_on(view),
        suspects=suspects,
        working=tuple(proc for proc in suspects if not proc.cannot_run and _works(proc)),
    )


def _waits_for_unknown(view: JobView, proc: Process) -> bool:
    """Return whether its host spins for its GPU and nothing shows what that does; False for a rank
    for which others wait in a collective.
    """
    if not proc.spins or has_pending(view.recordings, view.matching, proc.rank) is not None:
        return False
    waits = (wait for wait in view.matching.waits if wait.why == "missing")
    return not any(proc.rank in wait.on for wait in waits)


def _waits_for_ranks(view: JobView, proc: Process) -> bool:
    """Return whether its collective is one of the job's ranks. A rank that makes progress in an
    unrecorded one, or in a group of no other known rank, sends weights to a rollout engine.
    """
    known = any(wait.rank == proc.rank and wait.on for wait in view.matching.waits)
    return proc.place.communicates and (known or not proc.activity.is_active)


def _moved_on(view: JobView) -> bool:
    """Whether a rank called something after the recorder or the stack of one that waits was read.
    These are read one after the other, seconds apart on a busy machine: together they then show no
    standstill, and who was read later seems to be ahead of the others.
    """
    live = [recording for recording in view.recordings.ranks if not recording.from_file]
    by_host: dict[str, list[Recording]] = {}  # whose clock it is
    for recording in live:
        proc = view.by_rank.get(recording.rank) if recording.rank is not None else None
        by_host.setdefault(proc.member.host if proc is not None else "", []).append(recording)
    if any(_called_meanwhile(own, _recorded_waits(view, own)) for own in by_host.values()):
        return True
    return set(by_host) == {""} and _called_meanwhile(live, _transfer_waits(view))


def _recorded_waits(view: JobView, recordings: Sequence[Recording]) -> list[_Wait]:
    return [
        (pace.waiting_since_ns, recording.at_unix_ns)
        for recording in recordings
        if recording.rank is not None
        and (pace := view.matching.pace(recording.rank)) is not None
        and pace.waiting_since_ns
        and recording.at_unix_ns
    ]


def _transfer_waits(view: JobView) -> list[_Wait]:
    """Return the waits of ranks whose stack is in a send or recv, which gloo does not record: they
    count since the call before. An attach begins shortly before its first sample, so a time is
    rather too early than too late.
    """
    evidence = view.evidence
    if not evidence.looks:
        return []
    to_unix_ns = evidence.taken_unix_ns - evidence.looks[0].at_ns
    waits = []
    for rank, proc in view.by_rank.items():
        recording = view.recordings.of(rank)
        if proc.place.call == "p2p" and proc.stack is not None and recording is not None:
            read_ns = proc.stack.at_ns + to_unix_ns
            calls = (entry.created_ns or 0 for entry in recording.entries)
            since_ns = max((created for created in calls if created <= read_ns), default=0)
            waits.append((since_ns, read_ns))
    return waits


def called_since_first_look(view: JobView) -> bool:
    """Return whether a rank began a collective after the first sample."""
    if any(dump.recorded_meanwhile for dump in view.evidence.dumps):
        return True
    began_ns = view.evidence.taken_unix_ns
    newest_ns = max((pace.last_enqueued_ns or 0 for pace in view.matching.paces), default=0)
    return 0 < began_ns < newest_ns


def _called_meanwhile(recordings: Sequence[Recording], waits: Sequence[_Wait]) -> bool:
    """Return whether a rank called something while another one waited. Groups with calls during the
    whole wait do not count: a thread other than the main one uses them.
    """
    if not waits:
        return False
    since_ns, read_ns = map(min, zip(*waits))
    for recording in recordings:
        calls: dict[tuple[str, str], list[int]] = {}
        for entry in recording.entries:
            if entry.created_ns and entry.created_ns > since_ns:
                calls.setdefault((entry.group, entry.backend), []).append(entry.created_ns)
        for group in calls.values():
            before = sum(created <= read_ns for created in group)
            if before < _GOES_ON and before < len(group):
                return True
    return False


def _unanswered(view: JobView) -> bool:
    """Return whether no rank has a task and no process with a task makes progress. A rank that
    worked between the samples had one, and a wait shorter than an earlier one shows nothing.
    """
    quiet, usual_s = tasks.quiet_s(view), view.wait_history.longest_gap_s
    usual = quiet is not None and usual_s is not None and quiet <= usual_s
    if usual or any(proc.activity.kind == "working" for proc in view.by_rank.values()):
        return False
    at_work = tasks.at_work(view)
    return bool(at_work) and all(
        proc.cannot_run or proc.asks or _stands(view, proc) for proc in at_work
    )


def _all_want_locks(view: JobView) -> bool:
    """Return whether every rank polls a lock file and no running process may hold it. A rank that
    polls has just run, however long it has polled.
    """
    ranks = view.by_rank.values()
    tries = all(proc.place.call == "file-lock" and proc.activity.only_ticks for proc in ranks)
    able = (proc for proc in view.procs if not proc.serves_ray)
    return bool(ranks) and tries and not any(proc.activity.progresses for proc in able)


def _works(proc: Process) -> bool:
    """Return whether a rank works; one that spins at one line does only in CPU-bound work."""
    if proc.activity.kind == "busy":
        return proc.place.long_work is not None
    return proc.activity.kind == "working"


def _stands(view: JobView, proc: Process) -> bool:
    if proc.device_wait:
        return True  # two looks and a closer one, some seconds, at one line
    if proc.waits:
        return _waits_long(view, proc)
    still = proc.activity.still_s
    if proc.activity.kind == "still":
        return still is None or still >= MOMENT_S
    return False


def _waits_long(view: JobView, proc: Process) -> bool:
    pace = view.matching.pace(proc.rank) if proc.rank is not None else None
    if pace is not None and pace.waiting_since_ns is not None and pace.taken_ns:
        return (pace.taken_ns - pace.waiting_since_ns) / 1e9 >= MOMENT_S
    if proc.tid != proc.pid and proc.blocking_place.communicates:  # however its event loop ticks
        return quiet_s(proc, frozenset({proc.tid})) >= MOMENT_S
    still = proc.activity.still_s
    return proc.activity.kind == "still" and (still is None or still >= MOMENT_S)


_OPEN = "Only one sample was taken, which cannot show whether the job makes progress."


def state_of(view: JobView, graph: Graph, root: Candidate) -> State:
    """Dead or stuck where nothing can move the root, or where its wait is unusual for this job."""
    if root.liveness == "progressing":
        return "slow"
    if not view.evidence.looks:
        return "stuck"
    culprits = [view.by_rank[rank] for rank in root.culprits if rank in view.by_rank]
    helped = _somebody_works(view, graph, root) or _may_wait_for_work(view, culprits)
    longest_s = max(root.still_s or 0.0, view.wait_history.waited_s or 0.0)
    # Who polls has just run, however long it does so.
    wakes = any(proc.activity.kind == "polling" for proc in culprits)
    own_s = longest_s if root.still_s is None or wakes else root.still_s
    deadlock = root.cannot_move and not helped and own_s >= LIMITS["proven"].floor_s
    if root.certain or deadlock:
        return "dead" if root.liveness == "dead" else "stuck"
    wait_kind, waited_s = _wait_kind(view, root, culprits, helped=helped, longest_s=longest_s)
    return "stuck" if view.wait_history.unusual(waited_s, wait_kind) else "slow"


def _wait_kind(
    view: JobView, root: Candidate, culprits: Sequence[Process], *, helped: bool, longest_s: float
) -> tuple[WaitKind, float]:
    """What the wait of a sink that may still move is held against, and how long that wait is."""
    known = view.wait_history.familiar and view.wait_history.longest_gap_s is not None
    at_it = (_is_long_work(view, proc) for proc in culprits)
    if root.sink < Sink.HELPER and not (known and tasks.all_ask(view)) and any(at_it):
        return "long", longest_s
    if helped or root.liveness == "computing":
        return "computes", longest_s
    silent_s = silence_s(view, root, culprits)
    if silent_s < FLOOR_S:
        return "polls", longest_s
    return "outside" if root.liveness == "outside" else "asleep", min(longest_s, silent_s)


def _somebody_works(view: JobView, graph: Graph, root: Candidate) -> bool:
    alive = frozenset(
        proc.node
        for proc in view.procs
        if (proc.activity.progresses or proc.ended_meanwhile)
        and proc.member.role != "rank"
        # A process may spin while it waits for the root's own.
        and not (proc.node == root.node or root.node in graph.reach.get(proc.node, ()))
    )
    reached = (graph.reach.get(RankNode(rank), frozenset()) for rank in root.culprits)
    return any(not alive.isdisjoint(nodes) for nodes in reached)


def _may_wait_for_work(view: JobView, culprits: Sequence[Process]) -> bool:
    """Return whether a culprit waits in C++, perhaps for another rank, and one makes progress."""
    if not any(proc.waits_in_c for proc in culprits):
        return False
    blamed = {proc.rank for proc in culprits}
    peers = (proc for rank, proc in view.by_rank.items() if rank not in blamed)
    return any(proc.activity.progresses and not proc.waits for proc in peers)


def _is_long_work(view: JobView, proc: Process) -> bool:
    """Work of minutes is believed where something moves or the answer comes from elsewhere."""
    if proc.cannot_run or proc.place.long_work is None or nobody_is_at_it(view, proc):
        return False
    return proc.activity.kind != "still" or proc.place.call == "http" or _receives(view, proc)


def _receives(view: JobView, proc: Process) -> bool:
    """Return whether its answer may be on its way: not from ranks that wait themselves."""
    hold = proc.hold
    if hold is None or hold.kind != "socket-receive":
        return False
    peers = peers_seen(view, hold)
    return not peers or any(peer.member.role != "rank" or not peer.waits for peer in peers)


def as_of_one_look(view: JobView, verdict: Verdict, root: Candidate | None) -> Verdict:
    """Return `verdict`, weakened if a single sample found no stopped or ended process."""
    if len(view.evidence.looks) != 1 or (root is not None and root.certain):
        return verdict
    has_cause = verdict.state in ("stuck", "dead") and bool(verdict.cause)
    return msgspec.structs.replace(
        at_most(verdict, "possible"),
        state="slow",
        summary=f"{verdict.summary.rstrip('.')}, judging by a single sample."
        if has_cause
        else _OPEN,
    )
