"""What the GPUs of a job do: compute, spin in the kernel of a collective, or nothing. Pure.

A kernel of NCCL that waits for its peers keeps a GPU 100% busy and computes nothing, so what counts
is how much power it draws meanwhile. Two looks are needed; what they leave open is `unknown`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import ranks_text
from grpo_doctor_probes.evidence import Evidence, GpuLook

Doing = Literal["computes", "waits-in-kernel", "idle", "silent", "failed", "unknown"]
Conclusion = Literal["collective-wait", "one-computes", "host-behind", "idle", "unknown"]

# Shares of the power limit. Waits that were reported: 100 of 700 W (NVIDIA-NeMo/Speech#9291), 118
# of 400 W (NVIDIA/nccl#2428, 30%). Of the samples of two clusters of A100s (InternLM/AcmeTrace,
# gpu_power_kalos and _seren) half are below 25% of 400 W, and a tenth is between 30% and 50%.
WAITING_POWER_SHARE = 0.33
COMPUTING_POWER_SHARE = 0.45
FLAT_POWER_SHARE = 0.05  # a kernel that polls draws the same at any time
BUSY_PCT = 90.0  # NVML counts the time in which any kernel ran
IDLE_PCT = 10.0
# NCCL has at most 32 channels of one SM each (MAXCHANNELS before 2.19): a quarter of an H100's 132.
FEW_SMS_PCT = 30.0
MANY_SMS_PCT = 50.0
# Over NVLink: a collective that still carries data waits for nobody. Not over PCIe, through which a
# waiting kernel may poll a flag in the host's memory.
CARRIES_BYTES_PER_S = 100e6
LOW_CLOCK_SHARE = 0.5  # of the highest SM clock, while a kernel runs: then it is throttled
_SPINNING = "R"  # who is on a core has not been caught in the driver


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU of the job over both looks. `ranks` compute on it; `items` are its numbers."""

    index: int
    host: str
    ranks: tuple[int, ...]
    doing: Doing
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuJudgement:
    """All of them. `ranks` are those that `conclusion` is about: who computes, or whose host has
    not launched what the others' GPUs wait for. `silence` says that NVML does not answer.
    """

    conclusion: Conclusion = "unknown"
    ranks: tuple[int, ...] = ()
    gpus: tuple[GpuState, ...] = ()
    items: tuple[Item, ...] = ()
    silence: tuple[Item, ...] = ()

    def of(self, rank: int) -> Doing:
        """What the GPU of this rank does; `unknown` where it is not known or shared by several."""
        return next((gpu.doing for gpu in self.gpus if gpu.ranks == (rank,)), "unknown")

    def failed(self) -> tuple[GpuState, ...]:
        """GPUs that are lost or have uncorrectable errors."""
        return tuple(gpu for gpu in self.gpus if gpu.doing == "failed")


def judge(evidence: Evidence) -> GpuJudgement:
    """What the looks at the GPUs of `evidence` say of its ranks."""
    rank_of = {one.pid: one.rank for one in evidence.job.members if one.role == "rank"}
    histories = _histories(evidence.gpus)
    states = tuple(
        _state(key, looks, _ranks_on(looks, rank_of), len(evidence.gpus))
        for key, looks in sorted(histories.items())
        if key[1] >= 0
    )
    of_job = tuple(one for one in states if one.ranks)
    conclusion, ranks = _conclusion(of_job)
    return GpuJudgement(
        conclusion,
        ranks,
        of_job,
        _items(conclusion, ranks, of_job),
        tuple(_silences(histories)),
    )


def ranks_of_gpus(evidence: Evidence) -> dict[tuple[str, str], tuple[int, ...]]:
    """The ranks on each GPU, by host (empty for one host alone) and PCI address as NVML says it.

    A GPU that no rank is on is there with no ranks.
    """
    rank_of = {one.pid: one.rank for one in evidence.job.members if one.role == "rank"}
    return {
        (host, looks[-1].bus_id or looks[0].bus_id): _ranks_on(looks, rank_of)
        for (host, _), looks in _histories(evidence.gpus).items()
        if any(look.bus_id for look in looks)
    }


def _histories(looks: Sequence[Sequence[GpuLook]]) -> dict[tuple[str, int], list[GpuLook]]:
    found: defaultdict[tuple[str, int], list[GpuLook]] = defaultdict(list)
    for look in looks:
        for gpu in look:
            found[gpu.host, gpu.index].append(gpu)
    return dict(found)


def _ranks_on(looks: Iterable[GpuLook], rank_of: Mapping[int, int | None]) -> tuple[int, ...]:
    """By its holders, or in older evidence by the driver's process numbers."""
    pids = {holder.pid for look in looks for holder in look.holders}
    pids = pids or {pid for look in looks for pid in look.pids}
    return tuple(sorted({rank for pid in pids if (rank := rank_of.get(pid)) is not None}))


def _state(
    key: tuple[str, int], looks: Sequence[GpuLook], ranks: tuple[int, ...], count: int
) -> GpuState:
    host, index = key
    rank = ranks[0] if len(ranks) == 1 else None
    trouble = _trouble(looks, count)
    doing: Doing = "unknown"
    texts = [trouble] if trouble else []
    if trouble:
        doing = "failed"
    elif _is_silent(looks[-1]):
        doing = "silent"
        texts.append(_silence_text(looks[-1]))
    else:
        doing = _doing(looks)
        texts += _numbers(looks, doing)
        if len(ranks) > 1 and doing != "idle":
            doing = "unknown"  # which of them keeps it busy cannot be told
    name = f"GPU {index}" + (f" of {host}" if host else "")
    items = tuple(Item("gpu", rank, f"{name} {text}") for text in texts)
    return GpuState(index, host, ranks, doing, items)


def _trouble(looks: Sequence[GpuLook], count: int) -> str:
    """Why it counts as failed; empty where it does not."""
    last = looks[-1]
    if last.problem:
        return f"cannot be opened: {last.problem}"
    if 0 < len(looks) < count and not any(map(_is_silent, looks)):
        return "was there at the first look and is not any more"
    errors = [look.ecc_uncorrected for look in looks if look.ecc_uncorrected is not None]
    if len(errors) > 1 and errors[-1] > errors[0]:
        return f"had {errors[-1] - errors[0]} new uncorrectable memory errors between the looks"
    return ""


def _is_silent(look: GpuLook) -> bool:
    return look.silent_s > 0 and look.silent_state != _SPINNING


def _doing(looks: Sequence[GpuLook]) -> Doing:
    shares = [look.utilization_pct for look in looks]
    known = [share for share in shares if share is not None]
    if len(known) < 2 or len(known) < len(shares):
        return "unknown"
    if max(known) <= IDLE_PCT:
        return "idle"
    power = _power_shares(looks)
    if not power:
        return "unknown"
    if min(power) >= COMPUTING_POWER_SHARE and min(known) > IDLE_PCT:
        return "computes"
    if min(known) < BUSY_PCT or _is_throttled(looks) or _carries_data(looks):
        return "unknown"
    return _busy(looks, power)


def _busy(looks: Sequence[GpuLook], power: Sequence[float]) -> Doing:
    """A GPU on which a kernel runs all the time, at less power than for work."""
    active = [look.sm_active_pct for look in looks if look.sm_active_pct is not None]
    few = bool(active) and max(active) <= FEW_SMS_PCT
    if active and min(active) >= MANY_SMS_PCT:
        return "computes"  # memory-bound work draws little
    flat = max(power) - min(power) <= FLAT_POWER_SHARE
    below = COMPUTING_POWER_SHARE if few else WAITING_POWER_SHARE
    return "waits-in-kernel" if flat and max(power) <= below else "unknown"


def _carries_data(looks: Sequence[GpuLook]) -> bool:
    """Whether data went over its NVLinks between the first look and the last."""
    first, last = looks[0], looks[-1]
    if first.nvlink_bytes is None or last.nvlink_bytes is None or last.at_ns <= first.at_ns:
        return False
    grown = last.nvlink_bytes - first.nvlink_bytes
    return grown / ((last.at_ns - first.at_ns) / 1e9) >= CARRIES_BYTES_PER_S


def _power_shares(looks: Sequence[GpuLook]) -> list[float]:
    """Of the limit; empty unless every look has both."""
    shares = [
        look.power_w / look.power_limit_w
        for look in looks
        if look.power_w is not None and look.power_limit_w
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


def _numbers(looks: Sequence[GpuLook], doing: Doing) -> Iterator[str]:
    last = looks[-1]
    if last.utilization_pct is not None:
        text = f"is {last.utilization_pct:.0f}% busy"
        if last.power_w is not None and last.power_limit_w:
            text += f" at {last.power_w:.0f} of {last.power_limit_w:.0f} W"
        if last.sm_active_pct is not None:
            text += f", on {last.sm_active_pct:.0f}% of its SMs"
        yield text + (" in both looks" if doing != "unknown" and len(looks) > 1 else "")
    if _is_throttled(looks) and doing != "idle":
        reasons = f" ({', '.join(last.throttled_by)})" if last.throttled_by else ""
        yield f"has its clock at {last.sm_mhz:.0f} of {last.sm_max_mhz:.0f} MHz{reasons}"
    if last.ecc_uncorrected:
        yield f"has {last.ecc_uncorrected} uncorrectable memory errors since its driver was loaded"
    errors = [look.nvlink_errors for look in looks if look.nvlink_errors is not None]
    if len(errors) > 1 and errors[-1] > errors[0]:
        yield f"had {errors[-1] - errors[0]} new NVLink errors between the looks"


def _conclusion(gpus: Sequence[GpuState]) -> tuple[Conclusion, tuple[int, ...]]:
    if not gpus:
        return "unknown", ()
    ranks: defaultdict[Doing, list[int]] = defaultdict(list)
    for gpu in gpus:
        ranks[gpu.doing] += gpu.ranks
    seen = set(ranks)
    if seen == {"waits-in-kernel"}:
        return "collective-wait", ()
    if seen == {"idle"}:
        return "idle", ()
    if seen == {"computes", "waits-in-kernel"}:
        return "one-computes", tuple(sorted(ranks["computes"]))
    if seen == {"idle", "waits-in-kernel"}:
        return "host-behind", tuple(sorted(ranks["idle"]))
    return "unknown", ()


def _items(
    conclusion: Conclusion, ranks: tuple[int, ...], gpus: Sequence[GpuState]
) -> tuple[Item, ...]:
    """The sentence for the whole, and the numbers of those that it is about, one of the others'."""
    texts = {
        "collective-wait": "all GPUs are busy and draw little power: they wait in a collective",
        "one-computes": f"the GPU of {ranks_text(ranks)} computes while the others' wait"
        if len(ranks) == 1
        else f"the GPUs of {ranks_text(ranks)} compute while the others' wait",
        "host-behind": f"{ranks_text(ranks)} has given its GPU nothing, for which the others' wait"
        if len(ranks) == 1
        else f"{ranks_text(ranks)} have given their GPUs nothing, for which the others' wait",
        "idle": "no GPU has anything to do: the hosts have given them no work",
        "unknown": "",
    }
    named = [gpu for gpu in gpus if not set(gpu.ranks).isdisjoint(ranks)]
    others = [gpu for gpu in gpus if gpu not in named]
    shown = [*named[:3], *others[:1]]
    # Whatever has failed, is silent or counts errors is said in any case.
    telling = [gpu for gpu in gpus if gpu.doing in ("failed", "silent") or len(gpu.items) > 1]
    shown += [gpu for gpu in telling if gpu not in shown]
    whole = [Item("gpu", None, texts[conclusion])] if texts[conclusion] else []
    return (*whole, *(item for gpu in shown for item in gpu.items))


def _silences(histories: Mapping[tuple[str, int], Sequence[GpuLook]]) -> Iterator[Item]:
    for (host, index), looks in sorted(histories.items()):
        if index < 0 and _is_silent(looks[-1]):
            where = f" on {host}" if host else ""
            yield Item("gpu", None, f"NVML{where} {_silence_text(looks[-1])}")


def _silence_text(look: GpuLook) -> str:
    inside = ", its caller in state D inside the driver" if look.silent_state == "D" else ""
    return f"gives no answer to {look.silent_call} for {look.silent_s:.0f} s{inside}"
