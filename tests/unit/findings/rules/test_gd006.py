"""Unused GPU memory at its edges; `test_rule_details.py` has its usual runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.findings.example_runs import SETTINGS, offloaded, run
from tests.unit.findings.rules.saying import finding_in, passed


@pytest.mark.parametrize(
    ("peak_gib", "severity"),
    [(60.0, "low"), (40.1, "low"), (40.0, "medium"), (8.0, "medium"), (7.9, "info")],
)
def test_how_much_is_free_decides_how_grave_it_is(peak_gib: float, severity: str) -> None:
    assert finding_in(run(memory_gib=(5.0, peak_gib)), "GD006").severity == severity


def test_less_than_a_quarter_is_not_unused() -> None:
    assert "reaches 75% of its memory" in passed(run(memory_gib=(5.0, 60.1)), "GD006")


@pytest.mark.parametrize(
    ("memory_gib", "switched_on", "advised"),
    [
        ((30.0, 50.0), True, True),
        ((60.0, 60.0), True, False),  # with 20 GiB more it would be full
        ((30.0, 50.0), False, False),
    ],
)
def test_offload_is_switched_off_where_it_is_on_and_there_is_room(
    memory_gib: tuple[float, float], switched_on: bool, advised: bool
) -> None:
    build = offloaded(memory_gib)
    build.knobs["offload.optimizer"] = switched_on
    knobs = [fix.knob for fix in finding_in(build, "GD006").fixes]
    assert ("offload.optimizer" in knobs) is advised


@pytest.mark.parametrize(
    ("share", "raised"), [(0.52, [0.65]), (0.74, [0.85]), (0.85, [0.9]), (0.9, [])]
)
def test_vllm_gets_what_is_free_less_a_tenth(share: float, raised: list[float]) -> None:
    knobs: dict[str, Any] = {**SETTINGS, "vllm.gpu_memory_utilization": share}
    # A quarter is free; what is kept free of it is a tenth, so 0.15 can be given.
    fixes = finding_in(run(knobs=knobs, memory_gib=(50.0, 60.0)), "GD006").fixes
    assert [fix.after for fix in fixes if fix.knob == "vllm.gpu_memory_utilization"] == raised
