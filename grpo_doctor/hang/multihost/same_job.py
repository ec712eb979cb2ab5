"""Whether bundles are of one job, by the address at which their ranks were set to meet."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_doctor_probes.evidence import Evidence, Job, Placement

_NO_RUN_ID = "none"  # torchrun's default
_LOOPBACK = ("localhost", "ip6-localhost", "")
_MOST_NAMED = 8


class DifferentJobsError(Exception):
    """The evidence is of several jobs; the message names each by its hosts and where it meets."""


@dataclass(frozen=True, slots=True)
class _Papers:
    """What distinguishes jobs."""

    host: str
    address: str
    run_id: str
    job_id: str
    ranks: frozenset[int]
    complete: bool

    def text(self) -> str:
        """`rendezvous 10.0.0.1:29500, run id r1, job 4711`."""
        facts = [f"rendezvous {self.address or 'unknown'}"]
        facts += [f"run id {self.run_id}"] if self.run_id else []
        facts += [f"job {self.job_id}"] if self.job_id else []
        return ", ".join(facts)


def check(evidences: Sequence[Evidence]) -> None:
    """Raises DifferentJobsError unless all can be of one job."""
    jobs: list[list[_Papers]] = []
    for papers in (_papers(evidence.job) for evidence in evidences):
        fitting = [job for job in jobs if not any(_differ(papers, other) for other in job)]
        if fitting:
            fitting[0].append(papers)
        else:
            jobs.append([papers])
    if len(jobs) > 1:
        lines = "\n".join(f"  {_hosts(job)}: {_best(job).text()}" for job in jobs)
        raise DifferentJobsError(
            f"These are bundles of {len(jobs)} jobs; give those of one:\n{lines}"
        )


def fits(job: Job, other: Job) -> bool:
    """Return whether two samples can be of one job."""
    return not _differ(_papers(job), _papers(other))


def _papers(job: Job) -> _Papers:
    placement = job.placements[0] if job.placements else Placement(job.host)
    ranks = frozenset(m.rank for m in job.ranks() if m.rank is not None)
    return _Papers(
        host=job.host,
        address=job.address,
        run_id="" if placement.run_id == _NO_RUN_ID else placement.run_id,
        job_id=placement.job_id,
        ranks=ranks,
        complete=bool(ranks) and job.world_size == len(ranks),
    )


def _differ(papers: _Papers, other: _Papers) -> bool:
    if papers.run_id and other.run_id:
        return papers.run_id != other.run_id
    if papers.job_id and other.job_id and papers.job_id != other.job_id:
        return True
    complete = papers.complete and other.complete
    if complete and papers.host != other.host and papers.ranks & other.ranks:
        return True  # each has all its ranks: two jobs that both meet at localhost
    return bool(papers.address and other.address) and _elsewhere(papers.address, other.address)


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
    return host in _LOOPBACK or host.startswith("127.") or host in ("::1", "[::1]")


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _best(job: Sequence[_Papers]) -> _Papers:
    return max(
        job, key=lambda papers: (bool(papers.address), bool(papers.run_id), bool(papers.job_id))
    )


def _hosts(job: Sequence[_Papers]) -> str:
    names = sorted({papers.host for papers in job})
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"
