"""Ranks without a core: named as that, and left alone by what would have to wait for one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import scene
from grpo_doctor.hang.model.process.progress import Motion
from grpo_doctor.hang.model.waiting.starvation import answers_late, hardly_runs, throttled
from grpo_doctor_probes.evidence import Limits
from tests.evidence import EvidenceBuilder, frames

UPDATE = frames("clip /home/me/train.py:31", "update /home/me/train.py:40", "main t.py:9")


def late(build: EvidenceBuilder) -> list[int]:
    ranks = scene.build(build.build()).by_rank
    return [rank for rank, actor in ranks.items() if answers_late(actor)]


def test_nobody_answers_late_in_an_ordinary_stall() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, UPDATE)
    assert late(build) == []


def test_a_rank_that_its_quota_holds_back_answers_late() -> None:
    build = EvidenceBuilder()
    limits = Limits(102, quota_cores=0.03)
    build.rank(2).limits = (limits, replace(limits, throttled_ns=100_000_000))
    assert late(build) == [2]


def test_a_quota_that_is_not_used_up_holds_nobody_back() -> None:
    build = EvidenceBuilder()
    limits = Limits(102, quota_cores=4.0, throttled_ns=9_000_000_000)
    build.rank(2).limits = (limits, limits)
    assert late(build) == []


def test_a_rank_that_never_gets_a_core_is_starved_and_not_busy() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.works(UPDATE, share=0.02, moves=False)
    process.delay_share = 0.95
    verdict = diagnose(build.build()).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == ("slow", "cpu-starved", (1,))
    assert late(build) == [1]


def test_a_rank_that_computes_on_a_crowded_host_is_busy() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.works(UPDATE, share=0.5, moves=False)
    process.delay_share = 0.5
    assert diagnose(build.build()).verdict.cause == "user-code-busy"
    assert late(build) == []


def test_a_job_that_runs_at_a_lower_priority_as_a_whole_is_not_starved_by_it() -> None:
    build = EvidenceBuilder()
    for rank in range(4):
        limits = Limits(100 + rank, nice=10)
        build.rank(rank).limits = (limits, limits)
    process = build.elsewhere(1, UPDATE)
    process.works(UPDATE, share=0.5, moves=False)
    process.delay_share = 0.4
    assert diagnose(build.build()).verdict.cause == "user-code-busy"


def test_ranks_that_are_all_bound_to_one_core_are_starved_though_none_is_worse_off() -> None:
    build = EvidenceBuilder()
    for rank in range(4):
        process = build.rank(rank)
        process.works(UPDATE, share=0.1)
        process.delay_share = 0.9
        limits = Limits(100 + rank, cores=(0,))
        process.limits = (limits, limits)
    verdict = diagnose(build.build()).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == ("slow", "cpu-starved", (0, 1, 2, 3))
    assert "bound to core 0" in verdict.summary


def test_more_ranks_than_the_host_has_cores_are_slow_and_not_bound() -> None:
    build = EvidenceBuilder(ranks=16)
    for rank in range(16):
        process = build.rank(rank)
        process.works(UPDATE, share=0.5)
        process.delay_share = 0.5
        limits = Limits(100 + rank, cores=tuple(range(8)))
        process.limits = (limits, limits)
    assert diagnose(build.build()).verdict.cause == ""


def rank(
    cpu_share: float = 0.0,
    delay_share: float = 0.0,
    throttled_share: float = 0.0,
    limits: tuple[Limits, ...] = (),
) -> Any:
    motion = Motion("busy", 1.0, cpu_share=cpu_share, delay_share=delay_share)
    return SimpleNamespace(motion=motion, throttled_share=throttled_share, limits=limits)


@pytest.mark.parametrize(
    ("share", "held_up", "late"),
    [(0.3, True, True), (0.29, False, True), (0.02, False, True), (0.019, False, False)],
)
def test_a_quota_holds_a_rank_up_from_three_tenths_of_the_time_on(
    share: float, held_up: bool, late: bool
) -> None:
    actor = rank(throttled_share=share)
    assert (throttled(actor), answers_late(actor)) == (held_up, late)


@pytest.mark.parametrize(
    ("cpu_share", "delay_share", "hardly"),
    [
        (0.0, 0.5, True),
        (0.0, 0.49, False),
        (0.124, 0.5, True),
        (0.125, 0.5, False),
        (0.2, 0.8, False),
        (0.19, 0.8, True),
    ],
)
def test_who_wants_a_core_most_of_the_time_and_has_one_hardly_ever(
    cpu_share: float, delay_share: float, hardly: bool
) -> None:
    actor = rank(cpu_share, delay_share)
    assert (hardly_runs(actor), answers_late(actor)) == (hardly, hardly)


@pytest.mark.parametrize(
    ("limits", "late"),
    [
        ((), False),
        ((Limits(1),), False),
        ((Limits(1, memory_limit_bytes=1000),), False),
        ((Limits(1, memory_limit_bytes=1000, memory_used_bytes=989),), False),
        ((Limits(1, memory_limit_bytes=1000, memory_used_bytes=990),), True),
        ((Limits(1, memory_used_bytes=990),), False),
        ((Limits(1, memory_limit_bytes=1000, memory_used_bytes=990), Limits(1)), False),
    ],
)
def test_a_group_that_has_used_its_memory_up_answers_late(
    limits: tuple[Limits, ...], late: bool
) -> None:
    assert answers_late(rank(limits=limits)) is late
