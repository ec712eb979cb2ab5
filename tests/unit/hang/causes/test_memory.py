"""Kills because memory ran out, in a container as well: there the kernel names no process of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.causes.host import memory, recent_oom, unassigned_kills
from grpo_doctor.hang.model.view import JobView, WaitHistory
from grpo_doctor_probes.evidence import Limits
from tests.evidence import BETWEEN_S, EvidenceBuilder, frames
from tests.unit.hang.causes.proposed import case_of, only
from tests.verdicts import UPDATE, expect, verdict

OF_THE_HOST = "Memory cgroup out of memory: Killed process 88103 (python)"


def counting(build: EvidenceBuilder, kills: int, limit: int | None = None) -> None:
    """The ranks' control group has counted so many kills since it was made."""
    for process in build.processes.values():
        row = Limits(process.member.pid, memory_limit_bytes=limit, oom_kills=kills)
        process.limits = (row, row)


@pytest.mark.parametrize("zombie", [False, True])
def test_a_rank_that_is_gone_or_left_no_status_was_killed_for_memory(zombie: bool) -> None:
    build = EvidenceBuilder()
    if zombie:
        build.rank(3).state = "Z"
    else:
        build.lose(3)
    counting(build, 1)
    build.kernel = [(9.0, OF_THE_HOST)]
    expect(build, "oom-killed", 3, state="dead")


@pytest.mark.parametrize(("kills", "age_s"), [(0, 9.0), (1, 3000.0)])
def test_another_job_s_kill_or_one_of_an_hour_ago_is_not_this_one(kills: int, age_s: float) -> None:
    build = EvidenceBuilder()
    build.lose(3)
    counting(build, kills)
    build.kernel = [(age_s, OF_THE_HOST)]
    outcome = verdict(build)
    assert outcome.cause == "rank-dead"
    possible = any(OF_THE_HOST in item.text for item in outcome.evidence)
    assert possible == (age_s < 60.0), "it is told, where its time fits"


@pytest.mark.parametrize(("status", "cause"), [(256, "rank-dead"), (9, "oom-killed")])
def test_a_rank_that_ended_with_a_status_of_its_own_was_not_killed(status: int, cause: str) -> None:
    build = EvidenceBuilder()
    build.rank(3).state, build.rank(3).exit_code = "Z", status
    counting(build, 1)
    if cause == "rank-dead":
        build.kernel = [(9.0, OF_THE_HOST)]
    assert verdict(build).cause == cause


def lost(waited_s: float | None, kernel: list[tuple[float, str]], *limits: Limits) -> JobView:
    """Two ranks of three, 100 and 101, and kernel messages by age."""
    build = EvidenceBuilder(ranks=3)
    build.lose(2)
    build.kernel = kernel
    for row in limits:
        build.rank(0).limits = (row, row)
    return replace(case_of(build).view, wait_history=WaitHistory(waited_s))


def killed(pid: int) -> str:
    return f"Out of memory: Killed process {pid} (python)"


@pytest.mark.parametrize(
    ("waited_s", "kills", "near", "maybe"),
    [
        (None, [(10.0, 102)], [102], [102]),
        (None, [(10.1, 102)], [], []),
        (20.0, [(30.0, 102)], [102], [102]),
        (20.0, [(30.1, 102)], [], []),
        (20.0, [(5.0, 94)], [94], [94]),  # at most twice as many numbers apart as ranks
        (20.0, [(5.0, 93)], [], [93]),
        (20.0, [(5.0, 107)], [107], [107]),
        (20.0, [(5.0, 108)], [], [108]),
        (20.0, [(9.0, 1), (8.0, 2), (7.0, 3)], [], [2, 3]),  # the last two
    ],
)
def test_kills_since_the_wait_of_processes_that_were_started_with_the_ranks(
    waited_s: float | None, kills: list[tuple[float, int]], near: list[int], maybe: list[int]
) -> None:
    view = lost(waited_s, [(age, killed(pid)) for age, pid in kills] + [(1.0, "eth0: link is up")])
    assert [item.text for item in recent_oom(view)] == list(map(killed, near))
    told = [item.text.partition(";")[0] for item in unassigned_kills(view)]
    assert told == list(map(killed, maybe))


@pytest.mark.parametrize(
    ("faults_per_s", "swapped_bytes", "swaps"),
    [(100, 16 << 20, True), (99, 16 << 20, False), (100, (16 << 20) - 1, False), (0, 0, False)],
)
def test_a_rank_whose_memory_is_swapped_out(
    faults_per_s: int, swapped_bytes: int, swaps: bool
) -> None:
    build = EvidenceBuilder()
    rank = build.elsewhere(2, frames("step /me/adam.py:7", "train /me/train.py:40"))
    rank.works(rank.stack, moves=False)
    rank.major_faults, rank.swap_bytes = int(faults_per_s * BETWEEN_S), swapped_bytes
    outcome = verdict(build)
    assert outcome.culprits == (2,)
    assert (outcome.cause == "memory-swapped") == swaps
    if swaps:
        assert outcome.state == "slow"
        assert any("100 major page faults" in item.text for item in outcome.evidence)


@pytest.mark.parametrize(
    ("limits", "room"),
    [
        (None, " does not provide, at train.py:31, clip"),
        (
            Limits(101, memory_limit_bytes=2 * 10**9, memory_used_bytes=10**9),
            " does not provide: its control group uses 1.0 GB of 2.0 GB, at train.py:31, clip",
        ),
    ],
)
def test_who_waits_for_memory_is_told_with_what_its_group_may_use(
    limits: Limits | None, room: str
) -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.state, process.wchan = "D", "mem_cgroup_handle_over_high"
    case = build.build()
    rows = () if limits is None else (limits,)
    label = only(memory, replace(case, limits=(rows, rows)))
    assert label.reason == f"waits for memory that its control group{room}"
    assert label.liveness == "never-wakes"


def test_who_gets_a_little_memory_now_and_then_goes_on() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(1, UPDATE)
    process.state, process.wchan, process.wakes = "D", "mem_cgroup_handle_over_high", 5
    assert only(memory, build).liveness == "unseen"
