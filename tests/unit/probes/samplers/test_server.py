"""Rollout servers that a command names: which, and what they say over HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grpo_doctor_probes.samplers.server import Address, ServerSampler, named_servers, serving_at
from tests.unit.probes.conftest import Pages, until

PAGE = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0"} 3.0
vllm:num_requests_running{engine="1"} 4.0
vllm:num_requests_waiting{engine="0"} 12.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:generation_tokens_total{engine="0"} 1000
"""


@pytest.fixture
def server() -> Iterator[Pages]:
    with Pages((404, b""), metrics=(200, PAGE)) as pages:
        yield pages


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("trl grpo --vllm_mode server", []),
        ("trl grpo --vllm_server_port 8001", [("127.0.0.1", 8001)]),
        ("trl grpo --vllm-server-host=a", [("a", 8000)]),
        ("trl grpo --vllm_server_host 0.0.0.0 --vllm_server_port 9", [("127.0.0.1", 9)]),
        ("trl grpo --vllm_server_base_url http://b:81/x", [("b", 81)]),
        ("trl grpo --vllm_server_base_url b", [("b", 8000)]),
        ("swift rlhf --vllm_server_host a b --vllm_server_port 1 2", [("a", 1), ("b", 2)]),
        ("swift rlhf --vllm_server_host a b --vllm_server_port 1", [("a", 1), ("b", 1)]),
        ("trl grpo --vllm_server_port none", []),
        ("trl grpo --vllm_server_base_url http://b:none", []),
        ("python train.py --port 8000", []),
    ],
)
def test_servers_are_those_that_the_command_names(
    command: str, expected: list[tuple[str, int]]
) -> None:
    assert list(named_servers(command.split())) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("vllm serve m", [("127.0.0.1", 8000)]),
        ("/env/bin/vllm serve m --port=81 --host 0.0.0.0", [("127.0.0.1", 81)]),
        ("python -m vllm.entrypoints.openai.api_server --port 81", [("127.0.0.1", 81)]),
        ("trl vllm-serve --model m", [("127.0.0.1", 8000)]),
        ("swift rollout --model m --host :: --port 9", [("::1", 9)]),
        ("python -m sglang.launch_server --model-path m", [("127.0.0.1", 30000)]),
        ("bash serve.sh", []),
        ("bash serve.sh --host 10.0.0.7 --port 81", [("10.0.0.7", 81)]),
        ("vllm serve m --uds /tmp/socket", []),
        ("vllm serve m --port none", []),
        ("", []),
    ],
)
def test_a_server_that_joins_listens_where_its_own_command_says(
    command: str, expected: list[tuple[str, int]]
) -> None:
    assert list(serving_at(command.split())) == expected


def test_a_server_without_such_a_page_is_asked_once(server: Pages) -> None:
    server.pages.clear()
    address = Address("127.0.0.1", server.server_port)
    sampler = ServerSampler([address])
    assert sampler._ask(address) == {}
    assert not sampler._addresses


def test_what_a_server_says_is_summed_over_its_engines(server: Pages) -> None:
    sampler = ServerSampler(
        [Address("127.0.0.1", port) for port in (server.server_port, 9)]
    )  # nobody is at the second
    try:
        read = until(lambda: sampler.read(0).values)  # the first begins to ask
        values = {track.name: value for track, value in read.items()}
    finally:
        sampler.close()
    assert values["server.requests_running"] == 7
    assert values["server.requests_waiting"] == 12
    assert values["server.kv_cache"] == 25


TOKENS = "generation_tokens_total"


@pytest.mark.parametrize(
    ("answers", "rate"),
    [
        ([(1, [100.0, 50.0])], None),
        ([(1, [100.0, 50.0]), (3, [400.0, 50.0])], 150.0),
        ([(1, [100.0]), (3, [400.0]), (4, [])], None),  # it is gone
        ([(1, [100.0]), (3, [400.0]), (5, [20.0])], 0.0),  # it was restarted
        ([(1, [100.0]), (1, [200.0])], None),  # two answers of one moment
    ],
)
def test_what_is_counted_is_a_rate(
    answers: list[tuple[int, list[float]]], rate: float | None
) -> None:
    names = {TOKENS: "generated_tokens", "num_preemptions_total": "preemptions"}
    sampler = ServerSampler([])
    for at_s, totals in answers:
        sampler._take([dict.fromkeys(names, total) for total in totals], at_s * 10**9)
    values = {track.name: value for track, value in sampler.read(0).values.items()}
    assert {name: values.get(f"server.{name}") for name in names.values()} == dict.fromkeys(
        names.values(), rate
    )
    assert (None in values.values()) is (not answers[-1][1])
