"""Which hosts a job has, which ranks each should have, and the command that looks at all. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from grpo_doctor_probes.evidence import Blocked, Disk, Evidence, Job, Placement

ARROW = " -> "  # between the two ends of a connection
_MOST_IN_COMMAND = 64
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,252}\Z", re.ASCII)


def unseen(job: Job) -> frozenset[int]:
    """Missing ranks that may be on hosts that were not looked at: all but those that a seen host
    should have.
    """
    seen = {member.rank for member in job.ranks()} - {None}
    missing = frozenset(job.ranks_missing) - seen
    is_complete = job.local_ranks is None or job.local_ranks <= len(seen)
    if len(job.placements) < 2 and is_complete:
        return missing
    if job.local_ranks == job.world_size:
        return frozenset()
    return missing - hosts_by_rank(job).keys()


def hosts_by_rank(job: Job) -> dict[int, str]:
    """The host of each rank: the one where it was seen, or where it was to be started with others,
    as far as that is known. Empty names in evidence of one host.
    """
    sizes = {placement.host: placement.local_ranks for placement in job.placements}
    firsts = {
        (member.rank - member.local_rank, member.host)
        for member in job.ranks()
        if member.rank is not None and member.local_rank is not None
    }
    started: dict[int, str] = {}
    for first, host in sorted(firsts):
        size = sizes.get(host, job.local_ranks) or 0
        started |= dict.fromkeys(range(first, first + size), host)
    return started | {m.rank: m.host for m in job.ranks() if m.rank is not None}


def parted(evidence: Evidence, unanswered: Iterable[Blocked]) -> tuple[str, ...]:
    """Return the hosts between which nothing gets through, where all unanswered connections cross:
    two, or the one that no other reaches. Empty where the connections do not show it.
    """
    rows = tuple(unanswered)
    hosts = {member.pid: member.host for member in evidence.job.members}
    homes = {address: p.host for p in evidence.job.placements for address in p.addresses}
    homes |= {host_at(ends_of(row)[0]): hosts.get(row.pid, "") for row in rows}
    pairs = set()
    for row in rows:
        ends = {hosts.get(row.pid, ""), homes.get(host_at(ends_of(row)[1]), "")}
        if len(ends) != 2 or "" in ends:
            return ()
        pairs.add(frozenset(ends))
    common = frozenset.intersection(*pairs) if pairs else frozenset[str]()
    return tuple(sorted(common))


def ends_of(row: Blocked) -> tuple[str, str]:
    """The own end of a connection and the other one, each `HOST:PORT`."""
    local, _, remote = row.target.partition(ARROW)
    return local, remote


def host_at(end: str) -> str:
    """The host of an end."""
    return end.rpartition(":")[0]


def disks_of(evidence: Evidence, pid: int) -> tuple[Disk, ...]:
    """The disks of the host that a process is on."""
    disks = evidence.host.disks if evidence.host is not None else ()
    member = evidence.job.member(pid)
    if member is None or not member.host:
        return disks
    return tuple(disk for disk in disks if disk.path.startswith(f"{member.host}:"))


def hosts_of(job: Job, ranks: Iterable[int]) -> tuple[str, ...]:
    """Return the hosts on which these unseen ranks probably are; empty where nothing shows it.

    Launchers number ranks host by host, in the order of their list, where this host agrees; else
    they are on the listed hosts that were not looked at.
    """
    placements, away = job.placements, tuple(ranks)
    listed = next((placement.hosts for placement in placements if placement.hosts), ())
    if len(placements) == 1 and job.local_ranks:
        own = {m.rank // job.local_ranks for m in job.ranks() if m.rank is not None}
        nodes = sorted({rank // job.local_ranks for rank in away})
        if own == {placements[0].node} and nodes and nodes[-1] < len(listed):
            return tuple(listed[number] for number in nodes)
    looked_at = {placement.host.lower().partition(".")[0] for placement in placements}
    others = tuple(host for host in listed if host.lower().partition(".")[0] not in looked_at)
    return others if len(listed) - len(others) == len(looked_at) else ()


def command(job: Job) -> str:
    """The command that looks at all hosts, to run where the job was started."""
    placement = job.placements[0] if job.placements else Placement(job.host)
    if placement.launcher == "slurm":
        return f"grpo-doctor attach --slurm {shlex.quote(placement.job_id)}"
    if not placement.launcher and any(member.role == "ray" for member in job.members):
        return "grpo-doctor attach --ray"
    if placement.launcher == "kubernetes":
        space = f"/{placement.namespace}" if placement.namespace else ""
        pods = shlex.quote(f"LABEL=VALUE{space}")
        return f"grpo-doctor attach --kube {pods}  # a label of the job's pods; where kubectl works"
    return f"grpo-doctor attach --ssh {_listed(placement, job)}"


def _listed(placement: Placement, job: Job) -> str:
    """All hosts, separated by commas; those that are not known by a word in capitals."""
    hosts = placement.hosts
    if not hosts:
        joint_op = job.address.rpartition(":")[0]
        names = dict.fromkeys(name for name in (joint_op, job.host) if _HOST.match(name))
        names.pop("localhost", None)
        hosts = (*names, "OTHERS")
    if len(hosts) > _MOST_IN_COMMAND:
        return "HOSTS"
    return ",".join(hosts)
