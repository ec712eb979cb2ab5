"""Short runs of the embedded model in this process: what holds of any run."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

from grpo_doctor_trainer import steplog
from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.loop import train
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.setup import set_up
from tests.trainer_jobs import forget

ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)
SMALL = """--deepspeed none --max_steps 4 --num_generations 4 --per_device_train_batch_size 4
    --gradient_accumulation_steps 2 --steps_per_generation 4 --max_completion_length 6
    --dataloader_num_workers 0 --reward_num_workers 0 --logging_steps 1 --save_steps 0
    --warmup_ratio 0.5"""


@dataclass
class Trained:
    """What a run recorded: by step, and its lines."""

    steps: dict[int, dict[str, float]] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def note(self, number: int, values: dict[str, float]) -> None:
        # What depends on the clock is no result.
        clock = {"tokens_per_second", "step_time"}
        self.steps[number] = {name: value for name, value in values.items() if name not in clock}

    def lines_about(self, start: str) -> list[str]:
        return [line for line in self.lines if line.strip().startswith(start)]


class Training(Protocol):
    def __call__(self, flags: str = "", folder: Path | None = None) -> Trained: ...


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")

    def run_with(flags: str = "", folder: Path | None = None) -> Trained:
        trained = Trained()

        class Lines(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                trained.lines.append(record.getMessage())

        LOG.handlers, LOG.propagate = [Lines()], False
        LOG.setLevel(logging.INFO)
        monkeypatch.setattr(steplog, "metrics", trained.note)
        words = [*SMALL.split(), "--output_dir", str(folder or tmp_path), *flags.split()]
        run = set_up(parse(words, 1), ALONE)
        try:
            train(run)
        finally:
            run.close()
            forget()
        return trained

    return run_with


def test_a_rollout_feeds_its_steps_and_no_others(training: Training) -> None:
    trained = training()
    assert list(trained.steps) == [1, 2, 3, 4]
    rewards = [values["reward"] for values in trained.steps.values()]
    assert rewards[0] == rewards[1] != rewards[2] == rewards[3]
    rates = [values["learning_rate"] for values in trained.steps.values()]
    assert rates == pytest.approx([1.5e-3, 3e-3, 3e-3, 3e-3])
    counts = [values["num_tokens"] for values in trained.steps.values()]
    lengths = [values["completions/mean_length"] for values in trained.steps.values()]
    assert counts == sorted(set(counts))
    assert counts[1] > 16 * lengths[0]  # with their prompts
    first = trained.steps[1]
    # Nothing has changed since the completions were sampled.
    assert first["clip_ratio/region_mean"] == 0
    assert first["kl"] == pytest.approx(0, abs=1e-6)
    assert first["rewards/accuracy/mean"] + first["rewards/arithmetic/mean"] == pytest.approx(
        first["reward"]
    )
    (rollout,) = trained.lines_about("rollout")
    assert "transformers, 4 prompts x 4 completions of up to 6 tokens, for 2 optimizer" in rollout
    (data,) = trained.lines_about("data")
    assert "25 prompts; rewards 1 accuracy + 1 arithmetic" in data
    assert "1 CPU rank, 1 thread each" in trained.lines_about("ranks")[0]


def test_without_a_learning_rate_nothing_changes(training: Training) -> None:
    trained = training("--learning_rate 0 --num_iterations 2 --beta 0.1")
    assert [values["kl"] for values in trained.steps.values()] == pytest.approx([0] * 4, abs=1e-6)
    assert all(values["clip_ratio/region_mean"] == 0 for values in trained.steps.values())
    assert all(values["grad_norm"] > 0 for values in trained.steps.values())


def test_a_run_goes_on_as_if_it_had_not_been_interrupted(
    training: Training, tmp_path: Path
) -> None:
    """In the middle of a rollout and at its end."""
    flags = "--save_steps 1 --save_total_limit 9"
    straight = training(flags, tmp_path / "whole")
    for step in (1, 2):
        saved = tmp_path / "whole" / f"checkpoint-{step}"
        resumed = training(f"{flags} --resume_from_checkpoint {saved}", tmp_path / f"rest-{step}")
        later = range(step + 1, 5)
        assert resumed.steps == {number: straight.steps[number] for number in later}
        assert f"{step} of 4 steps done" in resumed.lines_about("resumed")[0]
    assert straight.lines_about("resumed") == []


def test_completions_are_logged_and_cut_off_ones_left_out(
    training: Training, tmp_path: Path
) -> None:
    """Also where that leaves none, and so no distance to the reference."""
    flags = "--max_steps 1 --log_completions true --mask_truncated_completions true --beta 0.1"
    trained = training(f"{flags} --max_completion_length 1")
    assert trained.steps[1]["completions/clipped_ratio"] == 1
    assert trained.steps[1]["loss"] == 0
    assert "kl" not in trained.steps[1]
    (line,) = trained.lines_about("step 1/1")
    assert "kl" not in line
    (path,) = tmp_path.rglob("*.jsonl")
    rows: list[dict[str, Any]] = [json.loads(row) for row in path.read_text().splitlines()]
    assert [row["step"] for row in rows] == [1] * 16
    for part in ("accuracy", "arithmetic"):
        mean = sum(row["rewards"][part] for row in rows) / 16
        assert mean == pytest.approx(trained.steps[1][f"rewards/{part}/mean"])
