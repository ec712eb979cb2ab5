"""Ranks that compute for too long, or get no core."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor.hang.causes import host
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.waiting.wakeups import DELAYED
from grpo_doctor.hang.verdict import Verdict
from grpo_doctor_probes.evidence import Frame, HostFacts, Limits, Member
from tests.evidence import EvidenceBuilder, frames
from tests.unit.hang.causes.doubles import activity, process
from tests.unit.hang.causes.proposed import only, proposed
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
    outcome = crowded((0,), (0, 1, 2, 3))
    assert outcome.cause == "cpu-starved"
    assert "it is bound to core 0 together with 1 other" in outcome.summary


def starved(
    delays: tuple[float, ...] = (0.6, 0.0, 0.0),
    share: float = 0.3,
    niceness: tuple[int, ...] = (0, 0, 0),
    cores: tuple[tuple[int, ...], ...] = ((), (), ()),
    hosts: str = "aaa",
    kind: str = "working",
    **more: Any,
) -> list[str]:
    """Why rank 0 of three gets no core."""
    procs = {
        rank: process(
            pid=100 + rank,
            rank=rank,
            activity=activity(kind if rank == 0 else "still", cpu_share=share, delay_share=delay),
            member=Member(100 + rank, 1, 0, "rank", "python", "", host=hosts[rank]),
            limits=(Limits(100 + rank, nice=niceness[rank], cores=cores[rank]),),
            throttled_share=0.0,
            **{"device_wait": None, **(more if rank == 0 else {})},
        )
        for rank, delay in enumerate(delays)
    }
    view: Any = SimpleNamespace(
        by_rank=procs,
        procs=tuple(procs.values()),
        evidence=SimpleNamespace(host=HostFacts("a", 8)),
    )
    case: Any = SimpleNamespace(view=view, suspects=())
    candidates = [candidate for candidate in host.cpu(case) if candidate.culprits == (0,)]
    return [item.text for each in candidates for item in each.evidence if item.source == "cgroup"]


@pytest.mark.parametrize(
    ("case", "reasons"),
    [
        ({}, ["other processes use the cores"]),
        ({"delays": (0.6, 0.29, 0.29)}, ["other processes use the cores"]),
        ({"delays": (0.6, 0.3, 0.3)}, []),  # the others do not get one either
        ({"delays": (DELAYED, 0.0, 0.0), "share": 0.9}, ["other processes use the cores"]),
        ({"delays": (DELAYED - 0.01, 0.0, 0.0), "share": 0.9}, []),
        ({"waits": True}, []),
        ({"delays": (0.6, 0.0, 0.0), "niceness": (host.NICE, 0, 0)}, ["it has nice"]),
        ({"niceness": (host.NICE - 1, 0, 0)}, ["other processes use the cores"]),
        ({"niceness": (host.NICE, 1, 1)}, ["other processes use the cores"]),
        ({"niceness": (host.NICE + 1, 1, 1)}, ["it has nice"]),
        ({"niceness": (0, -host.NICE, 0)}, ["it has nice"]),
        ({"cores": ((3,), (3,), (3,))}, ["it is bound to core 3 together with 2 other ranks"]),
        ({"cores": ((3,), (3,), (4,))}, ["it is bound to core 3 together with 1 other ranks"]),
        ({"cores": ((3, 4), (3, 4), (5,))}, ["other processes use the cores"]),  # enough for both
        ({"cores": ((3,), (0, 1), (5,))}, ["it is bound to core 3 alone and shares it"]),
        ({"cores": ((3,), (4,), (5,))}, ["other processes use the cores"]),
        ({"cores": (tuple(range(8)),) * 3}, ["other processes use the cores"]),
        ({"cores": ((3,), (3,), (3,)), "delays": (0.1, 0.0, 0.0)}, []),
        ({"cores": ((3,), (3,), (3,)), "delays": (DELAYED,) * 3}, ["it is bound to core 3"]),
        ({"cores": (tuple(range(8)),) * 3, "delays": (DELAYED,) * 3}, []),
        ({"cores": ((0, 1),) * 3, "hosts": "aab"}, ["other processes use the cores"]),
        ({"cores": ((0,), (0,), (1,)), "hosts": "aab"}, ["other processes use the cores"]),
        ({"cores": ((0,), (0,), (0,))}, ["it is bound to core 0 together with 2"]),
        ({"share": 0.2}, []),  # it runs or wants to for four fifths of the time
        ({"share": 0.25}, ["other processes use the cores"]),
        ({"share": 0.25, "kind": "polling"}, []),
        ({"share": 0.125, "kind": "polling"}, ["other processes use the cores"]),
        ({"cannot_run": True}, []),
        ({"device_wait": True}, []),
    ],
)
def test_why_a_rank_gets_no_core(case: dict[str, Any], reasons: list[str]) -> None:
    outcome = starved(**case)
    assert [text[: len(reason)] for text, reason in zip(outcome, reasons, strict=True)] == reasons


COLLECTS = frames("collect /usr/lib/python3.11/gc.py:1", "clean /home/me/train.py:5")
SAVES = frames("write /home/me/train.py:3", "save_checkpoint /home/me/train.py:8")


def test_what_burns_a_core_collects_garbage_or_computes() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, COLLECTS).works(COLLECTS, moves=False)
    label = only(host.cpu, build)
    assert label.reason.startswith("collects garbage with no end in sight")
    assert label.fixes[0].knob == "offload.gc_collect"
    build.rank(2).works(UPDATE, moves=False)
    label = only(host.cpu, build)
    assert label.reason.startswith("computes with no end in sight")
    assert label.fixes[0].knob is None


@pytest.mark.parametrize(
    ("stack", "moves", "computes"),
    [(UPDATE, False, True), (UPDATE, True, False), ((), False, False), (SAVES, False, False)],
)
def test_who_moves_or_is_in_long_work_does_not_compute_without_end(
    stack: tuple[Frame, ...], moves: bool, computes: bool
) -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, stack).works(stack, moves=moves)
    assert len(proposed(host.cpu, build)) == int(computes)
