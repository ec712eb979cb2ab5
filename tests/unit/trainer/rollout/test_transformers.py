"""Rollout with transformers: what it samples is what the log-probs are computed of."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.algorithm.logprobs import completion_logits, token_logprobs
from grpo_doctor_trainer.data.experience import ImageFeatures
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.flags import parse
from grpo_doctor_trainer.model.load import load_model
from grpo_doctor_trainer.model.vision import rope_positions
from grpo_doctor_trainer.rollout.transformers import TransformersRollout

TEMPERATURE = 0.7


@pytest.fixture(scope="module")
def loaded() -> Any:
    return load_model(parse([], 1), torch.float32)


def make_rollout(loaded: Any, *flags: str) -> TransformersRollout:
    engine: Any = SimpleNamespace(
        module=loaded.policy, model=loaded.policy, device=torch.device("cpu"), zero_stage=None
    )
    return TransformersRollout(engine, loaded, parse(flags, 1))


def prompts(tokenizer: Any, *texts: str) -> PromptBatch:
    batch = tokenizer(list(texts), return_tensors="pt", padding=True)
    return PromptBatch([], list(texts), batch["input_ids"], batch["attention_mask"])


def test_completions_end_with_the_end_token_or_the_limit(loaded: Any) -> None:
    torch.manual_seed(0)
    rollout = make_rollout(loaded, "--max_completion_length", "60")
    batch = rollout.generate(prompts(loaded.tokenizer, *["1+2"] * 64)).tokens
    end = loaded.tokenizer.eos_token_id
    for tokens, mask in zip(batch.completion_tokens, batch.completion_mask, strict=True):
        prompt = tokens[mask.bool()].tolist()
        assert end not in prompt[:-1]
        assert prompt[-1] == end or len(prompt) == batch.completion_tokens.size(1)
        assert (tokens[~mask.bool()] == loaded.tokenizer.pad_token_id).all()
    assert loaded.policy.training  # as before


def test_log_probs_agree_with_those_of_generation_also_behind_padding(loaded: Any) -> None:
    torch.manual_seed(1)
    rollout = make_rollout(
        loaded, "--max_completion_length", "5", "--temperature", str(TEMPERATURE)
    )
    made = rollout.generate(prompts(loaded.tokenizer, "1", "a much longer prompt: 3+4"))
    assert made.logprobs is None  # the trainer's own forward pass gives the same
    batch = made.tokens
    with torch.no_grad():
        logits = completion_logits(loaded.policy, batch)
        chosen = token_logprobs(logits, batch.completion_tokens, TEMPERATURE).chosen
        for row in range(2):  # one at a time, without padding, one token after the other
            sequence = batch.prompt_tokens[row][batch.prompt_mask[row].bool()]
            for column, token in enumerate(batch.completion_tokens[row]):
                next_token = loaded.policy(input_ids=sequence[None]).logits[0, -1] / TEMPERATURE
                expected = next_token.log_softmax(0)[token]
                assert chosen[row, column] == pytest.approx(float(expected), abs=1e-4)
                sequence = torch.cat([sequence, token[None]])


def both_ways(loaded: Any, batch: PromptBatch, *flags: str) -> list[Any]:
    """Completions with the prompts of a group read once, and by `generate`."""
    flags = ("--max_completion_length", "12", "--top_k", "1", *flags)  # leaves nothing to chance
    return [
        make_rollout(loaded, *flags, "--share_prompts", share).generate(batch).tokens
        for share in ("true", "false")
    ]


def assert_same(shared: Any, generated: Any) -> None:
    longest = int(generated.completion_mask.sum(dim=1).max())
    assert shared.completion_mask[:, :longest].equal(generated.completion_mask[:, :longest])
    assert shared.completion_tokens[:, :longest].equal(generated.completion_tokens[:, :longest])


@pytest.mark.parametrize("penalty", ["1.0", "1.5"])
def test_a_prompt_read_once_is_completed_as_by_generate(loaded: Any, penalty: str) -> None:
    texts = ["1+1"] * 3 + ["a longer prompt: 3+4"] * 3 + ["5"] * 2
    early = replace(loaded, end_tokens=(*range(0, 250, 5), loaded.tokenizer.eos_token_id))
    batch = prompts(loaded.tokenizer, *texts)
    for model in (loaded, early):
        shared, generated = both_ways(model, batch, "--repetition_penalty", penalty)
        assert_same(shared, generated)
    lengths = generated.completion_mask.sum(dim=1)
    assert len(lengths.unique()) > 1 or penalty == "1.0"  # rows that end before others


def test_images_read_once_are_completed_as_by_generate() -> None:
    with_images = load_model(parse(["--model", "embedded-vl"], 1), torch.float32)
    layout = with_images.vision
    assert layout
    grid = [1, 4, 4]
    prompt = [5, *[layout.image_token] * layout.image_tokens(grid), 8, 9, 10]
    rows = [prompt, prompt, [5, 6, 7]]
    tokens = torch.full((3, len(prompt)), with_images.tokenizer.pad_token_id)
    mask, positions = torch.zeros_like(tokens), torch.zeros(3, 3, len(prompt), dtype=torch.long)
    for row, text in enumerate(rows):
        start = len(prompt) - len(text)
        tokens[row, start:], mask[row, start:] = torch.tensor(text), 1
        positions[row, :, start:] = rope_positions(text, [grid] if text is prompt else [], layout)
    pixels = torch.randn(16, layout.patch_values, generator=torch.Generator().manual_seed(1))
    images = ImageFeatures(pixels, torch.tensor([grid]), ((0,), (0,), ()), positions, layout)
    batch = PromptBatch([], [], tokens, mask, images)
    assert_same(*both_ways(with_images, batch))
    blind = replace(images, indices=((),), positions=positions[2:])
    assert_same(*both_ways(with_images, PromptBatch([], [], tokens[2:], mask[2:], blind)))


def test_what_the_options_do_not_say_is_left_to_generate(
    loaded: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loaded.policy.generation_config, "no_repeat_ngram_size", 2)
    with caplog.at_level("INFO", "grpo_doctor_trainer"):
        rollout = make_rollout(loaded, "--max_completion_length", "12", "--top_k", "1")
    assert "generation_config sets no_repeat_ngram_size" in caplog.text
    tokens = rollout.generate(prompts(loaded.tokenizer, "1+1")).tokens.completion_tokens[0]
    pairs = list(zip(tokens.tolist(), tokens.tolist()[1:], strict=False))
    assert len(set(pairs)) == len(pairs)
