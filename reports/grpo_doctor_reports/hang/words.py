"""What terminal and page say of a visit, in the same words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from grpo_doctor_reports import formatting
from grpo_doctor_reports.formatting import clean
from grpo_doctor_reports.schema import attach

STATES: Final = ("healthy", "slow", "stuck", "dead")
MOST_POINTS: Final = 4_096  # a job of 4,096 ranks has one process of each here at most
MOST_ENDS: Final = 262_144  # of waits
CAN_IT_GO_ON: Final = "Can this job recover?"
_INSTALLED: Final = re.compile(
    r"(?<=\()/\S{0,200}?/(?:site-packages|dist-packages|lib/python3\.\d{1,2})/(?!site-|dist-)"
)
_RANKS: Final = re.compile(r"rank:(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)", re.ASCII)
_CYCLE_LINES: Final = 8  # of a longer cycle the middle is left out
_NAMED_HOSTS: Final = 2  # of one row
_MANY_ROWS: Final = 20  # then who waits for whom is left to the graph
_PLAINLY: Final = {"sleep": "its sleep to end"}  # a wait whose one word is not a thing to wait for
_SOURCES_FIRST: Final = ("confirmation",)  # the strongest evidence there is


@dataclass(frozen=True, slots=True)
class Row:
    """Processes of the job in the same state at the same place. `pid` is set for one alone;
    `hosts` is empty where only one host was looked at."""

    name: str
    pid: int | None
    state: str
    frame: str
    waiting_for: str
    culprit: bool
    hosts: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """Each of `sources` waits for each of `targets`, none for itself."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    kind: str
    label: str


def waits_of(graph: attach.WaitGraph) -> list[Wait]:
    """Return the waits with their ends spread: few characters can stand for many ranks, so it is
    these that are counted."""
    waits: list[Wait] = []
    room = MOST_ENDS
    for edge in graph.edges:
        sources, targets = _ends(edge.source), _ends(edge.target)
        room -= len(sources) + len(targets)
        if room < 0:
            break
        waits.append(Wait(sources, targets, edge.kind, edge.label))
    return waits


def _ends(end: str) -> tuple[str, ...]:
    """The points of an end: `rank:0-2,7` is four of them."""
    ranks = _RANKS.fullmatch(end)
    if not ranks:
        return (clean(end),)
    points: list[str] = []
    for run in ranks[1].split(","):
        first, _, last = run.partition("-")
        beyond = min(int(last or first), int(first) + MOST_POINTS) + 1
        points += [f"rank:{rank}" for rank in range(int(first), beyond)]
    return tuple(points[:MOST_POINTS])


def ranges(ranks: Iterable[int]) -> str:
    """Return `0-2, 5`, with plain hyphens: it is copied into commands and searched for."""
    return formatting.int_ranges(ranks).replace(formatting.NOTHING, "-")


def ranks_named(ranks: Iterable[int]) -> str:
    """Return `rank 3` or `ranks 0-2, 5`."""
    numbers = sorted(set(ranks))
    return f"{'rank' if len(numbers) == 1 else 'ranks'} {ranges(numbers)}"


def headline(visit: attach.AttachDocument) -> str:
    """Return the verdict as one line that names the rank and the reason."""
    verdict = visit.verdict
    if verdict.summary:
        return verdict.summary
    ranks = ranks_named(verdict.culprits) if verdict.culprits else "the job"
    state_known = f"The job is {verdict.state}" if verdict.state else "The job's state is unknown"
    return f"{state_known}: {ranks}, {verdict.cause or 'cause unknown'}."


def state(visit: attach.AttachDocument) -> str:
    """Return the state as a CSS class and style name; an unknown one counts as stuck."""
    return visit.verdict.state if visit.verdict.state in STATES else "stuck"


def facts(visit: attach.AttachDocument) -> list[str]:
    """Return state, class, certainty, phase, and whose job it is."""
    verdict = visit.verdict
    phase = f"in {verdict.phase}" if verdict.phase else ""
    words = [
        verdict.state,
        verdict.cause,
        verdict.certainty if verdict.cause else "",
        phase,
        job(visit),
    ]
    return [part for part in words if part]


def job(visit: attach.AttachDocument) -> str:
    """Return `8 of 8 ranks of ms-swift on host`."""
    ranks, size = len(visit.job.ranks_seen), visit.job.world_size
    count = f"{ranks} of {size} ranks" if size is not None else formatting.count(ranks, "rank")
    framework = "" if visit.job.framework in {"", "unknown"} else f" of {visit.job.framework}"
    return f"{count}{framework}{f' on {visit.job.host}' if visit.job.host else ''}"


def why(visit: attach.AttachDocument) -> list[str]:
    """Return where in the code the culprits are, or the cycle of waits."""
    if visit.graph.cycle:
        return list(_cycle(visit))
    culprit = set(visit.verdict.culprits)
    rows = [row for row in rows_of(visit) if row.culprit]
    if not rows and culprit:
        return [f"{ranks_named(culprit)}: {not_seen(visit)}"]
    return [_stands(row) for row in rows]


def _stands(row: Row) -> str:
    pid = (
        f" (pid {row.pid}{f' on {row.hosts}' if row.hosts else ''})" if row.pid is not None else ""
    )
    frame = f" at {row.frame}" if row.frame else ""
    waits = f", waiting for {row.waiting_for}" if row.waiting_for else ""
    return f"{row.name}{pid}: {row.state or 'state unknown'}{frame}{waits}"


def _cycle(visit: attach.AttachDocument) -> Iterator[str]:
    labels = {point.id: point.label or point.id for point in visit.graph.nodes}
    ring, waits = list(visit.graph.cycle), waits_of(visit.graph)
    for at, source in enumerate(ring):
        if len(ring) > _CYCLE_LINES and _CYCLE_LINES - 2 <= at < len(ring) - 1:
            if at == _CYCLE_LINES - 2:
                yield f"and so on, to {labels.get(ring[-1], ring[-1])}"
            continue
        target = ring[(at + 1) % len(ring)]
        wait = next((w for w in waits if source in w.sources and target in w.targets), None)
        how = f" in {wait.label or wait.kind}" if wait and (wait.label or wait.kind) else ""
        back = ", closing the cycle" if at == len(ring) - 1 else ""
        yield f"{labels.get(source, source)} waits for {labels.get(target, target)}{how}{back}"


def rows_of(visit: attach.AttachDocument) -> list[Row]:
    """Return the processes, those in the same state at the same place together; culprits first."""
    present = [
        process for process in visit.ranks if process.state != "missing"
    ]  # said in a row of its own
    rows = _grouped(visit, present)
    if len(rows) <= _MANY_ROWS:
        return rows
    another = "several targets (see the graph)" if visit.graph.nodes else "several targets"
    return _grouped(visit, [replace(p, waiting_for=p.waiting_for and another) for p in present])


def _grouped(visit: attach.AttachDocument, processes: Iterable[attach.Process]) -> list[Row]:
    culprit = set(visit.verdict.culprits)
    groups: dict[tuple[str, str, str, str, bool], list[attach.Process]] = {}
    for process in processes:
        is_culprit = process.role == "rank" and process.rank in culprit
        key = (process.role, process.state, process.where, process.waiting_for, is_culprit)
        groups.setdefault(key, []).append(process)
    rows = []
    for key in sorted(groups, key=lambda key: (not key[4], key[0] != "rank")):
        (role, state, frame, waiting_for, is_culprit), members = key, groups[key]
        name, wait = _name_of(role, members), _PLAINLY.get(waiting_for, waiting_for)
        pid = members[0].pid if len(members) == 1 else None
        rows.append(Row(name, pid, state, frame, wait, is_culprit, _hosts(members)))
    return rows


def _name_of(role: str, members: list[attach.Process]) -> str:
    ranks = [process.rank for process in members if process.rank is not None]
    if role == "rank":
        return ranks_named(ranks) if ranks else formatting.count(len(members), "rank")
    name = role or "process"
    owner = f" of {ranks_named(ranks)}" if ranks else ""
    return f"{name}{owner}" if len(members) == 1 else f"{len(members)} x {name}{owner}"


def _hosts(members: list[attach.Process]) -> str:
    names = sorted({process.host for process in members if process.host})
    return ", ".join(names) if len(names) <= _NAMED_HOSTS else f"{len(names)} hosts"


def is_command(line: str) -> bool:
    """Return whether a line of how to confirm is to be copied, not read."""
    return not line.endswith((".", "?"))


def not_seen(visit: attach.AttachDocument) -> str:
    """Return where missing ranks were searched for, or that they existed."""
    if visit.verdict.state == "dead" and set(visit.job.ranks_missing) <= set(
        visit.verdict.culprits
    ):
        return "the process no longer exists"
    return "not on any inspected host" if visit.job.hosts else "not on this host"


def ranks_of(host: attach.Host) -> str:
    """Return the ranks of a host."""
    return ranks_named(host.ranks) if host.ranks else "no rank"


def evidence(visit: attach.AttachDocument) -> list[tuple[str, list[attach.Item]]]:
    """Return the evidence by source, sources in the order in which they are first named."""
    groups: dict[str, list[attach.Item]] = {source: [] for source in _SOURCES_FIRST}
    for item in visit.verdict.evidence:
        groups.setdefault(item.source or "seen", []).append(item)
    return [(source, items) for source, items in groups.items() if items]


def item_words(item: attach.Item) -> str:
    """Return a piece of evidence with its rank, unless its text names it already."""
    if item.rank is None or f"rank {item.rank}" in item.text.lower():
        return item.text
    return f"rank {item.rank}: {item.text}"


def stacks(visit: attach.AttachDocument) -> list[attach.StackGroup]:
    """Return the stacks, those of the culprits first."""
    culprit = set(visit.verdict.culprits)
    return sorted(visit.stacks, key=lambda stack: not culprit.intersection(stack.ranks))


def short_frame(frame: str) -> str:
    """Return a frame whose file, if it is an installed package's, begins at the package."""
    return _INSTALLED.sub("", frame)


def cost(visit: attach.AttachDocument) -> str:
    """Return how long the inspection took, and what it cost the job."""
    if visit.cost.seconds is None:
        return ""
    took = f"Inspection took {formatting.seconds(visit.cost.seconds)}"
    if visit.cost.max_pause_ms is None:
        return f"{took}."
    if visit.cost.max_pause_ms <= 0:
        return f"{took}; no rank was paused."
    pause_ms = max(0.1, visit.cost.max_pause_ms)
    pause = f"{pause_ms:.1f} ms" if pause_ms < 10 else f"{pause_ms:.0f} ms"
    return f"{took}; no rank was paused for longer than {pause}."


def healthy(visit: attach.AttachDocument) -> bool:
    """Return whether there is nothing to fix."""
    return state(visit) in {"healthy", "slow"}
