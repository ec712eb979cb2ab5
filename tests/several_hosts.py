"""Evidence of one built job taken apart, as each of its hosts would see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from grpo_doctor_probes.evidence import Evidence, Job, Look, Member, Placement, Stack
from tests.evidence import UNIX_NS

FIRST_PID = 100  # of each host: process numbers are the same everywhere


def on_hosts(whole: Evidence, per_host: int, **placed: object) -> list[Evidence]:
    """One evidence for each `per_host` ranks; ranks of the built job have pids from 100 on."""
    world = whole.job.world_size or 0
    return [
        _host(whole, range(first, min(first + per_host, world)), per_host, placed)
        for first in range(0, world, per_host)
    ]


def _host(
    whole: Evidence, ranks: Iterable[int], per_host: int, placed: dict[str, object]
) -> Evidence:
    here = set(ranks)
    first = min(here)
    pids = {m.pid: m.pid - first for m in whole.job.members if m.rank in here}
    name = f"node{first // per_host}"
    return replace(
        whole,
        job=_job(whole.job, here, pids, name, per_host, placed),
        looks=tuple(_look(one, pids) for one in whole.looks),
        stacks=tuple(tuple(_stack(s, pids) for s in one if s.pid in pids) for one in whole.stacks),
        limits=tuple(
            tuple(replace(row, pid=pids[row.pid]) for row in one if row.pid in pids)
            for one in whole.limits
        ),
        blocked=tuple(
            replace(
                row,
                pid=pids[row.pid],
                tid=pids.get(row.tid, row.tid),
                peers=tuple(pids[peer] for peer in row.peers if peer in pids),
            )
            for row in whole.blocked
            if row.pid in pids
        ),
        dumps=tuple(replace(one, pid=pids[one.pid]) for one in whole.dumps if one.pid in pids),
        host=replace(whole.host, name=name) if whole.host is not None else None,
    )


def _job(
    job: Job,
    here: set[int],
    pids: dict[int, int],
    name: str,
    per_host: int,
    placed: dict[str, object],
) -> Job:
    members = [_member(m, pids, min(here)) for m in job.members if m.pid in pids]
    seen = {m.rank for m in members if m.role == "rank"}
    number = min(here) // per_host
    place = replace(Placement(name, node=number, local_ranks=per_host), **placed)  # type: ignore[arg-type]
    return replace(
        job,
        host=name,
        members=tuple(members),
        local_ranks=per_host,
        ranks_missing=tuple(r for r in range(job.world_size or 0) if r not in seen),
        address="node0:29500",
        placements=(place,),
    )


def _member(one: Member, pids: dict[int, int], first: int) -> Member:
    assert one.rank is not None
    parent = pids.get(one.parent, one.parent)
    return replace(one, pid=pids[one.pid], parent=parent, local_rank=one.rank - first)


def _look(look: Look, pids: dict[int, int]) -> Look:
    return replace(
        look,
        processes=tuple(
            replace(
                one,
                pid=pids[one.pid],
                threads=tuple(replace(t, tid=pids.get(t.tid, t.tid)) for t in one.threads),
            )
            for one in look.processes
            if one.pid in pids
        ),
    )


def _stack(stack: Stack, pids: dict[int, int]) -> Stack:
    threads = tuple(replace(t, tid=pids.get(t.tid, t.tid)) for t in stack.threads)
    return replace(stack, pid=pids[stack.pid], threads=threads)


def later(evidence: Evidence, seconds: float) -> Evidence:
    """The same look at another moment."""
    return replace(evidence, taken_unix_ns=UNIX_NS + int(seconds * 1e9))
