"""Vision-language models: their parts, their inputs, and log-probs of mixed batches."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.algorithm.inputs import model_inputs
from grpo_doctor_trainer.algorithm.logprobs import completion_logits, token_logprobs
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import TokenBatch, mask_after_end
from grpo_doctor_trainer.data.prompts import PromptBatch, PromptMaker, prompt_loader
from grpo_doctor_trainer.data.rows import Row, load_rows
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.model.load import LoadedModel, load_model
from grpo_doctor_trainer.model.vision import rope_positions
from grpo_doctor_trainer.ranks import Ranks
from grpo_doctor_trainer.rollout.transformers import TransformersRollout

ROWS = load_rows([], with_images=True)
PICTURE, SUM = ROWS[7], ROWS[-1]
ALONE = Ranks(rank=0, world_size=1, local_rank=0, device=torch.device("cpu"), threads=1)


def flags(*more: str) -> TrainerConfig:
    return parse(["--model", "embedded-vl", *more], 1)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return load_model(flags(), torch.float32)


def layout_of(loaded: LoadedModel) -> Any:
    assert loaded.vision is not None
    return loaded.vision


def batch_of(loaded: LoadedModel, rows: list[Row], copies: int = 2) -> PromptBatch:
    config = dataclasses.replace(
        flags(), per_device_train_batch_size=len(rows) * copies, num_generations=copies,
        gradient_accumulation_steps=1, dataloader_num_workers=0, steps_per_generation=1,
    )  # fmt: skip
    return next(prompt_loader(rows, loaded, config, ALONE))


def completed(prompts: PromptBatch) -> TokenBatch:
    """Random completions, one of them with a placeholder for an image in it."""
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(0, 250, (len(prompts.tokens), 5), generator=generator)
    tokens[0, 2:] = torch.tensor([257, 256, 256])
    return TokenBatch(
        prompts.tokens, prompts.mask, tokens, mask_after_end(tokens, (257,)), prompts.images
    )


def test_the_demo_mixes_pictures_and_sums() -> None:
    assert [len(row.images) for row in ROWS] == [1] * 32 + [0] * 25
    assert {row.columns["solution"] for row in ROWS} == {str(n) for n in range(9)}
    assert ROWS[3].columns == {"solution": "2"}


def test_a_saved_folder_loads_again(loaded: LoadedModel, tmp_path: Path) -> None:
    loaded.policy.save_pretrained(tmp_path)
    loaded.saved_with_weights.save_pretrained(tmp_path)
    config = dataclasses.replace(flags(), model=str(tmp_path))
    again = load_model(config, torch.float32)
    assert type(again.policy) is type(loaded.policy)
    expected = loaded.policy.state_dict()
    assert all(weight.equal(expected[name]) for name, weight in again.policy.state_dict().items())
    assert (again.vision, again.end_tokens, again.context) == (
        loaded.vision, loaded.end_tokens, 2048,
    )  # fmt: skip
    left, right = (PromptMaker.of(model, flags()).make(PICTURE, 1) for model in (loaded, again))
    assert (left.text, left.tokens) == (right.text, right.tokens)
    assert left.pixel_values.equal(right.pixel_values)


@pytest.mark.parametrize("kind", ["full", "lora"])
@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ((), {"llm"}),
        (("--freeze_vit", "false"), {"vit", "llm"}),
        (("--freeze_aligner", "false"), {"aligner", "llm"}),
        (("--freeze_aligner", "false", "--freeze_llm", "true"), {"aligner"}),
        (("--freeze_vit", "false", "--freeze_llm", "true"), {"vit"}),
    ],
)
def test_freezing(kind: str, options: tuple[str, ...], parts: set[str], tmp_path: Path) -> None:
    config = flags("--train_type", kind, "--output_dir", str(tmp_path), *options)
    policy = load_model(config, torch.float32).policy
    trained = {
        ("aligner" if "merger" in name else "vit") if "visual." in name else "llm"
        for name, weight in policy.named_parameters()
        if weight.requires_grad
    }
    assert trained == parts


def test_positions_are_transformers_own(loaded: LoadedModel) -> None:
    layout, model = layout_of(loaded), loaded.policy.model
    wide, tall = [1, 4, 8], [1, 10, 2]
    image = layout.image_token
    for tokens, grids in (
        ([1, 2, *[image] * 8, 3, *[image] * 5, 4, 5], [wide, tall]),
        ([*[image] * 13, 7], [wide, tall]),  # images that touch
        ([1, 2, 3], []),
    ):
        if tokens[0] == image:  # transformers would take these for one image
            separate = tokens[:8], tokens[8:]
            first = rope_positions(separate[0], [wide], layout)
            second = rope_positions(separate[1], [tall], layout) + int(first.max()) + 1
            expected = torch.cat([first, second], dim=1)
        else:
            ids = torch.tensor([tokens])
            grid = torch.tensor(grids) if grids else None
            kinds = (ids == image).int()
            expected = model.get_rope_index(ids, kinds, image_grid_thw=grid)[0][:, 0]
        assert rope_positions(tokens, grids, layout).equal(expected)


def with_companion(batch: TokenBatch) -> TokenBatch:
    images = batch.images
    assert images is not None
    layout = dataclasses.replace(images.layout, companion=True)
    return dataclasses.replace(batch, images=dataclasses.replace(images, layout=layout))


def test_a_companion_runs_the_tower_and_changes_no_gradient() -> None:
    model = load_model(flags("--freeze_vit", "false", "--freeze_aligner", "false"), torch.float32)
    plain = completed(batch_of(model, [SUM, ROWS[-3]]))
    helped = with_companion(plain)
    assert "pixel_values" not in model_inputs(plain)
    assert model_inputs(helped)["input_ids"].size(0) == len(plain) + 1
    results = []
    for batch in (plain, helped):
        model.policy.zero_grad(set_to_none=True)
        logits = completion_logits(model.policy, batch, 1.0)
        assert logits.size(0) == len(plain)
        chosen = token_logprobs(logits, batch.completion_tokens).chosen
        loss = -(chosen * batch.completion_mask).sum()
        torch.autograd.backward(loss)
        grads = {name: weight.grad for name, weight in model.policy.named_parameters()}
        results.append((loss.detach(), grads))
    (loss, without), (helped_loss, grads) = results
    torch.testing.assert_close(helped_loss, loss)
    for name, gradient in grads.items():
        assert gradient is not None, name  # every weight took part
        if "visual." in name:
            assert without[name] is None
            assert not gradient.any(), name
        else:
            torch.testing.assert_close(gradient, without[name], atol=1e-5, rtol=1e-4)


def make_rollout(loaded: LoadedModel, share: str) -> TransformersRollout:
    engine: Any = SimpleNamespace(
        module=loaded.policy, model=loaded.policy, device=torch.device("cpu"), zero_stage=None
    )
    likeliest = ("--max_completion_length", "4", "--top_k", "1")
    return TransformersRollout(engine, loaded, flags(*likeliest, "--share_prompts", share))


@pytest.mark.parametrize("rows", [[PICTURE, SUM], [SUM], [PICTURE]])
@pytest.mark.parametrize("companion", [False, True])
@pytest.mark.parametrize("share", ["true", "false"])
def test_generation_samples_from_the_log_probs(
    loaded: LoadedModel, rows: list[Row], companion: bool, share: str
) -> None:
    rollout = make_rollout(loaded, share)
    prompts = batch_of(loaded, rows)
    assert prompts.images is not None
    layout = dataclasses.replace(prompts.images.layout, companion=companion)
    images = dataclasses.replace(prompts.images, layout=layout)
    made = rollout.generate(dataclasses.replace(prompts, images=images)).tokens
    assert len(made) == len(prompts.tokens)
    with torch.no_grad():
        logits = completion_logits(loaded.policy.eval(), made, 1.0)
    logits[:, :, list(layout.placeholders)] = -torch.inf
    counted = made.completion_mask.bool()
    assert logits.argmax(dim=2)[counted].equal(made.completion_tokens[counted])
    loaded.policy.train()
