"""What was seen of a job from outside: plain records, made by `discover`, `look` and `flight`.

Nothing here judges. `grpo_doctor.hang` reasons about an `Evidence`, which is also what a bundle
holds, so that a verdict can be explained again on another machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SCHEMA = 1
Role = Literal[
    "rank",  # a training process
    "launcher",  # torchrun, accelerate, deepspeed, swift, mpirun
    "engine",  # a vLLM or SGLang engine core
    "engine-worker",  # a tensor-parallel worker of an engine
    "server",  # the HTTP front of an engine, or a reward server of the job
    "reward",  # a process that a rank started for rewards
    "dataloader",
    "ray",  # raylet, GCS, driver and actors that are none of the above
    "helper",  # any other process of the job
]
FOUND_FRAMEWORKS = ("bundled", "ms-swift", "trl", "verl", "openrlhf", "unknown")


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the job; what does not change while it lives.

    `rank` is the rank it is, or, for a helper, the rank that it works for (its nearest ancestor).
    `command` is redacted and cut; `name` has no control characters. `started_ticks` with `pid`
    distinguishes a process from a later one of the same number. `readable` is False where
    environment and file descriptors were refused. `host` is set where the evidence of several
    hosts was joined; process numbers are then those of `grpo_doctor.hang.multihost`.
    """

    pid: int
    parent: int
    started_ticks: int
    role: Role
    name: str
    command: str
    rank: int | None = None
    local_rank: int | None = None
    uid: int = 0
    readable: bool = True
    host: str = ""


@dataclass(frozen=True, slots=True)
class Placement:
    """An inspected host of the job, and what its launcher reports of the job's other hosts.

    `hosts` are all of the job, in order of their numbers; empty where the launcher names none.
    `node` is this host's number among `nodes`. `job_id` is the batch system's, `run_id` the
    launcher's own. `addresses` are this host's. `ranks` and `taken_unix_ns` are filled in where
    the evidence of several hosts is joined.
    """

    host: str
    launcher: str = ""  # slurm, mpi, deepspeed, kubernetes, torchrun
    job_id: str = ""
    run_id: str = ""
    namespace: str = ""  # of a pod
    hosts: tuple[str, ...] = ()
    node: int | None = None
    nodes: int | None = None
    world_size: int | None = None
    local_ranks: int | None = None
    addresses: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    taken_unix_ns: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """One job on this host, or on those of `placements` where the evidence of several was joined.

    `ranks_missing` are those of `world_size` that no process here is. `local_ranks` is how many
    ranks this host should have (LOCAL_WORLD_SIZE), None when unknown: where it equals `world_size`
    a missing rank is dead or was never started, else it may run on another host. `address` is the
    rendezvous, `host:port`.
    """

    host: str
    members: tuple[Member, ...]
    world_size: int | None = None
    local_ranks: int | None = None
    ranks_missing: tuple[int, ...] = ()
    framework: str = "unknown"
    address: str = ""
    run_dir: str = ""
    notes: tuple[str, ...] = ()
    placements: tuple[Placement, ...] = ()

    def ranks(self) -> tuple[Member, ...]:
        """Return the training processes, in order of rank; those of unknown rank last."""
        ranks = [m for m in self.members if m.role == "rank"]
        return tuple(sorted(ranks, key=lambda m: (m.rank is None, m.rank or 0, m.pid)))

    def member(self, pid: int) -> Member | None:
        """Return the process of this number, if it is one of the job's."""
        return next((m for m in self.members if m.pid == pid), None)


Blocking = Literal[
    "pipe-read", "pipe-write", "fifo-open", "socket-receive", "socket-send", "socket-connect",
    "socket-accept", "file", "file-lock", "child", "futex", "poll", "sleep", "other",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread of a process. `last_ran_ns` is CLOCK_MONOTONIC when it last had a core, from
    `se.exec_start` of /proc/PID/task/TID/sched; 0 where the kernel does not say.

    `syscall` is the number of the call it is in, -1 unknown, with its first six arguments.
    """

    tid: int
    name: str
    state: str
    wchan: str = ""
    syscall: int = -1
    arguments: tuple[int, ...] = ()
    cpu_ticks: int = 0
    voluntary: int = 0
    involuntary: int = 0
    run_delay_ns: int = 0
    last_ran_ns: int = 0


@dataclass(frozen=True, slots=True)
class ProcessLook:
    """A process at `at_ns` (CLOCK_MONOTONIC). `state` is the letter of its main thread as in
    /proc/PID/stat; `X` when it has gone. `exit_code` is a wait status, of zombies only, where the
    kernel lets us read it. `threads[0]` is the main thread. Counters grow over its whole life.
    """

    pid: int
    at_ns: int
    state: str
    cpu_ticks: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    major_faults: int = 0
    rss_bytes: int = 0
    swap_bytes: int = 0
    exit_code: int | None = None
    threads: tuple[Thread, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """All processes of the job within a few milliseconds. `at_ns` is CLOCK_MONOTONIC."""

    at_ns: int
    processes: tuple[ProcessLook, ...]

    def of(self, pid: int) -> ProcessLook | None:
        """Return the look at one process."""
        return next((p for p in self.processes if p.pid == pid), None)


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of a stack. `line` is 0 where unknown (native frames)."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class PythonThread:
    """A thread with Python frames, innermost first."""

    tid: int
    name: str
    frames: tuple[Frame, ...]
    owns_gil: bool = False


@dataclass(frozen=True, slots=True)
class Stack:
    """The Python threads of a process; `problem` says why there are none. Main thread first.

    `pause_ms` is for how long the process was stopped: 0 for nonblocking stacks.
    """

    pid: int
    at_ns: int
    threads: tuple[PythonThread, ...] = ()
    native: bool = False
    pause_ms: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """In which library a thread that uses a core was at one moment, by its instruction pointer.

    Both are file names. `caller` is the innermost library on its C stack that is not the C library
    itself, so that a spin through `sched_yield` is distinguished from other work. `pause_ms` is
    for how long the thread was stopped.
    """

    pid: int
    tid: int
    at_ns: int
    library: str = ""
    caller: str = ""
    pause_ms: float = 0.0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Locals:
    """A digest of all local variables on the main thread's Python stack. Where two of one process
    differ, its Python has run in between, wherever it stands. Empty with a `problem`.
    """

    pid: int
    at_ns: int
    digest: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Blocked:
    """What a thread's blocking call waits for. `target` is a path, an address or `pipe:[inode]`.

    `peers` are processes at the other end (whether or not of the job); `peers_known` is False
    where we could not look everywhere, so that an empty `peers` does not mean "no process". Of a
    connection: bytes that the other end has not confirmed, how often they were sent again, and what
    has arrived there and its program has not read. `stopped_peers` are those of `peers` that may
    not run. `note` says the rest in words, for people.
    """

    pid: int
    tid: int
    kind: Blocking
    fd: int = -1
    target: str = ""
    peers: tuple[int, ...] = ()
    peers_known: bool = False
    note: str = ""
    unconfirmed_bytes: int = 0
    retransmits: int = 0
    peer_unread_bytes: int = 0
    stopped_peers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Await:
    """Where coroutines of an event loop wait: suspended frames, innermost first, with those of the
    tasks that wait for them. `what` is `connection` (`fd`: -1 unknown), `thread` (another one sets
    the future), `ray` (a task's result), `future`, or a class of asyncio. `tid` is the loop's
    thread; `count` of its coroutines are at the same place.
    """

    pid: int
    tid: int
    frames: tuple[Frame, ...]
    what: str
    fd: int = -1
    count: int = 1


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Arguments of a function on the main thread's stack, as short texts: `{"src": "3"}`."""

    pid: int
    function: str
    values: dict[str, str]


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


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be seen, and what would make it visible. `pid` None: in general."""

    what: str
    remedy: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What the visit cost. `max_pause_ms`: the longest that any thread of the job was stopped."""

    seconds: float = 0.0
    max_pause_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """One visit to one job, or what an operator has of a dead one (then `dumps` alone).

    `looks` has two or three looks, oldest first, none for dumps alone. `stacks` has one tuple per
    look, in the same order. `limits` as well. `blocked` belongs to the last sample.
    `positions` and `locals_seen` are of ranks that use a core at one line, oldest first.
    """

    job: Job
    taken_unix_ns: int
    schema: int = SCHEMA
    looks: tuple[Look, ...] = ()
    stacks: tuple[tuple[Stack, ...], ...] = ()
    limits: tuple[tuple[Limits, ...], ...] = ()
    blocked: tuple[Blocked, ...] = ()
    awaits: tuple[Await, ...] = ()  # by process, what comes from outside first
    arguments: tuple[CallArguments, ...] = ()
    positions: tuple[Position, ...] = ()
    locals_seen: tuple[Locals, ...] = ()
    gpus: tuple[tuple[GpuLook, ...], ...] = ()
    engines: tuple[tuple[EngineLook, ...], ...] = ()
    spans: tuple[OpenSpanSeen, ...] = ()
    dumps: tuple[FlightDump, ...] = ()
    ray: tuple[RayFact, ...] = ()  # where the cluster was asked, as by `attach --ray`
    host: HostFacts | None = None
    logs: tuple[LogTail, ...] = ()
    problems: tuple[Problem, ...] = ()
    cost: Cost = Cost()
