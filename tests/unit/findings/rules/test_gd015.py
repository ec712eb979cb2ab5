from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    counted,
    finding_in,
    missing,
    not_applicable,
    passed,
    run,
    step_s,
    value,
    with_knobs,
)
from tests.unit.findings.rules.served import beside_servers, served


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
    assert value(finding, "waiting requests") == pytest.approx(75.0)
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
    assert value(finding, "waiting requests") == pytest.approx(4.0)  # 0.25 of 6.25


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
        assert finding_in(busy, "GD015").cause.startswith("10% of the requests at the engine wait")
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
    assert fix.spelling == "generate more prompts at once, or give each engine fewer GPUs"


SLOTS = ("vllm", "serve", "m", "--max-num-seqs", "16")


def queueing(
    *,
    running: float = 16.0,
    waiting: float = 48.0,
    full: float | None = 30.0,
    command: tuple[str, ...] = SLOTS,
    pid: int | None = 700,
    phases: dict[str, float] = HEALTHY,
    memory_gib: tuple[float, float] | None = (70.0, 72.0),
) -> TraceBuilder:
    """64 requests throughout each rollout."""
    cache = {} if full is None else {"kv_cache": full}
    return served(
        beside_servers(phases, memory_gib=memory_gib), pid=pid, command=command,
        requests_running=running, requests_waiting=waiting, **cache,
    )  # fmt: skip


def test_at_a_server_they_are_the_cost() -> None:
    finding = finding_in(queueing(), "GD015")
    assert value(finding, "waiting requests") == pytest.approx(75.0)
    assert value(finding, "limit of requests") == 16
    assert finding.cost == pytest.approx(0.75 * 5.0 * 1.01 / step_s(), rel=0.01)
    assert (finding.severity, finding.confidence) == ("high", 0.85)
    assert "`vllm serve` on host-a, pid 700 wait: at most 16 run at once" in finding.cause
    (fix,) = finding.fixes
    assert fix.spelling == "for `vllm serve`: --max-num-seqs 64"
    assert (fix.before, fix.after, fix.predicted) == (16, 64, None)


def test_sglang_has_another_flag() -> None:
    command = ("python", "-m", "sglang.launch_server", "--max-running-requests", "16")
    (fix,) = finding_in(queueing(command=command), "GD015").fixes
    assert fix.spelling == "for SGLang: --max-running-requests 64"


def test_without_the_command_it_is_advice_and_less_sure() -> None:
    finding = finding_in(queueing(pid=None), "GD015")
    assert finding.confidence == 0.6
    assert not finding.fixes[0].pasted
    assert "64 requests at once" in finding.fixes[0].spelling


def test_a_server_below_its_limit_waits_for_something_else() -> None:
    assert "16 of 256 run" in passed(queueing(command=(*SLOTS[:-1], "256")), "GD015")
    assert finding_in(queueing(command=(*SLOTS[:-1], "17")), "GD015")  # nine tenths of it


def test_a_server_s_full_cache_is_another_finding() -> None:
    assert "no room" in passed(queueing(full=90.0), "GD015")
    assert finding_in(queueing(full=89.0), "GD015")


def test_one_request_in_ten_is_too_many() -> None:
    assert finding_in(queueing(running=89.0, waiting=11.0), "GD015")
    assert "9% of the requests wait" in passed(queueing(running=91.0, waiting=9.0), "GD015")


def test_a_short_rollout_has_nothing_to_give() -> None:
    assert "rollout takes" in passed(queueing(phases={**HEALTHY, "rollout": 0.5}), "GD015")


def test_an_unknown_cache_does_not_stop_it() -> None:
    assert finding_in(queueing(full=None), "GD015").cause.endswith("at most 16 run at once.")


def test_who_says_nothing_of_its_queue_is_not_judged() -> None:
    assert "`server.requests_waiting`" in missing(
        served(beside_servers(), requests_running=16.0), "GD015"
    )


def test_an_engine_within_the_ranks_is_no_server() -> None:
    build = queueing()
    build.knobs["vllm.mode"] = "colocate"
    assert "within the ranks" in not_applicable(build, "GD015")


def test_a_limit_of_none_is_no_limit() -> None:
    finding = finding_in(queueing(command=(*SLOTS[:-1], "0")), "GD015")
    assert finding.confidence == 0.6
    assert not [e for e in finding.evidence if e.text == "limit of requests"]
