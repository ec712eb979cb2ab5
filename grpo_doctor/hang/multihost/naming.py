"""A verdict on joined evidence with what a user can act on: real process numbers, and hosts."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from grpo_doctor.hang.certainty import at_most
from grpo_doctor.hang.model.hosts import home_of
from grpo_doctor.hang.multihost.processes import Hosts, kernel_message, real, space_of
from grpo_doctor.hang.multihost.visits import is_old
from grpo_doctor.hang.verdict import Diagnosis, HostSeen, Item, RankState, Verdict, WaitGraph
from grpo_doctor.hang.wording import ranks_text, seconds_text
from grpo_doctor_probes.evidence import Job

_MOST_HOSTS = 3
_MOST_LOST = 64  # missing ranks whose hosts are looked up


def with_hosts(diagnosis: Diagnosis, job: Job) -> Diagnosis:
    """The diagnosis of `job` with the hosts in it; unchanged where there is only one."""
    if len(job.placements) < 2:
        return diagnosis
    hosts = Hosts({space_of(member.pid): member.host for member in job.members if member.host})
    of_rank = {m.rank: m.host for m in job.members if m.role == "rank" and m.rank is not None}
    lost = job.ranks_missing[:_MOST_LOST]
    of_rank |= {rank: host for rank in lost if (host := home_of(job, rank))}
    replace, graph = msgspec.structs.replace, diagnosis.graph
    placements = tuple(HostSeen(placement.host, placement.ranks) for placement in job.placements)
    return replace(
        diagnosis,
        job=replace(diagnosis.job, hosts=placements),
        verdict=_careful(_verdict(diagnosis.verdict, hosts, of_rank), job, of_rank),
        ranks=tuple(_rank(state, hosts) for state in diagnosis.ranks),
        graph=WaitGraph(
            nodes=tuple(
                replace(node, id=hosts.id(node.id), label=hosts.sentence(node.label))
                for node in graph.nodes
            ),
            edges=tuple(
                replace(
                    edge,
                    source=hosts.id(edge.source),
                    target=hosts.id(edge.target),
                    label=hosts.sentence(edge.label),
                )
                for edge in graph.edges
            ),
            cycle=tuple(map(hosts.id, graph.cycle)),
        ),
        stacks=tuple(
            replace(group, pids=tuple(map(real, group.pids)), title=hosts.sentence(group.title))
            for group in diagnosis.stacks
        ),
        undo=tuple(
            replace(
                undo,
                pid=real(undo.pid),
                target=hosts.command(undo.target),
                text=hosts.sentence(undo.text),
            )
            for undo in diagnosis.undo
        ),
        problems=tuple(
            replace(problem, what=hosts.sentence(problem.what)) for problem in diagnosis.problems
        ),
    )


def _rank(state: RankState, hosts: Hosts) -> RankState:
    return msgspec.structs.replace(
        state,
        pid=real(state.pid) if state.pid is not None else None,
        host=hosts.name(state.pid) if state.pid is not None else "",
        where=hosts.sentence(state.where),
        waiting_for=hosts.sentence(state.waiting_for),
    )


def _verdict(verdict: Verdict, hosts: Hosts, of_rank: Mapping[int, str]) -> Verdict:
    return msgspec.structs.replace(
        verdict,
        summary=_located(hosts.sentence(verdict.summary), verdict.culprits, of_rank),
        evidence=tuple(_item(item, hosts) for item in verdict.evidence),
        confirm=tuple(map(hosts.command, verdict.confirm)),
        fixes=tuple(
            msgspec.structs.replace(fix, text=hosts.sentence(fix.text)) for fix in verdict.fixes
        ),
        can_go_on=hosts.sentence(verdict.can_go_on),
    )


def _item(item: Item, hosts: Hosts) -> Item:
    text = kernel_message(item.text) if item.source == "kernel" else hosts.sentence(item.text)
    return Item(item.source, item.rank, text)


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
