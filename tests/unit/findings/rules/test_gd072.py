from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import finding_in, missing, passed, run, value, with_knobs

GIB = 2**30
TIMES = [0.0, 20.0, 40.0, 60.0]


def pressed(psi: float, swap_gib: tuple[float, ...], faults: float = 0.0) -> TraceBuilder:
    build = run(knobs=with_knobs(dataload__num_workers=8, offload__optimizer=True))
    build.series("host.psi_memory", "%", TIMES, [psi] * 4)
    build.series("host.swap_used", "bytes", TIMES, [gib * GIB for gib in swap_gib])
    return build.series("host.major_faults", "1/s", TIMES, [faults] * 4)


def sick() -> TraceBuilder:
    return pressed(25.0, (0.0, 4.0, 8.0, 8.0), 900.0)


def well() -> TraceBuilder:
    return pressed(0.1, (2.0, 2.0, 2.1, 2.1))


def test_stalls_are_the_cost() -> None:
    finding = finding_in(sick(), "GD072")
    assert finding.severity == "high"
    assert finding.cost == pytest.approx(0.25)
    assert value(finding, "swap at its peak") == 8
    assert [fix.knob for fix in finding.fixes] == ["dataload.num_workers", "offload.optimizer"]
    assert finding.fixes[0].after == 4


def test_swap_that_is_read_back_and_swap_that_is_not() -> None:
    finding = finding_in(pressed(0.0, (0.0, 3.0, 3.0, 3.0), 400.0), "GD072")
    assert finding.severity == "medium"
    assert "400 pages a second" in finding.cause
    passed(pressed(0.0, (0.0, 3.0, 3.0, 3.0), 1.0), "GD072")


def test_either_series_is_enough() -> None:
    assert "host.psi_memory" in missing(run(), "GD072")
    only = run().series("host.psi_memory", "%", TIMES, [10.0] * 4)
    finding = finding_in(only, "GD072")
    assert finding.severity == "medium"
    assert finding.fixes[0].predicted is None


@pytest.mark.parametrize(("swap_gib", "is_found"), [((4.0, 7.0), True), ((4.0, 4.9), False)])
def test_swap_counts_from_where_the_run_began(
    swap_gib: tuple[float, float], is_found: bool
) -> None:
    build = pressed(0.0, (swap_gib[0], swap_gib[1], swap_gib[1], swap_gib[1]), 400.0)
    if is_found:
        assert finding_in(build, "GD072").severity == "medium"
    else:
        passed(build, "GD072")


@pytest.mark.parametrize(
    ("psi", "more_gib", "faults", "is_found"),
    [
        (5.0, 0.0, 0.0, True),
        (4.9, 0.0, 0.0, False),
        (0.0, 1.0, 100.0, True),
        (0.0, 0.99, 100.0, False),
        (0.0, 1.0, 99.0, False),
    ],
)
def test_stalls_of_a_twentieth_or_a_gibibyte_that_is_wanted_back(
    psi: float, more_gib: float, faults: float, is_found: bool
) -> None:
    build = pressed(psi, (4.0, *[4.0 + more_gib] * 3), faults)
    if is_found:
        assert finding_in(build, "GD072").severity in ("low", "medium")
    else:
        assert "of the time stalled for memory" in passed(build, "GD072")


def test_swap_that_was_only_sampled_after_the_steps_says_nothing() -> None:
    build = run().series("host.psi_memory", "%", TIMES, [10.0] * 4)
    build.series("host.swap_used", "bytes", [500.0, 501.0], [0.0, 8.0 * GIB])
    assert [e.text for e in finding_in(build, "GD072").evidence] == ["stalled for memory"]
