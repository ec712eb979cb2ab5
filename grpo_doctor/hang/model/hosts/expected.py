"""Which ranks a host should have, and what of a joined evidence is of one host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grpo_doctor_probes.evidence import Blocked, Disk, Evidence, Job

_ARROW = " -> "  # between the two ends of a connection


def elsewhere(job: Job, here: Mapping[int, int | None]) -> frozenset[int]:
    """Missing ranks that may be on another host: all but those that a seen host should have.

    Args:
        job: as it was found.
        here: the ranks that were seen, each with its local rank where that is known.
    """
    missing = frozenset(job.ranks_missing) - here.keys()
    if len(job.placements) > 1:
        return missing - _of_seen_hosts(job) if job.local_ranks != job.world_size else frozenset()
    if job.local_ranks is None or job.local_ranks <= len(here):
        return missing
    if job.local_ranks == job.world_size:
        return frozenset()
    return missing - _block(here, job.local_ranks)


def _of_seen_hosts(job: Job) -> frozenset[int]:
    """The ranks that the hosts should have of which bundles were joined."""
    locals_of: dict[str, dict[int, int | None]] = {place.host: {} for place in job.placements}
    for member in job.members:
        if member.role == "rank" and member.rank is not None and member.host in locals_of:
            locals_of[member.host][member.rank] = member.local_rank
    return frozenset(
        rank
        for place in job.placements
        if place.local_ranks
        for rank in _block(locals_of[place.host], place.local_ranks)
    )


def _block(here: Mapping[int, int | None], size: int) -> frozenset[int]:
    """The ranks of a host, which a launcher numbers one after the other."""
    firsts = {rank - local for rank, local in here.items() if local is not None}
    return frozenset(first + number for first in firsts for number in range(size))


def home_of(job: Job, rank: int) -> str:
    """The host of joined evidence that should have a rank; empty where that is not known."""
    for place in job.placements if len(job.placements) > 1 else ():
        here = {
            m.rank: m.local_rank
            for m in job.members
            if m.role == "rank" and m.rank is not None and m.host == place.host
        }
        if rank in here or (place.local_ranks and rank in _block(here, place.local_ranks)):
            return place.host
    return ""


def parted(evidence: Evidence, unanswered: Iterable[Blocked]) -> tuple[str, ...]:
    """The hosts between which nothing gets through, where all connections without an answer cross:
    two, or the one that no other reaches. Empty where they do not tell.
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
