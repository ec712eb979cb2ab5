"""Log-probabilities of completions against a plain log-softmax."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from grpo_doctor_trainer.algorithm import logprobs
from grpo_doctor_trainer.algorithm.logprobs import logprobs_in_parts, token_logprobs
from grpo_doctor_trainer.data.experience import TokenBatch, mask_after_end
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_model(tiny_tokenizer()).eval()


@pytest.fixture
def batch() -> TokenBatch:
    """Three completions of prompts of different lengths."""
    generator = torch.Generator().manual_seed(5)
    prompts = torch.randint(0, 256, (3, 6), generator=generator)
    prompt_mask = torch.ones_like(prompts)
    prompts[1, :4], prompt_mask[1, :4] = 256, 0
    completions = torch.randint(0, 256, (3, 5), generator=generator)
    completions[2, 2], completions[2, 3:] = 257, 256
    return TokenBatch(prompts, prompt_mask, completions, mask_after_end(completions, (257,)))


@torch.no_grad()
def expected_row(model: Any, batch: TokenBatch, row: int, temperature: float) -> torch.Tensor:
    """One completion alone: no padding, the whole sequence, log_softmax and gather."""
    prompt = batch.prompt_tokens[row][batch.prompt_mask[row].bool()]
    tokens = torch.cat([prompt, batch.completion_tokens[row]])
    logits = model(input_ids=tokens[None]).logits[0, len(prompt) - 1 : -1] / temperature
    every: torch.Tensor = logits.log_softmax(dim=1)
    return every.gather(1, batch.completion_tokens[row][:, None])[:, 0]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("part_size", [1, 2, 8])
def test_padding_and_parts_change_nothing(
    model: Any, batch: TokenBatch, temperature: float, part_size: int
) -> None:
    rows = logprobs_in_parts(model, batch, temperature, part_size)
    assert rows.shape == batch.completion_tokens.shape
    assert not rows.requires_grad
    for row in range(3):
        counted = batch.completion_mask[row].bool()
        expected = expected_row(model, batch, row, temperature)
        assert rows[row][counted].tolist() == pytest.approx(expected[counted].tolist(), abs=1e-5)


def test_logprobs_of_low_precision_logits_are_float32() -> None:
    logits = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(1)).bfloat16()
    tokens = torch.tensor([[0, 1, 2], [3, 4, 5]])
    chosen = token_logprobs(logits, tokens).chosen
    assert chosen.dtype == torch.float32
    expected = logits.float().log_softmax(dim=2).gather(2, tokens[:, :, None])[:, :, 0]
    torch.testing.assert_close(chosen, expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("block_bytes", [1, 4 * 7 * 2, 4 * 7 * 9, 10**6])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_blocks_of_any_size_give_values_gradients_and_entropies_of_a_softmax(
    monkeypatch: pytest.MonkeyPatch, block_bytes: int, temperature: float
) -> None:
    monkeypatch.setitem(logprobs._BLOCK_BYTES, "cpu", block_bytes)
    generator = torch.Generator().manual_seed(3)
    leaf = torch.randn(4, 5, 7, dtype=torch.float64, generator=generator).requires_grad_()
    tokens = torch.randint(0, 7, (4, 5), generator=generator)
    weights = torch.randn(4, 5, dtype=torch.float64, generator=generator)

    actual = token_logprobs(leaf, tokens, temperature, entropy=True)
    every = (leaf / temperature).log_softmax(dim=2)
    expected = every.gather(2, tokens[:, :, None])[:, :, 0]
    torch.testing.assert_close(actual.chosen, expected, atol=1e-12, rtol=0)
    entropies = -(every.exp() * every).sum(dim=2).detach()
    torch.testing.assert_close(actual.entropies, entropies, atol=1e-12, rtol=0)
    (mine,) = torch.autograd.grad((actual.chosen * weights).sum(), leaf)
    (theirs,) = torch.autograd.grad((expected * weights).sum(), leaf)
    torch.testing.assert_close(mine, theirs, atol=1e-12, rtol=0)
