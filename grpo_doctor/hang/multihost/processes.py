"""Process numbers of several hosts in one evidence, and in the words of its verdict.

Host k's process 4711 is the number `k * SPACE + 4711`, of a type of its own: in a text it leaves a
reference, and no other number looks like one. The verdict's words get the number and the name of
the host in its place when they are rendered. Clocks are moved so that the last samples of all hosts
are at the same moment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, TypeVar

import msgspec

from grpo_doctor.hang.certainty import at_most
from grpo_doctor.hang.model.hosts import home_of
from grpo_doctor.hang.multihost.visits import is_old
from grpo_doctor.hang.verdict import Diagnosis, HostSeen, Item, RankState, Verdict, WaitGraph
from grpo_doctor.hang.wording import ranks_text, seconds_text
from grpo_doctor_probes.evidence import Evidence, HostFacts, Job

SPACE = 10**12  # Linux numbers processes below 2**22; 9,000 hosts stay exact in JavaScript
_NS_PER_TICK = 10_000_000
_OPEN, _CLOSE = "\ue000", "\ue001"  # for private use: nothing printable that was read has them
_REFERENCE = re.compile(rf"(?P<word>(?<![-\w])(?:pid|process|PID) )?{_OPEN}(?P<pid>\d+){_CLOSE}")
_STRAY = str.maketrans("", "", _OPEN + _CLOSE)  # of a text that was cut in the middle
_IN_KERNEL_MESSAGE = re.compile(r"(?:(?<=[Kk]illed process )|(?<=, pid=)|(?<=, pid='))\d{1,16}")
_Row = TypeVar("_Row")

# What rows of the evidence call these.
_NUMBERS = frozenset({"pid", "tid", "parent"})
_LISTS_OF_NUMBERS = frozenset({"pids", "peers", "stopped_peers"})
_MOMENTS = frozenset({"at_ns", "last_ran_ns"})
_ROWS = frozenset({"members", "processes", "threads", "holders"})
OF_ONE_LOOK = ("stacks", "limits", "gpus", "engines")
OF_ALL_LOOKS = (
    "blocked", "arguments", "positions", "locals_seen", "spans", "dumps", "ras", "logs",
)  # fmt: skip


class ProcessNumber(int):
    """A process or thread of one of several hosts."""

    def __format__(self, spec: str) -> str:
        return f"{_OPEN}{int(self)}{_CLOSE}"

    def __str__(self) -> str:
        return f"{self}"


def real(pid: int) -> int:
    """The process number on its own host."""
    return int(pid) % SPACE


def space_of(pid: int) -> int:
    """The number of the host that it is of; 0 where no evidence was joined."""
    return int(pid) // SPACE


@dataclass(frozen=True, slots=True)
class Space:
    """Where one host's evidence is moved to. The default: evidence that was joined before and has
    been read again.
    """

    number: int = 0
    host: str = ""
    later_ns: int = 0  # added to every moment of its clock

    def pid(self, pid: int | None) -> int | None:
        """A process or thread number of this host in joined evidence."""
        return ProcessNumber(self.number * SPACE + pid) if pid is not None and pid > 0 else pid

    def at(self, ns: int) -> int:
        """A moment of this host's clock; 0 stays unknown."""
        return ns + self.later_ns if ns else 0


def moved(evidence: Evidence, space: Space) -> Evidence:
    """The evidence with process numbers and moments of the space."""
    rows: dict[str, Any] = {
        name: tuple(_moved(row, space) for row in getattr(evidence, name))
        for name in (*OF_ALL_LOOKS, "looks", "problems")
    }
    looks: dict[str, Any] = {
        name: tuple(tuple(_moved(row, space) for row in look) for look in getattr(evidence, name))
        for name in OF_ONE_LOOK
    }
    job, host = _moved(evidence.job, space), evidence.host
    if space.host:
        of_host: Callable[[Any], Any] = lambda row: replace(row, host=space.host)  # noqa: E731
        looks["gpus"] = tuple(tuple(map(of_host, look)) for look in looks["gpus"])
        ticks = space.later_ns // _NS_PER_TICK
        job = replace(
            job,
            members=tuple(
                replace(member, host=space.host, started_ticks=member.started_ticks + ticks)
                for member in job.members
            ),
        )
        host = _facts(host, space)
    return replace(evidence, job=job, host=host, **rows, **looks)


def _moved(row: _Row, space: Space) -> _Row:
    changed: dict[str, Any] = {}
    kind: Any = type(row)
    for name in _moving(kind):
        value = getattr(row, name)
        if name in _NUMBERS:
            changed[name] = space.pid(value)
        elif name in _MOMENTS:
            changed[name] = space.at(value)
        elif name in _LISTS_OF_NUMBERS:
            changed[name] = tuple(map(space.pid, value))
        else:
            changed[name] = tuple(_moved(inner, space) for inner in value)
    return replace(row, **changed) if changed else row  # type: ignore[type-var]


@cache
def _moving(kind: type) -> tuple[str, ...]:
    moving = _NUMBERS | _MOMENTS | _LISTS_OF_NUMBERS | _ROWS
    return tuple(field.name for field in fields(kind) if field.name in moving)


def _facts(facts: HostFacts | None, space: Space) -> HostFacts | None:
    """Its kernel's messages name processes of this host, and its disks are its own."""
    if facts is None:
        return None
    return replace(
        facts,
        kernel=tuple(
            (age_s, f"{_renumbered(text, space.number)} (on {space.host})")
            for age_s, text in facts.kernel
        ),
        disks=tuple(replace(disk, path=f"{space.host}:{disk.path}") for disk in facts.disks),
    )


def kernel_message(text: str) -> str:
    """A message of a kernel of joined evidence as it was written."""
    return _renumbered(text, 0)


def _renumbered(text: str, number: int) -> str:
    return _IN_KERNEL_MESSAGE.sub(lambda match: str(number * SPACE + real(int(match[0]))), text)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Renders texts with references to processes. `names` are by the number of the host."""

    names: Mapping[int, str]

    def name(self, pid: int) -> str:
        """The host of a process; "" where it is not known."""
        return self.names.get(space_of(pid), "")

    def sentence(self, text: str) -> str:
        """`pid 4711 on node7`."""

        def located(match: re.Match[str]) -> str:
            number, word = int(match["pid"]), match["word"] or ""
            host = self.name(number)
            where = f" on {host}" if word else f" (on {host})"
            return f"{word}{real(number)}{where if host else ''}"

        return _REFERENCE.sub(located, text).translate(_STRAY)

    def command(self, text: str) -> str:
        """A command line, with the host that it is for as a comment."""
        numbers = [int(match["pid"]) for match in _REFERENCE.finditer(text)]
        names = dict.fromkeys(host for number in numbers if (host := self.name(number)))
        line = _REFERENCE.sub(lambda m: f"{m['word'] or ''}{real(int(m['pid']))}", text)
        if not names:
            return line
        line, mark, comment = line.partition("  # ")
        where = f"on {', '.join(names)}"
        return f"{line}  # {where}{f': {comment}' if mark else ''}"

    @staticmethod
    def id(text: str) -> str:
        """The name of a node in the document: the number in joined evidence, as it is."""
        return text.translate(_STRAY)


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
