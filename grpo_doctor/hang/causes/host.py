"""Memory and CPU of the host: killed, swapped out, throttled, or busy without progress."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from statistics import median

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.candidate import (
    Candidate,
    Case,
    Sink,
    asleep_for,
    busy_class,
    in_phase,
    kernel_item,
    ranks_of,
    stack_item,
    standstill,
)
from grpo_doctor.hang.model.nodes import process_in
from grpo_doctor.hang.model.view import JobView, Process
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import bytes_text

_KILLED = re.compile(r"[Kk]illed process (\d+)")
LIST_KILLS = "dmesg -T | grep -i 'killed process'"
_MOST_KILLS = 2
# A swap disk answers in 0.1 ms (NVMe) to 10 ms (spinning): 100 in a second are 1% to all of it.
_SWAPS_PER_S = 100.0
_SWAPPED_BYTES = 16 * 1024 * 1024
BEFORE_THE_WAIT_S = 10.0  # a rank may be killed a little before others wait for it


def memory(case: Case) -> Iterator[Candidate]:
    """Ranks that wait for memory, or for pages that were swapped out."""
    yield from map(_waits_for_memory, asleep_for("memory", case.hosts))
    yield from filter(None, map(_swapped, case.hosts))


def _waits_for_memory(proc: Process) -> Candidate:
    limits = proc.limits[-1] if proc.limits else None
    room = ""
    if limits is not None and limits.memory_limit_bytes is not None:
        used = bytes_text(limits.memory_used_bytes or 0)
        room = f": its control group uses {used} of {bytes_text(limits.memory_limit_bytes)}"
    return Candidate(
        cause="oom-killed",
        reason=(f"waits for memory that its control group does not provide{room},{in_phase(proc)}"),
        sink=Sink.HOLDER,
        liveness="never-wakes" if proc.activity.kind == "still" else "unseen",
        evidence=(kernel_item(proc), *standstill(proc)),
        fixes=advice("memory limit"),
        confirm=("cat /sys/fs/cgroup/**/memory.events  # high, max and oom grow",),
    ).of(proc)


def _swapped(proc: Process) -> Candidate | None:
    activity, look = proc.activity, proc.look
    if proc.cannot_run or look is None or not activity.seconds:
        return None
    faults_per_s = activity.major_faults / activity.seconds
    if faults_per_s < _SWAPS_PER_S or look.swap_bytes < _SWAPPED_BYTES:
        return None
    swapped = f"{bytes_text(look.swap_bytes)} of its memory is swapped out"
    return Candidate(
        cause="memory-swapped",
        reason=f"waits for pages that were swapped out{in_phase(proc)}: {swapped}",
        evidence=(
            Item(
                "proc",
                proc.rank,
                f"{proc.name} had {faults_per_s:.0f} major page faults per second; "
                f"{swapped}, {bytes_text(look.rss_bytes)} is in memory",
            ),
            stack_item(proc),
        ),
        sink=Sink.HOLDER,
        liveness="progressing",
        fixes=advice("less memory", "swapped"),
        confirm=(proc.shell("grep VmSwap /proc/{pid}/status; vmstat 1 5  # columns si and so"),),
    ).of(proc)


def out_of_memory(
    culprits: tuple[int, ...],
    items: tuple[Item, ...],
    reason: str = "was killed because memory ran out",
) -> Candidate:
    """The verdict that these ranks lost a process to the kernel's OOM killer."""
    return Candidate(
        cause="oom-killed",
        culprits=culprits,
        reason=reason,
        evidence=items,
        sink=Sink.KILLED,
        liveness="dead",
        fixes=advice("out of memory", "less memory"),
        confirm=(LIST_KILLS,),
    )


def oom_items(view: JobView, proc: Process) -> tuple[Item, ...]:
    """Kernel messages that name this process, or a kill counted in its control group."""
    items = [Item("kernel", proc.rank, text) for _, pid, text in _kills(view) if pid == proc.pid]
    kills = [limits.oom_kills for limits in proc.limits]
    if kills and kills[-1] > 0 and _is_counted(view, proc):
        items.append(Item("cgroup", proc.rank, f"its control group counts {kills[-1]} OOM kills"))
    return tuple(items)


def _is_counted(view: JobView, proc: Process) -> bool:
    """Whether a kill that its control group counts may be its own end. The group counts since it
    was made: a kill of yesterday is not.
    """
    kills = [limits.oom_kills for limits in proc.limits]
    code = proc.look.exit_code if proc.look is not None else None
    if kills[-1] > kills[0] or code == signal.SIGKILL:
        return True
    return code is None and bool(_lately(view))


def _kills(view: JobView) -> Iterator[tuple[float, int, str]]:
    """What the kernel says of OOM kills: how many seconds ago, of which process, its words."""
    members = view.evidence.job.members
    for age_s, text in view.evidence.host.kernel if view.evidence.host is not None else ():
        killed = _KILLED.search(text)
        if killed:
            yield age_s, process_in(members, text, int(killed.group(1))), text


def _lately(view: JobView) -> list[tuple[int, str]]:
    """Those since the ranks wait, by process. In a container the kernel names processes by the
    numbers of its host, which none here has.
    """
    since_s = (view.wait_history.waited_s or 0.0) + BEFORE_THE_WAIT_S
    return [(pid, text) for age_s, pid, text in _kills(view) if age_s <= since_s]


def unassigned_kills(view: JobView) -> tuple[Item, ...]:
    """OOM kills since the ranks wait that nothing ties to this job, or keeps from being of it: a
    rank that had a control group of its own has left no count behind.
    """
    return tuple(
        Item("kernel", None, f"{text}; unknown whether that process belonged to this job")
        for _, text in _lately(view)[-_MOST_KILLS:]
    )


def recent_oom(view: JobView) -> tuple[Item, ...]:
    """An OOM kill that may have been of a rank whose process number is no longer known.

    Ranks of a job are started one after the other, so theirs are close together; other jobs of the
    host are killed as well. A kill is of the ranks' control group if that has counted it.
    """
    apart = 2 * len(view.world)
    lately = _lately(view)
    items = [
        Item("kernel", None, text)
        for killed, text in lately
        if any(abs(killed - proc.pid) <= apart for proc in view.by_rank.values())
    ]
    limits = [proc.limits[-1] for proc in view.by_rank.values() if proc.limits]
    kills = [limit.oom_kills for limit in limits if limit.memory_limit_bytes is not None or lately]
    if not items and any(kills):
        text = f"the ranks' control group counts {max(kills)} OOM kills"
        return (Item("cgroup", None, text),)
    return tuple(items)


NICE = 5  # more than the other ranks
THROTTLED = 0.3  # of the time throttled by its quota
DELAYED = 0.3  # of the time runnable without a core
_MOSTLY_DELAYED = 0.5
_HARDLY_RUNS = 0.25  # of the time that it waited for a core: who shares one fairly has more


def cpu(case: Case) -> Iterator[Candidate]:
    """Starved ranks first: a rank without a core looks busy to itself."""
    for proc in case.view.by_rank.values():
        if proc.cannot_run or proc.device_wait:
            continue
        starved = _starved(case.view, proc)
        if starved is not None:
            yield starved
            continue
        computes = (
            proc.activity.kind == "busy" and proc.place.long_work is None and not case.view.all_spin
        )
        if proc in case.suspects and computes and proc.place.frames:  # else it may just be ending
            yield _busy(proc)


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
        fixes=advice("starved"),
        confirm=(proc.shell("cat /proc/{pid}/schedstat; sleep 1; cat /proc/{pid}/schedstat"),),
    ).of(proc)


def _reasons(view: JobView, proc: Process, peers: list[Process], usual: float) -> list[str]:
    activity = proc.activity
    delayed = activity.delay_share >= DELAYED and activity.delay_share > 2 * usual
    reasons = _by_limits(view, proc, peers, delayed) if proc.limits else []
    crowded = activity.kind == "working" and activity.cpu_share + activity.delay_share > 0.8
    hardly_runs = (
        activity.delay_share >= _MOSTLY_DELAYED
        and activity.cpu_share < _HARDLY_RUNS * activity.delay_share
    )
    if not reasons and delayed and not proc.waits and (crowded or hardly_runs):
        reasons.append("other processes use the cores")
    return reasons


def _by_limits(view: JobView, proc: Process, peers: list[Process], delayed: bool) -> list[str]:
    limits = proc.limits[-1]
    theirs = [peer.limits[-1] for peer in peers if peer.limits]
    reasons: list[str] = []
    if proc.throttled_share >= THROTTLED:
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
    doing = "collecting garbage" if collecting else "computing"
    return Candidate(
        cause=busy_class(proc),
        culprits=ranks_of(proc),
        reason=f"keeps {doing} at one place{in_phase(proc)}",
        evidence=(
            Item(
                "proc",
                proc.rank,
                f"{proc.name} used {proc.activity.cpu_share:.0%} of a core and was at the "
                "same place in each sample",
            ),
            stack_item(proc),
        ),
        sink=Sink.LINE,
        liveness="computing",
        phase=proc.phase,
        fixes=advice("garbage" if collecting else "busy"),
        confirm=(
            proc.shell(
                "py-spy record --pid {pid} --duration 10  # shows which lines take the time"
            ),
        ),
    )
