"""Ranks that use a core without progress, or that get none."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink, ranks_of
from grpo_doctor.hang.causes.description import busy_class, in_phase, stack_item
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.model.waiting.starvation import DELAYED, hardly_runs, throttled
from grpo_doctor.hang.verdict import Fix, Item

NICE = 5  # more than the other ranks


def propose(case: Case) -> Iterator[Candidate]:
    """Starved ranks first: a rank without a core looks busy to itself."""
    for proc in case.view.by_rank.values():
        if proc.cannot_run or proc.device_wait:
            continue
        starved = _starved(case.view, proc)
        if starved is not None:
            yield starved
        elif proc in case.suspects and _computes(proc) and not case.view.all_spin:
            yield _busy(proc)


def _computes(proc: Process) -> bool:
    """Return whether it computes at one line; without a stack, it may just be ending."""
    return proc.activity.kind == "busy" and proc.long_work is None and bool(proc.place.frames)


def _starved(view: JobView, proc: Process) -> Candidate | None:
    peers = [a for a in view.by_rank.values() if a.pid != proc.pid]
    usual = median([a.activity.delay_share for a in peers]) if peers else 0.0
    reasons = _reasons(view, proc, peers, usual)
    if not reasons:
        return None
    return Candidate(
        cause="cpu-starved",
        reason=f"gets too little CPU: {reasons[0]}{in_phase(proc)}",
        evidence=(
            Item(
                "proc",
                proc.rank,
                f"ran {proc.activity.cpu_share:.0%} of the time, was runnable without a core "
                f"{proc.activity.delay_share:.0%} (others {usual:.0%})",
            ),
            *(Item("cgroup", proc.rank, reason) for reason in reasons),
            stack_item(proc),
        ),
        sink=Sink.HELPER,
        liveness="progressing",
        fixes=(
            Fix(
                "Raise the CPU quota or nice priority, widen the core binding, or end other "
                "processes."
            ),
        ),
        confirm=(f"cat /proc/{proc.pid}/schedstat; sleep 1; cat /proc/{proc.pid}/schedstat",),
    ).of(proc)


def _reasons(view: JobView, proc: Process, peers: list[Process], usual: float) -> list[str]:
    """Why it gets no core; empty where it does, or where the others do not either."""
    activity = proc.activity
    delayed = activity.delay_share >= DELAYED and activity.delay_share > 2 * usual
    reasons = _by_limits(view, proc, peers, delayed) if proc.limits else []
    crowded = activity.kind == "working" and activity.cpu_share + activity.delay_share > 0.8
    if not reasons and delayed and not proc.waits and (crowded or hardly_runs(proc)):
        reasons.append("other processes use the cores")
    return reasons


def _by_limits(view: JobView, proc: Process, peers: list[Process], delayed: bool) -> list[str]:
    limits = proc.limits[-1]
    theirs = [peer.limits[-1] for peer in peers if peer.limits]
    reasons: list[str] = []
    if throttled(proc):
        quota = f"{limits.quota_cores:.2g}" if limits.quota_cores else "?"
        share = proc.throttled_share
        reasons.append(f"its CPU quota of {quota} cores throttles it {share:.0%} of the time")
    if delayed and limits.nice >= NICE + min((peer.nice for peer in theirs), default=0):
        reasons.append(f"it has nice {limits.nice} and gets no core")
    sharing = _sharing(view, proc)
    if proc.activity.delay_share >= DELAYED and sharing:
        cores = ", ".join(map(str, limits.cores))
        reasons.append(f"it is bound to core {cores} together with {sharing} other ranks")
    elif delayed and len(limits.cores) == 1 and any(len(peer.cores) > 1 for peer in theirs):
        reasons.append(f"it is bound to core {limits.cores[0]} alone and shares it")
    return reasons


def _sharing(view: JobView, proc: Process) -> int:
    """How many other ranks are bound to its cores: too few for all, where the host has more."""
    cores = proc.limits[-1].cores
    if not cores or len(cores) >= _cores_of_host(view, proc):
        return 0
    on_host = [peer for peer in view.by_rank.values() if peer.member.host == proc.member.host]
    same = [peer for peer in on_host if peer.limits and peer.limits[-1].cores == cores]
    return len(same) - 1 if len(same) > len(cores) else 0


def _cores_of_host(view: JobView, proc: Process) -> int:
    """Of several hosts only the sum is known: then what any process of this one may run on."""
    host = view.evidence.host
    if host is None:
        return 0
    on_host = [peer for peer in view.procs if peer.member.host == proc.member.host]
    if len(on_host) == len(view.procs):
        return host.cores
    return 1 + max(
        (max(peer.limits[-1].cores, default=-1) for peer in on_host if peer.limits), default=-1
    )


def _busy(proc: Process) -> Candidate:
    collecting = proc.place.call == "gc"
    doing = "collects garbage" if collecting else "computes"
    return Candidate(
        cause=busy_class(proc),
        culprits=ranks_of(proc),
        reason=f"{doing} with no end in sight{in_phase(proc)}",
        evidence=(
            Item(
                "proc",
                proc.rank,
                f"pid {proc.pid} used {proc.activity.cpu_share:.0%} of a core and was at the "
                "same place in each sample",
            ),
            stack_item(proc),
        ),
        sink=Sink.LINE,
        liveness="computing",
        phase=proc.phase,
        fixes=(
            Fix("Call gc.freeze() after setup, or collect less often.", "offload.gc_collect")
            if collecting
            else Fix("Limit this computation: run it in a separate process with a timeout."),
        ),
        confirm=(
            f"py-spy record --pid {proc.pid} --duration 10  # shows which lines take the time",
        ),
    )
