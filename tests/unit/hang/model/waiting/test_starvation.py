"""Ranks without a core are named as that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model.process.progress import Activity
from grpo_doctor.hang.model.waiting.wakeups import hardly_runs, throttled
from grpo_doctor_probes.evidence import Limits
from tests.evidence import EvidenceBuilder, frames

UPDATE = frames("clip /home/me/train.py:31", "update /home/me/train.py:40", "main t.py:9")


def test_a_rank_that_never_gets_a_core_is_starved_and_not_busy() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.works(UPDATE, share=0.02, moves=False)
    process.delay_share = 0.95
    verdict = diagnose(build.build()).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == ("slow", "cpu-starved", (1,))


def test_a_rank_that_computes_on_a_crowded_host_is_busy() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.works(UPDATE, share=0.5, moves=False)
    process.delay_share = 0.5
    assert diagnose(build.build()).verdict.cause == "user-code-busy"


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


def rank(cpu_share: float = 0.0, delay_share: float = 0.0, throttled_share: float = 0.0) -> Any:
    activity = Activity("busy", 1.0, cpu_share=cpu_share, delay_share=delay_share)
    return SimpleNamespace(activity=activity, throttled_share=throttled_share)


@pytest.mark.parametrize(("share", "held_up"), [(0.3, True), (0.29, False)])
def test_a_quota_holds_a_rank_up_from_three_tenths_of_the_time_on(
    share: float, held_up: bool
) -> None:
    assert throttled(rank(throttled_share=share)) == held_up


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
    assert hardly_runs(rank(cpu_share, delay_share)) == hardly
