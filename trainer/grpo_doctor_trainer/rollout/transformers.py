"""Rollout with transformers, on the trained weights themselves."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_trainer.algorithm.inputs import generation_inputs
from grpo_doctor_trainer.data.experience import TokenBatch, mask_after_end
from grpo_doctor_trainer.logs.console import LOG
from grpo_doctor_trainer.model.sharing import probe
from grpo_doctor_trainer.phases import phase
from grpo_doctor_trainer.rollout import Completions
from grpo_doctor_trainer.rollout.decoding import Sampler, own_settings, plain_parts, sample
from grpo_doctor_trainer.rollout.plain_decoder import NotPlainError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.data.experience import ImageFeatures
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.ranks.engine import Engine
    from grpo_doctor_trainer.rollout import OnEnded
    from grpo_doctor_trainer.rollout.plain_decoder import PlainDecoder


class TransformersRollout:
    """`model.generate` on the trained weights themselves."""

    shares_weights = True

    def __init__(self, engine: Engine, loaded: LoadedModel, config: TrainerConfig) -> None:
        self._engine = engine
        self._end_tokens = loaded.end_tokens
        self._gather = engine.zero_stage == 3 and config.ds3_gather_for_generation
        self._in_step = engine.zero_stage == 3 and not self._gather
        self._options: dict[str, Any] = {
            "do_sample": True,
            "temperature": config.temperature,
            "top_p": config.top_p,
            "top_k": max(config.top_k, 0),
            "repetition_penalty": config.repetition_penalty,
            "max_new_tokens": config.max_completion_length,
            "pad_token_id": loaded.tokenizer.pad_token_id,
            "eos_token_id": list(loaded.end_tokens),
            # Layer by layer, each token is a collective of all ranks: one that is done early has to
            # go on with the others, or they wait for it for ever.
            "synced_gpus": self._in_step,
        }
        if loaded.vision is not None:
            # Outside a prompt they stand for nothing, and a random model would sample them.
            self._options["suppress_tokens"] = list(loaded.vision.placeholders)

        self._sampler = None
        # Ranks that go through the layers together need as many passes as the longest of all.
        if config.share_prompts and not self._in_step:
            settings = own_settings(engine.module)
            if settings:
                LOG.info(
                    "--share_prompts has no effect on the rollout, because the model's "
                    "generation_config sets %s",
                    ", ".join(settings),
                )
            else:
                self._sampler = Sampler(config, loaded)
        self._layout = loaded.vision
        self._plain: PlainDecoder | None = None
        self._asked_for_parts = False

    def sync(self) -> None:
        """Does nothing: these are the trained weights."""

    def awake(self) -> AbstractContextManager[None]:
        """Does nothing: the trained weights are always there."""
        return nullcontext()

    @torch.no_grad()
    def generate(self, prompts: PromptBatch, on_ended: OnEnded | None = None) -> Completions:
        """Samples the completions; without `--share_prompts` they all end together."""
        module = self._engine.module
        device = self._engine.device
        tokens, mask = prompts.tokens.to(device), prompts.mask.to(device)
        module.eval()
        with self._whole_weights(), phase("rollout/generate"):
            if self._sampler is None:
                completions = self._generate(tokens, mask, prompts.images)
            else:
                empty = TokenBatch(tokens, mask, tokens[:, :0], mask[:, :0], prompts.images)
                plain = self._parts()
                completions = sample(module, empty, self._sampler, on_ended, plain)
        module.train()
        completion_mask = mask_after_end(completions, self._end_tokens)
        batch = TokenBatch(tokens, mask, completions, completion_mask, prompts.images)
        return Completions(batch, None)

    def _parts(self) -> PlainDecoder | None:
        """Takes the model apart the first time: that needs its whole weights."""
        if not self._asked_for_parts:
            self._asked_for_parts = True
            module = self._engine.module
            try:
                self._plain = plain_parts(module, probe(self._engine.device, self._layout))
            except NotPlainError as error:
                LOG.info("completions go through the model's own forward pass, because %s", error)
        return self._plain

    def _generate(
        self, tokens: torch.Tensor, mask: torch.Tensor, images: ImageFeatures | None
    ) -> torch.Tensor:
        inputs = generation_inputs(tokens, mask, images, in_step=self._in_step)
        sequences: torch.Tensor = self._engine.module.generate(**inputs, **self._options)
        # Behind the prompts; the last row may be a companion, which is none of ours.
        return sequences[: len(tokens), tokens.size(1) :]

    def close(self) -> None:
        """Does nothing: there is nothing to end."""

    @contextmanager
    def _whole_weights(self) -> Iterator[None]:
        if not self._gather:
            yield
            return
        import deepspeed  # noqa: PLC0415 - has been imported by accelerate

        weights = list(self._engine.module.parameters())
        with deepspeed.zero.GatheredParameters(weights), without_hooks(self._engine.model):
            yield


@contextmanager
def without_hooks(model: Any) -> Iterator[None]:
    """Takes DeepSpeed's hooks off a ZeRO-3 model: they would partition each layer after its use."""
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
