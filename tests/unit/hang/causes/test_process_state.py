"""Ranks that may not run, or have ended."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor_probes.evidence import Limits
from tests.evidence import EvidenceBuilder, without_communication
from tests.verdicts import REWARD, UPDATE, expect, verdict


def test_a_stopped_rank() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(2, REWARD)
    process.state, process.wchan = "T", "do_signal_stop"
    found = expect(build, "rank-stopped", 2)
    assert found.verdict.summary == (
        "Rank 2 is stopped (SIGSTOP) in reward (rewards.py:31, check); "
        "ranks 0, 1, 3 wait for it in all_reduce."
    )
    assert found.verdict.victims == (0, 1, 3)
    assert [(one.kind, one.pid) for one in found.undo] == [("continue", 102)]
    assert found.verdict.phase == "reward"


def test_a_rank_stopped_inside_the_collective() -> None:
    build = EvidenceBuilder()
    build.rank(1).state = "T"
    expect(build, "rank-stopped", 1)


def test_two_stopped_ranks() -> None:
    build = EvidenceBuilder()
    for rank in (1, 3):
        build.elsewhere(rank, REWARD).state = "T"
    said = expect(build, "rank-stopped", 1, 3).verdict
    assert said.summary.startswith("Ranks 1, 3 are stopped")
    assert said.summary.endswith("ranks 0, 2 wait for them in all_reduce.")


def test_a_frozen_rank_proposes_to_thaw_it() -> None:
    build = EvidenceBuilder()
    process = build.elsewhere(0, REWARD)
    file = "/sys/fs/cgroup/job/cgroup.freeze"
    process.limits = (Limits(100, True, file), Limits(100, True, file))
    found = expect(build, "rank-stopped", 0)
    assert [(one.kind, one.target) for one in found.undo] == [("thaw", file)]


def test_a_dead_rank() -> None:
    build = EvidenceBuilder()
    process = build.rank(3)
    process.state, process.exit_code = "Z", 9
    found = expect(build, "rank-dead", 3, state="dead")
    assert "killed by SIGKILL" in found.verdict.summary


def test_a_rank_that_is_gone() -> None:
    build = EvidenceBuilder()
    build.lose(1)
    expect(build, "rank-dead", 1, state="dead")


def test_a_rank_killed_for_memory() -> None:
    build = EvidenceBuilder()
    build.rank(3).state = "Z"
    build.kernel = [(9.0, "Memory cgroup out of memory: Killed process 103 (python)")]
    expect(build, "oom-killed", 3, state="dead")


def test_a_helper_that_outlived_its_rank_is_not_the_rank() -> None:
    build = EvidenceBuilder()
    helper = without_communication(build, 2)
    helper.member = replace(helper.member, parent=1)
    expect(build, "rank-dead", 2, state="dead")


def test_of_several_that_are_gone_who_was_first_may_not_be_known() -> None:
    """Rank 1 was killed and its launcher's caller took the status; rank 0 raised because of it."""
    build = EvidenceBuilder(2)
    for rank, code in ((0, 1 << 8), (1, None)):
        build.rank(rank).state, build.rank(rank).exit_code = "Z", code
    found = verdict(build)
    assert (found.state, found.cause, found.culprits) == ("dead", "rank-dead", (0, 1))
    assert "first is not known" in found.summary
    assert "exit code" not in found.summary
    assert found.confidence <= 0.6


def test_a_rank_that_ends_while_the_others_go_on_is_the_end_of_the_job_perhaps() -> None:
    build = EvidenceBuilder()
    for rank in range(4):
        build.elsewhere(rank, UPDATE).works(UPDATE)
    build.rank(1).state, build.rank(1).exit_code = "Z", 0
    found = verdict(build)
    assert (found.state, found.cause, found.culprits) == ("slow", "", ())
    assert found.summary.startswith("Rank 1 ended while the job was looked at, and 3 others go on")


def test_a_rank_without_a_stack_does_not_compute_without_end() -> None:
    build = EvidenceBuilder()
    build.rank(1).state, build.rank(1).exit_code = "Z", None
    for rank in (0, 2, 3):
        build.elsewhere(rank, ()).works((), moves=False)
    assert verdict(build).cause != "user-code-busy"
