"""One file of the profiler, read into what a report needs of it: the rest is not kept.

What a GPU was doing, from the kernels and copies on its streams.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from grpo_doctor.importers.kineto.stream import Event, EventStream, Head, arguments
from grpo_doctor.trace.intervals import Intervals, union
from grpo_doctor.trace.jsonfile import whole


@dataclass(slots=True)
class Activity:
    """Kernels and copies of one device as they are in the file: microseconds, in any order."""

    start_us: array[float] = field(default_factory=lambda: array("d"))
    length_us: array[float] = field(default_factory=lambda: array("d"))

    def merged(self, base_ns: int) -> Intervals:
        """Return the stretches in which anything ran."""
        start_us = np.array(self.start_us)
        floor_us = np.floor(start_us)
        start = base_ns + floor_us.astype(np.int64) * 1000
        start += np.rint((start_us - floor_us) * 1000).astype(np.int64)
        return union(start, start + np.rint(np.array(self.length_us) * 1000).astype(np.int64))


@dataclass(slots=True)
class Device:
    """All that ran on one device, and the parts that were communication and that were not."""

    everything: Activity = field(default_factory=Activity)
    communication: Activity = field(default_factory=Activity)
    computation: Activity = field(default_factory=Activity)


def nanoseconds(us: float) -> int:
    """Microseconds since 1970 have no room for a factor in a float64, so that their whole part is
    converted as an integer."""
    floor_us = math.floor(us)
    return floor_us * 1000 + round((us - floor_us) * 1000)


STEP = "ProfilerStep#"
_KERNEL = {"kernel", "Kernel"}
_COPY = {"gpu_memcpy", "gpu_memset", "Memcpy", "Memset"}
# Other accelerators have names of their own; the profiler before 2.0 wrote ranges as operators.
_RANGE = {"user_annotation", "Operator", "cpu_op"}
_COMMUNICATION = re.compile(r"nccl|rccl|ncclDev|mscclKernel|cross_device_reduce", re.IGNORECASE)
_MOST_US = 4e15  # the year 2096
_MOST_BASE_NS = 1 << 61
MOST_RANKS = 1 << 20
_MOST_STREAMS = 1 << 20
_RANK = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)
_PROFILED_CALL = re.compile(r"enumerate\(DataLoader\)#|Optimizer\.(step|zero_grad)#")


@dataclass(frozen=True, slots=True)
class Range:
    """A range on the CPU, in microseconds of the file; `link` is that of its kernels, 0: none."""

    name: str
    start_us: float
    length_us: float
    thread: int
    link: int = 0


@dataclass(frozen=True, slots=True)
class Collective:
    """A communication kernel; `sequence` counts those of its group where Kineto says so."""

    name: str
    group: str
    sequence: int
    start_us: float
    length_us: float
    stream: int


@dataclass(slots=True)
class RankFile:
    """What was read of one file. `rank` is None where neither it nor its name says so."""

    path: Path
    head: Head = field(default_factory=Head)
    rank: int | None = None
    os_pid: int = 0
    steps: list[Range] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)
    collectives: list[Collective] = field(default_factory=list)
    devices: dict[int, Device] = field(default_factory=dict)
    # By link: when the first kernel that was launched in a range began, and the last was done.
    began_us: dict[int, float] = field(default_factory=dict)
    done_us: dict[int, float] = field(default_factory=dict)
    truncated: bool = False
    damaged: int = 0
    events: int = 0

    @property
    def base_ns(self) -> int:
        """Unix time of the file's 0; before torch 2.4 files have Unix time themselves."""
        stated_ns = self.head.baseTimeNanoseconds
        return stated_ns if 0 <= stated_ns < _MOST_BASE_NS else 0


def read_rank(path: Path) -> RankFile:
    """Read one file in constant memory, plus 16 bytes for each kernel.

    Raises:
        TraceError: it can't be read, or is not a Chrome trace.
    """
    stream, file = EventStream(path), RankFile(path)
    for events in stream.blocks():
        file.events += len(events)
        _add(file, events)
    file.head, file.truncated, file.damaged = stream.head, stream.truncated, stream.damaged
    info = file.head.distributedInfo
    match = _RANK.search(path.name)
    rank = info.rank if info and info.rank is not None else int(match[1]) if match else None
    file.rank = rank if rank is not None and 0 <= rank < MOST_RANKS else None
    return file


def _add(file: RankFile, events: Sequence[Event]) -> None:
    for event in events:
        category = event.cat
        if event.ph != "X" or not _possible(event):
            continue
        if category in _KERNEL or category in _COPY:
            _add_device_work(file, event)
        elif category == "gpu_user_annotation":
            link = _link(event)
            file.began_us[link] = min(file.began_us.get(link, event.ts), event.ts)
            file.done_us[link] = max(file.done_us.get(link, 0.0), event.ts + event.dur)
        elif category == "user_annotation" or (category in _RANGE and _is_range(event.name)):
            _add_range(file, event)


def _possible(event: Event) -> bool:
    """Return whether its times are times, so that nanoseconds of them fit 64 bits."""
    return 0 <= event.ts < _MOST_US and 0 <= event.dur < _MOST_US


def _is_range(name: str) -> bool:
    return name.startswith(STEP) or _PROFILED_CALL.match(name) is not None


def _add_range(file: RankFile, event: Event) -> None:
    thread = event.tid if isinstance(event.tid, int) else 0
    interval = Range(event.name, event.ts, event.dur, thread, _link(event))
    if event.name.startswith(STEP):
        if not event.name.removeprefix(STEP).isdecimal():
            return
        file.steps.append(interval)
        file.os_pid = event.pid if isinstance(event.pid, int) else 0
    else:
        file.ranges.append(interval)


def _link(event: Event) -> int:
    return whole(arguments(event).get("External id")) or 0


def _add_device_work(file: RankFile, event: Event) -> None:
    number = event.pid if isinstance(event.pid, int) else 0
    device = file.devices.get(number)
    if device is None:
        device = file.devices[number] = Device()
    kinds = [device.everything]
    if event.cat in _KERNEL:
        talks = _COMMUNICATION.match(event.name) is not None
        kinds.append(device.communication if talks else device.computation)
        if talks:
            file.collectives.append(_collective(event))
    for kind in kinds:
        kind.start_us.append(event.ts)
        kind.length_us.append(event.dur)


def _collective(event: Event) -> Collective:
    args = arguments(event)
    sequence = whole(args.get("Seq"))
    return Collective(
        name=str(args.get("Collective name") or event.name.partition("(")[0]),
        group=str(args.get("Process Group Description") or args.get("Process Group Name") or ""),
        sequence=-1 if sequence is None else sequence,
        start_us=event.ts,
        length_us=event.dur,
        stream=event.tid % _MOST_STREAMS if isinstance(event.tid, int) else 0,
    )
