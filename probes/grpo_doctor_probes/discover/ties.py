"""What joins processes into one job besides the process tree: pairs, the surest kinds first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from grpo_doctor_probes.discover.candidates import Candidate
from grpo_doctor_probes.discover.ranks import Cast
from grpo_doctor_probes.discover.sockets import Connection
from grpo_doctor_probes.discover.tree import Tree

_NO_RUN_ID = ("", "none")  # torchrun's default


@dataclass(frozen=True, slots=True)
class Ties:
    """What joins processes besides the process tree.

    Attributes:
        spaces: The network name space of a process: the same address in another is another.
        connections: Among the core processes.
        together: Processes which the user names, as of one job.
    """

    spaces: Mapping[int, str] = field(default_factory=dict)
    connections: Sequence[Connection] = ()
    together: Sequence[int] = ()


def address_of(candidate: Candidate) -> str:
    """`host:port` of its rendezvous, empty where it says none."""
    host = candidate.environment.get("MASTER_ADDR", "")
    port = candidate.number("MASTER_PORT")
    return f"{host}:{port}" if host and port is not None else ""


def run_id_of(candidate: Candidate) -> str:
    """torchrun's name of the job, empty where it has none of its own."""
    run_id = candidate.environment.get("TORCHELASTIC_RUN_ID", "")
    return "" if run_id in _NO_RUN_ID else run_id


def _step_of(candidate: Candidate) -> str:
    """What Slurm calls the tasks that were started together."""
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID")
    return ".".join(candidate.environment[name] for name in names if name in candidate.environment)


def same_address(
    candidates: Mapping[int, Candidate], cast: Cast, tree: Tree, spaces: Mapping[int, str]
) -> Iterator[tuple[int, int]]:
    """Pairs with one rendezvous address, or one name of the job, or of one step of Slurm."""
    first: dict[tuple[str, str], int] = {}
    # The newest first: what is left of an older run has its address too, and the rank of another.
    for pid in sorted({**cast.ranks, **cast.lost}, key=tree.started, reverse=True):
        candidate = candidates[pid]
        keys = [(spaces.get(pid, ""), address) for address in [address_of(candidate)] if address]
        if run_id := run_id_of(candidate):
            keys.append(("run id", run_id))
        if candidate.only_task and (step := _step_of(candidate)):
            keys.append(("step", step))
        for key in keys:
            if (known := first.setdefault(key, pid)) != pid:
                yield known, pid


def same_command(
    candidates: Mapping[int, Candidate], cast: Cast, tree: Tree, spaces: Mapping[int, str]
) -> Iterator[tuple[int, int]]:
    """Pairs of ranks that were started alike, each by itself, and name no address: their program
    knows it. Until they have met nothing else says that they are of one job."""
    first: dict[object, int] = {}
    for pid in sorted(cast.ranks, key=tree.started, reverse=True):
        one, process = candidates[pid], tree.processes[pid]
        if cast.ranks[pid] is None or address_of(one) or one.world is None:
            continue
        key = (spaces.get(pid, ""), process.uid, process.arguments, one.world)
        if (known := first.setdefault(key, pid)) != pid:
            yield known, pid


def made(core: set[int], cast: Cast, tree: Tree) -> Iterator[tuple[int, int]]:
    """Pairs of a rank and the launcher that no command gives away, or its next sibling."""
    last: dict[int, int] = {}
    for pid in sorted(cast.ranks):
        parent = tree.processes[pid].parent
        if parent in cast.launchers:
            yield pid, parent
        elif parent > 1 and parent not in core:
            image = tree.processes[pid].image
            maker = tree.processes.get(parent)
            if maker is not None and image is not None and maker.image == image:
                yield last.setdefault(parent, pid), pid
