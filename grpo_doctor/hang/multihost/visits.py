"""Which of the bundles count: one of each host and one process of each rank, of one moment.

To be joined, its processes and threads get identities that no other host has, and the moments of
its clock become those of the newest sample.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.nodes import HOST_STEP
from grpo_doctor.hang.wording import ranks_text, seconds_text, sentence
from grpo_doctor_probes.evidence import (
    Evidence,
    Frame,
    GpuLook,
    HostFacts,
    Job,
    Member,
    Problem,
)
from grpo_doctor_probes.procs.printable import NAME_LIMIT, printable

AT_ONCE_S = 60.0  # hosts that are reached one after the other by hand, and clocks that differ
SLACK_S = 5.0  # between looks at the same time; clocks of hosts differ by less, as a rule
_TOGETHER = "Inspect all hosts at the same time; `grpo-doctor attach --help` has the commands."

Chosen = tuple[tuple[Evidence, ...], tuple[Problem, ...]]  # what is left to join; what is not


def apart_s(evidence: Evidence, other: Evidence) -> float:
    """Return the seconds between two samples."""
    return abs(evidence.taken_unix_ns - other.taken_unix_ns) / 1e9


def is_old(taken_unix_ns: int, newest_unix_ns: int) -> bool:
    """Return whether a sample is so much older than the newest that its ranks may have resumed."""
    return newest_unix_ns - taken_unix_ns > AT_ONCE_S * 1e9


def of_one_moment(evidences: Sequence[Evidence]) -> Chosen:
    """Older looks are used with a word of doubt, and not at all if the job has moved since."""
    newest_ns = max(evidence.taken_unix_ns for evidence in evidences)
    usable: list[Evidence] = []
    problems: list[Problem] = []
    for evidence, moved in zip(evidences, _moved_since(evidences), strict=True):
        age = seconds_text((newest_ns - evidence.taken_unix_ns) / 1e9)
        begin = f"The evidence of {evidence.job.host} is {age} older than the newest evidence"
        if moved:
            words = f"{begin} and the job has moved since: it is left out."
            problems.append(Problem(words, _TOGETHER))
            continue
        usable.append(evidence)
        if is_old(evidence.taken_unix_ns, newest_ns):
            problems.append(Problem(f"{begin}; its ranks may have made progress since.", _TOGETHER))
    return tuple(usable), tuple(problems)


def _moved_since(evidences: Sequence[Evidence]) -> list[bool]:
    newest_ns = max(evidence.taken_unix_ns for evidence in evidences)
    oldest_ns = min(evidence.taken_unix_ns for evidence in evidences)
    if newest_ns - oldest_ns <= SLACK_S * 1e9:
        return [False] * len(evidences)
    last_ns = [_last_call_ns(evidence) for evidence in evidences]
    return [
        any(
            ns > evidence.taken_unix_ns + (SLACK_S + evidence.cost.seconds) * 1e9
            and other.taken_unix_ns > evidence.taken_unix_ns + SLACK_S * 1e9
            for other, ns in zip(evidences, last_ns, strict=True)
        )
        for evidence in evidences
    ]


def _last_call_ns(evidence: Evidence) -> int:
    return max(
        (
            entry.created_ns or 0
            for recording in dumps.read(evidence.dumps).ranks
            for entry in recording.entries[-64:]
        ),
        default=0,
    )


def without_doubles(evidence: Evidence) -> Evidence:
    """Hosts that share a file system have each found the same dump files."""
    dumps = {
        (dump.source, dump.rank, dump.at_unix_ns, len(dump.data)): dump for dump in evidence.dumps
    }
    files = {key for key in dumps if key[0].startswith("file:")}
    live = [dump for dump in evidence.dumps if not dump.source.startswith("file:")]
    return replace(evidence, dumps=(*live, *(dumps[key] for key in sorted(files, key=str))))


def ordered(evidences: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """Sort by host and ranks, so that the order in which they were given does not matter."""
    return tuple(sorted(evidences, key=_key))


def newest_of_each_host(evidences: Sequence[Evidence]) -> Chosen:
    """Of bundles of one host the newest; of two containers of one host both."""
    newest: list[Evidence] = []
    problems: list[Problem] = []
    for evidence in sorted(evidences, key=lambda visit: -visit.taken_unix_ns):
        newer = next((newer for newer in newest if same_processes(newer.job, evidence.job)), None)
        if newer is None:
            newest.append(evidence)
        elif newer != evidence:
            age = seconds_text(apart_s(newer, evidence))
            host = evidence.job.host
            problems.append(
                Problem(f"There are two bundles of {host}, {age} apart; the newer is used.")
            )
    return ordered(newest), tuple(problems)


def one_of_each_rank(evidences: Sequence[Evidence]) -> Chosen:
    """Where two hosts have a process of one rank the newer counts; the other becomes a process of
    unknown rank, without what it recorded.
    """
    owners: dict[int, int] = {}
    # Looks within a minute are of one moment: then the first in order counts.
    minutes = [evidence.taken_unix_ns // int(AT_ONCE_S * 1e9) for evidence in evidences]
    by_age = sorted(range(len(evidences)), key=lambda at: -minutes[at])
    for at in by_age:
        for rank in started_ranks(evidences[at].job):
            owners.setdefault(rank, at)
    lost: dict[int, set[int]] = defaultdict(set)
    rivals: dict[tuple[int, int], set[int]] = defaultdict(set)
    for at, evidence in enumerate(evidences):
        for rank in started_ranks(evidence.job):
            if owners[rank] != at:
                lost[at].add(rank)
                rivals[owners[rank], at].add(rank)
    problems = [
        _rivalry(evidences[winner], evidences[loser], ranks)
        for (winner, loser), ranks in sorted(rivals.items())
    ]
    settled = [
        _without(evidence, lost[at]) if at in lost else evidence
        for at, evidence in enumerate(evidences)
    ]
    return tuple(settled), tuple(problems)


def host_names(evidences: Sequence[Evidence]) -> tuple[str, ...]:
    """A name for each, different ones for different hosts that call themselves alike."""
    counts: Counter[str] = Counter()
    names = []
    for evidence in evidences:
        name = printable(evidence.job.host, NAME_LIMIT) or "unnamed host"
        counts[name] += 1
        names.append(name if counts[name] == 1 else f"{name} ({counts[name]})")
    return tuple(names)


def _key(evidence: Evidence) -> tuple[str, tuple[int, ...], int, tuple[int, ...]]:
    job = evidence.job
    pids = tuple(sorted(member.pid for member in job.members))
    return job.host, tuple(sorted(started_ranks(job))), evidence.taken_unix_ns, pids


def started_ranks(job: Job) -> set[int]:
    """The ranks that it has a process of."""
    return {member.rank for member in job.ranks() if member.rank is not None}


def same_processes(job: Job, other: Job) -> bool:
    """Two bundles of one host: a process of both, or a rank of both."""
    if job.host != other.host:
        return False
    born = {(member.pid, member.started_ticks) for member in job.members}
    return bool(
        started_ranks(job) & started_ranks(other)
        or born & {(member.pid, member.started_ticks) for member in other.members}
    )


def _rivalry(winner: Evidence, loser: Evidence, ranks: set[int]) -> Problem:
    listed = ranks_text(sorted(ranks))
    winning, losing = winner.job.host, loser.job.host
    if apart_s(winner, loser) <= AT_ONCE_S:
        return Problem(
            f"Processes of {listed} ran on {losing} and on {winning} at the same time; those "
            f"on {winning} are taken for the ranks.",
            "Check whether both hosts were started with the same node number.",
        )
    text = f"{listed}: seen on {losing} first and on {winning} later; {winning} counts"
    return Problem(sentence(text))


def _without(evidence: Evidence, ranks: set[int]) -> Evidence:
    members = tuple(
        replace(member, rank=None) if member.rank in ranks else member
        for member in evidence.job.members
    )
    return replace(
        evidence,
        job=replace(evidence.job, members=members),
        dumps=tuple(dump for dump in evidence.dumps if dump.rank not in ranks),
        spans=tuple(span for span in evidence.spans if span.rank not in ranks),
    )


_NS_PER_TICK = 10_000_000


@dataclass(frozen=True, slots=True)
class Home:
    """The host of some evidence: which it is of all, its name, and how far its clock is behind."""

    number: int
    name: str
    later_ns: int = 0

    def pid(self, pid: int) -> int:
        """Return the identity of a process or thread; what is no process stays."""
        return self.number * HOST_STEP + pid if pid > 0 else pid

    def at(self, ns: int) -> int:
        """Return a moment by the common clock; 0 stays unknown."""
        return ns + self.later_ns if ns else 0


def renumbered(evidence: Evidence, home: Home) -> Evidence:
    """Return evidence of one host as a part of joined evidence."""
    moved: Evidence = _moved(evidence, home)
    host = _facts(evidence.host, home) if evidence.host is not None else None
    return replace(moved, host=host, ray=evidence.ray)


_OF_PROCESSES = frozenset({"pid", "tid", "parent", "pids", "peers", "stopped_peers"})
_MOMENTS = frozenset({"at_ns", "last_ran_ns"})


def _moved(value: Any, home: Home, name: str = "") -> Any:
    """Return what is in the field `name` with the identities and moments of joined evidence."""
    if isinstance(value, tuple):
        return tuple(_moved(each, home, name) for each in value)
    if isinstance(value, int):
        if name == "started_ticks":
            return value + home.later_ns // _NS_PER_TICK
        if name in _MOMENTS:
            return home.at(value)
        return home.pid(value) if name in _OF_PROCESSES else value
    if isinstance(value, Frame) or not is_dataclass(value):
        return value
    record: Any = value  # which to mypy may be a class as well
    changes = {row.name: _moved(getattr(value, row.name), home, row.name) for row in fields(value)}
    named = {"host": home.name} if isinstance(value, Member | GpuLook) else {}
    return replace(record, **changes | named)


def _facts(facts: HostFacts, home: Home) -> HostFacts:
    return replace(
        facts,
        kernel=tuple((age_s, f"{text} (on {home.name})") for age_s, text in facts.kernel),
        disks=tuple(replace(disk, path=f"{home.name}:{disk.path}") for disk in facts.disks),
    )
