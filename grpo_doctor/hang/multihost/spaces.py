"""A space of process numbers, and a clock, for each host.

Host k's process 4711 becomes `k * SPACE + 4711`. Clocks are moved so that the last looks of all
hosts are at the same moment: what is compared are ages, and those stay what they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from grpo_doctor_probes.evidence import (
    Blocked,
    Evidence,
    GpuLook,
    HostFacts,
    Look,
    Member,
    ProcessLook,
    Stack,
    Thread,
)

SPACE = 10**12  # Linux numbers processes below 2**22; 9,000 hosts stay exact in JavaScript
_NS_PER_TICK = 10_000_000
_PID_IN_KERNEL_MESSAGE = re.compile(r"(?:(?<=[Kk]illed process )|(?<=, pid=)|(?<=, pid='))\d{1,8}")


def real(pid: int) -> int:
    """The process number on its own host."""
    return pid % SPACE


def space_of(pid: int) -> int:
    """The number of the host that it is of; 0 where no evidence was joined."""
    return pid // SPACE


@dataclass(frozen=True, slots=True)
class Space:
    """Where one host's evidence is moved to."""

    number: int
    host: str
    later_ns: int  # added to every moment of its clock

    def pid(self, pid: int) -> int:
        """A process or thread number of this host in joined evidence."""
        return self.number * SPACE + pid if pid > 0 else pid

    def at(self, ns: int) -> int:
        """A moment of this host's clock; 0 stays unknown."""
        return ns + self.later_ns if ns else 0


def moved(evidence: Evidence, space: Space) -> Evidence:
    """The evidence with process numbers and moments of the space."""
    pid = space.pid
    return replace(
        evidence,
        job=replace(
            evidence.job, members=tuple(_member(one, space) for one in evidence.job.members)
        ),
        looks=tuple(_look(one, space) for one in evidence.looks),
        stacks=tuple(tuple(_stack(one, space) for one in look) for look in evidence.stacks),
        limits=tuple(
            tuple(replace(one, pid=pid(one.pid)) for one in look) for look in evidence.limits
        ),
        blocked=tuple(_blocked(one, space) for one in evidence.blocked),
        arguments=tuple(replace(one, pid=pid(one.pid)) for one in evidence.arguments),
        positions=tuple(
            replace(one, pid=pid(one.pid), tid=pid(one.tid), at_ns=space.at(one.at_ns))
            for one in evidence.positions
        ),
        locals_seen=tuple(
            replace(one, pid=pid(one.pid), at_ns=space.at(one.at_ns))
            for one in evidence.locals_seen
        ),
        gpus=tuple(tuple(_gpu(one, space) for one in look) for look in evidence.gpus),
        engines=tuple(
            tuple(replace(one, pid=pid(one.pid), at_ns=space.at(one.at_ns)) for one in look)
            for look in evidence.engines
        ),
        spans=tuple(replace(one, pid=pid(one.pid)) for one in evidence.spans),
        dumps=tuple(replace(one, pid=pid(one.pid) if one.pid else None) for one in evidence.dumps),
        ras=tuple(replace(one, at_ns=space.at(one.at_ns)) for one in evidence.ras),
        host=_facts(evidence.host, space),
        logs=tuple(replace(one, pid=pid(one.pid)) for one in evidence.logs),
        problems=tuple(
            replace(one, pid=pid(one.pid) if one.pid else None) for one in evidence.problems
        ),
    )


def _member(one: Member, space: Space) -> Member:
    return replace(
        one,
        pid=space.pid(one.pid),
        parent=space.pid(one.parent),
        started_ticks=one.started_ticks + space.later_ns // _NS_PER_TICK,
        host=space.host,
    )


def _look(look: Look, space: Space) -> Look:
    return Look(space.at(look.at_ns), tuple(_process(one, space) for one in look.processes))


def _process(one: ProcessLook, space: Space) -> ProcessLook:
    threads = tuple(_thread(thread, space) for thread in one.threads)
    return replace(one, pid=space.pid(one.pid), at_ns=space.at(one.at_ns), threads=threads)


def _thread(one: Thread, space: Space) -> Thread:
    return replace(one, tid=space.pid(one.tid), last_ran_ns=space.at(one.last_ran_ns))


def _stack(one: Stack, space: Space) -> Stack:
    threads = tuple(replace(thread, tid=space.pid(thread.tid)) for thread in one.threads)
    return replace(one, pid=space.pid(one.pid), at_ns=space.at(one.at_ns), threads=threads)


def _blocked(one: Blocked, space: Space) -> Blocked:
    return replace(
        one,
        pid=space.pid(one.pid),
        tid=space.pid(one.tid),
        peers=tuple(map(space.pid, one.peers)),
        stopped_peers=tuple(map(space.pid, one.stopped_peers)),
    )


def _gpu(one: GpuLook, space: Space) -> GpuLook:
    return replace(
        one,
        at_ns=space.at(one.at_ns),
        pids=tuple(map(space.pid, one.pids)),
        holders=tuple(replace(holder, pid=space.pid(holder.pid)) for holder in one.holders),
        host=space.host,
    )


def _facts(facts: HostFacts | None, space: Space) -> HostFacts | None:
    """Its kernel's messages name processes of this host, and its disks are its own."""
    if facts is None:
        return None
    number: Callable[[re.Match[str]], str] = lambda found: str(space.pid(int(found[0])))  # noqa: E731
    return replace(
        facts,
        kernel=tuple(
            (age_s, f"{_PID_IN_KERNEL_MESSAGE.sub(number, text)} (on {space.host})")
            for age_s, text in facts.kernel
        ),
        disks=tuple(replace(disk, path=f"{space.host}:{disk.path}") for disk in facts.disks),
    )
