from __future__ import annotations

import dataclasses

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.gpu import offloaded_bytes, rank_gpus, truly_busy_percent
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


def busy_of(build: TraceBuilder, *, hidden: str) -> float | None:
    trace = build.build()
    gpus = tuple(dataclasses.replace(gpu, visible=gpu.uuid != hidden) for gpu in trace.gpus)
    busy = analyse(dataclasses.replace(trace, gpus=gpus)).gpu_busy
    return None if busy is None else busy[0]


def test_a_gpu_that_the_job_does_not_see_is_in_no_mean() -> None:
    build = run().gpu("a").gpu("b", index=1)
    for uuid, used in (("a", 80.0), ("b", 20.0)):
        build.series("gpu.util", "%", [0, 40], [used, used], scope="gpu", gpu=uuid)
    assert busy_of(build, hidden="b") == pytest.approx(80)
    assert busy_of(build, hidden="") == pytest.approx(50)


def power(draws: list[float], limit: float | None = None) -> float | None:
    build = run().gpu("a").gpu("b", index=1)
    times = [0.0, 10.0, 20.0, 30.0]
    build.series("gpu.power", "W", times, draws, scope="gpu", gpu="a")
    if limit:
        build.series("gpu.power_limit", "W", times, [limit] * 4, scope="gpu", gpu="a")
    busy = truly_busy_percent(build.build(), analyse(build.build()).used_windows)
    return None if busy is None else busy[0]


def test_power_between_idle_and_the_limit() -> None:
    assert power([100, 300, 300, 300]) == pytest.approx(200 / 3)
    assert power([100, 300, 300, 300], limit=500.0) == pytest.approx(100 / 3)
    assert power([100, 300, 300, 300], limit=200.0) == pytest.approx(200 / 3)


def test_power_that_hardly_varies_says_nothing() -> None:
    assert power([100, 199, 199, 199]) is None
    assert power([100, 200, 200, 200]) is not None
    assert power([0, 200, 200, 200]) is None


def test_a_rank_works_on_the_gpu_where_it_holds_most() -> None:
    build = run(ranks=2).gpu("a", index=0).gpu("b", index=1)
    for gpu, rank, used in (("a", 1, 5), ("b", 1, 1), ("b", 0, 9), ("a", 0, 2)):
        times = [0.0, 40.0]
        build.series(
            "gpu.process_memory", "bytes", times, [used, used], scope="gpu", gpu=gpu, rank=rank
        )
    assert rank_gpus(build.build()) == {0: "b", 1: "a"}


def test_a_rank_whose_memory_nobody_saw_works_on_the_gpu_of_its_place() -> None:
    build = run(ranks=2).gpu("b", index=1).gpu("a", index=0)
    assert rank_gpus(build.build()) == {0: "a", 1: "b"}
    assert rank_gpus(run(ranks=3).gpu("a").gpu("b", index=1).build()) == {}
    trace = build.build()
    first, second = trace.processes
    swapped = (dataclasses.replace(first, local_rank=1), dataclasses.replace(second, local_rank=0))
    assert rank_gpus(dataclasses.replace(trace, processes=swapped)) == {0: "b", 1: "a"}
    beyond = (first, dataclasses.replace(second, local_rank=2))
    assert rank_gpus(dataclasses.replace(trace, processes=beyond)) == {0: "a"}


@pytest.mark.parametrize(
    ("uuids", "hidden", "used"),
    [
        (("a", "b"), "", 100 / 3),
        (("a", "b"), "b", 200 / 3),
        (("a",), "", 200 / 3),  # b belongs to somebody else
        ((), "", 100 / 3),
    ],
)
def test_power_is_that_of_the_gpus_that_the_job_sees(
    uuids: tuple[str, ...], hidden: str, used: float
) -> None:
    build = run()
    for index, uuid in enumerate(uuids):
        build.gpu(uuid, index=index)
    times = [0.0, 10.0, 20.0, 30.0]
    for uuid, draws in (("a", [100.0, 300, 300, 300]), ("b", [100.0, 100, 100, 300])):
        build.series("gpu.power", "W", times, draws, scope="gpu", gpu=uuid)
    trace = build.build()
    gpus = tuple(dataclasses.replace(gpu, visible=gpu.uuid != hidden) for gpu in trace.gpus)
    trace = dataclasses.replace(trace, gpus=gpus)
    busy = truly_busy_percent(trace, analyse(trace).used_windows)
    assert busy is not None
    assert busy[0] == pytest.approx(used)
