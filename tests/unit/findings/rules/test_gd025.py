from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import even, rows, run, step_starts

HOT, POWER = 0x40, 0x4


def clocks(
    bits: int,
    slowed_mhz: float,
    part: float,
    *,
    only: int | None = 1,
    util: float = 98.0,
    of_others: float | None = None,
) -> TraceBuilder:
    """GPUs at 1,980 MHz; one of them (None: all) is throttled in some part of the time."""
    build = run()
    end = step_starts()[-1] + 10.0
    times = [end * n / 200 for n in range(200)]
    for rank in range(4):
        slowdowns = [only in (None, rank) and (n % 20) < 20 * part for n in range(200)]
        for name, unit, values in (
            ("gpu.throttle", "bitmask", [float(bits) if slow else 0.0 for slow in slowdowns]),
            ("gpu.sm_clock", "MHz", [slowed_mhz if slow else 1980.0 for slow in slowdowns]),
            ("gpu.util", "%", [util if rank == 1 or of_others is None else of_others] * 200),
        ):
            build.series(name, unit, times, values, scope="gpu", gpu=f"GPU-{rank}")
        build.series(
            "gpu.process_memory", "bytes", [0.0], [1e9], scope="rank", gpu=f"GPU-{rank}", rank=rank
        )
    return build


def limited(
    bits: int, mhz: float, seconds: float, *, gpu: str = "GPU-0", build: TraceBuilder | None = None
) -> TraceBuilder:
    """One rank of 40 seconds whose GPU is held down for so long at first, else at 2,000 MHz."""
    build = build or even({"train": 10.0})
    times = [0.0, seconds, 40.0]
    build.gpu(gpu, index=int(gpu[-1]))
    build.series("gpu.throttle", "bitmask", times, [bits, 0, 0], scope="gpu", gpu=gpu)
    build.series("gpu.sm_clock", "MHz", times, [mhz, 2000.0, 2000.0], scope="gpu", gpu=gpu)
    return build


def gpus_that_are_not_the_jobs_or_told_by_halves() -> TraceBuilder:
    build = limited(HOT, 1100.0, 20.0)
    for name, value_ in (("gpu.throttle", float(HOT)), ("gpu.sm_clock", 500.0)):
        build.series(name, "", [0.0, 40.0], [value_] * 2, scope="gpu", gpu="of another job")
    build.gpu("GPU-1", index=1)
    build.series("gpu.throttle", "", [0.0, 40.0], [float(HOT)] * 2, scope="gpu", gpu="GPU-1")
    return build


def ranks_are_those_whose_gpus_have_the_same() -> TraceBuilder:
    build = even({"train": 10.0}, ranks=3)
    limited(POWER, 1000.0, 30.0, gpu="GPU-0", build=build)
    limited(HOT, 1200.0, 20.0, gpu="GPU-1", build=build)
    limited(HOT, 1100.0, 20.0, gpu="GPU-2", build=build)
    return build


def ranks_are_those_whose_gpus_have_the_same_2() -> TraceBuilder:
    return limited(HOT, 1100.0, 20.0, gpu="GPU-7", build=limited(HOT, 1200.0, 20.0))


def the_power_shown_is_that_of_the_throttled_gpu() -> TraceBuilder:
    build = clocks(HOT, 1100.0, 0.9)
    for rank in range(4):
        watts = [100.0 * (rank + 1)] * 2
        build.series("gpu.power", "W", [0.0, 100.0], watts, scope="gpu", gpu=f"GPU-{rank}")
    return build


RUNS = {
    "sick": lambda: clocks(HOT, 1100.0, 0.9),
    "well": lambda: clocks(POWER, 1750.0, 0.9, only=None),
    "a little slower is medium": lambda: clocks(HOT, 1700.0, 0.2),
    "a power limit far below the usual clock is a note": lambda: clocks(POWER, 1200.0, 0.9),
    "a touch of heat passes 1": lambda: clocks(HOT, 1900.0, 0.9),
    "a touch of heat passes 2": lambda: clocks(HOT, 1100.0, 0.0),
    "an idle gpu may be slow": lambda: clocks(HOT, 300.0, 0.9, util=0.0),
    "without samples it says what takes them": run,
    **rows("a throttle counts by time and by clock", limited, (HOT, 1900.0, 2.0),
        (HOT, 1901.0, 2.0), (HOT, 1900.0, 1.9), (POWER, 1599.0, 20.0), (POWER, 1601.0, 20.0),
        (POWER, 1599.0, 19.9)),
    **rows("a gpu is busy by its own utilization", lambda util,
        of_others: clocks(HOT, 1100.0, 0.9, util=util, of_others=of_others), (50.0, 0.0),
        (49.9, 98.0), (0.0, 98.0)),
}  # fmt: skip
