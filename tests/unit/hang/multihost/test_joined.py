"""Several hosts become one verdict: right rank on the right host, in whatever order they come."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace as replace_struct

from grpo_doctor.hang.collection import bundle
from grpo_doctor.hang.diagnose import diagnose
from grpo_doctor.hang.multihost.join import DifferentJobsError, joined, with_hosts
from grpo_doctor_probes.evidence import Evidence, Placement, Problem
from tests.evidence import EvidenceBuilder, frames
from tests.several_hosts import later, on_hosts
from tests.unit.hang.multihost.jobs import judged, skipped, stopped


def asleep_in_reward(rank: int = 6, ranks: int = 8) -> Evidence:
    build = EvidenceBuilder(ranks=ranks)
    process = build.elsewhere(rank, frames("compute_rewards /home/me/rewards.py:31"))
    process.still_s = 60.0
    build.waited_s = 60.0
    return build.build()


@pytest.mark.parametrize("per_host", [1, 2, 3, 4, 8])
def test_the_culprit_is_named_with_its_host_and_its_real_process(per_host: int) -> None:
    diagnosis = judged(on_hosts(stopped(), per_host))
    assert diagnosis.verdict.cause == "rank-stopped"
    assert diagnosis.verdict.culprits == (5,)
    assert set(diagnosis.verdict.victims) == {0, 1, 2, 3, 4, 6, 7}
    if per_host < 8:
        host, pid = f"node{5 // per_host}", 100 + 5 % per_host
        assert diagnosis.verdict.summary.startswith(f"Rank 5 on {host} is stopped")
        assert (
            f"kill -CONT {pid}  # on {host}: the job must resume immediately"
            in diagnosis.verdict.confirm
        )
        assert f"pid {pid} on {host}" in diagnosis.verdict.evidence[0].text
        row = next(row for row in diagnosis.ranks if row.rank == 5)
        assert (row.pid, row.host) == (pid, host)


@pytest.mark.parametrize("case", [stopped, asleep_in_reward, skipped])
@pytest.mark.parametrize("per_host", [1, 2, 3, 4])
def test_several_hosts_are_judged_as_one_host_with_all_ranks_is(case: type, per_host: int) -> None:
    expected = diagnose(case()).verdict
    verdict = judged(on_hosts(case(), per_host)).verdict
    assert (verdict.state, verdict.cause, verdict.culprits) == (
        expected.state,
        expected.cause,
        expected.culprits,
    )
    assert verdict.victims == expected.victims
    assert verdict.confidence == expected.confidence


@pytest.mark.parametrize("case", [stopped, asleep_in_reward, skipped])
def test_the_order_of_the_bundles_never_matters(case: type) -> None:
    parts = on_hosts(case(ranks=12), 2)
    parts += [later(parts[0], -300), later(parts[3], -700)]
    expected = joined(parts)
    shuffler = random.Random(4)
    for _ in range(10):
        shuffler.shuffle(parts)
        assert joined(parts) == expected


def test_nothing_but_the_hosts_numbers_is_left_of_the_joining() -> None:
    text = str(msgspec.to_builtins(judged(on_hosts(stopped(), 4)).verdict))
    text += str(msgspec.to_builtins(judged(on_hosts(stopped(), 4)).stacks))
    assert "000000000" not in text


def test_bundles_of_two_jobs_are_refused_with_both_addresses_and_run_ids() -> None:
    node0, node1 = on_hosts(stopped(), 4, run_id="r1")
    strange = replace(
        node1,
        job=replace(
            node1.job, address="node7:29999", placements=(Placement("node1", run_id="r2"),)
        ),
    )
    with pytest.raises(DifferentJobsError) as refused:
        joined([node0, strange])
    for word in ("node0:29500", "node7:29999", "r1", "r2"):
        assert word in str(refused.value)


def test_hostile_host_names_stay_in_their_place() -> None:
    node0, node1 = on_hosts(stopped(), 4)
    evil = replace(node1, job=replace(node1.job, host="a\nrm -rf /\x1b[31m"))
    diagnosis = judged([node0, evil])
    assert diagnosis.verdict.culprits == (5,)
    assert all(line.isprintable() for line in diagnosis.verdict.confirm)


def test_a_missing_host_is_named_by_its_ranks_and_never_called_dead() -> None:
    parts = on_hosts(asleep_in_reward(rank=11, ranks=12), 4, hosts=("node0", "node1", "node2"))
    diagnosis = judged(parts[:2])
    assert diagnosis.job.ranks_missing == (8, 9, 10, 11)
    assert not diagnosis.verdict.cause.endswith("dead")
    assert not set(diagnosis.verdict.culprits) & set(range(8))
    assert "ranks 8-11" in diagnosis.verdict.summary
    assert "node2" in diagnosis.verdict.summary


def test_what_could_not_be_seen_is_said_once_with_its_hosts() -> None:
    parts = [
        replace(evidence, problems=(Problem("py-spy is not here.", "Install it."),))
        for evidence in on_hosts(stopped(), 2)
    ]
    assert [p.what for p in joined(parts).problems] == [
        "On node0, node1, node2, node3: py-spy is not here."
    ]


def test_kernel_messages_are_of_the_host_that_wrote_them() -> None:
    build = EvidenceBuilder(ranks=8)
    build.rank(5).state = "Z"
    node0, node1 = on_hosts(build.build(), 4)
    assert node0.host
    killed = ((5.0, "Out of memory: Killed process 101 (python)"),)  # rank 5's number, and rank 1's
    elsewhere = replace(node0, host=replace(node0.host, kernel=killed))
    assert judged([elsewhere, node1]).verdict.cause == "rank-dead"
    assert node1.host
    own = replace(node1, host=replace(node1.host, kernel=killed))
    assert judged([node0, own]).verdict.cause == "oom-killed"


def test_what_was_joined_before_is_not_joined_again() -> None:
    parts = on_hosts(stopped(), 4)
    evidence = joined(parts)
    assert joined([evidence]) == evidence
    assert joined([*parts, evidence]) == evidence


def test_only_references_become_processes_and_a_joined_bundle_keeps_them(tmp_path: Path) -> None:
    """A size of 13 digits is none, whatever stands before it."""
    build = EvidenceBuilder(ranks=8)
    build.rank(5).state = "T"
    evidence = joined(on_hosts(build.build(), 4))
    diagnosis = diagnose(evidence)
    sentence = replace_struct(
        diagnosis.verdict, summary="process 1000000000105 of 1000000000101 bytes"
    )
    verdict = with_hosts(replace_struct(diagnosis, verdict=sentence), evidence.job).verdict
    assert verdict.summary == sentence.summary
    again = joined([bundle.read(bundle.write(tmp_path / "all", evidence, diagnosis))])
    assert with_hosts(diagnose(again), again.job) == with_hosts(diagnosis, evidence.job)


@pytest.mark.parametrize(
    ("local", "world", "expected"),
    [
        ((4, 4), 8, 8),  # all are here
        ((5, 5), 8, 8),
        ((4, 3), 8, 4),
        ((None, 4), 8, 4),
        ((None, None), 8, None),
        ((4, 4), None, 4),
    ],
)
def test_how_many_ranks_a_host_is_said_to_have(
    local: tuple[int | None, int | None], world: int | None, expected: int | None
) -> None:
    hosts = [
        replace(evidence, job=replace(evidence.job, local_ranks=count, world_size=world))
        for evidence, count in zip(on_hosts(stopped(), 4), local, strict=True)
    ]
    assert joined(hosts).job.local_ranks == expected


def test_what_most_hosts_say_of_the_job_counts() -> None:
    parts = on_hosts(stopped(), 2)
    frameworks = ("unknown", "verl", "trl", "trl")
    hosts = [
        replace(
            part, job=replace(part.job, framework=name, run_dir="/run" if name == "verl" else "")
        )
        for part, name in zip(parts, frameworks, strict=True)
    ]
    job = joined(hosts).job
    assert (job.framework, job.run_dir) == ("trl", "/run")
    tied = [replace(p, job=replace(p.job, framework=f)) for p, f in zip(hosts, "baba", strict=True)]
    assert joined(tied).job.framework == "a"


def test_a_single_bundle_of_several_hosts_has_the_clock_of_one() -> None:
    evidence = joined(on_hosts(stopped(), 4))
    assert len(evidence.job.placements) == 2
    assert joined([evidence]) == joined([evidence, evidence])
    (single, _) = on_hosts(stopped(), 4)
    assert joined([single]) is single
    assert with_hosts(diagnose(single), single.job) == diagnose(single)
    assert joined([evidence, single]) is single
    with pytest.raises(ValueError, match="nothing to join"):
        joined([])
