from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import rows, run

TIMES = [0.0, 100.0]


def standing(
    waits: tuple[float, ...] = (30.0, 2.0, 2.0, 2.0),
    *,
    host: float | None = 30.0,
    memory_gib: tuple[float, float] | None = (70.0, 72.0),
) -> TraceBuilder:
    """Ranks that wait for a CPU so many percent of the time."""
    build = run(memory_gib=memory_gib)
    for rank, wait in enumerate(waits):
        build.series("rank.cpu_wait", "%", TIMES, [wait, wait], scope="rank", rank=rank)
        build.series("rank.processors", "count", TIMES, [1.0, 1.0], scope="rank", rank=rank)
    if host is not None:
        build.series("host.cpu", "%", TIMES, [host, host])
    return build


def programs_of_others_are_told_from_the_ranks_own() -> TraceBuilder:
    build = standing(host=99.0, memory_gib=None)
    for rank in range(4):
        build.series("rank.cpu", "%", TIMES, [10.0, 10.0], scope="rank", rank=rank)
    return build


def a_host_that_is_full_in_bursts_is_not_idle() -> TraceBuilder:
    build = run(memory_gib=None)
    times = [float(n) for n in range(60)]
    bursts = [n % 3 == 0 for n in range(60)]
    for rank in range(4):
        waits = [60.0 if is_burst else 0.0 for is_burst in bursts]
        build.series("rank.cpu_wait", "%", times, waits, scope="rank", rank=rank)
    build.series("host.cpu", "%", times, [100.0 if is_burst else 5.0 for is_burst in bursts])
    return build


def busy_with(own: float, host: float, wait: float = 20.0) -> TraceBuilder:
    """Four ranks on four processors that keep them busy so many percent."""
    build = standing((wait,) * 4, host=host, memory_gib=None)
    for rank in range(4):
        build.series("rank.cpu", "%", TIMES, [own / 4, own / 4], scope="rank", rank=rank)
    return build


def what_is_of_no_rank_or_of_no_step_is_left_out() -> TraceBuilder:
    build = standing((30.0, 2.0, 2.0))
    build.series("rank.cpu_wait", "%", [500.0, 501.0], [90.0, 90.0], scope="rank", rank=3)
    build.series("rank.cpu_wait", "%", TIMES, [80.0, 80.0], scope="rank", pid=7)
    return build


def the_host_of_the_rank_that_waits_is_named() -> TraceBuilder:
    build = run(hosts=["host-a", "host-b", "host-c", "host-d"], memory_gib=None)
    build.series("rank.cpu_wait", "%", TIMES, [30.0, 30.0], scope="rank", rank=2)
    return build


RUNS = {
    "sick": standing,
    "well": lambda: standing((2.0, 2.0, 2.0, 2.0)),
    "a full host has too much to do": lambda: standing(host=97.0),
    "a full host without a gpu is what it is for": lambda: standing(host=97.0, memory_gib=None),
    "a host of middling load leaves it unclear": lambda: standing(host=75.0),
    "all ranks in line are named as none": lambda: standing((30.0,) * 4),
    "without samples it says what takes them": run,
    **rows("what a job of its own may wait", lambda wait: busy_with(88.0, 95.0, wait), 30.0, 29.9),
    **rows("how busy the host is decides why", lambda host: standing(host=host), 59.9, 60.0, 90.0,
        90.1),
    **rows("a quarter of the host is what others take", lambda own: busy_with(own, 95.0, 40.0),
        70.0, 70.4),
}  # fmt: skip
