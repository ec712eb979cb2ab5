"""Dumps of other runs, moments and jobs in one folder do not count."""

from __future__ import annotations

import dataclasses
import random

import pytest

from grpo_doctor.hang.dumps import read
from grpo_doctor.hang.model.matching.match import match
from grpo_doctor_probes.evidence import FlightDump
from tests.dumps.cases import BY_NAME, GROUPS, healthy
from tests.dumps.formats import dumps
from tests.dumps.simulator import Call, Job, job
from tests.verdicts import of_dumps

CULPRIT = 5
FULL = BY_NAME["missing rank"].build()


def earlier_run(rounds: int) -> Job:
    return job(GROUPS, {rank: healthy(rank, rounds) for rank in range(8)}).run()


def folder(rank: int, rounds: int) -> list[FlightDump]:
    """The stuck job's dumps, but that `rank`'s file is still that of an earlier run."""
    files = dumps(FULL)
    files[rank] = dumps(earlier_run(rounds))[rank]
    return files


@pytest.mark.parametrize("rounds", [3, 40], ids=["shorter", "longer"])
def test_a_file_of_an_earlier_run_is_left_out_and_named(rounds: int) -> None:
    files = folder(2, rounds)
    recordings = read(files)
    assert [recording.rank for recording in recordings.ranks] == [0, 1, 3, 4, 5, 6, 7]
    (problem,) = recordings.problems
    assert problem.rank == 2
    assert "another run" in problem.what
    assert of_dumps(files).culprits == (CULPRIT,)


@pytest.mark.parametrize("rounds", [3, 40], ids=["shorter", "longer"])
def test_a_rank_that_left_only_an_old_file_is_as_one_without_any(rounds: int) -> None:
    (blame,) = match(read(folder(CULPRIT, rounds))).blame
    assert (blame.rank, blame.reason) == (CULPRIT, "not-recorded")


def test_the_order_of_files_decides_nothing() -> None:
    files = folder(2, 40)
    expected = read(files)
    random.Random(7).shuffle(files)
    assert read(files) == expected


def test_who_is_behind_or_calls_another_operation_is_of_the_same_moment() -> None:
    for name in ("missing rank", "other operation", "skipped", "groups in another order"):
        assert len(read(dumps(BY_NAME[name].build())).ranks) == 8


def test_without_a_majority_nobody_is_left_out() -> None:
    halves = [*dumps(FULL)[:4], *dumps(earlier_run(40))[4:]]
    assert len(read(halves).ranks) == 8


def test_what_was_asked_of_the_process_is_of_now() -> None:
    files = folder(2, 3)
    files[2] = dataclasses.replace(files[2], source="ptrace")
    assert len(read(files).ranks) == 8


@pytest.mark.parametrize("later_ns", [-(10**12), 10**12], ids=["before", "after"])
def test_an_engines_own_world_does_not_stand_for_the_trainers_ranks(later_ns: int) -> None:
    own = job({"0": range(2)}, {r: [Call("all_reduce")] * 9 for r in range(2)}).run()
    beside = [
        dataclasses.replace(dump, source=f"file:/d/vllm_{dump.rank}", at_unix_ns=at)
        for dump in dumps(own)
        for at in [dump.at_unix_ns + later_ns]
    ]
    recordings = read([*beside, *dumps(FULL)])
    assert recordings.ranks == read(dumps(FULL)).ranks
    assert [problem.source for problem in recordings.problems] == [
        "file:/d/vllm_0",
        "file:/d/vllm_1",
    ]
    assert "2 ranks" in recordings.problems[0].what


@pytest.mark.parametrize(("op", "elements"), [("all_to_all", 64), ("all_reduce", 0)])
def test_a_collective_that_may_end_without_a_member_rules_nobody_out(
    op: str, elements: int
) -> None:
    """Seven are through with a last one that the eighth has not called."""
    rounds = {rank: [*[Call("all_reduce")] * 5, Call(op, elements=elements)] for rank in range(8)}
    files = dumps(job({"0": range(8)}, rounds).run())
    behind = dumps(job({"0": range(8)}, {rank: rounds[rank][:5] for rank in range(8)}).run())
    assert len(read([*files[:7], behind[7]]).ranks) == 8
