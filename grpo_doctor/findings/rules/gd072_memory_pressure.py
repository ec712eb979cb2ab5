"""The host runs out of memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from grpo_doctor.analysis.sampled import max_over
from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed, scaled
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.signals import any_of, sampled
from grpo_doctor.findings.view import RunView, rule
from grpo_doctor.whatif.room import GIB

_RUN = "record with `grpo-doctor run`"
_PSI, _SWAP, _FAULTS = "host.psi_memory", "host.swap_used", "host.major_faults"
_AVAILABLE = "host.memory_available"
_WORKERS = "dataload.num_workers"
RULE = rule(
    "system",
    signals.STEPS,
    any_of(f"`{_PSI}` or `{_SWAP}`: {_RUN}", sampled(_PSI, _RUN), sampled(_SWAP, _RUN)),
    uses=(_AVAILABLE, _FAULTS),
)
# A host with room has none at all; a twentieth of the time stalled can be felt.
MIN_STALLED = 0.05
# The kernel moves some hundred megabytes of idle pages out on any busy host.
MIN_SWAPPED_GIB = 1.0
# Swapped pages that are not wanted back cost nothing; a hundred a second are a wait of some 10 ms
# per second on an SSD and of a second on a disk.
MIN_FAULTS = 100.0
_UNKNOWN = "which part of a step is stalled on memory is unknown"


@dataclass(frozen=True, slots=True)
class Pressure:
    """Of the worst host over the used steps; None where it was not sampled."""

    stalled: float | None
    swap_before: float | None
    swap_peak: float | None
    faults: float | None
    available: float | None

    @property
    def swapped(self) -> float:
        """GiB that went to swap during the run."""
        if self.swap_peak is None or self.swap_before is None:
            return 0.0
        return max(0.0, self.swap_peak - self.swap_before) / GIB


def check(view: RunView) -> Answer:
    """Judge stalls first, then swap that is read back."""
    pressure = _pressure(view)
    stalled = pressure.stalled or 0.0
    thrashes = pressure.swapped >= MIN_SWAPPED_GIB and (pressure.faults or 0.0) >= MIN_FAULTS
    if stalled < MIN_STALLED and not thrashes:
        return Passed(
            f"{percent(stalled, 1)} of the time stalled for memory, "
            f"{pressure.swapped:.2g} GiB more in swap"
        )
    cause = (
        f"Some process was stalled on memory in {percent(stalled)} of the time."
        if stalled >= MIN_STALLED
        else f"{pressure.swapped:.3g} GiB went to swap, {pressure.faults:.0f} pages a second "
        "came back."
    )
    return Finding(
        severity=severity_of(stalled) if stalled >= MIN_STALLED else "medium",
        confidence=0.8 if stalled >= MIN_STALLED else 0.6,
        cost=stalled,
        evidence=_evidence(pressure),
        cause=cause,
        fixes=_fixes(view),
    )


def _pressure(view: RunView) -> Pressure:
    inside = view.analysis.used_windows
    swaps = view.series(_SWAP)
    before = [float(s.values[np.isfinite(s.values)][0]) for s in swaps]
    room = [s.values[np.isfinite(s.values)].min() for s in view.series(_AVAILABLE)]
    peaks = [max_over(series, inside) for series in swaps]
    stalled = view.highest_mean(_PSI)
    return Pressure(
        stalled=stalled / 100 if stalled is not None else None,
        swap_before=min(before) if before else None,
        swap_peak=max((peak for peak in peaks if peak is not None), default=None),
        faults=view.highest_mean(_FAULTS),
        available=float(min(room)) if room else None,
    )


def _evidence(pressure: Pressure) -> tuple[Evidence, ...]:
    before, peak = (scaled(p, 1 / GIB) for p in (pressure.swap_before, pressure.swap_peak))
    return (
        Evidence("stalled for memory", scaled(pressure.stalled, 100), "%", f"{_PSI}, steps"),
        Evidence("swap at the beginning", None if peak is None else before, "GiB", _SWAP),
        Evidence("swap at its peak", peak, "GiB", _SWAP),
        Evidence("major page faults", pressure.faults, "1/s", f"{_FAULTS}, steps"),
        Evidence("lowest available memory", scaled(pressure.available, 1 / GIB), "GiB", _AVAILABLE),
    )


def _fixes(view: RunView) -> tuple[Fix, ...]:
    fixes = []
    workers = view.now(_WORKERS)
    if isinstance(workers, int) and workers > 1:
        risk = "Loading may become the bottleneck of the step."
        fixes.append(view.setting(_WORKERS, workers // 2, _UNKNOWN, risk=risk))
    for name in ("offload.optimizer", "offload.model"):
        if view.now(name) is True:
            risk = "Takes GPU memory instead."
            fixes.append(view.setting(name, False, _UNKNOWN, risk=risk))
    text = "find which process holds the memory: smem -tk, or ps -eo pid,rss,args --sort -rss"
    return tuple(fixes) or (view.advice(text, _UNKNOWN),)
