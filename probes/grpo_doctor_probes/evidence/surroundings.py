"""What surrounds the processes: limits, disks, kernel messages, GPUs, logs, engines, recordings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Limits:
    """The control groups of a process. Counters grow; compare two samples. None: no such limit."""

    pid: int
    frozen: bool = False
    freezer: str = ""  # the file that thaws it
    quota_cores: float | None = None
    throttled_ns: int = 0
    memory_limit_bytes: int | None = None
    memory_used_bytes: int | None = None
    oom_kills: int = 0
    cores: tuple[int, ...] = ()  # it may run on
    nice: int = 0


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system that the job uses. `error` where asking timed out or failed."""

    path: str
    kind: str
    total_bytes: int = 0
    free_bytes: int = 0
    free_inodes: int = -1
    error: str = ""


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The machine. `kernel` are messages of the last hour that concern us: (age in s, text)."""

    name: str
    cores: int
    disks: tuple[Disk, ...] = ()
    kernel: tuple[tuple[float, str], ...] = ()
    kernel_problem: str = ""


@dataclass(frozen=True, slots=True)
class GpuHolder:
    """A process of the job on this GPU."""

    pid: int


@dataclass(frozen=True, slots=True)
class GpuLook:
    """A GPU at one moment, and which processes compute on it. None: not reported.

    `pids` are as the driver says, in a container the host's; `holders` are of the job. `silent_s`:
    NVML was asked `silent_call` and had not answered after so long, its caller then being in
    `silent_state`; `index` is -1 where that call concerns no single GPU. `problem`: NVML knows the
    GPU and cannot open it. Counters grow since the driver was loaded; compare two samples.
    """

    index: int
    at_ns: int
    utilization_pct: float | None = None  # of the last second, some kernel ran
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_mhz: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    throttled_by: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    uuid: str = ""
    name: str = ""
    bus_id: str = ""  # "00000000:3B:00.0"
    sm_max_mhz: float | None = None
    sm_active_pct: float | None = None  # Hopper and later: of all SMs, those that ran a kernel
    ecc_uncorrected: int | None = None
    nvlink_errors: int | None = None
    nvlink_bytes: int | None = None
    holders: tuple[GpuHolder, ...] = ()
    silent_s: float = 0.0
    silent_call: str = ""
    silent_state: str = ""
    problem: str = ""
    host: str = ""  # where the evidence of several hosts was joined


@dataclass(frozen=True, slots=True)
class LogTail:
    """The last lines of a log that a process of the job has open, redacted."""

    pid: int
    path: str
    written_s_ago: float
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineLook:
    """/metrics of a rollout engine at one moment. `problem` where it did not answer."""

    pid: int
    at_ns: int
    url: str
    values: dict[str, float] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class OpenSpanSeen:
    """A span or collective that a recorded rank has open (`grpo-doctor run`)."""

    pid: int
    rank: int
    name: str
    age_s: float
    collective: bool = False


@dataclass(frozen=True, slots=True)
class FlightDump:
    """A flight-recorder dump as it is, not yet parsed and not trusted.

    `source`: `memory` or `file:PATH`.
    `backend`: which of torch's two recorders it is: `fr` (gloo, CPU, hooks), `nccl`, or `` for a
    file.
    `at_unix_ns` is when it was taken (a file's mtime). `data` is JSON or a pickle, empty with
    `problem`. `rank` is None where neither the process nor the file's name has it.
    `recorded_meanwhile`: unreadable because operations were recorded each time it was read.
    """

    source: str
    rank: int | None = None
    pid: int | None = None
    backend: str = ""
    at_unix_ns: int = 0
    data: bytes = b""
    problem: str = ""
    recorded_meanwhile: bool = False


@dataclass(frozen=True, slots=True)
class RasAnswer:
    """What one NCCL process answered on its RAS port: JSON text, or a `problem`."""

    address: str
    at_ns: int
    text: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RayFact:
    """What Ray itself reports of a cluster: that `what` died, that it is pending, its resources, or
    a task that has not ended and waits for no other.

    `wants` are the resources of each of `count`; of `kind` "has" those of all nodes that are alive.
    `reason` is Ray's own word, such as WORKER_DIED, INFEASIBLE or RUNNING. `age_s`: since then.
    """

    kind: Literal["died", "pending", "has", "task"]
    what: str = ""
    reason: str = ""
    wants: dict[str, float] = field(default_factory=dict)
    count: int = 1
    pid: int = 0
    node: str = ""
    age_s: float | None = None
