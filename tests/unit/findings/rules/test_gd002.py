"""Data loading at its edges; `test_rule_details.py` has its usual runs."""

from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.recorded import count
from tests.unit.findings.rules.saying import even, finding_in, passed

FOUR = {"dataload.num_workers": 4}


def loaded(wait_s: float, read_s: float) -> TraceBuilder:
    """A step of ten seconds that waits so long for a process that reads for so long."""
    build = even({"dataload": wait_s}, knobs={"dataload.num_workers": 1})
    return count(build, "dataload/read_s", read_s)


def test_a_twentieth_of_the_step_is_enough() -> None:
    assert finding_in(even({"dataload": 0.5}), "GD002").cost == 0.05
    assert "takes 4.9% of the step, 490.0 ms" in passed(even({"dataload": 0.49}), "GD002")


def test_handing_over_a_batch_is_no_loading() -> None:
    assert finding_in(even({"dataload": 0.008}, step_s=0.1, knobs=FOUR), "GD002").cost > 0.05
    note = passed(even({"dataload": 0.0079}, step_s=0.1, knobs=FOUR), "GD002")
    assert note == "data loading takes 7.9% of the step, 7.9 ms"
    none = {"dataload.num_workers": 0}
    assert finding_in(even({"dataload": 0.0079}, step_s=0.1, knobs=none), "GD002").cost > 0.05


@pytest.mark.parametrize(
    ("wait_s", "read_s", "has_time"),
    [
        (0.5, 4.75, True),  # half of the 9.5 s that one process has
        (0.5, 4.76, False),
        (0.5, 5.0, False),
        (0.79, 1.0, True),
        (0.8, 1.0, False),  # so long a wait is one, whatever the process did
    ],
)
def test_a_process_that_works_half_of_its_time_was_not_waited_for(
    wait_s: float, read_s: float, has_time: bool
) -> None:
    build = loaded(wait_s, read_s)
    if has_time:
        assert "its processes have time to spare" in passed(build, "GD002")
    else:
        assert finding_in(build, "GD002").phases == ("dataload",)


@pytest.mark.parametrize(("cpu", "predicted"), [(85.0, True), (85.1, False)])
def test_a_host_that_is_busier_than_it_should_be_gets_no_prediction(
    cpu: float, predicted: bool
) -> None:
    build = even({"dataload": 3.0}, knobs={"dataload.num_workers": 0})
    build.series("host.cpu", "%", [0.0, 40.0], [cpu, cpu])
    (fix,) = finding_in(build, "GD002").fixes
    assert (fix.predicted is not None) is predicted
