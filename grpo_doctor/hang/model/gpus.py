"""What the GPUs of a job do: which wait in a collective's kernel, which are idle or failed. Pure.

A kernel of NCCL that waits for its peers keeps a GPU 100% busy and computes nothing, so what counts
is how much power it draws meanwhile. Two samples are needed; what they leave open is `unknown`.

Xid and SXid lines of the kernel's log are in the formats of NVIDIA's "XID Errors" guide. The
process may be `'<unknown>'` (dcgm-exporter#84), and seen from a container its number is the host's:
then the PCI address shows whose GPU it is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from grpo_doctor.hang.model.nodes import process_in
from grpo_doctor.hang.verdict import Item
from grpo_doctor_probes.evidence import Evidence, GpuLook

Doing = Literal["waits-in-kernel", "idle", "silent", "failed", "unknown"]

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
    numbers = [count for count in counts if count is not None]
    return max(numbers[-1] - numbers[0], 0) if numbers else 0


def is_silent(look: GpuLook) -> bool:
    """Return whether the driver did not answer, by a call that was seen to sleep in it."""
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
    if not power or min(measured) < BUSY_PCT or _is_throttled(looks) or _carries_data(looks):
        return "unknown"
    active = [look.sm_active_pct for look in looks if look.sm_active_pct is not None]
    on_few = max(active, default=0.0) <= FEW_SMS_PCT  # memory-bound work draws little
    most = COMPUTING_POWER_SHARE if active else WAITING_POWER_SHARE
    flat = max(power) - min(power) <= FLAT_POWER_SHARE
    return "waits-in-kernel" if flat and on_few and max(power) <= most else "unknown"


def _carries_data(looks: Sequence[GpuLook]) -> bool:
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


_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?:, pid='?(?P<pid>\d+))?"
)
_SXID = re.compile(
    r"nvidia-nvswitch\d+: SXid \((?:PCI:)?(?P<bus>[0-9a-fA-F:.]+)\): (?P<code>\d+)"
    r"(?:, (?P<kind>Fatal))?"
)
_BUS = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})")
# Not among them are notices: a row to be remapped (63), many corrected errors (92), and what the
# user's own kernel did wrong and the driver survived (13).
FATAL = frozenset({31, 43, 45, 48, 61, 62, 64, 74, 79, 94, 95, 109, 119, 120, 121, 140})

Address = tuple[int, int, int]  # domain, bus, device


@dataclass(frozen=True, slots=True)
class Xid:
    """One line. `pid` is the driver's."""

    age_s: float
    bus: Address | None
    pid: int | None
    fatal: bool
    text: str


def address(text: str) -> Address | None:
    """A PCI address without its function: the driver and NVML write it with different zeros."""
    match = _BUS.search(text)
    if match is None:
        return None
    return int(match[1] or "0", 16), int(match[2], 16), int(match[3], 16)


def xids(evidence: Evidence) -> Iterator[Xid]:
    """Those that the kernel wrote in the last hour, oldest first."""
    for age_s, text in evidence.host.kernel if evidence.host is not None else ():
        if match := _XID.search(text):
            pid = (
                process_in(evidence.job.members, text, int(match["pid"])) if match["pid"] else None
            )
            yield Xid(age_s, address(match["bus"]), pid, int(match["code"]) in FATAL, text)
        elif match := _SXID.search(text):
            bus, fatal = address(match["bus"]), match["kind"] is not None
            yield Xid(age_s, bus, None, fatal, text)


def owner(
    xid: Xid, on_gpus: Mapping[tuple[str, str], tuple[int, ...]], rank_of: Mapping[int, int | None]
) -> tuple[int, ...] | None:
    """The ranks on the GPU that a line is about; None where it is known that no rank is.

    `on_gpus` is as in a `GpuJudgement`, `rank_of` has ranks by process number. The address
    decides where NVML knows it: in a container a process number of the host may be that of somebody
    else. Several hosts may have the same address: then the line names its host.
    """
    matches = [
        (host, ranks)
        for (host, bus), ranks in on_gpus.items()
        if xid.bus is not None
        and address(bus) == xid.bus
        and (not host or xid.text.endswith(f"(on {host})"))
    ]
    claimed = rank_of.get(xid.pid) if xid.pid is not None else None
    if matches and any(on_gpus.values()):
        ranks = tuple(sorted({rank for _, ranks in matches for rank in ranks}))
        if claimed is not None and (claimed in ranks or not ranks):
            return (claimed,)
        return ranks or None
    if claimed is not None:
        return (claimed,)
    return () if xid.pid is None else None


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU of the job over both looks. `ranks` compute on it; `items` are its numbers."""

    ranks: tuple[int, ...]
    doing: Doing
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuJudgement:
    """Those with ranks on them; `silence` says that NVML does not answer. `ranks_at` are the ranks
    on each GPU, also none, by host (empty for one host alone) and PCI address as NVML says it.
    """

    gpus: tuple[GpuState, ...] = ()
    silence: tuple[Item, ...] = ()
    ranks_at: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)

    @property
    def all_wait(self) -> bool:
        """Return whether each of them is in the kernel of a collective."""
        return {gpu.doing for gpu in self.gpus} == {"waits-in-kernel"}

    def of(self, rank: int) -> Doing:
        """What the GPU of this rank does; `unknown` where it is not known or shared by several."""
        return next((gpu.doing for gpu in self.gpus if gpu.ranks == (rank,)), "unknown")


def judge_gpus(evidence: Evidence) -> GpuJudgement:
    """What the looks at the GPUs of `evidence` say of its ranks."""
    rank_of = {member.pid: member.rank for member in evidence.job.members if member.role == "rank"}
    histories = _histories(evidence.gpus)
    ranks_on = {key: _ranks_on(looks, rank_of) for key, looks in histories.items()}
    states = tuple(
        _state(key, looks, ranks_on[key], len(evidence.gpus))
        for key, looks in sorted(histories.items())
        if key[1] >= 0
    )
    return GpuJudgement(
        tuple(gpu for gpu in states if gpu.ranks),
        tuple(
            Item("gpu", None, f"NVML{f' on {host}' if host else ''} {silence_text(looks[-1])}")
            for (host, index), looks in sorted(histories.items())
            if index < 0 and is_silent(looks[-1])
        ),
        {
            (key[0], looks[-1].bus_id or looks[0].bus_id): ranks_on[key]
            for key, looks in histories.items()
            if any(look.bus_id for look in looks)
        },
    )


def _histories(looks: Sequence[Sequence[GpuLook]]) -> dict[tuple[str, int], list[GpuLook]]:
    histories: defaultdict[tuple[str, int], list[GpuLook]] = defaultdict(list)
    for look in looks:
        for gpu in look:
            histories[gpu.host, gpu.index].append(gpu)
    return dict(histories)


def _ranks_on(looks: Iterable[GpuLook], rank_of: Mapping[int, int | None]) -> tuple[int, ...]:
    pids = {holder.pid for look in looks for holder in look.holders}
    return tuple(sorted({rank for pid in pids if (rank := rank_of.get(pid)) is not None}))


def _state(
    key: tuple[str, int], looks: Sequence[GpuLook], ranks: tuple[int, ...], count: int
) -> GpuState:
    host, index = key
    rank = ranks[0] if len(ranks) == 1 else None
    failure = trouble(looks, count)
    doing: Doing = "unknown"
    texts = [failure] if failure else []
    if failure:
        doing = "failed"
    elif is_silent(looks[-1]):
        doing = "silent"
        texts.append(silence_text(looks[-1]))
    else:
        doing = doing_of(looks)
        texts += numbers(looks, doing)
        if len(ranks) > 1 and doing != "idle":
            doing = "unknown"  # which of them keeps it busy cannot be told
    name = f"GPU {index}" + (f" of {host}" if host else "")
    items = tuple(Item("gpu", rank, f"{name} {text}") for text in texts)
    return GpuState(ranks, doing, items)
