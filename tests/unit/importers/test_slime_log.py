"""Console logs of slime and miles: rows of the ranks, of the rollout manager, of updates."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Trace

TIMERS = {
    "sleep": 4.0, "update_weights": 2.0, "wake_up": 1.0, "data_preprocess": 0.5, "train_wait": 30.0,
    "ref_log_probs": 3.0, "log_probs": 2.0, "actor_train": 4.5, "train": 10.0,
}  # fmt: skip
RANK = "(MegatronTrainRayActor pid=38610) [2026-01-05 12:20:29] train_metric_utils.py:44 - "
MANAGER = "(RolloutManager pid=1805) [2026-01-05 12:20:10] rollout.py:1193 - "


def ranks(number: int) -> str:
    row = {f"perf/{name}_time": seconds for name, seconds in TIMERS.items()}
    return f"{RANK}perf {number}: {row | {'perf/step_time': 40.0}}"


def manager(number: int) -> str:
    row = {"rollout/response_len/mean": 2773.5, "rollout/truncated_ratio": 0.25}
    return f"{MANAGER}perf {number}: {row | {'perf/rollout_time': 20.0}}"


def rollout(number: int) -> str:
    return f"{RANK}rollout {number}: {{'rollout/raw_reward': 0.5, 'rollout/rewards': 0.0}}"


def update(number: int) -> str:
    return f"{RANK}step {number}: {{'train/loss': 0.1, 'train/grad_norm': 1.5, 'train/step': 1}}"


def loaded(folder: Path, *lines: str) -> Trace:
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    return load(folder / "train.log")


def test_a_step_is_a_rollout_with_the_timers_of_the_ranks(tmp_path: Path) -> None:
    rows = [
        line
        for n in range(4)
        for line in (manager(n), rollout(n), update(2 * n), update(2 * n + 1), ranks(n))
    ]
    trace = loaded(tmp_path, *rows)
    analysis = analyse(trace)
    assert trace.run.framework == "slime"
    expected = {
        "rollout": 22.5, "offload": 5, "sync": 2, "dataload": 0.5, "logprob": 5, "train": 4.5,
    }  # fmt: skip
    for phase, seconds in expected.items():
        assert analysis.share(phase) == pytest.approx(seconds / 40, abs=1e-9), phase
    assert trace.metrics.steps.tolist() == [0, 1, 2, 3]
    found = {name: trace.metrics.values[name].tolist()[-1] for name in trace.metrics.values}
    assert (found["rollout/raw_reward"], found["train/grad_norm"]) == (0.5, 1.5)
    assert found["rollout/truncated_ratio"] == 0.25


def test_rollouts_that_were_not_trained_have_no_times(tmp_path: Path) -> None:
    trace = loaded(tmp_path, ranks(0), manager(1), manager(2), "RuntimeError: CUDA error: x")
    assert analyse(trace).steps.numbers.tolist() == [0]
    assert trace.metrics.steps.tolist() == [0, 1, 2]
    assert trace.run.exit.state == "failed"


def test_a_fork_is_named_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    lines = ["/root/miles/train.py", ranks(0), ranks(1), ranks(2), ranks(1), ranks(2)[:-30]]
    trace = loaded(tmp_path, *lines)
    assert trace.run.framework == "miles"
    assert analyse(trace).steps.numbers.tolist() == [0, 1]  # of the last one its end is missing
    assert any("went back" in note for note in trace.run.notes)
