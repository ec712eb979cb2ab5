"""What it costs to send weights in many small parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.findings.rule import Evidence
from grpo_doctor.findings.spans_in import collectives_per_step, span_lengths, times_per_step
from grpo_doctor.findings.view import RunView

GATHER = "sync/gather"
# A gather's fixed part is what even the smallest of a run take; the 5th percentile is no outlier.
_SMALLEST = 5


@dataclass(frozen=True, slots=True)
class Gathers:
    """Per step: how many gathers, the seconds in them, and the part that grows with the number."""

    count: float
    seconds: float
    fixed_s: float
    source: str


def gathers(view: RunView) -> Gathers:
    """From `sync/gather` spans; without them the collectives within `sync` are counted, and of
    those no time is known."""
    found = span_lengths(view, GATHER)
    if not len(found):
        count = collectives_per_step(view, "sync")
        return Gathers(count, 0.0, 0.0, "collectives within sync")
    count = times_per_step(view, GATHER)
    fixed = count * float(np.percentile(found, _SMALLEST))
    return Gathers(count, view.span_seconds(GATHER), fixed, f"{GATHER} spans")


def evidence(view: RunView, found: Gathers) -> tuple[Evidence, ...]:
    """The numbers, and the phase's own."""
    fixed = "of that each gather's fixed part, by the smallest ones, per step"
    timed = (
        (
            Evidence("gathering, per step", found.seconds, "s", found.source),
            Evidence(fixed, found.fixed_s, "s", found.source),
        )
        if found.seconds
        else ()
    )
    return (
        Evidence("gathers per step", round(found.count, 1), "", found.source),
        *timed,
        *view.phase_evidence("sync"),
    )
