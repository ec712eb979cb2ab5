"""Verdicts of a visit that was ended before its second look: what two looks tell is left open."""

from __future__ import annotations

import msgspec

from grpo_doctor.hang.causes import Candidate
from grpo_doctor.hang.model.scene import Scene
from grpo_doctor.hang.verdict import Verdict

SUREST = 0.5
_OPEN = "One look was taken, which does not tell whether the job gets on."


def as_of_one_look(scene: Scene, verdict: Verdict, root: Candidate | None) -> Verdict:
    """`verdict`, unless it rests on one look and that found nobody who is stopped or has ended."""
    if len(scene.evidence.looks) > 1 or (root is not None and root.certain):
        return verdict
    named = verdict.state in ("stuck", "dead") and bool(verdict.cause)
    return msgspec.structs.replace(
        verdict,
        state="slow",
        confidence=min(verdict.confidence, SUREST),
        summary=f"{verdict.summary.rstrip('.')}, as one look shows it." if named else _OPEN,
    )
