"""All GPUs of the host at one moment, and which processes compute on them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_doctor_probes.evidence import GpuHolder, GpuLook, Job, Member
from grpo_doctor_probes.flight.dump_locations import environment
from grpo_doctor_probes.gpu.nvml import Device, device_of
from grpo_doctor_probes.gpu.process import CHILD, Child, EndedError
from grpo_doctor_probes.procs.printable import printable
from grpo_doctor_probes.procs.procfs import status

_VISIBLE = "CUDA_VISIBLE_DEVICES"
_LOCAL_RANK = "LOCAL_RANK"
_ON_GPUS = ("rank", "engine", "engine-worker")
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel
ANSWER_S = 3.0  # for one call; a driver that works answers in milliseconds
STARTS_S = 10.0  # until the child has begun to ask: a host with 64 busy ranks is slow
MOST_S = 6.0  # for all GPUs: without persistence mode an idle one takes a second to wake
ALL_GPUS = -1
_LONGEST = 200
# nvml.h, nvmlClocksEventReasons. Idle (1) and application clocks (2) are not throttling.
_REASONS = (
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "temperature (software)"),
    (0x40, "temperature (hardware)"),
    (0x80, "power brake"),
)


@dataclass(frozen=True, slots=True)
class Process:
    """What shows where a process computes. `numbers` are those it has in inner name spaces.

    `visible` is its CUDA_VISIBLE_DEVICES; None: not set, `` hides all. `local_rank` is None where
    we could not learn of its environment.
    """

    pid: int
    numbers: tuple[int, ...] = ()
    visible: str | None = None
    local_rank: int | None = None


def processes(job: Job, proc: Path = Path("/proc")) -> tuple[Process, ...]:
    """Return those of the job that may compute on a GPU."""
    return tuple(_process(member, proc) for member in job.members if member.role in _ON_GPUS)


def _process(member: Member, proc: Path) -> Process:
    words = status(f"{proc}/{member.pid}").get("NSpid", "").split()
    numbers = tuple(int(word) for word in words[1:] if word.isdigit())
    variables = environment(member, proc)
    index = member.local_rank
    if index is None and variables.get(_LOCAL_RANK, "").isdigit():
        index = int(variables[_LOCAL_RANK])
    if not variables or member.role != "rank":
        return Process(member.pid, numbers)
    return Process(member.pid, numbers, variables.get(_VISIBLE), index)


def numbers_are_ours(proc: Path = Path("/proc")) -> bool:
    """Return whether the driver's process numbers are ours: not in a pid namespace of our own."""
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
    own, pid = _own_gpu(gpus, process), process.pid
    listed = {gpu.index: GpuHolder(pid) for gpu in gpus if ours and pid in gpu.pids}
    if not listed:
        of_gpus = (gpu for gpu in gpus if not set(process.numbers).isdisjoint(gpu.pids))
        listed = {gpu.index: GpuHolder(pid) for gpu in of_gpus}
    if own is not None and (own in listed or not listed):
        return [(own, listed.get(own, GpuHolder(pid)))]
    return list(listed.items())


def _own_gpu(gpus: Sequence[GpuLook], process: Process) -> int | None:
    """Return the index of the GPU that its environment gives it."""
    if process.local_rank is None:
        return None
    index = process.local_rank
    if process.visible is None:
        return index if any(gpu.index == index for gpu in gpus) else None
    entries = [entry.strip() for entry in process.visible.split(",") if entry.strip()]
    if not entries or (len(entries) > 1 and index >= len(entries)):
        return None
    entry = entries[0] if len(entries) == 1 else entries[index]
    devices = [Device(None, gpu.uuid, gpu.index, gpu.name) for gpu in gpus]
    device = device_of(entry, devices)
    return device.index if device is not None else None


def gpus(
    job: Job | None = None, *, answer_s: float = ANSWER_S, proc: Path = Path("/proc")
) -> tuple[GpuLook, ...]:
    """Look at every GPU. Empty without a driver; what a GPU does not report is None.

    A call that has not returned after `answer_s` is left to its own process, and the last row says
    so (`silent_s`): it takes no longer than that, and MOST_S in all.
    """
    answers = tuple(_look(row) for _, row in sorted(_Answers("look", answer_s).rows.items()))
    if job is None:
        return answers
    return with_holders(answers, processes(job, proc), ours=numbers_are_ours(proc))


def gpu_count(answer_s: float = ANSWER_S) -> int:
    """Return GPUs of this host; 0 without a driver, and with one that does not say in time."""
    return _Answers("count", answer_s).count


class _Answers:
    """What a child of its own said, until it ended or fell silent: how many GPUs there are, and a
    row for each by its index."""

    def __init__(self, request: str, answer_s: float) -> None:
        self.count = 0
        self.rows: dict[int, dict[str, Any]] = {}
        with contextlib.suppress(OSError):
            child = Child(CHILD)
            try:
                child.ask(request)
                self._read(child, answer_s)
            except EndedError:
                pass
            finally:
                child.leave()

    def _read(self, child: Child, answer_s: float) -> None:
        """Take answers until the last. Raises EndedError."""
        question: dict[str, Any] = {}
        limit_s = STARTS_S
        deadline = time.monotonic() + STARTS_S + MOST_S
        while True:
            began = time.monotonic()
            line = child.line(max(0.0, min(limit_s, deadline - began)))
            # A child that has not begun to ask was kept from it by this host, not by the driver.
            if line is None and question:
                index = question.get("index", ALL_GPUS)
                silence = {
                    "silent_s": time.monotonic() - began,
                    "silent_call": question["asks"],
                    "silent_state": child.state(),
                }
                self.rows.setdefault(index, {"index": index}).update(silence)
            if line is None or (answer := json.loads(line)).keys() & {"end", "none", "error"}:
                return
            if "asks" in answer:
                if not question:
                    deadline = time.monotonic() + MOST_S
                question, limit_s = answer, answer_s
            elif "gpu" in answer:
                self.rows[answer["gpu"]["index"]] = answer["gpu"]
            elif "lost" in answer:
                index, problem = answer["lost"], printable(answer["why"].encode(), _LONGEST)
                self.rows[index] = {"index": index, "problem": problem}
            elif "more" in answer:
                self.rows[answer.pop("more")].update(answer)
            elif "count" in answer:
                self.count = int(answer["count"])


def _look(row: dict[str, Any]) -> GpuLook:
    bits = row.pop("throttle_bits", 0)
    row["pids"] = tuple(row.get("pids", ()))
    row.setdefault("at_ns", time.monotonic_ns())
    throttled_by = tuple(text for bit, text in _REASONS if bits & bit)
    return GpuLook(throttled_by=throttled_by, **row)
