"""A job of which only the launcher is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.verdict import Verdict
from tests.evidence import FIRST_NS, SECOND, EvidenceBuilder, Process

NOW_TICKS = FIRST_NS * 100 // SECOND


def launching(age_s: float, *, hosts: int = 2) -> tuple[EvidenceBuilder, Process]:
    """A launcher of so many hosts with two ranks each, and none of its ranks."""
    build = EvidenceBuilder(2)
    for rank in range(2):
        build.lose(rank)
    build.world = 2 * hosts
    build.local_ranks = 2
    build.missing = set(range(2 * hosts))
    launcher = build.child(0, "launcher", pid=50, parent=1)
    launcher.member = replace(
        launcher.member,
        rank=None,
        command="torchrun --nnodes 2 --rdzv-endpoint=node0:29500 train.py",
        started_ticks=int(NOW_TICKS - age_s * 100),
    )
    return build, launcher


def verdict_on(build: EvidenceBuilder) -> Verdict:
    return diagnose(build.build()).verdict


def test_a_host_that_does_not_come_is_waited_for_at_the_named_rendezvous() -> None:
    build, _ = launching(300)
    found = verdict_on(build)
    assert (found.state, found.cause, found.culprits) == ("stuck", "rank-missing", (0, 1, 2, 3))
    assert "at the rendezvous node0:29500 for the other host for 5 min" in found.summary
    assert "other hosts" in found.fixes[0].text


@pytest.mark.parametrize("works", [False, True])
def test_hosts_start_one_after_the_other_and_some_slowly(works: bool) -> None:
    build, launcher = launching(300 if works else 20)
    if works:
        launcher.works(())
    found = verdict_on(build)
    assert (found.state, found.culprits) == ("slow", ())
    assert found.summary.startswith("No rank has been started yet: the launcher (pid 50) has")


def test_a_launcher_of_one_host_is_not_said_to_wait_for_others() -> None:
    build, _ = launching(300, hosts=1)
    found = verdict_on(build)
    assert (found.state, found.cause) == ("stuck", "rank-missing")
    assert "host" not in found.summary
    assert found.confirm == ("py-spy dump --pid 50",)


def test_a_launcher_that_ends_has_ended_the_job() -> None:
    build, launcher = launching(300)
    launcher.state, launcher.exit_code = "Z", 1
    found = verdict_on(build)
    assert "ended" in found.summary
    assert found.state != "stuck"
