"""From the trainer's prompts to the server's messages, and back from its answers."""

from __future__ import annotations

import base64
import io
import itertools
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.rollout.vllm.requests import Sampled
from grpo_doctor_trainer.serve.protocol import Prompt, Sampling

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.serve.protocol import Generated


def sampling_of(config: TrainerConfig, loaded: LoadedModel) -> Sampling:
    """Gives the sampling options as the server takes them."""
    return Sampling(
        max_tokens=config.max_completion_length,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        repetition_penalty=config.repetition_penalty,
        stop_tokens=loaded.end_tokens,
        never_tokens=() if loaded.vision is None else tuple(loaded.vision.placeholders),
    )


def as_prompts(batch: PromptBatch) -> list[Prompt]:
    """Gives each prompt once, with the number of its completions, in their order.

    A prompt with images goes as text: the engine puts in their placeholders by itself.
    """
    prompts = []
    for _, places in itertools.groupby(range(len(batch.rows)), key=lambda i: id(batch.rows[i])):
        same = list(places)
        first = same[0]
        pictures = batch.pictures[first] if batch.pictures else []
        if pictures:
            images = [_png(picture) for picture in pictures]
            prompts.append(Prompt(len(same), text=batch.texts[first], images=images))
        else:
            tokens = batch.tokens[first][batch.mask[first].bool()].tolist()
            prompts.append(Prompt(len(same), tokens))
    return prompts


def as_sampled(made: Generated) -> list[Sampled]:
    """Gives the completions as those of an engine in this process."""
    return [Sampled(one.prompt_tokens, one.tokens, one.logprobs) for one in made.completions]


def _png(picture: Any) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")
