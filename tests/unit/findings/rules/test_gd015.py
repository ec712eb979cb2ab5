from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    counted,
    finding,
    missing,
    passed,
    run,
    step_s,
    value,
    with_knobs,
)


def engine(
    running: float,
    waiting: float,
    full: float,
    *,
    memory_gib: tuple[float, float] | None = (70.0, 72.0),
) -> TraceBuilder:
    """An engine with so many requests in the mean; the peaks are twice that."""
    knobs = with_knobs(vllm__max_num_seqs=16, train__grad_accumulation=4)
    return counted(
        run(knobs=knobs, memory_gib=memory_gib),
        {
            "engine/running_requests_mean": running,
            "engine/running_requests_peak": 2 * running,
            "engine/waiting_requests_mean": waiting,
            "engine/waiting_requests_peak": 2 * waiting,
            "engine/kv_cache_peak_pct": full,
        },
    )


def sick() -> TraceBuilder:
    return engine(8.0, 24.0, 30.0)


def well() -> TraceBuilder:
    return engine(64.0, 0.0, 60.0)


def test_requests_that_wait_for_a_slot_get_one() -> None:
    found = finding(sick(), "GD015")
    assert value(found, "requests that wait") == pytest.approx(75.0)
    assert found.cost == pytest.approx(0.75 * 5.05 / step_s(), rel=0.01)
    assert (found.severity, found.confidence) == ("high", 0.85)
    (fix,) = found.fixes
    assert fix.spelling == "--vllm_max_num_seqs 64"  # 16 ran and 48 waited at once
    assert fix.before == 16


def test_on_a_cpu_it_is_not_grave() -> None:
    found = finding(engine(8.0, 24.0, 30.0, memory_gib=None), "GD015")
    assert (found.severity, found.confidence) == ("medium", 0.6)


def test_requests_that_wait_with_slots_free_wait_for_their_first_pass() -> None:
    assert "not a slot" in passed(engine(6.0, 24.0, 30.0), "GD015")  # 12 of 16 ran at most


def test_a_servers_slots_are_its_own_setting() -> None:
    build = engine(6.0, 24.0, 30.0)
    build.knobs["vllm.mode"] = "server"
    (fix,) = finding(build, "GD015").fixes
    assert fix.knob is None
    assert "--max-num-seqs 60" in fix.spelling


def test_a_full_cache_is_another_rules() -> None:
    assert "no room for more requests" in passed(engine(8.0, 24.0, 95.0), "GD015")


def test_too_few_requests_are_a_question() -> None:
    found = finding(engine(6.0, 0.0, 10.0), "GD015")
    assert (found.severity, found.confidence, found.cost) == ("low", 0.6, 0.0)
    assert found.fixes[0].spelling == "--steps_per_generation 8"
    assert found.fixes[0].safety == "changes-algorithm"


def test_too_few_requests_on_a_cpu_are_what_it_can_take() -> None:
    assert "at most 12 run" in passed(engine(6.0, 0.0, 10.0, memory_gib=None), "GD015")


def test_without_counters_it_says_what_records_them() -> None:
    assert "engine/running_requests_peak" in missing(run(), "GD015")
