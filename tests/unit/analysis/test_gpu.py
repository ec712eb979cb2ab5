from __future__ import annotations

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.gpu import offloaded_bytes
from tests.build import TraceBuilder

GIB = 2**30


def run(ranks: int = 1) -> TraceBuilder:
    build = TraceBuilder(ranks=ranks)
    for rank in range(ranks):
        for number in range(4):
            phases = {"offload": 1.0, "rollout": 5.0, "train": 4.0}
            build.step(rank, number, 10.0 * number, phases)
    return build


def test_busy_is_weighted_by_time_and_leaves_out_what_lies_between_steps() -> None:
    build = run().gpu("a")
    build.series("gpu.util", "%", [0, 10, 39], [100, 20, 20], scope="gpu", gpu="a")
    busy = analyse(build.build()).gpu_busy
    assert busy is not None
    assert busy[0] == pytest.approx((10 * 100 + 29 * 20) / 39, rel=1e-6)
    assert busy[1] == "gpu.util"


def test_sm_activity_is_preferred() -> None:
    build = run().gpu("a")
    build.series("gpu.util", "%", [0, 40], [100, 100], scope="gpu", gpu="a")
    build.series("gpu.sm_active", "%", [0, 40], [30, 30], scope="gpu", gpu="a")
    busy = analyse(build.build()).gpu_busy
    assert busy is not None
    assert busy[0] == pytest.approx(30)
    assert busy[1] == "gpu.sm_active"


def test_memory_peaks_per_phase_of_the_gpus_own_rank() -> None:
    build = run(ranks=2).gpu("a", index=0).gpu("b", index=1)
    used = [10 * GIB, 30 * GIB, 50 * GIB, 50 * GIB]
    build.series("gpu.memory_used", "bytes", [0, 2, 7, 40], used, scope="gpu", gpu="b")
    (memory,) = analyse(build.build()).gpu_memory
    assert memory.rank == 1
    assert memory.peak_bytes == 50 * GIB
    assert memory.phase_peak_bytes["train"] == 50 * GIB
    assert memory.free_bytes == 30 * GIB


def test_offloaded_bytes_come_from_the_counter() -> None:
    build = run()
    build.series("offload/bytes", "", [0.5, 10.5], [3 * GIB, 3 * GIB], scope="counter", rank=0)
    moved = offloaded_bytes(build.build(), analyse(build.build()).tracks)
    assert moved is not None
    assert moved.bytes == 3 * GIB


def test_offloaded_bytes_else_come_from_the_drop_in_gpu_memory() -> None:
    build = run().gpu("a")
    times, used = [], []
    for number in range(4):
        times += [10.0 * number, 10.0 * number + 1.1, 10.0 * number + 6.0]
        used += [40 * GIB, 28 * GIB, 40 * GIB]
    build.series("gpu.memory_used", "bytes", times, used, scope="gpu", gpu="a")
    moved = offloaded_bytes(build.build(), analyse(build.build()).tracks)
    assert moved is not None
    assert moved.bytes == 12 * GIB
    assert "drop" in moved.source


def test_nothing_is_known_without_samples() -> None:
    analysis = analyse(run().build())
    assert analysis.gpu_busy is None
    assert analysis.gpu_memory == ()
    assert offloaded_bytes(analysis.trace, analysis.tracks) is None
