"""How an engine samples and what it answers, inside a rank and on a server; imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_doctor_trainer.errors import RolloutError

if TYPE_CHECKING:
    from grpo_doctor_trainer.config import TrainerConfig
    from grpo_doctor_trainer.model.load import LoadedModel

_NEVER = -100.0  # added to a logit


@dataclass(frozen=True)
class Completion:
    """One completion.

    Attributes:
        tokens: what was made, with the end token if there is one.
        logprobs: of each token, as sampled.
        prompt_tokens: how many the engine read, those of images included.
    """

    tokens: list[int]
    logprobs: list[float]
    prompt_tokens: int


def sampling_options(config: TrainerConfig, loaded: LoadedModel) -> dict[str, Any]:
    """Names the sampling options as vLLM's `SamplingParams` does."""
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
        # Outside a prompt they stand for nothing; vLLM has no list of tokens to leave out.
        "logit_bias": dict.fromkeys(never, _NEVER) or None,
        "logprobs": 0,  # of the sampled token, and of no others
        "detokenize": False,
    }


def sampling_parameters(options: dict[str, Any]) -> Any:
    """Gives vLLM's `SamplingParams` for one request: it completes them in place."""
    from vllm import SamplingParams  # noqa: PLC0415 - has been imported with the engine
    from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

    return SamplingParams(**options, output_kind=RequestOutputKind.FINAL_ONLY)


def read_output(output: Any) -> Completion:
    """Takes what matters of vLLM's `RequestOutput`.

    Raises:
        RolloutError: the engine gave the request up.
    """
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
