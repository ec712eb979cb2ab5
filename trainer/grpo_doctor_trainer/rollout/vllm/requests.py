"""From the trainer's prompts to what an engine is asked, and from completions to tensors."""

from __future__ import annotations

import base64
import io
import itertools
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils.rnn import pad_sequence

from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout import Completions
from grpo_doctor_trainer.rollout.vllm.sampling import sampling_options

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.model.load import LoadedModel
    from grpo_doctor_trainer.rollout.vllm.sampling import Completion

_FINAL_ONLY = 2  # vLLM's RequestOutputKind


def as_requests(prompts: PromptBatch) -> list[dict[str, Any]]:
    """Gives one prompt per completion, as vLLM takes them.

    An image prompt goes as text: the engine puts in as many placeholders as its own image processor
    says, which `check_read` compares.
    """
    requests: list[dict[str, Any]] = []
    for line, mask in enumerate(prompts.mask.bool()):
        pictures = prompts.pictures[line] if prompts.pictures else []
        if pictures:
            requests.append(
                {"prompt": prompts.texts[line], "multi_modal_data": {"image": pictures}}
            )
        else:
            requests.append({"prompt_token_ids": prompts.tokens[line][mask].tolist()})
    return requests


def as_bodies(
    batch: PromptBatch, config: TrainerConfig, loaded: LoadedModel, seed: int | None
) -> list[dict[str, Any]]:
    """Gives each prompt once, as a vLLM server takes it, with the number of its completions.

    Args:
        batch: of this rank, one prompt per completion.
        config: the options.
        loaded: the policy, and how its prompts become tokens.
        seed: of the first completion, the next has the next; none: the engine's own randomness.
    """
    options = sampling_options(config, loaded) | {"output_kind": _FINAL_ONLY}
    bodies: list[dict[str, Any]] = []
    for _, lines in itertools.groupby(range(len(batch.rows)), key=lambda i: id(batch.rows[i])):
        same = list(lines)
        first = same[0]
        own = {"n": len(same), "seed": None if seed is None else seed + first}
        body: dict[str, Any] = {"sampling_params": options | own}
        if pictures := batch.pictures[first] if batch.pictures else []:
            # One placeholder per image: the server widens it by what its image processor says.
            text = batch.texts[first]
            body["token_ids"] = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
            body["content_parts"] = [{"type": "image_url", "url": _png(each)} for each in pictures]
        else:
            body["token_ids"] = batch.tokens[first][batch.mask[first].bool()].tolist()
        bodies.append(body)
    return bodies


def _png(picture: Any) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def longest_sequence(config: TrainerConfig, context: int | None) -> int:
    """Gives the most tokens that prompt and completion may have together.

    Args:
        config: the options.
        context: the most tokens that the model can take, if it says.
    """
    if config.vllm_max_model_len is not None:
        return config.vllm_max_model_len
    longest = config.max_length + config.max_completion_length
    return longest if context is None else min(longest, context)


def check_length(prompts: PromptBatch, config: TrainerConfig, longest: int) -> None:
    """Refuses prompts whose completions could outgrow the engine.

    Args:
        prompts: of one rollout.
        config: the options.
        longest: prompt and completion together, in tokens.

    Raises:
        RolloutError: says how long the prompt is and which flags decide.
    """
    prompt = int(prompts.mask.sum(dim=1).max())
    if prompt + config.max_completion_length > longest:
        fits = longest - config.max_completion_length
        shorter = f", or --max_length to {fits}" if fits > 0 else ""
        raise RolloutError(
            f"a prompt of {prompt} tokens and --max_completion_length "
            f"{config.max_completion_length} are more than the engine's {longest} tokens "
            f"(--vllm_max_model_len); raise that to {prompt + config.max_completion_length} if the "
            f"model takes it, or lower --max_completion_length{shorter}"
        )


def check_read(prompts: PromptBatch, sampled: list[Completion]) -> None:
    """Makes sure that engine and trainer see the same prompts; only image prompts can differ.

    Args:
        prompts: of this rank, one per completion.
        sampled: the completions in the same order.

    Raises:
        RolloutError: the engine's image processor makes another number of tokens of an image.
    """
    for length, completion in zip(prompts.mask.sum(dim=1).tolist(), sampled, strict=True):
        if length != completion.prompt_tokens:
            raise RolloutError(
                f"vLLM read an image prompt as {completion.prompt_tokens} tokens and the trainer "
                f"as {length}: their image processors differ. Set --max_pixels so that images are "
                "small enough for both, or use --use_vllm false"
            )


def as_completions(
    prompts: PromptBatch, sampled: list[Completion], pad_token: int, device: torch.device
) -> Completions:
    """Puts the completions behind their prompts, padded on the right.

    Args:
        prompts: of this rank, one per completion.
        sampled: the completions in the same order.
        pad_token: what fills shorter ones up.
        device: where the tensors go.

    Returns:
        tokens and log-probs on `device`; log-probs of padding are 0.
    """
    tokens = [torch.tensor(completion.tokens, dtype=torch.long) for completion in sampled]
    logprobs = [torch.tensor(completion.logprobs) for completion in sampled]
    batch = TokenBatch(
        prompts.tokens.to(device),
        prompts.mask.to(device),
        pad_sequence(tokens, batch_first=True, padding_value=pad_token).to(device),
        pad_sequence([torch.ones_like(row) for row in tokens], batch_first=True).to(device),
        prompts.images,
    )
    return Completions(batch, pad_sequence(logprobs, batch_first=True).to(device))
