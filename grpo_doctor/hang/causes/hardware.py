"""GPUs that fail: Xid messages, CUDA errors in logs, a card that fell off the bus."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from grpo_doctor.hang.causes.candidate import Candidate, Case, Sink
from grpo_doctor.hang.model import gpus, xids
from grpo_doctor.hang.model.scene import Actor, Scene
from grpo_doctor.hang.verdict import Fix, Item

_CUDA = re.compile(
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


def propose(case: Case) -> Iterator[Candidate]:
    """A fault of a GPU that a rank of the job computes on, and has not got over."""
    told = [*_in_kernel(case), *_in_logs(case), *_seen(case)]
    if told and _uses_gpus(case.scene):
        ranks = sorted({one.rank for one in told if one.rank is not None})
        yield _candidate(tuple(ranks), tuple(told))


def _in_kernel(case: Case) -> Iterator[Item]:
    scene = case.scene
    on_gpus = gpus.ranks_of_gpus(scene.evidence)
    rank_of = {pid: actor.rank for pid, actor in scene.by_pid.items()}
    for line in xids.xids(scene.evidence):
        if not line.fatal or line.age_s > RECENT_S:
            continue
        whose = xids.owner(line, on_gpus, rank_of)
        if whose.foreign:  # of another job, or of an earlier run of this one
            continue
        if not whose.ranks:
            if _since_the_wait(scene, line.age_s) and not _all_get_on(case):
                yield Item("kernel", None, line.text)
            continue
        named = line.pid is not None and rank_of.get(line.pid) in whose.ranks
        for rank in whose.ranks:
            actor = scene.by_rank.get(rank)
            recent = named or _since_the_wait(scene, line.age_s)
            if recent and (actor is None or not _got_over_it(case, actor)):
                yield Item("kernel", rank, line.text)


def _seen(case: Case) -> Iterator[Item]:
    """GPUs that NVML has lost, or that have new errors in their memory."""
    for gpu in gpus.judge(case.scene.evidence).failed():
        actors = [case.scene.by_rank.get(rank) for rank in gpu.ranks]
        if not all(actor is not None and _got_over_it(case, actor) for actor in actors):
            yield from gpu.items


def _since_the_wait(scene: Scene, age_s: float) -> bool:
    """Whether the job has not got on since then: no process is named, so it may be another's."""
    patience = scene.patience
    before_s = max(BEFORE_THE_WAIT_S, patience.longest_gap_s or 0.0)
    return patience.waited_s is None or age_s <= patience.waited_s + before_s


def _all_get_on(case: Case) -> bool:
    """Whether whoever the others wait for is at work: then they wait for that."""
    return bool(case.suspects) and all(one.motion.kind == "working" for one in case.suspects)


def _got_over_it(case: Case, actor: Actor) -> bool:
    """Whether it is at work again, or waits for those that are. Who burns a core at one line may
    wait for a GPU that is gone.
    """
    return actor.motion.kind == "working" or (actor.waits and _all_get_on(case))


def _in_logs(case: Case) -> Iterator[Item]:
    scene = case.scene
    for log in scene.evidence.logs:
        owner = scene.by_pid.get(log.pid)
        if owner is None or owner.rank is None or log.written_s_ago > RECENT_S:
            continue
        places = [place for place, line in enumerate(log.lines) if _CUDA.search(line)]
        if not places or _went_on(log.lines[places[-1] + 1 :]):
            continue
        line = log.lines[places[-1]]
        named = _rank_in(line)
        actor = owner if named is None else scene.by_rank.get(named)
        if actor is None or not _got_over_it(case, actor):
            yield Item("log", owner.rank if named is None else named, line)


def _went_on(lines: Sequence[str]) -> bool:
    """Whether what was written after an error is more than its report."""
    return sum(not _OF_A_REPORT.match(line) for line in lines) > MOST_LINES_AFTER


def _rank_in(line: str) -> int | None:
    found = re.search(r"\[rank(\d+)\]", line)
    return int(found.group(1)) if found else None


def _uses_gpus(scene: Scene) -> bool:
    return bool(scene.evidence.gpus) or any(
        entry.backend == "nccl" for one in scene.recordings.ranks for entry in one.entries[-1:]
    )


def _candidate(ranks: tuple[int, ...], items: tuple[Item, ...]) -> Candidate:
    return Candidate(
        cause="gpu-fault",
        culprits=ranks,
        reason="has a GPU that failed",
        whole="" if ranks else "a GPU of this host failed",
        evidence=items,
        sink=Sink.ENDED,  # a job that gets on has survived it
        liveness="device-hung",
        fixes=(
            Fix("Take the GPU out of service (drain the node, reset or replace it), then restart."),
        ),
        confirm=("nvidia-smi -q | grep -A4 -i -e xid -e ecc", "dmesg -T | grep -i xid"),
    )
