"""Evaluation during training: the run stays what it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")

import torch
from safetensors.torch import load_file

from tests.trainer_jobs import Outcome, run_configs

pytestmark = [pytest.mark.slow, pytest.mark.heavy, pytest.mark.timeout(600)]
# Two rollouts of two steps each.
FLAGS = (
    "--per_device_train_batch_size", "8", "--num_generations", "8", "--num_iterations", "2",
    "--max_steps", "4", "--reward_num_workers", "0", "--dataloader_num_workers", "0",
    "--deepspeed", "zero3", "--train_type", "full",
)  # fmt: skip
EVALUATED = ("--eval_steps", "1", "--val_dataset", "held.jsonl")
ROWS = 5  # for two ranks: one row is answered twice and counted once


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Outcome]]:
    """A run as it is, the same with evaluations, and the latter gone on from its middle."""
    folder = tmp_path_factory.mktemp("evaluated")
    rows = [{"prompt": f"{n}+1", "solution": str(n + 1)} for n in range(ROWS)]
    (folder / "held.jsonl").write_text("\n".join(map(json.dumps, rows)))
    configs = [
        [*FLAGS, "--output_dir", "plain", "--save_steps", "4"],
        [*FLAGS, *EVALUATED, "--output_dir", "whole", "--save_steps", "3"],
        [*FLAGS, *EVALUATED, "--output_dir", "resumed", "--save_steps", "4",
         "--resume_from_checkpoint", "whole/checkpoint-3"],
    ]  # fmt: skip
    return folder, run_configs(folder, configs)


def training(outcome: Outcome) -> list[dict[str, float]]:
    return [step for step in outcome.without_clock() if "loss" in step]


def evaluations(outcome: Outcome) -> list[dict[str, float]]:
    return [
        {name: value for name, value in step.items() if name != "eval_runtime"}
        for step in outcome.metrics
        if "eval_reward" in step
    ]


def test_a_run_is_what_it_would_be_without_evaluations(ran: tuple[Path, list[Outcome]]) -> None:
    folder, (plain, whole, _) = ran
    assert training(whole) == training(plain)
    first, second = (
        load_file(folder / name / "checkpoint-4/model.safetensors") for name in ("plain", "whole")
    )
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())


def test_a_resumed_run_goes_on_with_its_evaluations(ran: tuple[Path, list[Outcome]]) -> None:
    _, (_, whole, resumed) = ran
    assert training(resumed) == training(whole)[-1:]
    assert evaluations(resumed) == evaluations(whole)[-1:]
    last_lines = [outcome.printed.splitlines()[-1] for outcome in (whole, resumed)]
    assert last_lines[0] == last_lines[1]  # the whole curve, that of before the checkpoint too
    assert last_lines[0].startswith("evaluation ")
