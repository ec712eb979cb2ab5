"""What is loaded for a run: the policy, its reference, adapters, and what lies beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import peft
import pytest
import torch
import transformers

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.errors import ConfigError, ModelError
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.model.load import (
    LoadedModel,
    _with_exact_rotary,
    load_model,
    reference_weights,
)
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_processor, tiny_tokenizer, tiny_vl_model
from grpo_doctor_trainer.model.vision import VisionLayout, vision_layout

KINDS = [(), ("--model", "embedded-vl")]


def loaded(*flags: str, trained: Path | None = None) -> LoadedModel:
    return load_model(parse(flags, 1), torch.float32, trained)


@pytest.mark.parametrize("model", KINDS, ids=["text", "images"])
@pytest.mark.parametrize(
    ("flags", "has_reference"),
    [
        (("--train_type", "full", "--beta", "0.1"), True),
        (("--train_type", "full", "--beta", "0"), False),
    ],
)
def test_a_reference_is_a_frozen_copy_where_the_loss_has_a_kl_term(
    model: tuple[str, ...], flags: tuple[str, ...], has_reference: bool
) -> None:
    result = loaded(*model, *flags)
    assert (result.reference is not None) == has_reference
    assert (result.vision is not None) == bool(model)
    assert result.saved_with_weights is (result.processor or result.tokenizer)
    if result.reference is None:
        return
    assert type(result.reference) is type(result.policy)
    assert not result.reference.training
    assert not any(weight.requires_grad for weight in result.reference.parameters())
    policy, reference = result.policy.state_dict(), result.reference.state_dict()
    assert all(policy[name].equal(reference[name]) for name in policy)
    assert policy["lm_head.weight"].data_ptr() != reference["lm_head.weight"].data_ptr()


@pytest.mark.parametrize("model", KINDS, ids=["text", "images"])
def test_the_reference_of_a_run_that_goes_on_is_the_model_it_began_with(
    model: tuple[str, ...], tmp_path: Path
) -> None:
    original = loaded(*model, "--beta", "0.1")
    with torch.no_grad():
        original.policy.lm_head.weight.fill_(0.5)
    original.policy.save_pretrained(tmp_path)
    original.saved_with_weights.save_pretrained(tmp_path)
    again = loaded(*model, "--beta", "0.1", trained=tmp_path)
    assert bool((again.policy.lm_head.weight == 0.5).all())
    assert original.reference is not None
    assert again.reference is not None
    assert type(again.reference) is type(again.policy)
    assert again.reference.lm_head.weight.equal(original.reference.lm_head.weight)


@pytest.mark.parametrize("model", KINDS, ids=["text", "images"])
def test_adapters_need_no_reference_and_have_their_base_in_a_folder(
    model: tuple[str, ...], tmp_path: Path
) -> None:
    flags = ("--train_type", "lora", "--beta", "0.1", "--output_dir", str(tmp_path))
    result = loaded(*model, *flags)
    assert result.reference is None
    assert isinstance(result.policy, peft.PeftModel)
    base = tmp_path / "embedded_model"
    assert (base / "model.safetensors").is_file()
    assert (base / "tokenizer_config.json").is_file()
    assert (base / "preprocessor_config.json").is_file() == bool(model)
    assert result.policy.peft_config["default"].base_model_name_or_path == str(base)


@pytest.mark.parametrize(
    ("model", "problem", "expected"),
    [
        (KINDS[1], "No modules were targeted: all were excluded by exclude_modules", ConfigError),
        (KINDS[1], "Target modules not found", ValueError),
        ((), "all were excluded by exclude_modules", ValueError),
    ],
)
def test_adapters_that_find_no_place_are_the_users_mistake_where_parts_are_frozen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: tuple[str, ...], problem: str,
    expected: type[Exception],
) -> None:  # fmt: skip
    def fail(*_: object) -> None:
        raise ValueError(problem)

    monkeypatch.setattr(peft, "get_peft_model", fail)
    with pytest.raises(expected) as error:
        loaded(*model, "--train_type", "lora", "--output_dir", str(tmp_path))
    assert type(error.value) is expected


def test_adapters_of_a_checkpoint_are_put_back(tmp_path: Path) -> None:
    flags = ("--train_type", "lora", "--output_dir", str(tmp_path))
    original = loaded(*flags)
    for name, weight in original.policy.named_parameters():
        if "lora_B" in name:
            weight.data.fill_(0.25)
    original.policy.save_pretrained(tmp_path / "adapters")
    again = loaded(*flags, trained=tmp_path / "adapters").policy.state_dict()
    before = original.policy.state_dict()
    assert all(before[name].equal(again[name]) for name in before)
    with pytest.raises(ModelError, match="its adapter has weights this model has no place for"):
        loaded(*flags, "--model", "embedded-vl", trained=tmp_path / "adapters")


def test_below_adapters_the_base_is_asked_for_the_reference() -> None:
    switched: list[str] = []

    @contextmanager
    def disable() -> Iterator[None]:
        switched.append("off")
        yield
        switched.append("on")

    engine: Any = SimpleNamespace(module=SimpleNamespace(disable_adapter=disable), model="model")
    with reference_weights(engine, "copy") as reference:
        assert (reference, switched) == ("copy", [])
    with reference_weights(engine, None) as reference:
        assert (reference, switched) == ("model", ["off"])
    assert switched == ["off", "on"]


def saved(folder: Path, **tokenizer: Any) -> TrainerConfig:
    """A text model in a folder."""
    made = tiny_tokenizer()
    for name, value in tokenizer.items():
        setattr(made, name, value)
    made.save_pretrained(folder)
    tiny_model(tiny_tokenizer()).save_pretrained(folder)
    return TrainerConfig(model=str(folder), beta=0.0, gradient_checkpointing=False)


@pytest.mark.parametrize(
    ("pad", "used"), [(None, "<|end|>"), ("<|pad|>", "<|pad|>"), ("<|user|>", "<|user|>")]
)
def test_without_a_token_for_padding_it_is_that_of_the_end(
    tmp_path: Path, pad: str | None, used: str
) -> None:
    model = load_model(saved(tmp_path, pad_token=pad), torch.float32)
    assert model.tokenizer.pad_token == used
    assert (model.processor, model.vision, model.context) == (None, None, 2048)


def test_a_completion_ends_with_any_of_the_models_ends(tmp_path: Path) -> None:
    config = saved(tmp_path)
    tokenizer = tiny_tokenizer()
    end, user = tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|user|>")
    for ends, expected in ((end, {end}), ([user, end], {user, end}), (user, {user, end})):
        settings = transformers.GenerationConfig(eos_token_id=ends)
        settings.save_pretrained(tmp_path)
        model = load_model(config, torch.float32)
        assert model.end_tokens == tuple(sorted(expected))


@pytest.mark.parametrize(
    ("ranks", "flags", "companion"),
    [
        (None, (), False),
        (1, ("--freeze_vit", "false"), False),
        (2, ("--freeze_vit", "false"), True),
        (2, ("--freeze_aligner", "false"), True),
        (2, (), False),
    ],
)
def test_a_batch_needs_an_image_where_ranks_train_the_tower_together(
    monkeypatch: pytest.MonkeyPatch, ranks: int | None, flags: tuple[str, ...], companion: bool
) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: ranks is not None)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: ranks)
    model = loaded("--model", "embedded-vl", *flags)
    assert model.vision is not None
    assert model.vision.companion == companion


@pytest.mark.parametrize("make", [
    lambda: tiny_model(tiny_tokenizer()), lambda: tiny_vl_model(tiny_processor().tokenizer),
])  # fmt: skip
def test_rotary_frequencies_are_exact_whatever_the_dtype_of_the_weights(make: Any) -> None:
    exact = {name: buffer for name, buffer in make().named_buffers() if "inv_freq" in name}
    model = make()
    for part in model.modules():  # as DeepSpeed leaves them
        for name, buffer in part.named_buffers(recurse=False):
            if buffer.dtype == torch.float32 and hasattr(part, "config"):
                part.register_buffer(name, buffer.bfloat16(), persistent=False)
    buffers = dict(_with_exact_rotary(model).named_buffers())
    assert exact
    assert all(buffers[name].equal(buffer) for name, buffer in exact.items())


def test_what_cannot_be_loaded_is_said_with_what_to_do(tmp_path: Path) -> None:
    for model, words in (
        (str(tmp_path), "the folder has no tokenizer that transformers can read"),
        (str(tmp_path / "gone"), "no such folder, and no such tokenizer on Hugging Face"),
    ):
        with pytest.raises(ModelError, match=words):
            load_model(TrainerConfig(model=model), torch.float32)


@pytest.mark.parametrize("typed", [False, True])
def test_whether_a_model_asks_which_tokens_are_images_is_in_its_signature(typed: bool) -> None:
    def asking(input_ids: Any, mm_token_type_ids: Any = None) -> None: ...

    def finding(input_ids: Any) -> None: ...

    tower = SimpleNamespace(spatial_merge_size=2, patch_size=14, temporal_patch_size=2)
    config = SimpleNamespace(vision_config=tower, image_token_id=3, video_token_id=4)
    model = SimpleNamespace(config=config, forward=asking if typed else finding)
    assert vision_layout(model, companion=True) == VisionLayout(
        3, (3, 4), 2, 3 * 2 * 14 * 14, companion=True, typed=typed
    )
