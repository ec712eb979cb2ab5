"""The verdict on a job: the document that `attach --json` prints, how it is encoded, and in three
words how certain it is.

`python -m tests.corpus worth` counts `WORTH` again: right cause and ranks, of verdicts on recorded
jobs as they were and with parts of the evidence removed.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

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
    "WORTH",
    "Certainty",
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
    "Worth",
    "at_most",
    "encoded",
    "encoded_document",
    "with_worth",
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
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list | tuple):
        return [_encodable(element) for element in value]
    if isinstance(value, dict):
        return {_encodable(key): _encodable(element) for key, element in value.items()}
    return value


Certainty = Literal["proven", "likely", "possible"]


class Worth(NamedTuple):
    """How many verdicts with a word were right, of how many."""

    right: int
    verdicts: int

    @property
    def share(self) -> float:
        """The share of right verdicts, 0 to 1."""
        return self.right / self.verdicts if self.verdicts else 0.0


WORTH: Final[dict[Certainty, Worth]] = {
    "proven": Worth(509, 509),
    "likely": Worth(670, 699),
    "possible": Worth(29, 58),
}


def at_most(verdict: Verdict, most: Certainty) -> Verdict:
    """Return the verdict, no more certain than `most`."""
    words: tuple[Certainty, ...] = tuple(WORTH)
    said = next((word for word in words if word == verdict.certainty), most)
    return with_worth(verdict, words[max(words.index(said), words.index(most))])


def with_worth(verdict: Verdict, certainty: str) -> Verdict:
    """Return the verdict with a word of certainty, and as a number the share that was right."""
    worth = next((WORTH[word] for word in WORTH if word == certainty), None)
    share = 0.0 if worth is None else round(worth.share, 3)
    return msgspec.structs.replace(verdict, certainty=certainty, confidence=share)
