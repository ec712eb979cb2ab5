"""Rewards that are computed beside the rollout and the log-probs change no number of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("deepspeed", reason="needs the trainer extra")

from tests.matrix.flags import REWARDS
from tests.trainer_jobs import Outcome, run_configs

pytestmark = [pytest.mark.slow, pytest.mark.heavy]
LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo")
STEPS, HALF = 3, 2
# Old and reference log-probs, a step in the middle of a rollout, functions of every kind.
FLAGS = (
    "--deepspeed", "none", "--max_steps", str(STEPS), "--num_iterations", "2", "--beta", "0.05",
    "--per_device_train_batch_size", "16", "--num_generations", "8", "--log_completions", "true",
    "--max_completion_length", "24",
    "--reward_funcs", "length", f"{REWARDS}:digits", f"{REWARDS}:brevity", "arithmetic",
)  # fmt: skip


def configs() -> Iterator[list[str]]:
    for loss_type in LOSS_TYPES:
        for overlap, workers in (("true", "2"), ("false", "1")):
            yield [
                *FLAGS, "--loss_type", loss_type, "--save_steps", str(HALF),
                "--overlap_rewards", overlap, "--reward_num_workers", workers,
                "--output_dir", f"{loss_type}-{overlap}",
            ]  # fmt: skip
    # What was in flight when the checkpoint was written is fetched and scored again.
    start = ("--resume_from_checkpoint", f"grpo-true/checkpoint-{HALF}", "--save_steps", "0")
    for overlap in ("true", "false"):
        yield [*FLAGS, *start, "--output_dir", f"on-{overlap}", "--overlap_rewards", overlap]


def completions(folder: Path) -> list[dict[str, object]]:
    lines = (folder / "completions.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("overlap")


@pytest.fixture(scope="module")
def outcomes(folder: Path) -> list[Outcome]:
    return run_configs(folder, list(configs()))


@pytest.mark.parametrize("index", range(len(LOSS_TYPES)), ids=LOSS_TYPES)
def test_every_number_is_the_same(outcomes: list[Outcome], folder: Path, index: int) -> None:
    overlapped, sequential = outcomes[2 * index], outcomes[2 * index + 1]
    assert (overlapped.error, sequential.error) == (None, None)
    assert len(overlapped.metrics) == STEPS
    assert min(step["completions/clipped_ratio"] for step in overlapped.metrics) < 1  # some end
    assert overlapped.without_clock() == sequential.without_clock()
    names = [f"{LOSS_TYPES[index]}-{overlap}" for overlap in ("true", "false")]
    assert completions(folder / names[0]) == completions(folder / names[1])


def test_a_resumed_run_goes_on_with_and_without(outcomes: list[Outcome]) -> None:
    for resumed in outcomes[-2:]:
        assert resumed.error is None
        assert resumed.without_clock() == outcomes[0].without_clock()[HALF:]
