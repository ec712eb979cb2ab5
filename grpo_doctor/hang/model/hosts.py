"""Which hosts a job has, which ranks each should have, and the command that looks at all. Pure."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping

from grpo_doctor.hang.dumps.ras import hear
from grpo_doctor_probes.evidence import Blocked, Disk, Evidence, Job, Placement

_ARROW = " -> "  # between the two ends of a connection
SHARED = "/shared/hang"
_LOOK = f"grpo-doctor attach -o {SHARED}/{{host}}"
REPLAY = f"grpo-doctor attach --replay {SHARED}/*"
_MOST_IN_COMMAND = 64
_REPLICA = re.compile(r"-(?:master|worker|launcher)-\d{1,6}\Z")
_NUMBERED = re.compile(r"-\d{1,6}\Z")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{0,252}\Z", re.ASCII)


def elsewhere(job: Job, locals_of: Mapping[int, int | None]) -> frozenset[int]:
    """Missing ranks that may be on another host: all but those that a seen host should have.
    `locals_of` has the ranks that were seen, each with its local rank where that is known.
    """
    missing = frozenset(job.ranks_missing) - locals_of.keys()
    if len(job.placements) > 1:
        return missing - _expected_ranks(job) if job.local_ranks != job.world_size else frozenset()
    if job.local_ranks is None or job.local_ranks <= len(locals_of):
        return missing
    if job.local_ranks == job.world_size:
        return frozenset()
    return missing - _block(locals_of, job.local_ranks)


def _expected_ranks(job: Job) -> frozenset[int]:
    locals_by_host = _locals_by_host(job)
    return frozenset(
        rank
        for placement in job.placements
        if placement.local_ranks
        for rank in _block(locals_by_host[placement.host], placement.local_ranks)
    )


def _locals_by_host(job: Job) -> defaultdict[str, dict[int, int | None]]:
    locals_by_host: defaultdict[str, dict[int, int | None]] = defaultdict(dict)
    for member in job.ranks():
        if member.rank is not None:
            locals_by_host[member.host][member.rank] = member.local_rank
    return locals_by_host


def _block(locals_of: Mapping[int, int | None], size: int) -> frozenset[int]:
    firsts = {rank - local for rank, local in locals_of.items() if local is not None}
    return frozenset(first + number for first in firsts for number in range(size))


def home_of(job: Job, rank: int) -> str:
    """The host of joined evidence that should have a rank; empty where that is not known."""
    locals_by_host = _locals_by_host(job)
    for placement in job.placements if len(job.placements) > 1 else ():
        locals_of = locals_by_host[placement.host]
        if rank in locals_of or (
            placement.local_ranks and rank in _block(locals_of, placement.local_ranks)
        ):
            return placement.host
    return ""


def parted(evidence: Evidence, unanswered: Iterable[Blocked]) -> tuple[str, ...]:
    """Return the hosts between which nothing gets through, where all unanswered connections cross:
    two, or the one that no other reaches. Empty where the connections do not show it.
    """
    rows = tuple(unanswered)
    hosts = {member.pid: member.host for member in evidence.job.members}
    homes = {address: p.host for p in evidence.job.placements for address in p.addresses}
    homes |= {_address(row.target.partition(_ARROW)[0]): hosts.get(row.pid, "") for row in rows}
    pairs = set()
    for row in rows:
        ends = {hosts.get(row.pid, ""), homes.get(_address(row.target.partition(_ARROW)[2]), "")}
        if len(ends) != 2 or "" in ends:
            return ()
        pairs.add(frozenset(ends))
    common = frozenset.intersection(*pairs) if pairs else frozenset[str]()
    return tuple(sorted(common))


def _address(end: str) -> str:
    return end.rpartition(":")[0]


def disks_of(evidence: Evidence, pid: int) -> tuple[Disk, ...]:
    """The disks of the host that a process is on."""
    disks = evidence.host.disks if evidence.host is not None else ()
    member = evidence.job.member(pid)
    if member is None or not member.host:
        return disks
    return tuple(disk for disk in disks if disk.path.startswith(f"{member.host}:"))


def hosts_of(evidence: Evidence, ranks: Iterable[int]) -> tuple[str, ...]:
    """Return the hosts on which these unseen ranks probably are; empty where nothing shows it.

    NCCL knows the host of every process of its communicators. Launchers number ranks host by host,
    in the order of their list, where this host agrees; else they are on the listed hosts that were
    not looked at.
    """
    job, placements, away = evidence.job, evidence.job.placements, tuple(ranks)
    processes = hear(job, evidence.ras).processes
    homes = [processes.get(rank, ("", 0))[0] for rank in away]
    if all(map(_HOST.match, homes)):
        return tuple(dict.fromkeys(homes))
    listed = next((placement.hosts for placement in placements if placement.hosts), ())
    if len(placements) == 1 and job.local_ranks:
        own = {m.rank // job.local_ranks for m in job.ranks() if m.rank is not None}
        nodes = sorted({rank // job.local_ranks for rank in away})
        if own == {placements[0].node} and nodes and nodes[-1] < len(listed):
            return tuple(listed[number] for number in nodes)
    looked_at = {placement.host.lower().partition(".")[0] for placement in placements}
    others = tuple(host for host in listed if host.lower().partition(".")[0] not in looked_at)
    return others if len(listed) - len(others) == len(looked_at) else ()


def unseen(job: Job) -> tuple[int, ...]:
    """Ranks that may be on hosts that were not looked at."""
    locals_of = {m.rank: m.local_rank for m in job.ranks() if m.rank is not None}
    return tuple(sorted(elsewhere(job, locals_of)))


def commands(job: Job) -> tuple[str, ...]:
    """What to run where the job was started; where that keeps bundles, also what joins them."""
    placement = job.placements[0] if job.placements else Placement(job.host)
    if placement.launcher == "slurm":
        return (f"grpo-doctor attach --slurm {shlex.quote(placement.job_id)}",)
    if not placement.launcher and any(member.role == "ray" for member in job.members):
        return ("grpo-doctor attach --ray",)
    if placement.launcher == "kubernetes":
        return _kubernetes(placement, job), REPLAY
    return (f"grpo-doctor attach --ssh {_listed(placement, job)}",)


def _kubernetes(placement: Placement, job: Job) -> str:
    space = f" -n {placement.namespace}" if placement.namespace else ""
    owner = _REPLICA.sub("", job.host)
    if owner == job.host:
        owner = _NUMBERED.sub("", job.host)
    pods = f"$(kubectl get pods{space} -o name | grep {shlex.quote(owner)})"
    return f"for pod in {pods}; do kubectl exec{space} $pod -- {_LOOK} & done; wait"


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
