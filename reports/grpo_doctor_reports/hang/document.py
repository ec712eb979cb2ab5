"""The document of `attach --json`, read and bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from grpo_doctor_reports import schema
from grpo_doctor_reports.hang.model import Visit, Wait
from grpo_doctor_reports.schema.attach import SCHEMA, AttachDocument, WaitGraph
from grpo_doctor_reports.text_safety import clean

_MOST: Final = 4_096  # of anything: a job of 4,096 ranks has one process of each here at most
_MOST_ENDS: Final = 262_144  # of waits
_RANKS: Final = re.compile(r"rank:(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)", re.ASCII)


def read_visit(document: schema.AnyDocument) -> Visit:
    """Return the document as typed values; every string in it is cleaned.

    Raises:
        DocumentError: it has another schema, or a part of the wrong type.
    """
    parts = schema.read(document, AttachDocument, SCHEMA, "grpo-doctor attach --json")
    job, graph = parts.job, parts.graph
    return Visit(
        host=job.host,
        framework=job.framework,
        world_size=job.world_size,
        ranks_seen=job.ranks_seen[:_MOST],
        ranks_missing=job.ranks_missing[:_MOST],
        verdict=parts.verdict,
        processes=parts.ranks[:_MOST],
        points=graph.nodes[:_MOST],
        waits=tuple(_waits(graph)),
        cycle=graph.cycle[:_MOST],
        stacks=parts.stacks[:_MOST],
        undo=tuple(undo.text for undo in parts.undo[:_MOST]),
        problems=parts.problems[:_MOST],
        seconds=parts.cost.seconds,
        max_pause_ms=parts.cost.max_pause_ms,
        taken_unix_ns=parts.taken_unix_ns,
        hosts=job.hosts[:_MOST],
    )


def _waits(graph: WaitGraph) -> Iterator[Wait]:
    """Few characters can stand for many ranks, so it is these that are counted."""
    room = _MOST_ENDS
    for edge in graph.edges:
        sources, targets = _ends(edge.source), _ends(edge.target)
        room -= len(sources) + len(targets)
        if room < 0:
            return
        yield Wait(sources, targets, edge.kind, edge.label)


def _ends(end: str) -> tuple[str, ...]:
    """The points of an end: `rank:0-2,7` is four of them."""
    ranks = _RANKS.fullmatch(end)
    if not ranks:
        return (clean(end),)
    points: list[str] = []
    for run in ranks[1].split(","):
        first, _, last = run.partition("-")
        beyond = min(int(last or first), int(first) + _MOST) + 1
        points += [f"rank:{rank}" for rank in range(int(first), beyond)]
    return tuple(points[:_MOST])
