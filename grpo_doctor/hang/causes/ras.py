"""What NCCL itself knows of its ranks: who launched less than the others, whom it has lost.

Written from NCCL's sources and tried on recorded answers; it was never run with real NCCL.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.causes.description import (
    blocked_class,
    busy_class,
    in_phase,
    others_wait,
    stack_item,
)
from grpo_doctor.hang.dumps.ras import Failure, Findings, LateRank, hear, judge
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.verdict import Fix, Item
from grpo_doctor_probes.evidence import Job, RasAnswer

SOURCE = "NCCL RAS"
# By error: what it means. A remote error is a victim's: its peer failed.
_CLASSES: dict[int, str] = {
    1: "gpu-fault",
    2: "network-silent",
    3: "network-silent",
    4: "collective-mismatch",
    5: "collective-mismatch",
}
_WARN = Fix("Find the first NCCL WARN in its log (NCCL_DEBUG=WARN), then restart.")
_GIVEN_UP = (
    "is considered dead by NCCL: no response for a minute",
    Fix("The others cannot continue without it: restart from the last checkpoint."),
)
_SILENT = (
    "does not respond to NCCL",
    Fix("Check its process: is it stopped? Can its host be reached?"),
)
_ON_ITS_HOST = "grpo-doctor attach  # on the host of this rank"
_CONFIRM = "ncclras -v  # or: echo verbose status | nc localhost 28028; again after some seconds"


def propose(case: Case) -> Iterator[Candidate]:
    """Ranks that NCCL lost, that reported an error, or that launched fewer collectives."""
    view = case.view
    report = findings(view)
    for failure in report.failures:
        if failure.rank is not None:
            yield from _failed(view, failure.rank, failure)
    if report.failures:
        return  # who waits for a lost rank launches nothing more either
    by_rank: dict[int, list[LateRank]] = {}
    for lag in report.laggards:
        if lag.rank is not None:
            by_rank.setdefault(lag.rank, []).append(lag)
    for rank, lags in by_rank.items():
        if lags[0].ahead and not others_wait(view, rank):
            continue  # who only waits for its GPU may compute there, and be the one that is late
        proc = view.by_rank.get(rank)
        if proc is not None and proc.waits and _waits_for_suspect(case, proc):
            continue
        yield _behind(case, rank, lags)


def findings(view: JobView) -> Findings:
    """What the answers of this visit show."""
    return _judged(view.evidence.job, view.evidence.ras)


@lru_cache(maxsize=2)
def _judged(job: Job, answers: tuple[RasAnswer, ...]) -> Findings:
    return judge(hear(job, answers))


def accused(view: JobView) -> set[int]:
    """The ranks at which RAS points. Every process answers for itself, so this is independent of
    torch's flight recorders.
    """
    report = findings(view)
    ranks = {entry.rank for entry in report.failures} | {entry.rank for entry in report.laggards}
    return {rank for rank in ranks if rank is not None}


def even_items(view: JobView) -> tuple[Item, ...]:
    """That RAS sees no difference between the ranks, and what it would not see; else ()."""
    if not findings(view).even:
        return ()
    text = (
        "every rank has launched the same collectives; RAS does not show a hang inside one, on "
        "the network or the GPUs"
    )
    return (Item(SOURCE, None, text),)


def _waits_for_suspect(case: Case, proc: Process) -> bool:
    """As a stage of a pipeline does: sends and receives are not counted."""
    reach = case.graph.reach.get(proc.node, frozenset())
    return any(suspect.node in reach for suspect in case.suspects)


def _behind(case: Case, rank: int, lags: list[LateRank]) -> Candidate:
    """Return the cause of a rank with a lower count: RAS does not show why it is late."""
    proc = case.view.by_rank.get(rank)
    lag = lags[0]
    items = tuple(Item(SOURCE, rank, _words(lag)) for lag in lags[:3])
    if lag.ahead or lag.instead or (proc is not None and proc.waits):
        return _strayed(case, rank, lag, items)
    if proc is None:  # on another host, where it may compute a reward or write a checkpoint
        return Candidate(
            cause="unknown",
            culprits=(rank,),
            reason=f"has not reached the {lag.operation} that the others are in; this host "
            "cannot see what it does",
            evidence=items,
            sink=Sink.COUNTERS,
            liveness="computing",
            confirm=(_ON_ITS_HOST, _CONFIRM),
        )
    busy = proc.spins or proc.activity.kind in ("busy", "working")
    return Candidate(
        cause=busy_class(proc) if busy else blocked_class(proc),
        reason=f"does not reach the next {lag.operation}{in_phase(proc)}",
        evidence=(*items, stack_item(proc)),
        sink=Sink.NOTHING,
        liveness="computing" if busy else "unseen",
        confirm=(_CONFIRM,),
    ).of(proc)


def _strayed(case: Case, rank: int, lag: LateRank, items: tuple[Item, ...]) -> Candidate:
    """It is in another call to the others than they are, or was and is on another host."""
    cause = "collective-mismatch" if lag.ahead or lag.instead else "collective-skipped"
    reason = f"skipped a {lag.operation} that the others call"
    if lag.ahead:
        reason = f"called one more {lag.operation} than the others"
    elif lag.instead:
        reason = f"called {lag.instead} where the others call {lag.operation}"
    strayed = Candidate(
        cause=cause,
        culprits=(rank,),
        reason=reason,
        evidence=items,
        sink=Sink.COUNTERS,
        fixes=(
            Fix("Make every rank call the same collectives: no call under a rank's own condition."),
        ),
        confirm=(_ON_ITS_HOST, _CONFIRM),
    )
    proc = case.view.by_rank.get(rank)
    if proc is None:
        return strayed
    sure = proc.waits and not lag.ahead and not case.waits_for_work(proc)
    return replace(
        strayed.of(proc),
        evidence=(*items, stack_item(proc)),
        liveness="never-wakes" if sure else "unseen",
        confirm=(_CONFIRM,),
    )


def _words(lag: LateRank) -> str:
    """`launched 41 AllReduce where most of the 8 ranks launched 42; the same at two looks`."""
    name = "collectives" if lag.operation == "collective" else lag.operation
    return (
        f"launched {lag.launched} {name} where most of the {lag.size} ranks of the "
        f"communicator launched {lag.others}; the same in both samples"
    )


def _failed(view: JobView, rank: int, failure: Failure) -> Iterator[Candidate]:
    dead = failure.what == "dead"
    if failure.error:
        cause, reason, fix = _CLASSES.get(failure.error), f"reports to NCCL: {failure.what}", _WARN
    else:
        # A process that is seen here to live is not dead, whatever its peers think.
        cause = "rank-dead" if dead and rank not in view.by_rank else "network-silent"
        reason, fix = _GIVEN_UP if dead else _SILENT
    if cause is None:
        return
    where = f"process {failure.process.pid} on {failure.process.host}: {failure.what}"
    yield Candidate(
        cause=cause,
        culprits=(rank,),
        reason=reason,
        evidence=(Item(SOURCE, rank, where),),
        sink=Sink.ORDER,
        liveness="never-wakes",
        still_s=view.wait_history.waited_s,
        fixes=(fix,),
        confirm=(f"ps -o pid,stat,wchan,args -p {failure.process.pid}  # on that host", _CONFIRM),
    )
