"""What launchers say of a job's hosts, in their own words, read of its processes."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from pathlib import Path

import pytest

from grpo_doctor_probes.evidence import Job, Member, Placement
from grpo_doctor_probes.placement import expanded, placement_of
from tests.unit.probes.conftest import running

RANK = Member(8, 7, 1, "rank", "python", "python", rank=0)
LAUNCHER = Member(7, 1, 1, "launcher", "python", "deepspeed")
HELPER = Member(9, 8, 1, "helper", "python", "python")
NAMESPACE = "root/var/run/secrets/kubernetes.io/serviceaccount"
SLURM = {"SLURM_JOB_ID": "7", "SLURM_NODEID": "0"}
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
GPUS = ("gpu07", "gpu08")
RUN = {"TORCHELASTIC_RUN_ID": "r1"}


def placed(proc: Path, *members: Member, namespace: str = "", **environment: str) -> Placement:
    folder = proc / "8" / NAMESPACE
    folder.mkdir(parents=True)
    (folder / "namespace").write_text(namespace)
    (proc / "8" / "environ").write_text("".join(f"{k}={v}\0" for k, v in environment.items()))
    job = Job("node-1", (*members, RANK), world_size=16, local_ranks=8)
    return placement_of(job, proc)


@pytest.mark.parametrize(
    ("environment", "facts"),
    [
        (
            {**SLURM, "SLURM_JOB_NODELIST": "gpu[07-08]", "SLURM_NODEID": "1", "SLURM_NNODES": "2"},
            {"launcher": "slurm", "job_id": "7", "hosts": GPUS, "node": 1, "nodes": 2},
        ),
        (
            {**RUN, "GROUP_RANK": "3", "GROUP_WORLD_SIZE": "4"},
            {"launcher": "torchrun", "run_id": "r1", "node": 3, "nodes": 4, "hosts": ()},
        ),
        ({**RUN, **SLURM, "GROUP_RANK": "1"}, {"launcher": "slurm", "run_id": "r1", "node": 0}),
        (
            {"OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
            {"launcher": "mpi", "nodes": 2},
        ),
        ({"OMPI_COMM_WORLD_SIZE": "1"}, {"launcher": "mpi"}),
        # A single task of MPI says nothing of other hosts.
        ({"OMPI_COMM_WORLD_SIZE": "1", **RUN}, {"launcher": "torchrun"}),
        ({"OMPI_COMM_WORLD_SIZE": "2", **RUN}, {"launcher": "mpi"}),
        ({"OMPI_COMM_WORLD_SIZE": "1", **POD}, {"launcher": "kubernetes"}),
        ({"OMPI_COMM_WORLD_SIZE": "16", **POD}, {"launcher": "mpi"}),
        ({**POD, "namespace": "ml-team"}, {"launcher": "kubernetes", "namespace": "ml-team"}),
        ({}, {"host": "node-1", "launcher": "", "world_size": 16, "local_ranks": 8, "nodes": None}),
    ],
)
def test_what_each_launcher_tells(
    tmp_path: Path, environment: dict[str, str], facts: dict[str, object]
) -> None:
    placement = placed(tmp_path, **environment)
    assert {name: getattr(placement, name) for name in facts} == facts


@pytest.mark.parametrize(
    "environment",
    [
        {"SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "a[1-", "SLURM_NODEID": "x"},
        {"SLURM_JOB_ID": "\x1b[31m", "SLURM_JOB_NODELIST": "$(reboot),b"},
        {"OMPI_COMM_WORLD_SIZE": "9" * 5_000},
        {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "0"},
        {"GROUP_RANK": "²", "KUBERNETES_SERVICE_HOST": ""},
    ],
)
def test_nonsense_gives_no_hosts_and_no_error(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_text("x\0--world_info=!!\0")
    placement = placed(tmp_path, LAUNCHER, namespace="a b;c", **environment)
    assert (placement.hosts, placement.namespace) == ((), "")
    assert placement.job_id.isprintable()


def test_the_hosts_are_told_by_the_command_of_a_launcher(tmp_path: Path) -> None:
    """And by no other command: what a helper is called with is its own affair."""
    for pid, hosts in ((7, ["w-0", "w-1"]), (8, ["x"]), (9, ["y"])):
        world = json.dumps({name: [0] for name in hosts}).encode()
        option = f"--world_info={base64.urlsafe_b64encode(world).decode()}"
        (tmp_path / str(pid)).mkdir()
        command = f"python\0{option}\0--node_rank=1\0"
        (tmp_path / str(pid) / "cmdline").write_text(command)
    placement = placement_of(Job("w-0", (HELPER, RANK, LAUNCHER), 2), tmp_path)
    assert (placement.launcher, placement.hosts) == ("deepspeed", ("w-0", "w-1"))
    assert (placement.node, placement.nodes) == (1, 2)
    assert placement_of(Job("w-0", (HELPER, RANK), 2), tmp_path).hosts == ()


def test_a_real_ranks_environment_and_addresses() -> None:
    variables = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_NODEID": "1"}
    program = "print(flush=True); input()"
    environment = {**os.environ, **variables}
    with running(sys.executable, "-c", program, environment=environment) as process:
        member = Member(process.pid, os.getpid(), 1, "rank", "python", "python", rank=0)
        placement = placement_of(Job("n2", (member,), 2))
    assert (placement.launcher, placement.hosts, placement.node) == ("slurm", ("n1", "n2"), 1)
    assert not [address for address in placement.addresses if address.startswith("127.")]


def test_addresses_that_others_can_reach(tmp_path: Path) -> None:
    net = tmp_path / "8" / "net"
    net.mkdir(parents=True)
    (net / "fib_trie").write_text(
        "Main:\n     |-- 10.0.0.0\n        /24 link UNICAST\n"
        "     |-- 10.0.0.5\n        /32 host LOCAL\n"
        "     |-- 127.0.0.1\n        /32 host LOCAL\n"
        "Local:\n     |-- 10.0.0.5\n        /32 host LOCAL\n"
        "     |-- 192.168.1.9\n        /32 host LOCAL\n"
    )
    assert placed(tmp_path).addresses == ("10.0.0.5", "192.168.1.9")


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu[001-003,7],login1", ("gpu001", "gpu002", "gpu003", "gpu7", "login1")),
        ("r[1-2]n[01-02]", ("r1n01", "r1n02", "r2n01", "r2n02")),
        ("a,b", ("a", "b")),
        ("n[1-2]-ib", ("n1-ib", "n2-ib")),
        ("a[1-4],b", ("a1", "a2", "a3", "a4", "b")),
        ("a[1-4],b,c", ()),  # more than 5
        ("a[1-5]", ("a1", "a2", "a3", "a4", "a5")),
        ("a[1-3,1-3]", ()),
        ("", ()),
        ("a[", ()),
        ("a]b[", ()),
        ("a[1-x]", ()),
        ("a[3-1]", ()),
        ("a[[1]]", ()),
    ],
)
def test_slurms_short_form(text: str, hosts: tuple[str, ...]) -> None:
    assert expanded(text, 5) == hosts


@pytest.mark.parametrize(
    "text",
    ["a[0-999999999]", "[0-9]" * 9 + "x", "[" * 90_000, "[1]" * 30_000, "a[1-999999999][2-1]"],
    ids=["billions", "many", "open", "long", "reversed"],
)
def test_a_list_that_leads_nowhere_is_not_written_out(text: str) -> None:
    start = time.process_time()
    assert len(expanded(text, 1_000)) <= 1
    assert time.process_time() - start < 5
