"""Whether a job that stands can be saved: the first thing to know before somebody ends it."""

from __future__ import annotations

import msgspec

from grpo_doctor.hang.catalogue import BY_NAME
from grpo_doctor.hang.verdict import Verdict


def with_outlook(verdict: Verdict, of_case: str = "") -> Verdict:
    """The verdict with what this case, else its class, says of the running job; only where nothing
    moves.
    """
    known = BY_NAME.get(verdict.cause)
    if known is None or verdict.state not in ("stuck", "dead"):
        return verdict
    return msgspec.structs.replace(verdict, can_go_on=of_case or known.can_go_on)
