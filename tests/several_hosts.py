"""Evidence of one built job taken apart, as each of its hosts would see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from grpo_doctor_probes.evidence import Evidence, Job, Look, Member, Placement, Stack
from tests.evidence import UNIX_NS

FIRST_PID = 100  # of each host: process numbers are the same everywhere


def on_hosts(evidence: Evidence, per_host: int, **placed: object) -> list[Evidence]:
    """One evidence for each `per_host` ranks; ranks of the built job have pids from 100 on."""
    world = evidence.job.world_size or 0
    return [
        _host(evidence, range(first, min(first + per_host, world)), per_host, placed)
        for first in range(0, world, per_host)
    ]


def _host(
    evidence: Evidence, ranks: Iterable[int], per_host: int, placed: dict[str, object]
) -> Evidence:
    own_ranks = set(ranks)
    first = min(own_ranks)
    pids = {m.pid: m.pid - first for m in evidence.job.members if m.rank in own_ranks}
    name = f"node{first // per_host}"
    return replace(
        evidence,
        job=_job(evidence.job, own_ranks, pids, name, per_host, placed),
        looks=tuple(_look(look, pids) for look in evidence.looks),
        stacks=tuple(
            tuple(_stack(s, pids) for s in look if s.pid in pids) for look in evidence.stacks
        ),
        limits=tuple(
            tuple(replace(row, pid=pids[row.pid]) for row in look if row.pid in pids)
            for look in evidence.limits
        ),
        blocked=tuple(
            replace(
                row,
                pid=pids[row.pid],
                tid=pids.get(row.tid, row.tid),
                peers=tuple(pids[peer] for peer in row.peers if peer in pids),
            )
            for row in evidence.blocked
            if row.pid in pids
        ),
        dumps=tuple(
            replace(dump, pid=pids[dump.pid]) for dump in evidence.dumps if dump.pid in pids
        ),
        host=replace(evidence.host, name=name) if evidence.host is not None else None,
    )


def _job(
    job: Job,
    own_ranks: set[int],
    pids: dict[int, int],
    name: str,
    per_host: int,
    placed: dict[str, object],
) -> Job:
    members = [_member(m, pids, min(own_ranks)) for m in job.members if m.pid in pids]
    present = {m.rank for m in members if m.role == "rank"}
    number = min(own_ranks) // per_host
    placement = replace(Placement(name, node=number, local_ranks=per_host), **placed)  # type: ignore[arg-type]
    return replace(
        job,
        host=name,
        members=tuple(members),
        local_ranks=per_host,
        ranks_missing=tuple(r for r in range(job.world_size or 0) if r not in present),
        address="node0:29500",
        placements=(placement,),
    )


def _member(member: Member, pids: dict[int, int], first: int) -> Member:
    assert member.rank is not None
    parent = pids.get(member.parent, member.parent)
    return replace(member, pid=pids[member.pid], parent=parent, local_rank=member.rank - first)


def _look(look: Look, pids: dict[int, int]) -> Look:
    return replace(
        look,
        processes=tuple(
            replace(
                process,
                pid=pids[process.pid],
                threads=tuple(replace(t, tid=pids.get(t.tid, t.tid)) for t in process.threads),
            )
            for process in look.processes
            if process.pid in pids
        ),
    )


def _stack(stack: Stack, pids: dict[int, int]) -> Stack:
    threads = tuple(replace(t, tid=pids.get(t.tid, t.tid)) for t in stack.threads)
    return replace(stack, pid=pids[stack.pid], threads=threads)


def later(evidence: Evidence, seconds: float) -> Evidence:
    """The same look at another moment."""
    return replace(evidence, taken_unix_ns=UNIX_NS + int(seconds * 1e9))
