"""Stuck, slow or dead: whether anything can still move the sink, and how long that may take.

A wait is a deadlock at once where nothing is left that could end it. Else the member of the sink
that is most alive decides: what it does is held against what this job's own steps have shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.causes.candidate import Sink
from grpo_doctor.hang.causes.description import peers_seen
from grpo_doctor.hang.certainty import at_most
from grpo_doctor.hang.decision.stall import nobody_is_at_it, silence_s
from grpo_doctor.hang.limits import FLOOR_S, LIMITS, WaitKind
from grpo_doctor.hang.model.nodes import RankNode
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting import polls
from grpo_doctor.hang.model.waiting.waits import Graph
from grpo_doctor.hang.verdict import State, Verdict

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
    if root.sink < Sink.HELPER and not (known and polls.all_ask(view)) and any(at_it):
        return "long", longest_s
    if helped or root.liveness == "computing":
        return "computes", longest_s
    silent_s = silence_s(view, root, culprits)
    if silent_s < FLOOR_S:
        return "polls", longest_s
    return "outside" if root.liveness == "outside" else "asleep", min(longest_s, silent_s)


def _somebody_works(view: JobView, graph: Graph, root: Candidate) -> bool:
    """Return whether a process that the culprits wait for, such as an engine, makes progress."""
    alive = frozenset(
        proc.node
        for proc in view.procs
        if (proc.activity.progresses or proc.ended_meanwhile)
        and proc.member.role != "rank"
        and not _is_held_up_by(graph, proc, root)
    )
    return not graph.moved_by(alive).isdisjoint(map(RankNode, root.culprits))


def _may_wait_for_work(view: JobView, culprits: Sequence[Process]) -> bool:
    """Return whether a culprit waits in C++, perhaps for another rank, and one makes progress."""
    if not any(proc.waits_in_c for proc in culprits):
        return False
    blamed = {proc.rank for proc in culprits}
    peers = (proc for rank, proc in view.by_rank.items() if rank not in blamed)
    return any(proc.activity.progresses and not proc.waits for proc in peers)


def _is_held_up_by(graph: Graph, helper: Process, root: Candidate) -> bool:
    """Return whether it is the root's own process or waits for that: a process may spin while it
    waits.
    """
    return helper.node == root.node or root.node in graph.reach.get(helper.node, ())


def _is_long_work(view: JobView, proc: Process) -> bool:
    """Work of minutes is believed where something moves or the answer comes from elsewhere."""
    if proc.cannot_run or proc.long_work is None or nobody_is_at_it(view, proc):
        return False
    return proc.activity.kind != "still" or proc.place.call == "http" or _receives(view, proc)


def _receives(view: JobView, proc: Process) -> bool:
    """Whether its answer may be on its way: not from ranks that wait themselves."""
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
