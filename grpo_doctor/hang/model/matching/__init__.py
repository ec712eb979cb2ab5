"""Which rank did not do what the others did, from their recordings alone."""

from __future__ import annotations

from grpo_doctor.hang.model.matching.judge import judge
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor.hang.model.matching.model import (
    Backlog,
    Camp,
    Cycle,
    Group,
    Matching,
    Pair,
    Rhythm,
    Seat,
    Shift,
    Signature,
    Standing,
    Wait,
)
from grpo_doctor.hang.model.matching.ruling import Blame, Grounds, Reason, Ruling

__all__ = [
    "Backlog",
    "Blame",
    "Camp",
    "Cycle",
    "Grounds",
    "Group",
    "Matching",
    "Pair",
    "Reason",
    "Rhythm",
    "Ruling",
    "Seat",
    "Shift",
    "Signature",
    "Standing",
    "Wait",
    "judge",
    "match",
]
