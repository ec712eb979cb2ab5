"""Log-probabilities of the completions' tokens under a model, and the entropy of each choice.

Logits are [completions, tokens, vocabulary]: with a real vocabulary the largest tensor of a step.
What is computed of them is computed in blocks, so that beside the logits themselves and their
gradient, both in the model's dtype, nothing of that size is ever held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from grpo_doctor_trainer.algorithm.head import HeadQuery, querying
from grpo_doctor_trainer.algorithm.inputs import model_inputs, needs_companion, packed_inputs
from grpo_doctor_trainer.algorithm.packing import pack

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.data.experience import TokenBatch

# Of float32 logits worked on at once. A CPU is faster where a block stays in its cache.
_BLOCK_BYTES = {"cpu": 2 * 2**20}
_BLOCK_BYTES_ELSEWHERE = 128 * 2**20


def completion_logits(model: Any, batch: TokenBatch, temperature: float = 1.0) -> torch.Tensor:
    """Runs the model and gives the logits that predict each completion token.

    Args:
        model: what is called, an engine's or a plain one.
        batch: prompts and completions.
        temperature: of the sampling.

    Returns:
        [completions, tokens, vocabulary], divided by the temperature, in the model's dtype.
    """
    count = batch.completion_tokens.size(1)
    first = batch.prompt_tokens.size(1) - 1  # the last prompt token predicts the first of these
    logits: torch.Tensor = model(
        **model_inputs(batch),
        # As places, not as a number: slicing the logits would double their gradient's memory.
        logits_to_keep=torch.arange(first, first + count, device=batch.prompt_tokens.device),
        use_cache=False,
    ).logits
    if len(logits) > len(batch):  # the last row is a companion, which is none of ours
        logits = logits[: len(batch)]
    return logits if temperature == 1.0 else logits / temperature


class TokenLogprobs(NamedTuple):
    """Both [completions, tokens], float32.

    Attributes:
        chosen: log-probability of each token that was sampled.
        entropies: of the distribution it was sampled from, in nats; zero if not asked for.
    """

    chosen: torch.Tensor
    entropies: torch.Tensor


def token_logprobs(
    logits: torch.Tensor, tokens: torch.Tensor, temperature: float = 1.0, *, entropy: bool = False
) -> TokenLogprobs:
    """Gives the log-probability of each token, with gradient, and the entropy, without.

    log p(t) = x(t) - log sum exp(x), with x = logits / temperature, in float32.

    Args:
        logits: [completions, tokens, vocabulary], of any float dtype.
        tokens: [completions, tokens].
        temperature: that of sampling.
        entropy: whether entropies are wanted: a few more operations in the same pass.
    """
    apply: Any = _TokenLogprobs.apply
    chosen, entropies = apply(logits, tokens, temperature, entropy)
    return TokenLogprobs(chosen, entropies)


def completion_logprobs(
    model: Any,
    batch: TokenBatch,
    temperature: float,
    *,
    share_prompts: bool = False,
    entropy: bool = False,
) -> TokenLogprobs:
    """Runs the model and gives the log-probability of each token of the completions.

    Args:
        model: what is called, an engine's or a plain one; to share, one that can (`model.sharing`).
        batch: prompts and completions.
        temperature: of the sampling.
        share_prompts: compute what is equal in prompts once, and no padding. At padding there is 0
            then, otherwise what the model says of it.
        entropy: whether entropies are wanted.
    """
    packing = pack(batch, companion=needs_companion(batch)) if share_prompts else None
    if packing is None:
        logits = completion_logits(model, batch)
        return token_logprobs(logits, batch.completion_tokens, temperature, entropy=entropy)

    def values(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return torch.stack(token_logprobs(logits, tokens, temperature, entropy=entropy), dim=2)

    tokens = batch.completion_tokens.flatten()[packing.predicted].unsqueeze(0)
    query = HeadQuery(tokens, values)
    with querying(model, query):
        logits = model(
            **packed_inputs(batch, packing), logits_to_keep=packing.predicting, use_cache=False
        ).logits
    pairs = (logits if query.answered else values(logits, tokens))[0]
    chosen, entropies = (packing.scattered(pairs[:, i], batch.completion_tokens) for i in (0, 1))
    return TokenLogprobs(chosen, entropies.detach())


@torch.no_grad()
def logprobs_in_parts(
    model: Any,
    batch: TokenBatch,
    temperature: float,
    part_size: int,
    *,
    share_prompts: bool = False,
) -> torch.Tensor:
    """Gives the log-probabilities of a whole rollout without gradients, `part_size` at a time.

    Args:
        model: what is called.
        batch: prompts and completions of the rollout.
        temperature: of the sampling.
        part_size: completions in one forward pass.
        share_prompts: as in `completion_logprobs`.

    Returns:
        [completions, tokens], float32.
    """
    parts = [
        completion_logprobs(model, part, temperature, share_prompts=share_prompts).chosen
        for part in batch.parts(part_size)
    ]
    return torch.cat(parts)


class _TokenLogprobs(torch.autograd.Function):
    """Keeps the logits and one normalizer per token for the backward pass, never a softmax."""

    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, tokens: torch.Tensor, temperature: float, entropy: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        normalizers = torch.empty(tokens.shape, dtype=dtype, device=logits.device)
        chosen = torch.empty_like(normalizers)
        entropies = torch.zeros_like(normalizers)
        for block in _blocks(logits):
            scaled = logits[block].to(dtype) / temperature
            normalizer = scaled.logsumexp(dim=2)
            normalizers[block] = normalizer
            chosen[block] = scaled.gather(2, tokens[block].unsqueeze(2)).squeeze(2) - normalizer
            if entropy:
                shares = (scaled - normalizer.unsqueeze(2)).exp_()
                entropies[block] = normalizer - torch.linalg.vecdot(shares, scaled)
        ctx.save_for_backward(logits, tokens, normalizers)
        ctx.temperature = temperature
        ctx.mark_non_differentiable(entropies)
        return chosen, entropies

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        logits, tokens, normalizers = ctx.saved_tensors
        weights = gradients[0] / ctx.temperature
        gradient = torch.empty_like(logits)
        for block in _blocks(logits):
            # d log p(t) / d x(v) = [v = t] - p(v)
            scaled = logits[block].to(normalizers.dtype) / ctx.temperature
            weight = weights[block].unsqueeze(2)
            shares = scaled.sub_(normalizers[block].unsqueeze(2)).exp_().mul_(-weight)
            gradient[block] = shares.scatter_add_(2, tokens[block].unsqueeze(2), weight)
        return gradient, None, None, None


def _blocks(logits: torch.Tensor) -> Iterator[tuple[slice, slice]]:
    """Cuts [completions, tokens, vocabulary] into blocks of a bounded size, views all of them."""
    rows, length, vocabulary = logits.shape
    limit = _BLOCK_BYTES.get(logits.device.type, _BLOCK_BYTES_ELSEWHERE) // (4 * vocabulary)
    high = max(1, limit // max(1, length))
    wide = max(1, min(length, limit))
    for row in range(0, rows, high):
        for column in range(0, length, wide):
            yield slice(row, row + high), slice(column, column + wide)
