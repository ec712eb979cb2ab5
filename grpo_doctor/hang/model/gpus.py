"""What the GPUs of a job do together: who computes, who waits in the kernel of a collective. Pure.

Two samples are needed; what they leave open is `unknown`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_doctor.hang.model.gpu_activity import (
    Doing,
    doing_of,
    is_silent,
    numbers,
    silence_text,
    trouble,
)
from grpo_doctor.hang.verdict import Item
from grpo_doctor.hang.wording import ranks_text, verb
from grpo_doctor_probes.evidence import Evidence, GpuLook

Conclusion = Literal["collective-wait", "one-computes", "host-behind", "idle", "unknown"]
# By what the GPUs do: what that means, and those of which activity it is about.
_CONCLUSIONS: dict[frozenset[Doing], tuple[Conclusion, Doing | None]] = {
    frozenset({"waits-in-kernel"}): ("collective-wait", None),
    frozenset({"idle"}): ("idle", None),
    frozenset({"computes", "waits-in-kernel"}): ("one-computes", "computes"),
    frozenset({"idle", "waits-in-kernel"}): ("host-behind", "idle"),
}


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
    rank_of = {member.pid: member.rank for member in evidence.job.members if member.role == "rank"}
    histories = _histories(evidence.gpus)
    states = tuple(
        _state(key, looks, _ranks_on(looks, rank_of), len(evidence.gpus))
        for key, looks in sorted(histories.items())
        if key[1] >= 0
    )
    of_job = tuple(gpu for gpu in states if gpu.ranks)
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
    rank_of = {member.pid: member.rank for member in evidence.job.members if member.role == "rank"}
    return {
        (host, looks[-1].bus_id or looks[0].bus_id): _ranks_on(looks, rank_of)
        for (host, _), looks in _histories(evidence.gpus).items()
        if any(look.bus_id for look in looks)
    }


def _histories(looks: Sequence[Sequence[GpuLook]]) -> dict[tuple[str, int], list[GpuLook]]:
    histories: defaultdict[tuple[str, int], list[GpuLook]] = defaultdict(list)
    for look in looks:
        for gpu in look:
            histories[gpu.host, gpu.index].append(gpu)
    return dict(histories)


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
    return GpuState(index, host, ranks, doing, items)


def _conclusion(gpus: Sequence[GpuState]) -> tuple[Conclusion, tuple[int, ...]]:
    ranks: defaultdict[Doing, list[int]] = defaultdict(list)
    for gpu in gpus:
        ranks[gpu.doing] += gpu.ranks
    conclusion, subject = _CONCLUSIONS.get(frozenset(ranks), ("unknown", None))
    return conclusion, tuple(sorted(ranks[subject])) if subject is not None else ()


def _items(
    conclusion: Conclusion, ranks: tuple[int, ...], gpus: Sequence[GpuState]
) -> tuple[Item, ...]:
    """The sentence for the whole, and the numbers of those that it is about, one of the others'."""
    names = ranks_text(ranks)
    texts = {
        "collective-wait": "all GPUs are busy at low power: they wait in a collective",
        "one-computes": f"{names} {verb(ranks, 'computes')} on the GPU while the others' GPUs wait",
        "host-behind": f"{names} {verb(ranks, 'has')} queued no GPU work; the others' GPUs wait",
        "idle": "no GPU has work: the hosts have queued none",
        "unknown": "",
    }
    subjects = [gpu for gpu in gpus if not set(gpu.ranks).isdisjoint(ranks)]
    remaining = [gpu for gpu in gpus if gpu not in subjects]
    shown = [*subjects[:3], *remaining[:1]]
    # Whatever has failed, is silent or counts errors is said in any case.
    telling = [gpu for gpu in gpus if gpu.doing in ("failed", "silent") or len(gpu.items) > 1]
    shown += [gpu for gpu in telling if gpu not in shown]
    summary = [Item("gpu", None, texts[conclusion])] if texts[conclusion] else []
    return (*summary, *(item for gpu in shown for item in gpu.items))


def _silences(histories: Mapping[tuple[str, int], Sequence[GpuLook]]) -> Iterator[Item]:
    for (host, index), looks in sorted(histories.items()):
        if index < 0 and is_silent(looks[-1]):
            where = f" on {host}" if host else ""
            yield Item("gpu", None, f"NVML{where} {silence_text(looks[-1])}")
