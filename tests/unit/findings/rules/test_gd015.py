from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    counted,
    finding_in,
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
    finding = finding_in(sick(), "GD015")
    assert value(finding, "requests that wait") == pytest.approx(75.0)
    assert finding.cost == pytest.approx(0.75 * 5.05 / step_s(), rel=0.01)
    assert (finding.severity, finding.confidence) == ("high", 0.85)
    (fix,) = finding.fixes
    assert fix.spelling == "--vllm_max_num_seqs 64"  # 16 ran and 48 waited at once
    assert fix.before == 16


def test_on_a_cpu_it_is_not_grave() -> None:
    finding = finding_in(engine(8.0, 24.0, 30.0, memory_gib=None), "GD015")
    assert (finding.severity, finding.confidence) == ("medium", 0.6)


def test_requests_that_wait_with_slots_free_wait_for_their_first_pass() -> None:
    assert "not a slot" in passed(engine(6.0, 24.0, 30.0), "GD015")  # 12 of 16 ran at most


def test_a_servers_slots_are_its_own_setting() -> None:
    build = engine(6.0, 24.0, 30.0)
    build.knobs["vllm.mode"] = "server"
    (fix,) = finding_in(build, "GD015").fixes
    assert fix.knob is None
    assert "--max-num-seqs 60" in fix.spelling


def test_a_full_cache_is_another_rules() -> None:
    assert "no room for more requests" in passed(engine(8.0, 24.0, 95.0), "GD015")


def test_too_few_requests_are_a_question() -> None:
    finding = finding_in(engine(6.0, 0.0, 10.0), "GD015")
    assert (finding.severity, finding.confidence, finding.cost) == ("low", 0.6, 0.0)
    assert finding.fixes[0].spelling == "--steps_per_generation 8"
    assert finding.fixes[0].safety == "changes-algorithm"


def test_the_few_requests_that_wait_are_counted() -> None:
    finding = finding_in(engine(6.0, 0.25, 10.0), "GD015")
    assert finding.confidence == 0.6
    assert value(finding, "requests that wait") == pytest.approx(4.0)  # 0.25 of 6.25


def test_too_few_requests_on_a_cpu_are_what_it_can_take() -> None:
    assert "at most 12 run" in passed(engine(6.0, 0.0, 10.0, memory_gib=None), "GD015")


def test_without_counters_it_says_what_records_them() -> None:
    assert "engine/running_requests_peak" in missing(run(), "GD015")


@pytest.mark.parametrize(("waiting", "enough"), [(0.5, True), (0.49, False)])
def test_a_tenth_of_the_requests_has_to_wait(waiting: float, enough: bool) -> None:
    # 9 of 16 slots are taken.
    note = passed(engine(4.5, waiting, 30.0), "GD015")
    assert ("for their first pass, not a slot" in note) is enough
    # All 18 that may.
    busy = engine(9.0, 2 * waiting, 30.0)
    if enough:
        assert finding_in(busy, "GD015").cause.startswith("10% of the engine's requests wait")
    else:
        assert "at most 18 run at once" in passed(busy, "GD015")


def with_lengths(build: TraceBuilder) -> TraceBuilder:
    """Twenty completions per rollout, all as long."""
    return counted(build, {"engine/completions_of_257_to_512_tokens": 20.0})


@pytest.mark.parametrize(
    ("peak", "full", "few"), [(32.0, 25.0, True), (33.0, 25.0, False), (32.0, 25.1, False)]
)
def test_few_requests_in_a_nearly_empty_cache_are_too_few(
    peak: float, full: float, few: bool
) -> None:
    build = engine(peak / 2, 0.0, full)
    if few:
        assert (
            "decodes at most 32 requests at once and fills 25%" in finding_in(build, "GD015").cause
        )
    else:
        assert "of the requests wait; at most" in passed(build, "GD015")


@pytest.mark.parametrize("known", [True, False])
def test_where_no_flag_rolls_out_more_it_is_advised_in_words(known: bool) -> None:
    build = engine(6.0, 0.0, 10.0)
    if not known:
        del build.knobs["train.grad_accumulation"]
    build.framework = "unknown"
    (fix,) = finding_in(build, "GD015").fixes
    assert fix.knob is None
    assert fix.spelling == "roll out more prompts at once, or give each engine fewer GPUs"
