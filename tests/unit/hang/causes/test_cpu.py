"""Ranks that compute for too long, or get no core."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from grpo_doctor.hang.causes import host
from grpo_doctor_probes.evidence import Frame, Limits
from tests.evidence import EvidenceBuilder, collective, frames
from tests.unit.hang.causes.proposed import only, proposed
from tests.verdicts import UPDATE, expect, healthy


def test_a_rank_held_back_is_seen_while_the_job_crawls() -> None:
    build = EvidenceBuilder()
    healthy(build)
    process = build.rank(2)
    process.limits = (
        Limits(102, quota_cores=0.1),
        Limits(102, quota_cores=0.1, throttled_ns=1_000_000_000),
    )
    expect(build, "cpu-starved", 2, state="slow")


def starved(
    delays: tuple[float, ...] = (0.6, 0.0, 0.0),
    share: float = 0.3,
    niceness: tuple[int, ...] = (0, 0, 0),
    cores: tuple[tuple[int, ...], ...] = ((), (), ()),
    hosts: str = "aaa",
    stack: tuple[Frame, ...] = UPDATE,
    *,
    moves: bool = True,
) -> list[str]:
    """Why rank 0 of three gets no core."""
    build = EvidenceBuilder(ranks=3, recorded=False)
    build.elsewhere(0, stack).works(stack, share=share, moves=moves)
    for rank, delay in enumerate(delays):
        process = build.rank(rank)
        process.delay_share = delay
        process.limits = (Limits(100 + rank, nice=niceness[rank], cores=cores[rank]),) * 2
        process.member = replace(process.member, host=hosts[rank])
    labels = [label for label in proposed(host.cpu, build) if label.culprits == (0,)]
    return [item.text for each in labels for item in each.evidence if item.source == "cgroup"]


@pytest.mark.parametrize(
    ("case", "reasons"),
    [
        ({}, ["other processes use the cores"]),
        ({"delays": (0.6, 0.29, 0.29)}, ["other processes use the cores"]),
        ({"delays": (0.6, 0.3, 0.3)}, []),  # the others do not get one either
        ({"delays": (host.DELAYED, 0.0, 0.0), "share": 0.9}, ["other processes use the cores"]),
        ({"delays": (host.DELAYED - 0.01, 0.0, 0.0), "share": 0.9}, []),
        ({"stack": collective("all_reduce")}, []),
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
        ({"cores": ((3,), (3,), (3,)), "delays": (host.DELAYED,) * 3}, ["it is bound to core 3"]),
        ({"cores": (tuple(range(8)),) * 3, "delays": (host.DELAYED,) * 3}, []),
        ({"cores": ((0, 1),) * 3, "hosts": "aab"}, ["other processes use the cores"]),
        ({"cores": ((0,), (0,), (1,)), "hosts": "aab"}, ["other processes use the cores"]),
        ({"cores": ((0,), (0,), (0,))}, ["it is bound to core 0 together with 2"]),
        ({"share": 0.2}, []),  # it runs or wants to for four fifths of the time
        ({"share": 0.25}, ["other processes use the cores"]),
        ({"share": 0.25, "moves": False}, []),
        ({"share": 0.125, "moves": False}, ["other processes use the cores"]),
    ],
)
def test_why_a_rank_gets_no_core(case: dict[str, Any], reasons: list[str]) -> None:
    outcome = starved(**case)
    assert [text[: len(reason)] for text, reason in zip(outcome, reasons, strict=True)] == reasons


COLLECTS = frames("collect /usr/lib/python3.11/gc.py:1", "clean /home/me/train.py:5")


def test_what_burns_a_core_collects_garbage_or_computes() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, COLLECTS).works(COLLECTS, moves=False)
    label = only(host.cpu, build)
    assert label.reason.startswith("keeps collecting garbage at one place")
    assert label.fixes[0].knob == "offload.gc_collect"
    build.rank(2).works(UPDATE, moves=False)
    label = only(host.cpu, build)
    assert label.reason.startswith("keeps computing at one place")
    assert label.fixes[0].knob is None
