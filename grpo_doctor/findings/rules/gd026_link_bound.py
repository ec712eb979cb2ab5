"""The link between GPU and host limits the step."""

from __future__ import annotations

import numpy as np

from grpo_doctor.analysis.gpu import COUNTER
from grpo_doctor.findings import signals
from grpo_doctor.findings.rule import Answer, Evidence, Finding, NotApplicable, Passed
from grpo_doctor.findings.shared import percent, severity_of
from grpo_doctor.findings.span_counts import gpu_means
from grpo_doctor.findings.view import RunView, timed_rule

RULE = timed_rule(
    __name__,
    __doc__,
    "system",
    signals.any_of(
        f"`gpu.pcie_rx` (record with `grpo-doctor run` on the GPU's machine), or `{COUNTER}`",
        signals.sampled("gpu.pcie_rx", ""),
        signals.sampled(COUNTER, ""),
    ),
    uses=("gpu.pcie_tx",),
)
_PINNED = "deepspeed.pin_memory"
GB = 1e9
# Pageable copies reach 3-8 GB/s, PCIe 4 x16 from pinned memory 22-26: below 6 it is not the link at
# its best, and at 20 nothing is wrong with it.
SLOW_BYTES_PER_S, GOOD_BYTES_PER_S = 6 * GB, 20 * GB
# Half of a PCIe 4 x16 link in the mean over a whole phase: what computes there waits for it.
BUSY_BYTES_PER_S, LINK_BYTES_PER_S = 12 * GB, 25 * GB
MIN_SHARE = 0.05
_MOVING = ("train", "logprob", "optimizer", "sync", "offload")


def check(view: RunView) -> Answer:
    """Divide bytes by seconds, then look at the link itself."""
    if not view.has_gpu:
        return NotApplicable("no GPU was sampled, so nothing crosses a link")
    rate, share = _offload_rate(view), view.share("offload")
    if rate is not None and rate < SLOW_BYTES_PER_S and share >= MIN_SHARE:
        return _slow(view, rate)
    phase, traffic = _busiest(view)
    if phase is not None and traffic >= BUSY_BYTES_PER_S:
        return _busy(view, phase, traffic)
    if rate is None and phase is None:
        return Passed("no transfer was seen")
    return Passed(
        f"offload moves {rate / GB:.1f} GB/s" if rate is not None
        else f"at most {traffic / GB:.1f} GB/s cross the link, in {phase}"
    )  # fmt: skip


def _offload_rate(view: RunView) -> float | None:
    """Return bytes per second of a rank in `offload`: everything goes out and comes back."""
    moved = view.counter_sum(COUNTER)
    steps, ranks = view.analysis.used_seconds.shape[:2]
    seconds = view.seconds("offload") * steps * ranks
    return 2 * moved / seconds if moved and seconds else None


def _busiest(view: RunView) -> tuple[str | None, float]:
    """Return the phase with the most traffic on any rank's GPU, and its mean bytes per second."""
    phases = [phase for phase in _MOVING if view.share(phase) >= MIN_SHARE]
    means = [m for name in ("gpu.pcie_rx", "gpu.pcie_tx") for m in gpu_means(view, name, *phases)]
    traffic, phase = max((m for m in means if np.isfinite(m[0])), default=(0.0, None))
    return phase, traffic


def _slow(view: RunView, rate: float) -> Finding:
    cost = view.share("offload") * (1 - rate / GOOD_BYTES_PER_S)
    source = f"counter {COUNTER}, both ways, and offload spans"
    text = (
        "check the GPU's link with nvidia-smi -q (width and generation, current and maximum); "
        "keep offloaded data in pinned host memory"
    )
    risk = "Pinned memory can't be swapped: it must be available."
    reason = "the possible speed of this machine's link was not measured"
    pinned = view.setting(_PINNED, True, reason, risk=risk)
    return Finding(
                confidence=0.7,
        cost=cost,
        phases=("offload",),
        evidence=(
            Evidence("offload moves", round(rate / GB, 2), "GB/s", source),
            *view.phase_evidence("offload"),
        ),
        cause=f"Offloaded data moves at {rate / GB:.1f} GB/s, a quarter or less of a PCIe 4 x16 "
              f"link; that takes {percent(view.share('offload'))} of the step.",
        fixes=(
            *([pinned] if pinned.pasted else []),
            view.advice(text, reason, risk=risk),
        ),
        headline="Offloading crosses the link to the host slowly",
    )  # fmt: skip


def _busy(view: RunView, phase: str, traffic: float) -> Finding:
    cost = view.share(phase) * min(1.0, traffic / LINK_BYTES_PER_S)
    text = "keep on the GPU what fits: optimizer state or parameters (DeepSpeed without offload)"
    reason = "the remaining traffic was not measured"
    return Finding(
        severity=severity_of(cost, proven=False),
        confidence=0.7,
        cost=cost,
        phases=(phase,),
        evidence=(
            Evidence(f"traffic in {phase}", round(traffic / GB, 2), "GB/s", "gpu.pcie_rx, pcie_tx"),
            *view.phase_evidence(phase),
        ),
        cause=f"In {phase} {traffic / GB:.1f} GB/s cross the link to the host on average; a PCIe "
        f"4 x16 link moves some 25.",
        fixes=(view.advice(text, reason, risk="Needs GPU memory."),),
        headline=f"The link to the host is busy through {phase}",
    )
