from __future__ import annotations

from typing import Any

from tests.build import TraceBuilder
from tests.unit.findings.rules.saying import HEALTHY, even, rows
from tests.unit.findings.rules.served import UNITS, beside_servers, served


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


def an_engine_within_the_ranks_is_no_server() -> TraceBuilder:
    build = two()
    build.knobs["vllm.mode"] = "colocate"
    return build


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


RUNS = {
    "sick": two,
    "well": lambda: two(tokens=(500.0, 520.0), for_s=(5.0, 4.9)),
    "a queue seen beside an idle server only once is no word": lambda: two(tokens=(500.0, 500.0),
        for_s=(5.0, 3.2), waiting=(10.0, 0.0)),
    "an idle server with a queue of its own is not idle": lambda: two(tokens=(500.0, 500.0),
        waiting=(10.0, 10.0), running=(20.0, 0.0), for_s=(5.0, 5.0)),
    "half of an even share is few 1": lambda: two(tokens=(500.0, 200.0), for_s=(5.0, 4.0)),
    "half of an even share is few 2": lambda: two(tokens=(300.0, 100.0), for_s=(4.0, 4.0)),
    "half of an even share is few 3": lambda: two(tokens=(500.0, 220.0), for_s=(5.0, 4.0)),
    "few tokens that cost no time are no finding": lambda: two(for_s=(5.0, 5.0)),
    "without tokens requests count": lambda: two(tokens=None),
    "one server or a sum over all shares nothing 1": lambda: served(beside_servers(),
        requests_running=9.0),
    "one server or a sum over all shares nothing 2": lambda:
        served(served(beside_servers(), requests_running=9.0), pid=None, requests_running=9.0),
    "one server or a sum over all shares nothing 3": beside_servers,
    **rows(
        "a queue stands beside an idle server from two seconds on",
        lambda queue: exact(
            {"requests_running": [20.0], "requests_waiting": queue, "generated_tokens": [50.0]},
            {"requests_running": [20.0, 0.0], "generated_tokens": [50.0]},
        ),
        ([0.0, 5.0, 0.0, 0.0, 0.0],),
        ([0.0],),
    ),
    "a queue beside an idle server costs as long as it stands": lambda: two(tokens=(500.0, 500.0),
        for_s=(5.0, 2.0), waiting=(10.0, 0.0)),
    "it costs no more than the ranks wait for rollouts": lambda:
        two(phases={**HEALTHY, "rollout": 0.5}),
    **rows(
        "few are less than half of an even share",
        lambda tokens: exact(
            {"requests_running": [20.0], "generated_tokens": [300.0]},
            {"requests_running": [20.0, 0.0, 0.0, 0.0, 0.0], "generated_tokens": [tokens]},
        ),
        100.0,
        99.0,
    ),
}  # fmt: skip
