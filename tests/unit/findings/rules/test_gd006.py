"""Unused GPU memory at its edges; `test_rule_details.py` has its usual runs."""

from __future__ import annotations

import pytest

from tests.unit.findings.example_runs import SETTINGS, offloaded, run
from tests.unit.findings.rules.saying import finding_in, rows


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


RUNS = {
    **rows(
        "how much is free decides how grave it is",
        lambda peak_gib: run(memory_gib=(5.0, peak_gib)),
        60.0,
        40.1,
        40.0,
        8.0,
        7.9,
    ),
    "less than a quarter is not unused": lambda: run(memory_gib=(5.0, 60.1)),
    **rows(
        "vllm gets what is free less a tenth",
        lambda share: run(
            knobs={**SETTINGS, "vllm.gpu_memory_utilization": share}, memory_gib=(50.0, 60.0)
        ),
        0.52,
        0.74,
        0.85,
        0.9,
    ),
}
