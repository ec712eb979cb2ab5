"""Ranks that compute for too long, or get no core."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import HostFacts, Limits
from tests.evidence import EvidenceBuilder
from tests.verdicts import REWARD, UPDATE, expect, healthy


def test_an_endless_loop_in_the_reward() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, REWARD).works(REWARD, moves=False)
    expect(build, "reward-busy", 2, state="slow")
    build.waited_s = 3000.0
    expect(build, "reward-busy", 2)


def test_a_rank_held_back_by_its_quota() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(2, UPDATE)
    process.works(UPDATE, share=0.1)
    process.limits = (
        Limits(102, quota_cores=0.1),
        Limits(102, quota_cores=0.1, throttled_ns=1_000_000_000),
    )
    expect(build, "cpu-starved", 2, state="slow")


def test_a_rank_held_back_is_seen_while_the_job_crawls() -> None:
    build = EvidenceBuilder()
    healthy(build)
    process = build.rank(2)
    process.limits = (
        Limits(102, quota_cores=0.1),
        Limits(102, quota_cores=0.1, throttled_ns=1_000_000_000),
    )
    expect(build, "cpu-starved", 2, state="slow")


def crowded(cores: tuple[int, ...], others_cores: tuple[int, ...]) -> Verdict:
    """Two ranks on each of two joined hosts, each waiting for a core; a launcher that may run
    anywhere.
    """
    build = EvidenceBuilder()
    healthy(build)
    for rank in range(4):
        process = build.rank(rank)
        process.delay_share = 0.6
        process.limits = (Limits(100 + rank, cores=cores),) * 2
    for rank in (0, 2):
        helper = build.child(rank, "helper", pid=300 + rank)
        helper.limits = (Limits(300 + rank, cores=others_cores),) * 2
    for process in build.processes.values():
        host = "node-a" if (process.member.rank or 0) < 2 else "node-b"
        process.member = replace(process.member, host=host)
    evidence = replace(build.build(), host=HostFacts("node-a, node-b", 2 * len(others_cores)))
    return diagnose(evidence).verdict


def test_ranks_of_several_hosts_share_no_cores() -> None:
    assert crowded((0, 1), (0, 1)).cause == ""


def test_ranks_of_one_of_several_hosts_that_are_bound_to_one_core() -> None:
    said = crowded((0,), (0, 1, 2, 3))
    assert said.cause == "cpu-starved"
    assert "bound to core 0 together with 1 other" in said.summary
