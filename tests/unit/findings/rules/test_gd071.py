from __future__ import annotations

from typing import Any

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import finding_in, missing, passed, run, value, with_knobs

GIB = 2**30
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


def sick() -> TraceBuilder:
    return saved(4)


def well() -> TraceBuilder:
    return saved(4, optimizer=0.0, train__dtype="bfloat16")


def test_all_that_is_kept_counts() -> None:
    finding = finding_in(sick(), "GD071")
    assert finding.severity == "medium"
    assert value(finding, "together") == pytest.approx(4 * 10 * WEIGHTS / GIB)
    assert "80% of each checkpoint is optimizer state, and 4 are kept" in finding.cause
    assert [fix.spelling for fix in finding.fixes] == [
        "--save_total_limit 2",
        "--save_only_model true",
    ]


def test_few_that_are_kept_are_no_habit() -> None:
    passed(saved(4, checkpoint__save_total_limit=2), "GD071")
    passed(saved(2), "GD071")


def test_float32_of_a_bfloat16_model() -> None:
    finding = finding_in(saved(1, per_weight=4.0, optimizer=0.0, train__dtype="bfloat16"), "GD071")
    assert finding.severity == "medium"
    assert value(finding, "bytes per weight") == 4
    assert "weights take 4 bytes on disk, though the model is bfloat16" in finding.cause
    assert finding.fixes[0].knob is None


def test_float32_of_a_float32_model_is_right() -> None:
    passed(saved(1, per_weight=4.0, optimizer=0.0, train__dtype="float32"), "GD071")
    passed(saved(1, per_weight=4.0, optimizer=0.0), "GD071")


def test_the_counters_are_named() -> None:
    assert "checkpoint/optimizer_bytes" in missing(run(), "GD071")


def test_a_limit_of_none_keeps_all() -> None:
    finding = finding_in(saved(4, checkpoint__save_total_limit=0), "GD071")
    assert "and 4 are kept" in finding.cause
    passed(saved(5, checkpoint__save_total_limit=1), "GD071")


def test_without_the_number_of_weights_their_width_is_unknown() -> None:
    build = saved(1, per_weight=4.0, optimizer=0.0, train__dtype="bfloat16")
    build._series = [s for s in build._series if s.name != "checkpoint/weights"]
    passed(build, "GD071")
    build.series("checkpoint/weights", "", [0.0], [0.0], scope="counter", rank=0)
    passed(build, "GD071")
