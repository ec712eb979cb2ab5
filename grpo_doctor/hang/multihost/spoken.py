"""A verdict on joined evidence in words that a user can act on: real process numbers, and hosts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial

import msgspec

from grpo_doctor.hang.model.hosts import home_of
from grpo_doctor.hang.multihost.moments import is_old
from grpo_doctor.hang.multihost.spaces import real, space_of
from grpo_doctor.hang.verdict import Diagnosis, HostSeen, Item, RankState, Verdict
from grpo_doctor.hang.wording import ranks_text, seconds_text
from grpo_doctor_probes.evidence import Job

# Times are longer, sizes shorter: nothing else has 13 to 16 digits and a host's number in front.
_NUMBER = re.compile(r"(?P<word>(?<![-\w])(?:pid|process|PID) )?\b(?P<pid>[1-9]\d{12,15})\b")
_DOUBTFUL = 0.5  # of a verdict that names ranks by a look much older than the others
_MOST_HOSTS = 3
_MOST_LOST = 64  # missing ranks whose hosts are looked up


@dataclass(frozen=True, slots=True)
class _Tongue:
    """Hosts by their number, and by rank."""

    hosts: dict[int, str]
    of_rank: dict[int, str] = field(default_factory=dict)

    def host(self, pid: int) -> str:
        return self.hosts.get(space_of(pid), "")

    def text(self, text: str) -> str:
        """A sentence: `pid 4711 on node7`."""
        return _NUMBER.sub(partial(self._said, with_host=True), text)

    def command(self, text: str) -> str:
        """A command line, with the host that it is for as a comment."""
        numbers = [int(found["pid"]) for found in _NUMBER.finditer(text)]
        names = dict.fromkeys(host for number in numbers if (host := self.host(number)))
        said = _NUMBER.sub(partial(self._said, with_host=False), text)
        if not names:
            return said
        line, mark, comment = said.partition("  # ")
        where = f"on {', '.join(names)}"
        return f"{line}  # {where}{f': {comment}' if mark else ''}"

    def _said(self, found: re.Match[str], *, with_host: bool) -> str:
        number = int(found["pid"])
        host = self.host(number)
        if not host:
            return found[0]
        word = found["word"] or ""
        if not with_host:
            return f"{word}{real(number)}"
        return f"{word}{real(number)} on {host}" if word else f"{real(number)} (on {host})"


def spoken(diagnosis: Diagnosis, job: Job) -> Diagnosis:
    """The diagnosis of `job` with the hosts in it; unchanged where there is only one."""
    if len(job.placements) < 2:
        return diagnosis
    tongue = _Tongue(
        {space_of(member.pid): member.host for member in job.members if member.host},
        {m.rank: m.host for m in job.members if m.role == "rank" and m.rank is not None}
        | {rank: host for rank in job.ranks_missing[:_MOST_LOST] if (host := home_of(job, rank))},
    )
    return msgspec.structs.replace(
        diagnosis,
        verdict=_careful(_verdict(diagnosis.verdict, tongue), job, tongue),
        ranks=tuple(_rank(one, tongue) for one in diagnosis.ranks),
        nodes=tuple(
            msgspec.structs.replace(one, label=tongue.text(one.label)) for one in diagnosis.nodes
        ),
        edges=tuple(
            msgspec.structs.replace(one, label=tongue.text(one.label)) for one in diagnosis.edges
        ),
        stacks=tuple(
            msgspec.structs.replace(
                one, pids=tuple(map(real, one.pids)), title=tongue.text(one.title)
            )
            for one in diagnosis.stacks
        ),
        undo=tuple(
            msgspec.structs.replace(
                one,
                pid=real(one.pid),
                target=tongue.command(one.target),
                text=tongue.text(one.text),
            )
            for one in diagnosis.undo
        ),
        problems=tuple((tongue.text(what), remedy) for what, remedy in diagnosis.problems),
        hosts=tuple(HostSeen(one.host, one.ranks) for one in job.placements),
    )


def _rank(one: RankState, tongue: _Tongue) -> RankState:
    return msgspec.structs.replace(
        one,
        pid=real(one.pid) if one.pid is not None else None,
        host=tongue.host(one.pid) if one.pid is not None else "",
        where=tongue.text(one.where),
        waiting_for=tongue.text(one.waiting_for),
    )


def _verdict(verdict: Verdict, tongue: _Tongue) -> Verdict:
    return msgspec.structs.replace(
        verdict,
        summary=_located(tongue.text(verdict.summary), verdict.culprits, tongue),
        evidence=tuple(
            Item(one.source, one.rank, tongue.text(one.text)) for one in verdict.evidence
        ),
        confirm=tuple(map(tongue.command, verdict.confirm)),
        fixes=tuple(
            msgspec.structs.replace(one, text=tongue.text(one.text)) for one in verdict.fixes
        ),
    )


def _located(summary: str, culprits: tuple[int, ...], tongue: _Tongue) -> str:
    """`Rank 5 on node7 is stopped ...`: the culprits where they are first named."""
    hosts = sorted({host for rank in culprits if (host := tongue.of_rank.get(rank))})
    who = ranks_text(culprits)
    found = re.search(rf"\b{re.escape(who)}(?![\d\-,])", summary, re.IGNORECASE) if who else None
    if not hosts or found is None:
        return summary
    where = ", ".join(hosts) if len(hosts) <= _MOST_HOSTS else f"{len(hosts)} hosts"
    return f"{summary[: found.end()]} on {where}{summary[found.end() :]}"


def _careful(verdict: Verdict, job: Job, tongue: _Tongue) -> Verdict:
    """Less sure where a culprit's host was looked at long before the others."""
    newest_ns = max(one.taken_unix_ns for one in job.placements)
    old = {
        p.host: newest_ns - p.taken_unix_ns
        for p in job.placements
        if is_old(p.taken_unix_ns, newest_ns)
    }
    blamed = sorted({tongue.of_rank.get(rank, "") for rank in verdict.culprits} & old.keys())
    if not blamed:
        return verdict
    items = [
        Item(
            "time", None, f"{host} was looked at {seconds_text(old[host] / 1e9)} before the others"
        )
        for host in blamed
    ]
    return msgspec.structs.replace(
        verdict,
        confidence=round(min(verdict.confidence, _DOUBTFUL), 2),
        evidence=(*verdict.evidence, *items),
    )
