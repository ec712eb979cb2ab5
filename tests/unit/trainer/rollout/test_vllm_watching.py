"""What an engine says of itself, and what is said of one that fails."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout.vllm.engine import EngineStatistics, console_to_file, explained
from grpo_doctor_trainer.rollout.vllm.requests import Completion


def test_statistics_of_a_rollout_and_nothing_left_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    every: dict[str, float] = {}
    monkeypatch.setattr("grpo_doctor_probes.hooks.engine_load.counter", every.__setitem__)
    statistics = EngineStatistics()
    for running, waiting, usage in ((4, 2, 0.25), (2, 0, 0.5)):
        scheduler = SimpleNamespace(
            num_running_reqs=running, num_waiting_reqs=waiting, num_skipped_waiting_reqs=0,
            kv_cache_usage=usage, prefix_cache_stats=SimpleNamespace(queries=10, hits=4),
        )  # fmt: skip
        statistics.record(scheduler, SimpleNamespace(num_preempted_reqs=1), engine_idx=0)
    statistics.finish([Completion([7], [], 3), Completion([7] * 5, [], 4)])
    counted = {name.removeprefix("engine/"): value for name, value in every.items()}
    assert counted["running_requests_peak"] == 4
    assert counted["running_requests_mean"] == 3
    assert counted["waiting_requests_mean"] == 1
    assert counted["kv_cache_peak_pct"] == 50
    assert counted["preemptions"] == 2
    assert (counted["prompt_tokens"], counted["generated_tokens"]) == (7, 6)
    assert (counted["prefix_cache_queried_tokens"], counted["prefix_cache_hit_tokens"]) == (20, 8)
    assert counted["completions_of_1_to_1_tokens"] == 1
    assert counted["completions_of_5_to_8_tokens"] == 1
    every.clear()
    statistics.finish([Completion([7], [], 3)])
    assert every.keys() == {
        "engine/prompt_tokens", "engine/generated_tokens", "engine/completions_of_1_to_1_tokens"
    }  # fmt: skip


def test_the_traceback_of_a_failure_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "rank.log"
    with (
        pytest.raises(RolloutError, match="while testing: KeyError: 'no'"),
        explained("testing", log),
    ):
        raise KeyError("no")
    assert "Traceback" in log.read_text()


def test_the_console_goes_to_the_log_and_comes_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "rank.log"
    with console_to_file(log):
        os.write(1, b"from below\n")
    os.write(1, b"afterwards\n")
    assert log.read_text() == "from below\n"
    assert capfd.readouterr().out == "afterwards\n"
