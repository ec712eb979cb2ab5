from __future__ import annotations

import math

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import run

MIB = 2**20


def shared(used_mib: list[float], size_mib: float) -> TraceBuilder:
    times = [float(n) for n in range(len(used_mib))]
    build = run().series("host.shm_used", "bytes", times, [mib * MIB for mib in used_mib])
    return build.series("host.shm_size", "bytes", times, [size_mib * MIB] * len(used_mib))


RUNS = {
    "sick": lambda: shared([1, 20, 62, 30], 64),
    "well": lambda: shared([1, 200, 300], 16_384),
    "the moment of most use counts": lambda: shared([900], 1024),
    "gaps in the samples": lambda: shared([math.nan, 100], 1000),
    "no size 1": lambda: shared([0], 0),
    "no size 2": lambda: run().series("host.shm_used", "bytes", [0], [1]),
}
