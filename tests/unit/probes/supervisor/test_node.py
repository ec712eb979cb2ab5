"""Which host of a job this is, and where each host of it records."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from grpo_doctor_probes.record.rundir import NODES, RUN_JSON
from grpo_doctor_probes.supervisor.node import Node, first_host, this_node, wait_for_others
from grpo_doctor_probes.supervisor.runfile import create_run_dir

SLURM = {
    "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NODEID": "1", "SLURM_STEP_NUM_NODES": "2",
    "SLURM_LOCALID": "3", "SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NODELIST": "gpu[07-08]",
}  # fmt: skip
BATCH = {"SLURM_JOB_ID": "7", "SLURM_NODEID": "0", "SLURM_NNODES": "2", "SLURM_LOCALID": "0"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "prterun-n0-12@1",
}  # fmt: skip
ALONE = ("PMI_RANK", "MPI_LOCALRANKID")
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("command", "environment", "node"),
    [
        ("torchrun --nnodes=2 --node_rank=1 t.py", {}, Node(1, 2, shared=True)),
        ("torchrun --nnodes 4 --node-rank 0 t.py", {}, Node(0, 4, shared=True)),
        ("accelerate launch --num_machines 2 --machine_rank 1", {}, Node(1, 2, shared=True)),
        ("torchrun --nnodes 1:4 --rdzv_backend c10d t.py", {}, Node()),
        ("deepspeed --num_nodes 2 t.py", {}, Node()),  # starts the other host itself
        ("torchrun --nnodes 2 --node_rank 2 t.py", {}, Node()),
        ("torchrun t.py --node_rank", {}, Node()),
        ("bash t.sh", {"NNODES": "2", "NODE_RANK": "1"}, Node(1, 2, shared=True)),
        ("bash t.sh", {"PET_NNODES": "3", "PET_NODE_RANK": "0"}, Node(0, 3, shared=True)),
        ("bash t.sh", {"NNODES": "$N", "NODE_RANK": "1"}, Node()),
        ("bash t.sh", {"NNODES": "1", "NODE_RANK": "0"}, Node(0, 1)),
        ("bash t.sh", SLURM, Node(1, 2, 3, shared=True, name="slurm-7.0")),
        ("bash t.sh", BATCH, Node()),  # of the batch script: only srun starts on all hosts
        ("torchrun --nnodes 2 --node_rank 0", SLURM, Node(0, 2, 3, shared=True, name="slurm-7.0")),
        ("python t.py", OPEN_MPI, Node(1, 2, 1, shared=True, name="mpi-prterun-n0-12-1")),
        ("python t.py", MPICH, Node(1, 2, 0, shared=True)),
        ("python t.py", {"OMPI_COMM_WORLD_RANK": "5"}, Node()),
        ("python t.py", {**dict.fromkeys(MPICH, "1"), **dict.fromkeys(ALONE, "0")}, Node()),
    ],
)
def test_place_of_a_host(command: str, environment: dict[str, str], node: Node) -> None:
    assert this_node(command.split(), environment) == node


def test_first_host_of_a_slurm_step() -> None:
    assert first_host(SLURM) == "gpu07"
    assert first_host({}) == ""


def test_each_host_has_its_own_folder_in_any_order(tmp_path: Path) -> None:
    run, name = tmp_path / "run", os.uname().nodename
    second = create_run_dir(run, Node(1, 2, shared=True))
    assert second == run / NODES / f"00001-{name}"
    assert create_run_dir(run, Node(1, 2, task=1, shared=True)) == second
    assert create_run_dir(run, Node(0, 2, shared=True)) == run
    (run / RUN_JSON).write_text("{}")
    with pytest.raises(FileExistsError, match="not empty"):
        create_run_dir(run, Node(0, 2, shared=True))
    (run / RUN_JSON).write_text('{"end": {}}')
    with pytest.raises(FileExistsError, match="has ended"):
        create_run_dir(run, Node(1, 2, shared=True))


def test_host_0_waits_for_the_hosts_that_record(tmp_path: Path) -> None:
    said: list[str] = []
    node = Node(0, 3, shared=True)
    assert wait_for_others(tmp_path, node, 9.0, said.append) == 2  # no shared disk: no wait
    running = create_run_dir(tmp_path, Node(1, 3, shared=True))
    assert wait_for_others(tmp_path, node, 0.0, said.append) == 2
    (running / RUN_JSON).write_text(json.dumps({"end": {"state": "finished"}}))
    assert said == []
    assert wait_for_others(tmp_path, node, 9.0, said.append) == 1
