from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import rows, run, with_knobs

GIB = 2**30
TIMES = [0.0, 20.0, 40.0, 60.0]


def pressed(psi: float, swap_gib: tuple[float, ...], faults: float = 0.0) -> TraceBuilder:
    build = run(knobs=with_knobs(dataload__num_workers=8, offload__optimizer=True))
    build.series("host.psi_memory", "%", TIMES, [psi] * 4)
    build.series("host.swap_used", "bytes", TIMES, [gib * GIB for gib in swap_gib])
    return build.series("host.major_faults", "1/s", TIMES, [faults] * 4)


def swap_that_was_only_sampled_after_the_steps() -> TraceBuilder:
    build = run().series("host.psi_memory", "%", TIMES, [10.0] * 4)
    return build.series("host.swap_used", "bytes", [500.0, 501.0], [0.0, 8.0 * GIB])


RUNS = {
    "sick": lambda: pressed(25.0, (0.0, 4.0, 8.0, 8.0), 900.0),
    "well": lambda: pressed(0.1, (2.0, 2.0, 2.1, 2.1)),
    "swap that is read back and swap that is not 1": lambda: pressed(0.0, (0.0, 3.0, 3.0, 3.0),
        400.0),
    "swap that is read back and swap that is not 2": lambda: pressed(0.0, (0.0, 3.0, 3.0, 3.0),
        1.0),
    "either series is enough 1": lambda: run().series("host.psi_memory", "%", TIMES, [10.0] * 4),
    "either series is enough 2": run,
    **rows("swap counts from where the run began",
        lambda swap_gib: pressed(0.0, (swap_gib[0], swap_gib[1], swap_gib[1], swap_gib[1]), 400.0),
        ((4.0, 7.0),), ((4.0, 4.9),)),
    **rows("stalls of a twentieth or a gibibyte that is wanted back", lambda psi, more_gib,
        faults: pressed(psi, (4.0, *[4.0 + more_gib] * 3), faults), (5.0, 0.0, 0.0),
        (4.9, 0.0, 0.0), (0.0, 1.0, 100.0), (0.0, 0.99, 100.0), (0.0, 1.0, 99.0)),
}  # fmt: skip
