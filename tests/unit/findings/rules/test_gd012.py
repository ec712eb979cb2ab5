from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    counted,
    finding_in,
    missing,
    passed,
    run,
    step_s,
    value,
    with_knobs,
)

KNOBS = with_knobs(vllm__gpu_memory_utilization=0.3)


def engine(
    *,
    full: float = 99.0,
    running: float = 30.0,
    waiting: float = 20.0,
    preemptions: float = 12.0,
    memory_gib: tuple[float, float] | None = (40.0, 48.0),
    phases: dict[str, float] = HEALTHY,
) -> TraceBuilder:
    """An engine of 64 requests per rollout."""
    build = run(phases, knobs=KNOBS, memory_gib=memory_gib)
    return counted(
        build,
        {
            "engine/kv_cache_peak_pct": full,
            "engine/running_requests_mean": running,
            "engine/running_requests_peak": 40.0,
            "engine/waiting_requests_mean": waiting,
            "engine/waiting_requests_peak": 24.0,
            "engine/preemptions": preemptions,
        },
    )


def sick() -> TraceBuilder:
    return engine()


def well() -> TraceBuilder:
    return engine(full=60.0, waiting=0.0, preemptions=0.0)


def test_waiting_and_preempted_requests_are_the_cost() -> None:
    finding = finding_in(sick(), "GD012")
    queued, preempted = 20 / 50, 12 / 64
    assert value(finding, "requests that wait") == pytest.approx(100 * queued)
    assert value(finding, "requests preempted") == pytest.approx(100 * preempted, abs=0.1)
    rollout = 5.0 * 1.01 / step_s()
    assert finding.cost == pytest.approx(rollout * (queued + preempted), rel=0.01)
    assert (finding.severity, finding.confidence) == ("high", 0.9)


def test_the_engine_gets_what_no_gpu_ever_used() -> None:
    # 48 of 80 GiB used: 40% free, a tenth stays, 0.3 + 0.3.
    assert finding_in(sick(), "GD012").fixes[0].spelling == "--vllm_gpu_memory_utilization 0.6"


def test_a_full_gpu_gets_advice() -> None:
    (fix,) = finding_in(engine(memory_gib=(70.0, 76.0)), "GD012").fixes
    assert fix.knob is None
    assert "--vllm_gpu_memory_utilization" in fix.spelling
    assert "Gain not predicted" in fix.risk


def test_waiting_alone_is_not_grave() -> None:
    finding = finding_in(engine(preemptions=0.0), "GD012")
    assert (finding.severity, finding.confidence) == ("medium", 0.7)


def test_a_cache_with_room_passes_however_many_wait() -> None:
    assert "60% full" in passed(engine(full=60.0), "GD012")


def test_a_full_cache_that_holds_nobody_back_passes() -> None:
    assert "0% of the requests wait" in passed(engine(waiting=0.0, preemptions=0.0), "GD012")


def test_a_short_rollout_has_nothing_to_give() -> None:
    assert "rollout takes" in passed(engine(phases={**HEALTHY, "rollout": 0.2}), "GD012")


def test_without_the_engines_counters_it_says_what_records_them() -> None:
    assert "engine/kv_cache_peak_pct" in missing(run(), "GD012")


def test_numbers_that_are_none_are_no_finding() -> None:
    assert "kv_cache_peak_pct" in missing(engine(full=float("nan")), "GD012")
    assert "0% of the requests wait" in passed(
        engine(waiting=float("nan"), preemptions=float("nan")), "GD012"
    )


def test_a_server_or_unknown_memory_is_given_no_number() -> None:
    advised = finding_in(engine(), "GD012").fixes[0]
    assert advised.knob == "vllm.gpu_memory_utilization"
    assert finding_in(engine(memory_gib=None), "GD012").fixes[0].knob != advised.knob


def test_the_mean_of_the_engine_s_requests_is_shown() -> None:
    finding = finding_in(sick(), "GD012")
    assert value(finding, "requests running") == 30.0
    assert value(finding, "requests waiting") == 20.0


@pytest.mark.parametrize(
    ("running", "waiting", "preemptions", "is_found"),
    [
        (19.0, 1.0, 0.0, True),  # one in twenty waits
        (19.1, 1.0, 0.0, False),
        (20.0, 0.0, 1.28, True),  # one in fifty of 64 is thrown out
        (20.0, 0.0, 1.27, False),
        (19.1, 1.0, 1.27, False),
    ],
)
def test_either_waiting_or_throwing_out_is_enough(
    running: float, waiting: float, preemptions: float, is_found: bool
) -> None:
    build = engine(running=running, waiting=waiting, preemptions=preemptions)
    if is_found:
        assert finding_in(build, "GD012").phases == ("rollout",)
    else:
        assert "of the requests wait" in passed(build, "GD012")
