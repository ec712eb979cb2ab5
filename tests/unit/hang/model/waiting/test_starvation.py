"""Ranks without a core: named as that, and left alone by what would have to wait for one."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.model import scene
from grpo_doctor.hang.model.waiting.starvation import answers_late
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
    said = diagnose(build.build()).verdict
    assert (said.state, said.cause, said.culprits) == ("slow", "cpu-starved", (1,))
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
    said = diagnose(build.build()).verdict
    assert (said.state, said.cause, said.culprits) == ("slow", "cpu-starved", (0, 1, 2, 3))
    assert "bound to core 0" in said.summary


def test_more_ranks_than_the_host_has_cores_are_slow_and_not_bound() -> None:
    build = EvidenceBuilder(ranks=16)
    for rank in range(16):
        process = build.rank(rank)
        process.works(UPDATE, share=0.5)
        process.delay_share = 0.5
        limits = Limits(100 + rank, cores=tuple(range(8)))
        process.limits = (limits, limits)
    assert diagnose(build.build()).verdict.cause == ""
