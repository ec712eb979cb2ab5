"""The job as it was found: its processes on this host, and which ranks are not among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
    torch: str = ""
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
