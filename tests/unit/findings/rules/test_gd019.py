from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.example_runs import GIB
from tests.unit.findings.rules.saying import (
    STEPS,
    finding_in,
    mid,
    not_applicable,
    passed,
    value,
    with_knobs,
)


def waking(
    before: float, after: float, knobs: dict[str, object], *, sync_gib: float | None = None
) -> TraceBuilder:
    """Ranks that wake something before the sync and after it, and sleep after the rollout."""
    build = TraceBuilder(ranks=2, knobs=knobs, framework="ms-swift", framework_version="4.6.0")
    for number in range(STEPS):
        at = 20.0 * number
        now = at + 0.1
        for rank in (0, 1):
            now = at + 0.1
            build.span(rank, "dataload", at, now)
            order = [
                ("offload", before), ("sync", 0.5), ("offload", after), ("rollout", 5.0),
                ("offload", 0.4), ("reward", 0.2), ("train", 4.0),
            ]  # fmt: skip
            for name, seconds in order:
                if seconds:
                    build.span(rank, name, now, now + seconds)
                    now += seconds
            build.collective(rank, number, now - 0.1, now)
            build.step(rank, number, at, {}, end_s=now)
        if sync_gib is not None:
            in_sync = at + 0.1 + before
            times, values = [at, in_sync, in_sync + 0.5], [20.0, sync_gib, 20.0]
            for rank in (0, 1):
                build.series(
                    "gpu.memory_used", "bytes", times, [GIB * v for v in values],
                    scope="gpu", gpu=f"GPU-{rank}",
                )  # fmt: skip
    if sync_gib is not None:
        for rank in (0, 1):
            build.gpu(f"GPU-{rank}", index=rank)
    return build


LEVEL_1, LEVEL_2 = with_knobs(vllm__sleep_level=1), with_knobs(vllm__sleep_level=2)


def sick() -> TraceBuilder:
    return waking(1.5, 0.3, LEVEL_1)


def well() -> TraceBuilder:
    return waking(0.1, 0.3, LEVEL_2)


def test_old_weights_that_are_overwritten_are_the_cost() -> None:
    finding = finding_in(sick(), "GD019")
    step = 0.1 + 1.5 + 0.5 + 0.3 + 5.0 + 0.4 + 0.2 + 4.0
    assert value(finding, "just before sync") == pytest.approx(1.5)
    assert value(finding, "between sync") == pytest.approx(0.3)
    assert finding.cost == pytest.approx(1.5 / step)
    assert finding.severity == "medium"
    (fix,) = finding.fixes
    assert fix.spelling == "--sleep_level 2"
    assert mid(fix) == pytest.approx(-100 * 1.5 / step, abs=0.5)


def test_adapters_need_their_base_back() -> None:
    knobs = {**LEVEL_1, "vllm.enable_lora": True}
    assert "the wake-up before a sync takes" in passed(waking(1.5, 0.3, knobs), "GD019")


def test_a_cache_that_is_woken_first_needs_a_full_gpu_to_matter() -> None:
    finding = finding_in(waking(0.2, 0.0, LEVEL_2, sync_gib=76.0), "GD019")
    assert value(finding, "peak GPU memory in sync") == pytest.approx(76.0)
    assert (finding.severity, finding.cost) == ("medium", 0.0)
    assert "wake_up" in finding.fixes[0].spelling


def test_a_cache_that_is_woken_first_with_room_passes() -> None:
    note = passed(waking(0.2, 0.0, LEVEL_2, sync_gib=40.0), "GD019")
    assert "at most 50% full" in note
    assert "not sampled" in passed(waking(0.2, 0.0, LEVEL_2), "GD019")


def test_the_right_order_passes() -> None:
    assert "takes 0.9%" in passed(well(), "GD019")
    assert "nothing is woken" in passed(waking(0.0, 0.3, LEVEL_2), "GD019")


def test_an_engine_that_stays_awake_has_no_order() -> None:
    knobs = with_knobs(vllm__sleep_level=0)
    assert "does not sleep" in not_applicable(waking(0.2, 0.0, knobs), "GD019")


@pytest.mark.parametrize(("sync_gib", "full"), [(72.0, True), (71.9, False)])
def test_memory_is_full_at_nine_tenths(sync_gib: float, full: bool) -> None:
    build = waking(0.2, 0.0, LEVEL_2, sync_gib=sync_gib)
    if full:
        assert "memory is 90% full meanwhile" in finding_in(build, "GD019").cause
    else:
        assert "with memory at most 90% full" in passed(build, "GD019")
