"""What several rules share: thresholds, words, and which rule defers to which.

How severe a share of the step time is, and how it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from grpo_doctor_reports import severity

# vLLM hands its cache out in blocks and lets a request wait when the next block is not there: from
# nine tenths on the cache, and not the number of slots, holds requests back.
CACHE_FULL_PCT = 90.0
# Ten samples of GPU memory a second miss short peaks: above it a gather's next bucket fails, or
# makes the allocator give memory back and ask again.
SYNC_FULL = 0.90
# Over 10,000 steps, a long run, that is five minutes: less than a profile takes. Tiny models score
# for 3 to 20 ms of steps of 50 to 300.
MIN_SCORING_S = 0.03
OUT_OF_MEMORY = "out of memory"
# How a reader sees what Python does, of a run whose processes may be gone by then.
STACKS = "`grpo-doctor attach` shows every rank's stack while the job runs"
PROFILE = "run `py-spy record --subprocesses -d 30 -o profile.svg --pid PID`"
# Rules of which a signal is a counter that of all trainers only the bundled one writes;
# elsewhere `grpo_doctor_probes.counter` has to be fed with it.
BUNDLED_ONLY = ("GD071",)
# Of the family `learning`, and of gradients and losses alone.
OF_ANY_TRAINING = ("GD062", "GD064")
# The engine asks these first; a rule reads their findings by `RunView.found`. Each names the same
# cost with the same fix, or a better one. No rule may defer back.
DEFERS_TO: dict[str, tuple[str, ...]] = {
    "GD002": ("GD030",),  # waits in bursts
    "GD024": ("GD023",),  # pauses that wait for a CPU
    "GD032": ("GD002",),  # tokenizing as a part of slow loading
    "GD033": ("GD034", "GD024", "GD036"),  # why scoring is slow
    "GD035": ("GD004",),  # a rank that is slow at what all do
    "GD040": ("GD074",),  # memory that ended the run
    "GD050": ("GD052",),  # a collapsed policy writes the same completion again and again
}


Severity: TypeAlias = severity.Severity

# Shares of the step time. A fifth of a run is worth stopping it for; a twelfth is worth a flag at
# the next launch; less is worth knowing.
HIGH_SHARE = 0.20
MEDIUM_SHARE = 0.08


def severity_of(share: float, *, proven: bool = True) -> Severity:
    """How severe a cost is, given as a share of the step time; at most medium if it is a bound."""
    if share >= HIGH_SHARE and proven:
        return "high"
    return "medium" if share >= MEDIUM_SHARE else "low"


def graded(value: float, grades: Mapping[Severity, float]) -> Severity | None:
    """Return the highest severity whose threshold the value reaches; None below all."""
    return next((severity for severity, threshold in grades.items() if value >= threshold), None)


def percent(share: float, digits: int = 0) -> str:
    """Return a share as `12%`."""
    return f"{100 * share:.{digits}f}%"
