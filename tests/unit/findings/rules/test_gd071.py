from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import run, with_knobs

# 7.6e9 weights: 14.2 GiB in bfloat16.
WEIGHTS = 7.6e9


def saved(
    count: int, *, per_weight: float = 2.0, optimizer: float = 8.0, **knobs: Any
) -> TraceBuilder:
    """Checkpoints with so many bytes per weight, and optimizer state of so many per weight."""
    build = run(knobs=with_knobs(**knobs))
    times = [5.0 * n for n in range(count)]
    for name, value_ in (
        ("weights_bytes", per_weight * WEIGHTS),
        ("optimizer_bytes", optimizer * WEIGHTS),
        ("weights", WEIGHTS),
    ):
        values = [value_] * count
        build.series(f"checkpoint/{name}", "", times, values, scope="counter", rank=0)
    return build


def without_the_number_of_weights_their_width_is() -> TraceBuilder:
    build = saved(1, per_weight=4.0, optimizer=0.0, train__dtype="bfloat16")
    build._series = [s for s in build._series if s.name != "checkpoint/weights"]
    return build


def without_the_number_of_weights_their_width_is_2() -> TraceBuilder:
    build = without_the_number_of_weights_their_width_is()
    build.series("checkpoint/weights", "", [0.0], [0.0], scope="counter", rank=0)
    return build


RUNS = {
    "sick": lambda: saved(4),
    "well": lambda: saved(4, optimizer=0.0, train__dtype="bfloat16"),
    "few that are kept are no habit 1": lambda: saved(4, checkpoint__save_total_limit=2),
    "few that are kept are no habit 2": lambda: saved(2),
    "float32 of a bfloat16 model": lambda: saved(
        1, per_weight=4.0, optimizer=0.0, train__dtype="bfloat16"
    ),
    "float32 of a float32 model is right 1": lambda: saved(
        1, per_weight=4.0, optimizer=0.0, train__dtype="float32"
    ),
    "float32 of a float32 model is right 2": lambda: saved(1, per_weight=4.0, optimizer=0.0),
    "the counters are named": run,
    "a limit of none keeps all 1": lambda: saved(4, checkpoint__save_total_limit=0),
    "a limit of none keeps all 2": lambda: saved(5, checkpoint__save_total_limit=1),
}
