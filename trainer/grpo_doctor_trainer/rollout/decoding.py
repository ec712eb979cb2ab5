"""Samples completions token by token, with each prompt read once for all of its completions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache, DynamicLayer
from transformers.generation import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from grpo_doctor_trainer.algorithm.inputs import model_inputs

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.experience import TokenBatch
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.rollout import OnEnded

# Of a model's own settings for generation: those that the options replace, or that say nothing.
_REPLACED = {
    *("bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "use_cache"),
    *("do_sample", "temperature", "top_k", "top_p", "repetition_penalty"),
    *("max_length", "max_new_tokens", "output_attentions", "output_hidden_states"),
}
# The cache is copied without the rows that have ended once these are a quarter.
_ENDED_SHARE = 4


def own_settings(module: Any) -> list[str]:
    """Names what a model's generation config asks for that no option says."""
    given = module.generation_config.to_diff_dict()
    return sorted(
        name
        for name, value in given.items()
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

    def choose(self, sequences: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Draws a token for each row from torch's random state.

        Args:
            sequences: [rows, tokens so far], padded on the left.
            logits: [rows, vocabulary].
        """
        scores = self._changes(sequences, logits.float())
        return torch.multinomial(scores.softmax(dim=1), 1).squeeze(1)


class _RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values with room for those to come, so that a token does not copy all before it."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self._buffers: list[torch.Tensor] = []

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Adds some tokens; gives all."""
        length, added = self.get_seq_length(), key_states.size(2)
        if not length:  # the prompts, whose rows are still to be multiplied
            return super().update(key_states, value_states)  # type: ignore[no-any-return]
        if not self._buffers:
            before: tuple[torch.Tensor, ...] = (self.keys, self.values)  # type: ignore[has-type]
            for held in before:
                buffer = held.new_empty(*held.shape[:2], self._room, held.size(3))
                buffer[:, :, :length] = held
                self._buffers.append(buffer)
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, length : length + added] = states
        self.keys, self.values = (buffer[:, :, : length + added] for buffer in self._buffers)
        return self.keys, self.values

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Takes some rows, in any order and number."""
        self._buffers = []
        super().batch_select_indices(indices)


def sample(
    module: Any, prompts: TokenBatch, sampler: Sampler, on_ended: OnEnded | None = None
) -> torch.Tensor:
    """Completes prompts.

    Args:
        module: the policy, in eval mode, with its whole weights.
        prompts: one entry per completion; their completions are empty.
        sampler: chooses.
        on_ended: is given completions as they end.

    Returns:
        [completions, longest completion], padded on the right.
    """
    firsts, prompt_of = (
        rows.to(prompts.prompt_tokens.device) for rows in prompts.distinct_prompts()
    )
    inputs = model_inputs(prompts.select(firsts))
    room = prompts.prompt_tokens.size(1) + sampler.longest
    cache = Cache(layer_class_to_replicate=partial(_RoomyLayer, room))
    output = module(**inputs, logits_to_keep=1, use_cache=True, past_key_values=cache)
    cache.batch_select_indices(prompt_of)
    logits = output.logits[prompt_of, -1]
    # [..., completions, 1]: a vision-language model counts three times.
    following = inputs["position_ids"].amax(dim=-1, keepdim=True)[..., prompt_of, :] + 1
    if inputs["position_ids"].dim() > 2:
        following = following.amax(dim=0, keepdim=True).expand_as(following)

    width, count = prompts.prompt_tokens.size(1), len(prompts)
    sequences = prompts.prompt_tokens.new_full((count, width + sampler.longest), sampler.pad_token)
    sequences[:, :width] = prompts.prompt_tokens
    mask = torch.ones_like(sequences)
    mask[:, :width] = prompts.prompt_mask
    ends = torch.tensor(sampler.end_tokens, device=sequences.device)
    rows = torch.arange(count, device=sequences.device)  # those that the cache has
    going = torch.ones(count, dtype=torch.bool, device=sequences.device)
    left = count
    for place in range(width, width + sampler.longest):
        tokens = sampler.choose(sequences[rows, :place], logits)
        tokens = tokens.where(going, sampler.pad_token)
        sequences[rows, place] = tokens
        still_going = going & ~torch.isin(tokens, ends)
        before, left = left, int(still_going.sum())
        if on_ended is not None and left == before:
            on_ended({})
        elif on_ended is not None:
            ended = rows[going & ~still_going]
            completions = sequences[ended, width : place + 1].tolist()
            on_ended(dict(zip(ended.tolist(), completions, strict=True)))
        going = still_going
        if not left or place + 1 == width + sampler.longest:
            break
        if (len(rows) - left) * _ENDED_SHARE >= len(rows):
            kept = going.nonzero().squeeze(1)
            cache.batch_select_indices(kept)
            rows, tokens, going = rows[kept], tokens[kept], going[kept]
            following = following[..., kept, :]
        logits = module(
            input_ids=tokens.unsqueeze(1),
            attention_mask=mask[rows, : place + 1],
            position_ids=following + (place - width),
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
    return sequences[:, width : place + 1]
