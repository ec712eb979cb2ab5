"""The verdict on a job, and the document that `attach --json` prints."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from grpo_doctor_reports.schema.attach import SCHEMA, Edge, Fix, Item, StackGroup, Undo
from grpo_doctor_reports.schema.attach import Host as HostSeen
from grpo_doctor_reports.schema.attach import Point as Node
from grpo_doctor_reports.schema.attach import Process as RankState

__all__ = [
    "SCHEMA",
    "Diagnosis",
    "Edge",
    "Fix",
    "HostSeen",
    "Item",
    "Node",
    "RankState",
    "StackGroup",
    "State",
    "Undo",
    "Verdict",
    "encoded",
    "encoded_document",
]

State = Literal["healthy", "slow", "stuck", "dead"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename={"cause": "class"}):
    """What is wrong with the job. `cause` is one of `catalogue.CLASSES`; "" for a healthy job.

    `confidence` in 0..1 is calibrated on the fault bench: of verdicts with 0.9, 9 in 10 are right.
    `can_go_on` says of a job that stands whether it can be saved; "" for any other.
    """

    state: State
    cause: str
    culprits: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    confidence: float
    phase: str | None = None
    summary: str
    evidence: tuple[Item, ...] = ()
    confirm: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    can_go_on: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """Everything that is said about one visit."""

    host: str
    framework: str
    world_size: int | None
    ranks_seen: tuple[int, ...]
    ranks_missing: tuple[int, ...]
    verdict: Verdict
    ranks: tuple[RankState, ...]
    seconds: float
    max_pause_ms: float
    taken_unix_ns: int = 0
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    cycle: tuple[str, ...] = ()  # node ids, in order of waiting
    stacks: tuple[StackGroup, ...] = ()
    undo: tuple[Undo, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()  # what could not be seen, and its remedy
    hosts: tuple[HostSeen, ...] = ()  # of more than one

    def as_json(self) -> dict[str, Any]:
        """The document of `attach --json`, schema 1."""
        return {
            "schema": SCHEMA,
            "job": {
                "host": self.host,
                "hosts": _builtins(self.hosts),
                "world_size": self.world_size,
                "ranks_seen": list(self.ranks_seen),
                "ranks_missing": list(self.ranks_missing),
                "framework": self.framework,
            },
            "verdict": _builtins(self.verdict),
            "ranks": _builtins(self.ranks),
            "cost": {"seconds": self.seconds, "max_pause_ms": self.max_pause_ms},
            "taken_unix_ns": self.taken_unix_ns,
            "graph": {
                "nodes": _builtins(self.nodes),
                "edges": _builtins(self.edges),
                "cycle": list(self.cycle),
            },
            "stacks": _builtins(self.stacks),
            "undo": _builtins(self.undo),
            "problems": [{"what": what, "remedy": remedy} for what, remedy in self.problems],
        }


def encoded_document(diagnosis: Diagnosis) -> bytes:
    """The document of `attach --json`, indented."""
    return msgspec.json.format(encoded(diagnosis.as_json()), indent=1) + b"\n"


def encoded(value: object) -> bytes:
    """`value` as JSON. Names that are no Unicode (`\\udcff` of undecodable bytes) get question
    marks in their place."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(_builtins(value)))


def _builtins(value: object) -> Any:
    return msgspec.to_builtins(value, enc_hook=_plain)


def _plain(value: Any) -> int:
    """Numbers of processes of several hosts have a type of their own."""
    if isinstance(value, int):
        return int(value)
    raise NotImplementedError(f"{type(value).__name__} is not of any document")


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list | tuple):
        return [_encodable(element) for element in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(element) for key, element in value.items()}
    return value
