from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import NotApplicable, Passed
from grpo_doctor.findings.rules import gd030_bursty_loading as rule
from grpo_doctor.whatif.loader_queue import waits_for_data
from tests.build import TraceBuilder
from tests.unit.findings.recorded import count, finding_by, judged, knob, number

FACTS: dict[str, Any] = {"framework": "ms-swift", "framework_version": "4.5.0"}
KNOBS: dict[str, Any] = {"dataload.num_workers": 2, "dataload.persistent_workers": False}


def loads(waits: list[float], **more: Any) -> TraceBuilder:
    build = TraceBuilder(knobs={**KNOBS, **more}, **FACTS)
    now = 0.0
    for step, wait in enumerate(waits):
        build.step(0, step, now, {"dataload": wait, "rollout": 3.0, "train": 1.0})
        now += wait + 4.0
    return build


RESTARTS = ([0.05] * 5 + [3.0]) * 4


def sick() -> TraceBuilder:
    return loads(RESTARTS)


def well() -> TraceBuilder:
    return loads([0.05] * 24)


def test_restarted_processes_are_told_by_the_distance_of_their_waits() -> None:
    finding = finding_by(rule, sick())
    # 4 times 2.95 s in 24 steps of 5.0 - 0.05... s on average
    step_s = 4 + (20 * 0.05 + 4 * 3.0) / 24
    assert finding.cost == pytest.approx(4 * 2.95 / 24 / step_s, rel=1e-3)
    assert number(finding, "interval") == 6
    assert finding.fixes[0].knob == "dataload.persistent_workers"
    predicted = finding.fixes[0].predicted
    assert predicted is not None
    assert predicted.mid == pytest.approx(-100 * finding.cost, abs=0.2)
    assert finding.steps == (5, 11, 17, 23)


def test_persistent_processes_are_not_restarted() -> None:
    finding = finding_by(rule, loads(RESTARTS, **knob("dataload.persistent_workers", True)))
    assert finding.fixes[0].knob == "dataload.prefetch_factor"
    assert "the time of each batch" in finding.fixes[0].risk


def test_waits_at_the_distance_of_the_processes_are_no_restarts() -> None:
    finding = finding_by(rule, loads([0.05, 0.05, 1.0] * 8, **knob("dataload.num_workers", 3)))
    assert finding.fixes[0].knob == "dataload.prefetch_factor"


def test_a_longer_queue_is_replayed_from_the_recorded_batches() -> None:
    # One process, batches of 1 s and each sixth of 11 s; a step without waiting takes 4 s.
    efforts = [1.0, 1.0, 1.0, 1.0, 1.0, 11.0] * 4
    waits = [3.0 if effort > 5 else 0.001 for effort in efforts]
    build = loads(waits, **knob("dataload.num_workers", 1), **knob("dataload.prefetch_factor", 2))
    count(build, "dataload/read_s", lambda _, step: efforts[step])
    finding = finding_by(rule, build)
    fix = finding.fixes[0]
    assert (fix.knob, fix.after) == ("dataload.prefetch_factor", 4)
    assert fix.predicted is not None
    assert fix.predicted.mid == pytest.approx(-100 * finding.cost, abs=1.0)


@pytest.mark.parametrize(
    "waits", [[0.05] * 11 + [3.0], [0.05] * 5, [1.0] * 20], ids=["one", "few", "even"]
)
def test_single_few_and_even_waits_are_no_bursts(waits: list[float]) -> None:
    assert isinstance(judged(rule, loads(waits)), Passed)


def test_without_loader_processes_the_question_does_not_arise() -> None:
    answer = judged(rule, loads(RESTARTS, **knob("dataload.num_workers", 0)))
    assert isinstance(answer, NotApplicable)


def test_two_bursts_are_enough() -> None:
    assert finding_by(rule, loads(([0.05] * 9 + [3.0]) * 2)).steps == (9, 19)


def test_steps_that_fetch_nothing_say_nothing_of_the_usual_wait() -> None:
    answer = judged(rule, loads([0.5] * 7 + [0.0] * 9))
    assert answer == Passed("data loading is even, as far as measured")
    assert finding_by(rule, loads([0.125, 0.0] * 8 + [3.0, 0.0] * 2)).steps == (16, 18)


def test_a_burst_is_more_than_three_usual_waits_and_more_than_a_twentieth_of_a_step() -> None:
    # Three usual waits are 0.375 s; a twentieth more than the usual one is some 0.36 s.
    waits = [0.125] * 16 + [0.375, 0.376, 3.0, 3.0, 3.0]
    assert finding_by(rule, loads(waits)).steps == (17, 18, 19, 20)
    # Of a usual wait of 0.05 s the twentieth decides: some 0.28 s.
    assert finding_by(rule, loads([0.05] * 16 + [0.2, 0.25, 3.0, 3.0, 3.0])).steps == (18, 19, 20)


@pytest.mark.parametrize(("gap", "distance"), [(5, 6), (6, 6), (7, None)])
def test_a_distance_may_differ_by_one_step(gap: int, distance: int | None) -> None:
    waits = [0.05] * 5 + [3.0] + [0.05] * 5 + [3.0] + [0.05] * gap + [3.0]
    finding = finding_by(rule, loads(waits))
    distances = [e.value for e in finding.evidence if e.text == "interval between them"]
    assert distances == ([] if distance is None else [distance])


@pytest.mark.parametrize(("ahead", "advised"), [(2, 8), (4, 16), (8, 16), (16, 32)])
def test_without_the_times_of_batches_the_queue_grows_by_two_sizes(
    ahead: int, advised: int
) -> None:
    persistent = knob("dataload.persistent_workers", True)
    build = loads(RESTARTS, **persistent, **knob("dataload.prefetch_factor", ahead))
    assert finding_by(rule, build).fixes[0].after == advised


def timed(waits: list[float], efforts: list[float], **knobs: Any) -> TraceBuilder:
    """A run whose loaders said what each batch took."""
    build = loads(waits, **knobs)
    return count(build, "dataload/read_s", lambda _, step: efforts[step])


def test_the_smallest_queue_that_helps_is_larger_than_the_present_one() -> None:
    # One process; a batch of 27 s, of which four batches of 4 s that are ready hide 16 s.
    efforts = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 27.0] * 3
    waits = [11.0 if effort > 5 else 0.001 for effort in efforts]
    knobs = {"dataload.num_workers": 1, "dataload.prefetch_factor": 4}
    fix = finding_by(rule, timed(waits, efforts, **knobs)).fixes[0]
    assert fix.after == 8
    assert fix.predicted is not None
    assert "8 instead of 4 batches ready per loader process" in fix.predicted.basis


def test_batches_that_explain_the_waits_are_no_restarts_however_little_is_known() -> None:
    efforts = [1.0, 1.0, 1.0, 1.0, 1.0, 11.0] * 4
    waits = [3.0 if effort > 5 else 0.001 for effort in efforts]
    build = timed(waits, efforts, **knob("dataload.num_workers", 1))
    build.framework = "unknown"  # so that nobody knows how many batches are ready
    finding = finding_by(rule, build)
    assert finding.headline == ""
    assert finding.fixes[0].knob == "dataload.prefetch_factor"


def test_a_longer_queue_is_that_of_all_the_processes_that_there_are() -> None:
    # Two processes have the time for all batches, and one has not; two long ones of twenty seconds
    # outlast what lies ready.
    efforts = [2.0, 2.0, 2.0, 2.0, 20.0, 20.0] * 4
    waits = waits_for_data(efforts, [4.0] * len(efforts), workers=2, prefetch=2)
    knobs = {"dataload.num_workers": 2, "dataload.prefetch_factor": 2}
    build = timed([max(wait, 0.001) for wait in waits.tolist()], efforts, **knobs)
    fix = finding_by(rule, build).fixes[0]
    assert (fix.knob, fix.after) == ("dataload.prefetch_factor", 4)
    assert fix.predicted is not None
