"""From the trainer's prompts to what an engine is asked, and from completions to tensors."""

from __future__ import annotations

import base64
import io
import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from grpo_doctor_trainer.config import TrainerConfig
from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.data.prompts import PromptBatch
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.model.load import LoadedModel
from grpo_doctor_trainer.rollout import Completions

_FINAL_ONLY = 2  # vLLM's RequestOutputKind
_NEVER = -100.0  # added to a logit


@dataclass(frozen=True)
class Completion:
    """One completion.

    Attributes:
        tokens: with the end token if there is one.
        logprobs: of each token, as sampled.
        prompt_tokens: how many the engine read, those of images included.
    """

    tokens: list[int]
    logprobs: list[float]
    prompt_tokens: int


def sampling_options(config: TrainerConfig, loaded: LoadedModel) -> dict[str, Any]:
    """Name the sampling options as vLLM's `SamplingParams` does."""
    never = () if loaded.vision is None else loaded.vision.placeholders
    return {
        "max_tokens": config.max_completion_length,
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": max(config.top_k, 0),
        "repetition_penalty": config.repetition_penalty,
        # vLLM would take the tokenizer's end token alone; these are all of the trainer's.
        "ignore_eos": True,
        "stop_token_ids": list(loaded.end_tokens),
        # Outside a prompt they mean nothing; vLLM has no list of tokens to leave out.
        "logit_bias": dict.fromkeys(never, _NEVER) or None,
        "logprobs": 0,  # of the sampled token, and of no others
        "detokenize": False,
    }


def sampling_parameters(options: dict[str, Any]) -> Any:
    """Return vLLM's `SamplingParams` for one request: it completes them in place."""
    from vllm import SamplingParams  # noqa: PLC0415 - has been imported with the engine
    from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

    return SamplingParams(**options, output_kind=RequestOutputKind.FINAL_ONLY)


def read_output(output: Any) -> Completion:
    """Read vLLM's `RequestOutput`."""
    completion = output.outputs[0]
    if completion.finish_reason not in {"stop", "length"}:
        raise RolloutError(
            f"vLLM gave up a completion after {len(completion.token_ids)} tokens "
            f"({completion.finish_reason}); its log says why"
        )
    tokens = list(completion.token_ids)
    logprobs = [
        float(at[token].logprob) for token, at in zip(tokens, completion.logprobs, strict=True)
    ]
    return Completion(tokens, logprobs, len(output.prompt_token_ids))


def as_requests(prompts: PromptBatch) -> list[dict[str, Any]]:
    """Return one prompt per completion, as vLLM takes them.

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
    """Return each prompt once, as a vLLM server takes it, with the number of its completions."""
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
    """Return the most tokens that prompt and completion may have together."""
    if config.vllm_max_model_len is not None:
        return config.vllm_max_model_len
    longest = config.max_length + config.max_completion_length
    return longest if context is None else min(longest, context)


def check_length(prompts: PromptBatch, config: TrainerConfig, longest: int) -> None:
    """Refuse prompts whose completions could outgrow the engine."""
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
    """Make sure that engine and trainer see the same prompts; only image prompts can differ."""
    for length, completion in zip(prompts.mask.sum(dim=1).tolist(), sampled, strict=True):
        if length != completion.prompt_tokens:
            raise RolloutError(
                f"vLLM read an image prompt as {completion.prompt_tokens} tokens and the trainer "
                f"as {length}: they prepare images differently. Set --max_pixels so that images "
                "are small enough for both, or use --use_vllm false"
            )


def as_completions(
    prompts: PromptBatch, sampled: list[Completion], pad_token: int, device: torch.device
) -> Completions:
    """Put the completions after their prompts, padded on the right.

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
