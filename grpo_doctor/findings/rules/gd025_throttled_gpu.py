"""A GPU is throttled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from grpo_doctor.analysis.sampled import held, mean_over
from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, Fix, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.view import RunView, rule
from grpo_doctor.trace.intervals import Intervals, intersect
from grpo_doctor.trace.model import Gpu

RULE = rule(
    "system",
    signals.STEPS,
    signals.sampled("gpu.throttle", "record with `grpo-doctor run` on the GPU's machine"),
    signals.sampled("gpu.sm_clock", "record with `grpo-doctor run` on the GPU's machine"),
    uses=("gpu.power", "gpu.util"),
)
# nvmlClocksEventReasons: slowdowns by hardware (0x8), software thermal (0x20), hardware thermal
# (0x40) and the power brake (0x80); the power limit alone is 0x4.
HOT = 0x8 | 0x20 | 0x40 | 0x80
POWER_LIMIT = 0x4
# A GPU that hits its thermal limit for a twentieth of its busy time is not cooled as it should be.
MIN_HOT_TIME = 0.05
# The clocks of GPUs of one kind under one load differ by 5%; less is not a slowdown to speak of.
MIN_HOT_LOSS = 0.05
# Dense kernels at the power limit run 10-15% below the top clock on any H100 or A100.
MIN_LIMITED_TIME, MIN_LIMITED_LOSS = 0.50, 0.20
BUSY_UTIL_PCT = 50.0
_UNKNOWN = "how much of this run depends on the clock was not measured"


@dataclass(frozen=True, slots=True)
class _Slowed:
    gpu: Gpu
    hot: bool
    time: float
    clock: float
    usual: float

    @property
    def loss(self) -> float:
        return max(0.0, 1 - self.clock / self.usual) if self.usual else 0.0

    @property
    def counts(self) -> bool:
        if self.hot:
            return self.time >= MIN_HOT_TIME and self.loss >= MIN_HOT_LOSS
        return self.time >= MIN_LIMITED_TIME and self.loss >= MIN_LIMITED_LOSS

    @property
    def cost(self) -> float:
        return self.time * self.loss


def check(view: RunView) -> Answer:
    """Read the driver's reasons while the GPUs were busy."""
    slowed = [s for mask in (HOT, POWER_LIMIT) for s in _slowed(view, mask)]
    throttled = sorted((s for s in slowed if s.counts), key=lambda s: (-s.hot, -s.cost, s.gpu.uuid))
    if not throttled:
        top = max((s.time for s in slowed if s.hot), default=0.0)
        return Passed(f"no GPU is throttled by heat for more than {percent(top, 1)} of its time")
    worst = throttled[0]
    ranks = {view.gpu_of_rank.get(rank): rank for rank in view.analysis.ranks}
    on = tuple(
        sorted(ranks[s.gpu.uuid] for s in throttled if s.gpu.uuid in ranks and s.hot == worst.hot)
    )
    why = "heat or its power supply" if worst.hot else "its power limit"
    return Finding(
        severity="low"
        if not worst.hot
        else "high"
        if severity_of(worst.cost) == "high"
        else "medium",
        confidence=0.9 if worst.hot else 0.6,
        cost=worst.cost,
        ranks=on,
        evidence=_evidence(view, worst),
        cause=f"GPU {worst.gpu.index} on {worst.gpu.host} is throttled by {why} for "
        f"{percent(worst.time)} of its busy time, at {worst.clock:.0f} instead of "
        f"{worst.usual:.0f} MHz.",
        fixes=(_fix(view, worst),),
        headline=f"GPU {worst.gpu.index} on {worst.gpu.host} is throttled by {why}",
    )


def _busy(view: RunView, uuid: str) -> Intervals:
    """When a GPU worked within the used steps; all of them where that was not sampled."""
    for series in view.series("gpu.util"):
        if series.gpu == uuid:
            stretches, values = held(series)
            busy = stretches.select(values >= BUSY_UTIL_PCT)
            return intersect(view.analysis.used_windows, busy)
    return view.analysis.used_windows


def _slowed(view: RunView, mask: int) -> list[_Slowed]:
    clocks = {s.gpu: s for s in view.series("gpu.sm_clock")}
    gpus = {gpu.uuid: gpu for gpu in view.trace.gpus if gpu.visible}
    usual = _usual(view)
    slowed = []
    for series in view.series("gpu.throttle"):
        gpu, clock = gpus.get(series.gpu or ""), clocks.get(series.gpu)
        if gpu is None or clock is None:
            continue
        busy = _busy(view, gpu.uuid)
        stretches, values = held(series)
        held_down = intersect(busy, stretches.select(_has(values, mask)))
        mean = mean_over(clock, held_down)
        if busy.total_ns and mean is not None:
            time = held_down.total_ns / busy.total_ns
            slowed.append(_Slowed(gpu, mask == HOT, time, mean, usual.get(gpu.name, 0.0)))
    return slowed


def _has(values: NDArray[np.float64], mask: int) -> NDArray[np.bool_]:
    bits = np.clip(np.nan_to_num(values), 0, 2.0**62).astype(np.int64)
    holds: NDArray[np.bool_] = (bits & mask) != 0
    return holds


def _usual(view: RunView) -> dict[str, float]:
    """By kind of GPU, the clock that the fastest of them keep: their 95th percentile."""
    names = {gpu.uuid: gpu.name for gpu in view.trace.gpus}
    clocks_of: dict[str, list[float]] = {}
    for series in view.series("gpu.sm_clock"):
        name = names.get(series.gpu or "")
        if name is not None:
            clocks_of.setdefault(name, []).append(float(np.nanpercentile(series.values, 95)))
    return {name: max(clocks) for name, clocks in clocks_of.items()}


def _evidence(view: RunView, worst: _Slowed) -> tuple[Evidence, ...]:
    uuid = worst.gpu.uuid
    power = next((s for s in view.series("gpu.power") if s.gpu == uuid), None)
    watts = None if power is None else mean_over(power, _busy(view, uuid))
    label = f"GPU {worst.gpu.index}"
    reason = "gpu.throttle while gpu.util is 50% or more"
    return (
        Evidence(f"{label} throttled", round(100 * worst.time, 1), "% of its busy time", reason),
        Evidence("its clock meanwhile", round(worst.clock), "MHz", "gpu.sm_clock"),
        Evidence(
            "clock of the fastest GPU of this model", round(worst.usual), "MHz", "gpu.sm_clock"
        ),
        Evidence(f"{label} power", None if watts is None else round(watts), "W", "gpu.power"),
    )


def _fix(view: RunView, worst: _Slowed) -> Fix:
    look = f"nvidia-smi -i {worst.gpu.uuid} -q -d PERFORMANCE,TEMPERATURE,POWER"
    text = (
        f"on {worst.gpu.host}: {look}, then check its cooling and power supply"
        if worst.hot
        else f"on {worst.gpu.host}: {look}; raise the power limit (nvidia-smi -pl) if it was "
        f"lowered"
    )
    return view.advice(text, _UNKNOWN)
