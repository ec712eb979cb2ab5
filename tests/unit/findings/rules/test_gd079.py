from __future__ import annotations

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    finding_in,
    missing,
    not_applicable,
    passed,
    step_s,
    value,
)
from tests.unit.findings.rules.served import beside_servers, served

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


def sick() -> TraceBuilder:
    return queueing()


def well() -> TraceBuilder:
    return queueing(running=64.0, waiting=0.0)


def test_requests_that_wait_for_a_slot_are_the_cost() -> None:
    finding = finding_in(sick(), "GD079")
    assert value(finding, "requests that wait") == pytest.approx(75.0)
    assert value(finding, "limit of requests") == 16
    assert finding.cost == pytest.approx(0.75 * 5.0 * 1.01 / step_s(), rel=0.01)
    assert (finding.severity, finding.confidence) == ("high", 0.85)
    assert "`vllm serve` on host-a, pid 700 wait: at most 16 run at once" in finding.cause
    (fix,) = finding.fixes
    assert fix.spelling == "for `vllm serve`: --max-num-seqs 64"
    assert (fix.before, fix.after, fix.predicted) == (16, 64, None)


def test_sglang_has_another_flag() -> None:
    command = ("python", "-m", "sglang.launch_server", "--max-running-requests", "16")
    (fix,) = finding_in(queueing(command=command), "GD079").fixes
    assert fix.spelling == "for SGLang: --max-running-requests 64"


def test_without_the_command_it_is_advice_and_less_sure() -> None:
    finding = finding_in(queueing(pid=None), "GD079")
    assert finding.confidence == 0.6
    assert not finding.fixes[0].pasted
    assert "64 requests at once" in finding.fixes[0].spelling


def test_without_a_gpu_the_cost_is_only_a_bound() -> None:
    assert finding_in(queueing(memory_gib=None), "GD079").severity == "medium"


def test_a_server_below_its_limit_waits_for_something_else() -> None:
    assert "16 of 256 run" in passed(queueing(command=(*SLOTS[:-1], "256")), "GD079")
    assert finding_in(queueing(command=(*SLOTS[:-1], "17")), "GD079")  # nine tenths of it


def test_a_full_cache_is_another_finding() -> None:
    assert "no room" in passed(queueing(full=90.0), "GD079")
    assert finding_in(queueing(full=89.0), "GD079")


def test_one_request_in_ten_is_too_many() -> None:
    assert finding_in(queueing(running=89.0, waiting=11.0), "GD079")
    assert "9% of the requests wait" in passed(queueing(running=91.0, waiting=9.0), "GD079")


def test_a_short_rollout_has_nothing_to_give() -> None:
    assert "rollout takes" in passed(queueing(phases={**HEALTHY, "rollout": 0.5}), "GD079")


def test_an_unknown_cache_does_not_stop_it() -> None:
    assert finding_in(queueing(full=None), "GD079").cause.endswith("at most 16 run at once.")


def test_who_says_nothing_of_its_queue_is_not_judged() -> None:
    assert "`server.requests_waiting`" in missing(
        served(beside_servers(), requests_running=16.0), "GD079"
    )


def test_an_engine_within_the_ranks_is_no_server() -> None:
    build = sick()
    build.knobs["vllm.mode"] = "colocate"
    assert "within the ranks" in not_applicable(build, "GD079")


def test_a_limit_of_none_is_no_limit() -> None:
    finding = finding_in(queueing(command=(*SLOTS[:-1], "0")), "GD079")
    assert finding.confidence == 0.6
    assert not [e for e in finding.evidence if e.text == "limit of requests"]
