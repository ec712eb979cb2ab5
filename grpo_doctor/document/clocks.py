"""How sure the common time axis is, for the document's `run.clock`."""

from __future__ import annotations

from grpo_doctor.document.numbers import number
from grpo_doctor.trace.model import Trace
from grpo_doctor_reports.schema.report import ClockEntry

_DIGITS = 3


def clock_entry(trace: Trace) -> ClockEntry:
    """The largest error of any rank's clock, and how the clocks were aligned."""
    ranks = [p for p in trace.processes if p.carries_steps]
    methods = list(dict.fromkeys(p.clock_method for p in ranks))
    errors = [p.clock_error_ns for p in ranks if p.clock_error_ns is not None]
    unknown = sorted(p.rank for p in ranks if p.clock_error_ns is None)
    worst_ms = max(errors) / 1e6 if errors and not unknown else None
    origin = trace.run.origin
    if origin and origin.durations_only:
        text = f"{origin.what} has durations and no clock"
    elif not ranks:
        text = "no rank recorded anything"
    elif unknown:
        numbers = ", ".join(map(str, unknown[:8])) + (" and others" if len(unknown) > 8 else "")
        text = (
            f"the clock of rank{'s' * (len(unknown) > 1)} {numbers} could not be aligned: "
            "who waits for whom is not said there"
        )
    elif worst_ms:
        text = f"aligned by {methods[-1]} to {worst_ms:.3g} ms: shorter waits are not said"
    else:
        text = "all ranks read the same clock"
    return ClockEntry(max_error_ms=number(worst_ms, _DIGITS), methods=methods, text=text)
