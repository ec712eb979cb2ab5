"""The wait-for graph made small enough to read: who waits alike is one box."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from grpo_doctor_reports.hang import words
from grpo_doctor_reports.hang.words import Wait
from grpo_doctor_reports.schema.attach import AttachDocument, Point

DEEPEST: Final = 4  # rows of waiting above the culprits; what waits further behind is one box
WIDEST: Final = 4  # boxes side by side that are readable on 800 pixels
LONGEST_CYCLE: Final = 8
_RANK_ID: Final = re.compile(r"rank:(\d{1,9})\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Box:
    """One or more points that wait alike. `depth` is how many waits away from an end they are."""

    key: str
    label: str
    detail: str
    is_process: bool
    culprit: bool
    depth: int
    in_cycle: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """The box `source` waits for the box `target`."""

    source: str
    target: str
    label: str


@dataclass(frozen=True, slots=True)
class Graph:
    """Boxes and links; `cycle` has the keys of boxes in order of waiting."""

    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    cycle: tuple[str, ...]


def make_graph(visit: AttachDocument) -> Graph:
    """Return the visit's graph with at most WIDEST boxes at each of DEEPEST + 1 depths."""
    waits = words.waits_of(visit.graph)
    points = _points(visit, waits)
    ring = tuple(point for point in dict.fromkeys(visit.graph.cycle) if point in points)
    together = _merge_alike(points, waits, frozenset(ring))
    depth = _depths(waits, together, frozenset(ring))
    together = _merge_crowds(points, together, depth, frozenset(ring))
    ring, together = _shorten(ring, together)
    depth = _depths(waits, together, frozenset(ring))
    members: dict[str, list[Point]] = {}
    for id_, first in together.items():
        members.setdefault(first, []).append(points[id_])
    details, hosts = _details(visit), _hosts(visit)
    made = (
        _box(first, alike, details, depth[first], first in ring) for first, alike in members.items()
    )
    boxes = tuple(
        replace(box, label=f"{box.label}{_on_host(members[box.key], hosts)}") for box in made
    )
    return Graph(boxes, tuple(_links(waits, together)), ring)


def _points(visit: AttachDocument, waits: Sequence[Wait]) -> dict[str, Point]:
    points = {point.id: point for point in visit.graph.nodes[: words.MOST_POINTS]}
    for wait in waits:
        for id_ in (*wait.sources, *wait.targets):
            points.setdefault(id_, Point(id_, id_, "", guilty=False))
    return points


def _merge_alike(
    points: dict[str, Point], waits: Sequence[Wait], apart: frozenset[str]
) -> dict[str, str]:
    """Each point's representative: alike are those with the same role whose waits and whose
    waiters are alike too. Found by splitting what looks alike until nothing changes."""
    block: dict[str, object] = {
        id_: id_ if id_ in apart else (point.role, point.guilty) for id_, point in points.items()
    }
    while True:
        numbers = {look: at for at, look in enumerate(dict.fromkeys(block.values()))}
        number = {id_: numbers[look] for id_, look in block.items()}
        outs: dict[str, set[tuple[int, str]]] = {}
        ins: dict[str, set[tuple[int, str]]] = {}
        for wait in waits:
            waiting = {(number[id_], wait.kind) for id_ in wait.sources}
            waited_for = {(number[id_], wait.kind) for id_ in wait.targets}
            for id_ in wait.sources:
                outs.setdefault(id_, set()).update(waited_for)
            for id_ in wait.targets:
                ins.setdefault(id_, set()).update(waiting)
        block = {
            id_: (number[id_], frozenset(outs.get(id_, ())), frozenset(ins.get(id_, ())))
            for id_ in points
        }
        if len(set(block.values())) == len(numbers):
            first: dict[object, str] = {}
            return {id_: first.setdefault(look, id_) for id_, look in block.items()}


def _depths(
    waits: Sequence[Wait], together: dict[str, str], ring: frozenset[str]
) -> dict[str, int]:
    """Longest chain of waits from each box to an end, at most DEEPEST; a cycle is an end."""
    depth = dict.fromkeys(together.values(), 0)
    links = {ends for wait in waits for ends in _between(wait, together) if ends[0] not in ring}
    for _ in range(DEEPEST):
        longer = dict(depth)
        for source, target in links:
            longer[source] = max(longer[source], min(DEEPEST, depth[target] + 1))
        if longer == depth:
            break
        depth = longer
    return depth


def _between(wait: Wait, together: dict[str, str]) -> set[tuple[str, str]]:
    """The boxes of which one waits for the other."""
    sources, targets = ({together[box] for box in ends} for ends in (wait.sources, wait.targets))
    return {(source, target) for source in sources for target in targets if source != target}


def _merge_crowds(
    points: dict[str, Point],
    together: dict[str, str],
    depth: dict[str, int],
    ring: frozenset[str],
) -> dict[str, str]:
    """Of more than WIDEST boxes at one depth the last ones become one; culprit ones come first."""
    levels: dict[int, list[str]] = {}
    for id_, level in depth.items():
        if id_ not in ring:
            levels.setdefault(level, []).append(id_)
    into: dict[str, str] = {}
    for level, boxes in levels.items():
        boxes.sort(key=lambda id_: not points[id_].guilty)
        keep = 0 if level == DEEPEST else WIDEST - 1
        if len(boxes) > keep + 1:
            into.update(dict.fromkeys(boxes[keep:], boxes[keep]))
    return {id_: into.get(first, first) for id_, first in together.items()}


def _shorten(
    ring: tuple[str, ...], together: dict[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Of a very long cycle the middle becomes one box."""
    if len(ring) <= LONGEST_CYCLE:
        return ring, together
    last = ring[LONGEST_CYCLE - 1]
    merged = dict.fromkeys(ring[LONGEST_CYCLE - 1 :], last)
    return ring[:LONGEST_CYCLE], {
        point: merged.get(first, first) for point, first in together.items()
    }


def _links(waits: Sequence[Wait], together: dict[str, str]) -> Iterable[Link]:
    labels: dict[tuple[str, str], set[str]] = {}
    kinds: dict[tuple[str, str], set[str]] = {}
    for wait in waits:
        for ends in _between(wait, together):
            labels.setdefault(ends, set()).add(wait.label)
            kinds.setdefault(ends, set()).add(wait.kind)
    for ends, texts in labels.items():
        common = texts if len(texts) == 1 and texts != {""} else kinds[ends]
        yield Link(*ends, label=", ".join(sorted(common)[:2]))


def _details(visit: AttachDocument) -> dict[str, str]:
    return {
        f"rank:{process.rank}": process.where
        for process in visit.ranks
        if process.rank is not None and process.role == "rank" and process.where
    }


def _hosts(visit: AttachDocument) -> dict[str, str]:
    """The host of each rank, where there are several."""
    return {f"rank:{rank}": host.name for host in visit.job.hosts for rank in host.ranks}


def _on_host(members: list[Point], hosts: dict[str, str]) -> str:
    """` on gpu-001`, if all of a box are on one host."""
    names = {hosts.get(point.id, "") for point in members}
    return f" on {names.pop()}" if len(names) == 1 and "" not in names else ""


def _box(
    key: str, members: list[Point], details: dict[str, str], depth: int, in_cycle: bool
) -> Box:
    places = {details.get(point.id, "") for point in members}
    return Box(
        key=key,
        label=_label(members),
        detail=places.pop() if len(places) == 1 else "",
        is_process=all(point.id.startswith(("rank:", "pid:")) for point in members),
        culprit=any(point.guilty for point in members),
        depth=depth,
        in_cycle=in_cycle,
    )


def _label(members: list[Point]) -> str:
    matches = [_RANK_ID.match(point.id) for point in members]
    ranks = [int(match[1]) for match in matches if match]
    if len(members) == 1:
        return members[0].label or members[0].id
    if len(ranks) == len(members):
        return words.ranks_named(ranks)
    unranked = len(members) - len(ranks)
    if ranks:
        return f"{words.ranks_named(ranks)} and {unranked} more"
    return f"{members[0].label or members[0].id} and {unranked - 1} more"
