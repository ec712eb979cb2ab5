from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import OFFLOADED, offloaded
from tests.unit.findings.rules.saying import (
    even,
    finding_in,
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
    build = run(
        OFFLOADED,
        knobs=with_knobs(offload__optimizer=True, deepspeed__preset="ds.json"),
        memory_gib=memory_gib,
    )
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
    finding = finding_in(sick(), "GD026")
    rate = 2 * 3 / (2.0 * 1.01)
    assert value(finding, "offload moves") == pytest.approx(rate, abs=0.01)
    share = 2.02 / step_s(OFFLOADED)
    assert finding.cost == pytest.approx(share * (1 - rate / 20), rel=0.01)
    assert (finding.severity, finding.confidence) == ("medium", 0.7)
    (pinned,) = finding.to_paste
    assert '"zero_optimization.offload_optimizer.pin_memory": true' in pinned.spelling
    assert "nvidia-smi" in finding.next_steps[0].spelling


def test_a_good_link_passes() -> None:
    assert "offload moves 21.8 GB/s" in passed(well(), "GD026")


def test_a_link_that_is_busy_through_a_phase_is_found() -> None:
    finding = finding_in(traffic(18 * GB), "GD026")
    assert finding.phases == ("train",)
    assert value(finding, "traffic in train") == pytest.approx(17, abs=0.5)
    assert finding.severity == "medium"


def test_some_traffic_passes() -> None:
    assert "cross the link" in passed(traffic(4 * GB), "GD026")


def test_without_a_gpu_there_is_no_link() -> None:
    assert "no GPU" in not_applicable(moving(3 * GB, None), "GD026")


def test_without_numbers_it_says_what_takes_them() -> None:
    assert "gpu.pcie_rx" in missing(run(), "GD026")


def test_the_known_patient_moves_at_full_speed() -> None:
    assert "offload moves" in passed(offloaded(), "GD026")


def crossing(bytes_per_s: float, train_s: float = 5.0) -> TraceBuilder:
    """A rank whose link is as busy all the time."""
    build = even({"train": train_s})
    build.gpu("GPU-0")
    times, values = [0.0, 40.0], [bytes_per_s, bytes_per_s]
    return build.series("gpu.pcie_tx", "bytes/s", times, values, scope="gpu", gpu="GPU-0").series(
        "gpu.pcie_rx", "bytes/s", [100.0, 140.0], [25 * GB, 25 * GB], scope="gpu", gpu="GPU-0"
    )


@pytest.mark.parametrize(("gb_per_s", "busy"), [(12.0, True), (11.9, False)])
def test_a_link_is_busy_at_half_of_what_it_moves(gb_per_s: float, busy: bool) -> None:
    if busy:
        assert value(finding_in(crossing(gb_per_s * GB), "GD026"), "traffic in train") == 12.0
    else:
        note = passed(crossing(gb_per_s * GB), "GD026")
        assert note == "at most 11.9 GB/s cross the link, in train"


@pytest.mark.parametrize(("train_s", "looked_at"), [(0.5, True), (0.49, False)])
def test_a_phase_is_looked_at_from_a_twentieth_of_the_step_on(
    train_s: float, looked_at: bool
) -> None:
    build = crossing(20 * GB, train_s)
    if looked_at:
        assert finding_in(build, "GD026").phases == ("train",)
    else:
        assert passed(build, "GD026") == "no transfer was seen"
