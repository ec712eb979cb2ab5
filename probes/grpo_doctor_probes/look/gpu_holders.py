"""Which processes of the job compute on which GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor_probes.evidence import GpuHolder, GpuLook, Job, Member
from grpo_doctor_probes.flight.places import environment
from grpo_doctor_probes.procfs import status

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOCAL_RANK = "LOCAL_RANK"
_ON_GPUS = ("rank", "engine", "engine-worker")
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel


@dataclass(frozen=True, slots=True)
class Process:
    """What tells where a process computes. `numbers` are those it has in inner name spaces.

    `visible` is its CUDA_VISIBLE_DEVICES; None: not set, `` hides all. `place` is its local rank,
    None where we could not learn of its environment.
    """

    pid: int
    numbers: tuple[int, ...] = ()
    visible: str | None = None
    place: int | None = None


def processes(job: Job, proc: Path = Path("/proc")) -> tuple[Process, ...]:
    """Those of the job that may compute on a GPU."""
    return tuple(_process(one, proc) for one in job.members if one.role in _ON_GPUS)


def _process(member: Member, proc: Path) -> Process:
    words = status(f"{proc}/{member.pid}").get("NSpid", "").split()
    numbers = tuple(int(word) for word in words[1:] if word.isdigit())
    variables = environment(member, proc)
    place = member.local_rank
    if place is None and variables.get(_LOCAL_RANK, "").isdigit():
        place = int(variables[_LOCAL_RANK])
    known = bool(variables) and member.role == "rank"
    return Process(
        member.pid, numbers, variables.get(_VISIBLE) if known else None, place if known else None
    )


def numbers_are_ours(proc: Path = Path("/proc")) -> bool:
    """Whether the driver's process numbers are ours: not in a pid namespace of our own."""
    try:
        return str((proc / "self" / "ns" / "pid").readlink()) == _INITIAL_PID_NAMESPACE
    except OSError:
        return True


def with_holders(
    gpus: Sequence[GpuLook], of_job: Iterable[Process], *, ours: bool
) -> tuple[GpuLook, ...]:
    """The looks with their holders. `ours`: NVML's numbers and our own are of one name space.

    A process is on one GPU: if NVML lists it on several, as it does ranks that have opened a
    context on GPU 0 by mistake, the one that its environment names, else all of them.
    """
    holders: dict[int, list[GpuHolder]] = {gpu.index: [] for gpu in gpus}
    for process in of_job:
        for index, holder in _placed(gpus, process, ours=ours):
            holders[index].append(holder)
    return tuple(replace(gpu, holders=tuple(holders[gpu.index])) for gpu in gpus)


def _placed(
    gpus: Sequence[GpuLook], process: Process, *, ours: bool
) -> list[tuple[int, GpuHolder]]:
    own = _own_gpu(gpus, process)
    listed: Mapping[int, GpuHolder] = {}
    if ours:
        pid = process.pid
        listed = {gpu.index: GpuHolder(pid, "pid") for gpu in gpus if pid in gpu.pids}
    if not listed:
        inner = set(process.numbers)
        listed = {
            gpu.index: GpuHolder(process.pid, "nspid")
            for gpu in gpus
            if not inner.isdisjoint(gpu.pids)
        }
    if own is not None and (own in listed or not listed):
        return [(own, listed.get(own, GpuHolder(process.pid, "visible")))]
    return list(listed.items())


def _own_gpu(gpus: Sequence[GpuLook], process: Process) -> int | None:
    """The index of the GPU that its environment gives it."""
    if process.place is None:
        return None
    place = process.place
    if process.visible is None:
        return place if any(gpu.index == place for gpu in gpus) else None
    entries = [entry.strip() for entry in process.visible.split(",") if entry.strip()]
    if not entries or (len(entries) > 1 and place >= len(entries)):
        return None
    entry = entries[0] if len(entries) == 1 else entries[place]
    matches = [
        gpu.index
        for gpu in gpus
        if (entry.isdigit() and gpu.index == int(entry))
        or (entry.startswith("GPU-") and gpu.uuid.startswith(entry))
    ]
    return matches[0] if len(matches) == 1 else None
