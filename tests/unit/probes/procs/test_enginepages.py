"""The numbers of engines' `/metrics`."""

from __future__ import annotations

import pytest

from grpo_doctor_probes.procs.enginepages import parse_metrics


@pytest.mark.parametrize(("awake", "asleep"), [("1.0", None), ("0.0", 1.0)])
def test_an_engine_says_that_it_is_asleep(awake: str, asleep: float | None) -> None:
    values = parse_metrics(
        f'vllm:engine_sleep_state{{engine="0",model_name="m",sleep_state="awake"}} {awake}\n'
        'vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="discard_all"} 0.0\n'
    )
    assert values.get("asleep") == asleep


def test_numbers_that_no_bundle_could_hold_are_left_out() -> None:
    text = "vllm:num_requests_running 2.0\nvllm:kv_cache_usage_perc 1e999\n"
    assert parse_metrics(text) == {"num_requests_running": 2.0}


def test_metrics_of_two_engines_and_of_other_names() -> None:
    values = parse_metrics(
        "# HELP sglang:num_running_reqs x\n"
        'sglang:num_running_reqs{model_name="a b{c}"} 4.0\n'
        'sglang:num_queue_reqs{x="1"} 2\n'
        'vllm:gpu_cache_usage_perc{engine="0"} 0.2\n'
        'vllm:gpu_cache_usage_perc{engine="1"} 0.9\n'
        "vllm:generation_tokens_total NaN\n"
        "other:num_running_reqs 9\n"
    )
    assert values == {
        "num_requests_running": 4.0,
        "num_requests_waiting": 2.0,
        "kv_cache_usage": 0.9,
    }
