"""What launchers say of a job's hosts, in their own words."""

from __future__ import annotations

import base64
import json
import time

import pytest

from grpo_doctor_probes.evidence import Job, Placement
from grpo_doctor_probes.placement.launchers import LauncherFacts, expanded, placement

JOB = Job("node-1", (), world_size=16, local_ranks=8)


def placed(*command: str, namespace: str = "", **environment: str) -> Placement:
    return placement(JOB, LauncherFacts(environment, (command,) if command else (), namespace))


def test_slurm_lists_its_nodes() -> None:
    result = placed(
        SLURM_JOB_ID="4711", SLURM_JOB_NODELIST="gpu[07-08]", SLURM_NODEID="1", SLURM_NNODES="2"
    )
    assert result.launcher == "slurm"
    assert (result.job_id, result.hosts, result.node, result.nodes) == (
        "4711",
        ("gpu07", "gpu08"),
        1,
        2,
    )


def test_torchrun_knows_how_many_groups_there_are_and_not_where() -> None:
    result = placed(TORCHELASTIC_RUN_ID="r1", GROUP_RANK="3", GROUP_WORLD_SIZE="4")
    assert (result.launcher, result.run_id, result.node, result.nodes) == ("torchrun", "r1", 3, 4)
    assert result.hosts == ()


def test_torchrun_inside_of_slurm_is_looked_at_by_srun() -> None:
    result = placed(TORCHELASTIC_RUN_ID="r1", GROUP_RANK="1", SLURM_JOB_ID="7", SLURM_NODEID="0")
    assert (result.launcher, result.run_id, result.node) == ("slurm", "r1", 0)


def test_deepspeeds_launcher_is_given_all_hosts() -> None:
    world = base64.urlsafe_b64encode(json.dumps({"w-0": [0, 1], "w-1": [0, 1]}).encode()).decode()
    result = placed(
        "python", "-m", "deepspeed.launcher.launch", f"--world_info={world}", "--node_rank=1"
    )
    assert (result.launcher, result.hosts, result.node) == ("deepspeed", ("w-0", "w-1"), 1)


def test_mpi_says_how_many_hosts_there_are() -> None:
    result = placed(OMPI_COMM_WORLD_SIZE="16", OMPI_COMM_WORLD_LOCAL_SIZE="8")
    assert (result.launcher, result.nodes) == ("mpi", 2)


@pytest.mark.parametrize(
    ("size", "variables", "launcher"),
    [
        ("1", {}, "mpi"),
        ("1", {"TORCHELASTIC_RUN_ID": "r1"}, "torchrun"),  # torchrun is one task of MPI
        ("2", {"TORCHELASTIC_RUN_ID": "r1"}, "mpi"),
        ("1", {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "kubernetes"),
        ("16", {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, "mpi"),
    ],
)
def test_mpi_that_has_started_one_process_says_nothing_of_other_hosts(
    size: str, variables: dict[str, str], launcher: str
) -> None:
    assert placed(OMPI_COMM_WORLD_SIZE=size, **variables).launcher == launcher


def test_a_pod_is_in_a_namespace() -> None:
    result = placed(KUBERNETES_SERVICE_HOST="10.96.0.1", namespace="ml-team")
    assert (result.launcher, result.namespace) == ("kubernetes", "ml-team")


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
def test_nonsense_gives_no_hosts_and_no_error(environment: dict[str, str]) -> None:
    result = placed("x", "--world_info=!!", namespace="a b;c", **environment)
    assert result.hosts == ()
    assert result.namespace == ""
    assert result.job_id.isprintable()


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("gpu[001-003,7],login1", ("gpu001", "gpu002", "gpu003", "gpu7", "login1")),
        ("r[1-2]n[01-02]", ("r1n01", "r1n02", "r2n01", "r2n02")),
        ("a,b", ("a", "b")),
        ("n[1-2]-ib", ("n1-ib", "n2-ib")),
        ("", ()),
        ("a[", ()),
        ("a]b[", ()),
        ("a[1-x]", ()),
    ],
)
def test_slurms_short_form(text: str, hosts: tuple[str, ...]) -> None:
    assert expanded(text, 100) == hosts


@pytest.mark.parametrize(("at_most", "hosts"), [(3, ("a1", "a2", "b")), (2, ())])
def test_a_list_is_whole_or_none(at_most: int, hosts: tuple[str, ...]) -> None:
    assert expanded("a[1-2],b", at_most) == hosts


def test_a_list_of_billions_is_not_written_out() -> None:
    start = time.process_time()
    assert expanded("a[0-999999999]", 1_000) == ()
    assert expanded("[0-9]" * 9 + "x", 1_000) == ()
    assert expanded("[" * 90_000, 1_000) == ()
    assert time.process_time() - start < 5


@pytest.mark.parametrize("text", ["[1]" * 30_000, "a[1-999999999][2-1]", "a[3-1]"])
def test_lists_that_lead_nowhere_cost_nothing(text: str) -> None:
    assert expanded(text, 10) == ()  # 1e9 rounds would take minutes
