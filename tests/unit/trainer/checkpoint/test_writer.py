"""Checkpoints: whole or not at all, the newest kept."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_doctor_trainer.checkpoint import (
    Checkpointer,
    Progress,
    check_writable,
    load_progress,
    save_progress,
)
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import set_up_console
from grpo_doctor_trainer.data.experience import Experience, Feed, ImageFeatures, TokenBatch
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.errors import CheckpointError
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer
from grpo_doctor_trainer.model.vision import VisionLayout
from grpo_doctor_trainer.ranks import Ranks

TOKENIZER = tiny_tokenizer()
ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)


@pytest.fixture(scope="module")
def engine() -> Engine:
    """The tiny model with an optimizer that has made a step."""
    module = tiny_model(TOKENIZER)
    optimizer = torch.optim.AdamW(module.lm_head.parameters())
    module.lm_head.weight.grad = torch.ones_like(module.lm_head.weight)
    optimizer.step()
    parts = SimpleNamespace(model=module, module=module, optimizer=optimizer, zero_stage=None)
    return cast("Engine", parts)


def checkpointer(folder: Path, engine: Engine, **options: Any) -> Checkpointer:
    config = TrainerConfig(output_dir=str(folder), **options)
    return Checkpointer(config, engine, TOKENIZER, ALONE)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_checkpoint_loads_with_transformers(tmp_path: Path, engine: Engine) -> None:
    saved = checkpointer(tmp_path, engine).save(Progress(7))
    assert saved == tmp_path / "checkpoint-7"
    assert names(tmp_path) == ["checkpoint-7"]
    loaded = AutoModelForCausalLM.from_pretrained(saved).state_dict()
    assert all(weight.equal(loaded[name]) for name, weight in engine.module.state_dict().items())
    assert AutoTokenizer.from_pretrained(saved)("1+2") == TOKENIZER("1+2")
    state = json.loads((saved / "trainer_state.json").read_text(encoding="utf-8"))
    assert (state["step"], state["world_size"], state["zero_stage"]) == (7, 1, None)
    assert state["config"]["output_dir"] == str(tmp_path)
    optimizer = torch.load(saved / "optimizer" / "rank_00000.pt", weights_only=True)
    assert optimizer["state"][0]["step"] == 1
    assert optimizer["masters"] == []  # AdamW steps the weights themselves
    assert state["files"].keys() == {
        str(path.relative_to(saved))
        for path in saved.rglob("*")
        if path.is_file() and path.name != "trainer_state.json"
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_keep_their_dtype(
    tmp_path: Path, dtype: torch.dtype, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_console(0)
    module = tiny_model(TOKENIZER).to(dtype)
    optimizer = torch.optim.AdamW(module.parameters())
    parts = SimpleNamespace(model=module, module=module, optimizer=optimizer, zero_stage=None)
    saved = checkpointer(tmp_path, cast("Engine", parts)).save(Progress(3))
    size = (saved / "model.safetensors").stat().st_size
    weights = sum(weight.numel() for weight in module.parameters())
    assert size == pytest.approx(weights * dtype.itemsize, rel=0.01)
    assert f": {size / 1e6:.1f} MB of weights, " in capsys.readouterr().out


def experience_of(tokens: torch.Tensor) -> Experience:
    batch = TokenBatch(tokens, tokens, tokens, tokens)
    return Experience(batch, torch.zeros(len(tokens)), None, tokens.float())


CPU = torch.device("cpu")
LAYOUT = VisionLayout(9, (9,), 2, 3, companion=True, typed=False)


@pytest.mark.parametrize("has_images", [False, True])
def test_a_rollout_and_the_random_states_survive(tmp_path: Path, has_images: bool) -> None:
    tokens = torch.arange(12).view(3, 4)
    pixels, grid = torch.arange(12.0).view(4, 3), torch.tensor([[1, 2, 2]])
    images = ImageFeatures(pixels, grid, ((0,), (), ()), torch.ones(3, 3, 4).long(), LAYOUT)
    experience = experience_of(tokens)
    if has_images:
        batch = replace(experience.tokens, images=images)
        experience = replace(experience, tokens=batch)
    log = {"tokens": 9.0, "rewards": [0.5]}
    feed = Feed(experience, torch.tensor([2, 0]), 1)
    save_progress(Progress(5, feed, {"reward": 0.5}, log), tmp_path / "a.pt")
    drawn = [torch.rand(2).tolist(), random.random()]
    progress = load_progress(tmp_path / "a.pt", CPU)
    assert [torch.rand(2).tolist(), random.random()] == drawn
    assert (progress.number, progress.metrics, progress.log) == (5, {"reward": 0.5}, log)
    assert progress.feed is not None
    taken = progress.feed.take(1)[0]
    assert taken.tokens.completion_tokens.equal(tokens[2:])
    assert progress.feed.experience.old_logprobs is None
    restored = progress.feed.experience.tokens.images
    assert (restored is not None) == has_images
    if restored is not None:
        assert (restored.layout, restored.indices) == (LAYOUT, images.indices)
        assert restored.pixel_values.equal(pixels)


def test_a_finished_rollout_is_left_out(tmp_path: Path) -> None:
    empty = Feed(experience_of(torch.arange(4).view(1, 4)), torch.arange(0), 1)
    save_progress(Progress(1, empty), tmp_path / "a.pt")
    assert load_progress(tmp_path / "a.pt", CPU).feed is None


def test_only_the_newest_are_kept(tmp_path: Path, engine: Engine) -> None:
    stranger = tmp_path / "checkpoint-best"
    stranger.mkdir()
    writer = checkpointer(tmp_path, engine, save_total_limit=2, save_only_model=True)
    for number in (8, 9, 10):
        os.utime(writer.save(Progress(number)), ns=(number, number))
    assert names(tmp_path) == ["checkpoint-10", "checkpoint-9", "checkpoint-best"]


def test_a_limit_of_one_keeps_the_last_even_in_a_folder_of_an_earlier_run(
    tmp_path: Path, engine: Engine
) -> None:
    checkpointer(tmp_path, engine, save_only_model=True).save(Progress(500))
    checkpointer(tmp_path, engine, save_total_limit=1, save_only_model=True).save(Progress(10))
    assert names(tmp_path) == ["checkpoint-10"]


def test_the_same_step_again_replaces_the_earlier_one(tmp_path: Path, engine: Engine) -> None:
    saved = checkpointer(tmp_path, engine).save(Progress(1))
    assert (saved / "optimizer").is_dir()
    checkpointer(tmp_path, engine, save_only_model=True).save(Progress(1))
    assert not (saved / "optimizer").exists()
    assert names(tmp_path) == ["checkpoint-1"]


def test_another_rank_writes_its_progress_and_no_state_that_the_first_has(
    tmp_path: Path, engine: Engine
) -> None:
    config, second = TrainerConfig(output_dir=str(tmp_path)), replace(ALONE, rank=1)
    Checkpointer(config, engine, TOKENIZER, second).save(Progress(2))
    assert names(tmp_path) == [".checkpoint-2.unfinished"]  # the first rank gives it its name
    unfinished = tmp_path / ".checkpoint-2.unfinished"
    assert names(unfinished) == ["optimizer", "resume"]
    assert names(unfinished / "optimizer") == []
    assert names(unfinished / "resume") == ["rank_00001.pt"]


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 576 vs 534"),
    ],
    ids=lambda failure: str(failure)[:30],
)
def test_a_full_disk_leaves_the_earlier_checkpoint_as_it_was(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    writer = checkpointer(tmp_path, engine, save_total_limit=1)
    before = content(writer.save(Progress(1)))

    def fail(_state: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise failure

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(CheckpointError) as error:
        writer.save(Progress(2))
    assert f"checkpoint-2 was not written: {failure}. Free disk space" in str(error.value)
    assert error.value.__cause__ is failure
    assert names(tmp_path) == ["checkpoint-1"]
    assert content(tmp_path / "checkpoint-1") == before


@pytest.mark.parametrize(
    ("every", "total", "due"), [(3, 8, [3, 6, 8]), (0, 8, []), (20, 8, [8]), (4, 8, [4, 8])]
)
def test_steps_that_end_with_a_checkpoint(
    tmp_path: Path, engine: Engine, every: int, total: int, due: list[int]
) -> None:
    writer = checkpointer(tmp_path, engine, save_steps=every)
    assert [number for number in range(1, total + 1) if writer.due(number, total)] == due


def test_what_a_killed_run_left_behind_gets_into_no_checkpoint(
    tmp_path: Path, engine: Engine
) -> None:
    stale = tmp_path / ".checkpoint-2.unfinished" / "optimizer"
    stale.mkdir(parents=True)
    (stale / "rank_00007.pt").write_bytes(b"of another run")
    saved = checkpointer(tmp_path, engine).save(Progress(2))
    assert names(saved / "optimizer") == ["rank_00000.pt"]


def test_an_old_checkpoint_that_cannot_be_removed_is_a_warning(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    set_up_console(0)
    keeper = checkpointer(tmp_path, engine, save_total_limit=1)
    old = keeper.save(Progress(1))
    remove = shutil.rmtree

    def busy(path: Path, **options: Any) -> None:
        if path == old:
            raise OSError(errno.EBUSY, "Device or resource busy")
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", busy)
    assert keeper.save(Progress(2)).is_dir()
    assert f"{old} could not be removed whole: Device or resource busy" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_found_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    config = TrainerConfig(output_dir=str(tmp_path / "file" / "out"))
    with pytest.raises(
        CheckpointError, match=r"--output_dir .* cannot be written: Not a directory"
    ):
        check_writable(config)
