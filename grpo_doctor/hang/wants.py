"""What more the diagnosis wants to know of a live job: requests for its next round. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Literal

from grpo_doctor.hang.decision.state import Stall, stall_of
from grpo_doctor.hang.diagnose import diagnose_view
from grpo_doctor.hang.model.process.stacks import short
from grpo_doctor.hang.model.view import FLOOR_S, JobView, build
from grpo_doctor.hang.model.waiting import tasks
from grpo_doctor_probes.evidence import Evidence

What = Literal[
    "sample",  # of all processes
    "variables",  # arguments of the named functions on the stack of a process
    "coroutines",  # what those of event loops wait for
    "lock-file",  # that a process tries again and again, and the process that has it
    "memory",  # flight recorders that are in the memory of ranks
    "recorders",  # flight recorders by every way
    "native",  # C and C++ frames of a process
]
MOST_SAMPLES = 4
TRIES_LOCK = frozenset({"acquire", "_acquire", "_poll_until_acquired", "_jit_compile"})
P2P = frozenset({"send", "recv", "isend", "irecv", "send_object_list", "recv_object_list"})
ROOTED = frozenset(
    {"broadcast", "reduce", "gather", "scatter", "gather_object"}
    | {"broadcast_object_list", "scatter_object_list"}
)
CREATING = frozenset({"new_group", "new_subgroups", "split_group"})
CREATES = frozenset({"_new_process_group_helper", "_new_group_with_tag"})
MOST_ROOTED = 8
MOST_LOOPS = 64
MOST_CREATING = 16


@dataclass(frozen=True, slots=True)
class Request:
    """Something to collect, of one process (None: of the job)."""

    what: What
    pid: int | None = None
    functions: frozenset[str] = frozenset()
    loops: tuple[tuple[int, int], ...] = ()  # process and thread of each


def wants(evidence: Evidence, answered: Set[What]) -> tuple[Request, ...]:
    """Return what to collect next of a job that may be stuck; empty once it is enough.

    Args:
        evidence: as collected so far, with at least two samples.
        answered: what was collected, or could not be.
    """
    if "recorders" in answered:
        return ()
    view = build(evidence)
    stall = stall_of(view)
    if "sample" not in answered and _may_still_move(view, stall):
        return (Request("sample"),)
    early = tuple(request for request in _early(view, stall) if request.what not in answered)
    if stall.stalled and Request("memory") not in early:
        return (*early, Request("recorders"))
    return early


def _may_still_move(view: JobView, stall: Stall) -> bool:
    """Return whether nothing moved between samples and nothing waits for longer than steps of a
    healthy job may sleep: another sample shows whether it moves.
    """
    if len(view.evidence.looks) >= MOST_SAMPLES:
        return False
    verdict, waited_s = diagnose_view(view).verdict, view.wait_history.waited_s
    is_short = waited_s is not None and waited_s < FLOOR_S
    return verdict.state == "slow" and (is_short or not (stall.stalled or verdict.cause))


def _early(view: JobView, stall: Stall) -> Iterator[Request]:
    ranks = view.by_rank.values()
    for proc in list(filter(tasks.asks_again, ranks))[:MOST_ROOTED]:
        yield Request("variables", proc.pid, frozenset({short(proc.place.frames[0].function)}))
    moved = any(proc.activity.kind == "working" for proc in ranks)
    loops = [
        (proc.pid, loop.tid if loop is not None else proc.pid)
        for proc in view.procs
        if (loop := proc.idle_loop) is not None or proc.place.call in ("pool", "asyncio")
    ]
    if loops and not moved:
        yield Request("coroutines", loops=tuple(loops[:MOST_LOOPS]))
    if tasks.all_ask(view) or not (moved or stall.stalled):
        yield Request("memory")  # do they ask in vain, or start collectives meanwhile?


def wants_explained(evidence: Evidence) -> Iterator[Request]:
    """Yield what no recorder of a stuck job has: the partners of gloo's sends and receives, the
    source or target of a collective that some ranks have left and others never do, groups that do
    not exist yet, and lock files. A third sample shows whether a rank works: two may meet a loop at
    one line by chance; three hardly do.
    """
    view = build(evidence)
    stall = stall_of(view)
    ranks = [proc for proc in view.by_rank.values() if not proc.cannot_run]
    joined = {wait.rank for wait in view.matching.waits if wait.why == "joined"}
    rooted = [proc for proc in ranks if proc.place.operation in ROOTED and proc.rank in joined]
    creating = [proc for proc in ranks if proc.place.operation in CREATING]
    transfers = [proc for proc in ranks if proc.place.call == "p2p"]
    for proc in (*rooted[:MOST_ROOTED], *transfers, *creating[:MOST_CREATING]):
        yield Request("variables", proc.pid, P2P | ROOTED | CREATES)
    unclear = any(proc.activity.kind in ("busy", "polling") for proc in stall.suspects)
    # That a host that spins stayed at its line is known of this attach alone.
    if unclear or any(proc.device_wait for proc in ranks):
        yield Request("sample")
    for proc in ranks:
        if proc.place.call == "file-lock":
            yield Request("lock-file", proc.pid, TRIES_LOCK)


def wants_native(evidence: Evidence) -> Iterator[Request]:
    """Yield ranks that only their native frames can explain: reading them stops a rank."""
    view = build(evidence)
    verdict, ranks = diagnose_view(view).verdict, view.by_rank
    procs = [ranks[rank] for rank in verdict.culprits or tuple(ranks) if rank in ranks]
    if verdict.cause != "unknown":
        procs = [proc for proc in procs if proc.waits_in_c] if verdict.culprits else []
    yield from (Request("native", proc.pid) for proc in procs)
