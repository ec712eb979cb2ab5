from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import OFFLOADED
from tests.unit.findings.rules.saying import (
    even,
    finding_in,
    named,
    rows,
    run,
    step_s,
    step_starts,
    value,
    with_knobs,
)

KNOBS = with_knobs(offload__gc_collect=True, offload__optimizer=True)
BEFORE_OFFLOAD = sum(OFFLOADED.values()) - OFFLOADED["offload"]


def collecting(seconds: float, knobs: dict[str, object] = KNOBS) -> TraceBuilder:
    """Two seconds of offload, of which some collect garbage."""
    build = run(OFFLOADED, knobs=knobs, framework="bundled", framework_version="0.1.0")
    for number, start in enumerate(step_starts(OFFLOADED)):
        at = start + 0.05 + (1 + 0.01 * (number % 3)) * BEFORE_OFFLOAD
        for rank in range(4):
            build.span(rank, "offload/collect", at, at + seconds, depth=2)
    return build


def sick() -> TraceBuilder:
    return collecting(1.2)


def well() -> TraceBuilder:
    return collecting(0.1)


def test_what_is_collected_costs_no_more_once_nothing_is_offloaded() -> None:
    finding = finding_in(sick(), "GD001")
    assert finding.cost == pytest.approx(2.0 * 1.01 / step_s(OFFLOADED), rel=0.02)
    assert finding.gain == pytest.approx(100 * finding.cost, abs=0.1)
    assert value(finding, "garbage collection") == pytest.approx(1.2)


def collecting_for_a_fiftieth_of_the_step_counts(seconds: float) -> TraceBuilder:
    build = even({"offload": 0.5}, knobs=KNOBS)
    for number in range(4):
        build.span(0, "offload/collect", 10.0 * number, 10.0 * number + seconds, depth=2)
    return build


RUNS = {
    "without spans the setting is a question": lambda: run(OFFLOADED, knobs=KNOBS,
        framework_version="3.9.0"),
    "a version without the flag gets words": lambda: run(OFFLOADED, knobs=KNOBS,
        framework_version="4.6.0"),
    "nothing offloaded is nothing collected 1": lambda: run(knobs=KNOBS),
    "nothing offloaded is nothing collected 2": lambda: run(OFFLOADED),
    **rows("where collecting was not timed a tenth of the step asks",
        lambda offload_s: even({"offload": offload_s}, knobs=KNOBS, framework_version="3.9.0"),
        1.0, 0.99),
    **named(collecting_for_a_fiftieth_of_the_step_counts, 0.2, 0.19),
}  # fmt: skip
