"""Hosts are looked at one after the other: what of their looks still counts, by which clock."""

from __future__ import annotations

from dataclasses import replace

from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.multihost.join import joined
from tests.evidence import EvidenceBuilder
from tests.several_hosts import later, on_hosts
from tests.unit.hang.multihost.jobs import judged, skipped, stopped


def test_looks_of_hosts_with_two_and_three_looks_are_compared_first_with_last() -> None:
    node0, node1 = on_hosts(stopped(), 4)
    three = replace(
        node0, looks=(*node0.looks, node0.looks[1]), stacks=(*node0.stacks, node0.stacks[1])
    )
    evidence = joined([three, node1])
    assert [len(look.processes) for look in evidence.looks] == [8, 4, 8]
    assert diagnose(evidence).verdict.culprits == (5,)


def test_of_two_bundles_of_a_host_the_newer_counts() -> None:
    node0, node1 = on_hosts(stopped(), 4)
    healthy = on_hosts(EvidenceBuilder(ranks=8).build(), 4)[1]
    diagnosis = judged([node0, later(healthy, -20), node1])
    assert diagnosis.verdict.culprits == (5,)
    assert any("two bundles" in problem.what for problem in diagnosis.problems)


def test_a_look_of_minutes_ago_is_doubted_aloud() -> None:
    build = EvidenceBuilder(ranks=8)
    build.rank(5).state = "T"
    build.waited_s = 900.0
    node0, node1 = on_hosts(build.build(), 4)
    diagnosis = judged([node0, later(node1, -300)])
    assert any("5 min older" in problem.what for problem in diagnosis.problems)
    assert diagnosis.verdict.certainty == "possible"


def test_a_look_from_before_the_job_moved_on_is_left_out() -> None:
    node0, node1 = on_hosts(stopped(), 4)
    evidence = joined([node0, later(node1, -3_600)])
    assert {member.rank for member in evidence.job.members} == {0, 1, 2, 3}
    assert any("has moved since" in problem.what for problem in evidence.problems)


def test_a_job_that_moves_between_the_looks_is_not_called_stuck() -> None:
    node0, node1 = on_hosts(skipped(), 4)
    diagnosis = judged([node0, later(node1, -30)])
    assert diagnosis.verdict.state != "stuck"
    assert any(
        "has moved since" in what for what in [problem.what for problem in diagnosis.problems]
    )
