"""The numbers of engines' `/metrics`."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.procs.enginepages import parse_metrics

SLEEP = """vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} %s
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="discard_all"} 0.0
"""


@pytest.mark.parametrize(
    ("page", "values"),
    [
        (SLEEP % "1.0", {}),
        (SLEEP % "0.0", {"asleep": 1.0}),
        # No bundle could hold the second.
        ("vllm:num_requests_running 2.0\nvllm:kv_cache_usage_perc 1e999\n",
         {"num_requests_running": 2.0}),
        (
            """# HELP sglang:num_running_reqs x
sglang:num_running_reqs{model_name="a b{c}"} 4.0
sglang:num_queue_reqs{x="1"} 2
vllm:gpu_cache_usage_perc{engine="0"} 0.2
vllm:gpu_cache_usage_perc{engine="1"} 0.9
vllm:kv_cache_usage_perc{engine="1"} 0.5
vllm:generation_tokens_total NaN
other:num_running_reqs 9
""",
            {"num_requests_running": 4.0, "num_requests_waiting": 2.0, "kv_cache_usage": 0.9},
        ),
        # SGLang: all priorities, one of them, and what each rank of one model says.
        (
            """sglang:num_running_reqs{priority="",tp_rank="0"} 6.0
sglang:num_running_reqs{priority="",tp_rank="1"} 6.0
sglang:num_running_reqs{priority="3",tp_rank="0"} 4.0
sglang:num_queue_reqs{dp_rank="0",tp_rank="0"} 1.0
sglang:num_queue_reqs{dp_rank="1",tp_rank="0"} 2.0
sglang:num_retracted_requests_total{priority=""} 5.0
sglang:num_retracted_reqs{priority=""} 9.0
""",
            {
                "num_requests_running": 6.0, "num_requests_waiting": 3.0,
                "num_preemptions_total": 5.0,
            },
        ),
    ],
)  # fmt: skip
def test_what_a_page_of_an_engine_says(page: str, values: dict[str, float]) -> None:
    assert parse_metrics(page) == values
