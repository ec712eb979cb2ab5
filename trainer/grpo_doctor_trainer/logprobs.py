"""Log-probabilities of the completions' tokens under a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from grpo_doctor_trainer.experience import TokenBatch


def completion_logits(model: Any, batch: TokenBatch, temperature: float) -> torch.Tensor:
    """Runs the model and gives the logits that predict each completion token.

    Returns:
        [completions, tokens, vocabulary], divided by the temperature, in the model's dtype.
    """
    kept = batch.completion_tokens.size(1)
    mask = torch.cat([batch.prompt_mask, batch.completion_mask], dim=1)
    logits: torch.Tensor = model(
        input_ids=torch.cat([batch.prompt_tokens, batch.completion_tokens], dim=1),
        attention_mask=mask,
        position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),  # prompts are padded on the left
        logits_to_keep=kept + 1,
        use_cache=False,
    ).logits
    return logits[:, -kept - 1 : -1] / temperature


def token_logprobs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Gives the log-probability of each token, one completion at a time.

    log p(t) = logit(t) - logsumexp(logits): never a softmax of the whole batch, in float32 only
    [tokens, vocabulary] of one completion.

    Args:
        logits: [completions, tokens, vocabulary].
        tokens: [completions, tokens].

    Returns:
        [completions, tokens], float32.
    """
    chosen = logits.gather(2, tokens.unsqueeze(2)).squeeze(2).float()
    normalizers = torch.stack([row.float().logsumexp(dim=1) for row in logits])
    return chosen - normalizers


@torch.no_grad()
def token_entropies(logits: torch.Tensor) -> torch.Tensor:
    """Gives the entropy in nats of each predicted token, one completion at a time.

    Returns:
        [completions, tokens], float32.
    """
    entropies = []
    for row in logits:
        logprobs = row.float().log_softmax(dim=1)
        entropies.append(-(logprobs.exp() * logprobs).sum(dim=1))
    return torch.stack(entropies)


@torch.no_grad()
def logprobs_in_parts(
    model: Any, batch: TokenBatch, temperature: float, part_size: int
) -> torch.Tensor:
    """Gives the log-probabilities of a whole rollout without gradients, `part_size` at a time.

    Returns:
        [completions, tokens], float32.
    """
    parts = [
        token_logprobs(completion_logits(model, part, temperature), part.completion_tokens)
        for part in batch.parts(part_size)
    ]
    return torch.cat(parts)
