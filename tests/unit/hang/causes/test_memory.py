"""Kills because memory ran out, in a container as well: there the kernel names no process of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from grpo_doctor.hang.causes.host import memory, recent_oom, unassigned_kills
from grpo_doctor_probes.evidence import Evidence, HostFacts, Job, Limits
from tests.evidence import BETWEEN_S, EvidenceBuilder, FakeProcess, frames
from tests.unit.hang.causes import doubles
from tests.unit.hang.causes.proposed import only, proposed
from tests.verdicts import UPDATE, expect, healthy, verdict

OF_THE_HOST = "Memory cgroup out of memory: Killed process 88103 (python)"

RUNS_TESTS = frames(
    "select /usr/lib/python3.11/selectors.py:415",
    "communicate /usr/lib/python3.11/subprocess.py:1209",
    "reward /home/me/train.py:40",
)


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
    outcome = verdict(build)
    assert outcome.cause == "rank-dead"
    possible = any(OF_THE_HOST in item.text for item in outcome.evidence)
    assert possible == (age_s < 60.0), "it is told, where its time fits"


def test_a_rank_that_ended_with_a_status_of_its_own_was_not_killed() -> None:
    build = EvidenceBuilder()
    build.rank(3).state, build.rank(3).exit_code = "Z", 256
    counting(build, 1)
    build.kernel = [(9.0, OF_THE_HOST)]
    assert verdict(build).cause == "rank-dead"


def killed_sandbox(build: EvidenceBuilder, kills: tuple[int, int]) -> FakeProcess:
    """Rank 1 runs programs under test, and the last one was ended by SIGKILL; the rank."""
    rank = build.elsewhere(1, RUNS_TESTS)
    sandbox = build.child(1, "reward", pid=500)
    sandbox.state, sandbox.exit_code = "Z", 9
    before, after = (Limits(500, oom_kills=count) for count in kills)
    sandbox.limits = (before, after)
    return rank


def test_a_sandbox_that_was_killed_when_its_group_counted_a_kill() -> None:
    build = EvidenceBuilder()
    killed_sandbox(build, (6, 7))
    expect(build, "oom-killed", 1, state="dead")


def test_a_sandbox_that_ran_out_of_time_is_not_a_kill_of_yesterday() -> None:
    build = EvidenceBuilder()
    killed_sandbox(build, (7, 7))
    assert verdict(build).cause != "oom-killed"


@pytest.mark.parametrize("age_s", [3.0, 3000.0])
def test_unless_the_kernel_has_just_told_of_one(age_s: float) -> None:
    build = EvidenceBuilder()
    killed_sandbox(build, (7, 7))
    build.kernel = [(age_s, OF_THE_HOST)]
    assert (verdict(build).cause == "oom-killed") == (age_s < build.waited_s)


def test_a_job_that_moves_has_not_died_of_a_sandbox() -> None:
    build = EvidenceBuilder()
    healthy(build)
    rank = killed_sandbox(build, (6, 7))
    rank.still_s, rank.wakes, rank.cpu_share = 0.1, 5, 0.0
    assert verdict(build).state not in ("dead", "stuck")


def test_who_reads_from_the_next_sandbox_has_forgotten_the_one_that_was_killed() -> None:
    build = EvidenceBuilder()
    rank = killed_sandbox(build, (6, 7))
    build.child(1, "reward", pid=501).stack = frames("solve /tmp/x.py:3")
    rank.blocks("pipe-read", "pipe:[5]", 501, peers_known=True)
    assert verdict(build).cause != "oom-killed"


def test_idle_workers_at_the_same_pipe_have_no_answer() -> None:
    build = EvidenceBuilder()
    rank = killed_sandbox(build, (6, 7))
    idle = frames("get /usr/lib/python3.11/multiprocessing/queues.py:103")
    build.child(1, "reward", pid=501).stack = idle
    rank.blocks("pipe-read", "pipe:[5]", 501, peers_known=True)
    expect(build, "oom-killed", 1, state="dead")


def test_who_asks_another_host_waits_for_that() -> None:
    build = EvidenceBuilder()
    rank = killed_sandbox(build, (6, 7))
    rank.blocks("socket-receive", "10.0.0.1:5 -> 10.0.0.9:443", peers_known=True)
    assert verdict(build).cause != "oom-killed"


def lost(waited_s: float | None, kernel: list[tuple[float, str]], *limits: Limits) -> Any:
    """Two ranks, 100 and 101, and kernel messages by age."""
    ranks = {rank: doubles.process(pid=100 + rank, rank=rank, limits=limits) for rank in (0, 1)}
    return SimpleNamespace(
        world=range(3),
        by_rank=ranks,
        wait_history=SimpleNamespace(waited_s=waited_s),
        evidence=Evidence(Job("a", ()), 0, host=HostFacts("a", 8, kernel=tuple(kernel))),
    )


def killed(pid: int) -> str:
    return f"Out of memory: Killed process {pid} (python)"


@pytest.mark.parametrize(
    ("waited_s", "age_s", "counts"),
    [(None, 10.0, True), (None, 10.1, False), (20.0, 30.0, True), (20.0, 30.1, False)],
)
def test_kills_since_ten_seconds_before_the_wait(
    waited_s: float | None, age_s: float, counts: bool
) -> None:
    view = lost(waited_s, [(age_s, killed(102)), (1.0, "eth0: link is up")])
    assert len(unassigned_kills(view)) == len(recent_oom(view)) == int(counts)


@pytest.mark.parametrize(
    ("pid", "near"), [(94, True), (93, False), (107, True), (108, False), (102, True)]
)
def test_a_kill_of_a_process_that_was_started_with_the_ranks(pid: int, near: bool) -> None:
    """Three ranks: at most twice as many numbers apart."""
    view = lost(20.0, [(5.0, killed(pid))])
    assert [item.text for item in recent_oom(view)] == ([killed(pid)] if near else [])
    assert unassigned_kills(view)[0].text.startswith(killed(pid))


def test_the_last_two_kills_are_told() -> None:
    view = lost(20.0, [(9.0, killed(1)), (8.0, killed(2)), (7.0, killed(3))])
    assert [item.text.partition(";")[0] for item in unassigned_kills(view)] == [
        killed(2),
        killed(3),
    ]


@pytest.mark.parametrize(
    ("kernel", "limit", "kills", "reported"),
    [
        ([], 1000, 2, True),
        ([], None, 2, False),  # a group without a limit has counted those of the whole host
        ([(5.0, killed(900))], None, 2, True),
        ([], 1000, 0, False),
    ],
)
def test_the_count_of_a_control_group_stands_for_a_kill_that_names_no_process(
    kernel: list[tuple[float, str]], limit: int | None, kills: int, reported: bool
) -> None:
    view = lost(20.0, kernel, Limits(100, memory_limit_bytes=limit, oom_kills=kills))
    assert [item.text for item in recent_oom(view)] == (
        [f"the ranks' control group counts {kills} OOM kills"] if reported else []
    )


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


def test_a_rank_that_waits_for_others_does_not_swap_for_them() -> None:
    build = EvidenceBuilder()
    build.elsewhere(2, RUNS_TESTS)
    waiting = build.rank(1)
    waiting.major_faults, waiting.swap_bytes = int(5000 * BETWEEN_S), 1 << 30
    assert verdict(build).cause != "memory-swapped"


@pytest.mark.parametrize(
    ("limits", "room"),
    [
        (None, " does not provide, at train.py:31, clip"),
        (Limits(101), " does not provide, at train.py:31, clip"),
        (
            Limits(101, memory_limit_bytes=2 * 10**9, memory_used_bytes=10**9),
            " does not provide: its control group uses 1.0 GB of 2.0 GB, at train.py:31, clip",
        ),
        (
            Limits(101, memory_limit_bytes=2 * 10**9),
            " does not provide: its control group uses 0 B of 2.0 GB, at train.py:31, clip",
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


@pytest.mark.parametrize(
    ("how", "labels"),
    [("gone", 1), ("alive", 0), ("of nobody", 0), ("of a lost rank", 0), ("of one at work", 0)],
)
def test_a_process_that_was_killed_matters_to_a_rank_that_stands(how: str, labels: int) -> None:
    build = EvidenceBuilder()
    killed_sandbox(build, (6, 7))
    if how == "alive":
        build.processes[500].state = "S"
    elif how == "of nobody":
        build.processes[500].member = replace(build.processes[500].member, rank=None)
    elif how == "of a lost rank":
        build.lose(1)
    elif how == "of one at work":
        build.rank(1).works(RUNS_TESTS)
    assert len(proposed(memory, build)) == labels


def test_who_waits_for_others_does_not_wait_for_its_killed_process() -> None:
    build = EvidenceBuilder()
    sandbox = build.child(1, "reward", pid=500)
    sandbox.state, sandbox.exit_code = "Z", 9
    sandbox.limits = (Limits(500, oom_kills=6), Limits(500, oom_kills=7))
    assert proposed(memory, build) == ()


def test_a_rank_that_was_killed_is_no_process_of_another() -> None:
    build = EvidenceBuilder()
    build.rank(3).state, build.rank(3).exit_code = "Z", 9
    build.rank(3).limits = (Limits(103, oom_kills=6), Limits(103, oom_kills=7))
    assert proposed(memory, build) == ()
