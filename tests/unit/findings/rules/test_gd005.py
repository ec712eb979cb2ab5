from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import run


def a_callback_that_most_of_it_is_in_is_named() -> TraceBuilder:
    build = TraceBuilder()
    for number in range(6):
        at = 10.0 * number
        build.step(0, number, at, {"train": 6.0}, end_s=at + 9)
        build.span(0, "callback/Journal.on_step_end", at + 6, at + 8.5)
    return build


RUNS = {"it says between which phases": lambda: run(idle=1.5)}
