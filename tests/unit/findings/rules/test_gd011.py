from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import OFFLOADED
from tests.unit.findings.rules import saying

KNOBS = saying.with_knobs(offload__gc_collect=True, offload__optimizer=True)
BEFORE_OFFLOAD = sum(OFFLOADED.values()) - OFFLOADED["offload"]


def collecting(seconds: float, knobs: dict[str, object] = KNOBS) -> TraceBuilder:
    """Two seconds of offload, of which some collect garbage."""
    build = saying.run(OFFLOADED, knobs=knobs, framework="bundled", framework_version="0.1.0")
    for number, start in enumerate(saying.step_starts(OFFLOADED)):
        at = start + 0.05 + (1 + 0.01 * (number % 3)) * BEFORE_OFFLOAD
        for rank in range(4):
            build.span(rank, "offload/collect", at, at + seconds, depth=2)
    return build


def collecting_for_a_fiftieth_of_the_step_counts(seconds: float) -> TraceBuilder:
    build = saying.even({"offload": 0.5}, knobs=KNOBS)
    for number in range(4):
        build.span(0, "offload/collect", 10.0 * number, 10.0 * number + seconds, depth=2)
    return build


RUNS = {
    "sick": lambda: collecting(1.2),
    "well": lambda: collecting(0.1),
    "without spans the setting is a question": lambda: saying.run(OFFLOADED, knobs=KNOBS,
        framework_version="3.9.0"),
    "a version without the flag gets words": lambda: saying.run(OFFLOADED, knobs=KNOBS,
        framework_version="4.6.0"),
    "nothing offloaded is nothing collected 1": lambda: saying.run(knobs=KNOBS),
    "nothing offloaded is nothing collected 2": lambda: saying.run(OFFLOADED),
    **saying.rows("where collecting was not timed a tenth of the step asks",
        lambda offload_s: saying.even({"offload": offload_s}, knobs=KNOBS,
            framework_version="3.9.0"), 1.0, 0.99),
    **saying.named(collecting_for_a_fiftieth_of_the_step_counts, 0.2, 0.19),
}  # fmt: skip
