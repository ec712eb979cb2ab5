"""The verdict on a job: the document that `attach --json` prints, and how it is encoded."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from grpo_doctor_reports.schema.attach import (
    SCHEMA,
    Cost,
    Edge,
    Fix,
    Item,
    Problem,
    StackGroup,
    Verdict,
    WaitGraph,
)
from grpo_doctor_reports.schema.attach import AttachDocument as Diagnosis
from grpo_doctor_reports.schema.attach import Host as HostSeen
from grpo_doctor_reports.schema.attach import Job as JobSeen
from grpo_doctor_reports.schema.attach import Point as Node
from grpo_doctor_reports.schema.attach import Process as RankState

__all__ = [
    "SCHEMA",
    "Cost",
    "Diagnosis",
    "Edge",
    "Fix",
    "HostSeen",
    "Item",
    "JobSeen",
    "Node",
    "Problem",
    "RankState",
    "StackGroup",
    "State",
    "Verdict",
    "WaitGraph",
    "builtins",
    "encoded",
    "encoded_document",
]

State = Literal["healthy", "slow", "stuck", "dead"]


def encoded_document(diagnosis: Diagnosis) -> bytes:
    """The document of `attach --json`, indented."""
    return msgspec.json.format(encoded(diagnosis), indent=1) + b"\n"


def encoded(value: object) -> bytes:
    """`value` as JSON. Names that are no Unicode (`\\udcff` of undecodable bytes) get question
    marks in their place."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(builtins(value)))


def builtins(value: object) -> Any:
    """`value` as lists, dicts, numbers and text."""
    return msgspec.to_builtins(value)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list | tuple):
        return [_encodable(element) for element in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(element) for key, element in value.items()}
    return value
