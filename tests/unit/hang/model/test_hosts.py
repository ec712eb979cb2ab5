"""One host of many: it says where the others are and how to look at all, and blames nobody here."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.hosts import command, disks_of, hosts_of
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Disk, Evidence, HostFacts, Placement
from tests.evidence import EvidenceBuilder, frames
from tests.several_hosts import on_hosts

AWAY = tuple(range(8, 16))


def first_host(**placed: object) -> Evidence:
    """Ranks 0-7 of 16, all in the same collective; the culprit is on the other host."""
    build = EvidenceBuilder(ranks=16)
    build.elsewhere(11, frames("compute_rewards /home/me/rewards.py:31"))
    return on_hosts(build.build(), 8, **placed)[0]


def verdict(evidence: Evidence) -> Verdict:
    return diagnose(evidence).verdict


def test_nobody_of_this_host_is_blamed_for_what_unseen_ranks_may_do() -> None:
    outcome = verdict(first_host())
    assert outcome.culprits == AWAY
    assert "wait in all_reduce for ranks 8-15, which are not on this host" in outcome.summary
    assert outcome.certainty == "possible"


@pytest.mark.parametrize(
    ("placed", "words"),
    [
        ({"launcher": "mpi", "hosts": ("node0", "node1")}, "--ssh node0,node1"),
        ({"launcher": "deepspeed", "hosts": ("node0", "w-1")}, "--ssh node0,w-1"),
        ({"launcher": "torchrun"}, "--ssh node0,OTHERS"),
        ({}, "--ssh node0,OTHERS"),
        ({"launcher": "slurm", "job_id": "4711", "nodes": 2}, "--slurm 4711"),
        (
            {"launcher": "kubernetes", "namespace": "ml"},
            "--kube LABEL=VALUE/ml  # a label of the job's pods; where kubectl works",
        ),
    ],
)
def test_a_job_on_several_hosts_is_inspected_by_one_command(
    placed: dict[str, object], words: str
) -> None:
    assert verdict(first_host(**placed)).confirm == (f"grpo-doctor attach {words}",)


def test_a_job_of_ray_is_inspected_by_one_command() -> None:
    evidence = first_host()
    driver = replace(evidence.job.members[0], pid=77, role="ray", rank=None)
    job = replace(evidence.job, members=(*evidence.job.members, driver))
    assert command(job) == "grpo-doctor attach --ray"
    torchrun = replace(job, placements=(Placement("n", launcher="torchrun"),))
    assert command(torchrun).startswith("grpo-doctor attach --ssh ")


def test_the_other_host_is_named_if_the_launcher_has_listed_two() -> None:
    assert hosts_of(first_host(hosts=("node0", "node1"), node=0).job, AWAY) == ("node1",)
    assert "(probably on node1)" in verdict(first_host(hosts=("node0", "node1"))).summary


def test_of_several_other_hosts_the_one_is_named_only_if_numbers_agree() -> None:
    build = EvidenceBuilder(ranks=24)
    hosts = ("node0", "node1", "node2")
    (first, _, _) = on_hosts(build.build(), 8, hosts=hosts)
    assert hosts_of(first.job, (17,)) == ("node2",)
    shifted = on_hosts(build.build(), 8, hosts=hosts, node=2)[0]
    assert hosts_of(shifted.job, (17,)) == ("node1", "node2")


def test_hostile_names_do_not_get_into_commands() -> None:
    evil = "x; rm -rf /"
    job = first_host(launcher="slurm", job_id=evil, namespace="").job
    assert shlex.split(command(job))[-1] == evil
    for launcher in ("kubernetes", "torchrun", "mpi"):
        strange = replace(first_host(launcher=launcher).job, host=evil, address=f"{evil}:29500")
        assert "rm" not in command(strange) or f"'{evil}'" in command(strange)


@pytest.mark.parametrize(
    ("host", "paths"), [("node0", ["node0:/data"]), ("", ["node0:/data", "node1:/data"])]
)
def test_the_disks_of_a_process_are_those_of_its_host(host: str, paths: list[str]) -> None:
    built = EvidenceBuilder(ranks=1).build()
    members = tuple(replace(member, host=host) for member in built.job.members)
    disks = tuple(Disk(f"node{number}:/data", "nfs") for number in range(2))
    evidence = replace(
        built, job=replace(built.job, members=members), host=HostFacts("a", 8, disks=disks)
    )
    assert [disk.path for disk in disks_of(evidence, 100)] == paths
    assert disks_of(evidence, 4711) == disks
