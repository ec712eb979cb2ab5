"""`trainer_state.json` and ms-swift's `logging.jsonl`: the metrics, and what they tell of time."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from grpo_doctor.analysis import analyse
from grpo_doctor.analysis.learning import curve
from grpo_doctor.errors import TraceError
from grpo_doctor.importers.laid import LoggedStep
from grpo_doctor.importers.load import load
from grpo_doctor.importers.trainer_log import framework_of
from grpo_doctor.trace.model import Trace


def trl_row(step: int, **more: Any) -> dict[str, Any]:
    return {
        "step": step,
        "epoch": step / 40,
        "reward": 0.5,
        "reward_std": 0.25,
        "frac_reward_zero_std": 0.125,
        "completions/mean_length": 100.0 + step,
        "grad_norm": 0.4,
        **more,
    }


def state_text(*rows: dict[str, Any], **more: Any) -> str:
    return json.dumps({"epoch": 1.0, "global_step": 40, "log_history": rows, **more}, indent=2)


def trainer_state(folder: Path, *rows: dict[str, Any]) -> Trace:
    path = folder / "trainer_state.json"
    path.write_text(state_text(*rows, logging_steps=5, max_steps=40))
    return load(path)


def swift_row(step: int, elapsed_s: float, **more: Any) -> dict[str, Any]:
    row = trl_row(step, **more)
    del row["step"]
    return {
        **row,
        "global_step/max_steps": f"{step}/100",
        "elapsed_time": f"{int(elapsed_s) // 60}m {int(elapsed_s) % 60}s",
        "memory(GiB)": 61.5,
        "train_speed(s/it)": round(elapsed_s / step, 6),
    }


def swift_log(folder: Path, *rows: dict[str, Any], end: str = "") -> Trace:
    path = folder / "logging.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + end)
    return load(path)


def test_step_times_and_metrics_of_a_trainer_state(tmp_path: Path) -> None:
    trace = trainer_state(tmp_path, *(trl_row(n, step_time=4.0 + n) for n in range(1, 6)))
    analysis = analyse(trace)
    assert analysis.steps.numbers.tolist() == [1, 2, 3, 4, 5]
    assert analysis.steps.seconds[:, 0].tolist() == pytest.approx([5.0, 6.0, 7.0, 8.0, 9.0])
    length = curve(trace, "length")
    assert length is not None
    assert length.values.tolist() == [101.0, 102.0, 103.0, 104.0, 105.0]
    assert trace.run.framework == "trl"


def test_a_trainer_state_without_step_times_has_its_metrics(tmp_path: Path) -> None:
    end = {"step": 40, "train_runtime": 400.0, "total_flos": 0.0}
    trace = trainer_state(tmp_path, *(trl_row(n) for n in (5, 10, 15)), end)
    assert len(analyse(trace).steps.numbers) == 0
    assert trace.metrics.steps.tolist() == [5, 10, 15]
    notes = " ".join(trace.run.notes)
    assert "since 0.26" in notes
    assert "10 s a step" in notes
    assert "mean of 5 steps" in notes


def test_nan_in_a_trainer_state_stays_nan(tmp_path: Path) -> None:
    metrics = trainer_state(tmp_path, trl_row(1, kl=math.nan), trl_row(2, kl=math.inf)).metrics
    assert math.isnan(metrics.values["kl"][0])
    assert math.isinf(metrics.values["kl"][1])
    assert "kl" not in metrics.absent


def test_evaluation_lies_beside_the_step(tmp_path: Path) -> None:
    evaluated = {"step": 1, "eval_reward": 0.25, "eval_runtime": 30.0}
    trace = trainer_state(
        tmp_path, trl_row(1, step_time=10.0), evaluated, trl_row(2, step_time=10.0)
    )
    assert analyse(trace).steps.start_ns[:, 0].tolist() == [0, 40_000_000_000]
    assert trace.metrics.values["eval_reward"][0] == 0.25


def test_profiled_functions_are_phases(tmp_path: Path) -> None:
    profiled = {
        "profiling/Time taken: GRPOTrainer.vLLM.generate": 6.0,
        "profiling/Time taken: GRPOTrainer._calculate_rewards": 1.0,
        "profiling/Time taken: GRPOTrainer.sync_weights": 0.5,
    }
    analysis = analyse(trainer_state(tmp_path, trl_row(1, step_time=10.0, **profiled)))
    assert analysis.share("rollout") == pytest.approx(0.6)
    assert analysis.share("reward") == pytest.approx(0.1)
    assert analysis.share("sync") == pytest.approx(0.05)


def test_a_trainer_state_that_is_cut_off_keeps_its_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    text = state_text(*(trl_row(n, step_time=1.0) for n in range(1, 6)))
    path.write_text(text[: text.rindex("grad_norm")])
    trace = load(path)
    assert trace.loss.truncated
    assert trace.metrics.steps.tolist() == [1, 2, 3, 4]


def test_a_damaged_trainer_state_is_refused_with_its_reason(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    path.write_text('{"log_history": 7}')
    with pytest.raises(TraceError, match=r"trainer_state.json is damaged: .*log_history"):
        load(path)


def test_the_wall_time_of_ms_swift_is_in_its_speed(tmp_path: Path) -> None:
    trace = swift_log(tmp_path, *(swift_row(n, 7.5 * n, step_time=5.0) for n in (1, 2, 4, 6)))
    analysis = analyse(trace)
    assert analysis.steps.numbers.tolist() == [1, 2, 4, 6]
    assert analysis.steps.seconds[:, 0].tolist() == pytest.approx([7.5] * 4, abs=1e-4)
    assert trace.run.framework == "ms-swift"


def test_a_resumed_ms_swift_job_has_step_time_only(tmp_path: Path) -> None:
    rows = [swift_row(n, 7.5 * n, step_time=5.0) for n in (51, 52)]
    for row in rows:
        row["elapsed_time"] = "8s"
    analysis = analyse(swift_log(tmp_path, *rows))
    assert analysis.steps.seconds[:, 0].tolist() == [5.0, 5.0]


def test_settings_of_ms_swift_lie_beside_its_log(tmp_path: Path) -> None:
    arguments = {
        "rlhf_type": "grpo",
        "swift_version": "4.6.0",
        "global_world_size": 8,
        "num_generations": 16,
    }
    (tmp_path / "args.json").write_text(json.dumps(arguments))
    run = swift_log(tmp_path, swift_row(1, 7.5)).run
    assert run.framework_version == "4.6.0"
    assert run.world_size == 8
    assert run.knobs["rollout.num_generations"] == 16


def test_half_a_row_of_ms_swift_is_left_out(tmp_path: Path) -> None:
    trace = swift_log(tmp_path, swift_row(1, 7.5), swift_row(2, 15.0), end='{"loss": 0.1, "rew')
    assert trace.loss.truncated
    assert trace.metrics.steps.tolist() == [1, 2]


def test_a_damaged_row_of_ms_swift_is_named(tmp_path: Path) -> None:
    path = tmp_path / "logging.jsonl"
    lines = [json.dumps(swift_row(n, 7.5 * n)) for n in (1, 2, 3)]
    lines[1] = lines[1].replace(":", "=", 1)
    path.write_text("\n".join(lines) + "\n")
    trace = load(path)
    assert trace.metrics.steps.tolist() == [1, 3]
    assert trace.loss.notes == ("lines that are no JSON left out: [2]",)


def console(folder: Path, *rows: str, end: str = "\n") -> Trace:
    path = folder / "train.log"
    path.write_text("\n".join(["[2026-03-25 11:39:14] [INFO] started", *rows]) + end)
    return load(path)


def printed(**values: Any) -> str:
    row = {"loss": "0.01", "reward": "0.5", "completions/mean_length": "15.75", **values}
    return f"Train:   0%|  | 1/9 [00:00<37:47, 1.88it/s]   {row}"


def test_what_trl_prints(tmp_path: Path) -> None:
    rows = [printed(step_time="4.5", kl=math.nan), printed(step_time=5.5, kl=0.25)]
    trace = console(tmp_path, *rows, "{'train_runtime': '20.5', 'epoch': '1'}")
    assert analyse(trace).steps.seconds[:, 0].tolist() == [4.5, 5.5]
    assert trace.metrics.steps.tolist() == [1, 2]
    assert math.isnan(trace.metrics.values["kl"][0])
    assert trace.run.framework == "trl"
    assert any("counted from 1" in note for note in trace.run.notes)


def test_what_ms_swift_prints(tmp_path: Path) -> None:
    progress = "global_step/max_steps"
    command = "run sh: `python3 -m torch.distributed.run swift/cli/rlhf.py --num_generations 16`"
    rows = [printed(step_time="4.5", **{progress: f"{n}/40"}) for n in (5, 10, 15)]
    trace = console(tmp_path, command, *rows)
    assert analyse(trace).steps.numbers.tolist() == [5, 10, 15]
    assert trace.run.framework == "ms-swift"
    assert trace.run.knobs["rollout.num_generations"] == 16


def test_a_printed_row_that_is_cut_off(tmp_path: Path) -> None:
    row = printed(step_time="4.5")
    trace = console(tmp_path, printed(step_time="4.5"), row[: row.index("15.75") + 3], end="")
    assert trace.loss.truncated
    assert trace.metrics.steps.tolist() == [1, 2]
    assert "completions/mean_length" in trace.metrics.absent


@pytest.mark.parametrize(
    ("keys", "framework"),
    [
        (("loss", "reward"), "trl"),
        (("loss", "completions/mean_length"), "trl"),
        (("reward", "completions/mean_length"), "trl"),
        (("loss", "grad_norm"), "unknown"),
        ((), "unknown"),
    ],
)
def test_grpo_is_known_by_a_reward_or_by_completions(keys: tuple[str, ...], framework: str) -> None:
    assert framework_of([LoggedStep(1, None, metrics=dict.fromkeys(keys, 0.5))]) == framework
