"""Kills for want of memory, in a container as well: there the kernel names no process of it."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.evidence import Limits
from tests.evidence import EvidenceBuilder
from tests.verdicts import expect, verdict

OF_THE_HOST = "Memory cgroup out of memory: Killed process 88103 (python)"


def counting(build: EvidenceBuilder, kills: int, limit: int | None = None) -> None:
    """The ranks' control group has counted so many kills since it was made."""
    for process in build.processes.values():
        row = Limits(process.member.pid, memory_limit_bytes=limit, oom_kills=kills)
        process.limits = (row, row)


def test_a_rank_that_is_gone_from_a_container_was_killed_for_memory() -> None:
    build = EvidenceBuilder()
    build.lose(3)
    counting(build, 1)
    build.kernel = [(9.0, OF_THE_HOST)]
    expect(build, "oom-killed", 3, state="dead")


def test_a_zombie_without_a_status_as_well() -> None:
    build = EvidenceBuilder()
    build.rank(3).state = "Z"
    counting(build, 1)
    build.kernel = [(9.0, OF_THE_HOST)]
    expect(build, "oom-killed", 3, state="dead")


@pytest.mark.parametrize(("kills", "age_s"), [(0, 9.0), (1, 3000.0)])
def test_another_job_s_kill_or_one_of_an_hour_ago_is_not_this_one(kills: int, age_s: float) -> None:
    build = EvidenceBuilder()
    build.lose(3)
    counting(build, kills)
    build.kernel = [(age_s, OF_THE_HOST)]
    assert verdict(build).cause == "rank-dead"


def test_a_rank_that_ended_with_a_status_of_its_own_was_not_killed() -> None:
    build = EvidenceBuilder()
    build.rank(3).state, build.rank(3).exit_code = "Z", 256
    counting(build, 1)
    build.kernel = [(9.0, OF_THE_HOST)]
    assert verdict(build).cause == "rank-dead"
