"""What an engine is asked and what it answers: prompts to requests, outputs to tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from grpo_doctor_trainer.data.experience import TokenBatch
from grpo_doctor_trainer.errors import RolloutError
from grpo_doctor_trainer.rollout.interface import Completions

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.data.batch import PromptBatch
    from grpo_doctor_trainer.model.load import LoadedModel

_NEVER = -100.0


@dataclass(frozen=True)
class Sampled:
    """One completion.

    Attributes:
        prompt_tokens: how many tokens the engine read.
        tokens: what it made, with the end token if there is one.
        logprobs: one per token.
    """

    prompt_tokens: int
    tokens: list[int]
    logprobs: list[float]


def sampling_options(config: TrainerConfig, loaded: LoadedModel) -> dict[str, Any]:
    """Names the sampling options as vLLM's `SamplingParams` does."""
    options: dict[str, Any] = {
        "temperature": config.temperature,
        "top_p": config.top_p,
        "top_k": max(config.top_k, 0),
        "repetition_penalty": config.repetition_penalty,
        "max_tokens": config.max_completion_length,
        # vLLM would take the tokenizer's end token alone; these are all of the trainer's.
        "ignore_eos": True,
        "stop_token_ids": list(loaded.end_tokens),
        "logprobs": 0,  # of the sampled token, and of no others
        "detokenize": False,
    }
    if loaded.vision is not None:
        # Outside a prompt they stand for nothing; vLLM has no list of tokens to leave out.
        options["logit_bias"] = dict.fromkeys(loaded.vision.placeholders, _NEVER)
    return options


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


def check_length(prompts: PromptBatch, config: TrainerConfig, longest: int) -> None:
    """Refuses prompts whose completions could outgrow the engine.

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


def read_output(output: Any) -> Sampled:
    """Takes what matters of vLLM's `RequestOutput`.

    Raises:
        RolloutError: the engine gave the request up.
    """
    made = output.outputs[0]
    if made.finish_reason not in {"stop", "length"}:
        raise RolloutError(
            f"vLLM gave up a completion after {len(made.token_ids)} tokens "
            f"({made.finish_reason}); its log says why"
        )
    tokens = list(made.token_ids)
    logprobs = [float(at[token].logprob) for token, at in zip(tokens, made.logprobs, strict=True)]
    return Sampled(len(output.prompt_token_ids), tokens, logprobs)


def check_read(prompts: PromptBatch, sampled: list[Sampled]) -> None:
    """Makes sure that engine and trainer see the same prompts; only image prompts can differ.

    Raises:
        RolloutError: the engine's image processor makes another number of tokens of an image.
    """
    for length, one in zip(prompts.mask.sum(dim=1).tolist(), sampled, strict=True):
        if length != one.prompt_tokens:
            raise RolloutError(
                f"vLLM read an image prompt as {one.prompt_tokens} tokens and the trainer as "
                f"{length}: their image processors differ. Set --max_pixels so that images are "
                "small enough for both, or use --use_vllm false"
            )


def as_completions(
    prompts: PromptBatch, sampled: list[Sampled], pad_token: int, device: torch.device
) -> Completions:
    """Puts the completions behind their prompts, padded on the right.

    Returns:
        tokens and log-probs on `device`; log-probs of padding are 0.
    """
    longest = max(len(one.tokens) for one in sampled)
    tokens = torch.full((len(sampled), longest), pad_token)
    mask = torch.zeros_like(tokens)
    logprobs = torch.zeros(len(sampled), longest)
    for line, one in enumerate(sampled):
        size = len(one.tokens)
        tokens[line, :size] = torch.tensor(one.tokens)
        mask[line, :size] = 1
        logprobs[line, :size] = torch.tensor(one.logprobs)
    batch = TokenBatch(
        prompts.tokens.to(device),
        prompts.mask.to(device),
        tokens.to(device),
        mask.to(device),
        prompts.images,
    )
    return Completions(batch, logprobs.to(device))
