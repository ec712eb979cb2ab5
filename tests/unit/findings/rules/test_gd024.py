from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import Runs, counted, rows, run, step_starts
from tests.unit.findings.rules.test_gd023 import standing


def collecting(seconds: float) -> TraceBuilder:
    return counted(run(), {"gc/seconds": seconds, "gc/longest_s": seconds / 4})


def collections_that_an_offload_asked_for_are() -> TraceBuilder:
    build = collecting(1.0)
    for start in step_starts():
        for rank in range(4):
            build.span(rank, "offload", start + 0.06, start + 1.06, depth=2)
            build.span(rank, "offload/collect", start + 0.06, start + 1.06, depth=3)
    return build


RUNS: Runs = {
    "sick": lambda: collecting(1.0),
    "well": lambda: collecting(0.02),
    **rows(
        "what a collection stands in line is not held against it",
        lambda wait: counted(
            standing((wait,) * 4, host=99.0), {"gc/seconds": 2.4, "gc/longest_s": 2.0}
        ),
        0.0,
        30.0,
    ),
    "an old recording has no such counter": run,
    "a rank that collects alone is a part of the mean": lambda: counted(
        run(), {"gc/seconds": 2.0, "gc/longest_s": 0.5}, ranks=[2]
    ),
}
