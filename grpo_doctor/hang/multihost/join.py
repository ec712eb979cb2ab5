"""The evidence of several hosts of one job as one. Pure, and the same in any order of bundles.

Bundles are of one job by the address at which their ranks were set to meet. Processes at both ends
of a connection between two hosts are joined.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from grpo_doctor.hang.model.hosts import ARROW, host_at, hosts_by_rank
from grpo_doctor.hang.model.nodes import host_of
from grpo_doctor.hang.multihost.visits import (
    Home,
    host_names,
    is_old,
    newest_of_each_host,
    of_one_moment,
    one_of_each_rank,
    ordered,
    renumbered,
    started_ranks,
    without_doubles,
)
from grpo_doctor.hang.verdict import Diagnosis, HostSeen, Item, Verdict, at_most
from grpo_doctor.hang.wording import hosts_text, ranks_text, seconds_text
from grpo_doctor_probes.evidence import Blocked, Cost, Evidence, HostFacts, Job, Placement, Problem

_NO_RUN_ID = "none"  # torchrun's default
_LOCAL_NAMES = ("localhost", "ip6-localhost", "")
_MOST_NAMED = 8


class DifferentJobsError(Exception):
    """The evidence is of several jobs; the message names each by its hosts and where it meets."""


def check_same_job(evidences: Sequence[Evidence]) -> None:
    """Raises DifferentJobsError unless all can be of one job."""
    jobs: list[list[Job]] = []
    for own in (evidence.job for evidence in evidences):
        fitting = [job for job in jobs if not any(_differ(own, other) for other in job)]
        if fitting:
            fitting[0].append(own)
        else:
            jobs.append([own])
    if len(jobs) > 1:
        lines = "\n".join(map(_named, jobs))
        raise DifferentJobsError(
            f"These are bundles of {len(jobs)} jobs; give those of one:\n{lines}"
        )


def _ids(job: Job) -> tuple[str, str]:
    """Torchrun's run id, where one was given, and the job id of the cluster."""
    placement = job.placements[0] if job.placements else Placement(job.host)
    run_id = placement.run_id if placement.run_id != _NO_RUN_ID else ""
    return run_id, placement.job_id


def _differ(job: Job, other: Job) -> bool:
    (run_id, job_id), (other_run_id, other_job_id) = _ids(job), _ids(other)
    if run_id and other_run_id:
        return run_id != other_run_id
    if job_id and other_job_id and job_id != other_job_id:
        return True
    ranks, others = started_ranks(job), started_ranks(other)
    complete = (len(ranks), len(others)) == (job.world_size, other.world_size)
    if complete and job.host != other.host and ranks & others:
        return True  # each has all its ranks: two jobs that both meet at localhost
    return bool(job.address and other.address) and _elsewhere(job.address, other.address)


def _elsewhere(address: str, other: str) -> bool:
    """Whether two rendezvous addresses are two places. A name and a number may be one host."""
    (host, _, port), (other_host, _, other_port) = address.rpartition(":"), other.rpartition(":")
    if port != other_port:
        return True
    if _is_loopback(host) or _is_loopback(other_host) or _is_number(host) != _is_number(other_host):
        return False
    if _is_number(host):
        return host != other_host
    return host.lower().partition(".")[0] != other_host.lower().partition(".")[0]


def _is_loopback(host: str) -> bool:
    return host in _LOCAL_NAMES or host.startswith("127.") or host in ("::1", "[::1]")


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _named(jobs: Sequence[Job]) -> str:
    """`node1, node2: rendezvous 10.0.0.1:29500, run id r1, job 4711`."""
    names = sorted({job.host for job in jobs})
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    best = max(jobs, key=lambda job: tuple(map(bool, (job.address, *_ids(job)))))
    run_id, job_id = _ids(best)
    facts = [f"rendezvous {best.address or 'unknown'}"]
    facts += [f"run id {run_id}"] * bool(run_id) + [f"job {job_id}"] * bool(job_id)
    return f"  {', '.join(names[:_MOST_NAMED])}{more}: {', '.join(facts)}"


_Look = TypeVar("_Look")
_LOOPBACK = ("127.", "[::1]")
OF_ONE_LOOK = ("stacks", "limits", "gpus", "engines")
OF_ALL_LOOKS = (
    *("blocked", "awaits", "arguments", "positions", "locals_seen", "spans"),
    *("dumps", "ray", "logs"),
)


def joined(evidences: Sequence[Evidence]) -> Evidence:
    """Return what was seen on all hosts of one job.

    Raises:
        DifferentJobsError: they are of several jobs; the message distinguishes them.
        ValueError: there is none.
    """
    if not evidences:
        raise ValueError("there is nothing to join")
    # What was joined before is kept next to the bundles that it was made of.
    single = [evidence for evidence in evidences if len(evidence.job.placements) < 2]
    visits = ordered(single) or (max(ordered(evidences), key=lambda seen: seen.taken_unix_ns),)
    if len(visits) == 1:
        return visits[0]
    check_same_job(visits)
    newest, doubles = newest_of_each_host(visits)
    current, aged = of_one_moment(newest)
    if len(current) == 1:
        only = current[0]
        return replace(only, problems=(*only.problems, *doubles, *aged))
    settled, rivals = one_of_each_rank(current)
    claims = [tuple(sorted(started_ranks(evidence.job))) for evidence in current]
    return _join(settled, claims, (*doubles, *aged, *rivals))


def _join(
    evidences: Sequence[Evidence], claims: Sequence[tuple[int, ...]], problems: Sequence[Problem]
) -> Evidence:
    names = host_names(evidences)
    now_ns = max(_now_ns(evidence) for evidence in evidences)
    homes = [
        Home(number, name, now_ns - _now_ns(evidence) if evidence.looks else 0)
        for number, (name, evidence) in enumerate(zip(names, evidences, strict=True), 1)
    ]
    parts = [renumbered(evidence, home) for evidence, home in zip(evidences, homes, strict=True)]
    placements = tuple(_placement(*row) for row in zip(evidences, names, claims, strict=True))
    rows: dict[str, Any] = {
        name: tuple(row for part in parts for row in getattr(part, name)) for name in OF_ALL_LOOKS
    }
    rows_by_look: dict[str, Any] = {
        name: tuple(
            tuple(row for look in looks for row in look)
            for looks in _aligned([getattr(part, name) for part in parts])
        )
        for name in OF_ONE_LOOK
    }
    merged = Evidence(
        job=_job(parts, placements),
        taken_unix_ns=max(part.taken_unix_ns for part in parts),
        looks=tuple(
            replace(looks[0], processes=tuple(p for look in looks for p in look.processes))
            for looks in _aligned([part.looks for part in parts])
        ),
        host=_facts([part.host for part in parts if part.host is not None]),
        problems=(*problems, *_problems(parts, names)),
        cost=_cost(parts),
        **rows,
        **rows_by_look,
    )
    return without_doubles(across_hosts(merged))


def _now_ns(evidence: Evidence) -> int:
    return evidence.looks[-1].at_ns if evidence.looks else 0


def _aligned(all_looks: Sequence[Sequence[_Look]]) -> list[list[_Look]]:
    """First looks with first ones and last with last: a host that was looked at twice has none in
    the middle of another's three. Of a single look only the last place is filled.
    """
    count = max(map(len, all_looks))
    slots: list[list[_Look]] = [[] for _ in range(count)]
    for looks in all_looks:
        for at, look in enumerate(looks):
            last = at == len(looks) - 1
            slots[count - 1 if last else at].append(look)
    return [slot for slot in slots if slot]


def _placement(evidence: Evidence, name: str, ranks: tuple[int, ...]) -> Placement:
    placements = evidence.job.placements
    return replace(
        placements[0] if placements else Placement(name),
        host=name,
        world_size=evidence.job.world_size,
        local_ranks=evidence.job.local_ranks,
        ranks=ranks,
        taken_unix_ns=evidence.taken_unix_ns,
    )


def _job(parts: Sequence[Evidence], placements: tuple[Placement, ...]) -> Job:
    jobs = [part.job for part in parts]
    world = max((job.world_size or 0 for job in jobs), default=0) or None
    observed = {rank for job in jobs for rank in started_ranks(job)}
    local = [job.local_ranks or 0 for job in jobs]
    complete = world is not None and all(local) and sum(local) >= world
    return Job(
        host=hosts_text([placement.host for placement in placements]),
        members=tuple(member for job in jobs for member in job.members),
        world_size=world,
        local_ranks=world if complete else max(local) or None,
        ranks_missing=tuple(rank for rank in range(world or 0) if rank not in observed),
        framework=_usual([job.framework for job in jobs if job.framework != "unknown"], "unknown"),
        address=_usual([job.address for job in jobs if job.address]),
        run_dir=_usual([job.run_dir for job in jobs if job.run_dir]),
        notes=tuple(
            dict.fromkeys(
                f"{p.host}: {n}" for p, job in zip(placements, jobs, strict=True) for n in job.notes
            )
        ),
        placements=placements,
    )


def _usual(names: Iterable[str], otherwise: str = "") -> str:
    counts = Counter(names)
    return min(counts, key=lambda name: (-counts[name], name), default=otherwise)


def _facts(facts: Sequence[HostFacts]) -> HostFacts | None:
    if not facts:
        return None
    return HostFacts(
        name=hosts_text([host.name for host in facts]),
        cores=sum(host.cores for host in facts),
        disks=tuple(disk for host in facts for disk in host.disks),
        kernel=tuple(row for host in facts for row in host.kernel),
        kernel_problem=next((host.kernel_problem for host in facts if host.kernel_problem), ""),
    )


def _problems(parts: Sequence[Evidence], names: Sequence[str]) -> tuple[Problem, ...]:
    hosts: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for part, name in zip(parts, names, strict=True):
        for problem in part.problems:
            hosts[problem.what, problem.remedy][name] = None
    return tuple(
        Problem(f"On {hosts_text(list(where))}: {text}", remedy)
        for (text, remedy), where in hosts.items()
    )


def _cost(parts: Sequence[Evidence]) -> Cost:
    """Hosts are looked at at the same time, so the longest visit counts."""
    return Cost(*(max(costs) for costs in zip(*(astuple(part.cost) for part in parts))))


def across_hosts(evidence: Evidence) -> Evidence:
    """The evidence with peers on other hosts: by the two ends of a connection, else by who serves
    the port on the host that has the address.
    """
    ends = {row.target: row.pid for row in evidence.blocked if ARROW in row.target}
    homes = _homes(evidence)
    servers = dict(_servers(evidence))
    return replace(
        evidence, blocked=tuple(_met(row, ends, homes, servers) for row in evidence.blocked)
    )


def _met(
    row: Blocked, ends: dict[str, int], homes: dict[str, int], servers: dict[tuple[int, str], int]
) -> Blocked:
    local, arrow, remote = row.target.partition(ARROW)
    if not arrow or row.peers or remote.startswith(_LOOPBACK):
        return row
    host, _, port = remote.rpartition(":")
    peer = ends.get(f"{remote}{ARROW}{local}")
    if peer is None and host in homes:
        peer = servers.get((homes[host], port))
    if peer is None or host_of(peer) == host_of(row.pid):
        return row
    return replace(row, peers=(peer,), peers_known=True)


def _homes(evidence: Evidence) -> dict[str, int]:
    numbers = {member.host: host_of(member.pid) for member in evidence.job.members}
    homes = {
        address: numbers[placement.host]
        for placement in evidence.job.placements
        if placement.host in numbers
        for address in placement.addresses
    }
    for row in evidence.blocked:
        local, arrow, _ = row.target.partition(ARROW)
        if arrow and not local.startswith(_LOOPBACK):
            homes.setdefault(host_at(local), host_of(row.pid))
    return homes


def _servers(evidence: Evidence) -> Iterator[tuple[tuple[int, str], int]]:
    """Who answers on a port of a host: seen in its own wait, or asked for its numbers there."""
    for row in evidence.blocked:
        if row.kind == "socket-accept":
            local = row.target.partition(ARROW)[0]
            yield (host_of(row.pid), local.rpartition(":")[2].split(" ")[0]), row.pid
    for look in evidence.engines[-1:]:
        for engine in look:
            port = _port(engine.url)
            if port:
                yield (host_of(engine.pid), port), engine.pid


def _port(url: str) -> str:
    try:
        return str(urlsplit(url).port or "")
    except ValueError:
        return ""


_MOST_HOSTS = 3


def with_hosts(diagnosis: Diagnosis, job: Job) -> Diagnosis:
    """Return the diagnosis of `job` with its hosts; unchanged where there is only one."""
    if len(job.placements) < 2:
        return diagnosis
    of_rank = hosts_by_rank(job)
    replace, verdict = msgspec.structs.replace, diagnosis.verdict
    summary = _located(verdict.summary, verdict.culprits, of_rank)
    placements = tuple(HostSeen(placement.host, placement.ranks) for placement in job.placements)
    return replace(
        diagnosis,
        job=replace(diagnosis.job, hosts=placements),
        verdict=_careful(replace(verdict, summary=summary), job, of_rank),
    )


def _located(summary: str, culprits: tuple[int, ...], of_rank: Mapping[int, str]) -> str:
    """`Rank 5 on node7 is stopped ...`: the culprits where they are first named."""
    hosts = sorted({host for rank in culprits if (host := of_rank.get(rank))})
    text = ranks_text(culprits)
    match = re.search(rf"\b{re.escape(text)}(?![\d\-,])", summary, re.IGNORECASE) if text else None
    if not hosts or match is None:
        return summary
    where = ", ".join(hosts) if len(hosts) <= _MOST_HOSTS else f"{len(hosts)} hosts"
    return f"{summary[: match.end()]} on {where}{summary[match.end() :]}"


def _careful(verdict: Verdict, job: Job, of_rank: Mapping[int, str]) -> Verdict:
    """Less sure where a culprit's host was looked at long before the others."""
    newest_ns = max(placement.taken_unix_ns for placement in job.placements)
    old = {
        placement.host: newest_ns - placement.taken_unix_ns
        for placement in job.placements
        if is_old(placement.taken_unix_ns, newest_ns)
    }
    blamed = sorted({of_rank.get(rank, "") for rank in verdict.culprits} & old.keys())
    if not blamed:
        return verdict
    ages = {host: seconds_text(old[host] / 1e9) for host in blamed}
    items = [
        Item("time", None, f"{host} was inspected {age} before the others")
        for host, age in ages.items()
    ]
    return msgspec.structs.replace(
        at_most(verdict, "possible"), evidence=(*verdict.evidence, *items)
    )
