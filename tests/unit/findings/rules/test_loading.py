"""What loaders that time themselves add to GD002."""

from __future__ import annotations

import pytest

from grpo_doctor.findings.rules import gd002_data_starvation as rule
from tests.build import TraceBuilder
from tests.unit.findings.example_runs import starved
from tests.unit.findings.recorded import count, finding_by, number


def timed(seconds: float, workers: int) -> TraceBuilder:
    build = starved(workers)
    for name, value in (("read_s", seconds - 0.2), ("tokenize_s", 0.1), ("join_s", 0.1)):
        count(build, f"dataload/{name}", value)
    return build


@pytest.mark.parametrize(("seconds", "target"), [(3.0, 1), (9.0, 2), (25.0, 4), (500.0, 8)])
def test_as_many_processes_as_have_the_time(seconds: float, target: int) -> None:
    # The rest of the step is 9.85 s, of which loaders may take 80%.
    finding = finding_by(rule, timed(seconds, 0))
    assert finding.fixes[0].after == target
    assert number(finding, "loader process time") == pytest.approx(seconds)
    assert number(finding, "mostly: reading") == pytest.approx(100 * (1 - 0.2 / seconds))
