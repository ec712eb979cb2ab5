from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import finding, missing, passed, run, step_starts, value

HOT, POWER = 0x40, 0x4


def clocks(
    bits: int, slowed_mhz: float, part: float, *, only: int | None = 1, util: float = 98.0
) -> TraceBuilder:
    """GPUs at 1,980 MHz; one of them (None: all) is throttled in some part of the time."""
    build = run()
    end = step_starts()[-1] + 10.0
    times = [end * n / 200 for n in range(200)]
    for rank in range(4):
        held = [only in (None, rank) and (n % 20) < 20 * part for n in range(200)]
        for name, unit, values in (
            ("gpu.throttle", "bitmask", [float(bits) if one else 0.0 for one in held]),
            ("gpu.sm_clock", "MHz", [slowed_mhz if one else 1980.0 for one in held]),
            ("gpu.util", "%", [util] * 200),
        ):
            build.series(name, unit, times, values, scope="gpu", gpu=f"GPU-{rank}")
        build.series(
            "gpu.process_memory", "bytes", [0.0], [1e9], scope="rank", gpu=f"GPU-{rank}", rank=rank
        )
    return build


def sick() -> TraceBuilder:
    return clocks(HOT, 1100.0, 0.9)


def well() -> TraceBuilder:
    return clocks(POWER, 1750.0, 0.9, only=None)


def test_a_hot_gpu_is_named_with_its_rank_and_clock() -> None:
    found = finding(sick(), "GD025")
    assert found.ranks == (1,)
    assert value(found, "throttled") == pytest.approx(90, abs=2)
    assert value(found, "its clock") == 1100
    assert value(found, "fastest of its kind") == 1980
    assert found.cost == pytest.approx(0.9 * (1 - 1100 / 1980), abs=0.02)
    assert (found.severity, found.confidence) == ("high", 0.9)
    assert "GPU-1" in found.fixes[0].spelling


def test_a_little_slower_is_medium() -> None:
    assert finding(clocks(HOT, 1700.0, 0.2), "GD025").severity == "medium"


def test_the_power_limit_of_a_busy_gpu_is_usual() -> None:
    assert "no GPU is throttled by heat" in passed(well(), "GD025")


def test_a_power_limit_far_below_the_usual_clock_is_a_note() -> None:
    found = finding(clocks(POWER, 1200.0, 0.9), "GD025")
    assert (found.severity, found.confidence) == ("low", 0.6)
    assert "nvidia-smi -pl" in found.fixes[0].spelling


def test_a_touch_of_heat_passes() -> None:
    assert "no GPU is throttled" in passed(clocks(HOT, 1900.0, 0.9), "GD025")  # 4% slower
    assert "than 0.0%" in passed(clocks(HOT, 1100.0, 0.0), "GD025")


def test_an_idle_gpu_may_be_slow() -> None:
    assert passed(clocks(HOT, 300.0, 0.9, util=0.0), "GD025")


def test_without_samples_it_says_what_takes_them() -> None:
    assert "gpu.throttle" in missing(run(), "GD025")
