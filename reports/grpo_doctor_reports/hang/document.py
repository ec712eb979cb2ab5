"""The document of `attach --json`, read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from grpo_doctor_reports.errors import DocumentError
from grpo_doctor_reports.hang.model import (
    Fix,
    Host,
    Item,
    Point,
    Problem,
    Process,
    StackGroup,
    Verdict,
    Visit,
    Wait,
)
from grpo_doctor_reports.reader import Node

SCHEMA: Final = 1
_SENTENCE: Final = 600
_FRAME: Final = 300
_MOST: Final = 4_096  # of anything: a job of 4,096 ranks has one process of each here at most
_MOST_ENDS: Final = 262_144  # of waits
_LONGEST_END: Final = 20_000
_RANKS: Final = re.compile(r"rank:(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)", re.ASCII)


def read_visit(document: Mapping[str, Any]) -> Visit:
    """Return the document as typed values; every string in it is cleaned.

    Raises:
        DocumentError: it has another schema, or a part of the wrong type.
    """
    root = Node(document)
    if root.number("schema") != SCHEMA:
        raise DocumentError(
            f"This verdict has schema {root.number('schema')}; this version draws schema {SCHEMA}. "
            "Use the grpo-doctor that wrote it, or a newer one."
        )
    job, cost, graph = root.node("job"), root.node("cost"), root.node("graph")
    return Visit(
        host=job.text("host"),
        framework=job.text("framework"),
        world_size=_optional(job, "world_size"),
        ranks_seen=tuple(job.integers("ranks_seen")[:_MOST]),
        ranks_missing=tuple(job.integers("ranks_missing")[:_MOST]),
        verdict=_verdict(root.node("verdict")),
        processes=tuple(map(_process, root.nodes("ranks")[:_MOST])),
        points=tuple(map(_point, graph.nodes("nodes")[:_MOST])),
        waits=tuple(_waits(graph)),
        cycle=tuple(graph.texts("cycle")[:_MOST]),
        stacks=tuple(map(_stacks, root.nodes("stacks")[:_MOST])),
        undo=tuple(one.text("text", _SENTENCE) for one in root.nodes("undo")[:_MOST]),
        problems=tuple(map(_problem, root.nodes("problems")[:_MOST])),
        seconds=cost.number("seconds"),
        max_pause_ms=cost.number("max_pause_ms"),
        taken_unix_ns=root.integer("taken_unix_ns"),
        hosts=tuple(map(_host, job.nodes("hosts")[:_MOST])),
    )


def _optional(node: Node, key: str) -> int | None:
    value = node.number(key)
    return None if value is None else int(value)


def _verdict(node: Node) -> Verdict:
    return Verdict(
        state=node.text("state"),
        cause=node.text("class"),
        culprits=tuple(node.integers("culprits")[:_MOST]),
        victims=tuple(node.integers("victims")[:_MOST]),
        confidence=node.number("confidence"),
        phase=node.text("phase"),
        summary=node.text("summary", _SENTENCE),
        evidence=tuple(
            Item(one.text("source"), _optional(one, "rank"), one.text("text", _SENTENCE))
            for one in node.nodes("evidence")[:_MOST]
        ),
        confirm=tuple(node.texts("confirm", _SENTENCE)[:_MOST]),
        fixes=tuple(
            Fix(one.text("text", _SENTENCE), one.text("knob"), one.text("spelling", _SENTENCE))
            for one in node.nodes("fixes")[:_MOST]
        ),
        can_go_on=node.text("can_go_on", _SENTENCE),
    )


def _process(node: Node) -> Process:
    return Process(
        rank=_optional(node, "rank"),
        pid=_optional(node, "pid"),
        role=node.text("role"),
        state=node.text("state"),
        where=node.text("where", _FRAME),
        waiting_for=node.text("waiting_for", _FRAME),
        host=node.text("host"),
    )


def _host(node: Node) -> Host:
    return Host(node.text("name"), tuple(node.integers("ranks")[:_MOST]))


def _point(node: Node) -> Point:
    return Point(node.text("id"), node.text("label"), node.text("role"), node.flag("guilty"))


def _waits(graph: Node) -> Iterator[Wait]:
    """Few characters can stand for many ranks, so it is these that are counted."""
    left = _MOST_ENDS
    for one in graph.nodes("edges"):
        sources, targets = _ends(one, "source"), _ends(one, "target")
        left -= len(sources) + len(targets)
        if left < 0:
            return
        yield Wait(sources, targets, one.text("kind"), one.text("label"))


def _ends(node: Node, key: str) -> tuple[str, ...]:
    """The points of an end: `rank:0-2,7` is four of them."""
    ranks = _RANKS.fullmatch(node.text(key, _LONGEST_END))
    if not ranks:
        return (node.text(key),)
    found: list[str] = []
    for run in ranks[1].split(","):
        first, _, last = run.partition("-")
        beyond = min(int(last or first), int(first) + _MOST) + 1
        found += [f"rank:{rank}" for rank in range(int(first), beyond)]
    return tuple(found[:_MOST])


def _stacks(node: Node) -> StackGroup:
    return StackGroup(
        ranks=tuple(node.integers("ranks")[:_MOST]),
        pids=tuple(node.integers("pids")[:_MOST]),
        title=node.text("title"),
        frames=tuple(node.texts("frames", _FRAME)[:_MOST]),
    )


def _problem(node: Node) -> Problem:
    return Problem(node.text("what", _SENTENCE), node.text("remedy", _SENTENCE))
