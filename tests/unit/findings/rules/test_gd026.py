from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import OFFLOADED, offloaded
from tests.unit.findings.rules.saying import (
    finding,
    missing,
    not_applicable,
    passed,
    run,
    step_s,
    step_starts,
    value,
    with_knobs,
)

GB = 1e9


def moving(
    bytes_per_rollout: float, memory_gib: tuple[float, float] | None = (40, 72)
) -> TraceBuilder:
    """Two seconds of offload per step for so many bytes, out and back."""
    build = run(OFFLOADED, knobs=with_knobs(offload__optimizer=True), memory_gib=memory_gib)
    times = [start + 1.0 for start in step_starts(OFFLOADED)]
    for rank in range(4):
        build.series(
            "offload/bytes", "", times, [bytes_per_rollout] * len(times), scope="counter", rank=rank
        )
    return build


def traffic(bytes_per_s: float) -> TraceBuilder:
    build = run()
    times = [start + at for start in step_starts() for at in (0.0, 6.4, 9.2)]
    for rank in range(4):
        values = [0.0, bytes_per_s, 0.0] * len(step_starts())
        build.series("gpu.pcie_rx", "bytes/s", times, values, scope="gpu", gpu=f"GPU-{rank}")
    return build


def sick() -> TraceBuilder:
    return moving(3 * GB)


def well() -> TraceBuilder:
    return moving(22 * GB)


def test_slow_copies_cost_what_a_good_link_would_save() -> None:
    found = finding(sick(), "GD026")
    rate = 2 * 3 / (2.0 * 1.01)
    assert value(found, "offload moves") == pytest.approx(rate, abs=0.01)
    share = 2.02 / step_s(OFFLOADED)
    assert found.cost == pytest.approx(share * (1 - rate / 20), rel=0.01)
    assert (found.severity, found.confidence) == ("medium", 0.7)
    (pinned,) = found.to_paste
    assert '"zero_optimization.offload_optimizer.pin_memory": true' in pinned.spelling
    assert "nvidia-smi" in found.next_steps[0].spelling


def test_a_good_link_passes() -> None:
    assert "offload moves 21.8 GB/s" in passed(well(), "GD026")


def test_a_link_that_is_busy_through_a_phase_is_found() -> None:
    found = finding(traffic(18 * GB), "GD026")
    assert found.phases == ("train",)
    assert value(found, "traffic in train") == pytest.approx(17, abs=0.5)
    assert found.severity == "medium"


def test_some_traffic_passes() -> None:
    assert "cross the link" in passed(traffic(4 * GB), "GD026")


def test_without_a_gpu_there_is_no_link() -> None:
    assert "no GPU" in not_applicable(moving(3 * GB, None), "GD026")


def test_without_numbers_it_says_what_takes_them() -> None:
    assert "gpu.pcie_rx" in missing(run(), "GD026")


def test_the_known_patient_moves_at_full_speed() -> None:
    assert "offload moves" in passed(offloaded(), "GD026")
