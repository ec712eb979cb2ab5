"""The sample of CI: the same every day, and of every class some."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tests.faults.bench import planned
from tests.faults.registry import load
from tests.faults.sampling import FAULTS, HEALTHY, sample, spread


def test_the_sample_has_every_class_family_and_way_to_start_a_job() -> None:
    faults = list(load().values())
    chosen = sample(faults)
    assert len(chosen) == FAULTS
    assert {f.truth.classes[0] for f in chosen} == {f.truth.classes[0] for f in faults}
    assert {f.family for f in chosen} == {f.family for f in faults}
    assert {f.launch for f in chosen} == {f.launch for f in faults}


def test_frequent_classes_are_not_left_to_one_case_each() -> None:
    counts = Counter(fault.truth.classes[0] for fault in sample(load().values()))
    assert min(counts[name] for name in ("child-stuck", "reward-blocked", "rank-stopped")) >= 2


def test_neither_the_day_nor_the_order_of_declaration_changes_what_is_drawn() -> None:
    faults = list(load().values())
    assert {f.name for f in sample(faults)} == {f.name for f in sample(faults[::-1])}
    assert sorted(f.name for f in spread(faults)) == sorted(f.name for f in faults)


def test_a_new_fault_displaces_few() -> None:
    faults = list(load().values())
    new = replace(faults[0], name="a fault of tomorrow")
    before = {fault.name for fault in sample(faults)}
    assert len(before - {fault.name for fault in sample([*faults, new])}) <= 5


def test_the_healthy_jobs_of_the_sample_are_as_many_different_ones() -> None:
    chosen = planned(HEALTHY, [])
    assert [times for _, times in chosen if times] == [1] * HEALTHY
