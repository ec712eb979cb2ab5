from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import GIB
from tests.unit.findings.recorded import memory
from tests.unit.findings.rules.saying import (
    finding_in,
    not_applicable,
    passed,
    run,
    step_starts,
    value,
    with_knobs,
)
from tests.unit.findings.rules.test_gd020 import gathering

WHOLE = with_knobs(deepspeed__stage=3)
PARTS = with_knobs(deepspeed__stage=3, sync__move_model_batches=200)


def sick() -> TraceBuilder:
    return gathering(200, 0.006, knobs=PARTS)


def well() -> TraceBuilder:
    return gathering(8, 0.05, knobs={**PARTS, "sync.move_model_batches": 8})


def gathered_whole(
    gib: float, knobs: dict[str, object] = WHOLE, *, gpus_gib: tuple[float, ...] = (80.0,) * 4
) -> TraceBuilder:
    """GPU memory that is this full while the weights are sent, at the end of the step; of a GPU
    that is not of 80 GiB 100 GiB are."""
    build = run(knobs=knobs, memory_gib=None)
    times = [at for start in step_starts() for at in (start, start + 9.6)]
    for rank, size in enumerate(gpus_gib):
        values = [40.0 * GIB, (gib if size == 80.0 else 100.0) * GIB] * (len(times) // 2)
        build.gpu(f"GPU-{rank}", index=rank, memory_gib=size)
        build.series("gpu.memory_used", "bytes", times, values, scope="gpu", gpu=f"GPU-{rank}")
    return build


def test_parts_whose_fixed_cost_shows_are_too_many() -> None:
    finding = finding_in(sick(), "GD022")
    assert value(finding, "fixed cost") == pytest.approx(1.2)
    assert finding.cost == pytest.approx(1.2 / (8.0 + 200 * 0.006 * 1.1))
    assert (finding.severity, finding.confidence) == ("medium", 0.5)
    assert finding.fixes[0].spelling == "--move_model_batches 50"
    assert "was not sampled" in finding.fixes[0].risk


def test_few_parts_pass() -> None:
    assert passed(well(), "GD022") == "8 parts of 50 ms each"


def test_many_large_parts_are_bytes_and_not_a_fixed_cost() -> None:
    note = passed(gathering(32, 0.06, knobs=PARTS), "GD022")
    assert note == "32 parts of 66 ms each"


def test_a_cheap_sync_may_have_many_parts() -> None:
    assert "fixed cost of 200 parts" in passed(gathering(200, 0.0005, knobs=PARTS), "GD022")


def test_a_whole_model_gathered_into_a_full_gpu_is_cut() -> None:
    finding = finding_in(gathered_whole(76.0), "GD022")
    assert value(finding, "of the GPU") == pytest.approx(95.0)
    assert (finding.severity, finding.cost) == ("medium", 0.0)
    assert finding.fixes[0].spelling == "--move_model_batches 8"
    assert "frees memory" in finding.fixes[0].risk


def test_the_evidence_is_of_the_gpu_that_is_fullest_not_of_the_largest() -> None:
    finding = finding_in(gathered_whole(76.0, gpus_gib=(80.0, 80.0, 80.0, 140.0)), "GD022")
    assert value(finding, "of the GPU") == pytest.approx(95.0)
    assert value(finding, "peak GPU memory in sync") == 76.0


def test_a_whole_model_with_room_passes() -> None:
    assert "at most 75% full" in passed(gathered_whole(60.0), "GD022")


def test_weights_that_are_whole_anyway_are_not_gathered() -> None:
    knobs = {**WHOLE, "deepspeed.stage": 2}
    assert "whole on every rank" in not_applicable(gathered_whole(76.0, knobs), "GD022")


def test_a_framework_without_the_setting_is_not_asked() -> None:
    build = run(framework="trl", framework_version="1.16.0")
    assert "no such setting" in not_applicable(build, "GD022")


@pytest.mark.parametrize(("gib", "full"), [(72.0, True), (71.9, False)])
def test_a_whole_model_is_cut_from_nine_tenths_on(gib: float, full: bool) -> None:
    if full:
        assert "memory is 90% full" in finding_in(gathered_whole(gib), "GD022").cause
    else:
        assert "with memory at most 90% full" in passed(gathered_whole(gib), "GD022")


@pytest.mark.parametrize(("gib", "room"), [(60.0, True), (60.1, False)])
def test_parts_may_grow_up_to_three_quarters_of_the_memory(gib: float, room: bool) -> None:
    build = memory(gathering(200, 0.006, knobs=PARTS), {"sync": gib})
    if room:
        assert "memory is 75% full during sync" in finding_in(build, "GD022").fixes[0].risk
    else:
        assert passed(build, "GD022") == "200 parts, with memory 75% full during sync"


@pytest.mark.parametrize(("count", "many"), [(16, True), (15, False)])
def test_sixteen_parts_are_many(count: int, many: bool) -> None:
    build = gathering(count, 0.0185, knobs=PARTS)
    if many:
        assert value(finding_in(build, "GD022"), "gathers per step") == 16
    else:
        assert passed(build, "GD022") == "15 parts of 20 ms each"
