"""Which rank did not do what the others did, from their recordings alone."""

from __future__ import annotations

from grpo_doctor.hang.model.matching.match import match
from grpo_doctor.hang.model.matching.model import (
    Backlog,
    Blame,
    Cycle,
    Grounds,
    Group,
    GroupStatus,
    Matching,
    Pace,
    Reason,
    Shift,
    Side,
    Signature,
    Wait,
)

__all__ = [
    "Backlog",
    "Blame",
    "Cycle",
    "Grounds",
    "Group",
    "GroupStatus",
    "Matching",
    "Pace",
    "Reason",
    "Shift",
    "Side",
    "Signature",
    "Wait",
    "match",
]
