"""The same jobs seen worse: without rights, without recordings, from one of two hosts.

What evidence is worth shows where it is missing, and nearly all recorded jobs have all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from grpo_doctor_probes.evidence import Evidence, Stack

REFUSED = "no right to read its memory"
Degrade = Callable[[Evidence], Evidence | None]
_Row = TypeVar("_Row")


def variants(evidence: Evidence) -> Iterator[tuple[str, Evidence]]:
    """Each way to see less that makes a difference to this evidence, by name."""
    for name, degrade in DEGRADATIONS.items():
        worse = degrade(evidence)
        if worse is not None:
            yield name, worse


def _without_recordings(evidence: Evidence) -> Evidence | None:
    if not evidence.dumps or not evidence.looks:
        return None
    return replace(evidence, dumps=(), arguments=())


def _without_stacks(evidence: Evidence) -> Evidence | None:
    return _refused(evidence, lambda _number: True)


def _without_every_other_stack(evidence: Evidence) -> Evidence | None:
    return _refused(evidence, lambda number: number % 2 == 1)


def _refused(evidence: Evidence, closed: Callable[[int], bool]) -> Evidence | None:
    if not evidence.looks:
        return None
    pids = {member.pid for at, member in enumerate(evidence.job.ranks()) if closed(at)}
    stacks = tuple(tuple(_closed(stack, pids) for stack in look) for look in evidence.stacks)
    return replace(
        evidence,
        stacks=stacks,
        blocked=tuple(row for row in evidence.blocked if row.pid not in pids),
        arguments=tuple(row for row in evidence.arguments if row.pid not in pids),
    )


def _closed(stack: Stack, pids: set[int]) -> Stack:
    return Stack(stack.pid, stack.at_ns, problem=REFUSED) if stack.pid in pids else stack


def _lower_half(evidence: Evidence) -> Evidence | None:
    return _one_host(evidence, upper=False)


def _upper_half(evidence: Evidence) -> Evidence | None:
    return _one_host(evidence, upper=True)


def _one_host(evidence: Evidence, *, upper: bool) -> Evidence | None:
    """As if the ranks ran on two hosts, of which one was looked at."""
    job = evidence.job
    size = job.world_size or 0
    if size < 4 or size % 2 or not evidence.looks or len(job.placements) > 1:
        return None
    lost_ranks = set(range(size // 2) if upper else range(size // 2, size))
    members = tuple(member for member in job.members if member.rank not in lost_ranks)
    remaining_pids = {member.pid for member in members}
    if len(members) == len(job.members):
        return None

    def remaining(rows: tuple[_Row, ...]) -> tuple[_Row, ...]:
        return tuple(row for row in rows if getattr(row, "pid", None) in remaining_pids)

    return replace(
        evidence,
        job=replace(
            job, members=members, local_ranks=size // 2,
            ranks_missing=tuple(sorted({*job.ranks_missing, *lost_ranks})),
        ),
        looks=tuple(replace(look, processes=remaining(look.processes)) for look in evidence.looks),
        stacks=tuple(map(remaining, evidence.stacks)),
        limits=tuple(map(remaining, evidence.limits)),
        blocked=remaining(evidence.blocked), arguments=remaining(evidence.arguments),
        engines=tuple(map(remaining, evidence.engines)), spans=remaining(evidence.spans),
        dumps=tuple(dump for dump in evidence.dumps if dump.rank not in lost_ranks),
        logs=remaining(evidence.logs),
    )  # fmt: skip


DEGRADATIONS: dict[str, Degrade] = {
    "no recordings": _without_recordings,
    "no stacks": _without_stacks,
    "every other rank's stack": _without_every_other_stack,
    "the first of two hosts": _lower_half,
    "the second of two hosts": _upper_half,
}
