"""A prompt computed once for its completions gives the log-probs and gradients of each alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from grpo_doctor_trainer.algorithm import logprobs as head
from grpo_doctor_trainer.algorithm.inputs import pack
from grpo_doctor_trainer.algorithm.logprobs import completion_logprobs, logprobs_in_parts
from grpo_doctor_trainer.data.experience import ImageFeatures, TokenBatch
from grpo_doctor_trainer.model.tiny import tiny_model, tiny_processor, tiny_tokenizer, tiny_vl_model
from grpo_doctor_trainer.model.vision import rope_positions, vision_layout

PAD, TEMPERATURE = 256, 0.8
TOLERANCE = 1e-5


def make_batch(prompts: list[int], of: list[int], lengths: list[int], width: int) -> TokenBatch:
    """Completions of `lengths` tokens of the prompts numbered `of`, each of `prompts` tokens."""
    generator = torch.Generator().manual_seed(5)
    texts = [torch.randint(0, 250, (length,), generator=generator) for length in prompts]
    longest = max(prompts)
    tokens = torch.full((len(of), longest), PAD)
    mask = torch.zeros_like(tokens)
    for row, number in enumerate(of):
        tokens[row, longest - prompts[number] :] = texts[number]
        mask[row, longest - prompts[number] :] = 1
    completions = torch.randint(0, 250, (len(of), width), generator=generator)
    filled = (torch.arange(width) < torch.tensor(lengths).unsqueeze(1)).long()
    return TokenBatch(tokens, mask, completions.where(filled.bool(), PAD), filled)


BATCHES = {
    "whole groups": make_batch([6, 3], [0, 0, 0, 1, 1, 1], [5, 2, 4, 1, 5, 3], 5),
    "nothing is padded": make_batch([4, 4], [0, 0, 1, 1], [3, 3, 3, 3], 3),
    "groups that a pass cuts": make_batch([6, 3, 9], [1, 0, 2, 1, 1], [5, 2, 4, 1, 2], 6),
    "one completion of each prompt": make_batch([2, 7], [0, 1], [4, 3], 4),
    "one completion": make_batch([3], [0], [4], 4),
    "one token each": make_batch([3, 2], [0, 0, 1], [1, 1, 1], 4),
    "empty completions": make_batch([3, 2], [0, 0, 1], [0, 4, 0], 4),
    "a prompt of one token": make_batch([1, 5], [0, 0, 1], [2, 3, 1], 3),
}


@pytest.fixture(scope="module")
def model() -> Any:
    made = tiny_model(tiny_tokenizer())
    made.config.num_hidden_layers, made.config.layer_types = 2, ["full_attention"] * 2
    torch.manual_seed(3)
    return type(made)(made.config).train()


def results(
    model: Any, batch: TokenBatch, *, share: bool
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """Log-probs and entropies of the tokens that count, and gradients of all that has some."""
    logprobs = completion_logprobs(model, batch, TEMPERATURE, share_prompts=share, entropy=True)
    counted = batch.completion_mask.bool()
    weights = torch.randn(counted.shape, generator=torch.Generator().manual_seed(2))
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    loss = (logprobs.chosen * weights)[counted].sum()
    gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    present = [gradient for gradient in gradients if gradient is not None]
    return logprobs.chosen.detach()[counted], logprobs.entropies[counted], present


def assert_equal(model: Any, batch: TokenBatch) -> None:
    ours, expected = (results(model, batch, share=share) for share in (True, False))
    torch.testing.assert_close(ours[:2], expected[:2], atol=TOLERANCE, rtol=TOLERANCE)
    assert len(ours[2]) == len(expected[2])
    for gradient, reference in zip(ours[2], expected[2], strict=True):
        assert float((gradient - reference).norm()) <= TOLERANCE * float(reference.norm())


@pytest.mark.parametrize("name", BATCHES)
def test_log_probs_entropies_and_gradients(model: Any, name: str) -> None:
    assert_equal(model, BATCHES[name])


def test_gradients_of_recomputed_layers(model: Any) -> None:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    try:
        assert_equal(model, BATCHES["groups that a pass cuts"])
    finally:
        model.gradient_checkpointing_disable()


@pytest.mark.parametrize("kept_bytes", [1, 3])
def test_logits_are_never_whole_where_they_are_large(
    model: Any, kept_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    heights = []

    def watched(hidden: torch.Tensor, *weights: Any) -> torch.Tensor:
        heights.append(hidden.size(1))
        return torch.nn.functional.linear(hidden, *weights)

    monkeypatch.setattr(head, "linear", watched)
    monkeypatch.setitem(head.KEPT_BYTES, "cpu", kept_bytes * 4 * model.config.vocab_size)
    assert_equal(model, BATCHES["whole groups"])
    tokens = int(BATCHES["whole groups"].completion_mask.sum())
    assert max(heights) == kept_bytes
    assert sum(heights) == 2 * tokens  # again in the backward pass
    assert "forward" not in vars(model.lm_head)


@pytest.mark.parametrize(("room", "passes"), [(15, 2), (20, 1), (21, 1)])
def test_logits_that_fit_are_computed_once(
    model: Any, room: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []

    def watched(hidden: torch.Tensor, *weights: Any) -> torch.Tensor:
        counted.append(hidden.size(1))
        return torch.nn.functional.linear(hidden, *weights)

    monkeypatch.setattr(head, "linear", watched)
    monkeypatch.setitem(head.KEPT_BYTES, "cpu", room * 4 * model.config.vocab_size)
    assert int(BATCHES["whole groups"].completion_mask.sum()) == 20
    results(model, BATCHES["whole groups"], share=True)
    assert sum(counted) == 20 * passes


@pytest.mark.parametrize("change", ["another kind of layer", "changed behind it", "gone around"])
def test_logits_are_taken_as_they_are_where_the_last_layer_cannot_be_asked(
    model: Any, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if change == "another kind of layer":

        class Other(torch.nn.Linear):
            pass

        other = Other(128, model.config.vocab_size, bias=False)
        other.weight = model.lm_head.weight
        monkeypatch.setitem(model._modules, "lm_head", other)
    elif change == "changed behind it":
        monkeypatch.setattr(model.config, "logit_scale", 2.0, raising=False)
    else:
        unused = torch.nn.Linear(1, 1)
        monkeypatch.setattr(model, "get_output_embeddings", lambda: unused)
    calls = []
    monkeypatch.setattr(head.HeadQuery, "answer", lambda *_: calls.append(1))
    assert_equal(model, BATCHES["whole groups"])
    assert not calls


def test_nothing_but_completions_at_padding(model: Any) -> None:
    batch = BATCHES["whole groups"]
    logprobs = logprobs_in_parts(model, batch, TEMPERATURE, 4, share_prompts=True)
    assert logprobs.shape == batch.completion_tokens.shape
    assert not logprobs[batch.completion_mask == 0].any()


def test_a_prompt_without_tokens_is_left_to_the_padded_pass(model: Any) -> None:
    batch = BATCHES["whole groups"]
    emptied = replace(batch, prompt_mask=batch.prompt_mask * torch.tensor([[1]] * 5 + [[0]]))
    assert pack(emptied) is None
    assert completion_logprobs(model, emptied, TEMPERATURE, share_prompts=True).chosen.any()


@pytest.fixture(scope="module")
def vision_model() -> Any:
    return tiny_vl_model(tiny_processor().tokenizer).train()


def with_images(model: Any, grids: list[list[int]], *, companion: bool) -> TokenBatch:
    """Three completions of a prompt with the images, two of one without, padded on the left."""
    layout = vision_layout(model, companion=companion)
    generator = torch.Generator().manual_seed(9)
    places = [layout.image_token] * sum(layout.image_tokens(grid) for grid in grids)
    visible, blind = [7, *places, 8, 9], [5, 6]
    of = [visible, visible, blind, visible, blind]
    longest = len(visible)
    tokens, mask = torch.full((5, longest), PAD), torch.zeros(5, longest, dtype=torch.long)
    positions = torch.zeros(5, 3, longest, dtype=torch.long)
    for row, text in enumerate(of):
        tokens[row, longest - len(text) :] = torch.tensor(text)
        mask[row, longest - len(text) :] = 1
        images = grids if text is visible else []
        positions[row, :, longest - len(text) :] = rope_positions(text, images, layout)
    numbers = tuple(range(len(grids)))
    patches = sum(t * h * w for t, h, w in grids)
    features = ImageFeatures(
        torch.randn(patches, layout.patch_values, generator=generator),
        torch.tensor(grids).view(-1, 3),
        tuple(numbers if text is visible else () for text in of),
        positions,
        layout,
    )
    completions = torch.randint(0, 250, (5, 4), generator=generator)
    completions[0, 1] = layout.image_token  # the model said a placeholder
    lengths = torch.tensor([4, 2, 3, 1, 4])
    return TokenBatch(
        tokens, mask, completions, (torch.arange(4) < lengths[:, None]).long(), features
    )


@pytest.mark.parametrize("companion", [False, True], ids=["alone", "companion"])
@pytest.mark.parametrize("grids", [[[1, 2, 4], [1, 4, 2]], [[1, 2, 2]], []], ids=str)
def test_images(vision_model: Any, grids: list[list[int]], companion: bool) -> None:
    assert_equal(vision_model, with_images(vision_model, grids, companion=companion))
