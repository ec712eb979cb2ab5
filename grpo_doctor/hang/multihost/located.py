"""The verdict on several hosts: where its culprits are, and how old what was seen of them is."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from grpo_doctor.hang.certainty import at_most
from grpo_doctor.hang.model.hosts import home_of
from grpo_doctor.hang.multihost.visits import is_old
from grpo_doctor.hang.verdict import Diagnosis, HostSeen, Item, Verdict
from grpo_doctor.hang.wording import ranks_text, seconds_text
from grpo_doctor_probes.evidence import Job

_MOST_HOSTS = 3
_MOST_LOST = 64  # missing ranks whose hosts are looked up


def with_hosts(diagnosis: Diagnosis, job: Job) -> Diagnosis:
    """Return the diagnosis of `job` with its hosts; unchanged where there is only one."""
    if len(job.placements) < 2:
        return diagnosis
    of_rank = {m.rank: m.host for m in job.members if m.role == "rank" and m.rank is not None}
    lost = job.ranks_missing[:_MOST_LOST]
    of_rank |= {rank: host for rank in lost if (host := home_of(job, rank))}
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
