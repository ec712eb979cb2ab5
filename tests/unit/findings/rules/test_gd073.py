from __future__ import annotations

import math

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import finding_in, missing, not_applicable, passed, run

MIB = 2**20


def shared(used_mib: list[float], size_mib: float) -> TraceBuilder:
    times = [float(n) for n in range(len(used_mib))]
    build = run().series("host.shm_used", "bytes", times, [mib * MIB for mib in used_mib])
    return build.series("host.shm_size", "bytes", times, [size_mib * MIB] * len(used_mib))


def sick() -> TraceBuilder:
    return shared([1, 20, 62, 30], 64)


def well() -> TraceBuilder:
    return shared([1, 200, 300], 16_384)


def test_the_fullest_moment_counts() -> None:
    finding = finding_in(sick(), "GD073")
    assert finding.severity == "high"
    assert "97% of the 0.0625 GiB" in finding.cause
    assert "container's default size" in finding.cause
    assert "--shm-size" in finding.fixes[0].spelling
    assert finding_in(shared([900], 1024), "GD073").severity == "medium"


def test_gaps_in_the_samples() -> None:
    assert "at most 10%" in passed(shared([math.nan, 100], 1000), "GD073")


def test_no_size() -> None:
    assert "no size" in not_applicable(shared([0], 0), "GD073")
    assert "host.shm_size" in missing(run().series("host.shm_used", "bytes", [0], [1]), "GD073")
