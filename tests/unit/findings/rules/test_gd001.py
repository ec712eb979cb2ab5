"""Offload at its edges; `test_rule_details.py` has its usual runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.findings.rules.saying import even, finding_in, not_applicable, passed

ZERO = {"deepspeed.offload_optimizer": True}


def test_a_twentieth_of_the_step_is_enough() -> None:
    knobs = {"offload.optimizer": True}
    assert finding_in(even({"offload": 0.5}, knobs=knobs), "GD001").cost == 0.05
    assert "offload takes 4.9%" in passed(even({"offload": 0.49}, knobs=knobs), "GD001")
    assert not_applicable(even({"train": 5.0}, knobs=knobs), "GD001") == "nothing is offloaded"


def test_an_optimizer_of_a_tenth_of_the_step_is_slow() -> None:
    assert finding_in(even({"optimizer": 1.0}, knobs=ZERO), "GD001").cost == 0.1
    note = passed(even({"optimizer": 0.99}, knobs=ZERO), "GD001")
    assert note == "with ZeRO-Offload the optimizer takes 9.9% of the step"


@pytest.mark.parametrize(("offload_s", "phase"), [(0.5, "offload"), (0.49, "optimizer")])
def test_with_zero_offload_the_spans_are_judged_where_they_count(
    offload_s: float, phase: str
) -> None:
    finding = finding_in(even({"offload": offload_s, "optimizer": 2.0}, knobs=ZERO), "GD001")
    assert finding.phases == (phase,)


@pytest.mark.parametrize(
    ("facts", "preset", "spelling", "pasted"),
    [
        ({}, "zero2_offload", "--deepspeed zero2", True),
        (
            {},
            "ds.json",
            'set "zero_optimization.offload_optimizer.device": "none" in ds.json',
            True,
        ),
        (
            {"framework": "unknown"},
            None,
            'remove "offload_optimizer" from zero_optimization in the DeepSpeed configuration',
            False,
        ),
    ],
)
def test_zero_offload_is_switched_off_where_it_was_switched_on(
    facts: dict[str, Any], preset: str | None, spelling: str, pasted: bool
) -> None:
    knobs = {**ZERO, **({"deepspeed.preset": preset} if preset else {})}
    (fix,) = finding_in(even({"optimizer": 2.0}, knobs=knobs, **facts), "GD001").fixes
    assert (fix.spelling, fix.pasted) == (spelling, pasted)


@pytest.mark.parametrize(("collecting_s", "moves"), [(1.5, True), (1.51, False)])
def test_what_is_left_beside_the_collecting_is_what_counts(
    collecting_s: float, moves: bool
) -> None:
    build = even({"offload": 2.0}, knobs={"offload.optimizer": True})
    for number in range(4):
        build.span(0, "offload/collect", 10.0 * number, 10.0 * number + collecting_s, depth=2)
    if moves:
        finding = finding_in(build, "GD001")
        assert finding.severity == "low"
        assert finding.cost == pytest.approx(0.20)  # without offload nothing is collected either
    else:
        note = passed(build, "GD001")
        assert "20.0% of the step; 75.5% of that is garbage collection: see GD011" in note
