"""The document that `attach --json` prints, and the only input of its renderers.

`SCHEMA` changes when a member changes its meaning or goes; new members do not change it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from grpo_doctor_reports.schema.part import AnyDocument, Name, Part, read

SCHEMA = 1

Sentence = Annotated[str, Meta(extra={"limit": 600})]
Frame = Annotated[str, Meta(extra={"limit": 300})]
EdgeEnd = Annotated[str, Meta(extra={"limit": 20_000})]


class Item(Part, kw_only=False, frozen=True):
    """One piece of evidence: where it comes from (proc, stack, flight recorder, fd, cgroup, kernel,
    log, span ...), of which rank, in words."""

    source: Name = ""
    rank: int | None = None
    text: Sentence = ""


class Fix(Part, kw_only=False, frozen=True):
    """What to do. The text to paste is in this framework's own syntax, where it has one."""

    text: Sentence = ""
    knob: Name | None = None
    spelling: Sentence | None = None


class Verdict(Part, rename={"cause": "class"}, frozen=True):
    """What is wrong. `state`: healthy, slow, stuck or dead; `class` is empty for a healthy job;
    `certainty`: proven, likely or possible; `confidence`: the share of recorded verdicts with that
    word that were right, 0 to 1. Without a named cause: empty, and 0."""

    state: Name = ""
    cause: Name = ""
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    confidence: float = 0.0
    certainty: Name = ""
    phase: Name | None = None
    summary: Sentence = ""
    evidence: tuple[Item, ...] = ()
    confirm: tuple[Sentence, ...] = ()
    fixes: tuple[Fix, ...] = ()
    can_go_on: Sentence = ""


class Process(Part, kw_only=False, frozen=True):
    """A rank or another process of the job. `waiting_for` is in words, empty for none.

    `state`: running, waiting, stopped, frozen, blocked, dead, missing or unknown.
    """

    rank: int | None = None
    pid: int | None = None
    role: Name = ""
    state: Name = ""
    where: Frame = ""
    waiting_for: Frame = ""
    host: Name = ""  # of several


class Host(Part, kw_only=False, frozen=True):
    """A host that was looked at, if there were several, and the ranks on it."""

    name: Name = ""
    ranks: tuple[int, ...] = ()


class Point(Part, kw_only=False, frozen=True):
    """A point of the wait-for graph: `rank:3`, `pid:4711`, or a thing (`file:/data/lock`)."""

    id: Name = ""
    label: Name = ""
    role: Name = ""
    guilty: bool = False


class Edge(Part, kw_only=False, frozen=True):
    """`source` waits for `target`. `kind`: collective, p2p, store, pipe, socket ...

    An end is the id of a point, or several ranks in one: each of `rank:0-3,7` waits for each of
    `rank:4-6`, none for itself.
    """

    source: EdgeEnd = ""
    target: EdgeEnd = ""
    kind: Name = ""
    label: Name = ""


class WaitGraph(Part, frozen=True):
    """Who waits for whom; `cycle` is the ids of a ring, in order of waiting."""

    nodes: tuple[Point, ...] = ()
    edges: tuple[Edge, ...] = ()
    cycle: tuple[Name, ...] = ()


class StackGroup(Part, kw_only=False, frozen=True):
    """Processes whose main threads stand at the same place; frames innermost first."""

    ranks: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    title: Name = ""
    frames: tuple[Frame, ...] = ()


class Problem(Part, kw_only=False, frozen=True):
    """What could not be seen, and what would make it visible."""

    what: Sentence = ""
    remedy: Sentence = ""


class Job(Part, frozen=True):
    """The job that was looked at."""

    host: Name = ""
    hosts: tuple[Host, ...] = ()
    world_size: int | None = None
    ranks_seen: tuple[int, ...] = ()
    ranks_missing: tuple[int, ...] = ()
    framework: Name = ""


class Cost(Part, frozen=True):
    """What looking took: seconds in all, and the longest that a rank was stopped."""

    seconds: float | None = None
    max_pause_ms: float | None = None


class AttachDocument(Part, frozen=True):
    """The whole document."""

    schema: int
    job: Job = field(default_factory=Job)
    verdict: Verdict = field(default_factory=Verdict)
    ranks: tuple[Process, ...] = ()
    cost: Cost = field(default_factory=Cost)
    taken_unix_ns: int = 0
    graph: WaitGraph = field(default_factory=WaitGraph)
    stacks: tuple[StackGroup, ...] = ()
    problems: tuple[Problem, ...] = ()


def read_verdict(document: AnyDocument) -> AttachDocument:
    """The document as typed values; every string in it is cleaned."""
    return read(document, AttachDocument, SCHEMA, "grpo-doctor attach --json")
