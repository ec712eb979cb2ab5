"""This host's place in a job that one launcher starts on several hosts.

Every host runs `grpo-doctor run` with the same command and the same `-o`. Host 0 owns the run
directory; the others record into `RUN/nodes/<number>-<host>`, a run directory of their own, so a
disk that the hosts do not share only means that these folders must be copied.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grpo_doctor_probes.placement import MOST_HOSTS, expanded, number_of
from grpo_doctor_probes.record.rundir import NODES, RUN_JSON

# Options of torchrun, `accelerate launch` and `deepspeed --no_ssh`, as `--name=1` or `--name 1`.
_OPTIONS = {
    "number": re.compile(r"--(?:node[-_]rank|machine[-_]rank)(?:=(.*))?", re.DOTALL),
    "count": re.compile(r"--(?:nnodes|num[-_]machines|num[-_]nodes)(?:=(.*))?", re.DOTALL),
}
# Number of the host, and hosts. torchrun's own variables begin with PET_; ms-swift passes the
# others on to torchrun.
_HOST_VARIABLES = (("PET_NODE_RANK", "PET_NNODES"), ("NODE_RANK", "NNODES"))
# Rank, ranks, rank on this host, ranks on this host: of Open MPI; of MPICH and Intel MPI.
_OMPI = "OMPI_COMM_WORLD"
_MPI_VARIABLES = (
    (f"{_OMPI}_RANK", f"{_OMPI}_SIZE", f"{_OMPI}_LOCAL_RANK", f"{_OMPI}_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
)
_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Node:
    """Host `number` of `count`; `task` is 0 for the first task that the launcher started on it.

    `shared` says that others may write into the run directory before this one, hosts or tasks.
    `name` is the same for all of these and no other launch, empty where the launcher has none.
    """

    number: int = 0
    count: int = 1
    task: int = 0
    shared: bool = False
    name: str = ""

    def folder(self, run_dir: Path) -> Path:
        """Return where this host records."""
        if self.number == 0:
            return run_dir
        return run_dir / NODES / f"{self.number:05d}-{os.uname().nodename}"

    def at(self, number: int, count: int) -> Node:
        """Return the same task as one of host `number` of `count`."""
        return replace(self, number=number, count=count, shared=self.shared or count > 1)


ONLY_NODE = Node()


def this_node(arguments: Sequence[str], environment: Mapping[str, str]) -> Node:
    """Return what the command and the launcher's variables say; host 0 of 1 if they say nothing."""
    node = _by_variables(environment)
    number = _option(arguments, _OPTIONS["number"])
    count = _option(arguments, _OPTIONS["count"])
    if number is not None and count is not None and number < count:
        return node.at(number, count)
    return node


def first_host(environment: Mapping[str, str]) -> str:
    """Return the first host of a Slurm step; empty outside of Slurm."""
    hosts = expanded(environment.get("SLURM_STEP_NODELIST", ""), MOST_HOSTS)
    return hosts[0] if hosts else ""


def wait_for_others(run_dir: Path, node: Node, at_most_s: float, say: Callable[[str], None]) -> int:
    """Wait on host 0 until all hosts that record into `run_dir` have ended; how many have not.

    Hosts whose folders are not there are not waited for: then the disk is not shared.
    """
    deadline = time.monotonic() + at_most_s
    said = False
    while True:
        folders = list((run_dir / NODES).glob("*"))
        running = [folder.name for folder in folders if not has_ended(folder)]
        if not running or time.monotonic() > deadline:
            return node.count - 1 - len(folders) + len(running)
        if not said:
            say(f"waiting for {len(running)} other hosts to end, at most {at_most_s:.0f} s ...")
            said = True
        time.sleep(_POLL_S)


def has_ended(folder: Path) -> bool:
    """Return whether the run recorded in `folder` has ended."""
    try:
        return "end" in json.loads((folder / RUN_JSON).read_bytes())
    except (OSError, ValueError, TypeError):
        return False


def _by_variables(environment: Mapping[str, str]) -> Node:
    def number(name: str) -> int | None:
        return number_of(environment.get(name, ""))

    for number_name, count_name in _HOST_VARIABLES:
        host, count = number(number_name), number(count_name)
        if host is not None and count is not None and host < count:
            return Node(host, count, shared=count > 1)
    if hosts := number("SLURM_STEP_NUM_NODES"):  # of a step: srun's alone
        name = "slurm-{}.{}".format(*map(environment.get, ("SLURM_JOB_ID", "SLURM_STEP_ID")))
        shared = number("SLURM_STEP_NUM_TASKS") != 1
        place = (number(each) or 0 for each in ("SLURM_NODEID", "SLURM_LOCALID"))
        return Node(next(place), hosts, next(place), shared=shared, name=name)
    for rank_name, ranks_name, task_name, tasks_name in _MPI_VARIABLES:
        rank, ranks, task, tasks = map(number, (rank_name, ranks_name, task_name, tasks_name))
        if rank is not None and ranks and task is not None and tasks:
            launch = re.sub(r"[^A-Za-z0-9.-]", "-", environment.get("PMIX_NAMESPACE", ""))
            name = f"mpi-{launch}" if launch else ""
            return Node(rank // tasks, -(-ranks // tasks), task, shared=ranks > 1, name=name)
    return Node()


def _option(arguments: Sequence[str], pattern: re.Pattern[str]) -> int | None:
    for word, following in zip(arguments, (*arguments[1:], "")):
        if match := pattern.fullmatch(word):
            return number_of(following if match[1] is None else match[1])
    return None
