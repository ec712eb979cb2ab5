"""GPUs that block other ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from grpo_doctor.hang.catalogue import advice
from grpo_doctor.hang.causes.candidate import (
    RECORDER,
    Candidate,
    Case,
    Sink,
    activity_item,
    asleep_for,
    in_phase,
    kernel_item,
    stack_item,
    standstill,
)
from grpo_doctor.hang.model import gpus
from grpo_doctor.hang.model.view import JobView, Process, has_pending
from grpo_doctor.hang.verdict import Item

_CUDA_ERROR = re.compile(
    r"CUDA error|CUDA kernel errors|illegal memory access|device-side assert|uncorrectable ECC"
    r"|fallen off the bus|Unable to determine the device handle|unspecified launch failure"
)
_OF_A_REPORT = re.compile(
    r"\s|$|frame #|Exception raised|For debugging|Compile with|Search for|Traceback"
    r"|terminate called|\[rank|\[?[EWF]\d{4}|[\w.]*(Error|Exception|Warning)\b"
)
RECENT_S = 1800.0
BEFORE_THE_WAIT_S = 60.0  # the others may have been at work for so long when the GPU failed
MOST_LINES_AFTER = 4  # of other ranks, before they come to wait
ASK_RAS = "ncclras -v  # or: echo verbose status | nc localhost 28028"
_XIDS = "dmesg -T | grep -i xid"
_ERRORS = "nvidia-smi -q | grep -A4 -i -e xid -e ecc"


def gpu_faults(case: Case) -> Iterator[Candidate]:
    """By what the kernel, logs and NVML say; by the recordings; by what a host waits for."""
    yield from _failed(case)
    yield from map(_in_driver, asleep_for("gpu", case.hosts))
    blames = case.view.matching.blame
    hung = {blame.rank: blame.text for blame in blames if blame.reason == "device-hung"}
    for rank, text in sorted(hung.items()):
        peer = case.view.by_rank.get(rank)
        if peer is None or not (peer.cannot_run or peer in case.hosts):
            yield _hung(case.view, rank, text, peer)
    if case.view.all_spin and case.view.gpus.all_wait:
        yield _by_power(case.view)
    waiting = [rank for rank in case.view.by_rank.values() if rank.waits]
    for proc in case.suspects:
        own = proc.device_wait and proc.rank not in hung
        if own and any(rank is not proc for rank in waiting):
            yield _busy_with_its_own(case.view, proc)


def _failed(case: Case) -> Iterator[Candidate]:
    faults = [*_in_kernel_log(case), *_in_logs(case), *_by_nvml(case)]
    if not faults or not _uses_gpus(case.view):
        return
    ranks = tuple(sorted({fault.rank for fault in faults if fault.rank is not None}))
    yield Candidate(
        cause="gpu-fault",
        culprits=ranks,
        reason="has a GPU that failed",
        whole="" if ranks else "a GPU of this host failed",
        evidence=tuple(faults),
        sink=Sink.ENDED,  # a job that gets on has survived it
        liveness="never-wakes",
        fixes=advice("failed GPU"),
        confirm=(_ERRORS, _XIDS),
    )


def _in_kernel_log(case: Case) -> Iterator[Item]:
    view = case.view
    rank_of = {pid: proc.rank for pid, proc in view.by_pid.items()}
    for line in gpus.xids(view.evidence):
        if not line.fatal or line.age_s > RECENT_S:
            continue
        ranks = gpus.owner(line, view.gpus.ranks_at, rank_of)
        if ranks is None:  # of another job, or of an earlier run of this one
            continue
        if not ranks:
            if _since_the_wait(view, line.age_s) and not _all_get_on(case):
                yield Item("kernel", None, line.text)
            continue
        names_pid = line.pid is not None and rank_of.get(line.pid) in ranks
        for rank in ranks:
            proc = view.by_rank.get(rank)
            recent = names_pid or _since_the_wait(view, line.age_s)
            if recent and (proc is None or not _got_over_it(case, proc)):
                yield Item("kernel", rank, line.text)


def _by_nvml(case: Case) -> Iterator[Item]:
    for gpu in (gpu for gpu in case.view.gpus.gpus if gpu.doing == "failed"):
        procs = [case.view.by_rank.get(rank) for rank in gpu.ranks]
        if not all(proc is not None and _got_over_it(case, proc) for proc in procs):
            yield from gpu.items


def _since_the_wait(view: JobView, age_s: float) -> bool:
    """Return whether the job made no progress since then: the message names no process."""
    wait_history = view.wait_history
    before_s = max(BEFORE_THE_WAIT_S, wait_history.longest_gap_s or 0.0)
    return wait_history.waited_s is None or age_s <= wait_history.waited_s + before_s


def _all_get_on(case: Case) -> bool:
    kinds = {suspect.activity.kind for suspect in case.suspects}
    return kinds == {"working"}


def _got_over_it(case: Case, proc: Process) -> bool:
    """Return whether it is running again, or waits for ranks that are. A rank that spins at one
    line may wait for a GPU that is gone.
    """
    return proc.activity.kind == "working" or (proc.waits and _all_get_on(case))


def _in_logs(case: Case) -> Iterator[Item]:
    view = case.view
    for log in view.evidence.logs:
        owner = view.by_pid.get(log.pid)
        if owner is None or owner.rank is None or log.written_s_ago > RECENT_S:
            continue
        errors = [number for number, line in enumerate(log.lines) if _CUDA_ERROR.search(line)]
        after = log.lines[errors[-1] + 1 :] if errors else ()
        # More than the report of the error was written after it.
        went_on = sum(not _OF_A_REPORT.match(line) for line in after) > MOST_LINES_AFTER
        if not errors or went_on:
            continue
        line = log.lines[errors[-1]]
        prefix = re.search(r"\[rank(\d+)\]", line)
        rank = int(prefix.group(1)) if prefix else owner.rank
        proc = view.by_rank.get(rank) if prefix else owner
        if proc is None or not _got_over_it(case, proc):
            yield Item("log", rank, line)


def _uses_gpus(view: JobView) -> bool:
    return bool(view.evidence.gpus) or any(
        entry.backend == "nccl"
        for recording in view.recordings.ranks
        for entry in recording.entries[-1:]
    )


def _in_driver(proc: Process) -> Candidate:
    return Candidate(
        cause="gpu-fault",
        reason=f"sleeps in the GPU driver and does not return{in_phase(proc)}",
        sink=Sink.HOLDER,
        evidence=(kernel_item(proc), *standstill(proc)),
        fixes=advice("GPU driver"),
        confirm=("timeout 10 nvidia-smi  # hangs as well", "dmesg -T | grep -i -e nvrm -e xid"),
    ).of(proc)


def _hung(view: JobView, rank: int, text: str, proc: Process | None) -> Candidate:
    items = (activity_item(proc), stack_item(proc)) if proc is not None else ()
    return Candidate(
        cause="gpu-fault",
        culprits=(rank,),
        reason="has a GPU that does not finish an operation that its peers' GPUs have finished",
        evidence=(Item(RECORDER, rank, text), *_of_gpu(view, rank), *items),
        sink=Sink.ORDER,
        liveness="never-wakes",
        phase=proc.phase if proc is not None else None,
        still_s=view.wait_history.waited_s,
        fixes=advice("kernel"),
        confirm=(f"{_ERRORS}  # on that host",),
    )


def _busy_with_its_own(view: JobView, proc: Process) -> Candidate:
    """Return the cause of a host that waits for its GPU while no collective is queued there."""
    facts = _of_gpu(view, proc.rank)
    if has_pending(view.recordings, view.matching, proc.rank) is False:
        finding = "has finished every collective that it was given"
        facts = (Item(RECORDER, proc.rank, finding), *facts)
    # A GPU without a kernel on it will not end one.
    idle = proc.rank is not None and view.gpus.of(proc.rank) == "idle"
    return replace(
        Candidate(
            cause="gpu-fault",
            reason=f"waits for a kernel of its own GPU that is not a collective{in_phase(proc)}",
            sink=Sink.HELPER,
            liveness="never-wakes" if idle else "computing",
            evidence=(*facts, activity_item(proc), stack_item(proc)),
            fixes=advice("kernel"),
            confirm=("nvidia-smi dmon -s pu -c 10  # busy at high power: it computes and may end",),
        ).of(proc),
        still_s=view.wait_history.waited_s,
    )


def _by_power(view: JobView) -> Candidate:
    """Return the cause where every host waits for its GPU and no recording shows for what.

    A GPU that computes draws power; one that waits in the kernel of a collective draws little.
    """
    return Candidate(
        cause="network-silent",
        culprits=(),
        reason="waits in a collective",
        whole="all GPUs are in a collective kernel that does not end",
        evidence=view.gpus.gpus[0].items,
        sink=Sink.COUNTERS,
        liveness="unseen",
        still_s=view.wait_history.waited_s,
        fixes=advice("links"),
        confirm=(ASK_RAS,),
    )


def _of_gpu(view: JobView, rank: int | None) -> tuple[Item, ...]:
    states = view.gpus.gpus
    return tuple(item for state in states if rank in state.ranks for item in state.items)
