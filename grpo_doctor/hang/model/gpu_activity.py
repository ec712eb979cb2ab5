"""What one GPU does, from two samples of its numbers. Pure.

A kernel of NCCL that waits for its peers keeps a GPU 100% busy and computes nothing, so what counts
is how much power it draws meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from grpo_doctor_probes.evidence import GpuLook

Doing = Literal["computes", "waits-in-kernel", "idle", "silent", "failed", "unknown"]

# Shares of the power limit. Waits that were reported: 100 of 700 W (NVIDIA-NeMo/Speech#9291), 118
# of 400 W (NVIDIA/nccl#2428, 30%). Of the samples of two clusters of A100s (InternLM/AcmeTrace,
# gpu_power_kalos and _seren) half are below 25% of 400 W, and a tenth is between 30% and 50%.
WAITING_POWER_SHARE = 0.33
COMPUTING_POWER_SHARE = 0.45
SMALL_CARD_W = 150.0  # a T4 drew 41 of its 70 W in a hang (huggingface/accelerate#233)
FLAT_POWER_SHARE = 0.05  # a kernel that polls draws the same at any time
BUSY_PCT = 90.0  # NVML counts the time in which any kernel ran
IDLE_PCT = 10.0
# A waiting kernel of NCCL is on one SM for each of its channels, of which there are at most 32 but
# on the newest: a quarter of an H100's 132. Decoding a few sequences draws no more power than that
# (173 of 700 W, SemiAnalysisAI/InferenceX#828), and is on most SMs.
FEW_SMS_PCT = 30.0
MANY_SMS_PCT = 50.0
# Over NVLink: a collective that still carries data waits for nobody. Not over PCIe, through which a
# waiting kernel may poll a flag in the host's memory.
CARRIES_BYTES_PER_S = 100e6
LOW_CLOCK_SHARE = 0.5  # of the highest SM clock, while a kernel runs: then it is throttled
_SPINNING = "R"  # who is on a core has not been caught in the driver


def trouble(looks: Sequence[GpuLook], count: int) -> str:
    """Why it counts as failed; empty where it does not."""
    last = looks[-1]
    if last.problem:
        return f"cannot be opened: {last.problem}"
    if 0 < len(looks) < count and not any(map(is_silent, looks)):
        return "was there in the first sample and is gone now"
    if errors := _growth(look.ecc_uncorrected for look in looks):
        return f"had {errors} new uncorrectable memory errors between the samples"
    return ""


def _growth(counts: Iterable[int | None]) -> int:
    """Return by how much a counter grew from the first sample that has it to the last."""
    numbers = [count for count in counts if count is not None]
    return max(numbers[-1] - numbers[0], 0) if numbers else 0


def is_silent(look: GpuLook) -> bool:
    """Whether the driver did not answer, by a call that was seen to sleep in it."""
    return look.silent_s > 0 and look.silent_state != _SPINNING


def doing_of(looks: Sequence[GpuLook]) -> Doing:
    """Return what a GPU without trouble does; a single sample leaves it open."""
    shares = [look.utilization_pct for look in looks]
    measured = [share for share in shares if share is not None]
    if len(measured) < 2 or len(measured) < len(shares):
        return "unknown"
    if max(measured) <= IDLE_PCT:
        return "idle"
    power = _power_shares(looks)
    if not power:
        return "unknown"
    if min(power) >= COMPUTING_POWER_SHARE and min(measured) > IDLE_PCT:
        return "computes"
    if min(measured) < BUSY_PCT or _is_throttled(looks) or _carries_data(looks):
        return "unknown"
    return _busy(looks, power)


def _busy(looks: Sequence[GpuLook], power: Sequence[float]) -> Doing:
    """A GPU on which a kernel runs all the time, at less power than for work."""
    active = [look.sm_active_pct for look in looks if look.sm_active_pct is not None]
    few = bool(active) and max(active) <= FEW_SMS_PCT
    if active and min(active) >= MANY_SMS_PCT:
        return "computes"  # memory-bound work draws little
    flat = max(power) - min(power) <= FLAT_POWER_SHARE
    if active:
        return "waits-in-kernel" if flat and few else "unknown"
    return "waits-in-kernel" if flat and max(power) <= WAITING_POWER_SHARE else "unknown"


def _carries_data(looks: Sequence[GpuLook]) -> bool:
    """Return whether data went over its NVLinks between the first sample and the last."""
    first, last = looks[0], looks[-1]
    if first.nvlink_bytes is None or last.nvlink_bytes is None or last.at_ns <= first.at_ns:
        return False
    grown = last.nvlink_bytes - first.nvlink_bytes
    return grown / ((last.at_ns - first.at_ns) / 1e9) >= CARRIES_BYTES_PER_S


def _power_shares(looks: Sequence[GpuLook]) -> list[float]:
    """Of the limit; empty unless every look has both, and of small cards, which draw half of it
    whatever they do."""
    shares = [
        look.power_w / look.power_limit_w
        for look in looks
        if look.power_w is not None
        and look.power_limit_w is not None
        and look.power_limit_w >= SMALL_CARD_W
    ]
    return shares if len(shares) == len(looks) else []


def _is_throttled(looks: Sequence[GpuLook]) -> bool:
    """Whether its clock is low in all looks although a kernel runs."""
    clocks = [
        look.sm_mhz / look.sm_max_mhz
        for look in looks
        if look.sm_mhz is not None and look.sm_max_mhz
    ]
    return len(clocks) == len(looks) and max(clocks) <= LOW_CLOCK_SHARE


def numbers(looks: Sequence[GpuLook], doing: Doing) -> Iterator[str]:
    """What was read, in words that follow the GPU's name."""
    last = looks[-1]
    if last.utilization_pct is not None:
        text = f"is {last.utilization_pct:.0f}% busy"
        if last.power_w is not None and last.power_limit_w:
            text += f" at {last.power_w:.0f} of {last.power_limit_w:.0f} W"
        if last.sm_active_pct is not None:
            text += f", on {last.sm_active_pct:.0f}% of its SMs"
        yield text + (" in both samples" if doing != "unknown" and len(looks) > 1 else "")
    if _is_throttled(looks) and doing != "idle":
        reasons = f" ({', '.join(last.throttled_by)})" if last.throttled_by else ""
        yield f"has its clock at {last.sm_mhz:.0f} of {last.sm_max_mhz:.0f} MHz{reasons}"
    if last.ecc_uncorrected:
        yield (
            f"has had {last.ecc_uncorrected} uncorrectable memory errors since its driver "
            "was loaded"
        )
    if errors := _growth(look.nvlink_errors for look in looks):
        yield f"had {errors} new NVLink errors between the samples"


def silence_text(look: GpuLook) -> str:
    """What was asked and not answered, in words that follow the GPU's name."""
    inside = ", its caller in state D inside the driver" if look.silent_state == "D" else ""
    return f"has not responded to {look.silent_call} for {look.silent_s:.0f} s{inside}"
