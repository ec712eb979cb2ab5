"""Console logs of NeMo RL: blocks of results and timers, with and without their step's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.importers.load import load
from grpo_doctor.trace.model import Trace

# https://github.com/NVIDIA-NeMo/RL/pull/1052
ASYNC = """
📊 Training Results:
  • Loss: 0.1032
  • Avg Reward: 0.3486
  • Buffer Size: 64
  • Avg Trajectory Age: 1.00 steps

⏱️  Timing:
  • Total step time: 66.55s
  • exposed_generation: 32.52s (48.9%)
  • policy_training: 25.05s (37.6%)
  • policy_and_reference_logprobs: 4.78s (7.2%)
  • buffer_sampling: 1.38s (2.1%)
  • logprob_inference_prep: 1.34s (2.0%)
  • training_prep: 1.06s (1.6%)
  • data_processing: 0.23s (0.4%)
  • weight_sync: 0.13s (0.2%)
"""
VALIDATION = """
📊 Validation Results:
    • Accuracy: 0.2500
    • Average response length: 512.0 tokens
  ⏱️  Validation Timing:
    • Total validation time: 5.00s
"""


def step_text(number: int, total_s: float = 40.0) -> str:
    """Return what the synchronous driver prints of a step."""
    return f"""
========================= Step {number}/100 =========================
▶ Preparing batch...

📊 Training Results:
  • Loss: 0.0100
  • Generation KL Error: 0.0010
  • Avg Reward: 0.{number}000
  • Mean Generation Length: 201.2197

⏱️  Timing:
  • Total step time: {total_s:.2f}s
  • generation: 20.00s (50.0%)
  • policy_training: 10.00s (25.0%)
  • prepare_for_generation/total: 4.00s (10.0%)
  • prepare_for_generation/transfer_and_update_weights: 3.00s (7.5%)
  • reward_calculation: 1.00s (2.5%)

🔍 Performance Metrics:
  • Mean Total Tokens per Sample: 204.01
    - E2E (Tokens/sec/gpu): 1073.59
"""


def loaded(folder: Path, text: str) -> Trace:
    (folder / "driver.log").write_text(text)
    return load(folder / "driver.log")


def test_a_step_has_its_timers_as_phases_and_its_results_as_metrics(tmp_path: Path) -> None:
    trace = loaded(tmp_path, VALIDATION + "".join(map(step_text, range(3, 8))))
    analysis = analyse(trace)
    assert (trace.run.framework, analysis.steps.numbers.tolist()) == ("nemo-rl", [3, 4, 5, 6, 7])
    shares = {"rollout": 0.5, "train": 0.25, "sync": 0.1, "reward": 0.025, "eval": 0}
    for phase, share in shares.items():
        assert analysis.share(phase) == pytest.approx(share), phase
    assert {name: values.tolist()[0] for name, values in trace.metrics.values.items()} == {
        "train/loss": 0.01, "Generation KL Error": 0.001, "train/reward": 0.3,
        "train/mean_gen_tokens_per_sample": 201.2197, "Mean Total Tokens per Sample": 204.01,
    }  # fmt: skip
    assert not trace.run.notes


def test_pasted_steps_are_counted_and_waits_for_samples_are_told(tmp_path: Path) -> None:
    trace = loaded(tmp_path, ASYNC * 3)
    analysis = analyse(trace)
    assert analysis.steps.numbers.tolist() == [1, 2, 3]
    assert analysis.share("rollout") == pytest.approx(32.52 / 66.55)
    assert trace.metrics.values["Avg Trajectory Age"].tolist() == [1, 1, 1]
    assert [note.partition(" ")[0] for note in trace.run.notes] == ["Samples", "The"]


def test_a_validation_is_a_part_of_its_step(tmp_path: Path) -> None:
    first, *others = map(step_text, (1, 2, 3))
    text = first.replace("\n📊 Training", f"{VALIDATION}\n📊 Training")
    trace = loaded(tmp_path, "".join([text, *others]))
    spans = {trace.names[name]: int(ns) for name, ns in zip(trace.spans.name, trace.spans.end_ns)}
    assert "eval" in spans
    assert trace.metrics.values["validation/Accuracy"][0] == 0.25


def test_a_step_that_did_not_end_is_left_out_and_the_error_is_named(tmp_path: Path) -> None:
    begun = "===== Step 3/9 =====\n• Total validation time: 4.00s\nRayActorError: it died\n"
    trace = loaded(tmp_path, step_text(1) + step_text(2) + begun)
    assert trace.metrics.steps.tolist() == [1, 2]
    assert (trace.run.exit.state, trace.loss.truncated) == ("failed", False)
    cut = loaded(tmp_path, step_text(1) + step_text(2).partition("0s (50")[0])
    assert cut.loss.truncated
    assert analyse(cut).share("train") == pytest.approx(0.125)
