"""Offload at its edges; `test_rule_details.py` has its usual runs."""

from __future__ import annotations

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import HEALTHY, OFFLOADED, offloaded, run
from tests.unit.findings.rules.saying import even, named, rows
from tests.unit.findings.rules.test_gd011 import collecting

ZERO = {"deepspeed.offload_optimizer": True}


def what_is_left_beside_the_collecting_is_what(collecting_s: float) -> TraceBuilder:
    build = even({"offload": 2.0}, knobs={"offload.optimizer": True})
    for number in range(4):
        build.span(0, "offload/collect", 10.0 * number, 10.0 * number + collecting_s, depth=2)
    return build


RUNS = {
    "a twentieth of the step is enough 1": lambda: even({"offload": 0.49},
        knobs={"offload.optimizer": True}),
    "a twentieth of the step is enough 2": lambda: even({"train": 5.0},
        knobs={"offload.optimizer": True}),
    "a twentieth of the step is enough 3": lambda: even({"offload": 0.5},
        knobs={"offload.optimizer": True}),
    "an optimizer of a tenth of the step is slow 1": lambda: even({"optimizer": 0.99}, knobs=ZERO),
    "an optimizer of a tenth of the step is slow 2": lambda: even({"optimizer": 1.0}, knobs=ZERO),
    **rows("with zero offload the spans are judged where they count",
        lambda offload_s: even({"offload": offload_s, "optimizer": 2.0}, knobs=ZERO), 0.5, 0.49),
    **rows(
        "zero offload is switched off where it was switched on",
        lambda facts, preset: even(
            {"optimizer": 2.0},
            knobs={**ZERO, **({"deepspeed.preset": preset} if preset else {})},
            **facts,
        ),
        ({}, "zero2_offload"),
        ({}, "ds.json"),
        ({"framework": "unknown"}, None),
    ),
    **named(what_is_left_beside_the_collecting_is_what, 1.5, 1.51),
    "an offload that only collects garbage is another rule's": lambda: collecting(1.9),
    "with room it is advised and predicted": offloaded,
    "without room it is needed": lambda: offloaded(memory_gib=(60.0, 72.0)),
    "without gpu samples it says what to check": lambda: offloaded(memory_gib=None),
    "both switches are turned off together": lambda: run(OFFLOADED,
        knobs={"offload.optimizer": True, "offload.model": True}, memory_gib=None),
    "an unknown framework gets words not flags": lambda: run(OFFLOADED, knobs={},
        framework="unknown", framework_version=None),
    "zero offload shows in the optimizer": lambda: run({**HEALTHY, "optimizer": 3.0},
        knobs={"deepspeed.preset": "zero3_offload", "deepspeed.offload_optimizer": True}),
    "zero offload with a quick optimizer passes": lambda:
        run(knobs={"deepspeed.preset": "zero2_offload", "deepspeed.offload_optimizer": True}),
}  # fmt: skip
