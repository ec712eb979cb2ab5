"""One host's evidence, made ready to be joined with that of others: its processes and threads get
identities that no other host has, and the moments of its clock become those of the newest sample.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from grpo_doctor.hang.model.nodes import HOST_STEP
from grpo_doctor_probes.evidence import Blocked, Evidence, GpuLook, HostFacts, Job, Look, Stack

_NS_PER_TICK = 10_000_000


@dataclass(frozen=True, slots=True)
class Home:
    """The host of some evidence: which it is of all, its name, and how far its clock is behind."""

    number: int
    name: str
    later_ns: int = 0

    def pid(self, pid: int) -> int:
        """Return the identity of a process or thread; what is no process stays."""
        return self.number * HOST_STEP + pid if pid > 0 else pid

    def pids(self, pids: Iterable[int]) -> tuple[int, ...]:
        """Return the identities of several."""
        return tuple(map(self.pid, pids))

    def at(self, ns: int) -> int:
        """Return a moment by the common clock; 0 stays unknown."""
        return ns + self.later_ns if ns else 0


def renumbered(evidence: Evidence, home: Home) -> Evidence:
    """Return evidence of one host as a part of joined evidence."""
    pid, at = home.pid, home.at
    return replace(
        evidence,
        job=_job(evidence.job, home),
        looks=tuple(_look(look, home) for look in evidence.looks),
        stacks=tuple(tuple(_stack(row, home) for row in look) for look in evidence.stacks),
        limits=tuple(
            tuple(replace(row, pid=pid(row.pid)) for row in look) for look in evidence.limits
        ),
        blocked=tuple(_blocked(row, home) for row in evidence.blocked),
        awaits=tuple(replace(row, pid=pid(row.pid), tid=pid(row.tid)) for row in evidence.awaits),
        arguments=tuple(replace(row, pid=pid(row.pid)) for row in evidence.arguments),
        positions=tuple(
            replace(row, pid=pid(row.pid), tid=pid(row.tid), at_ns=at(row.at_ns))
            for row in evidence.positions
        ),
        locals_seen=tuple(
            replace(row, pid=pid(row.pid), at_ns=at(row.at_ns)) for row in evidence.locals_seen
        ),
        gpus=tuple(tuple(_gpu(row, home) for row in look) for look in evidence.gpus),
        engines=tuple(
            tuple(replace(row, pid=pid(row.pid), at_ns=at(row.at_ns)) for row in look)
            for look in evidence.engines
        ),
        spans=tuple(replace(row, pid=pid(row.pid)) for row in evidence.spans),
        dumps=tuple(
            row if row.pid is None else replace(row, pid=pid(row.pid)) for row in evidence.dumps
        ),
        ras=tuple(replace(row, at_ns=at(row.at_ns)) for row in evidence.ras),
        host=_facts(evidence.host, home) if evidence.host is not None else None,
        logs=tuple(replace(row, pid=pid(row.pid)) for row in evidence.logs),
        problems=tuple(
            row if row.pid is None else replace(row, pid=pid(row.pid)) for row in evidence.problems
        ),
    )


def _job(job: Job, home: Home) -> Job:
    ticks = home.later_ns // _NS_PER_TICK
    members = (
        replace(
            member,
            pid=home.pid(member.pid),
            parent=home.pid(member.parent),
            started_ticks=member.started_ticks + ticks,
            host=home.name,
        )
        for member in job.members
    )
    return replace(job, members=tuple(members))


def _look(look: Look, home: Home) -> Look:
    processes = (
        replace(
            process,
            pid=home.pid(process.pid),
            at_ns=home.at(process.at_ns),
            threads=tuple(
                replace(row, tid=home.pid(row.tid), last_ran_ns=home.at(row.last_ran_ns))
                for row in process.threads
            ),
        )
        for process in look.processes
    )
    return Look(home.at(look.at_ns), tuple(processes))


def _stack(stack: Stack, home: Home) -> Stack:
    threads = tuple(replace(row, tid=home.pid(row.tid)) for row in stack.threads)
    return replace(stack, pid=home.pid(stack.pid), at_ns=home.at(stack.at_ns), threads=threads)


def _blocked(row: Blocked, home: Home) -> Blocked:
    return replace(
        row,
        pid=home.pid(row.pid),
        tid=home.pid(row.tid),
        peers=home.pids(row.peers),
        stopped_peers=home.pids(row.stopped_peers),
    )


def _gpu(look: GpuLook, home: Home) -> GpuLook:
    return replace(
        look,
        at_ns=home.at(look.at_ns),
        pids=home.pids(look.pids),
        holders=tuple(replace(row, pid=home.pid(row.pid)) for row in look.holders),
        host=home.name,
    )


def _facts(facts: HostFacts, home: Home) -> HostFacts:
    """Name the host of kernel messages, which have its numbers, and of disks."""
    return replace(
        facts,
        kernel=tuple((age_s, f"{text} (on {home.name})") for age_s, text in facts.kernel),
        disks=tuple(replace(disk, path=f"{home.name}:{disk.path}") for disk in facts.disks),
    )
