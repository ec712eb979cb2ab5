"""Resuming: which checkpoint, and what is refused with which words."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from grpo_doctor_trainer.checkpoint import Checkpointer, Progress, Resume, find_checkpoint
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import set_up_console
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.errors import CheckpointError
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.ranks import Ranks

ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)


def engine(size: int = 3) -> Engine:
    """A module that can save itself as transformers' do, after one step."""
    from safetensors.torch import save_file

    module: Any = torch.nn.Linear(size, 2)
    module.save_pretrained = lambda folder, **_options: save_file(
        module.state_dict(), folder / "model.safetensors"
    )
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    module(torch.ones(1, size)).sum().backward()
    optimizer.step()
    parts = SimpleNamespace(model=module, module=module, optimizer=optimizer, zero_stage=None)
    return cast("Engine", parts)


def config_of(folder: Path, *flags: str) -> TrainerConfig:
    return parse(["--deepspeed", "none", "--output_dir", str(folder), *flags], 1)


def write(folder: Path, *flags: str, number: int = 4) -> Path:
    beside = SimpleNamespace(save_pretrained=lambda _folder: None)
    config = config_of(folder, *flags)
    return Checkpointer(config, engine(), beside, ALONE).save(Progress(number))


def resume_of(folder: Path, choice: object, *flags: str) -> Resume | None:
    flags = ("--resume_from_checkpoint", str(choice), *flags)
    return find_checkpoint(config_of(folder, *flags), ALONE)


def refusal(folder: Path, choice: object) -> str:
    with pytest.raises(CheckpointError) as error:
        resume_of(folder, choice)
    return str(error.value)


def test_latest_is_the_newest_and_not_the_highest(tmp_path: Path) -> None:
    os.utime(write(tmp_path, number=500), ns=(1, 1))
    newest = write(tmp_path, number=10)
    resume = resume_of(tmp_path, "latest")
    assert resume is not None
    assert (resume.folder, resume.step) == (newest, 10)


def test_latest_without_any_starts_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_console(0)
    assert resume_of(tmp_path, "latest") is None
    assert f"no checkpoint in {tmp_path} yet: starting a new run" in capsys.readouterr().out


def test_rollouts_begun_are_counted(tmp_path: Path) -> None:
    flags = ("--num_iterations", "3")
    counts = []
    for number in (1, 3, 4):
        resume = resume_of(tmp_path, write(tmp_path, *flags, number=number), *flags)
        assert resume is not None
        counts.append(resume.rollouts(config_of(tmp_path, *flags)))
    assert counts == [1, 1, 2]


def test_a_wrong_folder_is_told_what_there_is(tmp_path: Path) -> None:
    saved = write(tmp_path)
    message = refusal(tmp_path, tmp_path / "checkpoint-5")
    assert f"There are: {saved}." in message
    assert f"There are: {saved}." in refusal(tmp_path, tmp_path)
    (tmp_path / "empty").mkdir()
    assert "it has no trainer_state.json" in refusal(tmp_path, tmp_path / "empty")


def test_missing_and_cut_files_are_named(tmp_path: Path) -> None:
    saved = write(tmp_path)
    part = saved / "optimizer" / "rank_00000.pt"
    size = part.stat().st_size
    part.write_bytes(part.read_bytes()[:100])
    message = refusal(tmp_path, saved)
    assert f"is not whole: optimizer/rank_00000.pt has 100 bytes of {size}" in message
    part.unlink()
    assert "optimizer/rank_00000.pt is missing" in refusal(tmp_path, saved)
    (saved / "trainer_state.json").write_text("{", encoding="utf-8")
    assert "trainer_state.json cannot be read" in refusal(tmp_path, saved)


def test_a_damaged_file_is_named_and_runs_nothing(tmp_path: Path) -> None:
    saved = write(tmp_path)
    resume = resume_of(tmp_path, saved)
    assert resume is not None
    part = saved / "optimizer" / "rank_00000.pt"
    part.write_bytes(b"\x80\x04cos\nsystem\n(S'touch ran'\ntR.".ljust(part.stat().st_size, b"."))
    with pytest.raises(CheckpointError, match=r"rank_00000\.pt is damaged"):
        resume.load(engine(), ALONE)
    assert not Path("ran").exists()


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path) / "trainer_state.json"
    state = json.loads(path.read_text(encoding="utf-8")) | {"format": 99}
    path.write_text(json.dumps(state), encoding="utf-8")
    assert "has format 99, this version reads 3" in refusal(tmp_path, path.parent)


def check(tmp_path: Path, before: tuple[str, ...], now: tuple[str, ...], ranks: int = 1) -> str:
    """Holds a launch against a checkpoint; returns the refusal, empty if there is none."""
    resume = resume_of(tmp_path, write(tmp_path, *before))
    assert resume is not None
    world = Ranks(0, ranks, 0, torch.device("cpu"), 1)
    try:
        resume.check(config_of(tmp_path, *now), world)
    except CheckpointError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("before", "now", "difference"),
    [
        ("--learning_rate 1e-3", "--learning_rate 2e-3", "--learning_rate 0.001 -> 0.002"),
        ("--train_type full", "--train_type lora", "--train_type full -> lora"),
        ("--seed 1", "--seed 2", "--seed 1 -> 2"),
        ("--model a", "--model b", "--model a -> b"),
        ("--reward_funcs accuracy", "--reward_funcs format", "--reward_funcs accuracy -> format"),
        ("--deepspeed none", "--deepspeed zero2", "DeepSpeed's ZeRO stage none"),
    ],
)
def test_what_would_be_another_run_is_refused_by_name(
    tmp_path: Path, before: str, now: str, difference: str
) -> None:
    more = ("--torch_dtype", "float32", "--per_device_train_batch_size", "16")
    message = check(tmp_path, (*before.split(), *more), (*now.split(), *more))
    assert difference in message
    assert "To start a new run from its weights" in message


def test_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    message = check(tmp_path, (), (), ranks=2)
    assert "was written with ranks 1, this launch has 2" in message
    assert "Launch with 1 again" in message


@pytest.mark.parametrize(
    "flags",
    [
        "--max_steps 99",
        "--save_steps 7 --save_total_limit 9 --save_only_model true",
        "--logging_steps 3 --log_completions true",
        "--dataloader_num_workers 0 --reward_num_workers 0",
        "--offload_model true --offload_optimizer true",
        "--vllm_gpu_memory_utilization 0.5 --sleep_level 1",
        "--gradient_checkpointing true",
    ],
)
def test_what_changes_no_number_is_allowed(tmp_path: Path, flags: str) -> None:
    assert check(tmp_path, (), tuple(flags.split())) == ""


def test_weights_alone_are_no_place_to_go_on_from(tmp_path: Path) -> None:
    message = check(tmp_path, ("--save_only_model", "true"), ())
    assert "no optimizer state (--save_only_model true)" in message
    assert "--model" in message


WARNING = "the run now has 9 steps and had 8: its learning rate follows another curve"


@pytest.mark.parametrize(
    ("flags", "steps", "rank", "warned"),
    [
        ("--lr_scheduler_type cosine", 9, 0, True),
        ("--lr_scheduler_type cosine", 8, 0, False),
        ("--lr_scheduler_type cosine", 9, 1, False),
        ("--lr_scheduler_type linear --warmup_ratio 0", 9, 0, True),
        ("--lr_scheduler_type constant --warmup_ratio 0", 9, 0, False),
        ("--lr_scheduler_type constant --warmup_ratio 0.1", 9, 0, True),
        ("--lr_scheduler_type constant --warmup_ratio 0.1 --warmup_steps 3", 9, 0, False),
    ],
)
def test_a_longer_run_is_warned_of_where_its_learning_rate_follows_its_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: str, steps: int, rank: int,
    warned: bool,
) -> None:  # fmt: skip
    set_up_console(0)
    resume = resume_of(tmp_path, write(tmp_path, *flags.split(), "--max_steps", "8"))
    assert resume is not None
    now = config_of(tmp_path, *flags.split(), "--max_steps", str(steps))
    capsys.readouterr()
    resume.check(now, Ranks(rank, 1, rank, torch.device("cpu"), 1))
    assert (WARNING in capsys.readouterr().out) == warned


def test_what_corrects_for_the_rollout_may_not_change(tmp_path: Path) -> None:
    flags = ("--use_vllm", "true", "--rollout_importance_sampling_threshold")
    message = check(tmp_path, (*flags, "2"), (*flags, "3"))
    assert "--rollout_importance_sampling_threshold 2.0 -> 3.0" in message


def test_an_option_that_the_checkpoint_does_not_know_may_have_any_value(tmp_path: Path) -> None:
    saved = write(tmp_path)
    path = saved / "trainer_state.json"
    state = json.loads(path.read_text(encoding="utf-8"))
    del state["config"]["seed"]
    path.write_text(json.dumps(state), encoding="utf-8")
    resume = resume_of(tmp_path, saved)
    assert resume is not None
    resume.check(config_of(tmp_path, "--seed", "9"), ALONE)


def test_how_to_begin_anew_depends_on_what_was_trained(tmp_path: Path) -> None:
    full = check(tmp_path, ("--seed", "1"), ("--seed", "2"))
    assert f"--model {tmp_path}/checkpoint-4, without" in full
    lora = ("--train_type", "lora")
    assert "merge its adapter" in check(tmp_path, (*lora, "--seed", "1"), (*lora, "--seed", "2"))
