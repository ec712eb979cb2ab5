from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    counted,
    finding_in,
    mid,
    run,
    step_s,
    step_starts,
    value,
)


def collecting(seconds: float) -> TraceBuilder:
    return counted(run(), {"gc/seconds": seconds, "gc/longest_s": seconds / 4})


def sick() -> TraceBuilder:
    return collecting(1.0)


def well() -> TraceBuilder:
    return collecting(0.02)


def test_what_the_collections_take_is_the_cost_and_the_gain() -> None:
    finding = finding_in(sick(), "GD024")
    share = 1.0 / step_s()
    assert finding.cost == pytest.approx(share, rel=0.01)
    assert value(finding, "longest") == pytest.approx(0.25)
    assert (finding.severity, finding.confidence) == ("medium", 0.9)
    (fix,) = finding.fixes
    assert "gc.freeze()" in fix.spelling
    assert mid(fix) == pytest.approx(-100 * share, abs=0.5)
    assert fix.predicted is not None
    assert -100 * share / 2 - 1 < fix.predicted.high <= 0


def test_a_rank_that_collects_alone_is_a_part_of_the_mean() -> None:
    build = counted(run(), {"gc/seconds": 2.0, "gc/longest_s": 0.5}, ranks=[2])
    assert finding_in(build, "GD024").cost == pytest.approx(0.5 / step_s(), rel=0.01)


def collections_that_an_offload_asked_for_are() -> TraceBuilder:
    build = collecting(1.0)
    for start in step_starts():
        for rank in range(4):
            build.span(rank, "offload", start + 0.06, start + 1.06, depth=2)
            build.span(rank, "offload/collect", start + 0.06, start + 1.06, depth=3)
    return build


RUNS = {"an old recording has no such counter": run}
