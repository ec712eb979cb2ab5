"""Jobs under NCCL's rules: who is blamed, however files are ordered and ranks numbered."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpo_doctor.hang import dumps
from grpo_doctor.hang.model.matching.match import match
from tests.nccl_rules.cases import DEVELOPMENT, Case, drawn
from tests.nccl_rules.faults import KINDS
from tests.nccl_rules.score import BLAMELESS, answer
from tests.unit.hang import sampled
from tests.verdicts import of_dumps

SEED = 7
TOLD_BY_COUNTERS = ("host stalled", "process dead", "two hosts stalled")


def case_of(kind: str) -> Case:
    return sampled.simulated(kind, SEED)


@pytest.mark.parametrize("kind", KINDS)
def test_the_culprits_are_named_and_nobody_else(kind: str) -> None:
    outcome = answer(case_of(kind))
    assert outcome.reason_right, (outcome.culprits, outcome.reasons)
    assert not outcome.wrong_ring


@pytest.mark.parametrize("seed", [2, 4, 9, 11])
def test_a_transfer_left_out_is_told_by_ranks_at_the_same_place(seed: int) -> None:
    outcome = answer(drawn("transfer skipped", seed, DEVELOPMENT))
    assert outcome.reason_right, (outcome.culprits, outcome.reasons)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=2, deadline=None)
@given(seed=st.integers(0, 999))
def test_the_order_of_files_changes_nothing_at_all(kind: str, seed: int) -> None:
    case = case_of(kind)
    files = list(case.files)
    straight = match(dumps.read(files), case.world)
    random.Random(seed).shuffle(files)
    assert match(dumps.read(files), case.world) == straight


@pytest.mark.parametrize("kind", ["host stalled", "GPU hung", "two hosts stalled", "wrong size"])
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_without_the_file_of_a_healthy_rank_nobody_else_is_named(
    kind: str, data: st.DataObject
) -> None:
    case = case_of(kind)
    healthy = sorted({dump.rank for dump in case.files if dump.rank is not None} - case.culprits)
    missing = data.draw(st.sampled_from(healthy))
    files = [dump for dump in case.files if dump.rank != missing]
    ruling = of_dumps(files, case.world)
    assert set(ruling.culprits) <= case.culprits


@pytest.mark.parametrize("kind", [*TOLD_BY_COUNTERS, *BLAMELESS])
def test_counters_alone_tell_of_hosts_that_do_not_come(kind: str) -> None:
    outcome = answer(sampled.simulated(kind, SEED, counters=True))
    assert outcome.right, outcome.culprits


def test_who_has_finished_all_that_it_gave_is_idle_by_entries_and_by_counters() -> None:
    for counters in (False, True):
        case = sampled.simulated("host stalled", SEED, counters=counters)
        (culprit,) = case.culprits
        matched = match(dumps.read(case.files), case.world)
        assert culprit in matched.idle
        assert matched.idle < set(matched.heard)


def test_four_ranks_that_use_two_groups_in_different_order_one_against_three() -> None:
    """Hosts run ahead, so every rank has given both."""
    from tests.nccl_rules.programs import Groups
    from tests.nccl_rules.recorder import Recorder, dump
    from tests.nccl_rules.world import Rank, Step, World

    groups = Groups()
    groups.add("default_pg", (0, 1, 2, 3))
    groups.add("sync", (0, 1, 2, 3))
    first, second = (
        Step("launch", "all_reduce", name, (size,), (size,)) for name, size in (("0", 8), ("1", 9))
    )
    ranks = {
        rank: Rank(rank, [second, first] if rank == 2 else [first, second]) for rank in range(4)
    }
    world = World(groups.members, ranks).run()
    for active in (False, True):
        how = Recorder(active=active)
        files = [dump(world, groups, rank, 2e9, how, 2e9) for rank in range(4)]
        matched = match(dumps.read(files), 4)
        assert [(blame.rank, blame.reason) for blame in matched.blame] == [(2, "out-of-order")]
        assert len(matched.cycles) == 1
