"""Rollout with transformers, on the trained weights themselves; each prompt is read once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import DynamicCache
from transformers.generation import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from grpo_doctor_trainer.algorithm.inputs import generation_inputs, model_inputs
from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.console import LOG
from grpo_doctor_trainer.data.experience import ImageFeatures, TokenBatch, mask_after_end
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.engine import Engine
from grpo_doctor_trainer.model.load import LoadedModel
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rollout import Completions, RolloutEngine

# Of a model's own settings for generation: those that the options replace, or that say nothing.
_REPLACED = {
    *("bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "use_cache"),
    *("do_sample", "temperature", "top_k", "top_p", "repetition_penalty"),
    *("max_length", "max_new_tokens", "output_attentions", "output_hidden_states"),
}
# Rows that have ended are removed from the cache once these are an eighth.
_ENDED_SHARE = 8


class TransformersRollout(RolloutEngine):
    """Samples from the trained weights themselves."""

    shares_weights = True

    def __init__(self, engine: Engine, loaded: LoadedModel, config: TrainerConfig) -> None:
        self._engine = engine
        self._loaded = loaded
        self._config = config
        self._sampler: Sampler | None = None
        if config.share_prompts:
            if settings := own_settings(engine.module):
                LOG.info(
                    "--share_prompts has no effect on the rollout, because the model's "
                    "generation_config sets %s", ", ".join(settings),
                )  # fmt: skip
            else:
                self._sampler = Sampler(config, loaded)

    @torch.no_grad()
    def generate(self, prompts: PromptBatch) -> Completions:
        """Sample the completions."""
        module, device, images = self._engine.module, self._engine.device, prompts.images
        tokens, mask = prompts.tokens.to(device), prompts.mask.to(device)
        module.eval()
        with self._whole_weights(), phase("rollout/generate"):
            if self._sampler is None:
                completions = self._generate(tokens, mask, images)
            else:
                empty = TokenBatch(tokens, mask, tokens[:, :0], mask[:, :0], images)
                completions = sample(module, empty, self._sampler)
        module.train()
        completion_mask = mask_after_end(completions, self._loaded.end_tokens)
        return Completions(TokenBatch(tokens, mask, completions, completion_mask, images), None)

    def _generate(
        self, tokens: torch.Tensor, mask: torch.Tensor, images: ImageFeatures | None
    ) -> torch.Tensor:
        config, vision = self._config, self._loaded.vision
        inputs = generation_inputs(tokens, mask, images)
        sequences: torch.Tensor = self._engine.module.generate(
            **inputs,
            do_sample=True,
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=max(config.top_k, 0),
            repetition_penalty=config.repetition_penalty,
            max_new_tokens=config.max_completion_length,
            pad_token_id=self._loaded.tokenizer.pad_token_id,
            eos_token_id=list(self._loaded.end_tokens),
            # Outside a prompt they mean nothing, and a random model would sample them.
            suppress_tokens=None if vision is None else list(vision.placeholders),
        )
        return sequences[:, tokens.size(1) :]

    @contextmanager
    def _whole_weights(self) -> Iterator[None]:
        if self._engine.zero_stage != 3:
            yield
            return
        import deepspeed  # noqa: PLC0415 - has been imported with the engine

        weights = list(self._engine.module.parameters())
        with deepspeed.zero.GatheredParameters(weights), without_hooks(self._engine.model):
            yield


@contextmanager
def without_hooks(model: Any) -> Iterator[None]:
    """Remove DeepSpeed's hooks from a ZeRO-3 model: they would partition each layer after use."""
    offload = getattr(model.optimizer, "parameter_offload", model.optimizer)
    for weight in model.module.parameters():
        weight.ds_active_sub_modules.clear()
    for hook in (*offload.forward_hooks, *offload.backward_hooks):
        hook.remove()
    offload.forward_hooks, offload.backward_hooks = [], []
    try:
        yield
    finally:
        offload._register_deepspeed_module(offload.module)  # noqa: SLF001 - as TRL does: no public way


def own_settings(module: Any) -> list[str]:
    """Name the settings of a model's generation config that no option covers."""
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

    def choose(self, sequences: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Draw a token for each row from torch's random state.

        Args:
            sequences: [rows, tokens so far], prompts padded on the left.
            logits: [rows, vocabulary].
        """
        scores = self._changes(sequences, logits.float())
        return torch.multinomial(scores.softmax(dim=1), 1).squeeze(1)


@torch.no_grad()
def sample(module: Any, prompts: TokenBatch, sampler: Sampler) -> torch.Tensor:
    """Complete prompts, of which there is one entry per completion; equal ones are read once.

    Returns:
        [completions, longest completion], padded on the right.
    """
    device, width, count = prompts.prompt_tokens.device, prompts.prompt_tokens.size(1), len(prompts)
    full = width + sampler.longest
    sequences = prompts.prompt_tokens.new_full((count, full), sampler.pad_token)
    sequences[:, :width] = prompts.prompt_tokens
    mask = prompts.prompt_mask.new_ones(count, full)
    mask[:, :width] = prompts.prompt_mask

    firsts, prompt_of = (rows.to(device) for rows in prompts.distinct_prompts())
    inputs, cache = model_inputs(prompts.select(firsts)), DynamicCache()
    output = module(**inputs, logits_to_keep=1, use_cache=True, past_key_values=cache)
    cache.batch_select_indices(prompt_of)
    logits = output.logits[prompt_of, -1]
    # [..., completions, 1]: a vision-language model counts three times.
    positions = inputs["position_ids"].amax(dim=-1, keepdim=True)[..., prompt_of, :]
    if positions.dim() > 2:
        positions = positions.amax(dim=0, keepdim=True).expand_as(positions)

    ends = torch.tensor(sampler.end_tokens, device=device)
    rows = torch.arange(count, device=device)  # those that the cache has
    active = torch.ones(count, dtype=torch.bool, device=device)
    for index in range(width, full):
        tokens = sampler.choose(sequences[rows, :index], logits).where(active, sampler.pad_token)
        sequences[rows, index] = tokens
        active &= ~torch.isin(tokens, ends)
        remaining = int(active.sum())
        if not remaining or index + 1 == full:
            break
        if (len(rows) - remaining) * _ENDED_SHARE >= len(rows):
            kept = active.nonzero().squeeze(1)
            cache.batch_select_indices(kept)
            rows, tokens, active = rows[kept], tokens[kept], active[kept]
            mask, positions = mask[kept], positions[..., kept, :]
        positions = positions + 1
        logits = module(
            input_ids=tokens.unsqueeze(1),
            attention_mask=mask[:, : index + 1],
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
        ).logits[:, -1]
    return sequences[:, width : index + 1]
