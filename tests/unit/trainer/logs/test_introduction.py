"""The first lines of a run, as its reader sees them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from grpo_doctor_trainer import __version__
from grpo_doctor_trainer.checkpoint import Resume
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import set_up_console
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.loop import Run
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.setup import introduce


def config_of(*flags: str, ranks: int = 1) -> TrainerConfig:
    sizes = ("--per_device_train_batch_size", "8", "--num_generations", "4")
    return parse([*sizes, "--torch_dtype", "float32", "--deepspeed", "none", *flags], ranks)


def intro(
    capsys: pytest.CaptureFixture[str],
    config: TrainerConfig,
    *,
    weights: int = 1_500,
    ranks: Ranks | None = None,
    resume: Resume | None = None,
) -> list[str]:
    set_up_console(0)
    module: Any = torch.nn.Linear(weights, 1, bias=False)
    module.config = SimpleNamespace()
    run = SimpleNamespace(
        config=config,
        ranks=ranks or Ranks(0, 1, 0, torch.device("cpu"), threads=1),
        engine=SimpleNamespace(module=module, name="one process"),
        rewards=SimpleNamespace(names=config.reward_funcs),
        takes_images=False,
        steps=20,
    )
    introduce(cast("Run", run), 25, resume)
    return capsys.readouterr().out.splitlines()


def test_a_small_run_is_told_in_five_lines(capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of("--max_completion_length", "8", "--gradient_accumulation_steps", "1")
    lines = intro(capsys, config)
    assert len(lines) == 5
    assert lines[0] == f"grpo-doctor trainer {__version__}"
    assert lines[1].startswith(
        "  model    embedded tiny Qwen2 with random weights, 1.5 k weights, "
    )
    assert lines[1].endswith(", 1.5 k trained (full), float32")
    rewards = " + ".join(f"1 {name}" for name in config.reward_funcs)
    assert lines[2] == f"  data     generated arithmetic: 25 prompts; rewards {rewards}"
    assert lines[3].startswith(
        "  rollout  transformers, 2 prompts x 4 completions of up to 8 tokens"
    )
    assert lines[3].endswith(", for 1 optimizer step")
    assert lines[4] == "  ranks    1 CPU rank, 1 thread each, one process"


def test_what_it_learns_from_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    pictures = intro(capsys, config_of("--model", "embedded-vl"))
    assert "embedded tiny Qwen2.5-VL" in pictures[1]
    assert pictures[2].startswith("  data     generated pictures and arithmetic: 25 prompts")
    flags = ("--model", "org/name", "--dataset", "a.jsonl", "b.jsonl")
    files = intro(capsys, config_of(*flags, "--reward_funcs", "accuracy"))
    assert files[1].startswith("  model    org/name, ")
    assert files[2] == "  data     a.jsonl, b.jsonl: 25 prompts; rewards 1 accuracy"


@pytest.mark.parametrize(
    ("weights", "short"), [(999, "999"), (1_000, "1 k"), (123_456, "123 k"), (1_000_000, "1 M")]
)
def test_how_many_weights_there_are_is_told_shortly(
    capsys: pytest.CaptureFixture[str], weights: int, short: str
) -> None:
    assert f", {short} weights, {short} trained" in intro(capsys, config_of(), weights=weights)[1]


def test_where_a_run_goes_on_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    resume = Resume(Path("out/checkpoint-7"), {"step": 7})
    lines = intro(capsys, config_of(), resume=resume)
    assert lines[-1] == "  resumed  out/checkpoint-7: 7 of 20 steps done"
