from __future__ import annotations

from typing import Any

import pytest

from grpo_doctor.findings.rule import NotApplicable, Passed
from grpo_doctor.findings.rules import gd030_bursty_loading as rule
from tests.build import TraceBuilder
from tests.unit.findings.recorded import count, found, judged, knob, number

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
    finding = found(rule, sick())
    # 4 times 2.95 s in 24 steps of 5.0 - 0.05... s on average
    step_s = 4 + (20 * 0.05 + 4 * 3.0) / 24
    assert finding.cost == pytest.approx(4 * 2.95 / 24 / step_s, rel=1e-3)
    assert number(finding, "distance") == 6
    assert finding.fixes[0].knob == "dataload.persistent_workers"
    predicted = finding.fixes[0].predicted
    assert predicted is not None
    assert predicted.mid == pytest.approx(-100 * finding.cost, abs=0.2)
    assert finding.steps == (5, 11, 17, 23)


def test_persistent_processes_are_not_restarted() -> None:
    finding = found(rule, loads(RESTARTS, **knob("dataload.persistent_workers", True)))
    assert finding.fixes[0].knob == "dataload.prefetch_factor"
    assert "how long each batch takes" in finding.fixes[0].risk


def test_waits_at_the_distance_of_the_processes_are_no_restarts() -> None:
    finding = found(rule, loads([0.05, 0.05, 1.0] * 8, **knob("dataload.num_workers", 3)))
    assert finding.fixes[0].knob == "dataload.prefetch_factor"


def test_a_longer_queue_is_replayed_from_the_recorded_batches() -> None:
    # One process, batches of 1 s and each sixth of 11 s; a step without waiting takes 4 s.
    efforts = [1.0, 1.0, 1.0, 1.0, 1.0, 11.0] * 4
    waits = [3.0 if effort > 5 else 0.001 for effort in efforts]
    build = loads(waits, **knob("dataload.num_workers", 1), **knob("dataload.prefetch_factor", 2))
    count(build, "dataload/read_s", lambda _, step: efforts[step])
    finding = found(rule, build)
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
