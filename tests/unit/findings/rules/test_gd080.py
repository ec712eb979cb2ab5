from __future__ import annotations

from typing import Any

import pytest

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import (
    HEALTHY,
    even,
    finding_in,
    missing,
    not_applicable,
    passed,
    step_s,
    value,
)
from tests.unit.findings.rules.served import UNITS, beside_servers, served

STEP_S = step_s()


def two(
    *,
    tokens: tuple[float, float] | None = (900.0, 100.0),
    for_s: tuple[float, float] = (5.0, 1.0),
    waiting: tuple[float, float] | None = None,
    running: tuple[float, float] = (20.0, 20.0),
    phases: dict[str, float] = HEALTHY,
) -> TraceBuilder:
    """Two servers, with so many tokens per second and busy for so long in each rollout."""
    build = beside_servers(phases)
    for index in range(2):
        values: dict[str, Any] = {"requests_running": running[index]}
        if tokens is not None:
            values["generated_tokens"] = tokens[index]
        if waiting is not None:
            values["requests_waiting"] = waiting[index]
        served(build, pid=700 + index, for_s=for_s[index], **values)
    return build


def sick() -> TraceBuilder:
    return two()


def well() -> TraceBuilder:
    return two(tokens=(500.0, 520.0), for_s=(5.0, 4.9))


def test_the_busiest_beyond_the_mean_is_the_cost() -> None:
    finding = finding_in(sick(), "GD080")
    assert value(finding, "tokens of `vllm serve` on host-a, pid 701") == pytest.approx(
        2.2, abs=0.1
    )
    assert value(finding, "any request at `vllm serve` on host-a, pid 700") == pytest.approx(
        100 * 5.0 / STEP_S, rel=0.02
    )
    assert finding.cost == pytest.approx((5.0 - 1.0) / 2 / STEP_S, rel=0.02)
    assert finding.confidence == 0.8
    assert "pid 701 has 2% of the tokens" in finding.cause
    (fix,) = finding.fixes
    assert (fix.pasted, fix.predicted) == (False, None)


def test_a_queue_beside_an_idle_server_costs_as_long_as_it_stands() -> None:
    build = two(tokens=(500.0, 500.0), for_s=(5.0, 2.0), waiting=(10.0, 0.0))
    finding = finding_in(build, "GD080")
    assert finding.cost == pytest.approx(3.0 / STEP_S, rel=0.05)
    assert "while another is idle" in finding.cause


def test_a_queue_seen_beside_an_idle_server_only_once_is_no_word() -> None:
    brief = two(tokens=(500.0, 500.0), for_s=(5.0, 3.2), waiting=(10.0, 0.0))
    assert "0.0% of the steps" in passed(brief, "GD080")


def test_an_idle_server_with_a_queue_of_its_own_is_not_idle() -> None:
    build = two(tokens=(500.0, 500.0), waiting=(10.0, 10.0), running=(20.0, 0.0), for_s=(5.0, 5.0))
    assert "requests wait next to an idle one for 0.0%" in passed(build, "GD080")


def test_half_of_an_even_share_is_few() -> None:
    assert "25%" in passed(two(tokens=(300.0, 100.0), for_s=(4.0, 4.0)), "GD080")
    assert "26%" in passed(two(tokens=(500.0, 220.0), for_s=(5.0, 4.0)), "GD080")
    assert finding_in(two(tokens=(500.0, 200.0), for_s=(5.0, 4.0)), "GD080")


def test_few_tokens_that_cost_no_time_are_no_finding() -> None:
    assert passed(two(for_s=(5.0, 5.0)), "GD080")


def test_without_tokens_requests_count() -> None:
    finding = finding_in(two(tokens=None), "GD080")
    assert "pid 701 has 17% of the requests" in finding.cause
    assert finding.cost == finding_in(sick(), "GD080").cost


def test_it_costs_no_more_than_the_ranks_wait_for_rollouts() -> None:
    phases = {**HEALTHY, "rollout": 0.5}
    finding = finding_in(two(phases=phases), "GD080")
    assert finding.cost == pytest.approx(0.5 * 1.01 / step_s(phases), rel=0.02)


def test_one_server_or_a_sum_over_all_shares_nothing() -> None:
    assert "two servers" in not_applicable(served(beside_servers(), requests_running=9.0), "GD080")
    with_total = served(
        served(beside_servers(), requests_running=9.0), pid=None, requests_running=9.0
    )
    assert "two servers" in not_applicable(with_total, "GD080")
    assert "`server.requests_running`" in missing(beside_servers(), "GD080")


def test_an_engine_within_the_ranks_is_no_server() -> None:
    build = sick()
    build.knobs["vllm.mode"] = "colocate"
    assert "within the ranks" in not_applicable(build, "GD080")


def exact(*servers: dict[str, list[float]]) -> TraceBuilder:
    """Steps of ten seconds, and what each server said every two seconds, again and again."""
    build = even({"rollout": 10.0}, knobs={"vllm.mode": "server"})
    times = [2.0 * n for n in range(20)] + [40.0]
    for index, gauges in enumerate(servers):
        for name, values in gauges.items():
            repeated = (values * 20)[:20]
            unit = UNITS.get(f"server.{name}", "count")
            build.series(
                f"server.{name}", unit, times, [*repeated, repeated[-1]], scope="server",
                pid=700 + index,
            )  # fmt: skip
    return build


@pytest.mark.parametrize(("tokens", "few"), [(100.0, False), (99.0, True)])
def test_few_are_less_than_half_of_an_even_share(tokens: float, few: bool) -> None:
    build = exact(
        {"requests_running": [20.0], "generated_tokens": [300.0]},
        {"requests_running": [20.0, 0.0, 0.0, 0.0, 0.0], "generated_tokens": [tokens]},
    )
    if few:
        assert finding_in(build, "GD080").cost == pytest.approx((1.0 - 0.2) / 2)
    else:
        assert "has 25% of the tokens" in passed(build, "GD080")


@pytest.mark.parametrize(("queue", "stands"), [([0.0, 5.0, 0.0, 0.0, 0.0], True), ([0.0], False)])
def test_a_queue_stands_beside_an_idle_server_from_two_seconds_on(
    queue: list[float], stands: bool
) -> None:
    build = exact(
        {"requests_running": [20.0], "requests_waiting": queue, "generated_tokens": [50.0]},
        {"requests_running": [20.0, 0.0], "generated_tokens": [50.0]},
    )
    if stands:
        assert finding_in(build, "GD080").cost == pytest.approx(0.1)
    else:
        assert "for 0.0% of the steps" in passed(build, "GD080")
