from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import OFFLOADED
from tests.unit.findings.rules.saying import (
    even,
    finding_in,
    mid,
    not_applicable,
    passed,
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


def test_what_collecting_takes_is_the_cost_and_the_gain() -> None:
    finding = finding_in(sick(), "GD011")
    share = 1.2 / step_s(OFFLOADED)
    assert finding.cost == pytest.approx(share, rel=0.01)
    assert value(finding, "per step") == pytest.approx(1.2)
    assert (finding.severity, finding.confidence) == ("medium", 0.9)
    fix = finding.fixes[0]
    assert fix.spelling == "--gc_collect_after_offload false"
    assert mid(fix) == pytest.approx(-100 * share, abs=0.3)


def test_little_collecting_passes() -> None:
    assert "takes 0.8%" in passed(well(), "GD011")


def test_what_is_collected_costs_no_more_once_nothing_is_offloaded() -> None:
    finding = finding_in(sick(), "GD001")
    assert finding.cost == pytest.approx(2.0 * 1.01 / step_s(OFFLOADED), rel=0.02)
    assert finding.gain == pytest.approx(100 * finding.cost, abs=0.1)
    assert value(finding, "garbage collection") == pytest.approx(1.2)


def test_without_spans_the_setting_is_a_question() -> None:
    finding = finding_in(run(OFFLOADED, knobs=KNOBS, framework_version="3.9.0"), "GD011")
    assert (finding.cost, finding.severity, finding.confidence) == (0.0, "low", 0.4)
    assert finding.fixes[0].spelling == "--gc_collect_after_offload false"
    assert "not recorded" in finding.fixes[0].risk


def test_a_version_without_the_flag_gets_words() -> None:
    finding = finding_in(run(OFFLOADED, knobs=KNOBS, framework_version="4.6.0"), "GD011")
    assert "no flag known" in finding.fixes[0].spelling


def test_nothing_offloaded_is_nothing_collected() -> None:
    assert not_applicable(run(knobs=KNOBS), "GD011") == "nothing is offloaded"
    assert "no garbage" in not_applicable(run(OFFLOADED), "GD011")


def test_without_the_offload_there_is_nothing_to_collect_after() -> None:
    collecting, off = finding_in(
        run(OFFLOADED, knobs=KNOBS, framework_version="3.9.0"), "GD011"
    ).fixes
    assert off.spelling == "--offload_optimizer false"
    assert collecting.knob == "offload.gc_collect"


@pytest.mark.parametrize(("offload_s", "is_found"), [(1.0, True), (0.99, False)])
def test_where_collecting_was_not_timed_a_tenth_of_the_step_asks(
    offload_s: float, is_found: bool
) -> None:
    build = even({"offload": offload_s}, knobs=KNOBS, framework_version="3.9.0")
    if is_found:
        assert finding_in(build, "GD011").severity == "low"
    else:
        assert passed(build, "GD011") == "offload, collection included, takes 9.9%"


@pytest.mark.parametrize(("seconds", "is_found"), [(0.2, True), (0.19, False)])
def test_collecting_for_a_fiftieth_of_the_step_counts_however_short_the_offload(
    seconds: float, is_found: bool
) -> None:
    build = even({"offload": 0.5}, knobs=KNOBS)
    for number in range(4):
        build.span(0, "offload/collect", 10.0 * number, 10.0 * number + seconds, depth=2)
    if is_found:
        assert finding_in(build, "GD011").cost == 0.02
    else:
        assert "takes 1.9% of the step" in passed(build, "GD011")
