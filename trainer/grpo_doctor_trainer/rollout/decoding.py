"""Samples completions token by token, with each prompt read once for all of its completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from transformers.generation import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from grpo_doctor_trainer.algorithm.inputs import model_inputs
from grpo_doctor_trainer.model.sharing import largest_gap
from grpo_doctor_trainer.rollout.next_token import ModelSteps, key_value_cache
from grpo_doctor_trainer.rollout.plain_decoder import NotPlainError, PlainDecoder, PlainSteps

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.experience import TokenBatch
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.rollout import OnEnded
    from grpo_doctor_trainer.rollout.next_token import Steps

# Of a model's own settings for generation: those that the options replace, or that say nothing.
_REPLACED = {
    *("bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "use_cache"),
    *("do_sample", "temperature", "top_k", "top_p", "repetition_penalty"),
    *("max_length", "max_new_tokens", "output_attentions", "output_hidden_states"),
}
# The cache is copied without the rows that have ended once these are an eighth.
_ENDED_SHARE = 8


def own_settings(module: Any) -> list[str]:
    """Names what a model's generation config asks for that no option says."""
    settings = module.generation_config.to_diff_dict()
    return sorted(
        name
        for name, value in settings.items()
        if name not in _REPLACED and not name.startswith("_") and value is not None
    )


class Sampler:
    """Chooses tokens as `generate` of transformers does with the same options, in its order."""

    def __init__(self, config: TrainerConfig, loaded: LoadedModel) -> None:
        self.longest = config.max_completion_length
        self.pad_token: int = loaded.tokenizer.pad_token_id
        self.end_tokens = loaded.end_tokens
        self._changes = LogitsProcessorList()
        if config.repetition_penalty != 1:
            self._changes.append(RepetitionPenaltyLogitsProcessor(config.repetition_penalty))
        if loaded.vision is not None:
            self._changes.append(SuppressTokensLogitsProcessor(list(loaded.vision.placeholders)))
        if config.temperature != 1:
            self._changes.append(TemperatureLogitsWarper(config.temperature))
        if config.top_k > 0:
            self._changes.append(TopKLogitsWarper(config.top_k))
        if config.top_p < 1:
            self._changes.append(TopPLogitsWarper(config.top_p))

    def choose(
        self, sequences: torch.Tensor, rows: torch.Tensor, index: int, logits: torch.Tensor
    ) -> torch.Tensor:
        """Draws a token for each row from torch's random state.

        Args:
            sequences: [completions, prompts and room], prompts padded on the left.
            rows: of the sequences.
            index: of the token, behind all that the sequences have.
            logits: [rows, vocabulary].
        """
        scores = logits.float()
        if self._changes:
            scores = self._changes(sequences[rows, :index], scores)
        return torch.multinomial(scores.softmax(dim=1), 1).squeeze(1)


@torch.no_grad()
def sample(
    module: Any,
    prompts: TokenBatch,
    sampler: Sampler,
    on_ended: OnEnded | None = None,
    plain: PlainDecoder | None = None,
) -> torch.Tensor:
    """Completes prompts.

    Args:
        module: the policy, in eval mode, with its whole weights.
        prompts: one entry per completion; their completions are empty.
        sampler: chooses.
        on_ended: is given completions as they end.
        plain: the parts of the policy, if it can be asked without its own forward pass.

    Returns:
        [completions, longest completion], padded on the right.
    """
    width, count = prompts.prompt_tokens.size(1), len(prompts)
    full = width + sampler.longest
    sequences = prompts.prompt_tokens.new_full((count, full), sampler.pad_token)
    sequences[:, :width] = prompts.prompt_tokens
    logits, steps = _read_prompts(module, prompts, full, plain)
    ends = torch.tensor(sampler.end_tokens, device=sequences.device)
    rows = torch.arange(count, device=sequences.device)  # those that the cache has
    going = torch.ones(count, dtype=torch.bool, device=sequences.device)
    count_going = count
    for index in range(width, full):
        tokens = sampler.choose(sequences, rows, index, logits)
        tokens = tokens.where(going, sampler.pad_token)
        sequences[rows, index] = tokens
        still_going = going & ~torch.isin(tokens, ends)
        before, count_going = count_going, int(still_going.sum())
        if on_ended is not None and count_going == before:
            on_ended({})
        elif on_ended is not None:
            ended_rows = rows[going & ~still_going]
            completions = sequences[ended_rows, width : index + 1].tolist()
            on_ended(dict(zip(ended_rows.tolist(), completions, strict=True)))
        going = still_going
        if not count_going or index + 1 == full:
            break
        if (len(rows) - count_going) * _ENDED_SHARE >= len(rows):
            indices = going.nonzero().squeeze(1)
            steps.keep(indices)
            rows, tokens, going = rows[indices], tokens[indices], going[indices]
        logits = steps.logits(tokens, index)
    return sequences[:, width : index + 1]


def plain_parts(module: Any, batch: TokenBatch) -> PlainDecoder:
    """Takes a model apart that says the same in parts as whole.

    Args:
        module: the policy, in eval mode, with its whole weights.
        batch: to ask it both ways.

    Raises:
        NotPlainError: it cannot be asked in parts.
    """
    parts = PlainDecoder.of(module)
    try:
        direct, apart = (_logprobs(module, batch, plain) for plain in (None, parts))
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()
        raise NotPlainError(f"its layers do not take it ({(reason or [''])[0]})") from error
    gap = float((direct - apart).abs().mean())
    if not gap <= largest_gap(module):
        raise NotPlainError(f"its log-probs would differ by {gap:.2g} nats per token")
    return parts


@torch.no_grad()
def _logprobs(module: Any, batch: TokenBatch, plain: PlainDecoder | None) -> torch.Tensor:
    """Gives [tokens, vocabulary]; the last completion is left out halfway, as if it had ended.

    Once behind the prompts, and once where the model's context ends: some attend otherwise there.
    """
    width, longest = batch.prompt_tokens.size(1), batch.completion_tokens.size(1)
    prompts, rows = batch.trimmed(width, 0), torch.arange(len(batch) - 1)
    context = getattr(module.config.get_text_config(), "max_position_embeddings", None) or 0
    logits = []
    for skipped in {0, max(0, context - width - longest)}:
        _, steps = _read_prompts(module, prompts, width + longest, plain, skipped=skipped)
        tokens = batch.completion_tokens
        for column in range(longest):
            if column == longest // 2:
                steps.keep(rows.to(tokens.device))
                tokens = tokens[:-1]
            logits.append(steps.logits(tokens[:, column], width + column))
    return torch.cat(logits).float().log_softmax(dim=1)


def _read_prompts(
    module: Any, prompts: TokenBatch, room: int, plain: PlainDecoder | None, *, skipped: int = 0
) -> tuple[torch.Tensor, Steps]:
    """Reads each prompt once.

    Args:
        module: the policy.
        prompts: one entry per completion.
        room: tokens of the longest sequence, prompt included.
        plain: as in `sample`.
        skipped: positions between a prompt and its completion.

    Returns:
        [completions, vocabulary], the logits of the first tokens, and what gives the others'.
    """
    device = prompts.prompt_tokens.device
    firsts, prompt_of = (rows.to(device) for rows in prompts.distinct_prompts())
    inputs = model_inputs(prompts.select(firsts))
    cache = key_value_cache(room)
    output = module(**inputs, logits_to_keep=1, use_cache=True, past_key_values=cache)
    cache.batch_select_indices(prompt_of)
    # [..., completions, 1]: a vision-language model counts three times.
    following = inputs["position_ids"].amax(dim=-1, keepdim=True)[..., prompt_of, :] + 1 + skipped
    if inputs["position_ids"].dim() > 2:
        following = following.amax(dim=0, keepdim=True).expand_as(following)
    mask = prompts.prompt_mask.new_ones(len(prompts), room)
    mask[:, : prompts.prompt_mask.size(1)] = prompts.prompt_mask
    steps: Steps = (
        ModelSteps(module, cache, mask, following)
        if plain is None
        else PlainSteps(plain, cache, mask, following)
    )
    return output.logits[prompt_of, -1], steps
